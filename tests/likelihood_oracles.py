"""Posteriors of a few values of f under any likelihood, by a trapezoid rule over f itself.

Nothing here knows of rows or intervals: a likelihood is a function of f.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

FloatArray = NDArray[np.float64]

# By the number of values: how far whitened f runs, and nodes of each axis.
_REACH = {1: 8.5, 2: 8.5, 3: 7.0, 4: 6.0}
_NODES = {1: 4001, 2: 401, 3: 83, 4: 37}


def kernel(X, Xs=None, diag=False):
    """Squared exponential, variance 2, lengthscale 1, on one input."""
    if diag:
        return np.full(len(X), 2.0)
    return 2.0 * np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)


class FunctionGrid(NamedTuple):
    """Nodes of f, shape (d, N), their posterior masses, and the log evidence."""

    f: FloatArray
    mass: FloatArray
    log_evidence: float

    @property
    def mean(self) -> FloatArray:
        """Of f."""
        return self.f @ self.mass

    @property
    def cov(self) -> FloatArray:
        """Of f."""
        off = self.f - self.mean[:, None]
        return (off * self.mass) @ off.T

    @property
    def skewness(self) -> FloatArray:
        """Of each value of f, standardised."""
        return (self.f - self.mean[:, None]) ** 3 @ self.mass / self.cov.diagonal() ** 1.5

    def average(self, values: FloatArray) -> FloatArray:
        """Posterior mean of a function with these values at the nodes, shape (..., N)."""
        return values @ self.mass


def function_grid(
    mean: ArrayLike,
    cov: ArrayLike,
    log_likelihood: Callable[[FloatArray], FloatArray],
    nodes: int | None = None,
    reach: float | None = None,
) -> FunctionGrid:
    """f ~ N(mean, cov) given data; `log_likelihood` takes f of shape (N, d) and gives shape (N,).

    The rule's error is below 1e-8 for one to three values, and below 1e-7 for four, where the
    likelihood varies over half a deviation or more.
    """
    mean, cov = np.asarray(mean, dtype=float), np.asarray(cov, dtype=float)
    reach = reach or _REACH[mean.size]
    axis = np.linspace(-reach, reach, nodes or _NODES[mean.size])
    white = np.stack([g.ravel() for g in np.meshgrid(*[axis] * mean.size, indexing="ij")])
    f = mean[:, None] + np.linalg.cholesky(cov) @ white
    log_density = log_likelihood(f.T) - 0.5 * (white**2).sum(axis=0)
    log_density += mean.size * (np.log(axis[1] - axis[0]) - 0.5 * np.log(2.0 * np.pi))
    most = log_density.max()
    density = np.exp(log_density - most)
    total = density.sum()
    return FunctionGrid(f, density / total, float(most + np.log(total)))


def one_sign(
    cov: ArrayLike, row: ArrayLike, variance: float, phase: float, truncation: float
) -> Callable[[FloatArray], FloatArray]:
    """What one pseudo-point adds to the log likelihood of f, whose prior mean is 0.

    The log probability of its sign given f, over that before: `row` is its covariance with f and
    `variance` its own.
    """
    gain = np.linalg.solve(np.asarray(cov, dtype=float), np.asarray(row, dtype=float))
    sd = np.sqrt(variance)
    left = np.sqrt(variance - np.asarray(row) @ gain)

    def log_ratio(f: FloatArray) -> FloatArray:
        signs = ndtr((truncation * sd + phase * (f @ gain)) / left)
        return np.log(np.maximum(signs, 1e-300)) - np.log(ndtr(truncation))

    return log_ratio


def assert_posterior(posterior: Any, exact: Any, floor: float = 1e-6, errors: float = 5.0) -> None:
    """Log evidence within four standard errors, means and deviations within so many.

    Of ten numbers one is off by five in 2e5 runs, by four in 1600; seeds are fixed. The floor is
    what the rule behind the exact numbers leaves.
    """
    evidence = posterior.log_marginal_likelihood
    off = abs(evidence.value - exact.log_evidence)
    assert off < max(1e-5, 4 * evidence.std_error) + 0.1 * floor
    at, sd = posterior.marginals(), np.sqrt(exact.cov.diagonal())
    assert np.all(np.abs(at.moments.mean - exact.mean) < floor + errors * at.moment_errors.mean)
    assert np.all(np.abs(at.moments.sd - sd) < floor + errors * at.moment_errors.sd)


def near(found, name, expected, most=4.5):
    """Within standard errors, and with errors that are some."""
    value, error = (found[x].to_numpy() for x in (name, f"{name}_se"))
    assert (error > 0).all()
    np.testing.assert_array_less(np.abs(value - expected), most * error)
