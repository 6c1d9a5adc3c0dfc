"""The unified skew-normal variable, its parameters and its draws."""

import sys
import warnings
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor import config
from pytensor.compile import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, dfs_rewriter, node_rewriter
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_skewgp import _errors
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._model.ops import densities
from pymc_skewgp._sun.parameters import SunParameters, sun_draws
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray, as_covariance

# What the vectors and matrices given to a distribution may be, as far as is known at build.


def as_parameter(name: str, value: Any, ndim: int) -> TensorVariable:
    """`value` as a floating-point variable with `ndim` core dimensions.

    Raises
    ------
    TypeError
        Not numeric.
    ValueError
        Too few dimensions (a scalar will do for a vector), or a constant that holds NaN.
    """
    try:
        variable = pt.as_tensor_variable(value)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(f"{name} must be numeric, got {type(value).__name__}: {error}") from error
    if variable.type.dtype.startswith("complex"):
        raise TypeError(f"{name} must be real, got {variable.type.dtype}.")
    found = variable.type.ndim
    if found < ndim and not (ndim == 1 and found == 0):
        raise ValueError(f"{name} must have at least {ndim} dimensions, got {found}.")
    known = known_value(variable)
    if known is not None:
        if np.isnan(known).any():
            count = int(np.isnan(known).sum())
            raise ValueError(f"{name} holds {count} NaN value(s): remove or impute them first.")
        # Of the type of the draws, which transforms of them have to keep.
        return variable if variable.type.dtype == config.floatX else _constant(known)
    if not variable.type.dtype.startswith("float"):
        return pt.cast(variable, "floatX")
    return variable


def as_covariance_parameter(name: str, value: Any) -> TensorVariable:
    """`value` as square matrices; constant ones symmetric and positive definite.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        When it is known to be anything else; otherwise as `as_parameter`.
    """
    variable = as_parameter(name, value, 2)
    rows, columns = variable.type.shape[-2:]
    if None not in (rows, columns) and rows != columns:
        raise ValueError(f"{name} must be square, got shape {(rows, columns)}.")
    check_known_finite(name, variable)
    known = known_value(variable)
    if known is not None and known.size:
        for matrix in known.reshape(-1, rows, rows):
            check_positive_definite(name, as_covariance(name, matrix))
    return variable


def as_vector_parameter(name: str, value: Any, matrix: TensorVariable) -> TensorVariable:
    """`value` as a vector with an entry for each row of `matrix`; a single number is repeated.

    Raises
    ------
    ValueError
        When the length is known to differ; otherwise as `as_parameter`.
    """
    vector = as_parameter(name, value, 1)
    wanted = matrix.type.shape[-1]
    length = vector.type.shape[-1] if vector.type.ndim else 1
    if length == wanted and vector.type.ndim:
        return vector
    if length == 1:
        known = known_value(vector)
        batch = tuple(vector.shape[:-1])
        if known is not None and wanted is not None:
            return _constant(np.broadcast_to(known, (*known.shape[:-1], wanted)))
        return pt.alloc(vector, *batch, matrix.shape[-1])
    if None not in (length, wanted):
        raise ValueError(f"{name} must have length {wanted}, got {length}.")
    return vector


def known_value(variable: TensorVariable) -> FloatArray | None:
    """The numbers of a constant, None for everything that may yet change."""
    if not isinstance(variable, TensorConstant):
        return None
    return np.asarray(variable.data, dtype=np.float64)


def check_known_finite(name: str, variable: TensorVariable) -> None:
    """Refuse a constant that holds infinities."""
    known = known_value(variable)
    if known is not None and not np.isfinite(known).all():
        count = int((~np.isfinite(known)).sum())
        raise ValueError(f"{name} holds {count} infinite value(s); finite numbers are needed.")


def check_positive_definite(name: str, matrix: FloatArray) -> None:
    """Refuse a matrix whose density is zero everywhere, for all that jitter would mend it.

    A log density cannot add jitter: it has to be a smooth function of the matrix.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", _errors.JitterWarning)
        try:
            linalg.cholesky(name, matrix)
        except _errors.JitterWarning as warning:
            raise _errors.NotPositiveDefiniteError(
                f"{name} is numerically singular, so that the log density is -inf everywhere: "
                "add a small multiple of the identity to it (1e-6 of its mean variance)."
            ) from warning


def _constant(value: FloatArray) -> TensorConstant:
    return pt.constant(np.asarray(value, dtype=config.floatX))


# Methods that would take a latent function for a vector like any other, and what to do instead.
#
# They ask nobody: which of them builds a log density is to be seen up the stack alone.

_REPARAMETERIZE = "make it with SkewGP.prior(..., reparameterize=True)"
# By the name of a function, and the package that it is of.
_FIT = (
    "pm.fit hardly moves a latent function as it stands, whose values are strongly correlated: "
    f"{_REPARAMETERIZE}, or use pm.sample or integrate(model), which need no fit"
)
_MODE = (
    "the mode of a latent function and its hyperparameters together says nothing of either, with "
    "an amplitude of 0 as a rule: use find_hyperparameters(model), which integrates the function "
    "out"
)
_ADVICE = {
    ("find_MAP", "pymc"): _MODE,
    ("find_MAP", "pymc_extras"): _MODE,
    ("fit", "pymc"): _FIT,
    ("compile_pymc_model", "nutpie"): "nutpie samples a latent function as it stands, whose values "
    f"are strongly correlated, with few effective draws: {_REPARAMETERIZE}, or use pm.sample, "
    "which draws it exactly where it can and says why where not",
}
_ADVICE |= {
    (name, "pymc_extras"): _FIT.replace("pm.fit", name)
    for name in ("fit", "fit_laplace", "fit_pathfinder", "fit_dadvi")
}
_PACKAGES = tuple(str(Path(str(x.__file__)).parent) for x in (pm, _errors))


def warn_of_other_methods() -> None:
    """Say what to do instead, where such a method asks for the log density of a function.

    Not inside of ``pm.sample``, which has asked `can_be_sampled_exactly` whether there is something
    to say before it turns to nutpie.

    Warns
    -----
    NotConjugateWarning
    """
    advice = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        called = frame.f_code.co_name, str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if called == ("sample", "pymc"):
            return
        advice = advice or _ADVICE.get(called)
        frame = frame.f_back
    if advice is not None:
        warn_of_other_step(f"{advice}.")


def warn_of_other_step(message: str) -> None:
    """Warn where neither PyMC nor this package is, but for `no_warnings`."""
    if _errors.warnings_are_wanted():
        warnings.warn(message, _errors.NotConjugateWarning, skip_file_prefixes=_PACKAGES)


# Vector random variables whose equal rows are drawn together, in NumPy and under numba.
#
# A draw takes factorisations and a sampler to be set up; a thousand draws with the same parameters
# hardly take longer than one. PyTensor's numba backend would call a random variable row by row, and
# has no way for a draw that is NumPy's work but to warn of it. So before that backend's own rewrite
# these variables are replaced by an Op that draws the whole array in object mode, with the same
# generator and the same stream as in Python.


class JointDrawsRV(RandomVariable):
    """A random variable whose ``draws(rng, size, *parameters)`` serves a whole array well."""

    dtype = "floatX"
    # Of the shape of an array of them, each of one set of the parameters.
    draws: Callable[..., Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        shown = cls.__name__.removesuffix("RV")
        cls._print_name = (shown, f"\\operatorname{{{shown}}}")

    def rng_fn(self, rng: np.random.Generator, *parameters: Any) -> Any:
        """`draws`; of the size, which comes last, None means the parameters' batch shape."""
        *values, size = parameters
        if size is None:
            size = batch_shape_of(list(zip(values, self.ndims_params, strict=True)))
        return self.draws(rng, size, *values)


def of_size(size: Any, value: Any, *parameters: Any) -> Any:
    """`value` in the shape that it has with the parameters, or of the size, where there is one."""
    if not rv_size_is_none(size):
        return pt.full(size, value)
    return pt.broadcast_arrays(value, *parameters)[0] if parameters else value


def batch_shape_of(parameters: Sequence[tuple[FloatArray, int]]) -> tuple[int, ...]:
    """Common shape of the batch dimensions of parameters, each with its number of core ones."""
    return np.broadcast_shapes(*(np.shape(x)[: np.ndim(x) - core] for x, core in parameters))


def draw_groups(
    draw_rows: Callable[..., FloatArray],
    batch_shape: Sequence[int],
    n_dims: int,
    parameters: Sequence[tuple[FloatArray, int]],
) -> FloatArray:
    """Draw an array of rows, those with the same parameters in one call.

    Parameters
    ----------
    draw_rows : callable
        ``draw_rows(n, *parameters)`` gives n independent rows, shape (n, n_dims), for one set of
        parameters without batch dimensions.
    batch_shape : sequence of int
        Shape of the array of rows.
    n_dims : int
        Length of a row.
    parameters : sequence of (ndarray, int)
        Each parameter with the number of its core dimensions; the batch dimensions broadcast
        together and with `batch_shape`. Rows along a dimension of length one are a group.

    Returns
    -------
    ndarray, shape (*batch_shape, n_dims)
    """
    own = batch_shape_of(parameters)
    own = (1,) * (len(batch_shape) - len(own)) + own
    spread = [
        np.broadcast_to(value, own + value.shape[value.ndim - core :]) for value, core in parameters
    ]
    draws = np.empty((*batch_shape, n_dims))
    for index in np.ndindex(*own):
        rows = tuple(slice(None) if n == 1 else i for i, n in zip(index, own, strict=True))
        shape = draws[rows].shape
        if prod(shape):
            draws[rows] = draw_rows(prod(shape[:-1]), *(v[index] for v in spread)).reshape(shape)
    return draws


@node_rewriter([JointDrawsRV])
def draw_in_object_mode(fgraph: FunctionGraph, node: Apply) -> list[Any]:
    """Replace the random variable by one call for all its rows."""
    outputs = densities.ObjectModeDraws(node.op).make_node(*node.inputs).outputs
    copy_stack_trace(node.outputs, outputs)
    return list(outputs)


# Just before PyTensor's rewrite for numba, at 100, which would take the variable apart into rows.
optdb.register(
    "pymc_skewgp_draw_in_object_mode", dfs_rewriter(draw_in_object_mode), "numba", position=99.9
)


# The parameters of a unified skew-normal variable: what users give, checked and converted.


def as_sun_parameters(
    mu: Any, scale: Any, skewness: Any, truncation: Any, latent_cov: Any, cross_cov: Any
) -> SunParameters:
    """Parameters as variables of full dimensions; those that are constants are checked.

    Raises
    ------
    TypeError
        Neither or both of `skewness` and `cross_cov`; no `truncation` or no `latent_cov`.
    ValueError, NotPositiveDefiniteError
        Constants or static shapes that are invalid.
    """
    if (skewness is None) == (cross_cov is None):
        found = "neither" if skewness is None else "both"
        raise TypeError(f"give either skewness or cross_cov, got {found}.")
    for name, value in (("truncation", truncation), ("latent_cov", latent_cov)):
        if value is None:
            raise TypeError(f"{name} is missing: it has to be given.")
    scale = as_covariance_parameter("scale", scale)
    latent_cov = as_covariance_parameter("latent_cov", latent_cov)
    name, given = ("cross_cov", cross_cov) if skewness is None else ("skewness", skewness)
    cross_cov = as_parameter(name, given, 1)  # a vector will do for one latent dimension
    wanted = scale.type.shape[-1], latent_cov.type.shape[-1]
    if cross_cov.type.ndim == 1 and wanted[1] == 1:
        known = known_value(cross_cov)
        cross_cov = cross_cov[:, None] if known is None else pt.constant(known[:, None])
    if cross_cov.type.ndim < 2:
        raise ValueError(
            f"{name} must have shape (p, s), got {cross_cov.type.ndim} dimension(s): a vector "
            "will do only when latent_cov is known to be of shape (1, 1)."
        )
    found = cross_cov.type.shape[-2:]
    if any(None not in (n, m) and n != m for n, m in zip(found, wanted, strict=True)):
        shape = tuple(m if m is not None else n for n, m in zip(found, wanted, strict=True))
        raise ValueError(f"{name} must have shape {shape}, got {found}.")
    mu = as_vector_parameter("mu", mu, scale)
    truncation = as_vector_parameter("truncation", truncation, latent_cov)
    for label, variable in (("mu", mu), ("truncation", truncation), (name, cross_cov)):
        check_known_finite(label, variable)
    joint = "[[latent_cov, cross_cov'], [cross_cov, scale]]"
    if skewness is not None:
        cross_cov = _from_skewness(scale, cross_cov)
        joint = "[[latent_cov, C'], [C, scale]] (C from skewness)"
    sun = SunParameters(mu, scale, cross_cov, truncation, latent_cov)
    _check_known_joint(joint, sun)
    return sun


def is_known_normal(sun: SunParameters) -> bool:
    """Whether there is known to be no latent dimension."""
    latent = (sun.cross_cov, sun.truncation, sun.latent_cov)
    return any(parameter.type.shape[-1] == 0 for parameter in latent)


def _from_skewness(scale: TensorVariable, skewness: TensorVariable) -> TensorVariable:
    """C = D Delta: a constant where both are."""
    omega, delta = known_value(scale), known_value(skewness)
    if omega is not None and delta is not None:
        cross = np.sqrt(np.diagonal(omega, axis1=-2, axis2=-1))[..., None] * delta
        return pt.constant(cross.astype(skewness.type.dtype))
    if skewness.type.shape[-1] == 0:
        return skewness
    variance = pt.diagonal(scale, axis1=-2, axis2=-1)
    # What is no variance makes no density; its root must not make the gradient NaN as well.
    return pt.sqrt(pt.switch(pt.gt(variance, 0.0), variance, 1.0))[..., None] * skewness


def _check_known_joint(name: str, sun: SunParameters) -> None:
    """Refuse constants whose joint covariance is not positive definite."""
    values = [known_value(variable) for variable in (sun.scale, sun.cross_cov, sun.latent_cov)]
    if any(value is None or value.size == 0 for value in values):
        return
    omega, cross, latent = (value for value in values if value is not None)
    batch = batch_shape_of([(omega, 2), (cross, 2), (latent, 2)])
    for index in np.ndindex(*batch):
        o, c, g = (np.broadcast_to(x, batch + x.shape[-2:])[index] for x in (omega, cross, latent))
        joint = symmetric(np.block([[g, c.T], [c, o]]))
        check_positive_definite(name, joint)


class UnifiedSkewNormalRV(JointDrawsRV):
    """Draws of the unified skew-normal distribution, each independent of the others."""

    name = "unified_skew_normal"
    signature = "(p),(p,p),(p,s),(s),(s,s)->(p)"

    def draws(self, rng: np.random.Generator, size: Any, mu: Any, *others: Any) -> Any:
        """Draw."""

        def draw_rows(n: int, omega: Any, cross: Any, gamma: Any, latent: Any) -> FloatArray:
            centred = np.zeros(mu.shape[-1]), symmetric(omega), cross, gamma, symmetric(latent)
            return sun_draws(SUN.from_cross_cov(*centred).parameters, n, rng)

        # Rows that differ in their location alone are one group.
        parameters = list(zip(others, self.ndims_params[1:], strict=True))
        return mu + draw_groups(draw_rows, size, mu.shape[-1], parameters)


unified_skew_normal = UnifiedSkewNormalRV()


class UnifiedSkewNormal(pm.Continuous):
    r"""Unified skew-normal distribution.

    A normal vector seen through a condition on latent ones. With :math:`C = D \Delta`,
    :math:`D = \mathrm{diag}(\Omega)^{1/2}`,

    .. math::

        \begin{pmatrix} x_0 \\ x_1 \end{pmatrix} \sim N\left(0,
        \begin{pmatrix} \Gamma & C^\top \\ C & \Omega \end{pmatrix}\right), \qquad
        z = \mu + x_1 \;\text{ given }\; x_0 + \gamma > 0,

        \log p(z) = \log N(z; \mu, \Omega)
        + \log \Phi_s\{\gamma + C^\top \Omega^{-1} (z - \mu);\, \Gamma - C^\top \Omega^{-1} C\}
        - \log \Phi_s(\gamma; \Gamma).

    With s = 0 it is the multivariate normal, with p = s = 1 and gamma = 0 the skew-normal. The
    normal probabilities are exact for s <= 2, and computed with fixed quasi-random points beyond,
    so that the density is a deterministic, differentiable function of the parameters.

    ========  ===================================================================
    Support   :math:`z \in \mathbb{R}^p`
    Mean      :math:`\mu + C \Gamma^{-1} E[u]`, :math:`u \sim N(0, \Gamma)`
              given :math:`u > -\gamma`
    ========  ===================================================================

    Parameters
    ----------
    mu : tensor_like of float, shape (..., p)
        Location :math:`\mu` (not the mean). A scalar is repeated.
    scale : tensor_like of float, shape (..., p, p)
        :math:`\Omega`, symmetric and positive definite.
    skewness : tensor_like of float, shape (..., p, s)
        :math:`\Delta`; the shape (p,) will do when `latent_cov` is known to be 1 by 1. Zero entries
        leave the normal distribution alone. Give either this or `cross_cov`.
    truncation : tensor_like of float, shape (..., s)
        :math:`\gamma`; large positive values leave the normal distribution alone. A scalar is
        repeated.
    latent_cov : tensor_like of float, shape (..., s, s)
        :math:`\Gamma`, symmetric and positive definite, as
        :math:`[[\Gamma, C^\top], [C, \Omega]]` has to be.
    cross_cov : tensor_like of float, shape (..., p, s), optional, keyword only
        :math:`C` in place of the skewness.

    Raises
    ------
    TypeError
        Neither or both of `skewness` and `cross_cov`, or an argument that is missing.
    ValueError, NotPositiveDefiniteError
        Constants that are invalid: NaN, infinities, matrices that are not positive definite.
        Parameters that turn out invalid while sampling have log density -inf; draws with them
        raise.

    See Also
    --------
    pymc_skewgp.SUN : The same distribution as a NumPy value, with moments, marginals, conditionals
        and the conjugate update.

    References
    ----------
    .. [1] R. B. Arellano-Valle & A. Azzalini (2006), On the unification of families of skew-normal
       distributions, doi:10.1111/j.1467-9469.2006.00503.x.
    .. [2] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
    >>> scale = np.array([[1.0, 0.5], [0.5, 2.0]])
    >>> z = UnifiedSkewNormal.dist(0.0, scale, [[0.9], [0.3]], 0.0, [[1.0]])
    >>> print(f"{pm.logp(z, [1.0, 1.0]).eval():.4f}")
    -2.0164

    In a model, with a random location:

    >>> with pm.Model(coords={"axis": ["a", "b"]}):
    ...     mu = pm.Normal("mu")
    ...     z = UnifiedSkewNormal("z", mu, scale, [[0.9], [0.3]], 0.0, [[1.0]], dims="axis")
    >>> pm.draw(z, draws=3, random_seed=1).shape
    (3, 2)
    """

    rv_op = unified_skew_normal

    @classmethod
    def dist(
        cls,
        mu: Any,
        scale: Any,
        skewness: Any = None,
        truncation: Any = None,
        latent_cov: Any = None,
        *,
        cross_cov: Any = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        sun = as_sun_parameters(mu, scale, skewness, truncation, latent_cov, cross_cov)
        return super().dist(list(sun), **kwargs)

    def support_point(rv: Any, size: Any, mu: Any, *parameters: Any) -> Any:
        """Location: every point has positive density, as no latent row is a function of z."""
        if not rv_size_is_none(size):
            return pt.full(pt.concatenate([size, [mu.shape[-1]]]), mu)
        scale, cross_cov, truncation, latent_cov = parameters
        # Only their batch dimensions count; a sum is there even where s = 0.
        rows = [truncation.sum(-1, keepdims=True), latent_cov.sum(-1).sum(-1, keepdims=True)]
        return pt.broadcast_arrays(mu, scale[..., -1], cross_cov.sum(-1), *rows)[0]

    def logp(value: Any, *parameters: Any) -> Any:
        """Log density, -inf where the parameters are invalid; cross-covariance, not skewness."""
        warn_of_other_methods()
        sun = SunParameters(*parameters)
        offset = value - sun.mu
        if is_known_normal(sun):
            return _possible(densities.pt_normal_log_density(offset, sun.scale))
        joint = densities.pt_log_density_and_orthant(offset, *sun[1:])
        return _possible(joint - densities.pt_mvn_logcdf(sun.truncation, sun.latent_cov))

    def logcdf(value: Any, *parameters: Any) -> Any:
        """Log distribution function: one normal probability of p + s dimensions over one of s."""
        sun = SunParameters(*parameters)
        limits = _end_to_end(value - sun.mu, sun.truncation)
        joint = densities.pt_mvn_logcdf(
            limits, _covariance_below(sun.scale, sun.cross_cov, sun.latent_cov)
        )
        if is_known_normal(sun):
            return joint
        return _possible(joint - densities.pt_mvn_logcdf(sun.truncation, sun.latent_cov))


# Blocks put together core by core, their batch dimensions broadcast.
_end_to_end = pt.vectorize(lambda x, y: pt.concatenate([x, y]), signature="(p),(s)->(n)")
_covariance_below = pt.vectorize(
    lambda scale, cross, latent: pt.concatenate(
        [pt.concatenate([scale, -cross], axis=1), pt.concatenate([-cross.T, latent], axis=1)],
        axis=0,
    ),
    signature="(p,p),(p,s),(s,s)->(n,n)",
)


def _possible(log_density: Any) -> Any:
    """Minus infinity in place of what comes of probabilities that do not exist."""
    return pt.switch(pt.lt(log_density, np.inf), log_density, -np.inf)
