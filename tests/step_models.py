"""Models that the tests of the step methods share."""

import numpy as np
import pymc as pm

from pymc_skewgp import SkewGP
from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.graph.analysis import block_graph, block_of, part_of
from pymc_skewgp._model.steps.block_move import LatentAtPoint

X = np.linspace(-2.0, 2.0, 20)
Y = np.array([0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1])
KNOTS = np.array([-1.0, 0.8])
PHASE = np.array([1.0, -1.0])


def rbf(a, b, lengthscale, variance):
    return variance * np.exp(-0.5 * ((a[:, None] - b) / lengthscale) ** 2)


def sun_arguments(x, s=0, lengthscale=0.8, variance=2.0):
    """Arguments of `UnifiedSkewNormal` for a SkewGP at `x`, as arrays."""
    scale = rbf(x, x, lengthscale, variance) + 1e-6 * np.eye(x.size)
    skewness = PHASE[:s] * rbf(x, KNOTS[:s], lengthscale, 1.0)
    latent_cov = PHASE[:s, None] * rbf(KNOTS[:s], KNOTS[:s], lengthscale, 1.0) * PHASE[:s]
    return {
        "mu": np.zeros(x.size),
        "scale": scale,
        "skewness": skewness / np.sqrt(1.0 + 1e-6 / variance),
        "truncation": np.zeros(s),
        "latent_cov": latent_cov,
    }


def prior(x=X[:6], s=0, **kwargs):
    return UnifiedSkewNormal("f", **sun_arguments(x, s), **kwargs)


def probit_model(n=6, s=0, observe=BernoulliProbit):
    with pm.Model() as model:
        f = prior(X[:n], s)
        observe("y", f, observed=Y[:n])
    return model


def logit_model():
    """Factors instead of rows, and one hyperparameter."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        f = SkewGP(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X[:6, None])
        pm.Bernoulli("y", logit_p=f, observed=Y[:6])
    return model


def scaled_model():
    """Labels of an Ornstein-Uhlenbeck process at six inputs, whose scale is a hyperparameter."""
    with pm.Model() as model:
        kernel = pm.LogNormal("eta", 0.3, 0.6) ** 2 * pm.gp.cov.Matern12(1, ls=0.8)
        f = SkewGP(cov_func=kernel).prior("f", X[2::3, None])
        BernoulliProbit("y", f, observed=Y[2::3])
    return model


def sample(model, draws=200, **options):
    """`pm.sample` in one process, without a word: two chains that are hardly tuned."""
    settings = {"tune": 20, "chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}
    settings |= {"quiet": True, "compute_convergence_checks": False}
    return pm.sample(draws, model=model, **{**settings, **options})


def walk(step, model, n, seed=1, tune=0):
    """Points of a chain of this step alone, one after each of `n` steps."""
    step.setup_chain(np.random.default_rng(seed), tune, n)
    point, path = model.initial_point(), []
    for _ in range(n):
        point, _ = step.step(point)
        path.append(point)
    return path


def analyse(model, rv, only=None):
    """Graphs of the block that a variable is in, or of some of its members given the others."""
    block = block_of(model, rv)
    return block_graph(model, block if only is None else part_of(model, block, only))


def rows(model):
    """Rows that f is seen through, at the initial point."""
    latent = LatentAtPoint(model, analyse(model, model["f"]))
    return latent.model(model.initial_point()).observations
