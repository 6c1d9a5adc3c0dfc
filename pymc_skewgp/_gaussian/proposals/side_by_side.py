"""The twisted sampler for many small rectangles at once, with a few draws of each.

Thousands of covariances of one model, each with the same limits in the same places, or nearly so:
one of them alone would take most of its time in Python. Step k is made for all of them together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.proposals.ep_dense import dense_ep_with_covariance
from pymc_skewgp._gaussian.proposals.twisted import Steps, TwistedProposal, twist_by_covariance
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

_BLOCK = 32  # rows drawn between two matrix products


class Fitted(NamedTuple):
    """EP's fixed point, from which the next one begins, and its proposal."""

    ep: EPResult
    proposal: TwistedProposal


def twist_dense(
    matrix: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    tol: float,
    order: IntArray | None = None,
    start: EPResult | None = None,
) -> Fitted | None:
    """EP and `twist` from one factorisation, no leading direction; None where EP is stuck.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        Positive definite.
    lower, upper : ndarray, shape (n,)
    tol, start
        As for `fit_ep`.
    order : ndarray of int, shape (n,), optional
        As for `twist`.
    """
    found = dense_ep_with_covariance(matrix, np.stack([lower, upper]), tol=tol, start=start)
    if found is None:
        return None
    try:
        return Fitted(found.ep, twist_by_covariance(found, lower, upper, order))
    except np.linalg.LinAlgError:
        return None


def draw_side_by_side(
    proposals: Sequence[TwistedProposal], points: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """`TwistedProposal.draw` of several proposals.

    Parameters
    ----------
    proposals : sequence of TwistedProposal
        B of them, with as many rows in the same order, none with a leading direction.
    points : ndarray, shape (n, B, n_draws)
        Uniforms in (0, 1).

    Returns
    -------
    u : ndarray, shape (B, n, n_draws)
    log_weights : ndarray, shape (B, n_draws)
    """
    n, order = points.shape[0], proposals[0].order
    chol = np.stack([x.chol for x in proposals])
    steps = Steps(*(_columns(x) for x in zip(*(own.steps for own in proposals), strict=True)))
    mean, lower, upper = (
        _columns([getattr(x, name) for x in proposals]) for name in ("mean", "lower", "upper")
    )
    # One limit for all: half of the time.
    above, below = (upper == np.inf).all(axis=(1, 2)), (lower == -np.inf).all(axis=(1, 2))
    noise, u = np.empty(points.shape), np.empty(points.shape)
    each = noise.transpose(1, 0, 2)
    log_weights = np.zeros(points.shape[1:])
    log_weights += np.array([x.log_constant for x in proposals])[:, None]
    log_weights += steps.log_scale.sum(axis=0)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        base = chol[:, start:stop, :start] @ each[:, :start]
        for k in range(start, stop):
            centre = base[:, k - start]
            if k > start:
                centre = centre + (chol[:, k : k + 1, start:k] @ each[:, start:k])[:, 0]
            shifted = steps.slope[k] * centre
            low = np.float64(-np.inf) if below[k] else steps.low[k] - shifted
            high = np.float64(np.inf) if above[k] else steps.high[k] - shifted
            z, log_mass = draw_truncated(points[k], low, high, steps.width[k])
            value = steps.sd[k] * (z + shifted) - steps.shift[k]
            # The sum may round to the far side of a limit.
            np.clip(value + mean[k], lower[k], upper[k], out=u[order[k]])
            noise[k] = (value - centre) / steps.scale[k]
            log_weights += log_mass
            log_weights += (steps.square[k] * centre - steps.linear[k]) * centre
    return u.transpose(1, 0, 2), log_weights


def _columns(rows: Sequence[FloatArray]) -> FloatArray:
    """Vectors of n, one for each of B, as an array (n, B, 1)."""
    return np.ascontiguousarray(np.stack(rows, axis=-1))[..., None]
