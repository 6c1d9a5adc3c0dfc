r"""A posterior under factors that are not log-concave, as a sum of Gaussians.

Factors are taken in one after the other. Of each Gaussian so far a factor with several peaks makes
several, one about each peak of the product of the two, and one of what these leave; only the
likeliest are kept. (Alspach & Sorenson 1972, Nonlinear Bayesian estimation using Gaussian sum
approximations, doi:10.1109/TAC.1972.1100034.) Values that are strongly correlated come after each
other, so that a Gaussian that ascribes all of them to other peaks needs no step that is unlikely.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from pymc_skewgp._gaussian.compiled.row_sites import redraw_kinds
from pymc_skewgp._gaussian.coordinate_gaussian import SiteLogDensity, coordinate_gaussian
from pymc_skewgp._gaussian.weights import (
    IntArray,
    log_sum_exp,
    scaled_weights,
    systematic_resample,
)
from pymc_skewgp._validation import FloatArray

# Gaussians kept at most, and at one of many hyperparameters; numbers that their covariances
# and their products with factors may take in all steps together.
MOST, FEW = 128, 16
_COVARIANCES, _PRODUCTS = 2**27, 2**24
# Peaks of a factor, share of what they leave from which on it has a Gaussian of its own, and its
# deviation in steps of the points.
_PEAKS, _LEFT, _STEPS = 3, 0.03, 2.0
# Nats below the likeliest, from which on a Gaussian is left out; below the largest value of a
# product, from which on a point is; points of which the largest value is looked at.
_NEGLIGIBLE, _FAR, _CELL = 12.0, 20.0, 8
# Second difference of a concave log density, as it is computed, at most.
_ROUND_OFF = 1e-9
# Distance of means in deviations, and of log deviations, up to which Gaussians are alike.
_APART, _WIDER = 0.5, 0.4


class Parts(NamedTuple):
    """Sites exp(nu e - tau e^2 / 2) of all predictors e for each Gaussian, the likeliest first.

    Attributes
    ----------
    tau, nu : ndarray, shape (k, n)
    mean, sd : ndarray, shape (k, n)
        Of predictors.
    log_evidence : ndarray, shape (k,)
        Of each.
    """

    tau: FloatArray
    nu: FloatArray
    mean: FloatArray
    sd: FloatArray
    log_evidence: FloatArray


def gaussian_sum(
    factor: FloatArray, at: FloatArray, logs: FloatArray, bound: FloatArray, most: int = MOST
) -> Parts | None:
    """The sum, for predictors e = F c of c ~ N(0, I).

    Parameters
    ----------
    factor : ndarray, shape (n, r)
        F.
    at, logs : ndarray, shape (points, n)
        Evenly spaced values of each predictor, and logs of its factor there.
    bound : ndarray, shape (n,)
        Of the curvature of the factors.
    most : int
        Gaussians kept.

    Returns
    -------
    Parts or None
        None where all factors are log-concave, or where that would take too many numbers.
    """
    n, r = factor.shape
    not_concave = (np.diff(logs, 2, axis=0) > _ROUND_OFF).any(axis=0)
    size = min(most, _COVARIANCES // (n * r * r), _PRODUCTS // logs.size)
    if size < 2 or not not_concave.any():
        return None
    tau, nu, total = np.zeros((1, n)), np.zeros((1, n)), np.zeros(1)
    mean, cov = np.zeros((1, r)), np.eye(r)[None]
    for i in _order(factor, not_concave, bound):
        gain = cov @ factor[i]
        variance, centre = gain @ factor[i], mean @ factor[i]
        own, site, pull, more = _split(at[:, i], logs[:, i], centre, variance)
        if not own.size:
            return None
        more += total[own]
        kept = np.argsort(-more)[:size]
        kept = kept[more[kept] > more[kept[0]] - _NEGLIGIBLE]
        own, site, pull, total = own[kept], site[kept], pull[kept], more[kept]
        tau, nu, gain = tau[own], nu[own], gain[own]
        tau[:, i], nu[:, i] = site, pull
        scale = 1.0 / (1.0 + variance[own] * site)
        mean = mean[own] + gain * ((pull - site * centre[own]) * scale)[:, None]
        cov = cov[own]
        cov -= (gain * (site * scale)[:, None])[:, :, None] * gain[:, None]
    variance = np.array([np.einsum("ij,ij->i", factor @ own, factor) for own in cov])
    found = Parts(tau, nu, mean @ factor.T, np.sqrt(np.maximum(variance, 0.0)), total)
    return Parts(*(x[_distinct(found)] for x in found))


def _order(factor: FloatArray, not_concave: NDArray[np.bool_], bound: FloatArray) -> list[int]:
    """Factors that are log-concave, then always the one of which most is known."""
    n, r = factor.shape
    prior = np.maximum(np.einsum("ij,ij->i", factor, factor), 1e-300)
    variance, cov = prior.copy(), np.eye(r)
    order: list[int] = []
    left = np.ones(n, dtype=bool)
    while left.any():
        first = left & ~not_concave if (left & ~not_concave).any() else left
        i = int(np.where(first, variance / prior, np.inf).argmin())
        gain = cov @ factor[i]
        step = gain * np.sqrt(bound[i] / (1.0 + variance[i] * bound[i]))
        cov -= step[:, None] * step
        variance = np.maximum(variance - (factor @ step) ** 2, 0.0)
        order.append(i)
        left[i] = False
    return order


def _split(
    at: FloatArray, logs: FloatArray, centre: FloatArray, variance: FloatArray
) -> tuple[NDArray[np.intp], FloatArray, FloatArray, FloatArray]:
    """Of one factor times each of the Gaussians: whose part, its site, and the log of its mass."""
    step = at[1] - at[0]
    variance = np.maximum(variance, 1e-12 * step**2)
    near = _near(at, logs, centre, variance)
    at, logs = at[near], logs[near]
    tilted = logs - 0.5 * (at - centre[:, None]) ** 2 / variance[:, None]
    inner = tilted[:, 1:-1]
    peak = (inner > tilted[:, :-2]) & (inner >= tilted[:, 2:])
    which = np.argsort(np.where(peak, -inner, np.inf), axis=1)[:, :_PEAKS]
    own, column = np.nonzero(np.take_along_axis(peak, which, axis=1))
    k = which[own, column]
    below, top, above = (tilted[own, k + shift] for shift in range(3))
    # The top of a parabola: a narrow peak is between the points.
    with np.errstate(invalid="ignore"):
        bend, slope = 2.0 * top - below - above, above - below
    # Beside a place where the factor is 0 there is none.
    smooth = np.isfinite(bend) & (bend > 0.0)
    bend, slope = np.where(smooth, bend, step**2 / variance[own]), np.where(smooth, slope, 0.0)
    height = top + 0.125 * slope**2 / bend
    place = at[own, k + 1] + 0.5 * slope / bend * step
    site = np.maximum(bend / step**2 - 1.0 / variance[own], 0.0)
    precision = site + 1.0 / variance[own]
    mass = height - 0.5 * np.log(precision * variance[own])
    # What is left of the product.
    largest = tilted.max(axis=1)
    rest = np.exp(tilted - largest[:, None])
    whole = rest.sum(axis=1)
    bumps = np.exp(
        (height - largest[own])[:, None]
        - 0.5 * precision[:, None] * (at[own] - place[:, None]) ** 2
    )
    for first in range(_PEAKS):  # no Gaussian twice
        some = np.flatnonzero(np.arange(own.size) - np.searchsorted(own, own) == first)
        rest[own[some]] -= bumps[some]
    rest = np.maximum(rest, 0.0)
    share = rest.sum(axis=1)
    others = np.flatnonzero((share > _LEFT * whole) & (variance > (_STEPS * step) ** 2))
    rest = rest[others] / share[others, None]
    mean = (rest * at[others]).sum(axis=1)
    spread = np.maximum((rest * at[others] ** 2).sum(axis=1) - mean**2, step**2)
    other = np.maximum(1.0 / spread - 1.0 / variance[others], 0.0)
    other_mass = largest[others] + np.log(share[others] * step)
    other_mass -= 0.5 * np.log(2.0 * np.pi * variance[others])
    own, site, precision = (
        np.concatenate(x)
        for x in ((own, others), (site, other), (precision, other + 1.0 / variance[others]))
    )
    pull = precision * np.concatenate([place, mean]) - centre[own] / variance[own]
    return own, site, pull, np.concatenate([mass, other_mass])


def _near(
    at: FloatArray, logs: FloatArray, centre: FloatArray, variance: FloatArray
) -> NDArray[np.intp]:
    """Points about which the products may be within `_FAR` nats of their largest, (k, points)."""
    n = at.size - at.size % _CELL
    highest = logs[:n].reshape(-1, _CELL).max(axis=1)
    off = np.abs(at[:n].reshape(-1, _CELL).mean(axis=1) - centre[:, None])
    half, twice = 0.5 * _CELL * (at[1] - at[0]), 2.0 * variance[:, None]
    least = (highest - (off + half) ** 2 / twice).max(axis=1, keepdims=True)
    met = highest - np.maximum(off - half, 0.0) ** 2 / twice > least - _FAR
    first = np.maximum(met.argmax(axis=1) - 1, 0) * _CELL
    stop = (met.shape[1] - met[:, ::-1].argmax(axis=1) + 1) * _CELL
    size = min(int((stop - first).max()), at.size)
    return np.minimum(first, at.size - size)[:, None] + np.arange(size)


def are_alike(
    mean: FloatArray, sd: FloatArray, other_mean: FloatArray, other_sd: FloatArray
) -> NDArray[np.bool_]:
    """Whether one Gaussian's predictors are near to those of each of some others, shape (k, n)."""
    with np.errstate(all="ignore"):
        off = np.abs(mean - other_mean) / np.minimum(sd, other_sd)
        return ((off < _APART) & (np.abs(np.log(sd / other_sd)) < _WIDER)).all(axis=-1)


def _distinct(found: Parts) -> list[int]:
    chosen: list[int] = []
    for i in np.argsort(-found.log_evidence):
        others = found.mean[chosen], found.sd[chosen]
        if not are_alike(found.mean[i], found.sd[i], *others).any():
            chosen.append(int(i))
    return chosen


# The same with Gaussians that are drawn, where there are more of them than can be kept.
#
# Each factor is nearly a sum of Gaussians of its own, whatever the others are:
#
# .. math:: p(y_i \mid e) \approx g_i(e) = \sum_k \exp\{a_{ik} - \tau_{ik} (e - m_{ik})^2 / 2\}
#
# Which of them each factor is, z, makes a Gaussian of the coordinates. A mixture Kalman filter
# (Chen & Liu 2000, doi:10.1111/1467-9868.00246) takes in one factor after the other; of the z that
# follow the likeliest are kept and others drawn, so that sums stay unbiased (Fearnhead & Clifford
# 2003, doi:10.1111/1467-9868.00421). Gibbs steps may move z at factors nearby (Gilks & Berzuini
# 2001, doi:10.1111/1467-9868.00280). Under many z that are alike log evidences scatter by .2 with
# them and by 2.9 without; under two kinds of values by .3 and by .01, since what is kept for its
# weight is moved away. Draws given z weigh :math:`\prod_i p(y_i \mid e_i) / g_i(e_i)`.

# Points of a scan within the prior's reach, and those farther out by this factor each; peaks of a
# factor, rounds of looking for each between points, and points of a round.
_REACH, _SCAN, _OUT = 8.0, np.linspace(-6.0, 6.0, 1025), 6.0 * 1.1 ** np.arange(1, 49)
_REFINED, _BETWEEN = 16, np.linspace(0.0, 1.0, 9)
# Distances from a peak at which a factor is looked at, of the largest, and how much wider each
# Gaussian about it is than the one before; the widest, in deviations of the prior. How near those
# of neighbouring points are, of what is one Gaussian there, and how far from each other.
_DISTANCES, _WIDER_EACH, _WIDEST = 2.0 ** (-0.5 * np.arange(48)), 2.0, 16.0
_AS_NEAR, _AS_FAR = 0.01, 0.03
# Ratio of a factor and its sum up to which this will do, rounds of fits in which what is off counts
# up to so many times more, nats below its peak down to which it is looked at, those by which a
# relative error counts less, and share of a sum that a Gaussian has somewhere at least; nats that a
# curvature is taken from.
_RATIO, _FITS, _COUNTS_MORE = 2.0, 8, 20.0
_DEEP, _LESS, _SEEN, _BENT = 60.0, 8.0, 0.01, 1e-3
# Gaussians at most, operations of one filter, and nearby factors whose Gaussians are drawn anew.
_DRAWN, _OPERATIONS, _NEARBY = 256, 2**31, 8
_FEWEST, _FOR_A_DRAW = 32, 4
_PILOTS = 8  # filters that say whether Gaussians are drawn anew
_TINY = 1e-300
_NOWHERE = -1e300  # log height of a Gaussian that is none


class SumDraws(NamedTuple):
    """Draws of coordinates.

    Attributes
    ----------
    coordinates : ndarray, shape (r, N)
    log_weights : ndarray, shape (N,)
        Whose mean weight is the evidence.
    """

    coordinates: FloatArray
    log_weights: FloatArray


class DrawnSum:
    """Factors of one predictor each, as sums of Gaussians, and draws of coordinates under them.

    Parameters
    ----------
    sites : SiteLogDensity

    Attributes
    ----------
    most : int
        Gaussians of a filter at most.
    """

    def __init__(self, sites: SiteLogDensity) -> None:
        self._sites = sites
        n, r = sites.factor.shape
        self.most = min(_DRAWN, _OPERATIONS // max(_NEARBY * n * r * r, 1))
        self._sd = np.linalg.norm(sites.factor, axis=1)

    @cached_property
    def sums(self) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Log heights, means and precisions, shape (n, k) each; None where they are too far off."""
        if self.most < _FEWEST:
            return None
        with np.errstate(all="ignore"):
            found = _sums_of_factors(self._sites.off, self._sd)
        if found is None:
            return None
        size = max(own[0].size for own in found)
        height, mean, precision = np.full((3, len(found), size), _NOWHERE)
        mean[:], precision[:] = 0.0, 1.0
        for i, (own_height, own_mean, width) in enumerate(found):
            k = slice(own_height.size)
            height[i, k], mean[i, k], precision[i, k] = own_height, own_mean, width**-2.0
        return height, mean, precision

    @cached_property
    def _order(self) -> list[int]:
        assert self.sums is not None
        height, _, precision = self.sums
        known = height > _NOWHERE
        bound = np.where(known, precision, 0.0).max(axis=1)
        return _order(self._sites.factor, known.sum(axis=1) > 1, bound)

    @cached_property
    def _moves(self) -> bool:
        """Whether Gaussians are drawn anew: evidences of pilot filters are then more alike."""
        spread = []
        for moves in (False, True):
            rng = np.random.default_rng(0)
            pilots = [self._filtered(self.most, rng, moves)[1] for _ in range(_PILOTS)]
            spread.append(np.std([log_sum_exp(logs, 0) for logs in pilots]))
        return bool(spread[1] < spread[0])

    def draw(self, n_draws: int, rng: np.random.Generator) -> SumDraws:
        """Of one filter, whose evidence is unbiased."""
        assert self.sums is not None
        _, centre, precision = self.sums
        most = min(self.most, max(_FEWEST, _FOR_A_DRAW * n_draws))
        kind, log_weights, mean = self._filtered(most, rng, self._moves)
        log_evidence = log_sum_exp(log_weights, 0)
        # Twice as many as their weights ask for of what second moments hang on.
        weights = np.exp(log_weights - log_evidence)
        off = (mean - weights @ mean) ** 2
        off = (off / np.maximum(weights @ off, _TINY)).mean(axis=1)
        shares = 0.5 * weights * (1.0 + off / (weights @ off))
        shares /= shares.sum()
        chosen = systematic_resample(np.log(shares), n_draws, rng)
        factor, rows = self._sites.factor, np.arange(kind.shape[1])
        found = np.empty((factor.shape[1], n_draws))
        for j in np.unique(chosen):
            own = np.flatnonzero(chosen == j)
            tau = precision[rows, kind[j]]
            gaussian = coordinate_gaussian(factor, tau, tau * centre[rows, kind[j]])
            white = rng.standard_normal((found.shape[0], own.size))
            found[:, own] = gaussian.of_white(white)
        log_ratio = (log_weights - np.log(shares))[chosen]
        return SumDraws(found, log_ratio + self._sites(found) - self._log_sums(found))

    def _log_sums(self, coordinates: FloatArray) -> FloatArray:
        assert self.sums is not None
        height, centre, precision = self.sums
        total = np.zeros(coordinates.shape[1])
        for i, row in enumerate(self._sites.factor):
            off = (row @ coordinates)[:, None] - centre[i]
            total += log_sum_exp(height[i] - 0.5 * precision[i] * off**2, 1)
        return total

    def _filtered(
        self, most: int, rng: np.random.Generator, moves: bool
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Gaussians of all factors, as their numbers, log weights, and means of the predictors."""
        assert self.sums is not None
        height, centre, precision = self.sums
        n, size = height.shape
        factor = self._sites.factor
        kind, logs = np.zeros((1, n), dtype=np.intp), np.zeros(1)
        mean, cov = np.zeros((1, factor.shape[1])), np.eye(factor.shape[1])[None]
        for step, i in enumerate(self._order):
            gain = cov @ factor[i]
            wide = 1.0 + (gain @ factor[i])[:, None] * precision[i]
            off = (mean @ factor[i])[:, None] - centre[i]
            more = logs[:, None] + height[i] - 0.5 * (np.log(wide) + precision[i] * off**2 / wide)
            kept, logs = _drawn(more.ravel(), most, rng)
            own, k = np.divmod(kept, size)
            tau, gain = precision[i, k], gain[own]
            scale = 1.0 / wide[own, k]
            mean = mean[own] - gain * (tau * scale * off[own, k])[:, None]
            cov = cov[own]
            cov -= (gain * (tau * scale)[:, None])[:, :, None] * gain[:, None]
            kind = kind[own]
            kind[:, i] = k
            if moves and more.size > most:
                taken = np.array(self._order[: step + 1])
                correlation = np.abs(factor[taken] @ factor[i]) / self._sd[taken]
                near = taken[np.argsort(-correlation, kind="stable")[:_NEARBY]]
                uniform = rng.random((logs.size, near.size))
                sums = height, centre, precision
                redraw_kinds(cov, mean, kind, factor, near, sums, uniform)
        return kind, logs, mean @ factor.T


def _drawn(
    log_weights: FloatArray, most: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Of many weights so many, and what they are then: those above a level, and others drawn."""
    possible = np.flatnonzero(log_weights > 0.5 * _NOWHERE)
    logs = log_weights[possible]
    if logs.size <= most:
        return possible, logs
    weights = scaled_weights(logs)
    largest = np.sort(weights)[::-1]
    left = np.cumsum(largest[::-1])[::-1][:most] / np.arange(most, 0, -1)
    level = left[np.argmax(largest[:most] <= left)]
    sure = weights > level
    others = np.flatnonzero(~sure)
    ticks = np.floor(np.cumsum(weights[others]) / level + rng.random())
    others = others[np.diff(ticks, prepend=0.0) > 0.0]
    sure = np.flatnonzero(sure)
    kept = np.concatenate([sure, others])
    found = np.concatenate([logs[sure], np.full(others.size, np.log(level) + logs.max())])
    return possible[kept], found


def _sums_of_factors(
    log_prob: Callable[[FloatArray], FloatArray], sd: FloatArray
) -> list[tuple[FloatArray, FloatArray, FloatArray]] | None:
    """Log heights, means and deviations of each; None where one is not such a sum."""
    scan = np.concatenate([-_OUT[::-1], _SCAN, _OUT])[:, None] * sd
    logs = log_prob(scan)
    logs[np.isnan(logs)] = -np.inf
    column = np.arange(sd.size)
    inner = logs[1:-1]
    peak = (inner > logs[:-2]) & (inner >= logs[2:])
    which = np.argsort(np.where(peak, -inner, np.inf), axis=0)[:_PEAKS]
    is_peak, which = peak[which, column], which + 1
    low, high = scan[which - 1, column], scan[which + 1, column]
    for _ in range(_REFINED):
        at = low + (high - low) * _BETWEEN[:, None, None]
        values = log_prob(at.reshape(-1, sd.size)).reshape(at.shape)
        best = values.argmax(axis=0)[None]
        low = np.take_along_axis(at, np.maximum(best - 1, 0), axis=0)[0]
        high = np.take_along_axis(at, np.minimum(best + 1, _BETWEEN.size - 1), axis=0)[0]
    place = 0.5 * (low + high)
    away = _WIDEST * sd * np.concatenate([-_DISTANCES, _DISTANCES[::-1]])[:, None, None]
    at = (place + away).reshape(-1, sd.size)
    near = log_prob(at).reshape(-1, *place.shape)
    found = []
    for i in range(sd.size):
        own = is_peak[:, i]
        if not own.any():
            return None
        points = np.concatenate([at.reshape(-1, *place.shape)[:, own, i].ravel(), scan[::16, i]])
        values = np.concatenate([near[:, own, i].ravel(), logs[::16, i]])
        height = near[:, own, i].max(axis=0)
        # By the curvature as near as digits allow.
        lower = 0.5 * (near + near[::-1])[: _DISTANCES.size, own, i] - height
        some = np.argmax(lower[::-1] < -_BENT, axis=0)
        lower = np.take_along_axis(lower[::-1], some[None], axis=0)[0]
        step = _WIDEST * sd[i] * _DISTANCES[::-1][some]
        width = step / np.sqrt(np.maximum(-2.0 * lower, _BENT))
        fitted = _sum_of_one(points, values, place[own, i], width, sd[i])
        if fitted is None:
            return None
        found.append(fitted)
    return found


def _sum_of_one(
    at: FloatArray, logs: FloatArray, place: FloatArray, width: FloatArray, sd: float
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Of positive heights, least squares of the sum over the factor."""
    seen = (logs > logs.max() - _DEEP) & (np.abs(at) < _REACH * sd + np.abs(place).max())
    at, logs = at[seen], logs[seen]
    known = [_local(at, logs, sd)]
    for own, least in zip(place, width, strict=True):
        steps = int(np.log((_WIDEST * sd + abs(own)) / least) / np.log(_WIDER_EACH)) + 1
        wider = least * _WIDER_EACH ** np.arange(steps + 1)
        known.append((np.full(wider.size, own), wider))
    centres, widths = (np.concatenate(x) for x in zip(*known, strict=True))
    parts = -0.5 * ((at[:, None] - centres) / widths) ** 2 - logs[:, None]
    largest = logs.max()
    design = np.exp(parts + largest)
    matters = np.exp((logs - largest) / _LESS)
    for _ in range(_FITS):
        try:
            heights = nnls(matters[:, None] * design, matters)[0]
        except RuntimeError:
            return None
        share = design * heights
        total = share.sum(axis=1)
        off = np.maximum(total, 1.0 / np.maximum(total, _TINY))
        if off.max() < _RATIO:
            kept = (share / total[:, None]).max(axis=0) > _SEEN
            return np.log(heights[kept]) + largest, centres[kept], widths[kept]
        matters = matters * np.minimum(off, _COUNTS_MORE)
    return None


def _local(at: FloatArray, logs: FloatArray, sd: float) -> tuple[FloatArray, FloatArray]:
    """Means and deviations of Gaussians that the factor is between some of the points."""
    at, first = np.unique(at, return_index=True)
    step, middle = np.diff(at), 0.5 * (at[1:] + at[:-1])
    slope = np.diff(logs[first]) / step
    bend = np.diff(slope) / np.diff(middle)
    slope = slope[1:] + bend * (at[1:-1] - middle[1:])
    possible = (bend < 0.0) & (np.minimum(step[1:], step[:-1]) > 1e-9 * sd)
    width = np.sqrt(np.where(possible, -1.0 / bend, np.nan))
    mean = at[1:-1] + slope * width**2
    change = np.maximum(np.abs(np.diff(np.log(width))), np.abs(np.diff(mean)) / width[1:])
    chosen: list[int] = []
    for i in np.argsort(change)[: np.sum(change < _AS_NEAR)]:
        off = np.abs(np.log(width[i] / width[chosen])), np.abs(mean[i] - mean[chosen]) / width[i]
        if (np.maximum(*off) > _AS_FAR).all():
            chosen.append(int(i))
    return mean[chosen], width[chosen]
