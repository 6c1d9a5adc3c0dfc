r"""Modes of coordinates c ~ N(0, I) under factors p(y_i | eta_i) that are not log-concave.

The log posterior :math:`\sum_i \log p(y_i \mid a_i + F_i c) - c^\top c / 2` is climbed from many
starts side by side, in one metric: that of the largest curvatures of the factors. Starts are EP's
mean, the best of some draws of the prior, the peaks of the factors and of a few of them alone, and
of each mode the factors that it leaves unexplained. Climbs between whose ends the posterior hardly
falls are at one mode; Laplace's evidence compares the modes.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian import coordinate_gaussian as cg
from pymc_skewgp._gaussian.gaussian_sum import MOST, are_alike, gaussian_sum
from pymc_skewgp._gaussian.tilted import SiteFunction, SlopeFunction
from pymc_skewgp._validation import FloatArray

# Nats below the best mode from which on a mode is left out; modes at most, and numbers to polish
# them with.
_NEGLIGIBLE, _MOST, _MOST_NUMBERS = 12.0, 8, 2**27
# The same of other parts of the posterior.
_FAINT = 9.0
# Prior deviations within which factors are looked at, points there, and of all factors together.
_REACH, _LEAST_POINTS, _POINTS, _SCANNED = 6.0, 97, 1025, 2**19
# Draws of the prior, the best of which are starts, and any of them, which are in smaller modes as
# well; predictors of all draws at most.
_DRAWS, _BEST, _ANY, _PREDICTORS = 256, 8, 16, 2**17
# Coordinates up to which modes are looked for from so many few factors.
_FEW, _SUBSETS = 8, 24
# Steps of a climb, what their length is multiplied by, and the gain in nats at which it ends.
_STEPS, _LONGER, _SHORTER, _GAIN = 40, 1.6, 0.3, 1e-3
_NEWTON_STEPS, _DECREMENT = 30, 1e-6
# Nats that the posterior falls by between two modes, and points between them.
_DIP, _BETWEEN = 0.5, np.linspace(0.0, 1.0, 11)[1:-1]
# Squared distance in the climbs' metric, a bound on all curvatures, up to which it falls by less.
_NEAR = 2.0
# Nats below its peak from which on a factor is not explained; rounds of looking at these.
_UNEXPLAINED, _ROUNDS = 4.0, 6
POWER = 0.4  # of the factors, in a mode's wider Gaussian


class Target(NamedTuple):
    """Factors of predictors of the coordinates.

    Attributes
    ----------
    sites : SiteLogDensity
    slopes : SlopeFunction
        Second derivatives of factors of several predictors are bounds.
    turned : callable, optional
        Of factors of several predictors: for values of these, less their offset, other rows of the
        same span, in which the Hessian is diagonal, and minus its entries.
    first : SiteFunction, optional
        First derivatives alone, where these take less time.
    most : int
        Gaussians kept where the posterior is looked at as a sum of such.
    """

    sites: cg.SiteLogDensity
    slopes: SlopeFunction
    turned: Callable[[FloatArray], tuple[FloatArray, FloatArray]] | None = None
    first: SiteFunction | None = None
    most: int = MOST

    def gradient(self, eta: FloatArray) -> FloatArray:
        """First derivatives at predictors."""
        return self.slopes(eta)[0] if self.first is None else self.first(eta)

    def bends(self, off: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows (n, r) and minus the second derivatives along each, at predictors less offset."""
        if self.turned is not None:
            return self.turned(off)
        return self.sites.factor, -self.slopes((self.sites.offset + off)[None])[1][0]

    @classmethod
    def joined(cls, parts: Sequence["Target"]) -> "Target":
        """The factors of all, in their order."""
        ends = np.cumsum([0, *(part.sites.offset.size for part in parts)])
        own = [(part, slice(*at)) for part, at in zip(parts, pairwise(ends), strict=True)]

        def log_prob(eta: FloatArray) -> FloatArray:
            found = [part.sites.log_prob(eta[..., at]) for part, at in own]
            return np.concatenate(found, axis=-1)

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            found = [part.slopes(eta[..., at]) for part, at in own]
            first, second = (np.concatenate(x, axis=-1) for x in zip(*found, strict=True))
            return first, second

        def first(eta: FloatArray) -> FloatArray:
            return np.concatenate([part.gradient(eta[..., at]) for part, at in own], axis=-1)

        def turned(off: FloatArray) -> tuple[FloatArray, FloatArray]:
            rows, bends = zip(*(part.bends(off[at]) for part, at in own), strict=True)
            return np.vstack(rows), np.concatenate(bends)

        offset = np.concatenate([part.sites.offset for part in parts])
        factor = np.vstack([part.sites.factor for part in parts])
        several = any(part.turned for part in parts)
        density = cg.SiteLogDensity(log_prob, offset, factor)
        most = min(part.most for part in parts)
        return cls(density, slopes, turned if several else None, first, most)


class Mode(NamedTuple):
    """A mode of the coordinates.

    Attributes
    ----------
    gaussian, wide : CoordinateGaussian
        Laplace's approximation, and one with a part of the factors' curvature.
    tau, nu : ndarray, shape (n,)
        Sites of the predictors less their offset about the mode, of curvatures that are positive.
    log_evidence : float
        Laplace's.
    is_peak : bool
        Whether the posterior is highest there; else it is a part of a sum of Gaussians.
    """

    gaussian: cg.CoordinateGaussian
    wide: cg.CoordinateGaussian
    tau: FloatArray
    nu: FloatArray
    log_evidence: float
    is_peak: bool = True


def find_modes(target: Target, mean: FloatArray) -> list[Mode]:
    """Modes that are not negligible beside the best of them, then other parts of the posterior.

    None where all climbs end at one, and there are no such parts. One of these starts at `mean`,
    that of EP's Gaussian.
    """
    with np.errstate(all="ignore"):
        return _Search(target).modes(mean)


class _Search:
    def __init__(self, target: Target) -> None:
        sites = target.sites
        self._target, self._sites = target, sites
        sd = np.sqrt(np.einsum("ij,ij->i", sites.factor, sites.factor))
        points = int(np.clip(_SCANNED // max(sd.size, 1), _LEAST_POINTS, _POINTS))
        at = _REACH * np.linspace(-1.0, 1.0, points)[:, None] * sd
        logs = sites.log_prob(sites.offset + at)
        logs[np.isnan(logs)] = -np.inf
        second = target.slopes(sites.offset + at)[1]
        self._bound = np.where(np.isfinite(second), -second, 0.0).max(axis=0, initial=0.0)
        self._largest, self._peaks = logs.max(axis=0), _peaks(at, logs)
        self._at, self._logs = at, logs
        self._metric = self._uphill = self._gaussian(self._bound, np.zeros(sd.size))

    def modes(self, mean: FloatArray) -> list[Mode]:
        self._uphill = self._curved(mean)
        starts = [mean[:, None], np.zeros((mean.size, 1)), self._prior_draws()]
        starts += [self._towards(peak, self._bound)[:, None] for peak in self._peaks]
        starts.append(self._of_few())
        parts = self._parts()
        starts += [part.gaussian.mean[:, None] for part in parts]
        found = self._distinct(np.zeros((mean.size, 0)), np.hstack(starts))
        for _ in range(_ROUNDS):
            rest = self._unexplained(found)
            more = self._distinct(found, rest) if rest.shape[1] else found
            if more.shape[1] == found.shape[1]:
                break
            found = more
        if found.shape[1] == 1 and not parts:
            return []
        modes = self._polished(found)
        parts = self._apart(parts, modes)
        alone = len(modes) == 1 and self._alike(modes[0].gaussian.mean[:, None], mean)
        return [] if alone and not parts else modes + parts

    def _value(self, c: FloatArray) -> FloatArray:
        """Log posterior of columns, but for a constant."""
        value = self._sites(c) - 0.5 * np.einsum("ij,ij->j", c, c)
        value[np.isnan(value)] = -np.inf
        return value

    def _gradient(self, c: FloatArray) -> FloatArray:
        """Of columns."""
        first = self._target.gradient(self._sites.offset + (self._sites.factor @ c).T)
        return np.asarray(self._sites.factor.T @ first.T - c)

    def _gaussian(self, tau: FloatArray, nu: FloatArray) -> cg.CoordinateGaussian:
        return cg.coordinate_gaussian(self._sites.factor, tau, nu)

    def _curved(self, c: FloatArray) -> cg.CoordinateGaussian:
        """About one c, of the factors' positive curvatures there."""
        rows, bends = self._target.bends(self._sites.factor @ c)
        tau = np.where(np.isfinite(bends), np.maximum(bends, 0.0), 0.0)
        return cg.coordinate_gaussian(rows, tau, np.zeros(tau.size))

    def _towards(self, predictors: FloatArray, tau: FloatArray) -> FloatArray:
        """Mean of the coordinates given values of the predictors less their offset."""
        return self._gaussian(tau, tau * predictors).mean

    def _prior_draws(self) -> FloatArray:
        """The likeliest of some, and the first of them, always the same."""
        n, r = self._sites.factor.shape
        count = min(_DRAWS, max(2 * _BEST, _PREDICTORS // max(n, r)))
        draws = np.random.default_rng(0).standard_normal((r, count))
        logs = self._sites(draws)
        logs[np.isnan(logs)] = -np.inf
        return draws[:, np.union1d(np.argsort(-logs)[:_BEST], np.arange(min(_ANY, count)))]

    def _of_few(self) -> FloatArray:
        """Towards as many factors as there are coordinates, always the same ones (RANSAC)."""
        n, r = self._sites.factor.shape
        if r > min(n, _FEW):
            return np.zeros((r, 0))
        rng = np.random.default_rng(0)
        found = np.empty((r, _SUBSETS))
        for i in range(_SUBSETS):
            own = rng.choice(n, r, replace=False)
            tau = self._bound[own]
            gaussian = cg.coordinate_gaussian(
                self._sites.factor[own], tau, tau * self._peaks[0][own]
            )
            found[:, i] = gaussian.mean
        return found

    def _unexplained(self, modes: FloatArray) -> FloatArray:
        """Starts from the factors that each mode leaves unexplained, and from those that all do."""
        eta = self._sites.offset + (self._sites.factor @ modes).T
        left = self._sites.log_prob(eta) < self._largest - _UNEXPLAINED
        sets = {own.tobytes(): own for own in [*left[:_MOST], left.all(axis=0)] if own.any()}
        starts = [self._towards(self._peaks[0], self._bound * own) for own in sets.values()]
        return np.array(starts).reshape(-1, modes.shape[0]).T

    def _climbed(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Columns higher up, and their values; without those that are impossible."""
        value = self._value(c)
        c, value = c[:, np.isfinite(value)], value[np.isfinite(value)]
        scale, left = np.ones(value.size), np.arange(value.size)
        for _ in range(_STEPS):
            half = self._uphill.spread.T @ self._gradient(c[:, left])
            moving = np.einsum("ij,ij->j", half, half) >= _GAIN
            left, half = left[moving], half[:, moving]
            if not left.size:
                break
            there = c[:, left] + scale[left] * (self._uphill.spread @ half)
            new = self._value(there)
            better = new > value[left]
            c[:, left[better]], value[left[better]] = there[:, better], new[better]
            scale[left] *= np.where(better, _LONGER, _SHORTER)
        return c, value

    def _distinct(self, known: FloatArray, starts: FloatArray) -> FloatArray:
        """Columns `known`, and the ends of climbs from others that are apart from these."""
        found, values = self._climbed(starts)
        # The highest first: all that climbs from a saddle would be alike to it.
        for i in np.argsort(-values):
            if not self._alike(known, found[:, i]):
                known = np.column_stack([known, found[:, i]])
        return known

    def _alike(self, known: FloatArray, c: FloatArray) -> bool:
        """Whether the posterior hardly falls between c and one of the others."""
        if not known.shape[1]:
            return False
        apart = c[:, None] - known
        if (np.square(self._metric.white(apart)).sum(axis=0) < _NEAR).any():
            return True
        steps = apart[:, :, None] * _BETWEEN
        between = self._value((known[:, :, None] + steps).reshape(c.size, -1))
        ends = np.minimum(self._value(known), self._value(c[:, None]))
        return bool((between.reshape(-1, _BETWEEN.size).min(axis=1) > ends - _DIP).any())

    def _polished(self, found: FloatArray) -> list[Mode]:
        ends = np.zeros((found.shape[0], 0))
        modes: list[Mode] = []
        for i in np.argsort(-self._value(found))[: self._most(_MOST)]:
            mode = self._mode(found[:, i])
            if mode is None or self._alike(ends, mode.gaussian.mean):
                continue
            ends = np.column_stack([ends, mode.gaussian.mean])
            modes.append(mode)
        least = max((mode.log_evidence for mode in modes), default=0.0) - _NEGLIGIBLE
        return [mode for mode in modes if mode.log_evidence > least]

    def _most(self, wanted: int) -> int:
        """Gaussians at most."""
        n, r = self._sites.factor.shape
        return int(np.clip(_MOST_NUMBERS // (n * r * r), 2, wanted))

    def _parts(self) -> list[Mode]:
        """Of a sum of Gaussians, where factors are of one predictor each."""
        if self._target.turned is not None:
            return []
        known = self._sites.factor, self._at, self._logs, self._bound
        found = gaussian_sum(*known, self._target.most)
        if found is None:
            return []
        parts = []
        for tau, nu, _, _, evidence in zip(*found, strict=True):
            gaussian = self._gaussian(tau, nu)
            wide = cg.CoordinateGaussian(gaussian.mean, self._gaussian(POWER * tau, nu).chol)
            parts.append(Mode(gaussian, wide, tau, nu, float(evidence), False))
        return parts

    def _apart(self, parts: list[Mode], modes: list[Mode]) -> list[Mode]:
        """Parts that are like none of the modes."""
        known = [self._predictors(mode) for mode in modes]
        least = max((part.log_evidence for part in parts), default=0.0) - _FAINT
        kept = [
            part
            for part in parts
            if part.log_evidence > least
            and not any(are_alike(*self._predictors(part), *mode).any() for mode in known)
        ]
        return kept[: self._most(len(kept))]

    def _predictors(self, mode: Mode) -> tuple[FloatArray, FloatArray]:
        """Their means and deviations."""
        factor = self._sites.factor
        return factor @ mode.gaussian.mean, np.linalg.norm(factor @ mode.gaussian.spread, axis=1)

    def _mode(self, c: FloatArray) -> Mode | None:
        """By Newton's method; None at a saddle."""
        c = c[:, None]
        value = self._value(c)
        zero = np.zeros(self._sites.offset.size)
        for _ in range(_NEWTON_STEPS):
            rows, bends = self._target.bends(self._sites.factor @ c[:, 0])
            half = cg.coordinate_gaussian(rows, np.maximum(bends, 0.0), zero).spread
            white = half.T @ self._gradient(c)
            step, decrement = half @ white, float(white[:, 0] @ white[:, 0])
            if decrement < _DECREMENT:
                break
            new = self._value(c + step)
            while not new > value and decrement > _DECREMENT:
                step, decrement = _SHORTER * step, _SHORTER * decrement
                new = self._value(c + step)
            if not new > value:
                break
            c, value = c + step, new
        return self._laplace(c, float(value[0]))

    def _laplace(self, c: FloatArray, value: float) -> Mode | None:
        factor, mean = self._sites.factor, c[:, 0]
        rows, tau = self._target.bends(factor @ mean)
        precision = rows.T @ (tau[:, None] * rows)
        precision[np.diag_indices_from(precision)] += 1.0
        try:
            gaussian = cg.CoordinateGaussian(mean, np.linalg.cholesky(precision))
        except np.linalg.LinAlgError:
            return None
        eta = factor @ mean
        kept = np.maximum(tau, 0.0)
        first = self._target.gradient((self._sites.offset + eta)[None])[0]
        wide = cg.coordinate_gaussian(rows, POWER * kept, 0.0 * kept)
        wide = cg.CoordinateGaussian(mean, wide.chol)
        evidence = value - float(np.log(gaussian.chol.diagonal()).sum())
        return Mode(gaussian, wide, kept, first + kept * eta, evidence)


def _peaks(at: FloatArray, logs: FloatArray) -> list[FloatArray]:
    """Of each factor the highest point within half of the reach, its first peak, and its last."""
    column = np.arange(at.shape[1])
    middle = slice(at.shape[0] // 4, -(at.shape[0] // 4))
    highest = at[middle][logs[middle].argmax(axis=0), column]
    inner = (logs[1:-1] > logs[:-2]) & (logs[1:-1] >= logs[2:])
    any_peak = inner.any(axis=0)
    first = np.where(any_peak, at[1 + inner.argmax(axis=0), column], highest)
    last = np.where(any_peak, at[-2 - inner[::-1].argmax(axis=0), column], highest)
    several = (first != last).any()
    return [highest, first, last] if several else [highest]
