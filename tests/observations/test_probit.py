"""Labels, trials and levels under a probit link: where they coincide, and noise that is shared."""

import numpy as np
import pytest
from likelihood_oracles import assert_posterior, function_grid, kernel
from numpy.testing import assert_allclose
from scipy.special import ndtr
from scipy.stats import binom, norm

import pymc_skewgp as sg
from pymc_skewgp._gaussian.covariance import DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp.likelihoods import BernoulliProbit, BinomialProbit, OrderedProbit

X = np.array([[0.0], [0.6], [1.5], [2.2]])
LEVELS = np.array([0, 1, 2, 1])
XNEW = np.array([[0.3], [5.0]])


@pytest.mark.parametrize("scale", [20, 400])
def test_many_trials_by_quadrature(scale):
    """Hundreds and thousands of rows at three places, and one place of ten trials."""
    trials, y = scale * np.array([5, 3, 8]), scale * np.array([1, 2, 5])
    trials, y = np.append(trials, 10)[:3], np.append(y, 10)[:3]
    K = kernel(X[:3])
    centre = norm.ppf(y / trials)
    # The posterior is narrow: the grid is laid about where the likelihood is, by a Gaussian whose
    # density over the prior's joins the likelihood.
    spread = 4.0 * np.diag(3.0 / trials)
    prior = np.linalg.inv(K)

    def log_likelihood(f):
        off = f - centre
        quadratic = -0.5 * np.einsum("ni,ij,nj->n", f, prior, f)
        quadratic += 0.5 * (off**2 / spread.diagonal()).sum(axis=1)
        constant = -0.5 * np.linalg.slogdet(K)[1] + 0.5 * np.log(spread.diagonal()).sum()
        return binom.logpmf(y, trials, norm.cdf(f)).sum(axis=1) + quadratic + constant

    grid = function_grid(centre, spread, log_likelihood)
    posterior = sg.SkewGPPosterior(
        X[:3], y, cov_func=kernel, likelihood=BinomialProbit(trials), n_draws=2**12
    )
    assert_posterior(posterior, grid)


def test_names_of_categories():
    names = ["bad", "fair", "good"]
    likelihood = OrderedProbit([-0.5, 0.9], 0.7, categories=names)
    y = np.array(["bad", "fair", "good", "fair"])
    posterior = sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=likelihood)
    dt = posterior.sample(10, 1, random_seed=2)
    assert dt["observed_data"]["y"].values.tolist() == LEVELS.tolist()
    new = posterior.predict(XNEW, draws=10, random_seed=3)
    drawn, summary = new["predictions"].dataset, new["predictions_summary"].dataset
    assert drawn["p"].dims == ("chain", "draw", "pred_id", "category")
    assert summary["p_mean"].dims == ("pred_id", "category")
    for found in (drawn["p"], summary["p_mean"]):
        assert found["category"].values.tolist() == names
        assert_allclose(found.sum("category"), 1.0, atol=1e-12)


def test_two_kinds_of_ratings_have_categories_of_their_own():
    kinds = {
        "stars": (X, LEVELS, OrderedProbit([-0.5, 0.9])),
        "votes": (X, LEVELS % 2, OrderedProbit([0.0], categories=["no", "yes"])),
    }
    posterior = sg.SkewGPPosterior(kinds, cov_func=kernel)
    summary = posterior.predict(XNEW, draws=10)["predictions_summary"].dataset
    assert summary["p_mean_stars"].dims == ("pred_id", "category_stars")
    assert summary["category_votes"].values.tolist() == ["no", "yes"]


def test_probabilities_in_tails_are_not_zero():
    """A category that no draw reaches: its probability is not 0, and the error covers the truth."""
    likelihood = OrderedProbit([-0.5, 0.5, 9.0, 9.5], 0.1)
    posterior = sg.SkewGPPosterior(
        X[:1], [0], cov_func=lambda *a, **k: 4.0 * kernel(*a, **k), likelihood=likelihood
    )
    grid = function_grid([0.0], [[8.0]], lambda f: norm.logcdf((-0.5 - f[:, 0]) / 0.1))
    new = np.array([[1.0]])
    gain = kernel(X[:1], new)[0, 0] / 2.0
    sd = np.sqrt(8.0 * (1.0 - gain**2) + 0.01)
    found = posterior.predict(new, draws=0)["predictions_summary"].dataset
    exact = grid.average(
        norm.sf((9.0 - gain * grid.f[0]) / sd) - norm.sf((9.5 - gain * grid.f[0]) / sd)
    )
    value, error = found["p_mean"].values[0, 3], found["p_mean_se"].values[0, 3]
    assert value > 0
    assert abs(value - exact) < 4 * error


# Labels that share noise.

SHARING = np.array([[0.0], [0.7], [2.0]])
SHARING_NEW = np.array([[0.4], [5.0]])
NOISE = np.array([[1.0, 0.8, -0.2], [0.8, 1.0, 0.1], [-0.2, 0.1, 1.0]])


def sharing(y, likelihood, X=SHARING):
    return sg.SkewGPPosterior(X, y, likelihood=likelihood, cov_func=kernel, n_draws=8192)


def log_both(f, y, rho):
    """Log probability of two labels given f, shape (N, 2): an integral over what noise shares."""
    side = np.where(np.array(y) == 1, 1.0, -1.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    p = np.zeros(len(f))
    for z, weight in zip(np.sqrt(rho) * nodes, weights / weights.sum(), strict=True):
        p += weight * ndtr(side * (f + z) / np.sqrt(1.0 - rho)).prod(axis=1)
    return np.log(np.maximum(p, 1e-300))


def test_two_labels():
    y, rho = [1, 0], 0.7
    posterior = sharing(y, BernoulliProbit([[1.0, rho], [rho, 1.0]]), X=SHARING[:2])
    K = kernel(SHARING[:2])
    found = function_grid(np.zeros(2), K, lambda f: log_both(f, y, rho))
    assert_posterior(posterior, found, 1e-5, errors=4)
    # A new label has noise of its own, of variance 1.
    gain = np.linalg.solve(K, kernel(SHARING[:2], SHARING_NEW))
    left = 2.0 - (kernel(SHARING[:2], SHARING_NEW) * gain).sum(axis=0)
    want = [
        found.average(ndtr(gain[:, i] @ found.f / np.sqrt(1.0 + left[i])))
        for i in range(len(SHARING_NEW))
    ]
    p = posterior.probability(SHARING_NEW)
    assert (np.abs(p.value - want) < 4 * p.std_error + 1e-5).all()


def test_more_labels_have_noise_of_their_own():
    y = np.array([1, 0, 1])
    first = sharing(y[:2], BernoulliProbit(NOISE[:2, :2]), X=SHARING[:2])
    wide = np.eye(3)
    wide[:2, :2] = NOISE[:2, :2]
    whole = sharing(y, BernoulliProbit(wide))
    more = first.update(SHARING[2:], y[2:])
    assert more.log_marginal_likelihood.value == pytest.approx(
        whole.log_marginal_likelihood.value, abs=1e-10
    )


def test_blocks_take_the_low_rank_form():
    """Groups of two labels: the same evidence as in the dense form, to round-off."""
    n = 60
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1))
    noise = np.kron(np.eye(n // 2), [[1.0, 0.5], [0.5, 1.0]])
    posterior = sharing(rng.integers(2, size=n), BernoulliProbit(noise), X=x)
    given = posterior._fit.conditioning
    assert isinstance(given.cov, LowRankCovariance)
    want = fit_ep(DenseCovariance(kernel(x) + noise), given.lower, given.upper)
    assert posterior._fit.sampler.ep.log_prob == pytest.approx(want.log_prob, abs=1e-9)
