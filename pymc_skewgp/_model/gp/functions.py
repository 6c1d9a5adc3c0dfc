"""``pm.gp`` covariances and means as functions of arrays, and of their derivatives as graphs.

Sums and products of kernels are taken apart, kernels of the distance have closed forms, and the
others are differentiated by PyTensor: entry (i, j) of a kernel's matrix depends on row i of X and
row j of Xs alone, so that one tangent, a unit vector in every row, gives every entry's derivative.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import product
from math import comb, factorial, prod
from typing import Any, NoReturn

import cloudpickle
import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.gp import cov as pm_cov
from pymc.gp.hsgp_approx import calc_eigenvalues
from pytensor.gradient import pushforward
from pytensor.graph.basic import Apply
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import RandomType

from pymc_skewgp._errors import ApproximationError, NotDifferentiableError
from pymc_skewgp._model.ops.plain_mode import plain_function
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp._validation import FloatArray, refuse_masked, refuse_other_kinds
from pymc_skewgp.cov import NeuralNetwork

# Derivatives of kernels of the scaled distance, in closed form.
#
# With :math:`k(x, t) = h(s)`, :math:`s = \sum_i z_i^2` and :math:`z_i = (x_i - t_i) / \ell_i`,
#
# .. math::
#
#     \frac{\partial^n h}{\partial z^n} = \sum_{2j \le n} \frac{n!}{j!\,(n - 2j)!}
#     (2z)^{n - 2j} h^{(n-j)}(s)
#
# (Faa di Bruno's formula for a square). PyMC's own graphs cannot be differentiated where x and t
# are equal: they clip s at 0, which leaves f' without variance there, and have roots of s.

# Under a root of a distance: what it is multiplied with vanishes faster, and its inverse fourth
# power, in gradients of fourth derivatives, is still a number.
_TINY = 1e-60


def radial_derivative(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    """Covariance of a derivative of f at `X` with another one at `Xs`, as a graph (n, m)."""
    difference = _differences(kernel, X, Xs)
    s = pt.sum(pt.square(difference), axis=2)
    orders: dict[int, int] = {}  # by active feature
    scale: Any = (-1.0) ** right.order
    scales = pt.ones(kernel.n_dims) * kernel.ls
    for feature, order in (left, right):
        if order:
            i = list(kernel.active_dims).index(feature)
            orders[i] = orders.get(i, 0) + order
            scale = scale / scales[i] ** order
    of_distance = _OF_DISTANCE[type(kernel)]
    total: Any = 0.0
    for halves in product(*(range(n // 2 + 1) for n in orders.values())):
        term: Any = 1.0
        for (i, n), j in zip(orders.items(), halves, strict=True):
            term = term * factorial(n) / (factorial(j) * factorial(n - 2 * j))
            if n > 2 * j:
                term = term * (2.0 * difference[:, :, i]) ** (n - 2 * j)
        total = total + term * of_distance(kernel, sum(orders.values()) - sum(halves), s)
    return scale * total


def _differences(kernel: Any, X: Any, Xs: Any) -> Any:
    """Scaled differences of the active features, shape (n, m, d)."""
    left, right = (pt.as_tensor_variable(x)[:, kernel.active_dims] / kernel.ls for x in (X, Xs))
    return left[:, None, :] - right[None, :, :]


def _rat_quad(kernel: Any, m: int, s: Any) -> Any:
    alpha = kernel.alpha
    rising = prod(alpha + j for j in range(m))
    return (-0.5 / alpha) ** m * rising * (1.0 + 0.5 * s / alpha) ** (-alpha - m)


def _matern52(kernel: Any, m: int, s: Any) -> Any:
    r = pt.sqrt(5.0 * pt.maximum(s, _TINY))
    # In units of r: each derivative in s is that in r, times 5 / (2 r).
    inner = 1.0 + r if m == 1 else -2.5 * _after_root(m - 2, r, 2.5)
    return (-5.0 / 6.0) * inner * pt.exp(-r)


def _matern32(kernel: Any, m: int, s: Any) -> Any:
    r = pt.sqrt(3.0 * pt.maximum(s, _TINY))
    return -1.5 * _after_root(m - 1, r, 1.5) * pt.exp(-r)


def _after_root(m: int, r: Any, half: float) -> Any:
    """The m-th derivative of exp(-r) in s over exp(-r), dr/ds = half / r; m is 2 at most."""
    if m == 0:
        return 1.0
    return -half / r if m == 1 else half**2 * (1.0 / r**2 + 1.0 / r**3)


# The m-th derivative of h, m from 1, as a function of (kernel, m, s).
_OF_DISTANCE: dict[type, Callable[[Any, int, Any], Any]] = {
    pm_cov.ExpQuad: lambda kernel, m, s: (-0.5) ** m * pt.exp(-0.5 * s),
    pm_cov.RatQuad: _rat_quad,
    pm_cov.Matern52: _matern52,
    pm_cov.Matern32: _matern32,
}
# How often their functions can be differentiated.
_SMOOTHNESS = {
    **dict.fromkeys((pm_cov.ExpQuad, pm_cov.RatQuad), np.inf),
    **{pm_cov.Matern52: 2, pm_cov.Matern32: 1, pm_cov.Matern12: 0, pm_cov.Exponential: 0},
}

_SMOOTH = "use ExpQuad, RatQuad or Matern52"


# Known to be smooth as their graphs have them, apart from the kernels inside of them.
_AUTOMATIC = (
    pm_cov.Linear,
    pm_cov.Periodic,
    pm_cov.Gibbs,
    pm_cov.ScaledCov,
    pm_cov.WarpedInput,
    pm_cov.WrappedPeriodic,
    pm_cov.Exponentiated,
    pm_cov.Kron,
    NeuralNetwork,
)
_WITH_A_KINK = (ps.Abs, ps.Sqrt)


def derivative_covariance(
    cov_func: Any, X: Any, Xs: Any, left: Derivative | None, right: Derivative | None
) -> Any:
    """Covariance of one derivative of f at `X` with another one at `Xs`.

    Parameters
    ----------
    cov_func : pymc.gp.cov.BaseCovariance
    X, Xs : matrix, (n, d) and (m, d)
        Graphs whose number of columns is known.
    left, right : Derivative, or None
        What is taken of f at either; None for f itself.

    Returns
    -------
    TensorVariable, (n, m)

    Raises
    ------
    NotDifferentiableError
        It says which kernel is not smooth enough, or not known to be.
    """
    nothing = Derivative(0, 0)
    return _derivative(cov_func, X, Xs, left or nothing, right or nothing)


def derivative_mean(mean_func: Any, X: Any, derivative: Derivative) -> Any:
    """Derivative of a mean function at the rows of `X`, as a graph (n,)."""
    inputs = pt.matrix("X", shape=X.type.shape)
    value = pt.as_tensor_variable(mean_func(inputs)).flatten()
    value = pt.broadcast_to(value, (inputs.shape[0],))
    for _ in range(derivative.order):
        value = _pushed_forward(value, inputs, derivative.feature)
    return graph_replace(value, {inputs: X}, strict=False)


def _derivative(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    if isinstance(kernel, pm_cov.Add):
        parts = [_derivative(factor, X, Xs, left, right) for factor in kernel._factor_list]
        return sum(parts[1:], parts[0])
    if isinstance(kernel, pm_cov.Prod):
        return _of_product(kernel._factor_list, X, Xs, left, right)
    if not isinstance(kernel, pm_cov.BaseCovariance):
        return _of_constant(kernel, X, Xs, left, right)
    if not left.order and not right.order:
        return kernel(X, Xs)
    if isinstance(kernel, pm_cov.Constant):
        return pt.zeros((X.shape[0], Xs.shape[0]))
    if isinstance(kernel, pm_cov.WhiteNoise):
        _refuse(
            kernel,
            "is noise, which has no derivative: leave it out of the kernel, and give noise of the "
            "data to their likelihood, as in Gaussian(sigma)",
        )
    if type(kernel) in _SMOOTHNESS or isinstance(kernel, pm_cov.Cosine | pm_cov.Coregion):
        if any(side.order and side.feature not in kernel.active_dims for side in (left, right)):
            return pt.zeros((X.shape[0], Xs.shape[0]))
        return _of_known(kernel, X, Xs, left, right)
    return _automatic(kernel, X, Xs, left, right)


def _of_product(factors: list[Any], X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    """Leibniz's rule, one factor split off from the rest."""
    if len(factors) == 1:
        return _derivative(factors[0], X, Xs, left, right)
    total: Any = 0.0
    constant = _is_constant(factors[0])
    for i in range(1 if constant else left.order + 1):
        for j in range(1 if constant else right.order + 1):
            first = _derivative(factors[0], X, Xs, left._replace(order=i), right._replace(order=j))
            rest = _of_product(
                factors[1:],
                X,
                Xs,
                left._replace(order=left.order - i),
                right._replace(order=right.order - j),
            )
            total = total + comb(left.order, i) * comb(right.order, j) * first * rest
    return total


def _is_constant(factor: Any) -> bool:
    return isinstance(factor, pm_cov.Constant) or not isinstance(factor, pm_cov.BaseCovariance)


def _of_constant(factor: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    """Of a number in a sum or a product of kernels."""
    value = pt.as_tensor_variable(factor)
    if not all(value.type.broadcastable):
        raise NotDifferentiableError(
            "a matrix in a sum or product of kernels has no derivative: only numbers and kernels "
            "are functions of the inputs."
        )
    if left.order or right.order:
        return pt.zeros((X.shape[0], Xs.shape[0]))
    return value


def _of_known(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    if isinstance(kernel, pm_cov.Coregion):
        _refuse(kernel, "is a function of labels: take the derivative in another feature")
    if isinstance(kernel, pm_cov.Cosine):
        if kernel.n_dims > 1:
            _refuse(kernel, f"of several features has no closed form here: {_SMOOTH}")
        n = left.order + right.order
        angle = 2.0 * np.pi * _differences(kernel, X, Xs)[:, :, 0]
        rate = 2.0 * np.pi / (pt.ones(1) * kernel.ls)[0]
        return (-1.0) ** right.order * rate**n * pt.cos(angle + 0.5 * np.pi * n)
    smoothness = _SMOOTHNESS[type(kernel)]
    wanted = max(left.order, right.order)
    if wanted > smoothness:
        times = {0: "at no point", 1: "once only", 2: "twice only"}[int(smoothness)]
        _refuse(
            kernel,
            f"has functions that are differentiable {times}, and not {wanted} time(s): "
            f"{_SMOOTH if wanted <= 2 else 'use ExpQuad or RatQuad'}",
        )
    return radial_derivative(kernel, X, Xs, left, right)


def _automatic(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    for inner in _inside(kernel):
        if isinstance(inner, pm_cov.WhiteNoise | pm_cov.Cosine) or (
            _SMOOTHNESS.get(type(inner), np.inf) < 3
        ):
            _refuse(inner, f"inside of {type(kernel).__name__} has no derivative here: {_SMOOTH}")
    inputs = [pt.matrix(name, shape=x.type.shape) for name, x in (("X", X), ("Xs", Xs))]
    value = kernel(*inputs)
    if not isinstance(kernel, _AUTOMATIC) and next(_elementwise(value, _WITH_A_KINK), None):
        _refuse(
            kernel,
            "has a root or an absolute value in its graph, and is not known to be differentiable: "
            f"write it as a function of squares, or {_SMOOTH}",
        )
    # What PyMC clips is a squared distance; its derivative at 0 would be lost.
    clipped = {n.outputs[0]: n.inputs[0] for n in _elementwise(value, (ps.Clip,))}
    value = graph_replace(value, clipped) if clipped else value
    for x, side in zip(inputs, (left, right), strict=True):
        for _ in range(side.order):
            value = _pushed_forward(value, x, side.feature)
    return graph_replace(value, dict(zip(inputs, (X, Xs), strict=True)), strict=False)


def _pushed_forward(value: Any, inputs: Any, feature: int) -> Any:
    if inputs not in ancestors([value]):
        return pt.zeros_like(value)
    tangent = pt.set_subtensor(pt.zeros_like(inputs)[:, feature], 1.0)
    return pushforward(value, inputs, tangent, disconnected_outputs="ignore")


def _inside(kernel: Any) -> Iterator[Any]:
    """The kernels that a kernel is made of."""
    found = [getattr(kernel, name, None) for name in ("cov_func", "kernel")]
    for inner in (*found, *getattr(kernel, "_factor_list", ())):
        if isinstance(inner, pm_cov.BaseCovariance):
            yield inner
            yield from _inside(inner)


def has_noise(kernel: Any) -> bool:
    """Whether it has noise that each row has for itself."""
    return any(isinstance(x, pm_cov.WhiteNoise) for x in (kernel, *_inside(kernel)))


def _elementwise(value: Any, kinds: tuple[type, ...]) -> Iterator[Apply]:
    for node in apply_ancestors([value]):
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kinds):
            yield node


def _refuse(kernel: Any, why: str) -> NoReturn:
    raise NotDifferentiableError(f"{type(kernel).__name__} {why}.")


# From ``pm.gp`` covariance and mean objects to functions of arrays.

_PAIRS = 2**17  # whose covariances are computed at a time

# PyMC's basis of the Hilbert space approximation, as a graph of the inputs and of the box.


def active_columns(cov_func: Any) -> list[int]:
    """Columns of the inputs that the kernel depends on.

    Raises
    ------
    ApproximationError
        For a sum whose terms depend on different ones: PyMC has no spectral density of it.
    """
    parts = [part for part in _parts(cov_func) if hasattr(part, "active_dims")]
    kinds = {tuple(map(int, part.active_dims)) for part in parts}
    if len(kinds) != 1:
        raise ApproximationError(
            f"HSGP needs a kernel whose terms all depend on the same columns; {_name(cov_func)} "
            f"has terms of {sorted(kinds)}: use Inducing."
        )
    return list(kinds.pop())


def pair_covariance(cov_func: Any, X: Any, Xs: Any) -> Any:
    """Of f at each row of X with f at the same one of Xs, without noise, as a graph (n,)."""
    one, other = (pt.matrix(shape=(1, x.type.shape[1]), dtype="float64") for x in (X, Xs))
    single = pt.cast(cov_func(one, other)[0, 0], "float64")
    return vectorize_graph(single, {one: X[:, None], other: Xs[:, None]})


def spectral_basis(
    X: Any, half_width: Any, m: tuple[int, ...], column: int = 0, order: int = 0
) -> Any:
    """Eigenfunctions of the Laplacian on the box, at centred active columns.

    Products of L^-1/2 sin{w (x + L)}, the one of a column differentiated.
    """
    frequency = pt.sqrt(calc_eigenvalues(half_width, m))
    basis = 1.0
    for k in range(X.type.shape[1]):
        w, angle = frequency[:, k], frequency[:, k] * (X[:, k, None] + half_width[k])
        times = order if k == column else 0
        # Each derivative turns the sine by a quarter, and multiplies it by the frequency.
        basis = basis * w**times * pt.sin(angle + times * np.pi / 2.0) / pt.sqrt(half_width[k])
    return basis


def spectral_density(cov_func: Any, half_width: Any, m: tuple[int, ...]) -> Any:
    """Of a kernel at the frequencies of these eigenfunctions.

    Raises
    ------
    ApproximationError
        For a kernel that has none.
    """
    eigenvalues = calc_eigenvalues(half_width, m)
    try:
        return cov_func.power_spectral_density(pt.sqrt(eigenvalues))
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise ApproximationError(
            f"HSGP needs the spectral density of the kernel, and PyMC has none of "
            f"{_name(cov_func)}: use a sum of stationary kernels such as ExpQuad and Matern52, or "
            "Inducing for any kernel."
        ) from error


def _parts(cov_func: Any) -> Iterator[Any]:
    """The kernels that a kernel is made of."""
    listed = getattr(cov_func, "_factor_list", None)
    if listed is None:
        yield cov_func
        return
    for part in listed:
        if isinstance(part, pm_cov.BaseCovariance):
            yield from _parts(part)


def _name(cov_func: Any) -> str:
    names = [type(part).__name__ for part in _parts(cov_func)]
    own = type(cov_func).__name__
    return own if names in ([], [own]) else f"{own} of {', '.join(names)}"


Point = Mapping[str, Any]
# Makes inputs and an output: to build the graph of a kernel takes longer than to evaluate it.
Graph = Callable[[], tuple[list[Any], Any]]


def as_point(point: Any) -> dict[str, Any]:
    """`point` as a dict, empty for None; TypeError for what is no mapping, such as a fit."""
    if point is not None and not isinstance(point, Mapping):
        raise TypeError(
            f"point must map names to values, got {type(point).__name__}; of a fit it is fit.point."
        )
    return dict(point or {})


class SharedFunctions:
    """Functions compiled once for many points of the hyperparameters, which are inputs of them.

    Of one kernel and one mean.
    """

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Any, list[Any]]] = {}
        self.checked: set[type] = set()

    def at(self, key: Any, graph: Graph, point: Point) -> Any:
        """`compile_at`, unless the same `key` was compiled before, for another point."""
        if key not in self._known:
            inputs, output = graph()
            nodes = hyperparameters([output], point, inputs, "point")
            values = [node.type() for node in nodes]
            given = dict(zip(nodes, values, strict=True))
            function = plain_function([*inputs, *values], output, given)
            self._known[key] = function, nodes
        function, nodes = self._known[key]
        arrays = [as_value(node, point[node.name]).data for node in nodes]
        return lambda *x: function(*x, *arrays)


class _OfArrays:
    """A ``pm.gp`` object as a function of arrays, at a point of its hyperparameters.

    It can be pickled, which random variables among the hyperparameters cannot by themselves.

    Parameters
    ----------
    function : pymc.gp.cov.Covariance or pymc.gp.mean.Mean
        Its hyperparameters are numbers or random variables.
    point : mapping, optional
        Values of those random variables by name.
    shared : SharedFunctions, optional
        What other points of the same object have compiled.
    """

    def __init__(
        self, function: Any, point: Point | None = None, shared: SharedFunctions | None = None
    ) -> None:
        self._given, self._point = function, as_point(point)
        self._shared = SharedFunctions() if shared is None else shared
        self._compiled: dict[Any, Any] = {}
        # Refused now is what `point` lacks; of shared functions once, at their first point.
        if type(self) not in self._shared.checked:
            left = pt.matrix("X")
            for node in hyperparameters([function(left)], self._point, [left], "point"):
                as_value(node, self._point[node.name])
        self._shared.checked.add(type(self))

    def __getstate__(self) -> dict[str, Any]:
        # Compiled again when needed, in a tenth of a second.
        return {"point": self._point, "given": cloudpickle.dumps(self._given)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(cloudpickle.loads(state["given"]), state["point"])  # type: ignore[misc]

    def _at(self, key: Any, graph: Graph, *arrays: FloatArray) -> FloatArray:
        """A graph at arrays, compiled once for each key."""
        if key not in self._compiled:
            self._compiled[key] = self._shared.at((type(self), key), graph, self._point)
        return np.asarray(self._compiled[key](*arrays))


class ArrayCovariance(_OfArrays):
    """A ``pm.gp.cov`` object as a function of arrays, at a point of its hyperparameters."""

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Covariance matrix (n, m), or the n variances with ``diag=True``."""
        arrays = [X] if Xs is None else [X, Xs]
        # For inputs with so many columns: a kernel may broadcast along a single one.
        columns = [x.shape[1] for x in arrays]

        def graph() -> tuple[list[Any], Any]:
            inputs = [_inputs(name, d) for name, d in zip(("X", "Xs"), columns, strict=False)]
            return inputs, self._given(*inputs, diag=diag)

        return self._at((diag, *columns), graph, *arrays)

    def pairs(self, X: FloatArray, Xs: FloatArray) -> FloatArray:
        """See `pair_covariance`."""

        def graph() -> tuple[list[Any], Any]:
            inputs = [_inputs(name, X.shape[1]) for name in ("X", "Xs")]
            return inputs, pair_covariance(self._given, *inputs)

        starts = range(0, max(len(X), 1), _PAIRS)
        parts = (slice(i, i + _PAIRS) for i in starts)
        return np.concatenate([self._at(("pairs", X.shape[1]), graph, X[x], Xs[x]) for x in parts])

    def derivative(
        self, X: FloatArray, Xs: FloatArray, left: Derivative | None, right: Derivative | None
    ) -> FloatArray:
        """Covariance (n, m) of a derivative of f at `X` with one at `Xs`; None for f itself.

        Raises
        ------
        NotDifferentiableError
            When the kernel is not smooth enough.
        """

        def graph() -> tuple[list[Any], Any]:
            a, b = (_inputs(name, X.shape[1]) for name in ("X", "Xs"))
            return [a, b], derivative_covariance(self._given, a, b, left, right)

        return self._at((X.shape[1], left, right), graph, X, Xs)

    @property
    def active_columns(self) -> list[int]:
        """Columns of the inputs that the kernel depends on."""
        return active_columns(self._given)

    def spectral_features(
        self,
        X: FloatArray,
        half_width: FloatArray,
        m: tuple[int, ...],
        derivative: tuple[int, int] | None = None,
    ) -> FloatArray:
        """PyMC's basis of the Hilbert space approximation at centred active columns, (n, prod m).

        Or a derivative of it: in which of these columns, and how many times.

        Raises
        ------
        ApproximationError
            For a kernel that has no spectral density.
        """
        d = X.shape[1]

        def graph() -> tuple[list[Any], Any]:
            left, width = _inputs("X", d), pt.vector("half_width", shape=(d,))
            basis = spectral_basis(left, width, m, *derivative or (0, 0))
            return [left, width], basis * pt.sqrt(spectral_density(self._given, width, m))

        return self._at(("spectral", d, m, derivative), graph, X, half_width)


class ArrayMean(_OfArrays):
    """A ``pm.gp.mean`` object as a function of arrays, at a point of its hyperparameters."""

    def __call__(self, X: FloatArray) -> FloatArray:
        """Mean at the rows of `X`, shape (n,)."""
        return self.derivative(X, None)

    def derivative(self, X: FloatArray, derivative: Derivative | None) -> FloatArray:
        """A derivative of the mean at the rows of `X`, shape (n,)."""

        def graph() -> tuple[list[Any], Any]:
            left = _inputs("X", X.shape[1])
            if derivative is None:
                return [left], self._given(left)
            return [left], derivative_mean(self._given, left, derivative)

        value = self._at((X.shape[1], derivative), graph, X).astype(np.float64)
        # Linear with one coefficient gives a column; constants give one number.
        return np.broadcast_to(value.reshape(-1), (X.shape[0],)).copy()


def compile_at(inputs: list[Any], output: Any, point: Point) -> Any:
    """Compile `output` with every random variable in it replaced by its value in `point`.

    A variable computed from others, such as a Deterministic, may be given in their place.

    Raises
    ------
    ValueError
        When a random variable has no value in `point`, or one that does not fit.
    """
    return SharedFunctions().at(None, lambda: (inputs, output), point)


def _inputs(name: str, n_columns: int) -> Any:
    return pt.matrix(name, shape=(None, n_columns))


def hyperparameters(
    outputs: list[Any], known: Container[str], inputs: Sequence[Any], where: str
) -> list[Any]:
    """The variables named in `known` that `outputs` need, and that together determine them.

    Raises
    ------
    ValueError
        When a random variable is needed and not determined; `where` names what should have it.
    """
    found, missing = determining(outputs, known, inputs)
    if missing:
        names = sorted(str(node.name or "<unnamed>") for node in missing)
        raise ValueError(
            f"the covariance or mean depends on {', '.join(names)}: give their values in {where}"
            + (f", as in point={{{names[0]!r}: 1.0}}." if where == "point" else ".")
        )
    return sorted(found, key=lambda node: node.name)


def determining(
    outputs: list[Any], known: Container[str], inputs: Sequence[Any]
) -> tuple[set[Any], list[Any]]:
    """Variables named in `known` that `outputs` need, and random ones that these leave open."""
    nodes = [node for node in ancestors(outputs) if node not in inputs]
    given = {node for node in nodes if node.name is not None and node.name in known}
    random = [node for node in nodes if is_random(node)]
    needed = set(ancestors(outputs, blockers=given.union(random)))
    return needed & given, [node for node in random if node in needed and node not in given]


def is_random(node: Any) -> bool:
    """Whether an Op with a generator made it; so plain and symbolic random variables alike."""
    return (
        node.owner is not None
        and not isinstance(node.type, RandomType)
        and any(isinstance(source.type, RandomType) for source in node.owner.inputs)
    )


def as_value(node: Any, value: Any) -> Any:
    """`value` as a constant that can stand for `node`; ValueError when it does not fit."""
    name = f"point[{node.name!r}]"
    refuse_masked(name, value)
    try:
        found = np.asarray(value)
        # Others would become floats, and lose what they are.
        array = found if found.dtype.kind in "cMm" else found.astype(node.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numeric, got {value!r}.") from error
    refuse_other_kinds(name, array, "cMm")
    fits = zip(node.type.shape, array.shape, strict=False)
    if array.ndim != node.ndim or any(n is not None and n != m for n, m in fits):
        raise ValueError(
            f"point[{node.name!r}] must have shape {node.type.shape} (None: any), got "
            f"{array.shape}."
        )
    return pt.as_tensor_variable(array)
