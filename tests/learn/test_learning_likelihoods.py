"""Evidences of likelihoods, covariances of functions and constraints, with what is learnt of them.

Against quadrature over the function itself, closed forms and finite differences.
"""

import numpy as np
import pymc as pm
import pytest
from collapsed_cases import CASES, ETA, INF, LS, NAN, PSEUDO, Case, X, at, normal, sigma, sigma_at
from collapsed_cases import rbf as kernel_matrix
from likelihood_oracles import function_grid
from oracles import finite_difference
from scipy import stats
from scipy.special import log_ndtr, ndtr

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._model.graph.collapsed import collapse_model

lk = sg.likelihoods
IDENTITY, VALUES = np.eye(3), np.array([0.3, -0.2, 1.1])


def kernel():
    return pm.HalfNormal("eta", 2.0) ** 2 * pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1))


def rbf(x, t):
    return kernel_matrix(x, t, ETA, LS)


def found_of(make, batch_size=None, **arguments):
    """The objective of a SkewGP under data and a likelihood that are made inside of its model."""
    with pm.Model():
        gp = sg.SkewGP(cov_func=kernel(), **arguments)
        data = TrainingData(gp, *make())
    return process_objective(data, batch_size, np.random.default_rng(0), None).objective


def point_of(objective, case):
    values = {"eta_log__": np.log(ETA), "ls_log__": np.log(LS), **case.theta}
    return Point(np.concatenate([np.ravel(values[name]) for name in objective.coordinates.names]))


def signs(case):
    return {"pseudo_points": PSEUDO} if case.signed else {}


def limits():
    return lk.CensoredGaussian(0.5, lower=pm.Normal("low"), upper=pm.Normal("high"))


def within_limits(f, theta):
    low, high = ndtr((theta["low"] - f[:, 0]) / 0.5), ndtr((f[:, 2] - theta["high"]) / 0.5)
    return low * normal(f[:, 1] - 0.4, 0.5) * high


CASES = CASES | {
    "selection": CASES["selection"]._replace(step=0.5),
    "gaussian": Case(
        lambda: (X, VALUES, lk.Gaussian(sigma()), None), sigma_at(0.5),
        lambda f, theta: normal(f - VALUES, np.exp(theta["sigma_log__"])).prod(axis=1), at(3),
    ),
    "limits": Case(
        lambda: (X, [-INF, 0.4, INF], limits(), None), {"low": -0.3, "high": 0.8}, within_limits,
        at(3),
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def case(request):
    known = CASES[request.param]
    objective = found_of(known.make, **signs(known))
    return objective, point_of(objective, known), known


def test_evidence_by_quadrature(case):
    objective, point, known = case
    truth = known.truth(ETA, LS, dict(known.theta)).log_evidence
    # Quasi-random error in at most four rows.
    assert objective.by_twisting(point, 4096, 0).log_evidence == pytest.approx(truth, abs=1e-4)
    # EP's error at such variances.
    assert objective.by_ep(point).log_evidence == pytest.approx(truth, abs=0.02)
    estimate = objective.estimate(point, 1024, 1)
    # The rule of the quadrature is coarser in four dimensions.
    rule = 1e-4 if known is CASES["selection"] else 1e-8
    assert abs(estimate.value - truth) < max(5 * estimate.std_error, rule)


def test_gradient_in_everything_that_is_learnt(case):
    objective, point, _ = case
    for evaluate in (objective.by_ep, lambda at: objective.by_twisting(at, 64, 0)):
        numeric = finite_difference(lambda x, f=evaluate: f(Point(x)).total, point.x, 0.01)
        # EP stops at 1e-4 of a standard deviation in each of a few rows.
        np.testing.assert_allclose(evaluate(point).gradient, numeric, atol=2e-3)


def test_a_value_beyond_a_learnt_limit_is_impossible():
    objective = found_of(CASES["limits"].make)
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
    truth = function_grid(np.zeros(3), K, log_likelihood).log_evidence
    both = lk.MultinomialProbit(n_classes=2)
    kinds = {"class": (X[:1], [1], both), "label": (X[1:2], [1], None)}
    found = found_of(lambda: (kinds, None, None, B))
    # Two rows: exact.
    at = found.by_twisting(Point(np.log([ETA, LS])), 64, 0)
    assert at.log_evidence == pytest.approx(truth, abs=1e-7)


def test_a_skew_prior_under_values():
    """One pseudo-point: the law of total probability over its sign."""
    known = CASES["gaussian"]
    parts = [found_of(known.make, pseudo_points=[[0.5]], phase=[sign]) for sign in (1, -1)]
    truth = stats.multivariate_normal(cov=rbf(X, X) + 0.25 * IDENTITY).pdf(VALUES)
    total = np.mean([np.exp(x.by_ep(point_of(x, known)).log_evidence) for x in parts])
    # Rectangles of one row are exact, in EP too.
    assert total == pytest.approx(truth, rel=1e-7)


MODELS = {
    "ordered": lambda f, y: pm.OrderedProbit(
        "y", f, pm.Normal("cuts", 0.0, 2.0, shape=2), observed=y
    ),
    "tobit": lambda f, y: pm.Censored("y", pm.Normal.dist(f, sigma()), 0.0, None, observed=y),
}


@pytest.mark.parametrize("which", MODELS)
def test_the_same_in_a_model(which):
    case = CASES[which]
    with pm.Model():
        x, y, *_ = case.make()
    with pm.Model() as model:
        gp = sg.SkewGP(cov_func=kernel(), **signs(case))
        MODELS[which](gp.prior("f", x, jitter=0.0), np.array(y))
    objectives = (
        compile_objective(model, collapse_model(model))[0],
        found_of(case.make, **signs(case)),
    )
    there, here = (x.by_ep(point_of(x, case)) for x in objectives)
    # Round-off, and a jitter of 0.
    assert here.log_evidence == pytest.approx(there.log_evidence, abs=1e-9)
    np.testing.assert_allclose(here.gradient, there.gradient, atol=1e-8)


WAVE = np.sin(np.arange(20.0))


@pytest.mark.parametrize(
    ("make", "y", "inputs", "values"),
    [
        (lambda: lk.Gaussian(sigma()), WAVE, 10, 10),
        (lambda: lk.Selection(sigma(), 0.5), np.where(np.arange(20) % 2, NAN, WAVE), 10, 15),
    ],
)
def test_batches(make, y, inputs, values):
    """Of rows that there are; of values in closed form."""
    line = np.linspace(-3.0, 3.0, 20)[:, None]
    objective = found_of(lambda: (line, y, make()), 10)
    assert [len(batch[0]) for batch in objective.batches] == [inputs] * 2
    assert sum(len(batch[1]) for batch in objective.batches) == 2 * values
    found = objective.by_ep(Point(np.log([ETA, LS, 0.5]))).log_evidence
    assert np.isfinite(found)
    if y is WAVE:
        truth = [
            stats.multivariate_normal(cov=rbf(x, x) + 0.25 * np.eye(10)).logpdf(value)
            for x, _, _, value, *_ in objective.batches
        ]
        assert found == pytest.approx(sum(truth), abs=1e-9)


def cut(**limits):
    return lk.CensoredGaussian(1.0, **{name: pm.Normal(name, -5.0) for name in limits}), None


with pm.Model():
    OTHER = pm.HalfNormal("other")

REFUSED = {
    "weights of Weighted is a random variable": (
        lambda: (lk.Weighted(lk.Poisson(), pm.Gamma("w", 2, 2, shape=3)), None), [0, 1, 2]
    ),
    "the model of the SkewGP does not know": (
        lambda: (lambda eta: pm.NegativeBinomial.dist(mu=eta**2, alpha=OTHER), None), [0, 1, 2]
    ),
    "lower of CensoredGaussian is a random variable, so that no y can equal it": (
        lambda: cut(lower=True), [0, 1, 0]
    ),
    "mark values that are censored there by": (lambda: cut(upper=True), [0.1, 0.2, -0.3]),
    "n of BinomialProbit is a random variable, which is not": (
        lambda: (lk.BinomialProbit(pm.Poisson("n", 3.0)), None), [0, 1, 0]
    ),
    "whose length is known": (lambda: (lk.OrderedProbit(pm.Normal("cuts")), None), [0, 1, 0]),
    r"coregion .* shape \(2, 2\)": (lambda: (lk.Selection(0.5), IDENTITY), [0.1, NAN, 0.2]),
    r"coregion must have shape \(1, 1\)": (
        lambda: (None, pm.math.stack([[pm.HalfNormal("b"), 0.0]])), [1, 0, 1]
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_learnt_is_refused(message):
    make, y = REFUSED[message]
    with pytest.raises(ValueError, match=message):
        found_of(lambda: (X, y, *make()))
