"""Log p(y_i | eta_i) of a distribution, its slopes, means and draws as functions of arrays."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.exceptions import UndefinedMomentException
from pymc.logprob.utils import ParameterValueError
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import io_toposort
from pytensor.graph.utils import MethodNotDefined
from pytensor.scan.op import Scan
from pytensor.tensor.subtensor import Subtensor, get_constant_idx

from pymc_skewgp._errors import DrawOverflowWarning, warn
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.gp import distribution_graph as graphs
from pymc_skewgp._model.gp.functions import Point, as_value
from pymc_skewgp._model.graph.entrywise import checked_by_entry, of_some
from pymc_skewgp._model.ops.plain_mode import inlined, plain_function
from pymc_skewgp._observations import sites
from pymc_skewgp._observations.forecasts import averaged_forecasts, drawn_forecasts, drawn_quantiles
from pymc_skewgp._observations.likelihood import Data, Mixture, as_integers, as_values
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._validation import FloatArray

# Numbers that one call works on: what it makes on the way then stays in the caches.
_BLOCK = 2**16
# The same for loops until all draws are accepted, which reserve memory for thousands of steps.
_LOOP_BLOCK = 2**12
# Predictors of one observation up to which each row of second derivatives is a graph.
_MOST_ROWS = 16
# Steps of differences, for functions that PyTensor cannot differentiate.
_STEP = 2e-4
_NO_GRADIENT = (
    NotImplementedError,
    TypeError,
    MethodNotDefined,
    pytensor.gradient.NullTypeGradError,
)
# In place of a mean that does not exist.
_UNDEFINED = "undefined"
# Steps that find the farthest predictor that can be drawn at.
_BISECTIONS = 20
_REFUSED = (ValueError, OverflowError)  # parameters out of NumPy's range
# How often predictors come a fifth nearer to 0 until a distribution function is a number.
_NEARER = 60

Parameters = Sequence[FloatArray]


def _kept(make: Callable[["SiteFunctions"], Any]) -> Any:
    """A property made when it is first asked for, for all parameters that are `given` later."""

    def get(self: "SiteFunctions") -> Any:
        if make.__name__ not in self._made:
            self._made[make.__name__] = make(self)
        return self._made[make.__name__]

    return property(get, doc=make.__doc__)


class SiteFunctions:
    """Functions of blocks of predictors, shape (S, n), with the parameters that were `given`.

    Compiled when they are first used.

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
        graph: graphs.DistributionGraph,
        distribution: graphs.Distribution | None = None,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph, self._distribution = graph, distribution
        self._compile_kwargs = compile_kwargs
        self._parameters: Parameters = ()
        self._made: dict[str, Any] = {}
        self._block = pt.tensor("eta", dtype="float64", shape=(None, graph.eta.type.shape[0]))
        self._inputs = [graph.y, self._block, *graph.parameters]

    @property
    def dtype(self) -> Any:
        """Type of the values."""
        return np.dtype(self.graph.variable.dtype)

    def at(self, y: Data, parameters: Parameters) -> sites.SitesGiven:
        """See `SiteFamily`."""
        own = self.given([np.asarray(x, np.float64) for x in parameters])
        return sites.SitesGiven(
            int(np.size(y)),
            partial(own.log_prob, y),
            partial(own.slopes, y),
            partial(own.in_parameters, y),
            has_parameters=bool(parameters),
            width=own.graph.width,
            gaussian_in=own.graph.gaussian_in,
            first=partial(own.gradient, y) if own.graph.width > 1 else None,
            some=partial(own.some, y),
        )

    def given(self, parameters: Parameters) -> "SiteFunctions":
        """The same with numbers for all parameters, nothing compiled anew."""
        found = copy(self)
        found._parameters = parameters
        return found

    def _compiled(self, output: Any, blocks: Sequence[Any] = ()) -> Any:
        y, block, *parameters = self._inputs
        inputs = [y, *(blocks or [block]), *parameters]
        if self._compile_kwargs is None:
            return plain_function(inputs, output)
        options = {"on_unused_input": "ignore", **self._compile_kwargs}
        return pytensor.function(inputs, output, **options)

    @_kept
    def _log_prob_graph(self) -> Any:
        return vectorize_graph(inlined(self.graph.log_prob), {self.graph.eta: self._block})

    @_kept
    def _log_prob(self) -> Any:
        return self._compiled(self._log_prob_graph)

    def log_prob(self, y: Any, eta: FloatArray) -> FloatArray:
        """Log p(y_i | eta_i) for `eta` of shape (..., n); -inf where it is not a number.

        Or infinite: the logarithm of a share that underflows, as far out in ``pm.Truncated``.
        """
        return self._number_or_never(partial(self._log_prob, y), eta)

    def _number_or_never(self, function: Callable[..., Any], eta: FloatArray) -> FloatArray:
        found: FloatArray = _by_blocks(
            lambda block: function(block, *self._parameters), eta, width=self.graph.width
        )
        found[~(found < np.inf)] = -np.inf
        return found

    @_kept
    def _log_prob_of_some(self) -> Any:
        """None where it is not seen that it needs no other rows."""
        rows, some = pt.lvector("rows"), pt.vector("some", dtype="float64")
        found = of_some(inlined(self.graph.log_prob), self.graph.eta, some, rows)
        if found is None:
            return None
        y, _, *parameters = self._inputs
        block = pt.matrix("eta", dtype="float64")
        return plain_function([rows, y, block, *parameters], vectorize_graph(found, {some: block}))

    def some(self, y: Any, rows: IntArray) -> sites.LogProb | None:
        """`log_prob` of some rows alone; None where only all are known."""
        function = self._log_prob_of_some
        if function is None:
            return None
        return partial(self._number_or_never, partial(function, rows, y))

    @_kept
    def _slopes(self) -> Any:
        """Of blocks of each predictor; None where PyTensor cannot differentiate.

        By one block of all, derivatives were mostly of how it is taken apart.
        """
        k = self.graph.width
        if k > _MOST_ROWS:
            return None
        whole, blocks = self._log_prob_graph, [self._block]
        if k > 1:
            parts, log_prob = _taken_apart(inlined(self.graph.log_prob), self.graph.eta, k)
            blocks = [pt.matrix("eta", dtype="float64", shape=(None, *x.type.shape)) for x in parts]
            whole = vectorize_graph(log_prob, dict(zip(parts, blocks, strict=True)))
        try:
            first = pytensor.grad(whole.sum(), blocks)
            rows = [
                pytensor.grad(x.sum(), blocks[i:], disconnected_inputs="ignore")
                for i, x in enumerate(first)
            ]
            return self._compiled([*first, *(x for row in rows for x in row)], blocks)
        except _NO_GRADIENT:
            return None

    def slopes(self, y: Any, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Its first and second derivatives in eta_i; see `SitesGiven` for several predictors."""
        k = self.graph.width
        if self._slopes is None:
            return self._differences(y, eta) if k == 1 else self._differences_of_gradient(y, eta)
        places = np.triu_indices(k)

        def each(block: FloatArray) -> FloatArray:
            parts = np.ascontiguousarray(block.reshape(len(block), -1, k).transpose(2, 0, 1))
            return np.stack(self._slopes(y, *parts, *self._parameters))

        found = _by_blocks(each, eta, leading=(k + places[0].size,), width=k)
        if k > 1:
            second = np.empty((*found.shape[1:], k, k))
            for i, j, own in zip(*places, found[k:], strict=True):
                second[..., i, j] = second[..., j, i] = own
            return np.moveaxis(found[:k], 0, -1).reshape(eta.shape), second
        # A branch that is not taken may leave its NaN in a derivative.
        wrong = ~np.isfinite(found).all(axis=0)
        if wrong.any():
            found[:, wrong] = np.stack(self._differences(y, eta))[:, wrong]
        return found[0], found[1]

    def _differences_of_gradient(self, y: Any, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slopes of several predictors: second ones from gradients at two places along each."""
        k, rows = self.graph.width, eta.reshape(-1, eta.shape[-1])
        second = np.empty((len(rows), rows.shape[1] // k, k, k))
        for found, row in zip(second, rows, strict=True):
            h = _STEP * np.maximum(1.0, np.abs(row)).reshape(-1, k)
            moved = (np.eye(k)[:, None] * h).reshape(k, -1)
            above, below = (self.gradient(y, row + sign * moved) for sign in (1.0, -1.0))
            slopes = (above - below).reshape(k, -1, k) / (2.0 * h.T[:, :, None])
            found[:] = 0.5 * (slopes.transpose(1, 0, 2) + slopes.transpose(1, 2, 0))
        return self.gradient(y, eta), second.reshape(*eta.shape[:-1], -1, k, k)

    @_kept
    def _gradient(self) -> Any:
        return self._compiled(pytensor.grad(self._log_prob_graph.sum(), self._block))

    def gradient(self, y: Any, eta: FloatArray) -> FloatArray:
        """First derivatives alone, of several predictors."""
        found: FloatArray = _by_blocks(
            lambda block: self._gradient(y, block, *self._parameters), eta
        )
        return found

    def _differences(self, y: Any, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slopes from values at three places."""
        h = _STEP * np.maximum(1.0, np.abs(eta))
        below, here, above = (self.log_prob(y, eta + k * h) for k in (-1, 0, 1))
        with np.errstate(invalid="ignore"):
            return (above - below) / (2 * h), (above - 2 * here + below) / h**2

    @_kept
    def _in_parameters(self) -> Any:
        """None where PyTensor cannot differentiate."""
        weights = pt.matrix("weights", dtype="float64")
        weighted = (weights * self._log_prob_graph).sum()
        y, block, *parameters = self._inputs
        try:
            found = pytensor.grad(weighted, parameters, disconnected_inputs="ignore")
        except _NO_GRADIENT:
            return None
        return plain_function([y, block, weights, *parameters], found)

    def in_parameters(self, y: Any, eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        """Derivatives of the sum of weights times `log_prob`, shape (k, n), in each parameter."""
        total = [np.zeros(np.shape(x)) for x in self._parameters]
        step = max(1, _BLOCK // max(eta.shape[1], 1))
        for start in range(0, eta.shape[0] if total else 0, step):
            few = slice(start, start + step)
            found = self._of_few(y, eta[few], weights[few])
            total = [x + part for x, part in zip(total, found, strict=True)]
        return total

    def _of_few(self, y: Any, eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        if self._in_parameters is not None:
            found: list[FloatArray] = self._in_parameters(y, eta, weights, *self._parameters)
            if all(np.isfinite(x).all() for x in found):
                return found
        return sites.parameter_differences(
            lambda moved: self.given(moved).log_prob(y, eta), self._parameters, weights
        )

    @property
    def _of_values(self) -> Any:
        """Shape of the values at a block of predictors."""
        n_rows, n_predictors = self._block.shape
        return n_rows, n_predictors // self.graph.width

    @_kept
    def _moments(self) -> Any:
        """Of mean and standard deviation; None where they are not known."""
        try:
            found = graphs.moments(self.graph.variable)
            made = [vectorize_graph(x, {self.graph.eta: self._block}) for x in found]
        except UndefinedMomentException:
            return _UNDEFINED
        except Exception:  # of many kinds: there is no rule, or PyTensor cannot vectorise it
            return None
        shape = self._of_values
        return plain_function(self._inputs[1:], [pt.broadcast_to(x, shape) for x in made])

    @property
    def has_mean(self) -> bool:
        """Whether the distribution has a mean, be it that nobody knows it."""
        return self._moments is not _UNDEFINED

    def moments_each(self, eta: FloatArray) -> Any:
        """Mean and standard deviation given predictors of any shape, of one value; or None."""
        function = self._moments
        if function in (None, _UNDEFINED):
            return None
        return _by_blocks(
            lambda block: np.stack(function(block, *self._parameters)), eta[..., None], leading=(2,)
        )[..., 0]

    @_kept
    def _cdf(self) -> Any:
        """Of the log distribution function."""
        graph = self.graph
        y = pt.tensor("y", dtype=graph.variable.dtype, shape=(None, graph.y.type.shape[0]))
        each = pm.logcdf(graph.variable, graph.y, warn_rvs=False)
        each = checked_by_entry(each, graph.eta, broken=np.nan)
        found = vectorize_graph(each, {graph.eta: self._block, graph.y: y})
        return plain_function([y, *self._inputs[1:]], pt.broadcast_to(found, self._of_values))

    @_kept
    def has_cdf(self) -> bool:
        """Whether PyMC has the distribution function, for many values."""
        block = np.zeros((3, *self.graph.eta.type.shape))
        try:
            self.cdf(block, block)
        except Exception:  # of many kinds, such as that it takes one value only
            return False
        return True

    def cdf(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """P(y_i at most this, given eta_i), both of shape (..., n).

        Where parameters are beyond double precision, that of a predictor that is nearer to 0.
        """
        values = np.floor(y).astype(self.dtype) if self.dtype.kind in "iub" else y
        found = self._cdf_at(values, eta)
        for _ in range(_NEARER):
            unknown = np.isnan(found)
            if not unknown.any():
                break
            eta = np.where(unknown, 0.8 * eta, eta)
            found = np.where(unknown, self._cdf_at(values, eta), found)
        return found

    def _cdf_at(self, y: Any, eta: FloatArray) -> FloatArray:
        n = eta.shape[-1]
        if not eta.size:
            return np.zeros(eta.shape)
        with np.errstate(all="ignore"):
            found = self._cdf(y.reshape(-1, n), eta.reshape(-1, n), *self._parameters)
        return np.exp(found).reshape(eta.shape)

    def cdf_each(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """P(a value is at most y) given predictors, of shapes that broadcast; of one value."""
        y, eta = (x[..., None] for x in np.broadcast_arrays(y, eta))
        return self.cdf(y, eta)[..., 0]

    @_kept
    def can_draw(self) -> bool:
        """Whether PyMC can draw values."""
        try:
            self.draws(np.zeros(self.graph.eta.type.shape), np.random.default_rng(0))
        except NotImplementedError:
            return False
        return True

    def draws(self, eta: FloatArray, rng: np.random.Generator) -> Any:
        """Values given predictors, as many as these, or one for each K of them.

        At predictors so large that NumPy refuses parameters, the others are drawn as they are, and
        these at the nearest predictor that can be.
        """
        beyond: list[int] = []

        def drawn(block: FloatArray) -> Any:
            try:
                return self._draw(block, rng)
            except _REFUSED:
                return nearer(block)

        def nearer(block: FloatArray) -> Any:
            best, centre = None, np.median(block)
            good, bad = 0.0, np.abs(block - centre).max()
            for _ in range(_BISECTIONS):
                middle = 0.5 * (good + bad)
                clipped = np.clip(block, centre - middle, centre + middle)
                try:
                    best, good = (self._draw(clipped, rng), clipped), middle
                except _REFUSED:
                    bad = middle
            if best is None:
                raise
            beyond.append(int((best[1] != block).sum()))
            return best[0]

        # Draws that are made again and again until all are accepted.
        nodes = self._drawing[0].maker.fgraph.apply_nodes
        size = _LOOP_BLOCK if any(isinstance(node.op, Scan) for node in nodes) else _BLOCK
        found = _by_blocks(drawn, eta, self.dtype, size=size, width=self.graph.width)
        if beyond and self.dtype.kind in "iu":  # what has a largest number
            warn(
                f"{sum(beyond)} of {found.size} draws of {self.graph.name} are at predictors "
                "beyond what NumPy can draw at, and the nearest that it can stands for them. It is "
                "these draws of y alone: means, standard deviations and quantiles do not use them.",
                DrawOverflowWarning,
                stacklevel=2,
            )
        return found

    def _draw(self, block: FloatArray, rng: np.random.Generator) -> Any:
        function, n_generators, one_vector = self._drawing

        def draw(eta: FloatArray) -> Any:
            seeds = rng.integers(2**63, size=(n_generators, 2))
            return function(eta, *self._parameters, *map(np.random.default_rng, seeds))

        return np.stack([draw(row) for row in block]) if one_vector else draw(block)

    @_kept
    def _drawing(self) -> tuple[Any, int, bool]:
        """A function that draws, how many generators it takes, and whether of one vector only."""
        graph, block = self.graph, self._block
        vectorized = partial(vectorize_graph, graph.variable, {graph.eta: block})
        for many in (vectorized, self._called_with_block):
            try:
                return *graphs.drawing(block, many(), graph.parameters, graph.width), False
            except Exception:  # PyTensor cannot vectorise the graphs that some variables are
                continue
        return *graphs.drawing(graph.eta, graph.variable, graph.parameters, graph.width), True

    def _called_with_block(self) -> Any:
        """The user's function of a matrix; ValueError where that is not the same as of each row."""
        if self._distribution is None or self.graph.parameters:
            raise ValueError("its parameters are random variables of a model.")
        k = self.graph.width
        variable = self._distribution(*(self._block[:, i::k] for i in range(k)))
        y = pt.matrix("y", dtype=variable.dtype)
        log_prob = plain_function([y, self._block], pm.logp(variable, y, warn_rvs=False))
        n = self.graph.eta.type.shape[0]
        eta = np.random.default_rng(0).standard_normal((2 if n == 3 else 3, n))
        values = np.ones((len(eta), n // k), dtype=variable.dtype)
        one = plain_function([self.graph.y, self.graph.eta], self.graph.log_prob)
        found, expected = log_prob(values, eta), [one(values[0], row) for row in eta]
        if variable.type.ndim != 2 or not np.allclose(found, expected, equal_nan=True):
            raise ValueError("of a matrix the distribution is not that of its rows.")
        return variable

    def draw_each(self, eta: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Values given predictors of any shape, or (..., K), of a distribution of one value."""
        each = eta[..., None] if self.graph.width == 1 else eta
        return np.asarray(self.draws(each, rng)[..., 0], dtype=np.float64)


def _taken_apart(graph: Any, eta: Any, k: int) -> tuple[list[Any], Any]:
    """Vectors in the places of ``eta[i::k]``, and a graph of them."""
    size = eta.type.shape[0]
    parts = [pt.vector("eta", dtype="float64", shape=(size and size // k,)) for _ in range(k)]
    found = {eta: pt.stack(parts, axis=-1).ravel()}
    for node in io_toposort([eta], [graph]):
        if eta in node.inputs and isinstance(node.op, Subtensor):
            (index,) = get_constant_idx(node.op.idx_list, node.inputs, allow_partial=True)
            if isinstance(index, slice) and index.step == k:
                found[node.outputs[0]] = parts[index.start or 0]
    return parts, graph_replace([graph], found, strict=False)[0]


def _by_blocks(
    function: Callable[[FloatArray], Any],
    eta: FloatArray,
    dtype: Any = float,
    leading: tuple[int, ...] = (),
    size: int = _BLOCK,
    width: int = 1,
) -> Any:
    """A function of a few rows of predictors, shape (S, n), for those of shape (..., n).

    Or one number for each `width` of them.
    """
    rows = np.asarray(eta, dtype=np.float64).reshape(-1, eta.shape[-1])
    found = np.empty((*leading, len(rows), rows.shape[1] // width), dtype=dtype)
    step = max(1, size // max(rows.shape[1], 1))
    with np.errstate(all="ignore"):  # infinities far out are as they should be
        for start in range(0, rows.shape[0], step):
            found[..., start : start + step, :] = function(rows[start : start + step])
    return found.reshape(*leading, *eta.shape[:-1], found.shape[-1])


# Any PyMC distribution of independent values as a likelihood of sites.

# Predictors at which y has to be possible: y itself is added, as some supports move along.
_PLACES = (-10.0, -3.0, -1.0, 0.0, 1.0, 3.0, 10.0)
# By how much some predictors are moved, to see that the log p of the others stay.
_MOVES = (0.01, 1.0, 10.0)


class DistributionSites(sites.SiteLikelihood):
    r"""Values :math:`y_i \sim p(y_i \mid f(x_i))`, p being a PyMC distribution.

    `SkewGP.posterior` makes it of a function from a vector of predictors to an unnamed
    distribution of as many values.

    Parameters
    ----------
    distribution : callable
        Such as ``lambda eta: pm.Poisson.dist(pm.math.exp(eta))``, or, of K functions,
        ``lambda f, g: pm.Normal.dist(f, pm.math.exp(g))``. What is not a function of the
        predictors is a number, or has one value for each row of X.
    point : mapping
        Values, by name, of random variables that it depends on.
    shared : dict, optional
        Functions of the parameters by number of values, which other values of these use as well.
    """

    divisible = False  # what it depends on may have a value for each row
    single = False

    def __init__(
        self,
        distribution: graphs.Distribution,
        point: Point,
        shared: dict[int, SiteFunctions] | None = None,
    ) -> None:
        self._distribution, self._point = distribution, dict(point)
        self._shared = {} if shared is None else shared
        self._known: dict[int, SiteFunctions] = {}

    def __repr__(self) -> str:
        return f"DistributionSites({getattr(self._distribution, '__name__', self._distribution)})"

    def __getstate__(self) -> dict[str, Any]:
        return {"point": self._point, "distribution": cloudpickle.dumps(self._distribution)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(cloudpickle.loads(state["distribution"]), state["point"])  # type: ignore[misc]

    def with_parameters(self, values: Point) -> "DistributionSites":
        """The same with other values of random variables, nothing compiled anew."""
        return DistributionSites(self._distribution, {**self._point, **values}, self._shared)

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values within the support, of a distribution that factorises."""
        functions = self.functions_of(n)
        whole = functions.dtype.kind in "iub"
        data = as_integers(y, n, "value") if whole else as_values(y, n)
        try:
            _refuse_impossible(functions, data)
        except ParameterValueError as error:
            raise ValueError(
                f"a parameter of {functions.graph.name} is outside of its range, which is "
                f"{str(error).splitlines()[0]}."
            ) from error
        _refuse_coupled(functions, data)
        return data

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i), every constant included, f of shape (..., n) or (..., n, K)."""
        return self.functions_of(y.size).log_prob(y, self._flat(f))

    def sites_at(self, names: Sequence[str], y: Data, parameters: Parameters) -> sites.SitesGiven:
        """See `SiteLikelihood`."""
        return self.functions_of(y.size).at(y, parameters)

    def slopes(self, y: Data, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of log p(y_i | f_i) in f_i."""
        first, second = self.functions_of(y.size).slopes(y, self._flat(f))
        return first.reshape(f.shape), second

    def n_functions(self, y: Data) -> int:
        """K."""
        return len(self._names)

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Names of the functions, where there are several."""
        return {"function": self._names} if len(self._names) > 1 else {}

    def gaussian_in(self, y: Data) -> int | None:
        """See `SiteLikelihood`."""
        return self.functions_of(y.size).graph.gaussian_in

    def _flat(self, f: FloatArray) -> FloatArray:
        """The functions at a row one after the other."""
        return f.reshape(*f.shape[:-2], -1) if len(self._names) > 1 else f

    @cached_property
    def _names(self) -> list[str]:
        return graphs.predictor_names(self._distribution)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data | None:
        """New values at the rows of the data; None where PyMC cannot draw them."""
        functions = self.functions_of(y.size)
        return functions.draws(self._flat(f), rng) if functions.can_draw else None

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``y``, where the distribution has no constants of its own for each row."""
        single = self._single
        if single is None or not single.can_draw:
            return {}
        each = f[..., None] if single.graph.width == 1 else f
        return {"y": single.draws(each, rng)[..., 0]}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` with their errors, where there is a mean."""
        single = self._single
        if single is None or not single.has_mean:
            return {}
        if single.graph.width == 1 and single.moments_each(np.zeros(1)) is not None:
            return averaged_forecasts(mixture, single.moments_each)
        return drawn_forecasts(mixture, single.draw_each) if single.can_draw else {}

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` with its error, where there is a distribution function or draws."""
        single = self._single
        if single is None:
            return {}
        if single.graph.width == 1 and single.has_cdf:
            whole = single.dtype.kind in "iub"
            new = NewValues(mixture, single.cdf_each)
            return (new.whole_quantiles(probs) if whole else new.real_quantiles(probs)).named()
        return drawn_quantiles(mixture, single.draw_each, probs) if single.can_draw else {}

    def refuse_impossible_mean(self, y: ArrayLike, mean: FloatArray, where: str = "") -> None:
        """Refuse data that are impossible where the prior has its mean."""
        data = self.as_data(y, mean.size)
        k = self.n_functions(data)
        log_prob = self.log_likelihood(data, mean if k == 1 else np.repeat(mean[:, None], k, 1))
        wrong = ~np.isfinite(log_prob)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                f"{where}the log likelihood is not finite at the prior mean in {int(wrong.sum())} "
                f"of {data.size} row(s): row {i} has y = {data[i]:.6g}, eta = {mean[i]:.6g} and "
                f"log p = {log_prob[i]:.6g}. Use a link under which every predictor is possible, "
                "such as pm.math.exp(eta), or another mean_func."
            )

    def functions_of(self, n: int) -> SiteFunctions:
        """Of `n` values, at the point.

        Raises
        ------
        TypeError, ValueError
            Where a constant has one number for each row of the data, or there is no value of a
            hyperparameter.
        """
        if n not in self._known:
            if n not in self._shared:
                graph = graphs.distribution_graph(self._distribution, n, self._point)
                self._shared[n] = SiteFunctions(graph, self._distribution)
            random = self._shared[n].graph.random
            missing = [v.name for v in random if v.name not in self._point]
            if missing:
                raise ValueError(
                    f"the likelihood depends on the random variable(s) {', '.join(missing)} of a "
                    f"model: give values, as in point={{{missing[0]!r}: 1.0}}, or write the "
                    "likelihood as an observed variable of that model, with f from gp.prior, and "
                    "use pm.sample."
                )
            values = [as_value(v, self._point[v.name]).data for v in random]
            self._known[n] = self._shared[n].given(values)
        return self._known[n]

    def is_same_of(self, index: IntArray, y: Data) -> bool:
        """Whether some of the rows by themselves have the log p that they have among all rows."""
        places, k = np.asarray(_PLACES)[:, None], self.n_functions(y)
        try:
            own = self.functions_of(index.size).log_prob(y[index], np.tile(places, k * index.size))
        except (TypeError, ValueError):
            return False
        among = self.functions_of(y.size).log_prob(y, np.tile(places, k * y.size))[:, index]
        return bool(np.array_equal(own, among))

    @property
    def _single(self) -> SiteFunctions | None:
        """Of one value; None where a constant has one number for each row of the data."""
        try:
            return self.functions_of(1)
        except (TypeError, ValueError):
            return None


def _refuse_impossible(functions: SiteFunctions, y: Data) -> None:
    """Refuse values that have no probability at any predictor."""
    with np.errstate(all="ignore"):
        own = [y * 1.0, np.log(np.abs(y) + (y == 0)), np.nan_to_num(1.0 / y)]
    places = np.stack([*(np.full(y.size, place) for place in _PLACES), *own])
    if (k := functions.graph.width) > 1:  # all predictors there, or the first and others at 0
        first = np.zeros((*places.shape, k))
        first[..., 0] = places
        places = np.concatenate([np.repeat(places, k, axis=1), first.reshape(len(places), -1)])
    log_prob = functions.log_prob(y, places)
    wrong = ~np.isfinite(log_prob).any(axis=0)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"y is outside of the support of {functions.graph.name} in {int(wrong.sum())} of "
            f"{y.size} row(s): row {i} has {y[i]:.6g}, whose log p is {log_prob[3, i]:.6g} at "
            "eta = 0 and finite at no predictor that was tried. Correct these values, or drop "
            "those rows."
        )


def _refuse_coupled(functions: SiteFunctions, y: Data) -> None:
    """Refuse a log probability of which an entry changes when other predictors do."""
    n, k = y.size, functions.graph.width
    if n == 1:
        return
    rng = np.random.default_rng(0)
    centre = rng.standard_normal(n * k)
    moved = rng.random((2 * len(_MOVES), n)) < 0.5
    moved[1::2] = ~moved[::2]
    every = np.repeat(moved, k, axis=1)
    moves = np.repeat(_MOVES, 2)[:, None] * rng.standard_normal(every.shape)
    before = functions.log_prob(y, centre[None, :])
    after = functions.log_prob(y, np.where(every, centre + moves, centre))
    changed = ~moved & (after != before)
    if changed.any():
        doubt = functions.graph.doubt
        operation = "an operation" if doubt is None else doubt.operation
        raise graphs.coupled(functions.graph.name, operation)
