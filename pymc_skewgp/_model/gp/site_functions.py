"""Log p(y_i | eta_i) of a distribution, its slopes, means and draws as functions of arrays."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.moments.means import mean
from pymc.exceptions import UndefinedMomentException
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorConstant

from pymc_skewgp._model.gp.distribution_graph import Distribution, DistributionGraph
from pymc_skewgp._model.graph.entrywise import Coupling
from pymc_skewgp._model.graph.likelihoods.probit_link import without_expansion
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._model.ops.plain_mode import PLAIN_LOOPS
from pymc_skewgp._observations.learnt_sites import parameter_differences
from pymc_skewgp._validation import FloatArray

# Numbers that one call works on: what it makes on the way then stays in the caches.
_BLOCK = 2**16
# The same for loops until all draws are accepted, which reserve memory for thousands of steps.
_LOOP_BLOCK = 2**12
# Steps of differences, for functions that PyTensor cannot differentiate.
_STEP = 2e-4
_NO_GRADIENT = (NotImplementedError, TypeError, pytensor.gradient.NullTypeGradError)
# In place of a mean that does not exist.
_UNDEFINED = "undefined"


Parameters = Sequence[FloatArray]


class SiteFunctions:
    """Functions of blocks of predictors, shape (S, n), compiled when they are first used.

    Parameters
    ----------
    graph : DistributionGraph
        Of n values.
    distribution : callable, optional
        What it came from; draws of many vectors at once are tried by it first. None where no draws
        are asked for.
    compile_kwargs : mapping, optional
        Of ``pytensor.function``, for what is called thousands of times. Default NumPy, without
        compilation.
    """

    def __init__(
        self,
        graph: DistributionGraph,
        distribution: Distribution | None = None,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._graph, self._distribution = graph, distribution
        self._compile_kwargs = compile_kwargs
        self._can_draw: bool | None = None
        self._block = pt.tensor("eta", dtype="float64", shape=(None, graph.eta.type.shape[0]))

    @property
    def name(self) -> str:
        """What PyMC calls the distribution."""
        return self._graph.name

    @property
    def doubt(self) -> Coupling | None:
        """An operation of which it is not known whether it keeps entries apart."""
        return self._graph.doubt

    @property
    def dtype(self) -> Any:
        """Type of the values."""
        return np.dtype(self._graph.variable.dtype)

    def log_prob(self, y: Any, eta: FloatArray, parameters: Parameters = ()) -> FloatArray:
        """Log p(y_i | eta_i) for `eta` of shape (..., n); -inf where it is not a number."""
        found = _by_blocks(lambda block: self._log_prob_function(y, block, *parameters), eta)
        found[np.isnan(found)] = -np.inf
        return found

    def slopes(
        self, y: Any, eta: FloatArray, parameters: Parameters = ()
    ) -> tuple[FloatArray, FloatArray]:
        """Its first and second derivatives in eta_i."""
        function = self._slopes_function
        if function is None:
            return self._differences(y, eta, parameters)
        first, second = _by_blocks(
            lambda block: np.stack(function(y, block, *parameters)), eta, leading=(2,)
        )
        # A branch that is not taken may leave its NaN in a derivative.
        wrong = ~(np.isfinite(first) & np.isfinite(second))
        if wrong.any():
            differences = self._differences(y, eta, parameters)
            for own, other in zip((first, second), differences, strict=True):
                own[wrong] = other[wrong]
        return first, second

    def in_parameters(
        self, y: Any, eta: FloatArray, weights: FloatArray, parameters: Parameters
    ) -> list[FloatArray]:
        """Derivatives of the sum of weights times `log_prob`, shape (k, n), in each parameter."""
        if not parameters:
            return []
        found = [np.zeros(np.shape(x)) for x in parameters]
        step = max(1, _BLOCK // max(eta.shape[1], 1))
        for start in range(0, eta.shape[0], step):
            own = slice(start, start + step)
            for total, part in zip(
                found, self._in_parameters(y, eta[own], weights[own], parameters), strict=True
            ):
                total += part
        return found

    @property
    def has_mean(self) -> bool:
        """Whether the distribution has a mean, be it that PyMC does not know it."""
        return self._mean_function is not _UNDEFINED

    def mean(self, eta: FloatArray, parameters: Parameters = ()) -> FloatArray | None:
        """Mean of y_i given eta_i; None where PyMC does not know it."""
        function = self._mean_function
        if function in (None, _UNDEFINED):
            return None
        return _by_blocks(lambda block: function(block, *parameters), eta)

    def can_draw(self, parameters: Parameters = ()) -> bool:
        """Whether PyMC can draw values."""
        if self._can_draw is None:
            here = np.zeros(self._graph.eta.type.shape)
            try:
                self.draws(here, np.random.default_rng(0), parameters)
                self._can_draw = True
            except NotImplementedError:
                self._can_draw = False
        return self._can_draw

    def draws(self, eta: FloatArray, rng: np.random.Generator, parameters: Parameters = ()) -> Any:
        """Values given predictors, as many as these."""
        nodes = self._draw_function[0].maker.fgraph.apply_nodes
        size = _LOOP_BLOCK if any(isinstance(node.op, Scan) for node in nodes) else _BLOCK
        return _by_blocks(
            lambda block: self._draw(block, rng, parameters), eta, self.dtype, size=size
        )

    def _compiled(self, output: Any) -> Any:
        if self._compile_kwargs is None:
            return plain_function(self._inputs, output)
        options = {"on_unused_input": "ignore", **self._compile_kwargs}
        return pytensor.function(self._inputs, output, **options)

    @cached_property
    def _log_prob_graph(self) -> Any:
        return vectorize_graph(self._graph.log_prob, {self._graph.eta: self._block})

    @cached_property
    def _log_prob_function(self) -> Any:
        return self._compiled(self._log_prob_graph)

    @cached_property
    def _slopes_function(self) -> Any:
        """Of both slopes; None where PyTensor cannot differentiate."""
        try:
            first = pytensor.grad(self._log_prob_graph.sum(), self._block)
            second = pytensor.grad(first.sum(), self._block, disconnected_inputs="ignore")
            return self._compiled([first, second])
        except _NO_GRADIENT:
            return None

    @cached_property
    def _parameters_function(self) -> Any:
        """Of the derivatives in parameters; None where PyTensor cannot differentiate."""
        weights = pt.matrix("weights", dtype="float64")
        try:
            weighted = (weights * self._log_prob_graph).sum()
            found = pytensor.grad(
                weighted, list(self._graph.parameters), disconnected_inputs="ignore"
            )
        except _NO_GRADIENT:
            return None
        y, block, *parameters = self._inputs
        return plain_function([y, block, weights, *parameters], found)

    @property
    def _inputs(self) -> list[Any]:
        return [self._graph.y, self._block, *self._graph.parameters]

    @cached_property
    def _mean_function(self) -> Any:
        try:
            found = vectorize_graph(mean(self._graph.variable), {self._graph.eta: self._block})
        except UndefinedMomentException:
            return _UNDEFINED
        except Exception:  # of many kinds: PyMC has no rule, or PyTensor cannot vectorise it
            return None
        inputs = [self._block, *self._graph.parameters]
        return plain_function(inputs, pt.broadcast_to(found, self._block.shape))

    @cached_property
    def _draw_function(self) -> tuple[Any, int, bool]:
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
        found, expected = log_prob(values, eta), self._log_prob_function(values[0], eta)
        if variable.type.ndim != 2 or not np.allclose(found, expected, equal_nan=True):
            raise ValueError("of a matrix the distribution is not that of its rows.")
        return variable

    def _draw(self, block: FloatArray, rng: np.random.Generator, parameters: Parameters) -> Any:
        function, n_generators, one_vector = self._draw_function
        if not one_vector:
            return function(block, *parameters, *_children(rng, n_generators))
        return np.stack(
            [function(row, *parameters, *_children(rng, n_generators)) for row in block]
        )

    def _in_parameters(
        self, y: Any, eta: FloatArray, weights: FloatArray, parameters: Parameters
    ) -> list[FloatArray]:
        function = self._parameters_function
        if function is not None:
            found: list[FloatArray] = function(y, eta, weights, *parameters)
            if all(np.isfinite(x).all() for x in found):
                return found
        return parameter_differences(
            lambda moved: self.log_prob(y, eta, moved), parameters, weights
        )

    def _differences(
        self, y: Any, eta: FloatArray, parameters: Parameters
    ) -> tuple[FloatArray, FloatArray]:
        """Slopes from values at three places."""
        h = _STEP * np.maximum(1.0, np.abs(eta))
        below, here, above = (self.log_prob(y, eta + k * h, parameters) for k in (-1, 0, 1))
        with np.errstate(invalid="ignore"):
            return (above - below) / (2 * h), (above - 2 * here + below) / h**2


class FunctionsAt:
    """`SiteFunctions` with numbers for all parameters, as many sets of them as wanted.

    Parameters
    ----------
    functions : SiteFunctions
    parameters : sequence of ndarray
    """

    def __init__(self, functions: SiteFunctions, parameters: Parameters = ()) -> None:
        self._functions, self._parameters = functions, parameters
        self.name, self.doubt, self.dtype = functions.name, functions.doubt, functions.dtype

    def log_prob(self, y: Any, eta: FloatArray) -> FloatArray:
        """See `SiteFunctions`."""
        return self._functions.log_prob(y, eta, self._parameters)

    def slopes(self, y: Any, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `SiteFunctions`."""
        return self._functions.slopes(y, eta, self._parameters)

    @property
    def has_mean(self) -> bool:
        """See `SiteFunctions`."""
        return self._functions.has_mean

    def mean(self, eta: FloatArray) -> FloatArray | None:
        """See `SiteFunctions`."""
        return self._functions.mean(eta, self._parameters)

    @property
    def can_draw(self) -> bool:
        """See `SiteFunctions`."""
        return self._functions.can_draw(self._parameters)

    def draws(self, eta: FloatArray, rng: np.random.Generator) -> Any:
        """See `SiteFunctions`."""
        return self._functions.draws(eta, rng, self._parameters)

    def draw_each(self, eta: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Values given predictors of any shape, of a distribution of one value."""
        return np.asarray(self.draws(eta[..., None], rng)[..., 0], dtype=np.float64)


def _drawing(eta: Any, variable: Any, parameters: Sequence[Any]) -> tuple[Any, int]:
    """Draws of a random variable as a function of predictors and generators."""
    known = list(ancestors([variable]))
    sources = [v for v in known if isinstance(v.type, RandomType) and v.owner is None]
    generators = [source.type() for source in sources]
    # SciPy's random variables write to their parameters, which constants of PyTensor refuse.
    given = [x for v in known if _is_variable(v) for x in v.owner.op.dist_params(v.owner)]
    whole = {y for x in given for y in without_expansion(x)}  # an integer elsewhere is a shape, say
    constants = [
        v
        for v in known
        if isinstance(v, TensorConstant) and (v.dtype.startswith("float") or v in whole)
    ]
    shared = [pytensor.shared(np.array(v.data), shape=v.type.shape) for v in constants]
    replace = dict(zip([*sources, *constants], [*generators, *shared], strict=True))
    (drawn,) = graph_replace([variable], replace, strict=False)
    output = pt.broadcast_to(drawn, eta.shape)
    inputs = [eta, *parameters, *generators]
    options = {"mode": PLAIN_LOOPS, "on_unused_input": "ignore"}
    return pytensor.function(inputs, output, **options), len(sources)


def _is_variable(v: Any) -> bool:
    return isinstance(getattr(v.owner, "op", None), RandomVariable)


def _children(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in rng.integers(2**63, size=(n, 2))]


def _by_blocks(
    function: Callable[[FloatArray], Any],
    eta: FloatArray,
    dtype: Any = float,
    leading: tuple[int, ...] = (),
    size: int = _BLOCK,
) -> Any:
    """A function of a few rows of predictors, shape (S, n), for those of shape (..., n)."""
    rows = np.asarray(eta, dtype=np.float64).reshape(-1, eta.shape[-1])
    found = np.empty((*leading, *rows.shape), dtype=dtype)
    step = max(1, size // max(rows.shape[1], 1))
    with np.errstate(all="ignore"):  # infinities far out are as they should be
        for start in range(0, rows.shape[0], step):
            found[..., start : start + step, :] = function(rows[start : start + step])
    return found.reshape(*leading, *eta.shape)
