"""Graphs over the free variables of a model as functions, with their gradients."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Pattern, Point
from pymc_skewgp._model.graph.data_sites import SitesOfData, sites_at
from pymc_skewgp._model.ops.known_functions import PlainFunction, plain_function
from pymc_skewgp._observations.learnt_sites import SitesGiven
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._posterior.factor_terms import FactorTerms
from pymc_skewgp._validation import FloatArray

Batch = tuple[NDArray[Any], ...]
Terms = EvidenceTerms | FactorTerms


class CompiledTerms:
    """The matrices behind an evidence as a function of a point and a batch of the data.

    Parameters
    ----------
    coordinates : Coordinates
    data : sequence of variables
        What `graph` is a function of besides the coordinates.
    graph : EvidenceTerms or FactorTerms
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
        self._forward = plain_function(inputs, list(graph))
        self._log_constant = pt.as_tensor_variable(graph.log_constant)
        self._inputs = inputs
        parameters = [x for part in sites for x in part.parameters]
        self._of_sites = plain_function(inputs, [x for part in sites for x in part.graphs])
        self._pull = pull_back_function(inputs, [*graph, *parameters], coordinates)

    def __call__(self, point: Point, batch: Batch) -> Any:
        """The matrices, as EvidenceTerms or FactorTerms."""
        found = self._forward(*self._coordinates.arguments(point), *batch)
        terms = self.kind(*(np.asarray(x, np.float64) for x in found))
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
        if not self._sites:
            return None
        arguments = self._coordinates.arguments(point)
        return sites_at(self._sites, self._of_sites(*arguments, *batch))

    def pull_back(
        self,
        point: Point,
        batch: Batch,
        wrt: Terms,
        in_parameters: Sequence[FloatArray] = (),
    ) -> list[FloatArray]:
        """Gradient in the continuous variables from that in the matrices, and in parameters."""
        arguments = self._coordinates.arguments(point)
        result: list[FloatArray] = self._pull(*arguments, *batch, *wrt, *in_parameters)
        return result


class CompiledLogPrior:
    """Log density of the rest of a model, with its gradient."""

    def __init__(self, coordinates: Coordinates, log_prior: Any) -> None:
        self._coordinates, self._log_prior = coordinates, log_prior

    def value(self, point: Point) -> float:
        """The value alone."""
        return float(self._alone(*self._coordinates.arguments(point)))

    @cached_property
    def _alone(self) -> Any:
        return plain_function(self._coordinates.inputs, self._log_prior)

    def at_rows(self, x: FloatArray, pattern: Pattern) -> tuple[FloatArray, FloatArray]:
        """Values at the rows of `x`, (N, D), and gradients, (N, D), all at once.

        Minus infinity where a parameter of a prior is impossible to double precision.
        """
        found = self._at_rows(self._slopes_of_rows, x, pattern)
        return found[:, 0], found[:, 1:]

    def values_at_rows(self, x: FloatArray, pattern: Pattern) -> FloatArray:
        """The values alone."""
        return self._at_rows(self._values_of_rows, x, pattern)[:, 0]

    def _at_rows(self, function: Any, x: FloatArray, pattern: Pattern) -> FloatArray:
        first = self._coordinates.arguments(Point(x[0], pattern))
        binary = first[len(self._coordinates.continuous) :]
        try:
            value, *slopes = function(*self._coordinates.split_rows(x), *binary)
        except ParameterValueError:
            if len(x) == 1:
                nothing = np.zeros((1, 1 + x.shape[1]))
                nothing[0, 0] = -np.inf
                return nothing
            halves = [self._at_rows(function, half, pattern) for half in np.array_split(x, 2)]
            width = min(half.shape[1] for half in halves)
            return np.concatenate([half[:, :width] for half in halves])
        flat = [slope.reshape(len(x), -1) for slope in slopes]
        return np.column_stack([np.broadcast_to(value, len(x)), *flat])

    def _of_rows(self, with_slopes: bool) -> Any:
        coordinates = self._coordinates
        rows = [
            pt.tensor(dtype=v.dtype, shape=(None, *v.type.shape)) for v in coordinates.continuous
        ]
        value = vectorize_graph(
            self._log_prior, dict(zip(coordinates.continuous, rows, strict=True))
        )
        slopes = []
        if with_slopes:
            slopes = pt.grad(
                value.sum(), rows, disconnected_inputs="ignore", return_disconnected="zero"
            )
        return plain_function([*rows, *coordinates.binary], [value, *slopes])

    @cached_property
    def _values_of_rows(self) -> Any:
        return self._of_rows(False)

    @cached_property
    def _slopes_of_rows(self) -> Any:
        return self._of_rows(True)

    @cached_property
    def _with_slopes(self) -> Any:
        slopes = gradient_in(self._log_prior, self._coordinates)
        return plain_function(self._coordinates.inputs, [self._log_prior, *slopes])

    def __call__(self, point: Point) -> tuple[float, list[FloatArray]]:
        """Value, and one array of derivatives for each continuous variable."""
        value, *slopes = self._with_slopes(*self._coordinates.arguments(point))
        return float(value), slopes


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


def pull_back_function(
    inputs: Sequence[Any], outputs: Sequence[Any], coordinates: Coordinates
) -> PlainFunction:
    """Gradient in the continuous variables, given values of the inputs and that in each output."""
    weights = [output.type() for output in outputs]
    weighted = sum((w * output).sum() for w, output in zip(weights, outputs, strict=True))
    return plain_function([*inputs, *weights], gradient_in(weighted, coordinates))


def gradient_in(output: Any, coordinates: Coordinates) -> list[Any]:
    wrt = list(coordinates.continuous)
    if not wrt:
        return []
    return list(pt.grad(output, wrt, disconnected_inputs="ignore", return_disconnected="zero"))
