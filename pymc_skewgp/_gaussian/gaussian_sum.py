r"""A posterior under factors that are not log-concave, as a sum of Gaussians.

Factors are taken in one after the other. Of each Gaussian so far a factor with several peaks makes
several, one about each peak of the product of the two, and one of what these leave; only the
likeliest are kept. (Alspach & Sorenson 1972, Nonlinear Bayesian estimation using Gaussian sum
approximations, doi:10.1109/TAC.1972.1100034.) Values that are strongly correlated come after each
other, so that a Gaussian that ascribes all of them to other peaks needs no step that is unlikely.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._validation import FloatArray

# Gaussians kept at most, and numbers that their covariances and their products with factors may
# take in all steps together.
_MOST, _COVARIANCES, _PRODUCTS = 128, 2**27, 2**24
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
    factor: FloatArray, at: FloatArray, logs: FloatArray, bound: FloatArray
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

    Returns
    -------
    Parts or None
        None where all factors are log-concave, or where that would take too many numbers.
    """
    n, r = factor.shape
    not_concave = (np.diff(logs, 2, axis=0) > _ROUND_OFF).any(axis=0)
    size = min(_MOST, _COVARIANCES // (n * r * r), _PRODUCTS // logs.size)
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
