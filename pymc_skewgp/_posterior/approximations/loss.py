r"""What a prior of finite rank loses: log evidence of Gaussian values, exact less approximate.

With :math:`P = \Phi \Phi^\top + \Lambda` for values under features and :math:`P + E` under the
kernel itself, :math:`M = P^{-1/2} E P^{-1/2}` and :math:`a = P^{-1/2} y`,

.. math:: L = \tfrac12 a^\top M (I + M)^{-1} a - \tfrac12 \mathrm{tr} \log(I + M).

Where it matters whether L is small, M is small, and a few products with the kernel are enough:
Lanczos' quadrature, of the trace with random signs (Gardner et al. 2018, arXiv:1809.11165; Wenger
et al. 2022, arXiv:2107.00243). No n x n matrix is kept.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._posterior.approximations.features import Features
from pymc_skewgp._posterior.approximations.residual import residual_variances
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray

_PROBES, _RUNS = 32, 8  # random signs behind the trace, and sets of these, at most
_STEPS = 12  # products with the kernel, at most
# Nats that a product changes, from which on there are no more: or this share of a large loss.
_CHANGE, _SHARE, _LARGE = 0.005, 0.05, 5.0
_ROWS_AT_ONCE = 512
_SEED = 0
_ROUND_OFF = 1e-12


class NoisyValues(NamedTuple):
    """Values of f with Gaussian noise, or what stands for them: EP's sites.

    Attributes
    ----------
    X : ndarray, shape (n, d)
    value : ndarray, shape (n,)
        Less their mean.
    variance : ndarray, shape (n,)
        Of the noise with what features leave of f, as the approximated prior has it, of one.
    counts : ndarray, shape (n,)
        How many equal ones there are of each, over which `value` is the mean.
    """

    X: FloatArray
    value: FloatArray
    variance: FloatArray
    counts: FloatArray

    def rows(self, index: IntArray) -> "NoisyValues":
        """Some of them."""
        return NoisyValues(*(x[index] for x in self))


class ApproximationLoss(NamedTuple):
    """Nats that an approximated prior loses.

    Attributes
    ----------
    value : float
        Log evidence under the kernel itself, less that under the approximated prior.
    std_error : float
        Of that estimate; of more than five nats half of it, as only their size matters.
    divergence : float
        Kullback-Leibler divergence of the values, exact from approximate: what `value` is on
        average over values drawn from the prior.
    """

    value: float
    std_error: float
    divergence: float

    def __str__(self) -> str:
        if abs(self.value) > _LARGE:
            return f"some {self.value:.2g} nats"
        return f"{self.value:.3g} +- {self.std_error:.2g} nats"

    @property
    def largest(self) -> float:
        """What it may be, in size, within two standard errors."""
        return abs(self.value) + 2.0 * self.std_error


def loss_of_values(
    prior: Prior, features: Features, values: NoisyValues, limit: float
) -> ApproximationLoss:
    """By Lanczos' quadrature: n^2 evaluations of the kernel for each of its few steps.

    There are more random signs where it is not clear yet whether the loss is below the limit.
    """
    whitened, rng = _Whitened(prior, features, values), np.random.default_rng(_SEED)
    runs: list[ApproximationLoss] = []
    while True:
        runs.append(_by_signs(whitened, values, rng))
        value, std_error, divergence = np.mean(runs, axis=0).tolist()
        found = ApproximationLoss(value, std_error / len(runs) ** 0.5, divergence)
        clear = abs(abs(found.value) - limit) > 2.0 * found.std_error
        if clear or len(runs) == _RUNS:
            break
    if abs(found.value) <= _LARGE:
        return found
    # Where much is lost the rule converges slowly: changes do not tell what is missing.
    return found._replace(std_error=float(np.hypot(found.std_error, 0.5 * found.value)))


def _by_signs(
    whitened: "_Whitened", values: NoisyValues, rng: np.random.Generator
) -> ApproximationLoss:
    n = values.value.size
    signs = rng.choice([-1.0, 1.0], size=(n, _PROBES))
    own = whitened.half(values.value[:, None])
    start = np.hstack([own, signs])
    size = np.maximum(np.einsum("ij,ij->j", start, start), np.finfo(float).tiny)
    vectors, before = start / np.sqrt(size), np.zeros(start.shape)
    diagonal, off = np.zeros((0, size.size)), np.zeros((0, size.size))
    last = np.inf
    while True:
        # One step of the recurrence for each column by itself.
        after = whitened.product(vectors)
        diagonal = np.vstack([diagonal, np.einsum("ij,ij->j", after, vectors)])
        after -= vectors * diagonal[-1]
        if len(off):
            after -= before * off[-1]
        norm = np.sqrt(np.einsum("ij,ij->j", after, after))
        found = _quadrature(diagonal, off, size)
        ahead = 0.5 * max(float(size[0] * norm[0] ** 2), float(np.mean((size * norm**2)[1:])))
        change = ahead if len(diagonal) == 1 else abs(found.value - last)
        enough = max(_CHANGE, _SHARE * abs(found.value) if abs(found.value) > _LARGE else 0.0)
        if change < enough or len(diagonal) == _STEPS:
            return found._replace(std_error=float(np.hypot(found.std_error, min(change, enough))))
        last, before = found.value, vectors
        vectors = after / np.maximum(norm, np.finfo(float).tiny)
        off = np.vstack([off, norm])


def _quadrature(diagonal: FloatArray, off: FloatArray, size: FloatArray) -> ApproximationLoss:
    """Gauss' rule of each column: eigenvalues of its tridiagonal matrix, and their weights."""

    def mean(j: int, function: Callable[[FloatArray], FloatArray]) -> float:
        matrix = np.diag(diagonal[:, j]) + np.diag(off[:, j], 1) + np.diag(off[:, j], -1)
        nodes, rows = eigh(matrix)
        nodes = np.maximum(nodes, _ROUND_OFF - 1.0)
        return float(size[j] * (rows[0] ** 2 @ function(nodes)))

    probes = range(1, size.size)
    fit = 0.5 * mean(0, lambda x: x / (1.0 + x))
    volume = np.array([0.5 * mean(j, np.log1p) for j in probes])
    trace = np.array([0.5 * mean(j, lambda x: x) for j in probes])
    error = float(volume.std(ddof=1) / np.sqrt(volume.size))
    return ApproximationLoss(fit - float(volume.mean()), error, float((trace - volume).mean()))


class _Whitened:
    """Products with M = P^-1/2 E P^-1/2, the kernel evaluated anew for each."""

    def __init__(self, prior: Prior, features: Features, values: NoisyValues) -> None:
        self._prior, self._X = prior, values.X
        self._phi, _ = features.at(values.X)
        # What equal rows share of f under the kernel is noise of their own under the features.
        self._own = residual_variances(prior, features, values.X) / values.counts
        self._root = np.sqrt(values.variance / values.counts)
        scaled = self._phi / self._root[:, None]
        roots, vectors = eigh(scaled.T @ scaled)
        kept = roots > _ROUND_OFF * max(float(roots[-1]), 1.0)
        self._basis = scaled @ (vectors[:, kept] / np.sqrt(roots[kept]))
        self._shrinkage = 1.0 - 1.0 / np.sqrt(1.0 + roots[kept])

    def half(self, x: FloatArray) -> FloatArray:
        """P^-1/2 x, but for a rotation: (I + B B')^-1/2 of x over the noise's deviations."""
        return self._shrunk(x / self._root[:, None])

    def product(self, x: FloatArray) -> FloatArray:
        """M x."""
        x = self._shrunk(x) / self._root[:, None]
        found = -self._phi @ (self._phi.T @ x) - self._own[:, None] * x
        n = self._X.shape[0]
        for start in range(0, n, _ROWS_AT_ONCE):
            # Of a symmetric matrix the part right of the diagonal's blocks.
            rows, size = slice(start, start + _ROWS_AT_ONCE), min(_ROWS_AT_ONCE, n - start)
            block = self._prior.covariance("X", self._X[rows], self._X[start:])
            found[rows] += block @ x[start:]
            found[start + size :] += block[:, size:].T @ x[rows]
        return self.half(found)

    def _shrunk(self, x: FloatArray) -> FloatArray:
        return x - self._basis @ (self._shrinkage[:, None] * (self._basis.T @ x))
