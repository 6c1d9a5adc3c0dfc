"""Log evidence plus log prior as a function of a point."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError

from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.compiled import Batch, CompiledLogPrior, CompiledTerms, CompiledValues
from pymc_skewgp._learn.coordinates import Coordinates, coordinates_of
from pymc_skewgp._learn.diagnosis import why_no_value
from pymc_skewgp._learn.factor_evidence import (
    FactorEvidence,
    factor_by_pairs,
    factor_estimate,
)
from pymc_skewgp._learn.optimizers import NoValueError
from pymc_skewgp._learn.point import Pattern, Point, Value
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.collapsed import Collapsed
from pymc_skewgp._observations.learnt_sites import SitesGiven
from pymc_skewgp._posterior.evidence_gradient import (
    EP_TOLERANCE,
    EvidenceByEP,
    EvidenceGradient,
    evidence_by_pairs,
    evidence_by_twisting,
    evidence_estimate,
)
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._posterior.factor_terms import FactorTerms
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

# A composite likelihood is off by more than EP ever is.
_COMPOSITE_TOLERANCE = 3e-4

# Which term of which batch.
Key = tuple[int, int]
EP = Any  # EvidenceByEP or FactorEvidence, of terms of their kind
Evidence = Callable[[Key, Any, SitesGiven | None], EvidenceGradient]


@dataclass(frozen=True, eq=False)
class Objective:
    """Log evidence and log prior of a model whose latent functions are integrated out.

    Attributes
    ----------
    coordinates : Coordinates
        What a point is made of.
    terms : list of CompiledTerms
        One for each set of labels.
    prior : CompiledLogPrior
    values : CompiledValues
    batches : list of tuples of arrays
        Values of the data that `terms` depend on; the log evidence is the sum over them.
    ep : dict
        Expectation propagation for each term of each batch. Each begins where it has ended last.
    blocks : tuple of BlockGraph
        Of variables integrated out without a SkewGP.
    """

    coordinates: Coordinates
    terms: list[CompiledTerms]
    prior: CompiledLogPrior
    values: CompiledValues
    batches: list[Batch]
    ep: dict[Key, EP]
    blocks: tuple[BlockGraph, ...] = ()

    @property
    def density_one(self) -> tuple[str, ...]:
        """Names of the variables integrated out whose prior is flat."""
        return tuple(x.name for block in self.blocks for x in block.members if x.is_flat)

    def why_no_value(self, point: Point) -> str | None:
        """What is wrong with the model where there is no value; None where nothing is found."""
        model = self.coordinates.model
        values = dict(model.initial_point())
        values |= {
            x.name: value
            for x, value in zip(
                self.coordinates.inputs, self.coordinates.arguments(point), strict=True
            )
        }
        found = (why_no_value(model, block, values) for block in self.blocks)
        return next((why for why in found if why is not None), None)

    def on(self, batches: Sequence[Batch]) -> "Objective":
        """The same for other data, nothing compiled anew."""
        return replace(self, batches=list(batches), ep=_fresh_ep(self.terms, len(batches)))

    def by_ep(self, point: Point) -> Value:
        """Value and gradient with the evidence of expectation propagation."""
        return self._value(point, lambda key, terms, sites: self.ep[key](terms, sites))

    def total_by_ep(self, point: Point) -> tuple[float, float]:
        """Total and log evidence as `by_ep`, no gradient."""
        log_evidence = 0.0
        for i, j in self.ep:
            compiled, batch = self.terms[i], self.batches[j]
            with few_blas_threads(compiled.n_rows):
                known = _terms_and_sites(compiled, point, batch)
                if known is None:
                    return -np.inf, -np.inf
                log_evidence += self.ep[i, j].value(*known)
        total = log_evidence + self.prior.value(point)
        return (total, log_evidence) if np.isfinite(total) else (-np.inf, -np.inf)

    def by_twisting(self, point: Point, n_draws: int, seed: int) -> Value:
        """Value and gradient with the evidence of the twisted sampler, or of pairs for sites."""

        def evidence(_: Key, terms: Any, sites: SitesGiven | None) -> EvidenceGradient:
            if isinstance(terms, FactorTerms):
                return factor_by_pairs(terms, sites, n_draws, seed)
            if sites is None:
                return evidence_by_twisting(terms, n_draws, seed)
            return evidence_by_pairs(terms, sites, n_draws, seed)

        return self._value(point, evidence)

    def estimate(self, point: Point, n_draws: int, seed: int) -> Estimate:
        """Log evidence with its error, summed over the batches."""
        estimates = self._estimates(point, n_draws, seed)
        values, errors, fractions, shapes = np.transpose(estimates)
        return Estimate(
            float(values.sum()),
            float(np.sqrt((errors**2).sum())),
            float(fractions.min()),
            float(shapes.max()),
        )

    def batch_evidences(self, point: Point, n_draws: int) -> FloatArray:
        """Log evidence of every batch by the twisted sampler, no gradient."""
        return np.array([found.value for found in self._estimates(point, n_draws, 0)])

    def log_prior(self, point: Point) -> float:
        """Log density of the rest of the model, without Jacobians unless it was compiled so."""
        return self.prior.value(point)

    def log_prior_at(self, x: FloatArray, pattern: Pattern) -> tuple[FloatArray, FloatArray]:
        """As `log_prior` at many rows, with gradients."""
        return self.prior.at_rows(x, pattern)

    def named(self, point: Point) -> dict[str, NDArray[Any]]:
        """Values by name on their own scale, those of Deterministics among them."""
        return self.values(point)

    def terms_at(self, point: Point) -> Iterator[EvidenceTerms | FactorTerms]:
        """The matrices of every term and batch."""
        for compiled in self.terms:
            for batch in self.batches:
                yield compiled(point, batch)

    def _estimates(self, point: Point, n_draws: int, seed: int) -> list[Estimate]:
        """Log evidence of every term and batch."""

        def estimate(terms: Any, sites: SitesGiven | None) -> Estimate:
            if isinstance(terms, FactorTerms):
                return factor_estimate(terms, sites, n_draws, seed)
            return evidence_estimate(terms, n_draws, seed, sites=sites)

        return [
            estimate(compiled(point, batch), compiled.sites(point, batch))
            for compiled in self.terms
            for batch in self.batches
        ]

    def _value(self, point: Point, evidence: Evidence) -> Value:
        log_prior, slopes = self.prior(point)
        log_evidence, noise = 0.0, 0.0
        gradient = [np.array(slope, dtype=np.float64) for slope in slopes]
        for i, j in self.ep:
            compiled, batch = self.terms[i], self.batches[j]
            # Between the kernel's passes and the factorisations a second BLAS thread would be
            # woken and sent to sleep all the time.
            with few_blas_threads(compiled.n_rows):
                known = _terms_and_sites(compiled, point, batch)
                if known is None:
                    return Value(-np.inf, -np.inf, np.zeros_like(point.x))
                found = evidence((i, j), *known)
                log_evidence += found.value
                noise = float(np.hypot(noise, found.noise))
                if not np.isfinite(log_evidence):
                    break
                parts = compiled.pull_back(point, batch, found.wrt, found.in_parameters)
            for sum_, part in zip(gradient, parts, strict=True):
                sum_ += part
        flat = np.concatenate([np.ravel(g) for g in gradient] or [np.zeros(0)])
        total = log_evidence + log_prior
        if not (np.isfinite(total) and np.isfinite(flat).all()):
            return Value(-np.inf, -np.inf, np.zeros_like(flat))
        return Value(total, log_evidence, flat, noise)


def compile_objective(
    model: pm.Model,
    collapsed: Collapsed,
    data: Sequence[Any] = (),
    batches: Sequence[Batch] = ((),),
    start: Mapping[str, Any] | None = None,
    *,
    averaged: bool = False,
) -> tuple[Objective, FloatArray]:
    """The objective of a collapsed model, and the vector to start from.

    Parameters
    ----------
    model : pymc.Model
    collapsed : Collapsed
    data : sequence of variables
        What the evidences depend on besides the model's variables: none, or inputs and signs.
    batches : sequence of tuples of arrays
        Values of `data`.
    start : mapping, optional
        Values of free variables by name, on their own scale. Default the model's initial point.
    averaged : bool, default False
        For an integral in place of a maximum: `Objective.prior` is a density on the unconstrained
        scale, that of the coordinates, and there may be nothing to learn.

    Raises
    ------
    ValueError
        As `coordinates_of`.
    """
    known = [x for graph in collapsed.evidences for x in graph]
    learnt = [x for sites in collapsed.sites for part in sites for x in part.parameters]
    flat = iter(model.replace_rvs_by_values([*known, *learnt]))
    graphs = [type(graph)(*(next(flat) for _ in graph)) for graph in collapsed.evidences]
    sites = [
        [part._replace(parameters=tuple(next(flat) for _ in part.parameters)) for part in parts]
        for parts in collapsed.sites
    ]
    densities = model.logp(vars=collapsed.rest, jacobian=averaged, sum=False)
    log_prior = sum([term.sum() for term in densities], start=pt.constant(0.0))
    parameters = [x for parts in sites for part in parts for x in part.parameters]
    everything = [*(x for graph in graphs for x in graph), *parameters, log_prior]
    # Points of an integral are drawn coordinate by coordinate: their order must not matter.
    coordinates, origin = coordinates_of(
        model, everything, start, may_be_none=averaged, by_name=averaged
    )
    terms = [
        CompiledTerms(coordinates, data, graph, own)
        for graph, own in zip(graphs, sites, strict=True)
    ]
    objective = Objective(
        coordinates,
        terms,
        CompiledLogPrior(coordinates, log_prior),
        CompiledValues(coordinates),
        list(batches),
        _fresh_ep(terms, len(batches)),
        tuple(
            block
            for block, kind in zip(collapsed.blocks, collapsed.evidences, strict=True)
            if block is not None and isinstance(kind, FactorTerms)
        ),
    )
    _refuse_without_terms(
        objective,
        Point(origin, (0,) * sum(int(np.prod(x, dtype=int)) for x in coordinates.binary_shapes)),
    )
    return objective, origin


def _refuse_without_terms(objective: Objective, point: Point) -> None:
    """Where the start has no matrices, as those of eigenvalues that are not finite."""
    if not objective.blocks:
        return
    try:
        for compiled in objective.terms:
            compiled(point, objective.batches[0])
    except (ValueError, ArithmeticError) as error:
        why = objective.why_no_value(point)
        if why is None:
            raise
        raise NoValueError(why) from error


def _terms_and_sites(
    compiled: CompiledTerms, point: Point, batch: Batch
) -> tuple[Any, SitesGiven | None] | None:
    """Matrices and sites; None where parameters are beyond their range, or double precision."""
    try:
        sites = compiled.sites(point, batch)
    except ValueError:
        return None
    try:
        return compiled(point, batch), sites
    except (ParameterValueError, np.linalg.LinAlgError):
        return None


def _fresh_ep(terms: Sequence[CompiledTerms], n_batches: int) -> dict[Key, EP]:
    """EP for every term of every batch, with nothing to begin from."""
    tol = EP_TOLERANCE if n_batches <= 1 else _COMPOSITE_TOLERANCE
    return {
        (i, j): FactorEvidence(tol) if own.kind is FactorTerms else EvidenceByEP(tol)
        for i, own in enumerate(terms)
        for j in range(n_batches)
    }
