"""Learning with f of finite rank, against matrices of all rows and finite differences."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytest
from finite_rank_cases import assert_estimates, assert_gradient
from pymc.distributions.transforms import ordered
from scipy.special import expit

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.optimizers import SearchSettings
from pymc_skewgp._learn.problem import TrainingData, learn, process_objective
from pymc_skewgp._learn.rows.program import blocks_of, some_blocks
from pymc_skewgp._posterior import data_blocks as row_blocks
from pymc_skewgp.approximations import HSGP, Inducing, PivotedCholesky

lk = sg.likelihoods
N = 36
RNG = np.random.default_rng(11)
X = RNG.uniform(-1.0, 1.0, (N, 2))
F = np.sin(3.0 * X[:, 0]) + X[:, 1]
VALUES = F + 0.5 * RNG.normal(size=N)
LABELS = (VALUES > 0).astype(int)
LEVELS = np.digitize(VALUES, [-0.7, 0.6])
POISSON = RNG.poisson(np.exp(F))
COUNTS = RNG.negative_binomial(3.0, 3.0 / (3.0 + np.exp(F + 1.0)))
EXPOSURE = np.linspace(0.5, 2.0, N)
NOISY = np.stack([np.sin(3.0 * X[:, 0]), X[:, 1], -X[:, 0]], axis=1) + RNG.normal(size=(N, 3))
CLASSES = NOISY.argmax(axis=1)
SELECTED = np.where(NOISY[:, 1] > 0, np.sin(3.0 * X[:, 0]) + 0.4 * NOISY[:, 2], np.nan)
PLACES = np.array([[0.3, 0.2], [-0.8, 0.5], [0.1, -0.7]])
THREE = [[1.0, 0.3, 0.2], [0.3, 1.5, -0.2], [0.2, -0.2, 0.8]]


def half_normal(name, at):
    return pm.HalfNormal(name, 2.0, initval=at)


def sets(size, count=None):
    """Items, each in one set or in several, the best first."""
    shared = [RNG.choice(N, size, replace=False) for _ in range(count or 0)]
    items = np.array(shared) if count else RNG.permutation(N).reshape(-1, size)
    return np.take_along_axis(items, np.argsort(-NOISY[items, 0], axis=1), axis=1)


def unequal(choices):
    """Sets of two items among those of three."""
    choices[::3, 2] = -1
    return choices


def with_ties(pairs):
    return np.column_stack([pairs, np.abs(np.diff(NOISY[pairs, 0], axis=1)) < 0.3])


def preference():
    return lk.Preference(half_normal("sigma", 0.5), threshold=half_normal("threshold", 0.3))


def cut_values():
    lower = pm.Normal("lower", -0.8, initval=-0.8)
    return lk.CensoredGaussian(half_normal("sigma", 0.5), lower=lower)


def dispersed():
    return lk.NegativeBinomial(half_normal("alpha", 2.0))


def any_pymc():
    alpha = half_normal("alpha", 2.0)
    return lambda eta: pm.NegativeBinomial.dist(pm.math.exp(eta), alpha)


def cutpoints():
    return pm.Normal("cutpoints", 0.0, 5.0, shape=2, transform=ordered, initval=[-0.7, 0.6])


def selection():
    rho = pm.Uniform("rho", -1.0, 1.0, initval=0.3)
    return lk.Selection(half_normal("sigma", 0.5), rho)


def learnt_coregion():
    a = half_normal("a", 1.2)
    return pm.math.stack([pm.math.stack([a**2 + 0.3, 0.4 * a]), pm.math.stack([0.4 * a, 1.0])])


def nothing():
    return None


class Case(NamedTuple):
    """Data, their likelihood and a covariance of functions, both made inside of a model.

    `total` and `gradient` are how far EP of matrices stops from its fixed point.
    """

    y: Any
    likelihood: Callable = nothing
    coregion: Callable = nothing
    noise: bool = False
    phase: Any = None
    total: float = 1e-4
    gradient: float = 2e-3
    differences: float = 1e-5
    slow: bool = False


SITES = {"total": 1e-3, "gradient": 5e-3, "differences": 1e-4}
CASES = {
    "probit": Case(LABELS, noise=True),
    "gaussian": Case(VALUES, lambda: lk.Gaussian(half_normal("sigma", 0.6)), noise=True),
    "censored": Case(
        np.maximum(VALUES, -0.5),
        lambda: lk.CensoredGaussian(half_normal("sigma", 0.6), lower=-0.5),
        noise=True,
    ),
    "exposures": Case(POISSON, lambda: lk.Poisson(EXPOSURE), **SITES),
    "negative binomial": Case(COUNTS, dispersed, **SITES),
    "not log-concave": Case(
        F + 0.3 * RNG.standard_t(4, size=N),
        lambda: lk.StudentT(4.0, half_normal("sigma", 0.5)),
        **SITES,
    ),
    "any": Case(COUNTS, any_pymc, **SITES),
    # With a constant for each row: no part of the data is known by itself.
    "any of all rows": Case(
        POISSON, lambda: lambda eta: pm.Poisson.dist(EXPOSURE * pm.math.exp(eta)), **SITES
    ),
    "ordinal": Case(LEVELS, lambda: lk.OrderedProbit(cutpoints()), **SITES),
    "learnt limit": Case(np.where(VALUES < -0.6, -np.inf, VALUES), cut_values, **SITES),
    "duels": Case(with_ties(sets(2)), preference, **SITES),
    "duels that share items": Case(with_ties(sets(2, 50)), preference, **SITES),
    # All trials of a place are one site in blocks, and one each in matrices: EP differs.
    "trials": Case(RNG.binomial(5, expit(F)), lambda: lk.BinomialProbit(5), total=np.inf),
    # Groups about one input, with points, and about several inputs; the others take longer.
    "classes": Case(CLASSES, lk.MultinomialProbit),
    "selection": Case(SELECTED, selection, learnt_coregion),
    "rankings": Case(sets(4), lambda: lk.Ranking(half_normal("sigma", 0.7))),
    "dependent classes": Case(CLASSES, lk.MultinomialProbit, lambda: THREE, slow=True),
    "choices": Case(unequal(sets(3)), lambda: lk.Choice(half_normal("sigma", 0.7)), slow=True),
    "choices that share items": Case(sets(3, 14), lambda: lk.Choice(0.7), slow=True),
    "signs": Case(LABELS, phase=[1.0, -1.0, 1.0], total=2e-4, gradient=np.inf, differences=1e-4),
    # With matrices the signs of three functions are one rectangle in nine dimensions, whose 1024
    # draws are off by some 2e-3.
    "signs of classes": Case(
        CLASSES, lk.MultinomialProbit, phase="learnt", total=6e-3, gradient=np.inf,
        differences=1e-4, slow=True,
    ),
}  # fmt: skip


WEIGHTED = ("learnt limit", "duels", "negative binomial")


def training(name, approximation):
    """A SkewGP with all that can be learnt of it, and data with their likelihood."""
    case = CASES[name]
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 1, shape=2, initval=[0.8, 1.2])
        kernel = half_normal("sd", 1.5) ** 2 * pm.gp.cov.Matern52(2, ls=ls)
        if case.noise:
            kernel += pm.gp.cov.WhiteNoise(half_normal("noise", 0.4))
        # Not Gaussian: of a Gaussian one the exact search would integrate out what rows learn.
        mean, signs = pm.gp.mean.Constant(pm.Logistic("centre", 0.0, 0.6)), {}
        if case.phase is not None:
            phase = case.phase
            if phase == "learnt":
                phase = 2 * pm.Bernoulli("positive", 0.5, shape=3) - 1
            places = pm.Normal("places", 0.0, 1.0, shape=(3, 2), initval=PLACES)
            truncation = half_normal("gamma", 0.3) * np.array([1.0, 0.5, 0.0])
            signs = {"pseudo_points": places, "phase": phase, "truncation": truncation}
        gp = sg.SkewGP(cov_func=kernel, mean_func=mean, approximation=approximation, **signs)
        return TrainingData(gp, X, case.y, case.likelihood(), case.coregion())


def objectives(data, basis=None):
    """With matrices of all rows, in blocks with these points, and where a search begins."""
    found = process_objective(data, None, np.random.default_rng(0), None)
    point = Point(found.origin, found.objective.coordinates.patterns(3)[-1])
    kinds = found.rows.kinds
    arrays = tuple(array for kind in kinds for array in kind.known.arrays)
    arrays = arrays if found.parts is None else found.parts.arrays
    basis = found.rows.basis(point) if basis is None else basis
    # EP to round-off: differences are to see the gradient alone.
    rows = replace(found.rows.objective.on(blocks_of(kinds), basis), tolerance=1e-10)
    return found.objective.on([arrays]), rows, point


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Sums over several of them."""
    monkeypatch.setattr(row_blocks, "ROWS_IN_BLOCK", 12)


def everywhere(name):
    """Points with which nothing is left of f."""
    return X if CASES[name].phase is None else np.vstack([X, PLACES])


@cache
def beside_matrices(name):
    """Compiled once for the tests of its EP and of its estimate."""
    return objectives(training(name, Inducing(everywhere(name))), everywhere(name))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=[pytest.mark.slow(ci=True)] * case.slow)
        for x, case in CASES.items()
        # The others are below: against posteriors, with weights, beside other kinds; and values
        # are among those that are censored.
        if x not in ("exposures", "ordinal", "gaussian", *WEIGHTED, "classes")
    ],
)
def test_value_and_gradient(name):
    case, (exact, rows, point) = CASES[name], beside_matrices(name)
    assert (len(rows.rows.blocks) == 1) == (name == "any of all rows")
    here, there = rows.by_ep(point), exact.by_ep(point)
    assert here.total == pytest.approx(there.total, abs=case.total)
    if np.isfinite(case.total + case.gradient):
        tolerance = {"rtol": case.gradient, "atol": case.gradient}
        np.testing.assert_allclose(here.gradient, there.gradient, **tolerance)
    # With few points much of f is left to the rows, at pseudo-points too.
    assert_gradient(rows.on(rows.rows.blocks, X[:12]), point, case.differences)


@pytest.mark.parametrize(
    "name",
    ["probit", "gaussian", "censored", "trials", "signs"]
    + [pytest.param(x, marks=pytest.mark.slow(ci=True)) for x in ("classes", "selection")],
)
def test_estimate_is_exact(name):
    exact, rows, point = beside_matrices(name)
    assert_estimates(rows.estimate(point, 1024, 0), exact.estimate(point, 1024, 0))


def test_equal_rows_count_as_one(monkeypatch):
    data, index = training("censored", Inducing(X[:10])), np.arange(N) % 12
    data = data._replace(X=X[index], y=data.y[index])
    _, merged, point = objectives(data)
    monkeypatch.setattr(row_blocks.row, "distinct_rows", lambda columns: None)
    _, each, _ = objectives(data)
    assert [sum(b.X.shape[0] for b in x.rows.blocks) for x in (merged, each)] == [12, N]
    one, other = merged.by_ep(point), each.by_ep(point)
    assert one.total == pytest.approx(other.total, abs=1e-7)
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("likelihood", [None, lk.BinomialProbit(2)])
def test_gradient_with_rows_far_from_all_points(likelihood):
    """Features say nothing of them: their predictors have no variance, and e has all of it."""
    far = X.copy()
    far[:3] += [[8.0], [30.0], [500.0]]  # prior variances of predictors of 1e-9, 1e-60, 0
    with pm.Model():
        sd, ls = half_normal("sd", 1.5), half_normal("ls", 0.8)
        kernel = sd**2 * pm.gp.cov.Matern52(2, ls=ls)
        gp = sg.SkewGP(cov_func=kernel, approximation=Inducing(far[3:18]))
    _, rows, point = objectives(TrainingData(gp, far, LABELS, likelihood))
    assert_gradient(rows, point, 1e-5)


def test_no_value_beyond_double_precision():
    _, rows, point = objectives(training("probit", Inducing(X[:10])))
    assert rows.by_ep(point.at(point.x + 800.0)).total == -np.inf
    with pytest.raises(sg.DoublePrecisionError, match="no value at this point"):
        rows.estimate(point.at(point.x + 800.0), 64, 0)


def is_that_of_the_posterior(data):
    """Estimates, which the posterior makes with code of its own."""
    _, rows, point = objectives(data)
    posterior = data.model.posterior(X, data.y, likelihood=data.likelihood, point=rows.named(point))
    assert_estimates(rows.estimate(point, 1024, 0), posterior.log_marginal_likelihood, 1e-4)
    return rows, point


def test_estimate_averages_sites_over_what_features_leave():
    is_that_of_the_posterior(training("exposures", Inducing(X[:12])))


@pytest.mark.parametrize("approximation", [PivotedCholesky(15), HSGP([6, 5])])
def test_other_approximations(approximation):
    rows, point = is_that_of_the_posterior(training("ordinal", approximation))
    assert_gradient(rows, point, 1e-4)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_repeated_observations(name):
    data = training(name, Inducing(X))
    weights = np.arange(len(data.y)) % 3  # 0 leaves one out
    index = np.repeat(np.arange(len(data.y)), weights)
    inputs = X if data.y.ndim == 2 else X[index]
    _, weighted, point = objectives(data._replace(weights=weights), X)
    _, repeated, _ = objectives(data._replace(X=inputs, y=data.y[index]), X)
    assert_gradient(weighted, point, 1e-4)
    assert_estimates(weighted.estimate(point, 512, 0), repeated.estimate(point, 512, 0), 1e-4)


def half(*parts):
    return [(X[start::2], y[start::2], likelihood) for start, y, likelihood in parts]


KINDS = {
    "one function": lambda: half(
        (0, VALUES, lk.Gaussian(half_normal("sigma", 0.4))), (0, POISSON, lk.Poisson()),
        (1, LABELS, None),
    ),
    "several functions": lambda: [*half((0, LABELS, None)), (X, CLASSES, lk.MultinomialProbit())],
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_several_kinds(name):
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 1, initval=0.8)
        gp = sg.SkewGP(cov_func=pm.gp.cov.Matern52(2, ls=ls), approximation=Inducing(X))
        data = TrainingData(gp, KINDS[name](), coregion=THREE if "several" in name else None)
    exact, rows, point = objectives(data, X)
    assert_gradient(rows, point, 1e-4)
    here, there = rows.by_ep(point), exact.by_ep(point)
    assert here.total == pytest.approx(there.total, abs=1e-4)
    np.testing.assert_allclose(here.gradient, there.gradient, rtol=2e-3, atol=2e-3)


def test_it_finds_what_the_exact_search_finds():
    def found(approximation):
        gp, _, y, likelihood, *_ = training("ordinal", approximation)
        options = {"n_restarts": 0, "method": "ep", "random_seed": 0}
        silent = {"progressbar": False, "quiet": True}
        return sg.find_hyperparameters(gp, X, y, likelihood=likelihood, **options, **silent)

    exact, rows = found(None), found(Inducing(X))
    assert rows.converged
    gap = rows.log_marginal_likelihood.value - exact.log_marginal_likelihood.value
    assert abs(gap) < 0.05
    # Both searches end 2e-4 nats from the optimum, hundredths of a standard error.
    for key, value in exact.point.items():
        error = exact.std_error[key]
        assert (np.abs(rows.point[key] - value) < 0.05 * error).all()
        np.testing.assert_allclose(rows.std_error[key], error, rtol=0.05)


# A wide nugget, so that EP's steps and its differences do not end in round-off.
LIMITS = {
    "increasing": lambda: lk.Constraint.increasing(nugget=0.01),
    "learnt bound": lambda: lk.Constraint(lower=pm.Normal("low", -0.5, 1.0), nugget=0.01),
}
LINE = np.linspace(-0.2, 2.2, 20)[:, None]


def limited(name, approximation):
    """Values beside limits of f, on a line."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0.0, 2.0, (24, 1)), axis=0)
    y = x[:, 0] ** 2 + 0.4 * rng.normal(size=24)
    with pm.Model():
        ls, sd = pm.LogNormal("ls", 0.0, 0.5), pm.HalfNormal("sd", 3.0, initval=1.5)
        gp = sg.SkewGP(
            cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=ls),
            mean_func=pm.gp.mean.Linear(pm.Normal("slope", 0.5, 1.0)),
            approximation=approximation,
        )
        shape = np.linspace(0.1, 1.9, 4)[:, None], None, LIMITS[name]()
        return TrainingData(gp, {"values": (x, y, lk.Gaussian(0.5)), "shape": shape})


@pytest.mark.parametrize(
    "name", ["increasing", pytest.param("learnt bound", marks=pytest.mark.slow(ci=True))]
)
def test_limits_of_f(name):
    """Twenty points carry the function: some 1e-4 of a nat are lost."""
    exact, rows, point = objectives(limited(name, Inducing(LINE)), LINE)
    found, there = rows.by_ep(point), exact.by_ep(point)
    assert found.total == pytest.approx(there.total, abs=2e-3)
    np.testing.assert_allclose(found.gradient, there.gradient, rtol=2e-2, atol=2e-2)
    assert_gradient(rows.on(rows.rows.blocks, LINE[::4]), point, 1e-4)
    if name == "increasing":
        assert_estimates(rows.estimate(point, 1024, 0), exact.estimate(point, 1024, 0), 2e-3)


def test_limits_are_in_every_part_of_the_rows():
    found = process_objective(
        limited("learnt bound", Inducing(LINE)), None, np.random.default_rng(0), None
    )
    few = some_blocks(found.rows.kinds, 10, np.random.default_rng(0))
    assert [block.X.shape[0] for block in few] == [10, 4]


def many(n, likelihood, kernel):
    rng = np.random.default_rng(2)
    inputs = rng.uniform(-1.0, 1.0, (n, 2))
    values = np.sin(3.0 * inputs[:, 0]) + inputs[:, 1] + 0.5 * rng.normal(size=n)
    with pm.Model():
        return TrainingData(sg.SkewGP(cov_func=kernel()), inputs, values, likelihood)


def test_many_rows_are_learnt_from_in_stages(monkeypatch):
    monkeypatch.setattr("pymc_skewgp._learn.rows.rows_objective.MANY_ROWS", 100)
    data = many(
        600, None, lambda: 4.0 * pm.gp.cov.ExpQuad(2, ls=pm.InverseGamma("ls", 3, 2, initval=1.0))
    )
    data = data._replace(y=(data.y > 0).astype(int))
    settings = SearchSettings(rows_size=450, n_restarts=1)
    run = learn(data, settings, np.random.default_rng(0))
    methods = run.log.runs()["method"].values
    assert methods[0] == "ep, part of the data"
    assert "ep, some of the rows" in methods
    assert methods[-1] == "ep"
    assert run.converged
    # At the optimum of all rows with these points, to the tolerance of the last stage.
    assert np.abs(run.result.optimum.value.gradient).max() < 1.0


def test_what_is_learnt_with_too_few_points_is_warned_of(monkeypatch):
    for module in ("_learn.rows.rows_objective", "_posterior.automatic"):
        monkeypatch.setattr(f"pymc_skewgp.{module}.MANY_ROWS", 250)
    for name in ("_MOST_POINTS", "_LEAST_POINTS"):
        monkeypatch.setattr(f"pymc_skewgp._posterior.automatic.{name}", 20)
    options = {"likelihood": lk.Gaussian(0.5), "random_seed": 0, "progressbar": False}
    rough, smooth = (
        many(300, None, lambda k=kernel: pm.HalfNormal("eta", 2.0) ** 2 * k(2, ls=1.0))
        for kernel in (pm.gp.cov.Matern12, pm.gp.cov.ExpQuad)
    )
    with pytest.warns(sg.PriorApproximationWarning, match=r"Inducing\(20\).*log evidence by"):
        sg.find_hyperparameters(*rough[:3], n_restarts=0, **options)
    sg.find_hyperparameters(*smooth[:3], n_restarts=0, **options)  # a warning is an error


class Other:
    """An approximation of somebody else's."""

    features = doubled = None


CORRELATED = 0.8 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
EVERY_PAIR = np.stack(np.triu_indices(N, 1), axis=1)
FIVE = np.arange(N) % 5
REFUSED = {
    "only Inducing, PivotedCholesky, HSGP": lambda: training("probit", Other()),
    "more than one way": lambda: training("probit", Inducing(5))._replace(
        y=FIVE, likelihood=lk.MultinomialProbit(noise_cov=CORRELATED)
    ),
    "rows that share noise": lambda: training("probit", Inducing(5))._replace(
        y=EVERY_PAIR, likelihood=lk.Preference(noise="item")
    ),
    "HSGP has no pseudo-points": lambda: training("signs", HSGP([3, 3], 1.5)),
    "pseudo-points, and coregion": lambda: training("signs of classes", Inducing(5))._replace(
        coregion=np.eye(3)
    ),
    "HSGP has no derivatives": lambda: limited("increasing", HSGP([5], 1.5)),
    "constraints alone": lambda: constraints_alone(limited("increasing", Inducing(LINE))),
    "sigma of the likelihood is learnt for each": lambda: noise_of_each_row(),
}


def constraints_alone(data):
    return data._replace(X={"shape": data.X["shape"]})


def noise_of_each_row():
    with pm.Model():
        sigma = pm.HalfNormal("sigma", 1.0, shape=N)
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), approximation=Inducing(5))
    return TrainingData(gp, X, VALUES, lk.Gaussian(sigma))


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_learnt_so_is_refused(message):
    gp, inputs, y, likelihood, coregion, *_ = REFUSED[message]()
    with pytest.raises(sg.ApproximationError, match=message):
        sg.find_hyperparameters(gp, inputs, y, likelihood=likelihood, coregion=coregion)


def test_modes_of_outliers_are_looked_for():
    # A third of the values is elsewhere. Without a cluster no warning of one is due.
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 4, 80))
    y = np.sin(2 * x) + 0.1 * rng.standard_t(3, 80)
    y[::3] = 2.0 + 0.1 * rng.normal(size=27)
    likelihood = lk.StudentT(3, 0.1)
    with pm.Model():
        kernel = pm.HalfNormal("eta", 2) ** 2 * pm.gp.cov.ExpQuad(1, ls=0.7)
        gp = sg.SkewGP(cov_func=kernel, approximation=Inducing(12))
    fit = sg.find_hyperparameters(
        gp, x[:, None], y, likelihood=likelihood, random_seed=0, progressbar=False
    )
    own = gp.posterior(x[:, None], y, likelihood=likelihood, point=fit.point)
    found, other = fit.log_marginal_likelihood, own.log_marginal_likelihood
    # Four joint standard errors: false alarms 6e-5.
    error = np.hypot(found.std_error, other.std_error)
    assert abs(found.value - other.value) < 4 * error < 0.1
