r"""Expectation propagation one site at a time, for rectangles where all sites at once oscillate.

Signs that a covariance hardly allows, such as those of a smooth function that alternate over short
distances, have sites many orders stronger than those that EP begins with. On the way there the
sites overshoot each other when they move together. One at a time each of them sees what those
before it have changed, and some ten sweeps are enough.

A block of rows at a time: with the Gaussian's moments of these rows alone the sites of the block
move one by one, :math:`b^3` operations, and then all of the Gaussian follows at once,

.. math:: S - S_{\cdot B} (I + \Delta_\tau S_{BB})^{-1} \Delta_\tau S_{B \cdot}, \qquad
    m + S_{\cdot B} (I + \Delta_\tau S_{BB})^{-1} (\Delta_\nu - \Delta_\tau m_B),

:math:`2 n^3` operations a sweep, as matrix products.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.compiled import rows as r
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._validation import FloatArray

_BLOCK = 32
_MAX_SWEEPS = 30
# Of a variance: the least that a change of one site is taken to leave of it.
_LEAST_LEFT = 1e-3


class Sites(NamedTuple):
    """Precision and precision times mean of each site, and the largest residual before the last."""

    tau: FloatArray
    nu: FloatArray
    residual: float


def sequential_sites(
    cov: Covariance, lower: FloatArray, upper: FloatArray, near: float
) -> Sites | None:
    """Sites for lower < u < upper, u ~ N(0, cov), whose residual is below `near`; None if not soon.

    Where the residual is so small, all sites at once do the rest.

    Parameters
    ----------
    cov : Covariance
    lower, upper : ndarray, shape (n,)
        Limits, infinities allowed.
    near : float
        The residual as in `EPResult`.
    """
    with np.errstate(all="ignore"):
        try:
            return _sweeps(cov, lower, upper, near)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):  # beyond round-off
            return None


def _sweeps(cov: Covariance, lower: FloatArray, upper: FloatArray, near: float) -> Sites | None:
    """See `sequential_sites`."""
    prior, limits = cov.diagonal(), np.stack([lower, upper])
    moments, mean = cov.dense().copy(), np.zeros(cov.size)
    tau, nu = np.zeros(cov.size), np.zeros(cov.size)
    for _ in range(_MAX_SWEEPS):
        residual = 0.0
        for start in range(0, cov.size, _BLOCK):
            rows = slice(start, start + _BLOCK)
            before = tau[rows].copy(), nu[rows].copy()
            block = _Block(moments[rows, rows].copy(), mean[rows].copy(), tau[rows], nu[rows])
            residual = max(residual, _move(block, limits[:, rows], prior[rows]))
            _follow(moments, mean, rows, tau[rows] - before[0], nu[rows] - before[1])
        if residual < near:
            return Sites(tau, nu, residual)
        # Anew, for round-off adds up where sites become strong.
        moments = cov.site_covariance(tau)
        mean = moments @ nu
    return None


class _Block(NamedTuple):
    """Moments of some rows, and views of their sites."""

    moments: FloatArray
    mean: FloatArray
    tau: FloatArray
    nu: FloatArray


def _move(block: _Block, limits: FloatArray, prior: FloatArray) -> float:
    """Move the sites of a block one by one, and its moments with them; the largest residual.

    Raises
    ------
    FloatingPointError
        Where it is not finite.
    """
    moments, mean, tau, nu = block
    least = r.LEAST_CAVITY / prior
    residual, row = 0.0, np.zeros((r.N_ROWS, 1))
    for i in range(mean.size):
        variance = min(max(moments[i, i], r.LEAST_VARIANCE * prior[i]), prior[i])
        row[[r.TAU, r.NU, r.MEAN, r.VARIANCE], 0] = tau[i], nu[i], mean[i], variance
        gap = r.tilt(row, limits[:, i : i + 1].copy(), least[i : i + 1])
        if not math.isfinite(gap):
            raise FloatingPointError("the moments of a row are not finite.")
        residual = max(residual, gap)
        new_tau, new_nu = row[r.NEW_TAU, 0], row[r.NEW_NU, 0]
        by_tau, by_nu = new_tau - tau[i], new_nu - nu[i]
        share = 1.0 / max(1.0 + by_tau * variance, _LEAST_LEFT)
        own = moments[:, i].copy()
        mean += own * ((by_nu - by_tau * mean[i]) * share)
        moments -= np.outer(own, own * (by_tau * share))
        tau[i], nu[i] = new_tau, new_nu
    return residual


def _follow(
    moments: FloatArray, mean: FloatArray, rows: slice, by_tau: FloatArray, by_nu: FloatArray
) -> None:
    """Change all moments by what the sites of some rows have changed by."""
    columns = moments[:, rows].copy()
    inner = by_tau[:, None] * moments[rows, rows]
    inner[np.diag_indices_from(inner)] += 1.0
    pull = by_nu - by_tau * mean[rows]
    solved = np.linalg.solve(inner, np.column_stack([by_tau[:, None] * columns.T, pull]))
    moments -= columns @ solved[:, :-1]
    mean += columns @ solved[:, -1]
