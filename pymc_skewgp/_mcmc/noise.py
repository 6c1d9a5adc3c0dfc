"""Noise of the rows behind observations: drawn freely, or within limits."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import fit_ep
from pymc_skewgp._gaussian.proposals.twisted import twist
from pymc_skewgp._gaussian.samplers.rejection import draw_by_rejection
from pymc_skewgp._gaussian.univariate import draw_truncated, log_ndtr_interval
from pymc_skewgp._gaussian.weights import systematic_resample
from pymc_skewgp._observations.noise import rows_of_blocks
from pymc_skewgp._validation import FloatArray

# Proposals for all blocks of one size together, before blocks are drawn one by one.
_TOGETHER = (16, 256)
_LARGEST_TOGETHER = 12
_LARGEST_REJECTION = 60  # beyond, rejection fails after seconds
_N_RESAMPLED = 1024


class RowNoise:
    """e ~ N(0, S), S being variances, or a covariance that falls into blocks.

    Parameters
    ----------
    S : ndarray, shape (m,) or (m, m)
    """

    def __init__(self, S: FloatArray) -> None:
        self._S = S
        self._sd = np.sqrt(S if S.ndim == 1 else S.diagonal())

    @cached_property
    def _factor(self) -> FloatArray:
        return linalg.low_rank_factor(self._S)

    @cached_property
    def _blocks(self) -> list[NDArray[np.intp]]:
        if self._S.ndim == 1 or not self._S.size:
            return []
        return [rows for rows in rows_of_blocks(self._S) if rows.shape[1] > 1]

    def free(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draws as columns, shape (m, n)."""
        if self._S.ndim == 1 or not self._S.size:
            return self._sd[:, None] * rng.standard_normal((self._sd.size, n))
        return np.asarray(self._factor @ rng.standard_normal((self._factor.shape[1], n)))

    def within(
        self, lower: FloatArray, upper: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, bool]:
        """One draw of e between limits, shape (m,), and whether it is exact.

        Blocks of one row are truncated normals; others are drawn by rejection or, where that finds
        none, picked from weighted draws.
        """
        sd, exact = self._sd, True
        e = sd * draw_truncated(rng.random(sd.size), lower / sd, upper / sd)[0]
        for rows in self._blocks:
            e[rows], found = _draw_blocks(
                self._S[rows[:, :, None], rows[:, None, :]], lower[rows], upper[rows], rng
            )
            exact &= found
        return e, exact


def draw_one(
    mean: FloatArray,
    cov: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    rng: np.random.Generator,
) -> tuple[FloatArray, bool]:
    """A draw of N(mean, cov) within limits, and whether it is exact: by rejection, or by weight."""
    if mean.size <= _LARGEST_REJECTION:
        draw = draw_by_rejection(mean, cov, lower, upper, rng)
        if draw is not None:
            return draw, True
    form = DenseCovariance(cov)
    proposal = twist(form, fit_ep(form, lower - mean, upper - mean), lower - mean, upper - mean)
    x, log_weights = proposal.draw(rng.random((proposal.n_dims, _N_RESAMPLED)))
    return mean + x[:, systematic_resample(log_weights, 1, rng)[0]], False


def _draw_blocks(
    cov: FloatArray, lower: FloatArray, upper: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, bool]:
    """Draws of b vectors of d rows each, N(0, cov) within limits, shape (b, d)."""
    b, d = lower.shape
    e, exact = np.empty((b, d)), True
    left = np.arange(b)
    if d <= _LARGEST_TOGETHER:
        for count in _TOGETHER:
            done, draws = _rejection(cov[left], lower[left], upper[left], count, rng)
            e[left[done]] = draws
            left = left[~done]
            if not left.size:
                return e, True
    for i in left:
        e[i], found = draw_one(np.zeros(d), cov[i], lower[i], upper[i], rng)
        exact &= found
    return e, exact


def _rejection(
    cov: FloatArray, lower: FloatArray, upper: FloatArray, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Which blocks had a draw accepted among `count`, and these: see `samplers.rejection`."""
    b, d = lower.shape
    sd = np.sqrt(np.einsum("bii->bi", cov))
    log_mass = log_ndtr_interval((lower / sd).ravel(), (upper / sd).ravel()).reshape(b, d)
    order = np.argsort(log_mass, axis=1, kind="stable")  # the least likely first
    each = np.arange(b)[:, None]
    chol = np.linalg.cholesky(cov[each[:, :, None], order[:, :, None], order[:, None, :]])
    scale = np.einsum("bii->bi", chol)
    low, high = lower[each, order] / scale, upper[each, order] / scale
    mixing = chol / scale[:, :, None]
    z, log_weight = np.empty((b, d, count)), np.zeros((b, count))
    for k in range(d):
        shift = np.einsum("bj,bjc->bc", mixing[:, k, :k], z[:, :k])
        limits = (low[:, k, None] - shift).ravel(), (high[:, k, None] - shift).ravel()
        draw, log_step = draw_truncated(rng.random(b * count), *limits)
        z[:, k] = draw.reshape(b, count)
        if k:  # the first mass is the same for all
            log_weight += log_step.reshape(b, count)
    accepted = np.log(rng.random((b, count))) < log_weight
    done = accepted.any(axis=1)
    chosen = z[done, :, accepted[done].argmax(axis=1)]
    x = np.empty((int(done.sum()), d))
    x[np.arange(len(x))[:, None], order[done]] = np.einsum("bij,bj->bi", chol[done], chosen)
    return done, np.clip(x, lower[done], upper[done])
