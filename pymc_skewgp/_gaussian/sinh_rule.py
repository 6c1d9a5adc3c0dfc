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
_WIDE = 32.0  # the same at the ends of a span that was taken over
_SCAN_NODES, _FIRST_NODES, _MOST_NODES = 17, 9, 2049

LogDensity = Callable[[FloatArray], FloatArray]
Span = tuple[FloatArray, FloatArray]
_LEAST_BEGUN, _MOST_BEGUN = 17, 65  # nodes that a rule has from another one


class Nodes(NamedTuple):
    """Of a rule: first and last t, each of shape (n,), and how many that would have done."""

    span: Span
    size: int


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
    log_density: LogDensity,
    centre: FloatArray,
    scale: FloatArray,
    reach: FloatArray,
    change: float,
    known: Nodes | None = None,
) -> tuple[LineMoments, "LineRule"]:
    """Moments of n densities, and the rule that they are from.

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
    known : Nodes, optional
        That do for similar densities: where they do here, the density is asked for once.

    Returns
    -------
    LineMoments, LineRule
    """
    if known is not None:
        size = min(max(known.size, _LEAST_BEGUN), _MOST_BEGUN)
        rule = LineRule(log_density, centre, scale, known.span, size)
    if known is None or not rule.is_wide:
        span = _span(log_density, centre, scale, reach)
        rule = LineRule(log_density, centre, scale, span)
    found = rule.moments()
    if rule.size > _FIRST_NODES:
        changed = found.change(rule.moments(2))
        rule.enough = (rule.size + 1) // 2 if changed < change**2 else rule.size
        if changed < change:
            return found, rule
    while rule.size < _MOST_NODES:
        rule.refine()
        before, found = found, rule.moments()
        rule.enough = rule.size
        if found.change(before) < change:
            break
    return found, rule


def _span(
    log_density: LogDensity, centre: FloatArray, scale: FloatArray, reach: FloatArray
) -> Span:
    """The range of t beyond which each density is negligible."""
    turn = np.arcsinh(_STRETCH * reach / scale) / _STRETCH
    scan = np.linspace(-turn, turn, _SCAN_NODES)
    values = log_density(centre + np.sinh(_STRETCH * scan) * (scale / _STRETCH))
    seen = values > values.max(axis=0) - _NEGLIGIBLE
    last = _SCAN_NODES - 1
    start = np.maximum(seen.argmax(axis=0) - 1, 0)
    stop = np.minimum(last - seen[::-1].argmax(axis=0) + 1, last)
    column = np.arange(centre.size)
    return scan[start, column], scan[stop, column]


class LineRule:
    """The trapezoid rule on nodes that are doubled in number again and again."""

    def __init__(
        self,
        log_density: LogDensity,
        centre: FloatArray,
        scale: FloatArray,
        span: Span,
        size: int = _FIRST_NODES,
    ) -> None:
        self._log_density, self._centre, self._scale = log_density, centre, scale / _STRETCH
        self._span, self.enough = span, size
        self._start, self._length = span[0], span[1] - span[0]
        self._offset, self._jacobian, self._logs = self._at(np.linspace(0.0, 1.0, size))
        self._weigh()

    @property
    def where(self) -> Nodes:
        """Its nodes, for similar densities."""
        return Nodes(self._span, self.enough)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self._logs.shape[0]

    @property
    def is_wide(self) -> bool:
        """Whether nothing is left of the densities at the ends."""
        ends = np.maximum(self._logs[0], self._logs[-1])
        return bool((ends < self._largest - _WIDE).all())

    def refine(self) -> None:
        """Halve the step."""
        new = self._at((np.arange(self.size - 1) + 0.5) / (self.size - 1))
        old = self._offset, self._jacobian, self._logs
        joined = (_interleaved(a, b) for a, b in zip(old, new, strict=True))
        self._offset, self._jacobian, self._logs = joined
        self._weigh()

    def moments(self, every: int = 1) -> LineMoments:
        """By the nodes that there are, or by every second one."""
        mass, offset = self._mass[::every], self._offset[::every]
        total = mass.sum(axis=0)
        shift = np.einsum("ij,ij->j", mass, offset) / total
        off = offset - shift
        off *= off
        variance = np.einsum("ij,ij->j", mass, off) / total
        step = self._length / (len(mass) - 1) * _STRETCH
        return LineMoments(self._largest + np.log(total * step * self._scale), shift, variance)

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Points and their shares of each density, both of shape (k, n)."""
        return self._centre + self._offset, self._mass / self._mass.sum(axis=0)

    def _weigh(self) -> None:
        self._largest = self._logs.max(axis=0)
        self._mass = np.exp(self._logs - self._largest)
        self._mass *= self._jacobian

    def _at(self, share: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Distances from the centre, Jacobians and log densities at shares of the span."""
        turned = np.exp(_STRETCH * (self._start + share[:, None] * self._length))
        turned *= 0.5
        back = 0.25 / turned
        offset = turned - back
        offset *= self._scale
        return offset, turned + back, self._log_density(self._centre + offset)


def _interleaved(nodes: FloatArray, between: FloatArray) -> FloatArray:
    joined = np.empty((nodes.shape[0] + between.shape[0], nodes.shape[1]))
    joined[::2], joined[1::2] = nodes, between
    return joined
