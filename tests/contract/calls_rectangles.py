"""Probabilities of rectangles and truncated normals; `SUN` is all in tests with oracles."""

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


@call
def symbolic_two_dimensions():
    x, cov, lower = pt.vector(), pt.matrix(), pt.vector()
    value = sg.pt_mvn_logcdf(x, cov, lower=lower, random_seed=SEED)
    function = pytensor.function([x, cov, lower], [value, *pytensor.grad(value, [x, cov])])
    found = function([0.3, -1.0], [[2.0, -0.9], [-0.9, 1.0]], [-1.0, -np.inf])
    return dict(zip(("value", "of_x", "of_cov"), found, strict=True))


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
)
