r"""Rows between limits whose noise comes in blocks: log probabilities given f, and derivatives.

The rows of one block have noise of covariance S. With d its least eigenvalue, S = d I + R R' and

.. math:: p(\eta) = P(l < \eta + e < h) = \int N(z; 0, I) \prod_i m_i(\eta_i + R_i z) \, dz,

with :math:`m_i(t)` the probability that t plus noise of variance d lies within the limits of row i.
Its logarithm has the gradient :math:`E[g]` and the Hessian :math:`E[D + g g'] - E[g] E[g]'`, with g
and D the first and second derivatives of :math:`\sum_i \log m_i`, and expectations under the
normalised integrand. That is log-concave: nodes are laid around its mode.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from pymc_skewgp._gaussian.univariate_moments import truncated_moments
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.noise import Noise
from pymc_skewgp._validation import FloatArray

_LEAST_LEFT = 1e-12  # of the variance of the noise, between limits that are close to each other
_LEAST_COLUMN = 1e-9  # of the variance: columns of R with less are none
_N_NODES = (1, 32, 16, 9, 7, 5)  # a dimension, for so many dimensions of z
_NEWTON_STEPS = 25
_NEWTON_TOLERANCE = 1e-8


@dataclass(frozen=True)
class RowSlopes:
    """Log likelihood of rows at their predictors, with its derivatives.

    Attributes
    ----------
    value : float
        The sum over all rows.
    gradient : ndarray, shape (m,)
    curvature : sparse array, shape (m, m)
        Minus the second derivatives.
    """

    value: float
    gradient: FloatArray
    curvature: sparse.csr_array


class RowsInBlocks:
    """Intervals in the order of their rows, with noise in blocks.

    Parameters
    ----------
    lower, upper : ndarray, shape (m,)
        Limits.
    noise : ndarray, shape (m,) or (m, m), or sparse array
        Variances of the noise, or its covariance.

    Raises
    ------
    ValueError
        For rows without noise, and for blocks of seven rows or more.
    """

    def __init__(self, lower: FloatArray, upper: FloatArray, noise: Noise) -> None:
        self._blocks = [
            _Blocks(rows, lower[rows], upper[rows], covariance)
            for rows, covariance in _by_size(noise)
        ]
        self._size = lower.size

    def slopes(self, eta: FloatArray) -> RowSlopes:
        """Log likelihood and its derivatives at the predictors, shape (m,)."""
        value, gradient = 0.0, np.zeros(self._size)
        entries, at = [], []
        for block in self._blocks:
            log_p, own, hessian = block.slopes(eta[block.rows])
            value += float(log_p.sum())
            gradient[block.rows] = own
            k = block.rows.shape[1]
            entries.append(-hessian.ravel())
            at.append([np.repeat(block.rows, k, axis=1).ravel(), np.tile(block.rows, k).ravel()])
        coords = np.concatenate([np.array(pair) for pair in at], axis=1)
        shape = (self._size, self._size)
        curvature = sparse.csr_array((np.concatenate(entries), tuple(coords)), shape=shape)
        return RowSlopes(value, gradient, curvature)


def _by_size(noise: Noise) -> list[tuple[IntArray, FloatArray]]:
    """Rows of blocks of equal size, (b, k), and the covariances of their noise, (b, k, k)."""
    if noise.ndim == 1:
        _refuse_noiseless(noise)
        return [(np.arange(noise.size)[:, None], noise[:, None, None])]
    whole = sparse.csr_array(noise)
    n_blocks, block = connected_components(whole, directed=False)
    sizes = np.bincount(block, minlength=n_blocks)
    if sizes.max() >= len(_N_NODES) + 1:
        raise ValueError(
            f"Laplace's approximation is for rows that share noise with at most "
            f"{len(_N_NODES) - 1} others, and {sizes.max()} of these observations share theirs: "
            "use EP."
        )
    order = np.argsort(block, kind="stable")
    found = []
    for k in np.unique(sizes):
        rows = order[sizes[block[order]] == k].reshape(-1, k)
        entries = [whole[rows[:, i], rows[:, j]] for i, j in product(range(k), repeat=2)]
        found.append((rows, np.stack(entries, axis=1).reshape(-1, k, k)))
    return found


def _refuse_noiseless(variances: FloatArray) -> None:
    if not (variances > 0).all():
        raise ValueError(
            "Laplace's approximation needs noise on every row, and some of these observations "
            "have none: use EP."
        )


class _Blocks:
    """Blocks of k rows each."""

    def __init__(
        self, rows: IntArray, lower: FloatArray, upper: FloatArray, covariance: FloatArray
    ) -> None:
        self.rows, self._lower, self._upper = rows, lower, upper
        values, vectors = np.linalg.eigh(covariance)
        largest = values[:, -1:]
        own = np.where(values[:, :1] > _LEAST_LEFT * largest, values[:, :1], 0.0)
        _refuse_noiseless(own)
        self._variance, self._sd = own, np.sqrt(own)
        wide = ((values - own) > _LEAST_COLUMN * largest).any(axis=0)
        root = np.sqrt(np.maximum(values - own, 0.0))[:, wide]
        self._shared = vectors[:, :, wide] * root[:, None]
        self._nodes, self._log_weights = _grid(int(wide.sum()))

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log probability of each block, its gradient, (b, k), and its Hessian, (b, k, k)."""
        if not self._nodes.shape[0]:
            log_m, first, second = self._masses(eta)
            hessian = np.zeros((*eta.shape, eta.shape[1]))
            np.einsum("bii->bi", hessian)[:] = second
            return log_m.sum(axis=1), first, hessian
        z, spread = self._around_the_mode(eta)
        # Nodes z + L x, (b, r, q), for each of which every row is evaluated.
        nodes = z[:, :, None] + spread @ self._nodes
        at = eta[:, :, None] + self._shared @ nodes
        log_m, first, second = self._masses(at)
        log_ratio = 0.5 * (self._nodes**2).sum(axis=0) - 0.5 * (nodes**2).sum(axis=1)
        log_det = np.log(np.abs(np.einsum("bii->bi", spread))).sum(axis=1)
        log_w = self._log_weights + log_ratio + log_m.sum(axis=1)
        log_p = logsumexp(log_w, axis=1)
        w = np.exp(log_w - log_p[:, None])
        gradient = np.einsum("bkq,bq->bk", first, w)
        hessian = np.einsum("bkq,blq,bq->bkl", first, first, w, optimize=True)
        hessian -= gradient[:, :, None] * gradient[:, None]
        np.einsum("bii->bi", hessian)[:] += np.einsum("bkq,bq->bk", second, w)
        return log_p + log_det, gradient, hessian

    def _masses(self, at: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log m of each row, its first and second derivative, at (b, k) or (b, k, q)."""
        more = (..., *(None,) * (at.ndim - 2))
        sd, variance = self._sd[more], self._variance[more]
        low, high = (self._lower[more] - at) / sd, (self._upper[more] - at) / sd
        shape = at.shape
        found = truncated_moments(low.ravel(), high.ravel())
        log_mass, shift, left = (x.reshape(shape) for x in found)
        return log_mass, shift / sd, (np.clip(left, _LEAST_LEFT, 1.0) - 1.0) / variance

    def _around_the_mode(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mode of each integrand, (b, r), and a factor of the inverse of its curvature there."""
        z = np.zeros((eta.shape[0], self._shared.shape[2]))
        value = np.full(eta.shape[0], -np.inf)
        size = np.ones(eta.shape[0])
        step = np.zeros_like(z)
        for _ in range(_NEWTON_STEPS):
            trial = z + size[:, None] * step
            log_m, first, second = self._masses(eta + np.einsum("bkr,br->bk", self._shared, trial))
            found = log_m.sum(axis=1) - 0.5 * (trial**2).sum(axis=1)
            better = found >= value - 1e-12 * np.abs(value)
            size = np.where(better, 1.0, 0.5 * size)
            z = np.where(better[:, None], trial, z)
            value = np.where(better, found, value)
            slope = np.einsum("bkr,bk->br", self._shared, first) - trial
            curvature = np.einsum("bkr,bk,bks->brs", self._shared, -second, self._shared)
            curvature += np.eye(z.shape[1])
            newton = np.linalg.solve(curvature, slope[:, :, None])[:, :, 0]
            step = np.where(better[:, None], newton, step)
            if better.all() and (np.abs(step) < _NEWTON_TOLERANCE).all():
                break
        # curvature = L L': nodes L^-T x.
        chol = np.linalg.cholesky(curvature)
        return z, np.swapaxes(np.linalg.inv(chol), 1, 2)


@cache
def _grid(n_dims: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Hermite nodes, (n_dims, q), and log weights of a standard normal of so many dims."""
    if not n_dims:
        return np.zeros((0, 1)), np.zeros(1)
    nodes, weights = hermegauss(_N_NODES[n_dims])
    log_weights = np.log(weights / weights.sum())
    grid = np.array(list(product(nodes, repeat=n_dims))).T
    return grid, np.array(list(product(log_weights, repeat=n_dims))).sum(axis=1)
