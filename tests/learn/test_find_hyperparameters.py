"""find_hyperparameters: the exact optimum where it is known, priors, phases, batches, refusals."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pymc as pm
import pytest
from oracles import finite_difference, ou_probit_log_evidence
from scipy import stats
from scipy.optimize import minimize, minimize_scalar, rosen, rosen_der

from pymc_skewgp import FlatOptimumWarning, OptimumConvergenceWarning, SkewGP, find_hyperparameters
from pymc_skewgp._learn.coordinates import Point, Value
from pymc_skewgp._learn.hyperparameters import warn_of
from pymc_skewgp._learn.optimizers import (
    EvaluationLog,
    OptimizerSettings,
    SearchSettings,
    maximize,
    newton,
)
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._learn.problem import learn as learning_run
from pymc_skewgp._learn.search import Part, random_batches, search

RNG = np.random.default_rng(11)
N = 60
X = np.sort(RNG.uniform(-4.0, 4.0, N))[:, None]
Y = (2.0 * np.sin(1.5 * X[:, 0]) + RNG.normal(size=N) > 0).astype(int)


def flat_ou():
    with pm.Model():
        ls, eta = pm.HalfFlat("ls"), pm.HalfFlat("eta")
        return SkewGP(cov_func=eta**2 * pm.gp.cov.Matern12(1, ls=ls))


def exact(log_ls, log_eta):
    """By the oracle, whose error with a hundred points is below 1e-6 nats."""
    return ou_probit_log_evidence(X[:, 0], Y, np.exp(log_ls), np.exp(2 * log_eta), points=100)


@pytest.fixture(scope="module")
def exact_optimum():
    """Of the exact evidence, by an optimiser that needs no gradient."""
    found = minimize(lambda x: -exact(*x), np.log([2.0, 2.0]), method="Nelder-Mead", tol=1e-4)
    return found.x, -found.fun


def learn(*args, **kwargs):
    return find_hyperparameters(*args, **{"random_seed": 0, "progressbar": False, **kwargs})


@pytest.fixture(scope="module")
def fitted():
    return learn(flat_ou(), X, Y)


class TestOptimum:
    @pytest.mark.parametrize(("method", "gap"), [("twisted", 0.02), ("ep", 0.05)])
    def test_evidence_reached(self, fitted, exact_optimum, method, gap):
        fit = fitted if method == "twisted" else learn(flat_ou(), X, Y, method=method)
        reached = exact(np.log(fit.point["ls"]), np.log(fit.point["eta"]))
        # The search stops at gains of .005 nats by the twisted sampler, whose own error is a few
        # thousandths; EP's optimum is off by what its bias varies.
        assert exact_optimum[1] - gap < reached <= exact_optimum[1] + 1e-6
        estimate = fit.log_marginal_likelihood
        assert abs(estimate.value - reached) < max(5 * estimate.std_error, 1e-3)
        assert fit.kind == "evidence"
        assert fit.converged
        assert fit.log_prior == 0.0

    def test_standard_errors(self, fitted, exact_optimum):
        x, h = exact_optimum[0], 0.05
        slopes = partial(finite_difference, lambda at: exact(*at), h=h)
        hessian = finite_difference(slopes, x, h)
        errors = np.sqrt(np.diag(np.linalg.inv(-hessian))) * np.exp(x)
        found = [float(fitted.std_error["ls"]), float(fitted.std_error["eta"])]
        # EP's Hessian for the exact one, at its own optimum: a few hundredths; a quarter at most
        # where the evidence is as skewed as for 60 labels.
        np.testing.assert_allclose(found, errors, rtol=0.25)

    def test_report(self, fitted):
        fit = fitted
        assert set(fit.point) == {"ls", "eta"}
        methods = fit.runs["method"].to_numpy().tolist()
        assert methods[:2] == ["ep", "ep"]
        assert methods[-1] == "twisted"
        assert int(fit.runs["n_evaluations"].sum()) == fit.path.sizes["evaluation"]
        assert float(fit.path["total"].max()) == pytest.approx(float(fit.runs["total"].max()))
        assert fit.path["coordinate"].to_numpy().tolist() == ["ls", "eta"]
        found = r"ls=\d\.\d+, eta=\d\.\d+; log marginal likelihood -\d+\.\d\d \+- 0\.\d+; converged"
        assert re.fullmatch(rf"HyperparameterFit\({found}\)", repr(fit))
        assert f"converged: {fit.path.sizes['evaluation']} evaluations" in str(fit)


class TestPriors:
    def test_maximum_a_posteriori(self):
        """Against the exact evidence and SciPy's densities on a grid."""
        with pm.Model():
            ls = pm.InverseGamma("ls", alpha=5, beta=3)
            gp = SkewGP(cov_func=4.0 * pm.gp.cov.Matern12(1, ls=ls))
        fit = learn(gp, X, Y)

        def total(log_ls):
            return stats.invgamma(5, scale=3).logpdf(np.exp(log_ls)) + exact(log_ls, np.log(2.0))

        best = minimize_scalar(lambda z: -total(z), bounds=(-2.0, 2.0))
        assert total(np.log(fit.point["ls"])) > -best.fun - 0.02
        at_optimum = stats.invgamma(5, scale=3).logpdf(fit.point["ls"])
        assert fit.log_prior == pytest.approx(float(at_optimum), rel=1e-6)

    def test_hierarchy_and_deterministics(self):
        with pm.Model():
            level = pm.Normal("level", 0.0, 0.5)
            log_ls = pm.Normal("log_ls", level, 0.3)
            ls = pm.Deterministic("ls", pm.math.exp(log_ls))
            gp = SkewGP(cov_func=4.0 * pm.gp.cov.Matern12(1, ls=ls))
        fit = learn(gp, X, Y, n_restarts=0)
        assert set(fit.point) == {"level", "log_ls", "ls"}
        assert fit.point["ls"] == pytest.approx(np.exp(fit.point["log_ls"]))
        assert fit.std_error["ls"] == pytest.approx(
            fit.std_error["log_ls"] * fit.point["ls"], rel=1e-3
        )
        # Given log_ls the best level is in closed form.
        share = 0.5**2 / (0.5**2 + 0.3**2)
        assert fit.point["level"] == pytest.approx(share * fit.point["log_ls"], abs=0.05)


class TestPseudoPoints:
    """Labels of which the sign of f at one point says nearly all."""

    X = np.array([[-2.0], [-1.0], [-0.5], [0.5], [1.0], [2.0]])
    Y = np.array([0, 0, 0, 1, 1, 1])

    def gp(self, s, **priors):
        with pm.Model():
            r = priors.pop("r", None)
            r = pm.Normal("r", 0.0, 2.0, shape=(s, 1)) if r is None else r()
            positive = pm.Bernoulli("positive", 0.5, shape=s)
            return SkewGP(
                cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0),
                pseudo_points=r,
                phase=2 * positive - 1,
                **priors,
            )

    def test_one_phase(self):
        """Of one sign the prior doubles the evidence at the most: log 2 nats, and gets near."""
        fit = learn(self.gp(1), self.X, self.Y, start={"r": [[1.5]]}, quiet=True)
        plain = SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0)).posterior(self.X, self.Y)
        gain = fit.log_marginal_likelihood.value - plain.log_marginal_likelihood.value
        assert 0.5 * np.log(2) < gain < np.log(2) + 0.01
        r, positive = fit.point["r"].item(), fit.point["positive"].item()
        assert positive == (r > 0)
        assert set(fit.runs["pattern"].to_numpy()) == {"0", "1"}

    def test_exchangeable_points_need_fewer_patterns(self):
        fit = learn(self.gp(2), self.X, self.Y, start={"r": [[-1.0], [1.5]]}, quiet=True)
        patterns = set(fit.runs["pattern"].to_numpy())
        # Both phases negative, one of each, both positive; of each, points as they do best.
        assert patterns == {"00", "01", "11"}

    def test_points_with_priors_of_their_own_need_all(self):
        gp = self.gp(2, r=lambda: pm.Normal("r", [[-1.0], [1.0]], 1.0, shape=(2, 1)))
        fit = learn(gp, self.X, self.Y, n_restarts=0, method="ep", quiet=True)
        assert set(fit.runs["pattern"].to_numpy()) == {"00", "01", "10", "11"}

    def test_truncation(self):
        with pm.Model():
            t = pm.Normal("t", 0.0, 1.0)
            gp = SkewGP(
                cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[[1.5]], truncation=t
            )
        fit = learn(gp, self.X, self.Y)
        here, *sides = (
            gp.posterior(self.X, self.Y, point={"t": t}).log_marginal_likelihood.value
            + stats.norm.logpdf(t)
            for t in fit.point["t"] + np.array([0.0, -0.3, 0.3])
        )
        # A second derivative of about 1: .045 nats lower where the optimum is here, and it is
        # within .15 where both are lower.
        assert here > max(sides)


class TestManyLabels:
    """Thresholds lowered: 150 labels are many."""

    N = 150
    SETTINGS = SearchSettings(method="ep", coarse_above=100, coarse_size=60)

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        rng = np.random.default_rng(2)
        x = rng.uniform(-5.0, 5.0, cls.N)
        y = (np.sin(x) + 0.5 * rng.normal(size=cls.N) > 0).astype(int)
        with pm.Model():
            ls = pm.HalfFlat("ls")
            gp = SkewGP(cov_func=4.0 * pm.gp.cov.Matern12(1, ls=ls))
        return TrainingData(gp, x[:, None], y)

    def test_coarse_to_fine(self, data):
        run = learning_run(data, self.SETTINGS, np.random.default_rng(0))
        fit = run.report(run.estimate())
        methods = fit.runs["method"].to_numpy().tolist()
        assert methods == ["ep, part of the data"] * 3 + ["ep"] * (len(methods) - 3)

        def evidence(log_ls):
            return ou_probit_log_evidence(data.X[:, 0], data.y, np.exp(log_ls), 4.0, points=100)

        # One optimum in between (a hundred points keep 1e-6 nats of the oracle).
        best = minimize_scalar(lambda z: -evidence(z), bounds=(-1.5, 3.5), options={"xatol": 0.02})
        assert evidence(np.log(float(fit.point["ls"]))) > -best.fun - 0.05

    def test_composite_likelihood(self, data):
        settings = replace(self.SETTINGS, method="twisted", batch_size=50)
        run = learning_run(data, settings, np.random.default_rng(3))
        fit = run.report(run.estimate())
        assert fit.kind == "composite"
        assert (
            fit.std_error == {}
        )  # batches are not independent: standard errors would be too small
        assert repr(fit).count("log composite likelihood") == 1
        parts = random_batches(2.0 * data.y - 1.0, 50, np.random.default_rng(3))
        assert len(parts) == 3

        def composite(log_ls):
            x, y, ls = data.X[:, 0], data.y, np.exp(log_ls)
            return sum(ou_probit_log_evidence(x[i], y[i], ls, 4.0, points=100) for i in parts)

        best = minimize_scalar(lambda z: -composite(z), bounds=(-1.5, 3.5), options={"xatol": 0.02})
        reached = composite(np.log(float(fit.point["ls"])))
        # Three batches: up to twice the tolerance of one.
        assert reached > -best.fun - 0.04
        estimate = fit.log_marginal_likelihood
        assert abs(estimate.value - reached) < max(5 * estimate.std_error, 4e-3)


class TestWarnings:
    def test_flat(self):
        """The lengthscale of a constant input has no effect."""
        with pm.Model():
            ls = pm.HalfFlat("ls", shape=2)
            gp = SkewGP(cov_func=4.0 * pm.gp.cov.Matern12(2, ls=ls))
        x = np.column_stack([X[:, 0], np.ones(N)])
        with pytest.warns(FlatOptimumWarning, match=re.escape("ls[1] is weakly identified")):
            fit = learn(gp, x, Y)
        assert fit.flat == ["ls[1]"]
        assert "weakly identified: ls[1]" in str(fit)
        assert np.isfinite(fit.std_error["ls"][0])
        assert np.isinf(fit.std_error["ls"][1])
        assert fit.point["ls"][1] == pytest.approx(1.0, abs=1e-6)

    def test_convergence(self):
        settings = SearchSettings(
            method="ep", n_restarts=0, optimizer=OptimizerSettings(max_iterations=1)
        )
        data, start = TrainingData(flat_ou(), X, Y), {"ls": 0.5, "eta": 1.0}
        run = learning_run(data, settings, np.random.default_rng(0), start=start)
        with pytest.warns(OptimumConvergenceWarning, match="ended before it was at an optimum"):
            warn_of(run)
        fit = run.report(run.estimate())
        assert not fit.converged
        assert "not converged: raise n_restarts" in str(fit)
        assert "; not converged" in repr(fit)


def without_a_value():
    with pm.Model():
        return SkewGP(cov_func=np.inf * pm.gp.cov.ExpQuad(1, ls=pm.HalfFlat("ls")))


REFUSED = {
    "X, y, likelihood and batch_size go": lambda: learn(pm.Model(), X, Y),
    r"y must have shape \(60,\)": lambda: learn(flat_ou(), X, Y[:-1]),
    "X has 2 column": lambda: learn(flat_ou(), np.ones((60, 2)), Y),
    "made outside of a model": lambda: learn(SkewGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0)), X, Y),
    "method must be one of": lambda: learn(flat_ou(), X, Y, method="laplace"),
    "batch_size must": lambda: learn(flat_ou(), X, Y, batch_size=0),
    "batch_size is for data of one kind": lambda: learn(
        flat_ou(), [(X, Y, None)] * 2, batch_size=2
    ),
    "n_restarts": lambda: learn(flat_ou(), X, Y, n_restarts=-1),
    "n_draws": lambda: learn(flat_ou(), X, Y, n_draws=0),
    "has no value at any start": lambda: learn(without_a_value(), X, Y),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


def test_progress(monkeypatch):
    said = []
    monkeypatch.setattr(
        "rich.progress.Progress.update", lambda *_, description, **__: said.append(description)
    )
    find_hyperparameters(flat_ou(), X, Y, method="ep", n_restarts=0, random_seed=0)
    shown = "\n".join(said)
    assert "Run 1, ep: log evidence -" in shown
    assert "(at the best point -" in shown


# Searches: where they start, ascents of functions whose optima are known, parts of the data.


FREE = [(-np.inf, np.inf)] * 2
SETTINGS = OptimizerSettings()
ORIGIN, TWO = Point(np.zeros(2)), np.eye(2)


def quadratic(optimum, hessian):
    def function(point):
        slope = -hessian @ (point.x - optimum)
        value = 0.5 * (point.x - optimum) @ slope
        return Value(value, value, slope)

    return function


def counted(function):
    calls = []

    def wrapped(point):
        calls.append(point)
        return function(point)

    return wrapped, calls


def ridge(point):
    return Value(-rosen(point.x), -rosen(point.x), -rosen_der(point.x))


def cut_off(point):
    """No value beyond 0.8, where a first long step would land."""
    within = quadratic(np.array([0.5, 0.5]), np.diag([1.0, 40.0]))(point)
    return within if point.x.max() < 0.8 else Value(-np.inf, -np.inf, np.zeros(2))


BEYOND, WITHIN = quadratic(np.array([3.0, 0.5]), TWO), [(-1.0, 1.0)] * 2


@pytest.mark.parametrize(
    ("ascend", "function", "start", "bounds", "end", "atol"),
    [
        # It stops at gains of 2e-4, on a ridge where that is a hundredth of the way.
        (maximize, ridge, [-1.0, 1.0], FREE, [1.0, 1.0], 0.1),
        (maximize, cut_off, [-5.0, -1.0], FREE, [0.5, 0.5], 0.05),
        (maximize, BEYOND, [0.0, 0.0], WITHIN, [1.0, 0.5], 1e-6),
        (lambda *x: newton(*x[:3], TWO, 5e-3), BEYOND, [0.0, 0.0], WITHIN, [1.0, 0.5], 1e-6),
    ],
)
def test_ascents(ascend, function, start, bounds, end, atol):
    found = ascend(function, Point(np.array(start)), bounds, SETTINGS)
    assert found.converged
    assert function(Point(np.array(end))).total - found.value.total < 2e-3
    np.testing.assert_allclose(found.point.x, end, atol=atol)


def test_first_step_is_no_longer_than_asked_for():
    # A steep function in a wide box, where SciPy's own first step is the whole gradient.
    steep, seen = counted(quadratic(np.zeros(2), 1000.0 * TWO))
    start = Point(np.array([1.0, 0.5]))
    found = maximize(steep, start, [(-7.0, 7.0)] * 2, OptimizerSettings(first_step=0.25))
    assert np.linalg.norm(seen[1].x - start.x) == pytest.approx(0.25)  # after the start
    np.testing.assert_allclose(found.point.x, 0.0, atol=1e-3)
    assert found.converged


def test_newton_ends_in_the_noise_of_the_values():
    """Values off by .3, gradients by .1, and known to be: a few evaluations are enough."""
    rng = np.random.default_rng(4)
    exact = quadratic(np.array([3.0, -2.0]), TWO)

    def noisy(point):
        found = exact(point)
        total = found.total + 0.3 * rng.normal()
        return Value(total, total, found.gradient + 0.1 * rng.normal(size=2), noise=0.3)

    function, calls = counted(noisy)
    found = newton(function, ORIGIN, FREE, TWO, 5e-3)
    assert found.converged
    # Steps of length 1 at most: three to get there, one or two more in the noise.
    assert len(calls) <= 7
    assert exact(found.point).total > -0.3


def test_newton_with_a_wrong_gradient():
    def function(point):
        value = -np.abs(point.x).sum()
        return Value(value, value, np.ones(2))

    found = newton(function, ORIGIN, FREE, TWO, 5e-3)
    assert not found.converged
    np.testing.assert_array_equal(found.point.x, np.zeros(2))


OPTIMA = np.array([[-3.0, 0.0], [3.0, 1.0]])


class TwoOptima:
    """Log of a mixture of two Gaussians, so far apart that each has its own optimum."""

    def __init__(self, heights, noise=0.0):
        self.heights, self.noise = np.array(heights), noise
        self.draws = []

    def by_ep(self, point):
        away = point.x - OPTIMA
        logs = self.heights - (away**2).sum(axis=1)
        value = np.logaddexp.reduce(logs)
        return Value(value, value, -2.0 * np.exp(logs - value) @ away)

    def by_twisting(self, point, n_draws, seed):
        self.draws.append(n_draws)
        return self.by_ep(point)._replace(noise=self.noise)


def searched(objective, part, starts, settings):
    log = EvaluationLog(["a", "b"])
    return search(objective, part, starts, [(-7.0, 7.0)] * 2, settings, log), log


@pytest.mark.parametrize("heights", [(0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("patterns", [[()], [(0,), (1,)]])
def test_the_second_best_of_a_part_may_be_the_best_of_all(heights, patterns):
    part = Part(TwoOptima([0.5, 0.0]), 0.5)
    vectors = [np.array([-1.0, 0.5]), np.array([1.5, 0.5])]
    starts = [Point(x, pattern) for pattern in patterns for x in vectors]
    settings = SearchSettings(method="ep", hessian=False)
    found, _ = searched(TwoOptima(heights), part, starts, settings)
    higher = int(np.argmax(heights))
    # Ascents end at gains of 2e-4 nats: half the second derivative of 2 times .014 squared.
    assert np.abs(found.optimum.point.x - OPTIMA[higher]).max() < 0.02
    assert abs(found.optimum.value.total - heights[higher]) < 1e-3
    assert found.hessian is None


@pytest.mark.parametrize(("noise", "draws"), [(0.01, [100]), (0.3, [100, 800])])
def test_noisy_values_ask_for_more_draws(noise, draws):
    objective = TwoOptima([0.0, -9.0], noise)
    settings = SearchSettings(n_draws=100)
    found, log = searched(objective, None, [Point(OPTIMA[0] + 0.1)], settings)
    assert list(dict.fromkeys(objective.draws)) == draws
    assert found.optimum.value.noise == noise
    assert log.runs()["method"].values.tolist() == ["ep"] + ["twisted"] * len(draws)
    # Central differences of a quadratic are exact.
    np.testing.assert_allclose(found.hessian, 2.0 * TWO, atol=1e-6)


def test_what_draws_do_not_confirm_is_no_optimum():
    """EP's evidence is 50 too high at one end: the search goes back, and on by draws."""

    class Led(TwoOptima):
        def by_twisting(self, point, n_draws, seed):
            return TwoOptima([0.0, -50.0]).by_ep(point)

    found, _ = searched(Led([0.0, 50.0]), None, [ORIGIN], SearchSettings())
    assert found.optimum.converged
    assert np.abs(found.optimum.point.x - OPTIMA[0]).max() < 0.02
    np.testing.assert_allclose(found.hessian, 2.0 * TWO, atol=1e-6)
