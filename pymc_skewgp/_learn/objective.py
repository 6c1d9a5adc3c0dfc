"""Log evidence plus log prior as a function of a point."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.multivariate import ICARRV
from pymc.logprob.utils import ParameterValueError
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.coordinates import Coordinates, Pattern, Point, Value, coordinates_of
from pymc_skewgp._learn.factor_evidence import (
    FactorEvidence,
    SitesByEP,
    factor_by_pairs,
    factor_estimate,
)
from pymc_skewgp._learn.factor_rows import FactorStart
from pymc_skewgp._learn.optimizers import NoValueError
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.at_points import FEWEST, GraphsAtPoints
from pymc_skewgp._model.graph.collapsed import Collapsed
from pymc_skewgp._model.graph.data import SitesOfData, sites_at
from pymc_skewgp._model.graph.initial_point import initial_point
from pymc_skewgp._model.graph.members import proper_joint
from pymc_skewgp._model.graph.sites import distribution_name
from pymc_skewgp._model.ops.plain_mode import PLAIN, plain_function, untraced
from pymc_skewgp._observations.sites import SitesGiven
from pymc_skewgp._posterior import evidence_gradient
from pymc_skewgp._posterior.site_evidence import FactorTerms, FieldTerms
from pymc_skewgp._validation import FloatArray

# Graphs over the free variables of a model as functions, with their gradients.

Batch = tuple[NDArray[Any], ...]
Terms = evidence_gradient.EvidenceTerms | FactorTerms | FieldTerms


class CompiledTerms:
    """The matrices behind an evidence as a function of a point and a batch of the data.

    Parameters
    ----------
    coordinates : Coordinates
    data : sequence of variables
        What `graph` is a function of besides the coordinates.
    graph : EvidenceTerms, FactorTerms or FieldTerms
    sites : sequence of SitesOfData
        On its last rows.

    Attributes
    ----------
    n_rows : int
        Of the matrix that the last evidence factorised; 0 before the first one.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        data: Sequence[Any],
        graph: Terms,
        sites: Sequence[SitesOfData] = (),
    ) -> None:
        self._coordinates, self.n_rows, self._sites = coordinates, 0, sites
        self.kind: type[Terms] = type(graph)
        inputs = [*coordinates.inputs, *data]
        self._forward = GraphsAtPoints(inputs, list(graph))
        self._log_constant = pt.as_tensor_variable(graph.log_constant)
        self._inputs = inputs
        parameters = [x for part in sites for x in part.parameters]
        of_sites = [x for part in sites for x in part.graphs]
        self._of_sites = plain_function(inputs, of_sites)
        self._are_fixed = set(inputs).isdisjoint(graph_inputs(of_sites))
        self._fixed: SitesGiven | None = None
        outputs = [*self._forward.graphs, *parameters]
        weights = [output.type() for output in outputs]
        weighted = sum((w * output).sum() for w, output in zip(weights, outputs, strict=True))
        self._pull = plain_function([*inputs, *weights], gradient_in(weighted, coordinates))

    def __call__(self, point: Point, batch: Batch) -> Any:
        """The matrices, as terms of the kind of the graph."""
        return self._of_kind(self._forward(*self._coordinates.arguments(point), *batch))

    def each(self, points: Sequence[Point], batch: Batch) -> Iterator[Any]:
        """At one point after the other; None beyond a parameter's range, or double precision."""
        values = [[*self._coordinates.arguments(point), *batch] for point in points]
        for found in self._forward.each(values):
            yield found and self._of_kind(found)

    def _of_kind(self, found: Sequence[FloatArray]) -> Any:
        terms = self.kind(*found)
        if not isinstance(terms, FieldTerms):
            matrix = terms.factor if isinstance(terms, FactorTerms) else terms.cov
            self.n_rows = matrix.shape[1]
        return terms

    def log_constant(self, point: Point, batch: Batch) -> float:
        """What the log evidence has beyond that of the rows, without their matrices."""
        return float(self._of_constant(*self._coordinates.arguments(point), *batch))

    @cached_property
    def _of_constant(self) -> Any:
        return plain_function(self._inputs, self._log_constant)

    def sites(self, point: Point, batch: Batch) -> SitesGiven | None:
        """Sites on the last rows; None where there are none.

        Raises
        ------
        ValueError
            For parameters that are impossible.
        """
        if not self._sites or self._fixed is not None:
            return self._fixed
        arguments = self._coordinates.arguments(point)
        found = sites_at(self._sites, self._of_sites(*arguments, *batch))
        if self._are_fixed:
            self._fixed = found
        return found

    def pull_back(
        self, point: Point, batch: Batch, wrt: Terms, in_parameters: Sequence[FloatArray] = ()
    ) -> list[FloatArray]:
        """Gradient in the continuous variables from that in the matrices, and in parameters."""
        arguments = self._coordinates.arguments(point)
        result: list[FloatArray] = self._pull(*arguments, *batch, *wrt, *in_parameters)
        return result


class CompiledLogPrior:
    """Log density of the rest of a model, with its gradient."""

    def __init__(self, coordinates: Coordinates, log_prior: Any) -> None:
        self._coordinates, self._log_prior = coordinates, log_prior
        self._functions: dict[tuple[bool, bool], Any] = {}

    def __call__(self, point: Point) -> float:
        """The value."""
        return float(self._function()(*self._coordinates.arguments(point))[0])

    def at(self, points: Sequence[Point]) -> FloatArray:
        """Values at points, of many all of a pattern at once."""
        if len(points) < FEWEST:
            return np.array([self(point) for point in points])
        found = np.empty(len(points))
        for pattern in {point.pattern for point in points}:
            own = [i for i, point in enumerate(points) if point.pattern == pattern]
            found[own] = self.values_at_rows(np.array([points[i].x for i in own]), pattern)
        return found

    def with_slopes(self, point: Point) -> tuple[float, list[FloatArray]]:
        """The value, and one array of derivatives for each continuous variable."""
        value, *slopes = self._function(slopes=True)(*self._coordinates.arguments(point))
        return float(value), slopes

    def at_rows(self, x: FloatArray, pattern: Pattern) -> tuple[FloatArray, FloatArray]:
        """Values at the rows of `x`, (N, D), and gradients, (N, D), all at once.

        Minus infinity where a parameter of a prior is impossible to double precision.
        """
        found = self._at_rows(self._function(rows=True, slopes=True), x, pattern)
        return found[:, 0], found[:, 1:]

    def values_at_rows(self, x: FloatArray, pattern: Pattern) -> FloatArray:
        """The values alone."""
        return self._at_rows(self._function(rows=True), x, pattern)[:, 0]

    def _at_rows(self, function: Any, x: FloatArray, pattern: Pattern) -> FloatArray:
        binary = self._coordinates.binary_values(pattern)
        try:
            value, *slopes = function(*self._coordinates.split(x), *binary)
        except ParameterValueError:
            if len(x) == 1:
                return np.concatenate([[[-np.inf]], np.zeros_like(x)], axis=1)
            halves = [self._at_rows(function, half, pattern) for half in np.array_split(x, 2)]
            width = min(half.shape[1] for half in halves)
            return np.concatenate([half[:, :width] for half in halves])
        flat = [slope.reshape(len(x), -1) for slope in slopes]
        return np.column_stack([np.broadcast_to(value, len(x)), *flat])

    def _function(self, *, rows: bool = False, slopes: bool = False) -> Any:
        """Of one point or of many; compiled when it is first asked for."""
        if (rows, slopes) not in self._functions:
            own, value = self._coordinates.continuous, self._log_prior
            inputs = list(own)
            if rows:
                inputs = [pt.tensor(dtype=v.dtype, shape=(None, *v.type.shape)) for v in own]
                value = vectorize_graph(value, dict(zip(own, inputs, strict=True)))
            outputs = [value, *(gradient(value.sum(), inputs) if slopes else [])]
            binary = self._coordinates.binary
            self._functions[rows, slopes] = plain_function([*inputs, *binary], outputs)
        return self._functions[rows, slopes]


class CompiledValues:
    """Free variables and Deterministics by name, on their own scale, as a function of a point."""

    def __init__(self, coordinates: Coordinates) -> None:
        self._coordinates = coordinates
        model, inputs = coordinates.model, coordinates.inputs
        free = [model.values_to_rvs[value] for value in inputs]
        graphs = model.replace_rvs_by_values([*free, *model.deterministics])
        unknown = set(model.value_vars) - set(inputs)
        names = [rv.name for rv in [*free, *model.deterministics]]
        # A Deterministic of a latent function that is integrated out has no value.
        kept = [
            (name, graph)
            for name, graph in zip(names, graphs, strict=True)
            if unknown.isdisjoint(graph_inputs([graph]))
        ]
        self._names = [name for name, _ in kept]
        self._function = plain_function(inputs, [graph for _, graph in kept])

    def __call__(self, point: Point) -> dict[str, NDArray[Any]]:
        """Values by name."""
        results = self._function(*self._coordinates.arguments(point))
        return dict(zip(self._names, map(np.asarray, results), strict=True))


def gradient_in(output: Any, coordinates: Coordinates, also: Sequence[Any] = ()) -> list[Any]:
    return gradient(output, [*coordinates.continuous, *also])


@untraced()
def gradient(output: Any, wrt: Sequence[Any]) -> list[Any]:
    if not wrt:
        return []
    return list(pt.grad(output, wrt, disconnected_inputs="ignore", return_disconnected="zero"))


# What is wrong where a model's evidence has no value anywhere: the variable and the reason.

_REMEDY = "Mend the data or the parameters, or give start."


def _bad_member(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """A member without a density in PyMC itself."""
    for name in block.names:
        rv = model[name]
        try:
            (found,) = _evaluated(model, [model.logp(vars=[rv])], values)
            if np.isfinite(found):
                continue
            reason = f"its log density is {found}"
        except ParameterValueError as error:
            reason = f"PyMC asks for {error}"
        except (ValueError, ArithmeticError) as error:  # of matrices that are not finite
            reason = str(error).split("\n", 1)[0]
        kind = distribution_name(rv)
        if kind == "CAR":
            reason += " (W must be symmetric, and each area have a neighbour)"
        return (
            f"{name} has no density in PyMC itself, whatever is observed: as pm.{kind} with the "
            f"values it starts from, {reason}. Mend its arguments, or give start."
        )
    return None


def _singular_prior(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """Members, potentials included, whose log density is quadratic without being a Gaussian's."""

    def is_gaussian(graph: Any) -> bool:
        return bool(np.isfinite(_evaluated(model, [graph], values)[0]).all())

    names = [x.name for x in block.members if not is_gaussian(x.factor)]
    potentials = [x for x in model.potentials if x not in block.rest]
    together = potentials and not names and not any(x.is_flat for x in block.members)
    if together and not is_gaussian(proper_joint(model, block.members, potentials).factor):
        names = [*block.names, *(x.name for x in potentials)]
    if not names:
        return None
    of = " and ".join(names)
    return (
        f"the log density of {of} is quadratic, but no Gaussian's: the matrix of its second "
        "derivatives is not symmetric and negative definite, so that the density has no finite "
        "integral. Mend the covariance of a pm.MvNormal. Of other densities, add a "
        "term that bounds it in every direction; or, where the data are to bound it, let the "
        "variable be pm.Flat and its density a pm.Potential."
    )


def _bad_predictor(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """An observed variable whose predictor is not finite."""
    for y in block.all_observed:
        found = _evaluated(model, [y.a, y.A], values)
        if not all(np.isfinite(x).all() for x in found):
            return (
                f"the predictor of {y.name} is not finite: look for missing values (NaN) and "
                "infinities in what it is computed from, such as a covariate, and leave these rows "
                "out or fill them in."
            )
    return None


def _bad_observations(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """An observed variable that has no density where the search begins."""
    for name in [y.name for y in block.all_observed]:
        rv = model[name]
        kind = f"{name}, a {distribution_name(rv)} variable,"
        begins = "with the values that the other variables start from"
        try:
            (found,) = _evaluated(model, model.logp(vars=[rv], sum=False), values)
        except ParameterValueError as error:
            return f"{kind} has no density {begins}: PyMC asks for {error}. {_REMEDY}"
        bad = np.flatnonzero(~np.isfinite(np.ravel(found)))
        if bad.size:
            data = np.ravel(model.rvs_to_values[rv].eval(mode=PLAIN))
            seen = f" ({data[bad[0]]})" if data.size == np.size(found) else ""
            return (
                f"{kind} has no density at {bad.size} of {np.size(found)} observations, the first "
                f"of them number {bad[0]}{seen}, {begins}: its log is "
                f"{np.ravel(found)[bad[0]]}. {_REMEDY}"
            )
    return None


def _evaluated(model: pm.Model, graphs: list[Any], values: Mapping[str, Any]) -> list[FloatArray]:
    used = set(graph_inputs(graphs))
    inputs = [value for value in model.value_vars if value in used]
    found: list[FloatArray] = plain_function(inputs, graphs)(*(values[x.name] for x in inputs))
    return found


# Bytes of what is kept of points at which EP was run.
_MOST_KEPT = 2**27


class Ends:
    """Where EP of a term has ended at points, as far as memory goes."""

    def __init__(self) -> None:
        self._known: dict[Any, dict[bytes, tuple[FloatArray, FactorStart]]] = {}
        self._stacked: dict[Any, tuple[FloatArray, list[FloatArray]]] = {}  # of all that are known
        self._bytes = 0

    def count(self, term: int) -> int:
        """How many of a term."""
        return sum(len(ends) for (own, _), ends in self._known.items() if own == term)

    def add(self, term: int, point: Point, end: FactorStart | None) -> None:
        """One more."""
        if end is not None and self._bytes < _MOST_KEPT:
            key = term, point.pattern
            self._known.setdefault(key, {})[point.x.tobytes()] = point.x, end
            self._stacked.pop(key, None)
            self._bytes += sum(x.nbytes for x in end.terms)

    def of(self, term: int, point: Point) -> FactorStart | None:
        """That at a point, if it is known."""
        found = self._known.get((term, point.pattern), {}).get(point.x.tobytes())
        return found and found[1]

    def near(
        self, term: int, points: Sequence[Point], known: Sequence[tuple[Any, SitesGiven | None]]
    ) -> list[FactorStart | None]:
        """Where EP may begin: at the nearest end, or log-concave sites between ends as an end."""
        key = term, points[0].pattern
        if key not in self._known or any(point.pattern != key[1] for point in points):
            return [None] * len(points)
        ends = [end for _, end in self._known[key].values()]
        if key not in self._stacked:
            flat = [[x for part in end.sites for x in part] for end in ends]
            every = [np.array(x) for x in zip(*flat, strict=True)]
            self._stacked[key] = np.array([x for x, _ in self._known[key].values()]), every
        places, every = self._stacked[key]
        away = places - np.array([point.x for point in points])[:, None]
        away /= np.maximum(away.std(axis=1, keepdims=True), 1e-300)
        distances, d = np.square(away).sum(axis=2), away.shape[2]
        nearest = np.argsort(distances, axis=1)[:, : 2 * d + 4]
        starts = [ends[own[0]] for own in nearest]
        sites = known[0][1]
        concave = sites is None or (sites.log_concave and not sites.several)
        if not concave or nearest.shape[1] < 2 * d + 4:
            return starts
        # A plane through their sites, by least squares: the nearer ones count more.
        rows = np.arange(len(points))[:, None]
        distances = distances[rows, nearest]
        shares = 1.0 / (distances + 0.1 * distances.mean(axis=1, keepdims=True) + 1e-12)
        plane = np.concatenate([np.ones((*nearest.shape, 1)), away[rows, nearest]], axis=2)
        pulled = plane.swapaxes(1, 2) * shares[:, None]
        weights = (np.linalg.pinv(pulled @ plane) @ pulled)[:, 0]
        between = []
        for x in every:
            own = x[nearest]
            new = np.einsum("pk,pkn->pn", weights, own)
            between.append(np.clip(new, own.min(axis=1), own.max(axis=1)))
        each = zip(starts, known, zip(*between, strict=True), strict=True)
        return [
            start._replace(terms=terms, sites=list(zip(new[::2], new[1::2], strict=True)))
            for start, (terms, _), new in each
        ]


# A composite likelihood is off by more than EP ever is.
_COMPOSITE_TOLERANCE = 3e-4

# Which term of which batch.
Key = tuple[int, int]
EP = Any  # SitesByEP or FactorEvidence, of terms of their kind
Evidence = Callable[[Key, Any, SitesGiven | None], evidence_gradient.EvidenceGradient]


@dataclass(frozen=True, eq=False)
class Objective:
    """Log evidence and log prior of a model whose latent functions are integrated out.

    Attributes
    ----------
    coordinates : Coordinates
        What a point is made of.
    terms : list of CompiledTerms
        One for each set of labels.
    log_prior : CompiledLogPrior
        Of the rest of the model, without Jacobians unless it was compiled so.
    named : CompiledValues
        Values by name on their own scale, those of Deterministics among them.
    batches : list of tuples of arrays
        Values of the data that `terms` depend on; the log evidence is the sum over them.
    ep : dict
        Expectation propagation for each term of each batch. Each begins where it has ended last.
    blocks : tuple of BlockGraph
        Of variables integrated out without a SkewGP.
    ends : Ends
        Of the evidences without gradients.
    """

    coordinates: Coordinates
    terms: list[CompiledTerms]
    log_prior: CompiledLogPrior
    named: CompiledValues
    batches: list[Batch]
    ep: dict[Key, EP]
    blocks: tuple[BlockGraph, ...] = ()
    ends: Ends = field(default_factory=Ends)

    @property
    def density_one(self) -> tuple[str, ...]:
        """Names of the variables integrated out whose prior is flat, or not normalised as ICAR."""
        rvs = self.coordinates.model.named_vars
        intrinsic = {name for name, x in rvs.items() if isinstance(x.owner and x.owner.op, ICARRV)}
        members = [x for block in self.blocks for x in block.members]
        return tuple(x.name for x in members if x.is_flat or x.name in intrinsic)

    def why_no_value(self, point: Point) -> str | None:
        """What is wrong with the model where there is no value; None where nothing is found."""
        model = self.coordinates.model
        known = zip(self.coordinates.inputs, self.coordinates.arguments(point), strict=True)
        values = {**initial_point(model), **{x.name: value for x, value in known}}
        looks = (_bad_member, _singular_prior, _bad_predictor, _bad_observations)
        every = (look(model, block, values) for block in self.blocks for look in looks)
        return next((why for why in every if why), None)

    def on(self, batches: Sequence[Batch]) -> "Objective":
        """The same for other data, nothing compiled anew."""
        ep = _fresh_ep(self.terms, len(batches))
        return replace(self, batches=list(batches), ep=ep, ends=Ends())

    def by_ep(self, point: Point) -> Value:
        """Value and gradient with the evidence of expectation propagation."""
        return self._value(point, lambda key, terms, sites: self.ep[key](terms, sites))

    def totals_by_ep(self, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
        """Totals and log evidences as `by_ep`, no gradient; each EP begins where one has ended."""
        log_evidence = np.zeros(len(points))
        for i, j in self.ep:
            compiled, batch = self.terms[i], self.batches[j]
            with few_blas_threads(compiled.n_rows):
                log_evidence += self.ep[i, j].values(_terms_and_sites(compiled, points, batch))
                for point, end in zip(points, self.ep[i, j].ends, strict=False):
                    self.ends.add(i, point, end)
        total = log_evidence + self.log_prior.at(points)
        nowhere = ~np.isfinite(total)
        total[nowhere] = log_evidence[nowhere] = -np.inf
        return total, log_evidence

    def by_twisting(self, point: Point, n_draws: int, seed: int) -> Value:
        """Value and gradient with the evidence of the twisted sampler, or of pairs for sites."""

        def evidence(
            _: Key, terms: Any, sites: SitesGiven | None
        ) -> evidence_gradient.EvidenceGradient:
            if not isinstance(terms, evidence_gradient.EvidenceTerms):
                return factor_by_pairs(terms, sites, n_draws, seed)
            return evidence_gradient.evidence_by_draws(terms, n_draws, seed, sites)

        return self._value(point, evidence)

    def estimate(self, point: Point, n_draws: int, seed: int) -> Estimate:
        """Log evidence with its error, summed over the batches."""
        values, errors, fractions, shapes = np.transpose(self.estimates(point, n_draws, seed))
        error = float(np.sqrt((errors**2).sum()))
        return Estimate(float(values.sum()), error, float(fractions.min()), float(shapes.max()))

    def terms_at(self, point: Point) -> Iterator[Terms]:
        """The matrices of every term and batch."""
        for compiled in self.terms:
            for batch in self.batches:
                yield compiled(point, batch)

    def estimates(self, point: Point, n_draws: int, seed: int) -> list[Estimate]:
        """Log evidence of every term and batch with its error, no gradient."""
        found = []
        for terms, sites in self.known_at(point):
            if not isinstance(terms, evidence_gradient.EvidenceTerms):
                found.append(factor_estimate(terms, sites, n_draws, seed))
            else:
                found.append(evidence_gradient.evidence_estimate(terms, n_draws, seed, sites=sites))
        return found

    def known_at(self, point: Point) -> Iterator[tuple[Any, SitesGiven | None]]:
        """The matrices of every term and batch, with their sites."""
        for compiled in self.terms:
            for batch in self.batches:
                yield compiled(point, batch), compiled.sites(point, batch)

    def _value(self, point: Point, evidence: Evidence) -> Value:
        log_prior, slopes = self.log_prior.with_slopes(point)
        log_evidence, noise = 0.0, 0.0
        gradient = [np.array(slope, dtype=np.float64) for slope in slopes]
        for i, j in self.ep:
            compiled, batch = self.terms[i], self.batches[j]
            # Between the kernel's passes and the factorisations a second BLAS thread would be
            # woken and sent to sleep all the time.
            with few_blas_threads(compiled.n_rows):
                (known,) = _terms_and_sites(compiled, [point], batch)
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


@untraced()
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
    coordinates, origin = coordinates_of(model, everything, start, averaged=averaged)
    if averaged:
        log_prior += coordinates.log_orders
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
            if block is not None and not isinstance(kind, evidence_gradient.EvidenceTerms)
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
    compiled: CompiledTerms, points: Sequence[Point], batch: Batch
) -> Iterator[tuple[Any, SitesGiven | None] | None]:
    """Matrices and sites; None where parameters are beyond their range, or double precision."""
    for point, terms in zip(points, compiled.each(points, batch), strict=True):
        try:
            yield None if terms is None else (terms, compiled.sites(point, batch))
        except ValueError:
            yield None


def _fresh_ep(terms: Sequence[CompiledTerms], n_batches: int) -> dict[Key, EP]:
    """EP for every term of every batch, with nothing to begin from."""
    tol = evidence_gradient.EP_TOLERANCE if n_batches <= 1 else _COMPOSITE_TOLERANCE
    return {
        (i, j): SitesByEP(tol)
        if own.kind is evidence_gradient.EvidenceTerms
        else FactorEvidence(tol)
        for i, own in enumerate(terms)
        for j in range(n_batches)
    }
