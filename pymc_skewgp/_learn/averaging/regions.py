"""Draws of chains that were begun in several posterior modes, and the integral of their density.

Chains do not go from mode to mode in proportion to these. But within a region around each mode
their draws are those of the density restricted to it: they share the region's integral, which
bridge sampling knows, and the integral of all is the sum.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.weights import IntArray, log_mean_exp
from pymc_skewgp._learn.averaging.bridge import bridge_estimate
from pymc_skewgp._learn.averaging.student_mixture import StudentMixture
from pymc_skewgp._validation import FloatArray

_PROPOSAL_DF, _WIDEN = 6.0, 1.2
_REPLICATES = 16
# Draws of a region, in the second halves of the chains, below which there is no bridge to it.
_FEWEST = 20


class Chains(NamedTuple):
    """Chains that were begun in one mode.

    Attributes
    ----------
    x : ndarray, shape (chain, draw, D)
    log_target : ndarray, shape (chain, draw)
    effective : float
        Number of effective draws.
    """

    x: FloatArray
    log_target: FloatArray
    effective: float


class RegionDraws(NamedTuple):
    """All draws, with weights.

    Attributes
    ----------
    x : ndarray, shape (N, D)
    log_target, log_weights : ndarray, shape (N,)
        The weights' sum is the integral.
    log_integral, std_error : float
    effective : float
    complete : bool
        Whether every region with a share of the integral has draws, and every one with draws a
        share that is known.
    """

    x: FloatArray
    log_target: FloatArray
    log_weights: FloatArray
    log_integral: float
    std_error: float
    effective: float
    complete: bool


class _Draws(NamedTuple):
    """Draws one below the other, and the region of each."""

    x: FloatArray
    log_target: FloatArray
    region: IntArray


def draws_of_regions(
    groups: list[Chains],
    log_density: Callable[[FloatArray], FloatArray],
    least_share: float,
    rng: np.random.Generator,
) -> RegionDraws:
    """Combine the chains of several modes.

    Parameters
    ----------
    groups : list of Chains
        One for each mode.
    log_density : callable
        Of the target at rows.
    least_share : float
        Of the integral, from which a region without draws counts.
    rng : numpy.random.Generator
    """
    # The first half of every chain makes the proposals that the second is compared with.
    half = groups[0].x.shape[1] // 2
    proposals = [_fitted(_rows(group.x[:, :half])) for group in groups]
    everything, second = _joined(groups, proposals, 0), _joined(groups, proposals, half)
    found = [_of_region(k, proposals, second, groups, log_density, rng) for k in range(len(groups))]
    log_integrals = np.array([value for value, _ in found])
    known = np.isfinite(log_integrals)
    if not known.any():
        raise DoublePrecisionError(
            "the marginal likelihood has no value at any of the points that were drawn around the "
            "chains of NUTS: check the priors and the scale of the inputs."
        )
    total = float(logsumexp(log_integrals))
    shares = np.exp(log_integrals - total)
    counts = np.bincount(everything.region, minlength=len(groups))
    effective = np.array([_effective(k, everything, groups) for k in range(len(groups))])
    present = counts > 0
    with np.errstate(divide="ignore"):
        log_weights = (log_integrals - np.log(counts))[everything.region]
    return RegionDraws(
        everything.x,
        everything.log_target,
        log_weights,
        total,
        float(np.sqrt(((shares * [error for _, error in found]) ** 2).sum())),
        float(1.0 / (shares[present] ** 2 / effective[present]).sum()),
        bool((shares[~present] < least_share).all() and known[present].all()),
    )


def _joined(groups: list[Chains], proposals: list[StudentMixture], start: int) -> _Draws:
    """Draws from `start` on of every chain."""
    x = np.concatenate([_rows(group.x[:, start:]) for group in groups])
    log_target = np.concatenate([group.log_target[:, start:].ravel() for group in groups])
    return _Draws(x, log_target, _regions(x, proposals))


def _regions(x: FloatArray, proposals: list[StudentMixture]) -> IntArray:
    """Which proposal has the largest density."""
    return np.argmax([proposal.log_density(x) for proposal in proposals], axis=0)


def _of_region(
    k: int,
    proposals: list[StudentMixture],
    second: _Draws,
    groups: list[Chains],
    log_density: Callable[[FloatArray], FloatArray],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Log integral over a region, and its standard error; -inf where no new point meets it."""
    proposal, own = proposals[k], second.region == k
    count = -(-len(second.x) // (len(groups) * _REPLICATES))
    new = proposal.draw(uniform_points(proposal.n_uniforms, count, _REPLICATES, rng))
    inside = _regions(new, proposals) == k
    of_new = np.full(len(new), -np.inf)
    of_new[inside] = log_density(new[inside]) - proposal.log_density(new[inside])
    if not np.isfinite(of_new).any():
        return -np.inf, 0.0
    if own.sum() < _FEWEST:
        value = log_mean_exp(of_new)
        return value, float(np.exp(of_new - value).std() / np.sqrt(of_new.size))
    ratio = second.log_target[own] - proposal.log_density(second.x[own])
    effective = min(_effective(k, second, groups), float(ratio.size))
    return bridge_estimate(ratio, of_new, effective)


def _effective(k: int, draws: _Draws, groups: list[Chains]) -> float:
    """Effective draws in a region: of each group as many as it has of its draws there."""
    sizes = [group.log_target.size for group in groups]
    share = len(draws.x) / sum(sizes)
    bounds = np.cumsum([round(size * share) for size in sizes])[:-1]
    inside = [np.mean(part == k) for part in np.split(draws.region, bounds)]
    parts = zip(inside, groups, strict=True)
    return max(float(sum(part * share * group.effective for part, group in parts)), 1.0)


def _rows(x: FloatArray) -> FloatArray:
    return x.reshape(-1, x.shape[2])


def _fitted(x: FloatArray) -> StudentMixture:
    cov = np.atleast_2d(np.cov(x.T)) * _WIDEN * (_PROPOSAL_DF - 2.0) / _PROPOSAL_DF
    chol = np.linalg.cholesky(cov)
    return StudentMixture(np.ones(1), x.mean(axis=0)[None], chol[None], _PROPOSAL_DF)
