"""What is computed at one point of the hyperparameters, here or in another process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.draws_with_evidence import (
    DrawsWithEvidence,
    draws_with_evidence,
    log_prob_of_prior_signs,
)
from pymc_skewgp._posterior.evidence_gradient import evidence_estimate
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._validation import FloatArray


class Task(Protocol):
    """The evidence of some of the data, and draws of the functions that they are about."""

    def run(self, count: int, n_candidates: int, rng: np.random.Generator) -> DrawsWithEvidence:
        """With `count` draws."""
        ...


@dataclass(frozen=True, eq=False)
class VectorTask:
    """Of a conditioned vector: see `draws_with_evidence`.

    Attributes
    ----------
    given : Conditioning
    n_signs : int
    signs : tuple of ndarray
        See `log_prob_of_prior_signs`.
    sites : SitesOfParts or None
    log_constant : float
        Of the evidence, besides.
    """

    given: Conditioning
    n_signs: int
    signs: tuple[FloatArray, FloatArray, FloatArray]
    sites: SitesOfParts | None = None
    log_constant: float = 0.0

    def run(self, count: int, n_candidates: int, rng: np.random.Generator) -> DrawsWithEvidence:
        """See `Task`."""
        found = draws_with_evidence(
            self.given,
            count,
            n_candidates,
            rng,
            n_pseudo_points=self.n_signs,
            log_prob_of_signs=log_prob_of_prior_signs(*self.signs),
            sites=self.sites,
        )
        return found._replace(log_evidence=found.log_evidence + self.log_constant)


@dataclass(frozen=True, eq=False)
class EvidenceTask:
    """Of data whose functions nobody asks for."""

    terms: EvidenceTerms

    def run(self, count: int, n_candidates: int, rng: np.random.Generator) -> DrawsWithEvidence:
        """See `Task`."""
        found = evidence_estimate(self.terms, n_candidates, int(rng.integers(2**31)))
        nothing = np.zeros((count, 0))
        return DrawsWithEvidence(found.value, found.std_error, found.relative_ess, nothing)


def run_tasks(
    tasks: Iterator[list[Task]],
    counts: Sequence[int],
    n_candidates: int,
    rng: np.random.Generator,
    n_jobs: int | None,
) -> Iterator[DrawsWithEvidence]:
    """Results in the order of the points, each with a generator of its own."""
    arguments: Iterator[Any] = (
        (parts, int(count), n_candidates, own)
        for parts, count, own in zip(tasks, counts, rng.spawn(len(counts)), strict=True)
    )
    if n_jobs in (None, 1):
        yield from (_run(*given) for given in arguments)
        return
    from joblib import Parallel, delayed  # comes with scikit-learn, which is optional

    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    yield from parallel(delayed(_run)(*given) for given in arguments)


def _run(
    parts: list[Task], count: int, n_candidates: int, rng: np.random.Generator
) -> DrawsWithEvidence:
    with no_warnings():  # of single points: the whole is judged by its weights
        found = [part.run(count, n_candidates, rng) for part in parts]
    if len(found) == 1:
        return found[0]
    return DrawsWithEvidence(
        sum(x.log_evidence for x in found),
        float(np.sqrt(sum(x.std_error**2 for x in found))),
        min(x.relative_ess for x in found),
        np.concatenate([x.f for x in found], axis=1),
    )
