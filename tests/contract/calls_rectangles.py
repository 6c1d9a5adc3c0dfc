"""Probabilities of rectangles, truncated normals and the unified skew-normal distribution."""

import numpy as np
import pytensor
import pytensor.tensor as pt

import pymc_skewgp as sg

from .harness import SEED, call, calls, estimate

COV3 = np.array([[1.0, 0.6, 0.3], [0.6, 2.0, -0.4], [0.3, -0.4, 0.8]])
X3 = np.array([0.3, -0.5, 1.2])
AR8 = 0.7 ** np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))


def logcdf(x, cov, **more):
    return {"log_prob": estimate(sg.mvn_logcdf(x, cov, random_seed=SEED, **more))}


def of_truncated(result):
    """Weighted moments; errors as of independent draws with these weights."""
    weights = np.exp(result.log_weights - result.log_weights.max())
    weights /= weights.sum()
    mean = weights @ result.draws
    error = np.sqrt(weights**2 @ (result.draws - mean) ** 2)
    return {"mean": (mean, error), "chains": result.n_chains, "modes": result.n_modes}


@call
def truncated_draws():
    result = sg.truncated_mvn(COV3, 0.0, [1.0, np.inf, 2.0], random_seed=SEED)
    assert isinstance(result, sg.TruncatedDraws)
    inside = bool(((result.draws > 0) & (result.draws < [1.0, np.inf, 2.0])).all())
    return of_truncated(result) | {
        "log_prob": estimate(result.log_prob),
        "inside": inside,
        "method": result.method,
    }


@call
def truncated_draws_of_equal_weight():
    result = sg.truncated_mvn(AR8, 0.0, None, n_draws=4000, random_seed=SEED)
    equal = result.equally_weighted(2000, random_seed=SEED)
    error = equal.std(0) / np.sqrt(equal.shape[0] * result.relative_ess)
    return {"mean": (equal.mean(0), error), "ess": (result.relative_ess, 0.05)} | {
        "reliable": bool(result.pareto_k < 0.7)
    }


@call
def truncated_draws_by_metropolis():
    result = sg.truncated_mvn(AR8, 0.0, None, n_draws=4000, random_seed=SEED)
    equal = result.equally_weighted(scheme="metropolis", random_seed=SEED)
    return {"mean": (equal.mean(0), 2 * equal.std(0) / np.sqrt(equal.shape[0]))}


@call
def truncated_draws_by_lin_ess():
    """Of a chain: an error for a quarter as many draws."""
    result = sg.truncated_mvn(
        AR8, 0.0, None, method="lin_ess", n_chains=4, thin=4, n_draws=4000, random_seed=SEED
    )
    found = of_truncated(result)
    return found | {"mean": (found["mean"][0], 2 * found["mean"][1]), "method": result.method}


def symbolic(**more):
    x, cov, lower = pt.vector(), pt.matrix(), pt.vector()
    value = sg.pt_mvn_logcdf(x, cov, lower=lower, random_seed=SEED, **more)
    gradient = pytensor.grad(value, [x, cov])
    return pytensor.function([x, cov, lower], [value, *gradient])


@call
def symbolic_two_dimensions():
    value, of_x, of_cov = symbolic()([0.3, -1.0], [[2.0, -0.9], [-0.9, 1.0]], [-1.0, -np.inf])
    return {"value": value, "of_x": of_x, "of_cov": of_cov}


@call
def symbolic_eight_dimensions():
    """Not all of the error is known to the caller: what the estimate's error is of 256 points."""
    args = np.linspace(-1.0, 1.0, 8), AR8, np.full(8, -np.inf)
    value, of_x, of_cov = symbolic()(*args)
    error = sg.mvn_logcdf(args[0], AR8, n_draws=256).std_error
    return {"value": (value, error), "of_x": (of_x, 4 * error), "of_cov": (of_cov[0], 4 * error)}


@call
def symbolic_by_ep():
    value, of_x, of_cov = symbolic(method="ep")(np.linspace(-1, 1, 8), AR8, np.full(8, -np.inf))
    return {"value": value, "of_x": (of_x, 1e-5), "of_cov": (of_cov[0], 1e-5)}


@call
def symbolic_against_impossible_limits():
    values = symbolic()([0.0, 0.0, 0.0], COV3, [0.5, -1.0, -1.0])
    return {"impossible": bool(np.isneginf(values[0])), "gradient": values[1]}


@call
def symbolic_batches():
    x = np.array([[0.3, -1.0], [0.0, 0.0]])
    return {"values": sg.pt_mvn_logcdf(x, [[2.0, -0.9], [-0.9, 1.0]]).eval()}


SKEWNESS = np.array([[0.7, 0.1], [0.2, -0.6], [0.0, 0.3]])


def sun():
    return sg.SUN([0.5, 0.0, -1.0], COV3, SKEWNESS, [0.2, -0.1], [[1.0, 0.3], [0.3, 1.0]])


def five():
    """With five latent variables, whose probabilities have a Monte Carlo error."""
    cross = 0.15 * np.cos(np.arange(15.0)).reshape(3, 5)
    return sg.SUN.from_cross_cov([0.5, 0.0, -1.0], COV3, cross, np.linspace(-1, 1, 5), AR8[:5, :5])


@call
def sun_density():
    found = sun().logpdf([[0.5, 0.1, -1.0], [1.0, 1.0, 0.0]])
    return {"logpdf": found, "normalizer": estimate(sun().log_normalizer)}


@call
def sun_moments():
    found = sun()
    return {"mean": found.mean(), "cov": found.cov(), "skew": found.skew()}


@call
def sun_moments_with_five():
    """Of 2^14 weighted points, more evenly spread than random ones, whose errors are given."""
    found, error = five(), 2.0**-7
    return {
        "mean": (found.mean(random_seed=SEED), error),
        "cov": (found.cov(random_seed=SEED), 3 * error),
        "skew": (found.skew(random_seed=SEED), 5 * error),
    }


@call
def sun_draws():
    found = sun().sample(4000, random_seed=SEED)
    return {
        "mean": (found.mean(0), found.std(0) / np.sqrt(4000)),
        "sd": (found.std(0), found.std(0) / np.sqrt(2000)),
    }


@call
def sun_parts():
    marginal, conditional = sun().marginal([2, 0]), sun().conditional([1], [0.3])
    return {
        "marginal": marginal.mu,
        "scale": marginal.scale,
        "skewness": marginal.skewness,
        "truncation": conditional.truncation,
        "given": conditional.mean(),
        "dims": [marginal.n_dims, conditional.n_dims, conditional.n_latent],
    }


@call
def sun_maps():
    found = sun().affine([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]], [0.5, 0.0])
    return {"mu": found.mu, "scale": found.scale, "cross": found.cross_cov, "mean": found.mean()}


@call
def sun_given_labels():
    """Phi(W z + Z; S) for two labels."""
    W = [[1.0, 0.0, 0.5], [0.0, -1.0, 0.0]]
    found = sun().condition(W, [0.2, 0.1], np.eye(2))
    return {
        "latent": found.n_latent,
        "latent_cov": found.latent_cov,
        "truncation": found.truncation,
        "normalizer": estimate(found.log_normalizer),
    }


@call
def sun_parameters():
    found = sun().parameters
    return {
        "normal": sg.SUN([0.0], [[2.0]], np.zeros((1, 0)), [], np.zeros((0, 0))).logpdf([0.3])
    } | {
        name: np.asarray(getattr(found, name), dtype=float) for name in ("mu", "scale", "cross_cov")
    }


calls(
    one_dimension=lambda: logcdf([0.3], [[2.0]]),
    two_dimensions=lambda: logcdf([0.3, -1.0], [[2.0, -0.9], [-0.9, 1.0]], lower=[-1.0, -np.inf]),
    three_dimensions=lambda: logcdf(X3, COV3),
    eight_dimensions=lambda: logcdf(np.linspace(-1.0, 1.0, 8), AR8),
    eight_dimensions_between_limits=lambda: logcdf(np.linspace(0.1, 1.0, 8), AR8, lower=-0.5),
    some_limits_infinite=lambda: logcdf([np.inf, 0.3, np.inf, -0.2, 1.0, np.inf, 0.0, 0.4], AR8),
    far_in_the_tail=lambda: logcdf(np.full(8, -6.0), AR8),
    half_of_the_error=lambda: logcdf(np.zeros(8), AR8, rtol=5e-4),
    a_hundred_dimensions=lambda: logcdf(0.0, 0.5 * np.eye(100) + 0.5),
    nearly_singular=lambda: logcdf(np.zeros(12), 0.999 * np.ones((12, 12)) + 0.001 * np.eye(12)),
    sun_density_with_five=lambda: {
        "logpdf": estimate(five().logpdf_estimate([0.5, 0.1, -1.0], random_seed=SEED)),
        "normalizer": estimate(five().log_normalizer),
    },
    sun_distribution_function=lambda: {
        "two": estimate(sun().logcdf([0.5, 0.1, 0.0], random_seed=SEED)),
        "five": estimate(five().logcdf([0.5, 0.1, 0.0], random_seed=SEED)),
    },
)
