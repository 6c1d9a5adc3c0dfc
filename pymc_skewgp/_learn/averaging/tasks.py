"""What is computed at one point of the hyperparameters, here or in another process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, starmap
from typing import Any, Protocol

import numpy as np

from pymc_skewgp._errors import ImproperPriorError, no_warnings
from pymc_skewgp._gaussian.weights import systematic_resample
from pymc_skewgp._learn.factor_evidence import (
    FactorStart,
    factor_sampler,
    factor_start,
    log_likelihood_at,
)
from pymc_skewgp._model.graph.joint_gaussian import JointGaussian
from pymc_skewgp._observations.learnt_sites import SitesGiven
from pymc_skewgp._posterior.draws_with_evidence import (
    Case,
    DrawsWithEvidence,
    draws_with_evidence,
)
from pymc_skewgp._posterior.evidence_gradient import evidence_estimate
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._posterior.factor_terms import FactorTerms
from pymc_skewgp._posterior.many_draws import draws_of_many
from pymc_skewgp._validation import FloatArray

# Of the deviation in place of a flat prior, beyond which a draw is not bounded by the data.
_LARGEST_SHARE = 0.1


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
    case : Case
    """

    case: Case

    def run(self, count: int, n_candidates: int, rng: np.random.Generator) -> DrawsWithEvidence:
        """See `Task`."""
        return draws_with_evidence(self.case, count, n_candidates, rng)


@dataclass(frozen=True, eq=False)
class EvidenceTask:
    """Of data whose functions nobody asks for.

    Attributes
    ----------
    terms : EvidenceTerms
    sites : SitesGiven or None
        On its last rows.
    """

    terms: EvidenceTerms
    sites: SitesGiven | None

    def run(self, count: int, n_candidates: int, rng: np.random.Generator) -> DrawsWithEvidence:
        """See `Task`."""
        seed = int(rng.integers(2**31))
        found = evidence_estimate(self.terms, n_candidates, seed, sites=self.sites)
        nothing = np.zeros((count, 0))
        return DrawsWithEvidence(found.value, found.std_error, found.relative_ess, nothing)


@dataclass(frozen=True, eq=False)
class FactorTask:
    """Of a block of white coordinates c.

    Attributes
    ----------
    terms : FactorTerms
    sites : SitesGiven or None
    joint : JointGaussian
        Its vector, of arrays.
    labels : sequence of str
        Of the entries of the vector.
    start : FactorStart or None
        Of EP.
    """

    terms: FactorTerms
    sites: SitesGiven | None
    joint: JointGaussian
    labels: Sequence[str]
    start: FactorStart | None

    def begun(self) -> FactorStart | None:
        """For tasks at other hyperparameters."""
        return factor_start(self.terms, self.sites)

    def run(self, count: int, n_candidates: int, rng: np.random.Generator) -> DrawsWithEvidence:
        """See `Task`."""
        sampler = factor_sampler(self.terms, self.sites, self.start)[1]
        found = sampler.singles(max(count, n_candidates), rng)
        assert found.log_prob is not None
        chosen = systematic_resample(found.log_weights, count, rng)
        value = found.log_prob.value + float(self.terms.log_constant)
        z = found.draws[chosen] @ self.joint.factor.T + self.joint.mean
        self._refuse_unbounded(z)
        return DrawsWithEvidence(value, found.log_prob.std_error, found.log_prob.relative_ess, z)

    def log_likelihood(self, z: FloatArray) -> float:
        """Of a vector; the coordinates left open by it move no predictor."""
        c = np.linalg.lstsq(self.joint.factor, z - self.joint.mean)[0]
        constant = float(self.terms.log_constant - self.joint.log_constant)
        return constant + log_likelihood_at(self.terms, self.sites, c)

    def _refuse_unbounded(self, z: FloatArray) -> None:
        """Draws as wide as the Gaussian that stands for density 1."""
        flat = self.joint.flat
        far = (np.abs(z @ flat.T) > _LARGEST_SHARE).any(axis=0)
        if not far.any():
            return
        own = np.flatnonzero(flat.any(axis=0))
        # Which of the coefficients move by the most, in what the data can say of them alone.
        moved = np.abs(z[:, own]).max(axis=0) * np.abs(flat[:, own]).max(axis=0)
        names = " and ".join(self.labels[own[k]] for k in np.flatnonzero(moved > 0.1 * moved.max()))
        raise ImproperPriorError(
            f"the data do not bound {names}, which have flat priors, so that the posterior is "
            "improper: labels are separated, as where all at one level are alike, or counts are "
            "all zero there, or columns of the design are collinear. Give them a proper prior, "
            "such as pm.Normal."
        )


def run_tasks(
    tasks: Iterator[list[Task]],
    counts: Sequence[int],
    n_candidates: int,
    rng: np.random.Generator,
    n_jobs: int | None,
) -> Iterator[DrawsWithEvidence]:
    """Results in the order of the points, each with a generator of its own."""
    rngs = rng.spawn(len(counts))
    mapped = partial(_mapped, n_jobs=n_jobs)
    first = next(tasks)
    every = chain([first], tasks)
    if len(first) == 1 and isinstance(first[0], VectorTask):
        cases = (task.case for (task,) in every if isinstance(task, VectorTask))
        yield from draws_of_many(cases, counts, n_candidates, rngs, mapped)
        return
    yield from mapped(
        _run, ((*given, n_candidates) for given in zip(every, counts, rngs, strict=True))
    )


def _mapped(
    function: Callable[..., Any], arguments: Iterator[tuple[Any, ...]], n_jobs: int | None
) -> Iterator[Any]:
    if n_jobs in (None, 1):
        yield from starmap(function, arguments)
        return
    from joblib import Parallel, delayed  # comes with scikit-learn, which is optional

    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    yield from parallel(delayed(function)(*given) for given in arguments)


def _run(
    parts: list[Task], count: int, rng: np.random.Generator, n_candidates: int
) -> DrawsWithEvidence:
    with no_warnings():  # of single points: the whole is judged by its weights
        found = [part.run(count, n_candidates, rng) for part in parts]
    return DrawsWithEvidence(
        sum(x.log_evidence for x in found),
        float(np.sqrt(sum(x.std_error**2 for x in found))),
        min(x.relative_ess for x in found),
        np.concatenate([x.f for x in found], axis=1),
    )
