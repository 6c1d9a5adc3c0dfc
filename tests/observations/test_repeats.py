"""Repeated intervals are merged, and nothing else is."""

import numpy as np
import pytest

import pymc_skewgp as sg
from pymc_skewgp._observations.observations import Observations, intervals, points, stacked
from pymc_skewgp._observations.repeats import repeated_rows
from pymc_skewgp.likelihoods import BinomialProbit, Gaussian

INF = np.inf
X = np.array([[0.0], [0.8]])


def trials(y=(40, 100), n=(120, 180)):
    likelihood = BinomialProbit(np.array(n))
    return likelihood.observations(likelihood.as_data(np.array(y), 2), 2)


def kernel(X, Xs=None, diag=False):
    if diag:
        return np.full(len(X), 2.0)
    return 2.0 * np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)


def test_groups_and_kinds():
    found = repeated_rows(stacked([trials(), points(np.array([0.3]), np.array([0.5]))], [2, 1]))
    np.testing.assert_allclose(found.rows.S, [0.5, 1 / 120, 1 / 180])
    np.testing.assert_allclose(found.rows.A.toarray(), [[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert found.rows.value[0] == 0.3
    assert np.isneginf(found.rows.lower[1:]).all()
    assert found.rows.log_constant == trials().log_constant
    whole = sorted(zip(found.group, found.lower, found.upper, found.counts, strict=True))
    assert whole == [(0, -INF, 0, 80), (0, 0, INF, 40), (1, -INF, 0, 80), (1, 0, INF, 100)]
    np.testing.assert_allclose(found.noise, 1.0)


def test_what_is_not_merged():
    few = trials(y=(4, 10), n=(12, 18))
    apart = intervals(np.zeros(300), np.full(300, INF), np.ones(300))
    A = np.zeros((300, 2))
    A[:, 0], A[:, 1] = 1.0, -1.0
    duels = Observations(A, *(getattr(apart, x) for x in ("a", "S", "lower", "upper", "value")))
    rows = trials()
    joint = Observations(rows.A, rows.a, np.eye(300), rows.lower, rows.upper, rows.value)
    for observations in (few, apart, duels, joint):
        assert repeated_rows(observations) is None


def test_labels_with_offsets_stay_apart():
    """Two values of a at one place are two groups."""
    rows = trials()
    a = np.zeros(300)
    a[:20] = 0.5
    found = repeated_rows(Observations(rows.A, a, rows.S, rows.lower, rows.upper, rows.value))
    assert sorted(np.bincount(found.group, found.counts)) == [20, 100, 180]


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


def test_where_all_trials_fail_rows_are_drawn_one_by_one():
    """30 places of 20 trials, no success: far from Gaussian in many directions."""
    x = np.linspace(0.0, 30.0, 30)[:, None]
    posterior = sg.SkewGPPosterior(
        x, np.zeros(30, dtype=int), cov_func=kernel, likelihood=BinomialProbit(20)
    )
    assert posterior.latent.draws.shape[1] == 600
    assert posterior.latent.relative_ess > 0.3


def test_beside_other_data():
    """Merged or not: 180 trials are too few to merge, 260 are not."""
    new = np.array([[0.4]])

    def both(n):
        kinds = {
            "trials": (X, [n // 4, n // 2], BinomialProbit(n)),
            "values": (X + 0.5, [0.3, -0.2], Gaussian(0.5)),
        }
        return sg.SkewGPPosterior(kinds, cov_func=kernel, n_draws=4096)

    merged, single = both(130), both(130)
    single._fit = single._fit.of_single_rows
    assert merged.latent.draws.shape[1] == 2
    assert single.latent.draws.shape[1] == 260
    a, b = merged.log_marginal_likelihood, single.log_marginal_likelihood
    assert abs(a.value - b.value) < 4.5 * np.hypot(a.std_error, b.std_error)
    left, right = merged.marginals(new), single.marginals(new)
    error = np.hypot(left.moment_errors.mean, right.moment_errors.mean)
    assert np.all(np.abs(left.moments.mean - right.moments.mean) < 5 * error)
    error = np.hypot(left.moment_errors.sd, right.moment_errors.sd)
    assert np.all(np.abs(left.moments.sd - right.moments.sd) < 5 * error)


@pytest.mark.parametrize("phase", [1.0, -1.0])
def test_with_a_pseudo_point(phase):
    def of(single):
        posterior = sg.SkewGPPosterior(
            X,
            [60, 100],
            cov_func=kernel,
            likelihood=BinomialProbit(130),
            n_draws=4096,
            pseudo_points=[[0.5]],
            phase=[phase],
            truncation=0.2,
        )
        if single:
            posterior._fit = posterior._fit.of_single_rows
        return posterior

    a, b = of(False).log_marginal_likelihood, of(True).log_marginal_likelihood
    assert abs(a.value - b.value) < 4.5 * np.hypot(a.std_error, b.std_error)
    left, right = of(False).marginals(X + 0.3), of(True).marginals(X + 0.3)
    error = np.hypot(left.moment_errors.mean, right.moment_errors.mean)
    assert np.all(np.abs(left.moments.mean - right.moments.mean) < 5 * error)
