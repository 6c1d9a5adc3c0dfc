"""Weights are repeated observations: the same posterior as of the repeated data."""

import numpy as np
import pymc as pm
import pytest
from approximation_oracles import rbf
from scipy.special import log_ndtr

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

X = np.array([[0.0], [0.7], [1.5], [2.4]])
NEW = np.array([[0.3], [1.9]])
W = np.array([2, 0, 3, 1])


kernel = rbf(1.5)


def posterior_of(X, y, likelihood, **kwargs):
    return sg.SkewGPPosterior(X, y, likelihood=likelihood, cov_func=kernel, **kwargs)


def assert_equal(a, b):
    """Equal rows, seeds and points: what differs is the round-off of sums in another order."""
    one, other = a.log_marginal_likelihood, b.log_marginal_likelihood
    assert one.value == pytest.approx(other.value, abs=1e-6)
    for x, y in zip(a.marginals(NEW).moments[:2], b.marginals(NEW).moments[:2], strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


SIGMA, LOW = np.array([0.3, 0.4, 0.5, 0.6]), np.array([-0.2, 0.0, 0.1, 0.0])
TRIALS = np.array([2, 1, 3, 3])
REPEATED = np.repeat(np.arange(4), W)
# With the likelihood of the repeated data, where it has numbers for each row.
CASES = {
    "labels": ([1, 0, 0, 1], of.BernoulliProbit(), None),
    "trials": ([1, 0, 2, 3], of.BinomialProbit(TRIALS), of.BinomialProbit(TRIALS[REPEATED])),
    "levels": ([0, 1, 2, 1], of.OrderedProbit([-0.5, 0.5]), None),
    "values": ([0.3, 9.0, -0.2, 0.6], of.Gaussian(SIGMA), of.Gaussian(SIGMA[REPEATED])),
    "censored": (
        [0.3, 9.0, 0.1, 0.6],
        of.CensoredGaussian(0.5, lower=LOW),
        of.CensoredGaussian(0.5, lower=LOW[REPEATED]),
    ),
    "bounds": ([[0, 1], [0, 9], [-1, -1], [-2, 0]], of.CensoredGaussian(0.4), None),
    "classes": ([0, 1, 2, 1], of.MultinomialProbit(3), None),
    "selection": ([0.4, 0.2, np.nan, 0.9], of.Selection(0.3, 0.5), None),
}
SETS = np.array([[0, 1, 2], [2, 1, -1], [3, 0, 1], [2, 3, 0]])
COMPARISONS = {
    "duels": ([[0, 1], [2, 1], [3, 0], [2, 3]], of.Preference(0.5), None),
    "choices": (SETS, of.Choice(0.5), None),
    "rankings": (SETS, of.Ranking(0.5), None),
}


@pytest.mark.parametrize("name", CASES | COMPARISONS)
def test_rows(name):
    """Comparisons are repeated with noise of their own; the items stay as they are."""
    y, likelihood, repeated = (CASES | COMPARISONS)[name]
    y, more = np.array(y), {"coregion": np.eye(2)} if name == "selection" else {}
    inputs = X if name in COMPARISONS else X[REPEATED]
    found = posterior_of(X, y, likelihood, weights=W, **more)
    again = posterior_of(inputs, y[REPEATED], repeated or likelihood, **more)
    if name == "trials":  # drawn in coordinates of f, of which only one has a row that counts 0
        a, b = found.log_marginal_likelihood, again.log_marginal_likelihood
        # Four standard errors of two runs.
        assert abs(a.value - b.value) < 4 * np.hypot(a.std_error, b.std_error)
        assert a.std_error < 0.01
    else:
        assert_equal(found, again)
    # f is at each row once, whatever its weight.
    assert found.marginals().means.shape[0] == 4 * {"classes": 3, "selection": 2}.get(name, 1)


def test_skew_prior_and_update():
    points = {"pseudo_points": [[1.0]], "phase": [1]}
    y = np.array([1, 0, 0, 1])
    found = posterior_of(X, y, None, weights=W, **points)
    assert_equal(found, posterior_of(X[REPEATED], y[REPEATED], None, **points))
    more = found.update(NEW, [1, 0])
    whole = np.append(REPEATED, [4, 5])
    inputs, labels = np.vstack([X, NEW])[whole], np.append(y, [1, 0])[whole]
    assert_equal(more, posterior_of(inputs, labels, None, **points))


def test_sites_have_powers():
    y, weights = np.array([1, 0, 3, 2]), np.array([0.5, 0.0, 2.0, 1.3])
    found = posterior_of(X, y, of.Poisson(), weights=weights)
    want = posterior_of(X, y, of.Weighted(of.Poisson(), weights))
    assert found.log_marginal_likelihood == want.log_marginal_likelihood
    with pytest.raises(ValueError, match="weights must be 0 or more"):
        posterior_of(X, y, of.Poisson(), weights=-weights)


def test_output():
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    tree = gp.posterior(X, [1, 0, 0, 1], weights=W).sample(50, 2, random_seed=0)
    assert tree["constant_data"]["weights"].values.tolist() == W.tolist()
    f = tree["posterior"]["f"].values
    want = W * log_ndtr(np.array([1, -1, -1, 1]) * f)
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values, want, rtol=1e-12)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 0.5, 1, 1], "whole numbers.*row 1 has 0.5.*truncated Gaussian.*multiply"),
        ([1, np.nan, 1, 1], "whole numbers"),
        ([1, -1, 1, 1], "row 1 has -1"),
        ([0, 0, 0, 0], "all zero"),
        ([1, 1], r"shape \(4,\)"),
        ("abcd", "numeric|numbers|shape"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises((TypeError, ValueError), match=message):
        posterior_of(X, [1, 0, 0, 1], None, weights=weights)


def test_weights_that_have_no_meaning():
    shared = of.BernoulliProbit(noise_cov=np.eye(4))
    with pytest.raises(ValueError, match="with noise_cov, repeat or drop"):
        posterior_of(X, [1, 0, 0, 1], shared, weights=W)
    with pytest.raises(ValueError, match="weights are of data"):
        posterior_of(X, None, of.Constraint(lower=-3.0), weights=W)
    kinds = [(X, [1, 0, 0, 1], of.BernoulliProbit()), (X, [0.1] * 4, of.Gaussian(1.0))]
    with pytest.raises(ValueError, match="data of one kind"):
        sg.SkewGPPosterior(kinds, cov_func=kernel, weights=W)
