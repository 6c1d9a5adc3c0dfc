"""Draws from a distribution of n values given n predictors, many vectors of them at once."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorConstant

from pymc_skewgp._errors import DrawOverflowWarning, warn
from pymc_skewgp._model.gp.distribution_graph import Distribution, DistributionGraph
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._model.ops.plain_mode import PLAIN_LOOPS
from pymc_skewgp._validation import FloatArray

Parameters = Sequence[FloatArray]
# Steps that find the farthest predictor that can be drawn at.
_BISECTIONS = 20
_REFUSED = (ValueError, OverflowError)  # parameters out of NumPy's range


class DrawnValues:
    """Values given blocks of predictors, shape (S, n); compiled when they are first asked for.

    Parameters
    ----------
    graph : DistributionGraph
        Of n values.
    distribution : callable or None
        What it came from; draws of many vectors at once are tried by it.
    """

    def __init__(self, graph: DistributionGraph, distribution: Distribution | None) -> None:
        self._graph, self._distribution = graph, distribution
        self._block = pt.tensor("eta", dtype="float64", shape=(None, graph.eta.type.shape[0]))

    @property
    def has_loop(self) -> bool:
        """Whether it draws again and again until all draws are accepted."""
        nodes = self._function[0].maker.fgraph.apply_nodes
        return any(isinstance(node.op, Scan) for node in nodes)

    def __call__(
        self,
        block: FloatArray,
        rng: np.random.Generator,
        parameters: Parameters,
        beyond: list[int] | None = None,
    ) -> Any:
        """One value a predictor.

        At predictors so large that NumPy refuses parameters, the others are drawn as they are, and
        these at the nearest predictor that can be; their number goes into `beyond`.
        """
        try:
            return self._draw(block, rng, parameters)
        except _REFUSED:
            clipped = np.clip(block, *self._range(block, parameters))
            n = int((clipped != block).sum())
            if not n:
                raise
            if beyond is not None:
                beyond.append(n)
            return self._draw(clipped, rng, parameters)

    def warn_beyond(self, beyond: list[int], total: int) -> None:
        """Say how many draws are less than they should be, as of what has a largest number."""
        if beyond and np.dtype(self._graph.variable.dtype).kind in "iu":
            warn(
                f"{sum(beyond)} of {total} draws of {self._graph.name} are at predictors beyond "
                "what NumPy can draw at, and the nearest that it can stands for them. It is these "
                "draws of y alone: means, standard deviations and quantiles do not use them.",
                DrawOverflowWarning,
                stacklevel=2,
            )

    def _draw(self, block: FloatArray, rng: np.random.Generator, parameters: Parameters) -> Any:
        function, n_generators, one_vector = self._function
        if not one_vector:
            return function(block, *parameters, *_children(rng, n_generators))
        return np.stack(
            [function(row, *parameters, *_children(rng, n_generators)) for row in block]
        )

    def _range(self, block: FloatArray, parameters: Parameters) -> tuple[float, float]:
        """Predictors between which all entries can be drawn, of those in `block`."""
        rng, n = np.random.default_rng(0), block.shape[1]
        centre = float(np.median(block))

        def can(value: float) -> bool:
            try:
                self._draw(np.full((1, n), value), rng, parameters)
            except _REFUSED:
                return False
            return True

        if not can(centre):
            centre = 0.0
        ends = []
        for end in (float(block.min()), float(block.max())):
            good, bad = centre, end
            if can(end):
                good = end
            for _ in range(_BISECTIONS if good != bad else 0):
                middle = 0.5 * (good + bad)
                good, bad = (middle, bad) if can(middle) else (good, middle)
            ends.append(good)
        return ends[0], ends[1]

    @cached_property
    def _function(self) -> tuple[Any, int, bool]:
        """A function, how many generators it takes, and whether it is of one vector only."""
        for many in (self._vectorized, self._called_with_block):
            try:
                return *_drawing(self._block, many(), self._graph.parameters), False
            except Exception:  # PyTensor cannot vectorise the graphs that some variables are
                continue
        return *_drawing(self._graph.eta, self._graph.variable, self._graph.parameters), True

    def _vectorized(self) -> Any:
        return vectorize_graph(self._graph.variable, {self._graph.eta: self._block})

    def _called_with_block(self) -> Any:
        """The user's function of a matrix; ValueError where that is not the same as of each row."""
        if self._distribution is None or self._graph.parameters:
            raise ValueError("its parameters are random variables of a model.")
        variable = self._distribution(self._block)
        y = pt.matrix("y", dtype=variable.dtype)
        log_prob = plain_function([y, self._block], pm.logp(variable, y, warn_rvs=False))
        n = self._graph.eta.type.shape[0]
        eta = np.random.default_rng(0).standard_normal((2 if n == 3 else 3, n))
        values = np.ones(eta.shape, dtype=variable.dtype)
        one = plain_function([self._graph.y, self._graph.eta], self._graph.log_prob)
        found, expected = log_prob(values, eta), [one(values[0], row) for row in eta]
        if variable.type.ndim != 2 or not np.allclose(found, expected, equal_nan=True):
            raise ValueError("of a matrix the distribution is not that of its rows.")
        return variable


def _drawing(eta: Any, variable: Any, parameters: Sequence[Any]) -> tuple[Any, int]:
    """Draws of a random variable as a function of predictors and generators."""
    known = list(ancestors([variable]))
    sources = [v for v in known if isinstance(v.type, RandomType) and v.owner is None]
    generators = [source.type() for source in sources]
    # SciPy's random variables write to their parameters, which constants of PyTensor refuse.
    plain = [v.owner for v in known if v.owner and isinstance(v.owner.op, RandomVariable)]
    drawn_from = set(ancestors([x for node in plain for x in node.op.dist_params(node)]))
    constants = [
        v
        for v in known
        if isinstance(v, TensorConstant) and (v in drawn_from or v.dtype.startswith("float"))
    ]
    shared = [pytensor.shared(np.array(v.data), shape=v.type.shape) for v in constants]
    replace = dict(zip([*sources, *constants], [*generators, *shared], strict=True))
    (drawn,) = graph_replace([variable], replace, strict=False)
    output = pt.broadcast_to(drawn, eta.shape)
    inputs = [eta, *parameters, *generators]
    options = {"mode": PLAIN_LOOPS, "on_unused_input": "ignore"}
    return pytensor.function(inputs, output, **options), len(sources)


def _children(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in rng.integers(2**63, size=(n, 2))]
