"""Hundreds of labels of one kind at one place, whatever way they are given: against quadrature.

f has a long tail on the side that no label restricts. Rows drawn one by one share it and all miss
it: the evidence came out .1 too low, the deviation of f by a fifth, and the weights were equal.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from approximation_oracles import rbf
from likelihood_oracles import function_grid
from scipy.special import log_ndtr, logsumexp

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp._gaussian.coordinates import EQUAL
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms, Intervals

PLACES = np.array([[0.0], [3.0]])
GP = sg.SkewGP(cov_func=2.0**2 * pm.gp.cov.ExpQuad(1, ls=1.0))


@cache
def exact(n, phase=None):
    """Log evidence of n failures at 0 and n successes at 3 in their order, and sd of f there.

    With a pseudo-point at 0, on a side, that the prior is conditioned on.
    """
    k = 4.0 * np.array([[1.0, np.exp(-4.5)], [np.exp(-4.5), 1.0]])
    step = np.arange(-11.99, 12.0, 0.02)  # midpoints: 0 is between two of them
    z = np.stack(np.meshgrid(step, step, indexing="ij"), -1).reshape(-1, 2) / 2
    f = z @ np.linalg.cholesky(k).T
    log_p = -0.5 * (z**2).sum(1) - np.log(2 * np.pi) + 2 * np.log(0.5 * (step[1] - step[0]))
    log_p += n * (log_ndtr(-f[:, 0]) + log_ndtr(f[:, 1]))
    if phase is not None:
        log_p += np.where(f[:, 0] * phase > 0, np.log(2.0), -np.inf)
    p = np.exp(log_p - logsumexp(log_p))
    return logsumexp(log_p), np.sqrt(p @ f**2 - (p @ f) ** 2)


def posterior_of(form, n, seed, **prior):
    gp = GP if not prior else sg.SkewGP(cov_func=GP.cov_func, **prior)
    if form == "trials":
        kind = sg.likelihoods.BinomialProbit(n)
        return gp.posterior(PLACES, [0, n], likelihood=kind, random_seed=seed)
    if form == "weights":
        return gp.posterior(PLACES, [0, 1], weights=[n, n], random_seed=seed)
    X, y = np.repeat(PLACES, n, axis=0), np.repeat([0, 1], n)
    if form == "near labels":  # .002 lengthscales apart: the evidence moves by some 1e-4
        X = X + 0.002 * np.random.default_rng(0).standard_normal(X.shape)
    return gp.posterior(X, y, random_seed=seed)


def summary(posterior):
    found = posterior.predict(PLACES)["predictions_summary"].dataset
    return found["f_sd"].values, found["f_sd_se"].values


@pytest.mark.parametrize("form", ["trials", "weights", "labels", "near labels"])
def test_evidence_and_deviation(form):
    """Three seeds: means of three numbers within 4.5 errors, a false alarm once in 50,000.

    Row by row the evidence was .1 too low: six errors of the mean, of .03 each at the most.
    """
    log_evidence, sd = exact(200)
    found = [posterior_of(form, 200, seed) for seed in range(3)]
    values = np.array([(p.log_marginal_likelihood.value, *summary(p)[0]) for p in found])
    errors = np.array([(p.log_marginal_likelihood.std_error, *summary(p)[1]) for p in found])
    z = (values - [log_evidence, *sd]) / errors
    assert (np.abs(z.mean(axis=0)) * np.sqrt(3) < 4.5).all()
    assert errors.max() < 0.03
    assert min(p.log_marginal_likelihood.relative_ess for p in found) > 0.5


@pytest.mark.parametrize("phase", [-1, 1])
def test_beside_a_pseudo_point(phase):
    """Rows without noise stay rows, and the labels are factors all the same."""
    log_evidence, sd = exact(12, phase)
    prior = {"pseudo_points": PLACES[:1], "phase": [phase]}
    posterior = posterior_of("trials", 12, 2, **prior)
    found = posterior.log_marginal_likelihood
    assert found.value == pytest.approx(log_evidence, abs=4.5 * found.std_error)
    value, error = summary(posterior)
    assert (np.abs(value - sd) < 4.5 * error).all()


def test_hyperparameters_integrated_out():
    """The evidence of a model of one hyperparameter, by a rule over it."""
    n = 100
    log_eta = np.linspace(-1.6, 1.6, 17)
    values = []
    for t in log_eta:
        cov = np.exp(2 * t) * np.array([[1.0, np.exp(-4.5)], [np.exp(-4.5), 1.0]])
        grid = function_grid([0, 0], cov, lambda f: n * log_ndtr(f * [-1, 1]).sum(axis=1), 321)
        values.append(grid.log_evidence)
    log_prior = -0.5 * (log_eta / 0.4) ** 2 - np.log(0.4 * np.sqrt(2 * np.pi))
    want = logsumexp(np.array(values) + log_prior) + np.log(log_eta[1] - log_eta[0])
    with pm.Model():
        eta = pm.LogNormal("eta", 0.0, 0.4)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0))
    X, y = np.repeat(PLACES, n, axis=0), np.repeat([0, 1], n)
    dt = sg.integrate(gp, X, y, draws=100, chains=2, random_seed=1, progressbar=False)
    about = dt["posterior"].attrs
    # 4.5 standard errors: a false alarm once in 100,000.
    assert about["log_evidence"] == pytest.approx(want, abs=4.5 * about["log_evidence_se"])
    assert about["log_evidence_se"] < 0.03


def crowded(n, variance, ls):
    """Labels of a draw of f at normal inputs: hundreds of them are at nearly one place."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 1))
    values, vectors = np.linalg.eigh(rbf(variance, ls)(x))
    f = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(n))
    y = (f + rng.standard_normal(n) > 0).astype(int)
    return sg.SkewGPPosterior(x, y, cov_func=rbf(variance, ls), random_seed=1)


def test_crowded_labels_without_a_long_tail_are_drawn_row_by_row():
    """Weights are then nearly equal: those of pairs have .93 here, and half the precision."""
    posterior = crowded(300, 2.0, 0.5)
    assert posterior.latent.method == "twisted"
    assert posterior.latent.relative_ess > 0.95


def test_rows_take_over_where_pairs_collapse():
    """A hundred coordinates, each with a tail: pairs tempered had an error of .115, and warned.

    With fewer they lay 1.5 of their errors apart, one of twelve at 3.4.
    """
    evidence = crowded(1000, 100.0, 0.1).log_marginal_likelihood
    assert evidence.std_error < 0.1
    # Runs of 4096 draws row by row gave this, +- .010.
    assert evidence.value == pytest.approx(-139.484, abs=4.5 * evidence.std_error)


@pytest.mark.parametrize(("sd", "number", "method"), [(1.0, 30, "twisted"), (4.0, 10, "pairs")])
def test_labels_nearly_at_one_place_go_by_the_tail(sd, number, method):
    """Three places far apart: three times the evidence of one, by a rule."""
    z = np.linspace(-10.0, 10.0, 4001)
    one = logsumexp(number * log_ndtr(sd * z) - 0.5 * z**2) + np.log(0.005 / np.sqrt(2 * np.pi))
    X = np.repeat([0.0, 60.0, 120.0], number)[:, None]
    X = X + 0.01 * np.random.default_rng(0).standard_normal(X.shape)
    y = np.ones(len(X), dtype=int)
    found = [sg.SkewGPPosterior(X, y, cov_func=rbf(sd**2, 1.0), random_seed=i) for i in range(8)]
    assert {p.latent.method for p in found} == {method}
    value = np.array([p.log_marginal_likelihood.value for p in found])
    error = np.array([p.log_marginal_likelihood.std_error for p in found])
    # The mean of eight within 4.5 of its errors, a false alarm once in 100,000; .003 for places
    # that are not quite one.
    limit = 4.5 * np.sqrt(np.mean(error**2) / 8) + 0.003
    assert abs(value.mean() - 3 * one) < limit < 0.03


def test_the_search_does_not_go_by_the_tail():
    """One engine for near labels whatever the prior deviation: an evidence that is climbed."""
    X = np.repeat([0.0, 3.0], 20)[:, None]
    X = X + 0.01 * np.random.default_rng(0).standard_normal(X.shape)
    nothing = np.zeros(0)
    for sd in (0.5, 1.0, 2.0, 4.0, 8.0):
        cov = rbf(sd**2, 1.0)(X) + np.eye(40)
        ends = np.zeros(40), np.full(40, np.inf), np.full(40, np.nan)
        terms = EvidenceTerms(*ends, cov, np.ones(40), nothing, nothing, np.zeros((0, 0)))
        assert not Intervals(terms).are_alike(EQUAL)


# Weights are repeated observations: the same posterior as of the repeated data.


X = np.array([[0.0], [0.7], [1.5], [2.4]])
NEW = np.array([[0.3], [1.9]])
W = np.array([2, 0, 3, 1])


kernel = rbf(1.5)


def posterior_of_weighted(X, y, likelihood, **kwargs):
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
    found = posterior_of_weighted(X, y, likelihood, weights=W, **more)
    again = posterior_of_weighted(inputs, y[REPEATED], repeated or likelihood, **more)
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
    found = posterior_of_weighted(X, y, None, weights=W, **points)
    assert_equal(found, posterior_of_weighted(X[REPEATED], y[REPEATED], None, **points))
    more = found.update(NEW, [1, 0])
    whole = np.append(REPEATED, [4, 5])
    inputs, labels = np.vstack([X, NEW])[whole], np.append(y, [1, 0])[whole]
    assert_equal(more, posterior_of_weighted(inputs, labels, None, **points))


def test_sites_have_powers():
    y, weights = np.array([1, 0, 3, 2]), np.array([0.5, 0.0, 2.0, 1.3])
    found = posterior_of_weighted(X, y, of.Poisson(), weights=weights)
    want = posterior_of_weighted(X, y, of.Weighted(of.Poisson(), weights))
    assert found.log_marginal_likelihood == want.log_marginal_likelihood
    with pytest.raises(ValueError, match="weights must be 0 or more"):
        posterior_of_weighted(X, y, of.Poisson(), weights=-weights)


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
        posterior_of_weighted(X, [1, 0, 0, 1], None, weights=weights)


def test_weights_that_have_no_meaning():
    shared = of.BernoulliProbit(noise_cov=np.eye(4))
    with pytest.raises(ValueError, match="with noise_cov, repeat or drop"):
        posterior_of_weighted(X, [1, 0, 0, 1], shared, weights=W)
    with pytest.raises(ValueError, match="weights are of data"):
        posterior_of_weighted(X, None, of.Constraint(lower=-3.0), weights=W)
    kinds = [(X, [1, 0, 0, 1], of.BernoulliProbit()), (X, [0.1] * 4, of.Gaussian(1.0))]
    with pytest.raises(ValueError, match="data of one kind"):
        sg.SkewGPPosterior(kinds, cov_func=kernel, weights=W)
