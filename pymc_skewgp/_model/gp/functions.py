"""From ``pm.gp`` covariance and mean objects to functions of arrays."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pymc.gp.hsgp_approx import calc_eigenvalues, calc_eigenvectors
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._model.gp.kernel_derivatives import derivative_covariance, derivative_mean
from pymc_skewgp._model.ops.plain_mode import plain_function
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp._validation import FloatArray, refuse_masked, refuse_other_kinds

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


def spectral_features(
    cov_func: Any,
    X: Any,
    half_width: Any,
    m: tuple[int, ...],
    derivative: tuple[int, int] | None = None,
) -> Any:
    """Eigenfunctions at centred active columns, times the root of the spectral density.

    Or a derivative of them, of which the sine in one column is replaced: (column, order).

    Raises
    ------
    ApproximationError
        For a kernel that has no spectral density.
    """
    density = spectral_density(cov_func, half_width, m)
    if derivative is not None:
        return _differentiated(X, half_width, m, *derivative) * pt.sqrt(density)
    return spectral_basis(X, half_width, m) * pt.sqrt(density)


def spectral_basis(X: Any, half_width: Any, m: tuple[int, ...]) -> Any:
    """Eigenfunctions of the Laplacian on the box, at centred active columns."""
    return calc_eigenvectors(X, half_width, calc_eigenvalues(half_width, m), m)


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


def _differentiated(X: Any, half_width: Any, m: tuple[int, ...], column: int, order: int) -> Any:
    """Products of L^-1/2 sin{w (x + L)}, the one of a column differentiated."""
    frequency = pt.sqrt(calc_eigenvalues(half_width, m))
    basis = 1.0
    for k in range(X.type.shape[1]):
        w, angle = frequency[:, k], frequency[:, k] * (X[:, k, None] + half_width[k])
        times = order if k == column else 0
        # Each derivative turns the sine by a quarter, and multiplies it by the frequency.
        basis = basis * w**times * pt.sin(angle + times * np.pi / 2.0) / pt.sqrt(half_width[k])
    return basis


def _parts(cov_func: Any) -> Iterator[Any]:
    """The kernels that a kernel is made of."""
    listed = getattr(cov_func, "_factor_list", None)
    if listed is None:
        yield cov_func
        return
    for part in listed:
        if isinstance(part, BaseCovariance):
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
            return [left, width], spectral_features(self._given, left, width, m, derivative)

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
