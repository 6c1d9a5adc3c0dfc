"""Learning from many trials at a place, and from weights: against quadrature, and against rows.

The places have two values of f, so that the evidence is an integral over a plane.
"""

import numpy as np
import pymc as pm
import pytest
from oracles import finite_difference
from scipy import stats
from scipy.special import logsumexp

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._model.graph.collapsed import collapse_model
from pymc_skewgp._model.graph.data_rows import known_data

PLACES = np.array([[0.0], [1.0]])
N, Y = np.array([400, 250]), np.array([310, 60])


def exact(log_ls, log_eta, mean=0.0):
    """Log p(y | ls, eta) by a grid about the mode of the likelihood, which these trials decide."""
    k = np.exp(2 * log_eta) * np.array([[1.0, np.exp(-0.5 / np.exp(2 * log_ls))], [0.0, 1.0]])
    k[1, 0] = k[0, 1]
    step = np.linspace(-0.6, 0.6, 201)
    centre = stats.norm.ppf(Y / N)
    one = [
        stats.binom(n, stats.norm.cdf(c + step)).logpmf(y)
        for n, c, y in zip(N, centre, Y, strict=True)
    ]
    f = np.stack(np.meshgrid(*(c + step for c in centre), indexing="ij"), -1)
    log_p = stats.multivariate_normal(np.full(2, mean), k).logpdf(f)
    log_p += one[0][:, None] + one[1]
    return float(logsumexp(log_p) + 2 * np.log(step[1] - step[0]))


def process():
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.0, 0.5)
        eta = pm.LogNormal("eta", 0.0, 0.5)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    return model, gp


def in_model():
    model, gp = process()
    with model:
        pm.Binomial("y", n=N, p=pm.math.invprobit(gp.prior("f", PLACES)), observed=Y)
    return model


def assert_best(fit):
    at = np.log([fit.point["ls"], fit.point["eta"]])

    def total(x):
        prior = stats.norm(0.0, 0.5).logpdf(x).sum() - x.sum()
        return exact(*x) + prior

    # 256 draws of two coordinates whose weights are all but equal.
    assert fit.log_marginal_likelihood.value == pytest.approx(exact(*at), abs=1e-3)
    slopes = [finite_difference(lambda t, e=e: total(at + t * e), 0.0, 0.02) for e in np.eye(2)]
    # The search ends where a step would gain less than 5e-3 nats; the curvature is of order 4.
    assert np.abs(slopes).max() < 0.2


@pytest.mark.parametrize("method", ["ep", "twisted"])
def test_model(method):
    assert_best(sg.find_hyperparameters(in_model(), method=method, random_seed=1, quiet=True))


def test_process():
    _, gp = process()
    likelihood = sg.likelihoods.BinomialProbit(N)
    fit = sg.find_hyperparameters(
        gp, PLACES, Y, likelihood=likelihood, random_seed=1, quiet=True, progressbar=False
    )
    assert_best(fit)


@pytest.mark.parametrize("method", ["ep", "twisted"])
def test_marginal_likelihood(method):
    model, gp = process()
    with model:
        likelihood = sg.likelihoods.BinomialProbit(N)
        gp.marginal_likelihood("y", PLACES, Y, likelihood=likelihood, method=method)
    point = {"ls_log__": np.array(-0.2), "eta_log__": np.array(0.3)}
    logp = model.compile_logp(mode="FAST_COMPILE")
    slopes = model.compile_dlogp(mode="FAST_COMPILE")

    def at(x):
        return exact(*x) + stats.norm(0.0, 0.5).logpdf(x).sum()

    x = np.array([-0.2, 0.3])
    assert logp(point) == pytest.approx(at(x), abs=1e-3)
    expected = [finite_difference(lambda t, e=e: at(x + t * e), 0.0, 0.02) for e in np.eye(2)]
    by_name = dict(zip([v.name for v in model.continuous_value_vars], slopes(point), strict=True))
    np.testing.assert_allclose([by_name[n] for n in point], expected, atol=5e-3)


X = np.array([[-1.0], [-0.3], [0.4], [1.2]])
WEIGHTS = np.array([3, 1, 0, 120])
KINDS = {
    "labels": (np.array([1, 0, 1, 0]), lambda s: sg.likelihoods.BernoulliProbit()),
    "levels": (np.array([0, 2, 1, 1]), lambda s: sg.likelihoods.OrderedProbit(s, 1.3)),
    "values": (np.array([0.3, -0.2, 1.0, 2.0]), lambda s: sg.likelihoods.Gaussian(s)),
    "limits": (np.array([0.0, 0.7, 0.0, 1.0]), lambda s: sg.likelihoods.CensoredGaussian(s, 0, 1)),
    "classes": (np.array([0, 1, 2, 1]), lambda s: sg.likelihoods.MultinomialProbit()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repeated_rows(kind):
    """Value and gradient, by EP and by the sampler, of one objective and of the other."""
    y, likelihood = KINDS[kind]
    # Of classes none may be without data; each observation is two rows.
    weights = WEIGHTS if kind != "classes" else np.array([2, 1, 1, 3])
    index = np.repeat(np.arange(4), weights)

    def objective(X, y, weights=None):
        with pm.Model():
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls", 0.0, 0.5)))
            s = pm.LogNormal("s", 0.0, 0.5)
            if kind == "levels":
                s = pm.Normal("cut", 0.0, 1.0, shape=2, initval=np.array([-0.4, 0.6]))
            known = likelihood(s)
            data = TrainingData(gp, X, y, known, weights=weights)
            return process_objective(data, None, np.random.default_rng(0), None)

    weighted, repeated = objective(X, y, weights), objective(X[index], y[index])
    assert weighted.objective.coordinates.names == repeated.objective.coordinates.names
    point = Point(weighted.origin)
    a, b = weighted.objective.by_ep(point), repeated.objective.by_ep(point)
    # EP stops at 1e-4 of a standard deviation.
    assert a.total == pytest.approx(b.total, abs=1e-3)
    np.testing.assert_allclose(a.gradient, b.gradient, atol=2e-2)
    if kind != "classes":
        found = known_data(X, y, likelihood(1.0 if kind != "levels" else [-0.4, 0.6]), WEIGHTS)
        # One row for each interval that was seen, however often.
        assert len(found.arrays[1]) == (124 if kind == "values" else 3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(4, 0.5), "weights must be whole numbers.*number 0 is 0.5"),
        (np.ones(3), r"shape \(4,\)"),
    ],
)
def test_bad_weights(weights, message):
    _, gp = process()
    with pytest.raises(ValueError, match=message):
        sg.find_hyperparameters(gp, X, KINDS["labels"][0], weights=weights)


def test_weights_of_what_has_none():
    _, gp = process()
    both = [(X, KINDS["labels"][0], sg.likelihoods.BernoulliProbit())] * 2
    with pytest.raises(ValueError, match="weights do: a model has its data in it"):
        sg.find_hyperparameters(in_model(), weights=WEIGHTS)
    with pytest.raises(ValueError, match="data of one kind"):
        sg.find_hyperparameters(gp, both, weights=WEIGHTS)
    with pytest.raises(ValueError, match="has none"):
        sg.find_hyperparameters(
            gp, X, likelihood=sg.likelihoods.Constraint.bounds(0.0, 1.0), weights=WEIGHTS
        )


COUNTS = np.array([3, 1])


def exact_with_counts(log_eta):
    """The same with a Poisson count at each place beside the trials, at ls = 1."""
    eta2 = np.exp(2 * log_eta)
    k = eta2 * np.array([[1.0, np.exp(-0.5)], [np.exp(-0.5), 1.0]])
    step = np.linspace(-0.6, 0.6, 201)
    f = [stats.norm.ppf(y / n) + step for n, y in zip(N, Y, strict=True)]
    log_p = stats.multivariate_normal(np.zeros(2), k).logpdf(
        np.stack(np.meshgrid(*f, indexing="ij"), -1)
    )
    for i, along in enumerate(((slice(None), None), (None, slice(None)))):
        one = stats.binom(N[i], stats.norm.cdf(f[i])).logpmf(Y[i])
        log_p += (one + stats.poisson(np.exp(f[i])).logpmf(COUNTS[i]))[along]
    return float(logsumexp(log_p) + 2 * np.log(step[1] - step[0]))


def test_trials_beside_sites():
    """Rows that repeat are rows one by one where likelihoods of other kinds stand beside them."""
    with pm.Model() as model:
        eta = pm.LogNormal("eta", 0.0, 0.5)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0))
        f = gp.prior("f", PLACES)
        pm.Binomial("y", n=N, p=pm.math.invprobit(f), observed=Y)
        pm.Poisson("counts", mu=pm.math.exp(f), observed=COUNTS)
    objective = compile_objective(model, collapse_model(model))[0]
    point = Point(np.array([0.2]))
    found = objective.estimate(point, 1024, 1)
    # Four standard errors, and the grid's own error.
    assert abs(found.value - exact_with_counts(0.2)) < 4 * found.std_error + 1e-4
    prior = stats.norm(0.0, 0.5).logpdf  # on the log scale, less the Jacobian
    slope = finite_difference(lambda x: exact_with_counts(x) + prior(x) - x, 0.2, 0.02)
    # EP's error under so many trials, found to be below a thousandth.
    by_ep = objective.by_ep(point)
    assert by_ep.log_evidence == pytest.approx(found.value, abs=0.01)
    assert by_ep.gradient[0] == pytest.approx(float(slope), abs=0.01)


def test_weights_of_sites():
    """Powers of sites are those of repeated rows; under a function of a predictor: refused."""
    y, weights = np.array([2, 0, 1, 4]), np.array([3, 1, 0, 2])
    index = np.repeat(np.arange(4), weights)

    def objective(X, y, weights=None, distribution=None):
        with pm.Model():
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls", 0.0, 0.5)))
            alpha = pm.LogNormal("alpha", 1.0, 0.5)
        known = distribution or sg.likelihoods.NegativeBinomial(alpha)
        data = TrainingData(gp, X, y, known, weights=weights)
        return process_objective(data, None, np.random.default_rng(0), None)

    weighted, repeated = objective(X, y, weights), objective(X[index], y[index])
    point = Point(weighted.origin)
    a, b = weighted.objective.by_ep(point), repeated.objective.by_ep(point)
    # One site to a power against several equal ones: near the same Gaussian, not quite.
    assert a.total == pytest.approx(b.total, abs=0.01)
    exact = [x.objective.estimate(point, 2048, 1) for x in (weighted, repeated)]
    error = np.hypot(exact[0].std_error, exact[1].std_error)
    assert abs(exact[0].value - exact[1].value) < 4 * error + 1e-6
    with pytest.raises(ValueError, match="weights go with the likelihoods"):
        objective(X, y, weights, lambda eta: pm.Poisson.dist(mu=pm.math.exp(eta)))
