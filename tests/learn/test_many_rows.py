"""Learning with f of finite rank, against matrices of all rows and finite differences."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from finite_rank_cases import assert_estimates, assert_gradient

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.optimizers import SearchSettings
from pymc_skewgp._learn.problem import TrainingData, learn, process_objective
from pymc_skewgp._learn.rows import data_kinds
from pymc_skewgp.approximations import Inducing

N = 90


def data(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=n)


def labels(values):
    return (values > 0).astype(int)


def process(approximation, **learnt):
    """A SkewGP with all that can be learnt, and the likelihood that `learnt` makes."""
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 1, shape=2, initval=[0.8, 1.2])
        sd, centre = pm.HalfNormal("sd", 2.0, initval=1.5), pm.Normal("centre", 0.0, 1.0)
        noise = pm.HalfNormal("noise", 1.0, initval=0.4)
        kernel = sd**2 * pm.gp.cov.Matern52(2, ls=ls) + pm.gp.cov.WhiteNoise(noise)
        likelihood = {name: make() for name, make in learnt.items()}
        gp = sg.SkewGP(
            cov_func=kernel,
            mean_func=pm.gp.mean.Constant(centre),
            approximation=approximation,
        )
    return gp, likelihood.get("likelihood")


def probit():
    return None


def gaussian():
    return sg.likelihoods.Gaussian(pm.HalfNormal("sigma", 1.0, initval=0.6))


def censored():
    sigma = pm.HalfNormal("sigma", 1.0, initval=0.6)
    return sg.likelihoods.CensoredGaussian(sigma=sigma, lower=-0.5)


CASES = {"probit": probit, "gaussian": gaussian, "censored": censored}


def objectives(case, points):
    X, values = data()
    y = {"probit": labels(values), "censored": np.maximum(values, -0.5)}.get(case, values)
    gp, likelihood = process(Inducing(points), likelihood=CASES[case])
    rng = np.random.default_rng(0)
    found = process_objective(TrainingData(gp, X, y, likelihood), None, rng, None)
    assert found.rows is not None
    # In blocks of 30 rows, and EP to round-off: differences are to see the gradient alone.
    parts = np.array_split(np.arange(N), 3)
    blocks = [block for rows in parts for block in found.rows.kinds[0].blocks(rows)]
    assert len(blocks) == 3
    rows = replace(found.rows.objective.on(blocks, points), tolerance=1e-9)
    return found.objective.on([found.parts.arrays]), rows, Point(found.origin)


@pytest.mark.parametrize("case", CASES)
def test_gradient_is_that_of_the_value(case):
    _, rows, point = objectives(case, data()[0][:15])
    assert_gradient(rows, point, 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_equal_rows_count_as_one(case, monkeypatch):
    X, values = data()
    rows = np.arange(N) % 30
    X, values = X[rows], values[rows]
    y = {"probit": labels(values), "censored": np.maximum(values, -0.5)}.get(case, values)

    def evaluated():
        gp, likelihood = process(Inducing(X[:15]), likelihood=CASES[case])
        found = process_objective(
            TrainingData(gp, X, y, likelihood), None, np.random.default_rng(0), None
        )
        blocks = found.rows.kinds[0].blocks(np.arange(N))
        rows = replace(found.rows.objective.on(blocks, X[:15]), tolerance=1e-9)
        return blocks[0].X.shape[0], rows.by_ep(Point(found.origin))

    n, merged = evaluated()
    monkeypatch.setattr(data_kinds, "distinct_rows", lambda columns: None)
    n_rows, each = evaluated()
    assert (n, n_rows) == (30, N)
    # Both EP to 1e-9.
    assert merged.total == pytest.approx(each.total, abs=1e-7)
    np.testing.assert_allclose(merged.gradient, each.gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", ["probit", "trials"])
def test_gradient_with_rows_far_from_all_points(case):
    """Features say nothing of them: their predictors have no variance, and e has all of it."""
    X, values = data()
    X[:3] += [[8.0], [30.0], [500.0]]  # prior variances of predictors of 1e-9, 1e-60, 0
    with pm.Model():
        sd, ls = pm.HalfNormal("sd", 2.0, initval=1.5), pm.HalfNormal("ls", 1.0, initval=0.8)
        kernel = sd**2 * pm.gp.cov.Matern52(2, ls=ls)
        gp = sg.SkewGP(cov_func=kernel, approximation=Inducing(X[3:18]))
    likelihood = sg.likelihoods.BinomialProbit(2) if case == "trials" else None
    rng = np.random.default_rng(0)
    y = labels(values)
    found = process_objective(TrainingData(gp, X, y, likelihood), None, rng, None).rows
    blocks = found.kinds[0].blocks(np.arange(N))
    rows = replace(found.objective.on(blocks, X[3:18]), tolerance=1e-9)
    x, step = np.log([1.5, 0.8]), 1e-4
    slopes = [
        rows.by_ep(Point(x + d)).total - rows.by_ep(Point(x - d)).total for d in step * np.eye(2)
    ]
    np.testing.assert_allclose(
        rows.by_ep(Point(x)).gradient, np.array(slopes) / (2 * step), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("case", CASES)
def test_with_all_rows_as_points_it_is_the_exact_objective(case):
    exact, rows, point = objectives(case, data()[0])
    # EP of the exact objective stops at 1e-5 or so.
    assert rows.by_ep(point).total == pytest.approx(exact.by_ep(point).total, abs=1e-4)
    np.testing.assert_allclose(
        rows.by_ep(point).gradient, exact.by_ep(point).gradient, rtol=2e-3, atol=2e-3
    )
    assert_estimates(rows.estimate(point, 1024, 0), exact.estimate(point, 1024, 0))


def test_no_value_beyond_double_precision():
    _, rows, point = objectives("probit", data()[0][:15])
    assert rows.by_ep(point.at(point.x + 800.0)).total == -np.inf
    with pytest.raises(sg.DoublePrecisionError, match="no value at this point"):
        rows.estimate(point.at(point.x + 800.0), 64, 0)


def test_it_finds_what_the_exact_search_finds():
    X, values = data(1, 150)

    def found(approximation):
        with pm.Model():
            ls = pm.InverseGamma("ls", 3, 2, initval=1.0)
            sd = pm.HalfNormal("sd", 2.0, initval=1.0)
            kernel = sd**2 * pm.gp.cov.ExpQuad(2, ls=ls)
            gp = sg.SkewGP(cov_func=kernel, approximation=approximation)
        return sg.find_hyperparameters(
            gp, X, labels(values), n_restarts=0, method="ep", random_seed=0, progressbar=False
        )

    exact, rows = found(None), found(Inducing(40))
    # Forty points carry a smooth function in two columns; both stop within 2e-4 nats.
    for name in exact.point:
        np.testing.assert_allclose(rows.point[name], exact.point[name], rtol=0.02)
    difference = rows.log_marginal_likelihood.value - exact.log_marginal_likelihood.value
    assert abs(difference) < 0.05
    assert rows.converged
    for name, error in exact.std_error.items():
        np.testing.assert_allclose(rows.std_error[name], error, rtol=0.1)


def test_many_rows_are_learnt_from_in_stages(monkeypatch):
    monkeypatch.setattr("pymc_skewgp._learn.rows.rows_objective.MANY_ROWS", 100)
    X, values = data(2, 600)
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 2, initval=1.0)
        gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(2, ls=ls))
    settings = SearchSettings(rows_size=450, n_restarts=1)
    run = learn(TrainingData(gp, X, labels(values)), settings, np.random.default_rng(0))
    methods = run.log.runs()["method"].values
    assert methods[0] == "ep, part of the data"
    assert "ep, some of the rows" in methods
    assert methods[-1] == "ep"
    assert run.converged
    # At the optimum of all rows with these points, to the tolerance of the last stage.
    assert np.abs(run.result.optimum.value.gradient).max() < 1.0


class Other:
    """An approximation of somebody else's."""

    features = doubled = None


CORRELATED = 0.8 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5)))


@pytest.mark.parametrize(
    ("approximation", "likelihood", "match"),
    [
        (Other(), None, "only Inducing, PivotedCholesky, HSGP"),
        (Inducing(5), sg.likelihoods.MultinomialProbit(noise_cov=CORRELATED), "more than one way"),
        (Inducing(5), sg.likelihoods.Preference(noise="item"), "rows that share noise"),
    ],
)
def test_what_cannot_be_learnt_so_is_refused(approximation, likelihood, match):
    X = data()[0]
    gp, _ = process(approximation, likelihood=probit)
    y = np.arange(N) % (2 if likelihood is None else 5)
    if match == "rows that share noise":
        y = np.stack([np.arange(N - 1), np.arange(1, N)], axis=1)
    with pytest.raises(sg.ApproximationError, match=match):
        sg.find_hyperparameters(gp, X, y, likelihood=likelihood)


def test_what_is_learnt_of_each_row_is_refused():
    X, values = data()
    with pm.Model():
        sigma = pm.HalfNormal("sigma", 1.0, shape=N)
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), approximation=Inducing(5))
    with pytest.raises(sg.ApproximationError, match="sigma of the likelihood is learnt for each"):
        sg.find_hyperparameters(gp, X, values, likelihood=sg.likelihoods.Gaussian(sigma))


def test_variables_of_a_model_have_the_kernel_as_it_is():
    X, values = data()
    gp, _ = process(Inducing(5), likelihood=probit)
    with gp.model:
        with pytest.raises(sg.ApproximationError, match="prior takes the kernel as it is"):
            gp.prior("f", X)
        with pytest.raises(sg.ApproximationError, match="marginal_likelihood takes the kernel"):
            gp.marginal_likelihood("y", X, labels(values))
    assert "approximation=Inducing(5)" in repr(gp)
    with pytest.raises(sg.ApproximationError, match="must be"):
        process("inducing", likelihood=probit)


def test_what_is_learnt_with_too_few_points_is_warned_of(monkeypatch):
    for module in ("_learn.rows.rows_objective", "_posterior.automatic"):
        monkeypatch.setattr(f"pymc_skewgp.{module}.MANY_ROWS", 250)
    for name in ("_MOST_POINTS", "_LEAST_POINTS"):
        monkeypatch.setattr(f"pymc_skewgp._posterior.automatic.{name}", 20)
    X, values = data(2, 300)
    options = {"likelihood": sg.likelihoods.Gaussian(0.5), "n_restarts": 0, "progressbar": False}
    with pm.Model():
        eta = pm.HalfNormal("eta", 2.0)
        rough = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.Matern12(2, ls=1.0))
        smooth = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=1.0))
    with pytest.warns(sg.PriorApproximationWarning, match=r"Inducing\(20\).*log evidence by"):
        sg.find_hyperparameters(rough, X, values, random_seed=0, **options)
    sg.find_hyperparameters(smooth, X, values, random_seed=0, **options)  # a warning is an error
    options = {"likelihood": sg.likelihoods.Gaussian(0.5), "draws": 10, "chains": 1}
    with pytest.warns(sg.PriorApproximationWarning, match=r"Inducing\(20\)"):
        sg.integrate(rough, X, values, random_seed=0, progressbar=False, **options)
