"""Draws of f, with the evidence, at thousands of hyperparameters of one model.

The first few go through all of the sampler's policy. Where EP's Gaussian alone gave nearly equal
weights there, the others take a few draws each, many of them side by side: one alone would take
most of its time in Python. The rule does not look at the draws that it decides on. A run with few
effective draws is made again by all of the policy, as everywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.policy import DEFAULT
from pymc_skewgp._gaussian.proposals.side_by_side import draw_side_by_side, twist_dense
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal
from pymc_skewgp._gaussian.weights import IntArray, systematic_resample
from pymc_skewgp._posterior.draws_with_evidence import (
    Case,
    DrawsWithEvidence,
    draws_by_sampler,
    draws_with_evidence,
)
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

# Cases that decide for all: they should not be neighbours.
N_PILOTS = 8


@dataclass(frozen=True)
class GroupSettings:
    """When draws are made side by side, and how many.

    Attributes
    ----------
    n_pilots : int
        Cases that decide.
    size : int
        Cases in a group.
    rows : tuple of int
        Fewest and most rows: beyond them Python is a small part of the time, or EP has another
        form.
    least_ess : float
        Relative ESS that all pilots must have.
    least_draws : int
        Of a case: mirrored pairs, of which an error can be had.
    bias : float
        Relative variance of the weights over their number, which the law of a draw is off by.
    """

    n_pilots: int = N_PILOTS
    size: int = 64
    rows: tuple[int, int] = (3, 400)
    least_ess: float = 0.9
    least_draws: int = 8
    bias: float = 0.002

    def n_draws(self, least_ess: float, n_candidates: int) -> int:
        """An even number."""
        wanted = (1.0 / least_ess - 1.0) / self.bias
        return 2 * int(np.ceil(0.5 * np.clip(wanted, self.least_draws, max(n_candidates, 8))))


_DEFAULT = GroupSettings()

# Applies a function to each of several arguments, here or in other processes.
Mapped = Callable[[Callable[..., Any], Iterator[tuple[Any, ...]]], Iterator[Any]]


class _Known(NamedTuple):
    """What the pilots say: draws of a case, and where EP begins."""

    n_draws: int
    ep: EPResult
    order: IntArray


class _Pilot(NamedTuple):
    found: DrawsWithEvidence
    ep: EPResult | None
    proposal: TwistedProposal | None


def draws_of_many(
    cases: Iterator[Case],
    counts: Sequence[int],
    n_candidates: int,
    rngs: Sequence[np.random.Generator],
    mapped: Mapped,
    settings: GroupSettings = _DEFAULT,
) -> Iterator[DrawsWithEvidence]:
    """Results in the order of the cases, which are of one model.

    Parameters
    ----------
    cases : iterator of Case
    counts : sequence of int
        Draws wanted of each.
    n_candidates : int
        Weighted draws of u behind them, where their weights are not nearly equal.
    rngs : sequence of Generator
        One for each case.
    mapped : callable
        `map`, or the same in several processes.
    """
    arguments = zip(cases, counts, rngs, strict=True)
    pilots = []
    for case, count, rng in islice(arguments, settings.n_pilots):
        pilots.append(_pilot(case, count, n_candidates, rng, settings))
        yield pilots[-1].found
    known = _judged(pilots, n_candidates, settings)
    if known is None:
        yield from mapped(_alone, ((*given, n_candidates) for given in arguments))
        return
    groups = iter(lambda: list(islice(arguments, settings.size)), [])
    for found in mapped(_together, ((group, known, n_candidates) for group in groups)):
        yield from found


def _pilot(
    case: Case, count: int, n_candidates: int, rng: np.random.Generator, settings: GroupSettings
) -> _Pilot:
    fewest, most = settings.rows
    given = case.given
    if case.sites is not None or not fewest <= given.n_rows <= most or given.cov.jitter:
        return _Pilot(_alone(case, count, rng, n_candidates), None, None)
    sampler = RectangleSampler(given.cov, given.lower, given.upper)
    with no_warnings():
        found = draws_by_sampler(sampler, case, count, n_candidates, rng)
    proposal = sampler.first
    assert isinstance(proposal, TwistedProposal)
    return _Pilot(found, sampler.ep, proposal)


def _judged(pilots: list[_Pilot], n_candidates: int, settings: GroupSettings) -> _Known | None:
    """None where the policy has to decide for each case."""
    least_ess = min((pilot.found.relative_ess for pilot in pilots), default=0.0)
    if least_ess < settings.least_ess:
        return None
    for pilot in pilots:
        if pilot.proposal is None or pilot.proposal.first is not None:
            return None
    last = pilots[-1]
    assert last.ep is not None
    assert last.proposal is not None
    return _Known(settings.n_draws(least_ess, n_candidates), last.ep, last.proposal.order)


def _alone(
    case: Case, count: int, rng: np.random.Generator, n_candidates: int
) -> DrawsWithEvidence:
    with no_warnings():  # of single cases: the whole is judged by its weights
        return draws_with_evidence(case, count, n_candidates, rng)


def _together(
    group: list[tuple[Case, int, np.random.Generator]], known: _Known, n_candidates: int
) -> list[DrawsWithEvidence]:
    """A group side by side; what does not go that way alone."""
    fitted: dict[int, TwistedProposal] = {}
    n, ep = known.order.size, known.ep
    with few_blas_threads(n), no_warnings():
        for i, (case, _, _) in enumerate(group):
            given = case.given
            if given.n_rows != n or given.cov.jitter:
                continue
            found = twist_dense(
                given.cov.dense(),
                given.lower,
                given.upper,
                tol=DEFAULT.ep_tolerance,
                order=known.order,
                start=ep,
            )
            if found is not None:
                ep, fitted[i] = found
        drawn: dict[int, DrawsWithEvidence] = {}
        if fitted:
            n_draws = max(known.n_draws, *(group[i][1] for i in fitted))
            n_draws += n_draws % 2
            chosen = list(fitted)
            points = _mirrored([group[i][2] for i in chosen], n, n_draws)
            u, log_weights = draw_side_by_side(list(fitted.values()), points)
            for i, own, quality in zip(chosen, u, _qualities(log_weights), strict=True):
                if quality.relative_ess >= DEFAULT.draws.accept:
                    drawn[i] = _of_case(*group[i], own, quality)
    return [
        drawn[i] if i in drawn else _alone(case, count, rng, n_candidates)
        for i, (case, count, rng) in enumerate(group)
    ]


def _mirrored(rngs: list[np.random.Generator], n: int, n_draws: int) -> FloatArray:
    """Uniform points (n, B, n_draws), the second half mirroring the first."""
    half = np.stack([rng.random((n, n_draws // 2)) for rng in rngs], axis=1)
    np.clip(half, np.finfo(float).tiny, 1.0 - 2.0**-53, out=half)
    return np.concatenate([half, 1.0 - half], axis=-1)


class _Quality(NamedTuple):
    """Weights of a case over their mean, and what follows from them."""

    weights: FloatArray
    log_mean: float
    std_error: float
    relative_ess: float


def _qualities(log_weights: FloatArray) -> Iterator[_Quality]:
    """Of each row, whose second half mirrors the first."""
    largest = log_weights.max(axis=1, keepdims=True)
    weights = np.exp(log_weights - largest)
    mean = weights.mean(axis=1, keepdims=True)
    weights /= mean
    log_mean = (largest + np.log(mean))[:, 0]
    pairs = weights.reshape(len(weights), 2, -1).mean(axis=1)
    errors = pairs.std(axis=1, ddof=1) / np.sqrt(pairs.shape[1])
    relative_ess = 1.0 / np.square(weights).mean(axis=1)
    yield from map(_Quality, weights, log_mean.tolist(), errors.tolist(), relative_ess.tolist())


def _of_case(
    case: Case, count: int, rng: np.random.Generator, u: FloatArray, quality: _Quality
) -> DrawsWithEvidence:
    given, known = case.given, quality
    chosen = systematic_resample(np.log(known.weights), count, rng)
    f = given.draw(u.T, rng, chosen, skip=case.n_pseudo_points)
    log_evidence = given.log_density + known.log_mean - case.log_prob_of_signs
    return DrawsWithEvidence(log_evidence, known.std_error, known.relative_ess, f)
