r"""Values of f by which functions of it are averaged, :math:`\sum_j w_j \int g(f) N(f; m_j, v) df`.

A trapezoid rule: for Gaussians times smooth functions it converges faster than any power of its
step, and the rule of every second node tells how far it is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray

# Nodes of one grid for all components, up to which there is one: else each has its own.
_MOST_SHARED = 600
# Components this narrow against f itself are points.
_POINT = 1e-6
# Mass of the nodes at which a function may be unknown.
_NOTHING = 1e-9
STEP, REACH = 0.25, 8.0  # of the rule at first, in standard deviations of a component


@dataclass(frozen=True)
class Nodes:
    """Nodes at b points.

    Attributes
    ----------
    f : ndarray, shape (b, K)
        Values of f.
    weights, coarse : ndarray, shape (b, K)
        What the mixture gives them, in this rule and in that of every second node.
    shares : ndarray, shape (b, S, K), or None
        What each component gives them, over `weights`; None where K / S nodes in a row belong to
        one component.
    own : ndarray, shape (K / S,)
        Then what it gives these.
    """

    f: FloatArray
    weights: FloatArray
    coarse: FloatArray
    shares: FloatArray | None
    own: FloatArray

    def each(self, values: FloatArray, power: int = 1) -> FloatArray:
        """Averages within each component, shape (b, S), of values at the nodes to a power."""
        if self.shares is not None:
            terms = _terms(self.weights, values, power)
            return np.asarray((self.shares @ terms[:, :, None])[..., 0])
        values = values.reshape(values.shape[0], -1, self.own.size)
        return np.asarray(_terms(self.own, values, power).sum(axis=-1))

    def total(self, values: FloatArray, power: int = 1) -> tuple[FloatArray, FloatArray]:
        """Averages over the mixture, and by how much the coarse rule differs."""
        rules = (self.weights, self.coarse)
        found, coarse = (_terms(weights, values, power).sum(axis=1) for weights in rules)
        return found, np.abs(found - coarse)

    def cut_off(self, values: FloatArray, power: int = 1) -> FloatArray:
        """Share that the first and last node have in an average of positive values, shape (b,)."""
        b, n = self.f.shape[0], self.own.size if self.shares is None else self.f.shape[1]
        if n == 1:
            return np.zeros(b)
        terms = _terms(self.weights, values, power).reshape(b, -1, n).sum(axis=1)
        return np.nan_to_num((terms[:, 0] + terms[:, -1]) / terms.sum(axis=1))

    def filled(self, values: FloatArray) -> FloatArray:
        """With the nearest number in place of what is none where f hardly ever is."""
        unknown = np.isnan(values)
        for i in np.flatnonzero(unknown.any(axis=1)):
            own = unknown[i]
            if self.weights[i, own].sum() < _NOTHING:
                order = np.argsort(self.f[i, ~own])
                known = self.f[i, ~own][order], values[i, ~own][order]
                values[i, own] = np.interp(self.f[i, own], *known)
        return values


def _terms(weights: FloatArray, values: FloatArray, power: int) -> FloatArray:
    """Weights times powers of values, which by themselves may overflow."""
    root = weights if power == 1 else weights ** (1.0 / power)
    # Where the weight is 0 the value may be infinite.
    terms = np.multiply(root, values, where=root > 0, out=np.zeros(values.shape))
    return terms if power == 1 else terms**power


def are_shared(mixture: Mixture) -> NDArray[np.bool_]:
    """At which points one grid serves all components."""
    wide, sd = np.ptp(mixture.means, axis=1) / STEP, np.sqrt(mixture.variance)
    found: NDArray[np.bool_] = (sd > 0) & (wide <= (_MOST_SHARED - 2 * REACH / STEP) * sd)
    return found


def shared_nodes(mixture: Mixture, rows: IntArray, step: float, reach: float) -> Nodes:
    """One grid a point, evenly spaced."""
    means, sd = mixture.means[rows], np.sqrt(mixture.variance[rows])
    low, high = means.min(axis=1) - reach * sd, means.max(axis=1) + reach * sd
    n = 2 * int(np.ceil(0.5 * ((high - low) / (step * sd)).max())) + 1
    f = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, n)
    shares = (f[:, None, :] - means[:, :, None]) / sd[:, None, None]
    np.exp(-0.5 * shares**2, out=shares)
    shares *= ((high - low) / (n - 1) / (sd * np.sqrt(2.0 * np.pi)))[:, None, None]
    weights = np.asarray(mixture.weights @ shares)
    shares /= np.maximum(weights, np.finfo(float).tiny)[:, None, :]
    return Nodes(f, weights, weights * _every_second(n), shares, np.ones(n))


def own_nodes(mixture: Mixture, rows: IntArray, step: float, reach: float) -> Nodes:
    """A grid for each component, which is narrow against all of them together."""
    means, sd = mixture.means[rows], np.sqrt(mixture.variance[rows])
    z, own, second = np.zeros(1), np.ones(1), np.ones(1)
    if (sd > _POINT * mixture.moments[1][rows]).any():
        n = 2 * int(np.ceil(0.5 * reach / step))
        z = np.linspace(-reach, reach, n + 1)
        own = np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
        second = _every_second(z.size)
    f = means[:, :, None] + sd[:, None, None] * z
    weights = np.broadcast_to(mixture.weights[:, None] * own, f.shape)
    coarse = weights * second
    b = rows.size
    return Nodes(f.reshape(b, -1), weights.reshape(b, -1), coarse.reshape(b, -1), None, own)


def _every_second(n: int) -> FloatArray:
    return np.asarray(np.where(np.arange(n) % 2, 0.0, 2.0))
