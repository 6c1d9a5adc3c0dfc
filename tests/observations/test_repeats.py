"""Repeated intervals are merged, and nothing else is."""

import numpy as np
from approximation_oracles import rbf

import pymc_skewgp as sg
from pymc_skewgp._gaussian.covariance import FactoredCovariance
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp.likelihoods import BinomialProbit, Gaussian, Preference

INF = np.inf
X = np.array([[0.0], [0.8]])
kernel = rbf(2.0)


def trials(y=(40, 100), n=(120, 180)):
    likelihood = BinomialProbit(np.array(n))
    return likelihood.observations(likelihood.as_data(np.array(y), 2), 2)


def factors(rows, prior=None):
    cov = FactoredCovariance.of_kernel(kernel(X) if prior is None else prior)
    given = Conditioning(np.zeros(cov.factor.shape[0]), cov, rows)
    n = rows.n_rows
    found = given.with_factors(np.ones(n), np.zeros(n, dtype=bool), 0)
    return None if found is None else found[1]


def test_slopes_of_trials_that_are_one_factor():
    """By differences, of numba's table of log Phi: 1e-10 of each of 300 trials."""
    found, h = factors(trials()), 1e-4
    eta = np.array([[0.3, -0.8], [-1.2, 0.4]])
    down, here, up = (found.log_prob(eta + shift) for shift in (-h, 0.0, h))
    first, second = found.slopes(eta)
    np.testing.assert_allclose(first, (up - down) / (2 * h), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(second, (up - 2 * here + down) / h**2, rtol=0.01, atol=0.5)


def test_what_is_not_merged():
    """Few trials, and labels at inputs that differ."""
    assert factors(trials(y=(2, 1), n=(4, 3))) is None
    x = np.linspace(0.0, 30.0, 40)[:, None]
    apart = intervals(np.zeros(40), np.full(40, INF), np.ones(40))
    assert factors(apart, kernel(x)) is None


def test_labels_with_offsets_stay_apart():
    """Two values of a at one place are two predictors."""
    rows = trials()
    a = np.zeros(300)
    a[:20] = 0.5
    known = Observations(rows.A, a, rows.S, rows.lower, rows.upper, rows.value)
    found = factors(known)
    assert found.size == 3
    assert sorted(found.a) == [0.0, 0.0, 0.5]


def test_single_rows_are_still_there():
    """A SUN has a latent dimension for each trial, and lin-ess moves each of them."""
    posterior = sg.SkewGPPosterior(
        X, [40, 100], cov_func=kernel, likelihood=BinomialProbit([120, 180])
    )
    assert posterior.latent.draws.shape[1] == 2
    assert posterior.sun.n_latent == 300
    chains = posterior.sample(20, 2, "lin_ess", 1)
    assert chains["sample_stats"].attrs["method"] == "lin_ess"
    at = posterior.marginals().moments
    # Every draw of a Markov chain that starts at the posterior: 6 deviations, 4e-8 false alarms.
    assert np.all(np.abs(chains["posterior"]["f"].values - at.mean) < 6 * at.sd)


def test_where_all_trials_fail():
    """30 places of 20 trials, no success: far from Gaussian in many directions."""
    x = np.linspace(0.0, 30.0, 30)[:, None]
    posterior = sg.SkewGPPosterior(
        x, np.zeros(30, dtype=int), cov_func=kernel, likelihood=BinomialProbit(20)
    )
    assert posterior.latent.draws.shape[1] == 30
    assert posterior.latent.relative_ess > 0.3


def test_beside_other_data():
    """Trials as factors, or rows drawn one by one."""

    def both(n):
        kinds = {
            "trials": (X, [n // 4, n // 2], BinomialProbit(n)),
            "values": (X + 0.5, [0.3, -0.2], Gaussian(0.5)),
        }
        return sg.SkewGPPosterior(kinds, cov_func=kernel, n_draws=4096)

    merged, single = both(130), both(130)
    single._fit = single._fit_of_rows
    assert merged.latent.draws.shape[1] == 4
    assert single.latent.draws.shape[1] == 260
    a, b = merged.log_marginal_likelihood, single.log_marginal_likelihood
    assert abs(a.value - b.value) < 4.5 * np.hypot(a.std_error, b.std_error)
    left, right = (x.marginals([[0.4]]) for x in (merged, single))
    for name in ("mean", "sd"):
        error = np.hypot(getattr(left.moment_errors, name), getattr(right.moment_errors, name))
        off = np.abs(getattr(left.moments, name) - getattr(right.moments, name))
        assert np.all(off < 5 * error)


def test_duels_of_equal_items():
    """They say nothing of f, and each has the probability 1/2: 20 of them, beside 60 others."""
    duels, equal = np.tile([[1, 0], [1, 0], [0, 1]], (20, 1)), np.tile([[0, 2]], (20, 1))
    items = X[[0, 1, 0]]
    found = [
        sg.SkewGPPosterior(
            items, y, cov_func=kernel, likelihood=Preference(0.5), n_draws=4096
        ).log_marginal_likelihood
        for y in (duels, np.concatenate([duels, equal]))
    ]
    off = found[1].value - found[0].value + 20 * np.log(2.0)
    assert abs(off) < 4.5 * np.hypot(found[0].std_error, found[1].std_error)
    assert found[1].std_error < 0.01
