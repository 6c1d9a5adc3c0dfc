"""Variables of PyMC models: log densities, their gradients, and moments of draws."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

import pymc_skewgp as sg

from .harness import SEED, call

COV = np.array([[1.0, 0.5], [0.5, 2.0]])
FIVE = 0.7 ** np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
ETA = np.array([-1.3, 0.0, 0.4, 8.0])


def logp(variable, value):
    return pm.logp(variable, np.asarray(value)).eval()


def mean(variable, n=4000):
    """With the error of independent draws."""
    found = pm.draw(variable, n, random_seed=SEED)
    return found.mean(0), found.std(0) / np.sqrt(n)


def slope(make, at, value):
    """Derivative of the log density in the parameter that `make` takes."""
    x = pt.vector() if np.ndim(at) else pt.scalar()
    density = pm.logp(make(x), np.asarray(value)).sum()
    return pytensor.function([x], pytensor.grad(density, x))(at)


@call
def bernoulli_probit():
    y = sg.BernoulliProbit.dist(ETA)
    return {
        "logp": logp(y, [0, 1, 1, 1]),
        "logcdf": pm.logcdf(y, np.zeros(4, dtype=int)).eval(),
        "icdf": pm.icdf(y, np.full(4, 0.5)).eval(),
        "slope": slope(sg.BernoulliProbit.dist, ETA, [0, 1, 1, 1]),
        "mean": mean(y),
    }


@call
def unified_skew_normal():
    z = sg.UnifiedSkewNormal.dist(0.2, COV, [[0.7], [0.3]], 0.1, [[1.0]])
    mu = np.array([0.2, 0.2])
    return {
        "logp": logp(z, [1.0, 1.0]),
        "logcdf": (pm.logcdf(z, np.ones(2)).eval(), 1e-4),
        "slope": slope(
            lambda mu: sg.UnifiedSkewNormal.dist(mu, COV, [[0.7], [0.3]], 0.1, [[1.0]]), mu, [1, 1]
        ),
        "mean": mean(z),
    }


@call(slow=True)
def unified_skew_normal_of_five():
    """Five latent variables: the density by 256 fixed points."""
    cross = 0.3 * np.cos(np.arange(10.0)).reshape(2, 5)
    z = sg.UnifiedSkewNormal.dist(0.2, COV, truncation=0.1, latent_cov=FIVE, cross_cov=cross)
    return {"logp": (logp(z, [1.0, 1.0]), 1e-4), "mean": mean(z)}


@call(slow=True)
def truncated_mvnormal():
    x = sg.TruncatedMvNormal.dist(mu=0.3, cov=COV, lower=0.0, upper=[1.0, np.inf])
    y = sg.TruncatedMvNormal.dist(mu=np.zeros(5), cov=FIVE, lower=-0.3)
    return {
        "logp": logp(x, [0.5, 1.0]),
        "slope": slope(lambda mu: sg.TruncatedMvNormal.dist(mu, COV, 0.0), [0.3, 0.3], [0.5, 1.0]),
        "outside": bool(np.isneginf(logp(x, [1.5, 1.0]))),
        "mean": mean(x),
        "logp_of_five": (logp(y, np.zeros(5)), 1e-3),
        "mean_of_five": mean(y),
    }


@call
def marginal_probit():
    none = np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0))
    y = sg.MarginalProbit.dist([0.3, -0.2], COV, *none)
    return {"logp": logp(y, [0, 1]), "mean": mean(y)}


@call
def marginal_probit_of_five():
    skewed = 0.3 * np.ones((5, 1)), [0.1], [[1.0]]
    y, by_ep = (
        sg.MarginalProbit.dist(np.linspace(-1, 1, 5), 4 * FIVE, *skewed, method=method)
        for method in ("twisted", "ep")
    )
    return {"logp": (logp(y, [0, 1, 0, 1, 1]), 1e-3), "ep": logp(by_ep, [0, 1, 0, 1, 1])}


@call
def interval_normal():
    lower, upper = [0.0, 2.0, 0.4, -np.inf], [1.0, np.inf, 0.4, -1.0]
    y = sg.IntervalNormal.dist(0.2, 0.7, lower, upper)
    at = [0.5, 3.0, 0.4, -2.0]
    return {
        "logp": logp(y, at),
        "slope": slope(lambda mu: sg.IntervalNormal.dist(mu, 0.7, lower, upper), 0.2, at),
        "mean": mean(y),
    }


@call
def preference_probit():
    pairs = [[0, 1], [2, 1], [2, 0]]
    y = sg.PreferenceProbit.dist([0.3, -0.2, 1.0], pairs, sigma=0.6, threshold=0.3)
    return {
        "logp": logp(y, [1, 0, -1]),
        "slope": slope(lambda f: sg.PreferenceProbit.dist(f, pairs), [0.3, -0.2, 1.0], [1, 1, -1]),
        "mean": mean(y),
    }


@call(slow=True)
def choice_probit():
    eta = [[0.3, -0.2, 1.0], [2.0, 0.0, 0.0]]
    y = sg.ChoiceProbit.dist(eta, sigma=0.6)
    return {
        "logp": logp(y, [2, 1]),
        "slope": slope(lambda s: sg.ChoiceProbit.dist(eta, s), 0.6, [2, 1]),
        "first": mean(pt.eq(y, 0)),
    }


@call
def multinomial_probit():
    eta = np.array([[0.3, -0.2, 1.0], [2.0, 0.0, 0.0]])
    y = sg.MultinomialProbit.dist(eta)
    return {"logp": logp(y, [2, 1]), "first": mean(pt.eq(y, 0))}


@call
def neural_network_kernel():
    X = np.array([[0.0, 1.0], [1.0, -0.5], [30.0, 2.0]])
    kernel = sg.cov.NeuralNetwork(2, ls=[0.5, 2.0], bias=0.7)
    one = sg.cov.NeuralNetwork(2, ls_inv=2.0, active_dims=[0])
    return {
        "full": kernel(X).eval(),
        "diag": kernel(X, diag=True).eval(),
        "one": one(X, X[:1]).eval(),
    }


@call
def logcdf_of_mvnormal():
    """PyMC has none: the package adds it."""
    y = pm.MvNormal.dist(np.zeros(2), COV)
    return {"logcdf": pm.logcdf(y, np.array([0.3, -0.2])).eval()}


@call(slow=True)
def prior_of_a_function():
    with pm.Model() as model:
        kernel = pm.gp.cov.ExpQuad(1, ls=0.8)
        gp = sg.SkewGP(cov_func=kernel, pseudo_points=[[0.5]], phase=[-1])
        f = gp.prior("f", np.array([[0.0], [1.0]]))
        gp.conditional("g", [[0.5]])
    point = {"f": np.array([0.3, -0.4]), "g": np.array([-0.1])}
    return {"logp": (model.compile_logp()(point), 1e-4), "mean": mean(f), "g": mean(model["g"])}


@call
def prior_of_a_function_from_white_noise():
    with pm.Model():
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8), pseudo_points=[[0.5], [2.0]])
        f = gp.prior("f", np.array([[0.0], [1.0]]), reparameterize=True)
    return {"mean": mean(f)}


@call
def conditional_given_values():
    with pm.Model():
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8))
        given = {"X": np.array([[0.0], [1.0]]), "f": np.array([0.3, -0.4])}
        g = gp.conditional("g", np.array([[0.5], [3.0]]), given=given)
    return {"mean": mean(g)}
