"""Evidences of likelihoods, covariances of functions and constraints, with what is learnt of them.

Against quadrature over the function itself, closed forms and finite differences.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import function_grid
from observation_oracles import grid_posterior
from oracles import finite_difference
from scipy import stats
from scipy.special import log_ndtr

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._model.graph.collapsed import collapse_model

lk = sg.likelihoods
INF, NAN = np.inf, np.nan
X = np.array([[-1.2], [0.1], [0.9]])
ETA, LS = 1.3, 0.8
NONE, ZERO, ONE, IDENTITY = [NAN] * 3, np.zeros(3), np.ones(3), np.eye(3)


def kernel():
    return pm.HalfNormal("eta", 2.0) ** 2 * pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1))


def rbf(x, t):
    return ETA**2 * np.exp(-0.5 * ((x - t.T) / LS) ** 2)


def found_of(make, x, y, batch_size=None, **arguments):
    """The objective of a SkewGP under a likelihood made inside of its model, maybe a coregion."""
    with pm.Model():
        gp = sg.SkewGP(cov_func=kernel(), **arguments)
        likelihood, coregion = make(), None
        if isinstance(likelihood, tuple):
            likelihood, coregion = likelihood
    if y is None:
        x, likelihood = likelihood, None
    data = TrainingData(gp, x, y, likelihood, coregion)
    return process_objective(data, batch_size, np.random.default_rng(0), None).objective


def sigma():
    return pm.HalfNormal("sigma", 1.0)


def rows(A, S, lower, upper, value, cov=None, nodes=81):
    """Log evidence of rows of f, by quadrature."""
    cov = rbf(X, X) if cov is None else cov
    rows = A, np.zeros(len(S)), S, lower, upper, value
    return grid_posterior(ZERO, cov, *rows, nodes=nodes).log_evidence


class Case(NamedTuple):
    """Likelihood and maybe coregion; data; what is learnt besides the kernel; log evidence.

    `error` is that of the quadrature.
    """

    make: Callable
    y: Any
    learnt: Any
    truth: Callable
    x: Any = X
    error: float = 1e-8


def limits():
    return lk.CensoredGaussian(0.5, lower=pm.Normal("low"), upper=pm.Normal("high"))


def duels():
    """A win, a tie and a win, with a random just-noticeable difference of .7 and noise of .4."""
    d = pm.HalfNormal("d", 1.0)
    return lk.Preference(sigma(), threshold=d)


def between(scale, r):
    """A covariance of two functions with a random scale and a random correlation."""
    return [[scale**2, r * scale], [r * scale, 1.0]]


B = np.array(between(1.4, 0.3))


def coregion():
    B = between(pm.HalfNormal("scale"), pm.Normal("r", 0.0, 0.5))
    return pm.math.stack([pm.math.stack(row) for row in B])


def selection():
    return lk.Selection(pm.HalfNormal("sigma"), pm.Uniform("rho", -1.0, 1.0)), coregion()


def selected():
    """An outcome that is seen and one that is not: Heckman's likelihood as a function of f."""
    y, sd, rho = 0.6, 0.5, -0.4

    def log_likelihood(f):  # (N, 4): outcome and selection at each input
        z = (y - f[:, 0]) / sd
        seen = log_ndtr((f[:, 1] + rho * z) / np.sqrt(1.0 - rho**2))
        return seen + stats.norm.logpdf(z) - np.log(sd) + log_ndtr(-f[:, 3])

    cov = np.kron(rbf(X[:2], X[:2]), B)
    return function_grid(np.zeros(4), cov, log_likelihood).log_evidence


def classes():
    """Two classes see the difference of two functions, of variance B00 + B11 - 2 B01."""
    variance = B[0, 0] + B[1, 1] - 2.0 * B[0, 1]
    A = np.diag([1.0, -1.0, 1.0])
    return rows(A, np.full(3, 2.0), ZERO, np.full(3, INF), NONE, variance * rbf(X, X))


SLOPE = ETA**2 / LS**2


def slope():
    """Two values, and a slope above an unknown limit, given up to a nugget of 2 deviations.

    So large, for quadrature to see it; the nugget is in units of the prior deviation of the slope.
    """
    shape = lk.Constraint(pm.Normal("limit"), derivative=(0, 1), nugget=2.0)
    return [(X[2:], None, shape), (X[:2], [0.4, -0.3], lk.Gaussian(0.5))]


def sloped():
    x, v = X[:2], X[2:]
    cross = (x - v.T) / LS**2 * rbf(x, v)
    cov = np.block([[rbf(x, x), cross], [cross.T, SLOPE * np.eye(1)]])
    noise, lower, upper = [0.25, 0.25, SLOPE / 16.0], [NAN, NAN, 0.2], [NAN, NAN, INF]
    return rows(IDENTITY, noise, lower, upper, [0.4, -0.3, NAN], cov, 101)


QUARTER = np.full(3, 0.25)
DUELS = [[1.0, -1.0, 0.0], [0.0, -1.0, 1.0], [-1.0, 0.0, 1.0]]
CASES = {
    "gaussian": Case(
        lambda: lk.Gaussian(sigma()), [0.3, -0.2, 1.1], np.log([0.5]),
        lambda: rows(IDENTITY, QUARTER, NONE, NONE, [0.3, -0.2, 1.1]),
    ),
    "ordered": Case(
        lambda: lk.OrderedProbit(pm.Normal("cuts", 0.0, 3.0, shape=2)), [0, 2, 1], [-0.4, 0.7],
        lambda: rows(IDENTITY, ONE, [-INF, 0.7, -0.4], [-0.4, INF, 0.7], NONE),
    ),
    "censored": Case(
        lambda: lk.CensoredGaussian(sigma(), lower=0.0, upper=1.0), [0.0, 0.4, 1.0], np.log([0.5]),
        lambda: rows(IDENTITY, QUARTER, [-INF, NAN, 1.0], [0.0, NAN, INF], [NAN, 0.4, NAN]),
    ),
    "bounds": Case(
        lambda: lk.CensoredGaussian(sigma()), [[-INF, 0.1], [0.2, 0.9], [0.4, 0.4]], np.log([0.5]),
        lambda: rows(IDENTITY, QUARTER, [-INF, 0.2, NAN], [0.1, 0.9, NAN], [NAN, NAN, 0.4]),
    ),
    "binomial": Case(
        lambda: lk.BinomialProbit([1, 2, 1]), [1, 1, 0], [],
        # Two orders of one success and one failure.
        lambda: np.log(2.0) + rows(
            IDENTITY[[0, 1, 1, 2]], np.ones(4), [0, 0, -INF, -INF], [INF, INF, 0, 0], [NAN] * 4
        ),
    ),
    "duels": Case(
        duels, [[0, 1, 0], [2, 1, 1], [2, 0, 0]], np.log([0.7, 0.4]),
        lambda: rows(DUELS, np.full(3, 0.32), [0.7, -0.7, 0.7], [INF, 0.7, INF], NONE, nodes=101),
    ),
    "limits": Case(
        limits, [-INF, 0.4, INF], [-0.3, 0.8],
        lambda: rows(IDENTITY, QUARTER, [-INF, NAN, 0.8], [-0.3, NAN, INF], [NAN, 0.4, NAN]),
    ),
    "selection": Case(
        selection, [0.6, NAN], [np.log(0.5), np.log(0.6 / 1.4), np.log(1.4), 0.3], selected, X[:2],
        error=1e-4,
    ),
    "classes": Case(
        lambda: (lk.MultinomialProbit(), coregion()), [1, 0, 1], [np.log(1.4), 0.3], classes
    ),
    "slope": Case(slope, None, [0.2], sloped),
}  # fmt: skip


def point_of(name):
    return np.concatenate([np.log([ETA, LS]), CASES[name].learnt])


@pytest.fixture(scope="module", params=CASES)
def case(request):
    known = CASES[request.param]
    return found_of(known.make, known.x, known.y), point_of(request.param), known


def test_evidence_by_quadrature(case):
    objective, x, known = case
    truth = known.truth()
    # Quasi-random error in at most four rows.
    found = objective.by_twisting(Point(x), 4096, 0).log_evidence
    assert found == pytest.approx(truth, abs=1e-4)
    # EP's error at such variances.
    assert objective.by_ep(Point(x)).log_evidence == pytest.approx(truth, abs=0.02)
    estimate = objective.estimate(Point(x), 1024, 1)
    assert abs(estimate.value - truth) < max(5 * estimate.std_error, known.error)


def test_gradient_in_everything_that_is_learnt(case):
    objective, x, _ = case
    for evaluate in (objective.by_ep, lambda at: objective.by_twisting(at, 64, 0)):
        numeric = finite_difference(lambda x, f=evaluate: f(Point(x)).total, x, 0.01)
        # EP stops at 1e-4 of a standard deviation in each of a few rows.
        np.testing.assert_allclose(evaluate(Point(x)).gradient, numeric, atol=2e-3)


def test_a_value_beyond_a_learnt_limit_is_impossible():
    objective = found_of(limits, X, CASES["limits"].y)
    for low, high in ((0.5, 0.8), (-0.3, 0.3)):
        at = Point(np.array([0.2, -0.2, low, high]))
        assert objective.by_ep(at).total == -INF
        assert objective.by_twisting(at, 64, 0).total == -INF


def test_data_about_one_function_and_about_two():
    """Labels of the first function, and choices between both: functions by the first ones."""
    B = np.array([[1.5, 0.4], [0.4, 0.8]])

    def log_likelihood(f):
        return log_ndtr((f[:, 1] - f[:, 0]) / np.sqrt(2.0)) + log_ndtr(f[:, 2])

    K = np.kron(rbf(X[:2], X[:2]), B)[:3, :3]
    truth = function_grid(ZERO, K, log_likelihood).log_evidence
    both = lk.MultinomialProbit(n_classes=2)
    kinds = {"class": (X[:1], [1], both), "label": (X[1:2], [1], None)}
    found = found_of(lambda: (kinds, B), X, None).by_twisting(Point(np.log([ETA, LS])), 64, 0)
    # Two rows: exact.
    assert found.log_evidence == pytest.approx(truth, abs=1e-7)


def test_monotone_data_make_the_lengthscale_longer():
    """Ten rising values under dense constraints: the evidence of the posterior at the optimum."""
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 2.0, 10)[:, None]
    y = x[:, 0] + 0.3 * rng.normal(size=10)
    virtual = np.linspace(0.0, 2.0, 12)[:, None]
    options = {"n_restarts": 0, "random_seed": 1, "quiet": True, "progressbar": False}

    def fit(**more):
        with pm.Model():
            ls = pm.Gamma("ls", 2, 1)
            gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls))
            data = {"y": (x, y, lk.Gaussian(sigma())), **more}
        found = sg.find_hyperparameters(gp, data, **options)
        return found, gp.posterior(data, point=found.point, n_draws=4096)

    free, _ = fit()
    monotone, posterior = fit(rising=(virtual, None, lk.Constraint.increasing()))
    exact = posterior.log_marginal_likelihood
    error = np.hypot(exact.std_error, monotone.log_marginal_likelihood.std_error)
    # Two samplers of their own seeds: five standard errors.
    assert abs(monotone.log_marginal_likelihood.value - exact.value) < 5 * error + 1e-6
    assert monotone.point["ls"] > 1.1 * free.point["ls"]
    assert np.all(np.diff(posterior.marginals(x).moments.mean) > 0.0)


def test_a_skew_prior_under_values():
    """One pseudo-point: the law of total probability over its sign."""
    known = CASES["gaussian"]
    parts = [
        found_of(known.make, X, known.y, pseudo_points=[[0.5]], phase=[sign]) for sign in (1, -1)
    ]
    truth = stats.multivariate_normal(cov=rbf(X, X) + 0.25 * IDENTITY).pdf(known.y)
    point = Point(point_of("gaussian"))
    total = np.mean([np.exp(part.by_ep(point).log_evidence) for part in parts])
    # Rectangles of one row are exact, in EP too.
    assert total == pytest.approx(truth, rel=1e-7)


MODELS = {
    "gaussian": lambda f, y: pm.Normal("y", f, sigma(), observed=y),
    "ordered": lambda f, y: pm.OrderedProbit(
        "y", f, pm.Normal("cuts", 0.0, 3.0, shape=2), observed=y
    ),
    "censored": lambda f, y: pm.Censored("y", pm.Normal.dist(f, sigma()), 0.0, 1.0, observed=y),
    "binomial": lambda f, y: pm.Binomial("y", [1, 2, 1], p=pm.math.invprobit(f), observed=y),
}


@pytest.mark.parametrize("which", MODELS)
def test_the_same_in_a_model(which):
    make, y, *_ = CASES[which]
    with pm.Model() as model:
        MODELS[which](sg.SkewGP(cov_func=kernel()).prior("f", X, jitter=0.0), np.array(y))
    point = Point(point_of(which))
    there = compile_objective(model, collapse_model(model))[0].by_ep(point)
    here = found_of(make, X, y).by_ep(point)
    # Round-off, and a jitter of 0.
    assert here.log_evidence == pytest.approx(there.log_evidence, abs=1e-9)
    np.testing.assert_allclose(here.gradient, there.gradient, atol=1e-8)


@pytest.mark.slow(ci=True)
def test_a_sum_of_functions_and_random_effects():
    """The sum is one Gaussian process, whose kernel is the sum."""
    group = np.array([0, 1, 0])
    with pm.Model() as model:
        f = sg.SkewGP(cov_func=kernel()).prior("f", X, jitter=0.0)
        g = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.3)).prior("g", X, jitter=0.0)
        b = pm.Normal("b", pm.Normal("centre", 0.5, 2.0), 0.7, shape=2)
        pm.Normal("y", f + g + b[group], 0.5, observed=[0.3, -0.2, 1.1])
    objective = compile_objective(model, collapse_model(model))[0]
    cov = rbf(X, X) + np.exp(-0.5 * ((X - X.T) / 0.3) ** 2) + 0.25 * IDENTITY
    cov += 4.0 + 0.49 * (group[:, None] == group)
    truth = stats.multivariate_normal(np.full(3, 0.5), cov).logpdf([0.3, -0.2, 1.1])
    point = Point(np.log([ETA, LS]))
    # The same matrix, summed in another order.
    assert objective.by_ep(point).log_evidence == pytest.approx(truth, abs=1e-9)
    assert set(objective.named(point)) == {"eta", "ls"}


VALUES = np.sin(np.arange(20.0))


@pytest.mark.parametrize(
    ("make", "y", "inputs", "values"),
    [
        (lambda: lk.Gaussian(sigma()), VALUES, 10, 10),
        (lambda: lk.MultinomialProbit(), np.arange(20) % 3, 10, 20),  # two rows each
        (lambda: lk.Selection(sigma(), 0.5), np.where(np.arange(20) % 2, NAN, VALUES), 10, 15),
    ],
)
def test_batches(make, y, inputs, values):
    """Of rows that there are; of values in closed form."""
    line = np.linspace(-3.0, 3.0, 20)[:, None]
    objective = found_of(make, line, y, 10)
    assert [len(batch[0]) for batch in objective.batches] == [inputs] * 2
    assert sum(len(batch[1]) for batch in objective.batches) == 2 * values
    x = np.log([ETA, LS, 0.5])[: 2 if y.dtype.kind == "i" else 3]
    found = objective.by_ep(Point(x)).log_evidence
    assert np.isfinite(found)
    if y is VALUES:
        truth = [
            stats.multivariate_normal(cov=rbf(x, x) + 0.25 * np.eye(10)).logpdf(value)
            for x, _, _, value, *_ in objective.batches
        ]
        assert found == pytest.approx(sum(truth), abs=1e-9)


@pytest.mark.parametrize(
    ("make", "y", "message"),
    [
        (
            lambda: lk.CensoredGaussian(1.0, lower=pm.Normal("limit", -5.0)),
            [0, 1, 0],
            "lower of CensoredGaussian is a random variable, so that no y can equal it",
        ),
        (
            lambda: lk.BinomialProbit(pm.Poisson("n", 3.0)),
            [0, 1, 0],
            "n of BinomialProbit is a random variable, which is not learnt",
        ),
        (
            lambda: lk.OrderedProbit(pm.Normal("cuts")),
            [0, 1, 0],
            "cutpoints must be a vector whose length is known",
        ),
        (
            lambda: lk.CensoredGaussian(1.0, upper=pm.Normal("u")),
            [0.1, 0.2, -0.3],
            "mark values that are censored there by",
        ),
        (
            lambda: (lk.Selection(0.5), np.eye(3)),
            [0.1, NAN, 0.2],
            r"coregion must have shape \(2, 2\)",
        ),
        (
            lambda: (None, pm.math.stack([[pm.HalfNormal("b"), 0.0]])),
            [1, 0, 1],
            r"coregion must have shape \(1, 1\)",
        ),
    ],
)
def test_what_is_not_learnt_is_refused(make, y, message):
    with pytest.raises(ValueError, match=message):
        found_of(make, X, y)


def test_arguments_that_do_not_go_together():
    with pm.Model() as model:
        gp = sg.SkewGP(cov_func=kernel())
    with pytest.raises(ValueError, match="batch_size is for data of one kind"):
        sg.find_hyperparameters(gp, [(X, [0, 1, 0], None), (X, [0, 1, 1], None)], batch_size=2)
    with pytest.raises(ValueError, match="X, y, likelihood and batch_size go with a SkewGP"):
        sg.find_hyperparameters(model, likelihood=lk.Gaussian(1.0))
