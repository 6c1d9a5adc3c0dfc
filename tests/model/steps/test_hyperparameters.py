"""Hyperparameters that `ConjugateStep` moves itself: which they are, and where they end up."""

import numpy as np
import oracles
import pymc as pm
import pytest
import step_models
from arviz_stats.base import array_stats
from scipy.stats import expon, multivariate_normal, norm
from step_models import KNOTS, PHASE, analyse, rbf, scaled_model, walk

from pymc_skewgp._mcmc.site_chain import IndependenceMove
from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.steps.block_move import BlockMove, Kernel, LatentAtPoint
from pymc_skewgp._model.steps.sun_step import ConjugateStep, LinESS

pytestmark = pytest.mark.usefixtures("in_python")

X, Y = step_models.X[2::3, None], step_models.Y[2::3]


def hyperparameters(model, name="f"):
    latent = analyse(model, model[name], only=[model[name]])
    return BlockMove(model, latent, Kernel(IndependenceMove, 1), None).hyperparameters


def crowded_model():
    with pm.Model() as model:
        eta = pm.HalfNormal("eta")
        ls = pm.LogNormal("ls", 0.0, 0.4)
        slope = pm.Normal("slope", shape=2)
        degree = pm.Poisson("degree", 1.0)
        intercept = pm.Normal("intercept")
        unrelated = pm.Exponential("unrelated", 1.0)
        kernel = eta**2 * pm.gp.cov.ExpQuad(1, ls=ls)
        mean = pm.gp.mean.Linear(coeffs=slope[0] + slope[1] + degree)
        f = SkewGP(mean_func=mean, cov_func=kernel).prior("f", X)
        g = SkewGP(cov_func=kernel).prior("g", X)
        pm.Normal("seen", ls, 1.0, observed=0.7)
        BernoulliProbit("y", f + g + intercept, observed=Y)
        pm.Normal("other", unrelated, observed=1.0)
    return model


def test_which_they_are():
    """Not another function, nothing discrete, nor what has nothing to do with f."""
    model = crowded_model()
    assert hyperparameters(model).names == ["eta_log__", "ls_log__", "slope", "intercept"]
    assert hyperparameters(model, "g").names == ["eta_log__", "ls_log__", "intercept"]


def test_density_of_all_but_the_function():
    """Priors, an observation of the lengthscale, and the probability that normalises f's density.

    The last by scipy, to 1e-5 as it integrates; the jitter's share of it is below.
    """
    with pm.Model() as model:
        eta = pm.Exponential("eta", 1.0)
        ls = pm.Normal("ls", 1.0, 0.3)
        gp = SkewGP(
            cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls),
            pseudo_points=KNOTS[:, None],
            phase=PHASE,
            truncation=[0.2, 0.6],
        )
        BernoulliProbit("y", gp.prior("f", X), observed=Y)
        pm.Normal("seen", ls, 0.5, observed=0.8)
    found = hyperparameters(model)
    assert found.names == ["eta_log__", "ls"]
    log_eta, ls = 0.3, 1.3

    point = model.initial_point() | {"eta_log__": np.array(log_eta), "ls": np.array(ls)}
    log_rest = found.log_density(point)
    latent_cov = PHASE[:, None] * rbf(KNOTS, KNOTS, ls, 1.0) * PHASE
    expected = (
        expon.logpdf(np.exp(log_eta))
        + log_eta
        + norm.logpdf(ls, 1.0, 0.3)
        + norm.logpdf(0.8, ls, 0.5)
        - multivariate_normal.logcdf([0.2, 0.6], cov=latent_cov)
    )
    assert log_rest == pytest.approx(expected, abs=2e-5)


def grid_moments():
    """Mean and standard deviation of log eta given the labels, by the filter on a grid: to 1e-6."""
    grid = np.linspace(-2.5, 3.0, 111)
    log_p = norm.logpdf(grid, 0.3, 0.6) + [
        oracles.ou_probit_log_evidence(X[:, 0], Y, 0.8, np.exp(2.0 * value), points=100)
        for value in grid
    ]
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ grid
    return mean, np.sqrt(p @ (grid - mean) ** 2)


def check(log_eta):
    """Five errors by the draws' own effective sample size: a false alarm in 1e-6 of all seeds."""
    mean, sd = grid_moments()
    size = float(array_stats.ess(log_eta))
    assert size > 0.1 * log_eta.size
    assert abs(log_eta.mean() - mean) < 5 * sd / np.sqrt(size)
    assert abs(log_eta.std() / sd - 1.0) < 5 / np.sqrt(2.0 * size)


def test_the_step_alone_moves_them_to_their_posterior():
    model = scaled_model()
    with model:
        step = ConjugateStep([model["f"]], rng=1)
    path = walk(step, model, 1100, seed=2, tune=100)[100:]
    check(np.array([float(point["eta_log__"]) for point in path])[None])


def test_without_collapse_and_by_lin_ess_they_are_left_to_others():
    model = scaled_model()
    start = model.initial_point()
    with model:
        steps = ConjugateStep([model["f"]], collapse=False, rng=1), LinESS([model["f"]], rng=1)
    for step in steps:
        point, _ = step.step(start)
        assert point["eta_log__"] == start["eta_log__"]
        assert (point["f"] != start["f"]).any()
        # What goes with f is drawn anew where they have moved meanwhile.
        moved = {**point, "eta_log__": point["eta_log__"] + 1.0}
        assert [step.step(x)[1][0]["refreshed"] for x in (point, moved)] == [False, True]


def test_nothing_is_evaluated_anew_while_nothing_changes():
    """The same object while the inputs that matter keep their values, wherever they are stored."""
    model = crowded_model()
    latent = LatentAtPoint(model, analyse(model, model["f"], only=[model["f"]]))
    point = {name: np.array(value) for name, value in model.initial_point().items()}
    first = latent.model(point)
    point["unrelated_log__"], point["f"] = np.array(3.0), point["f"] + 1.0
    assert latent.model({name: value.copy() for name, value in point.items()}) is first
    point["eta_log__"][...] += np.log(2.0)  # in place, as parallel chains do
    second = latent.model(point)
    jitter = 1e-6 * np.eye(6)
    np.testing.assert_allclose(second.prior.scale - jitter, 4.0 * (first.prior.scale - jitter))
