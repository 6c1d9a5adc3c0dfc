"""Factors p(y_i | eta_i) of any likelihood, for expectation propagation."""

from typing import NamedTuple, Protocol

import numpy as np

from pymc_skewgp._gaussian.sinh_rule import LineMoments, LineRule, Nodes, Span, line_moments
from pymc_skewgp._gaussian.tilted import Tilted
from pymc_skewgp._validation import FloatArray

_TAIL = 8.7  # deviations, beyond which a Gaussian has nothing left
_CHANGE = 1e-4  # see `line_moments`
_SCAN_NODES = 65
_COARSER = 2.0  # a look from further away that is as good
_MAX_STEPS = 100
# Centre and scale only place the nodes: they need no digits.
_CENTRED = 0.05
_NEAR = 0.5  # the same for a step that is taken without another look
_NEWTON = 8.0  # deviations of the product up to which its curvature says where the mode is
_FARTHEST = 1e6  # deviations of the Gaussian between its mean and the mode
_ROUND_OFF = 1e-6  # of slopes
_LEAST_TAKEN = 1e-12  # of the Gaussian's variance by a factor
_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))


class SiteFunction(Protocol):
    """Log p(y_i | eta_i) of n sites."""

    def __call__(self, eta: FloatArray) -> FloatArray:
        """Of predictors, shape (..., n)."""
        ...


class SlopeFunction(Protocol):
    """Its first and second derivative."""

    def __call__(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of predictors, shape (..., n)."""
        ...


class KnownProducts(NamedTuple):
    """Of factors and the Gaussians that were asked about, near which the next ones are.

    Attributes
    ----------
    mode : ndarray, shape (n,), or None
        Of a product that is near the last one.
    at_mode : tuple of ndarray, or None
        The factors' two derivatives there.
    nodes : Nodes or None
        That did for the last product.
    seen : tuple of ndarray, or None
        First and last predictors between which all factors were found log-concave.
    """

    mode: FloatArray | None = None
    at_mode: tuple[FloatArray, FloatArray] | None = None
    nodes: Nodes | None = None
    seen: Span | None = None

    def of_others(self) -> "KnownProducts":
        """What may be near for factors that are not quite the same."""
        return self._replace(at_mode=None, seen=None)


class SiteFactors:
    """Factors p(y_i | eta_i), eta = offset + u.

    Moments come from a trapezoid rule. Where log p is concave it is centred at the mode of the
    product with the Gaussian. Else the product may have two modes: there it is centred at the mode
    of p itself, the narrower of the two, and reaches to the Gaussian's tails.

    Parameters
    ----------
    log_prob : SiteFunction
    slopes : SlopeFunction
    offset : ndarray, shape (n,)
    """

    def __init__(self, log_prob: SiteFunction, slopes: SlopeFunction, offset: FloatArray) -> None:
        self._log_prob, self.slopes, self._offset = log_prob, slopes, offset
        self.active = np.ones(offset.size, dtype=bool)
        self._peak = np.full(offset.size, np.nan)  # of factors that are not log-concave
        self._concave = self.active
        self.looked = False  # at how they curve, or it is known
        self.known = KnownProducts()

    @property
    def log_concave(self) -> bool:
        """Whether all factors are, within the reach of the first Gaussian that was asked about."""
        return bool(self._concave.all())

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `Factors`."""
        mean = self._offset + mean
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            centre, found, _ = self._product(mean, sd)
        log_mass = found.log_mass - np.log(sd) - _LOG_SQRT_2PI
        shift = (centre - mean + found.shift) / sd
        # A factor that is not log-concave may widen the Gaussian: no site of EP can do that.
        return Tilted(log_mass, shift, np.minimum(found.variance / sd**2, 1.0 - _LEAST_TAKEN))

    def nodes(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Predictors, shape (k, n), and their weights under N(mean_i, sd_i^2) times factor i."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self._product(self._offset + mean, sd)[2].nodes()

    def residual(self, mean_gap: FloatArray, variance_gap: FloatArray) -> float:
        """Of all rows together: many small gaps of one sign are as bad as a large one."""
        return float(variance_gap.sum() + mean_gap @ mean_gap)

    def _product(
        self, mean: FloatArray, sd: FloatArray
    ) -> tuple[FloatArray, LineMoments, LineRule]:
        """Centre of the rule, moments of N(mean_i, sd_i^2) times factor i, and the rule."""
        if not self.looked and not self._has_seen(mean, sd):
            self.look_around(mean - self._offset, sd)
        centre, curvature = self._mode_of_product(mean, sd)
        scale = 1.0 / np.sqrt(curvature)
        if not self._concave.all():
            near = np.abs(self._peak - mean) < _TAIL * sd
            peak = np.where(near, self._peak, mean)
            sharp = np.maximum(-self.slopes(peak)[1], 0.0) + sd**-2
            centre = np.where(self._concave, centre, peak)
            scale = np.where(self._concave, scale, 1.0 / np.sqrt(sharp))

        def log_product(eta: FloatArray) -> FloatArray:
            logs = (eta - mean) / sd
            logs *= -0.5 * logs
            logs += self._log_prob(eta)
            return logs

        reach = np.abs(centre - mean) + _TAIL * sd
        found, rule = line_moments(log_product, centre, scale, reach, _CHANGE, self.known.nodes)
        self.known = self.known._replace(nodes=rule.where)
        return centre, found, rule

    def look_around(self, mean: FloatArray, sd: FloatArray) -> None:
        """Which factors are log-concave within reach, and the modes of those that are not."""
        self.looked = True
        mean = self._offset + mean
        at = mean + sd * np.linspace(-_TAIL, _TAIL, _SCAN_NODES)[:, None]
        first, second = self.slopes(at)
        # Round-off of a second derivative that is almost 0 is no convexity; where a slope jumps up
        # it has none.
        rise = np.diff(first, axis=0) * sd - _ROUND_OFF * np.abs(first[1:] * sd)
        self._concave = ~((second * sd**2 > 1e-9).any(axis=0) | (rise > _ROUND_OFF).any(axis=0))
        if self._concave.all():
            self.known = self.known._replace(seen=(at[0], at[-1]))
            return
        logs = self._log_prob(at)
        best = np.where(np.isnan(logs), -np.inf, logs).argmax(axis=0)
        inside = (best > 0) & (best < _SCAN_NODES - 1)
        column = np.arange(mean.size)
        low = at[np.maximum(best - 1, 0), column]
        high = at[np.minimum(best + 1, _SCAN_NODES - 1), column]
        peak = at[best, column]
        for _ in range(_MAX_STEPS):
            first, second = self.slopes(peak)
            low, high = np.where(first > 0, peak, low), np.where(first > 0, high, peak)
            new = peak - first / second
            new = np.where((new > low) & (new < high) & (second < 0), new, 0.5 * (low + high))
            moved, peak = np.abs(new - peak) * np.sqrt(np.abs(second)), new
            if (moved[inside] < _CENTRED).all():
                break
        self._peak = np.where(inside, peak, np.nan)

    def _has_seen(self, mean: FloatArray, sd: FloatArray) -> bool:
        """Whether all are known to be log-concave here, as finely as `look_around` would see it."""
        if self.known.seen is None:
            return False
        (low, high), reach = self.known.seen, _TAIL * sd
        inside = (low <= mean - reach) & (mean + reach <= high)
        return bool((inside & (high - low <= _COARSER * 2.0 * reach)).all())

    def _mode_of_product(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mode of each log-concave product, roughly, and the curvature there.

        Newton's method near it, and bisection of the bracket that a concave function has: from the
        Gaussian's mean to where its pull alone would balance the factor's slope there.
        """
        precision = sd**-2.0
        x, slopes = self.known.mode, self.known.at_mode
        if x is not None and slopes is not None:
            curvature = precision - np.where(slopes[1] < 0, slopes[1], 0.0)
            step = (slopes[0] - (x - mean) * precision) / curvature
            if ((np.abs(step) * np.sqrt(curvature) < _NEAR) | ~self._concave).all():
                return x + step, curvature
        far = np.clip(self.slopes(mean)[0] / precision / sd, -_FARTHEST, _FARTHEST)
        far = mean + sd * np.where(np.isnan(far), 0.0, far)
        low, high = np.minimum(mean, far), np.maximum(mean, far)
        x, slopes = mean if x is None else np.clip(x, low, high), None
        for _ in range(_MAX_STEPS):
            first, second = self.slopes(x)
            slope = first - (x - mean) * precision
            slope = np.where(np.isnan(slope), mean - x, slope)
            curvature = precision - np.where(second < 0, second, 0.0)
            low, high = np.where(slope > 0, x, low), np.where(slope < 0, x, high)
            step = slope / curvature
            moved = np.abs(step) * np.sqrt(curvature)
            new = x + step
            inside = (new >= low) & (new <= high) & (moved < _NEWTON)
            near = (moved < _CENTRED) | (high - low <= 1e-9 * sd) | ~self._concave
            if near.all():
                slopes = first, second
                break
            x = np.where(inside, new, 0.5 * (low + high))
        self.known = self.known._replace(mode=x, at_mode=slopes)
        return x, curvature
