r"""Quantiles of a new y whose distribution function :math:`F(y \mid f)` falls as f grows.

.. math:: P(y_* \le y) = \int F(y \mid f(z))\, \varphi(z)\, dz, \qquad f(z) = P_f^{-1}\{\Phi(z)\}

f(z) is tabulated once. The integral runs over the z where F is neither 1 nor 0, by as many nodes
whether that is a thousandth of a standard deviation of f or all of it.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_skewgp._gaussian.mixture import mixture_cdf
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray

# F(y | f), of shapes that broadcast.
ConditionalCdf = Callable[[FloatArray, FloatArray], FloatArray]
_GRID = np.linspace(-7.5, 7.5, 61)  # where P_f is computed, in standard deviations of f
_REACH = 6.0  # of z: what is beyond has mass 1e-9
_SCORES = np.linspace(-_REACH, _REACH, 129)
_STEP = _SCORES[1] - _SCORES[0]
_PARTS = np.linspace(0.0, 1.0, 65)
_SIMPSON = np.tile([2.0, 4.0], 33)[:65] / (3.0 * 64)
_SIMPSON[[0, -1]] /= 2.0
_NOTHING = 1e-9
_MOST = 2**62
_MAX_STEPS = 60


class NewValues:
    """A new y at each of t points, f as `mixture` has it.

    Parameters
    ----------
    mixture : Mixture
    cdf : callable
        F(y | f), which falls as f grows.
    """

    def __init__(self, mixture: Mixture, cdf: ConditionalCdf) -> None:
        self.f = latent_at_scores(mixture)
        self._cdf = cdf

    def cdf(self, y: FloatArray) -> FloatArray:
        """P(y_* <= y), both of shape (t,)."""
        coarse = self._cdf(y[:, None], self.f[:, ::2])
        # Where F is 1 below and 0 above, a node to spare.
        first = 2 * np.maximum((coarse > 1.0 - _NOTHING).sum(axis=1) - 1, 0)
        last = _SCORES.size - 1 - 2 * np.maximum((coarse < _NOTHING).sum(axis=1) - 1, 0)
        last = np.maximum(last, first + 2)
        place = first[:, None] + (last - first)[:, None] * _PARTS
        left = np.minimum(place.astype(int), _SCORES.size - 2)
        f = np.take_along_axis(self.f, left, axis=1)
        f += (place - left) * (np.take_along_axis(self.f, left + 1, axis=1) - f)
        z = place * _STEP - _REACH
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        within = (self._cdf(y[:, None], f) * density) @ _SIMPSON
        return np.asarray(ndtr(z[:, 0]) + (last - first) * _STEP * within)

    def whole_quantiles(self, probs: FloatArray) -> FloatArray:
        """`whole_quantile` of each probability, shape (n_probs, t)."""
        return np.stack([self.whole_quantile(prob) for prob in probs])

    def whole_quantile(self, prob: float) -> FloatArray:
        """The smallest whole number y with P(y_* <= y) >= prob, at most 2^62."""
        enough = prob - _NOTHING
        low = np.full(self.f.shape[0], -1.0)
        high = np.zeros(low.size)
        while (short := (self.cdf(high) < enough) & (high < _MOST)).any():
            low = np.where(short, high, low)
            high = np.where(short, np.minimum(2.0 * high + 1.0, _MOST), high)
        while (high - low > 1.0).any():
            mid = np.floor(0.5 * (low + high))
            reached = self.cdf(mid) >= enough
            low, high = np.where(reached, low, mid), np.where(reached, mid, high)
            # Neighbours of large numbers may be one float.
            low = np.where(high - low <= 4e-16 * high, high - 1.0, low)
        return high

    def noisy_quantiles(self, probs: FloatArray, inverse: Callable[[float], float]) -> FloatArray:
        """`noisy_quantile` of each probability, shape (n_probs, t)."""
        return np.stack([self.noisy_quantile(prob, inverse) for prob in probs])

    def noisy_quantile(self, prob: float, inverse: Callable[[float], float]) -> FloatArray:
        """Of y = f + e, e with this inverse distribution function: by false positions."""
        # If y is below a + b, f is below a or e below b: half of prob for b leaves less for a.
        low = self.f[:, 0] + inverse(0.5 * prob)
        high = self.f[:, -1] + inverse(0.5 + 0.5 * prob)
        goal = ndtri(prob)
        below, above = self._score(low) - goal, self._score(high) - goal
        width = 1e-9 * (high - low)
        for _ in range(_MAX_STEPS):
            mid = high - above * (high - low) / np.maximum(above - below, 1e-300)
            found = self._score(mid) - goal
            up = found >= 0
            # Illinois: the end that stays counts half.
            below, above = np.where(up, 0.5 * below, found), np.where(up, found, 0.5 * above)
            moved = np.where(up, high - mid, mid - low)
            low, high = np.where(up, low, mid), np.where(up, mid, high)
            if ((np.minimum(moved, high - low) < width) | (np.abs(found) < 1e-9)).all():
                break
        return mid

    def _score(self, y: FloatArray) -> FloatArray:
        """Normal score of P(y_* <= y), nearly a line."""
        return np.asarray(ndtri(np.clip(self.cdf(y), 1e-15, 1.0 - 1e-15)))


def latent_at_scores(mixture: Mixture) -> FloatArray:
    """Values of f of normal scores `_SCORES`, shape (t, 129), by lines between those of a grid."""
    centre, sd, _ = mixture.moments
    x = centre[:, None] + sd[:, None] * _GRID
    below = mixture_cdf(mixture.means, mixture.variance, mixture.weights, x.T).T
    scores = ndtri(np.clip(below, 1e-16, 1.0 - 1e-16))
    return np.stack([np.interp(_SCORES, *pair) for pair in zip(scores, x, strict=True)])
