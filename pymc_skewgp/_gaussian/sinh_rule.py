r"""Moments of many densities side by side, each on a line of its own, by a trapezoid rule.

The rule is in t, with :math:`x = c + s \sinh(t / 2) \cdot 2`: dense around a centre c on a scale s,
and ever sparser in the tails, so that a density which is a hundred times narrower than what is
known of its reach takes hardly more nodes. For analytic integrands it converges like
:math:`e^{-C/h}`: halving the step h squares the error, so that the change from one step to the next
says when to stop (L. N. Trefethen & J. A. C. Weideman 2014, doi:10.1137/130932132).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_skewgp._validation import FloatArray

_STRETCH = 0.5  # spacings double every 1.4 of t
_NEGLIGIBLE = 37.0  # nats below the largest value
_SCAN_NODES, _FIRST_NODES, _MOST_NODES = 17, 9, 2049


class LineMoments(NamedTuple):
    """Log of the integral, mean less the centre, and variance, of each density."""

    log_mass: FloatArray
    shift: FloatArray
    variance: FloatArray

    def change(self, other: "LineMoments") -> float:
        """Largest difference from `other`, relative, means in deviations."""
        gap = np.abs(self.log_mass - other.log_mass)
        gap += np.abs(self.shift - other.shift) / np.sqrt(self.variance)
        gap += np.abs(self.variance / other.variance - 1.0)
        return float(gap.max())


def line_moments(
    log_density: Callable[[FloatArray], FloatArray],
    centre: FloatArray,
    scale: FloatArray,
    reach: FloatArray,
    change: float,
) -> LineMoments:
    """Moments of n densities.

    Parameters
    ----------
    log_density : callable
        Of points, shape (k, n), to as many values.
    centre, scale : ndarray, shape (n,)
        Where nodes are dense, and on which scale.
    reach : ndarray, shape (n,)
        Distance from the centre beyond which nothing is left of the density.
    change : float
        Of the moments from one step to the next at which to stop: the error left is its square.
    """
    turn = np.arcsinh(_STRETCH * reach / scale) / _STRETCH
    scan = np.linspace(-turn, turn, _SCAN_NODES)
    values = log_density(centre + _offset(scan, scale))
    seen = values > values.max(axis=0) - _NEGLIGIBLE
    last = _SCAN_NODES - 1
    start = np.maximum(seen.argmax(axis=0) - 1, 0)
    stop = np.minimum(last - seen[::-1].argmax(axis=0) + 1, last)
    column = np.arange(centre.size)
    start, stop = scan[start, column], scan[stop, column]
    nodes = np.linspace(start, stop, _FIRST_NODES)
    logs = log_density(centre + _offset(nodes, scale))
    found = _moments(nodes, logs, scale)
    while nodes.shape[0] < _MOST_NODES:
        between = 0.5 * (nodes[1:] + nodes[:-1])
        nodes = _interleaved(nodes, between)
        logs = _interleaved(logs, log_density(centre + _offset(between, scale)))
        before, found = found, _moments(nodes, logs, scale)
        if found.change(before) < change:
            break
    return found


def _offset(t: FloatArray, scale: FloatArray) -> FloatArray:
    offset: FloatArray = np.sinh(_STRETCH * t)
    offset *= scale / _STRETCH
    return offset


def _interleaved(nodes: FloatArray, between: FloatArray) -> FloatArray:
    joined = np.empty((nodes.shape[0] + between.shape[0], nodes.shape[1]))
    joined[::2], joined[1::2] = nodes, between
    return joined


def _moments(nodes: FloatArray, logs: FloatArray, scale: FloatArray) -> LineMoments:
    largest = logs.max(axis=0)
    mass = np.exp(logs - largest)
    mass *= np.cosh(_STRETCH * nodes)
    total = mass.sum(axis=0)
    offset = _offset(nodes, scale)
    shift = np.einsum("ij,ij->j", mass, offset) / total
    offset -= shift
    offset *= offset
    variance = np.einsum("ij,ij->j", mass, offset) / total
    step = nodes[1] - nodes[0]
    return LineMoments(largest + np.log(total * step * scale), shift, variance)
