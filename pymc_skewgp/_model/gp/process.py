"""A SkewGP at given inputs, of values and derivatives: its joint covariance as a graph."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.linalg import cholesky
from pymc_skewgp._limits import announce_rows
from pymc_skewgp._model.gp import functions
from pymc_skewgp._model.ops.densities import sun_of_process
from pymc_skewgp._model.ops.plain_mode import in_double, is_constant
from pymc_skewgp._observations import likelihood
from pymc_skewgp._posterior.prior import as_coregion
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import as_positive, as_vector

# Values of several functions of a SkewGP, and of their derivatives, as graphs.
#
# The functions have one kernel and mean, and are independent but for a coregionalization matrix B:
# cov{f_k(x), f_l(t)} = B_kl k(x, t). Values are in the order of `Values` in the observations'
# layer.


class ValuesAt(NamedTuple):
    """Values of the first functions, or of a derivative of them, at the rows of a graph.

    Attributes
    ----------
    X : matrix, (n, d)
    n_functions : int
        K.
    derivative : Derivative, or None
    exact : bool
        Whether no jitter is to be added to them, as it would soften a constraint.
    """

    X: Any
    n_functions: int = 1
    derivative: likelihood.Derivative | None = None
    exact: bool = False

    @property
    def n_rows(self) -> Any:
        """Number n of inputs."""
        return pt.as_tensor_variable(self.X).shape[0]


def as_coregion_graph(value: Any, n_functions: int) -> Any:
    """B as a graph, numbers checked; None for independent functions of the kernel's variance.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        What is no covariance of so many functions, as far as that is known.
    """
    if not isinstance(value, Variable):
        return as_coregion(value, n_functions)
    shape = (n_functions, n_functions)
    fits = value.type.ndim == 2 and all(n in (None, n_functions) for n in value.type.shape)
    if not fits:
        raise ValueError(
            f"coregion must have shape {shape}, as the data are about {n_functions} function(s); "
            f"got {value.type.shape} (None: any)."
        )
    return pt.specify_shape(pt.cast(value, "float64"), shape)


def kernel_of_values(cov_func: Any, parts: Sequence[ValuesAt]) -> Any:
    """Covariance of one function, or of its derivatives, at the inputs of all parts.

    One evaluation for all that are of the function itself, because a kernel may be more than a
    function of two inputs: white noise at equal inputs is independent between rows.
    """
    plain = [part for part in parts if part.derivative is None]
    whole = cov_func(pt.concatenate([part.X for part in plain])) if plain else None
    if len(plain) == len(parts):
        return in_double([whole])[0]
    start, places = pt.constant(0), []
    for part in parts:
        end = start + part.n_rows if part.derivative is None else start
        places.append(slice(start, end))
        start = end
    rows: list[list[Any]] = []
    for i, left in enumerate(parts):
        blocks = [row[i].T for row in rows]
        for right, place in zip(parts[i:], places[i:], strict=True):
            if whole is not None and left.derivative is None and right.derivative is None:
                blocks.append(whole[places[i], place])
            else:
                a, b = (pt.as_tensor_variable(part.X) for part in (left, right))
                of_either = left.derivative, right.derivative
                blocks.append(functions.derivative_covariance(cov_func, a, b, *of_either))
        rows.append(blocks)
    return in_double([pt.concatenate([pt.concatenate(blocks, axis=1) for blocks in rows])])[0]


def mean_of_values(mean_func: Any, parts: Sequence[ValuesAt]) -> Any:
    """Their means, those of all functions at an input one after the other."""
    means = []
    for part in parts:
        X = pt.as_tensor_variable(part.X)
        if part.derivative is None:
            # Linear with one coefficient gives a column, a constant one number.
            mean = pt.as_tensor_variable(mean_func(part.X)).flatten()
        else:
            mean = functions.derivative_mean(mean_func, X, part.derivative)
        mean = pt.broadcast_to(mean, (X.shape[0],))
        means.append(mean if part.n_functions == 1 else pt.repeat(mean, part.n_functions))
    return pt.concatenate(means)


def between_functions(kernel: Any, parts: Sequence[ValuesAt], coregion: Any | None) -> Any:
    """Covariance of all values, from that of one function at all inputs."""
    k = max(part.n_functions for part in parts)
    if k == 1 and coregion is None:
        return kernel
    B = pt.eye(k) if coregion is None else pt.as_tensor_variable(coregion)
    matrix = pt.linalg.kron(kernel, B)
    if all(part.n_functions == k for part in parts):
        return matrix
    kept, start = [], pt.constant(0)
    for part in parts:
        first = start + k * pt.arange(part.n_rows)
        kept.append((first[:, None] + pt.arange(part.n_functions)).flatten())
        start = start + k * part.n_rows
    index = pt.concatenate(kept)
    return matrix[index][:, index]


# What a variable of a model takes besides its parameters. PyMC ignores any other name.
_VARIABLE_OPTIONS = frozenset(
    ("dims", "shape", "size", "initval", "rng", "total_size", "transform", "default_transform")
)


def as_input_graph(name: str, value: Any, n_columns: float = np.inf) -> Any:
    """Inputs as a matrix: arrays and the values of ``pm.Data`` are checked now, the rest later."""
    if not isinstance(value, Variable):
        value = likelihood.as_inputs(name, value)
    elif value.type.ndim != 2:
        raise ValueError(
            f"{name} must be a matrix (n, d), got a tensor with {value.type.ndim} dimension(s)."
        )
    found = shape_now(value)[1]
    if not np.isfinite(n_columns):
        return value
    if found is not None and found != n_columns:
        raise ValueError(
            f"{name} has {found} column(s), but cov_func was built with input_dim={n_columns:g}: "
            "give that many, and choose among them with active_dims."
        )
    if isinstance(value, Variable):  # pm.set_data may change it
        return pt.specify_shape(value, (None, int(n_columns)))
    return value


def as_label_graph(y: Any, X: Any) -> Any:
    """Labels 0 and 1: arrays and the values of ``pm.Data`` are checked now, the rest later."""
    n = shape_now(X)[0]
    if not isinstance(y, Variable):
        return likelihood.as_labels(y, np.size(y) if n is None else n)
    if y.type.ndim != 1:
        raise ValueError(f"y must be a vector, got a tensor with {y.type.ndim} dimension(s).")
    found = shape_now(y)[0]
    if None not in (found, n) and found != n:
        raise ValueError(f"y must have length {n}, one label for each row of X; got {found}.")
    if isinstance(y, SharedVariable):
        labels = np.unique(y.get_value(borrow=True))
        if not np.isin(labels, (0, 1)).all():
            raise ValueError(
                f"y must hold the labels 0 and 1, found {labels[:5]}: change the values of "
                f"{y.name!r} before they go into pm.Data."
            )
    return y


def shape_now(value: Any) -> tuple[int | None, ...]:
    """Shape of an array, of the present value of ``pm.Data``, or what is known of a graph's."""
    if isinstance(value, SharedVariable):
        return tuple(value.get_value(borrow=True).shape)
    return tuple(value.type.shape if isinstance(value, Variable) else value.shape)


def refuse_unknown_options(options: Mapping[str, Any]) -> None:
    """Raise for what PyMC would ignore: a misspelt or foreign argument."""
    if "n_outputs" in options:
        raise TypeError(
            "unexpected argument(s) n_outputs, of pm.gp.Latent: a SkewGP is one function. Call "
            "prior once for each output, under a name of its own; for correlated outputs take the "
            "kernel times pm.gp.cov.Coregion, with the number of the output in a column of X."
        )
    unknown = sorted(set(options) - _VARIABLE_OPTIONS)
    if unknown:
        raise TypeError(
            f"unexpected argument(s) {', '.join(unknown)}; what is passed on to the variable is "
            f"one of {', '.join(sorted(_VARIABLE_OPTIONS))}."
        )


def joint_covariance(
    gp: Any, parts: Sequence[ValuesAt], jitter: float, coregion: Any | None = None
) -> tuple[Any, Any]:
    """Covariance of one function at the pseudo-points and all inputs, and of all values there."""
    if gp.pseudo_points is not None:
        k = max(part.n_functions for part in parts)
        parts = [ValuesAt(gp.pseudo_points, k), *parts]
    kernel = kernel_of_values(gp.cov_func, parts)
    if jitter:
        own = [0.0 if part.exact else jitter for part in parts]
        each = [pt.full((x.n_rows,), np.float64(y)) for x, y in zip(parts, own, strict=True)]
        added = pt.concatenate(each)  # pt.diag of constants would be compiled, in C
        kernel = kernel + pt.eye(added.shape[0]) * added
    return kernel, between_functions(kernel, parts, coregion)


def process_at(gp: Any, blocks: list[Any], jitter: float) -> SunParameters:
    """The unified skew-normal marginal of a SkewGP at the blocks of inputs together."""
    return process_of_values(gp, [ValuesAt(block) for block in blocks], jitter)


def process_of_values(
    gp: Any, parts: Sequence[ValuesAt], jitter: float, coregion: Any | None = None
) -> SunParameters:
    """The same of values of several functions, or of their derivatives.

    Without `coregion` the functions are independent of each other. Each of them has the signs at
    the pseudo-points.
    """
    jitter = as_positive("jitter", jitter, or_zero=True)
    rows = [shape_now(part.X)[0] for part in parts]
    announce_rows(sum(n for n in rows if n is not None))
    kernel, cov = joint_covariance(gp, parts, jitter, coregion)
    mean = mean_of_values(gp.mean_func, parts)
    _check_constants(gp, mean, kernel, jitter)
    phase, truncation, n_latent = signs_of_functions(gp, max(part.n_functions for part in parts))
    return sun_of_process(mean, cov, phase, truncation, n_latent)


def signs_of_functions(gp: Any, n_functions: int) -> tuple[Any, Any, int]:
    """Phase and truncation of each function at each pseudo-point, and how many these are."""
    if n_functions == 1:
        return gp.phase, gp.truncation, gp.n_pseudo_points
    phase, truncation = (
        pt.repeat(pt.as_tensor_variable(x), n_functions) for x in (gp.phase, gp.truncation)
    )
    return phase, truncation, gp.n_pseudo_points * n_functions


def _check_constants(gp: Any, mean: Any, cov: Any, jitter: float) -> None:
    """Refuse hyperparameters that are constants and invalid: no sampler could mend them."""
    if is_constant(mean) and not np.isfinite(functions.compile_at([], mean, {})()).all():
        raise ValueError("mean_func gave NaN or infinite values: check its hyperparameters.")
    if not is_constant(cov):
        return
    matrix = functions.compile_at([], cov, {})()
    if not np.isfinite(matrix).all():
        raise ValueError(
            "cov_func gave NaN or infinite covariances: check its hyperparameters and the scale of "
            "the inputs."
        )
    s = gp.n_pseudo_points
    if s:
        bare = matrix[:s, :s] - jitter * np.eye(s)
        truncation = gp.truncation
        if isinstance(truncation, Variable):  # may turn out to be anything
            truncation = np.full(s, np.inf)
        phase = np.ones(s) if isinstance(gp.phase, Variable) else gp.phase
        likelihood.refuse_coincident(bare, phase, truncation)
    with no_warnings():
        cholesky("cov_func at the inputs and pseudo_points", matrix)


# Pseudo-points of a SkewGP with their phases and truncations: numbers, or variables of a model.


def as_pseudo_points(
    points: Any, phase: Any, truncation: Any, n_columns: float
) -> tuple[Any, Any, Any]:
    """The three arguments of `SkewGP`, checked as far as they are known."""
    if points is None:
        if phase is not None or isinstance(truncation, Variable) or np.any(truncation):
            raise ValueError("phase and truncation belong to pseudo_points: give those as well.")
        return None, likelihood.as_phase(None, 0), np.zeros(0)
    if not isinstance(points, Variable):
        points = likelihood.as_inputs("pseudo_points", points)
    points = as_input_graph("pseudo_points", points, n_columns)
    s, d = shape_now(points)
    if s is None:
        raise ValueError(
            "pseudo_points must have a known number of rows: give the variable a static shape, as "
            'in pm.Normal("r", shape=(2, 1)).'
        )
    if isinstance(points, Variable):
        points = pt.specify_shape(points, (s, d))
    if isinstance(phase, Variable):
        phase = _per_point("phase", phase, s)
    else:
        phase = likelihood.as_phase(phase, s)
    per_point = _per_point if isinstance(truncation, Variable) else as_vector
    return points, phase, per_point("truncation", truncation, s)


def pseudo_points_at(gp: Any, point: functions.Point) -> dict[str, Any]:
    """Those of a SkewGP by name, with variables at their values; none where it has none."""
    if gp.pseudo_points is None:
        return {}
    values = {name: getattr(gp, name) for name in ("pseudo_points", "phase", "truncation")}
    return {
        name: functions.compile_at([], value, point)() if isinstance(value, Variable) else value
        for name, value in values.items()
    }


def _per_point(name: str, value: Any, s: int) -> Any:
    """A variable as a vector with one entry for each of `s` pseudo-points."""
    if value.type.ndim == 0:
        return pt.alloc(value, s)
    if value.type.ndim == 1 and shape_now(value)[0] in (None, s):
        return pt.specify_shape(value, (s,))
    raise ValueError(
        f"{name} must be a number or have shape ({s},), one for each of pseudo_points; got "
        f"{shape_now(value)}."
    )
