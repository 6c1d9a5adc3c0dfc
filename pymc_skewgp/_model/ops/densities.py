"""Log probabilities and densities as PyTensor Ops, with their gradients among the outputs."""

import importlib
import multiprocessing
import re
from collections.abc import Callable, Sequence
from math import ceil, sqrt
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.compile import optdb
from pytensor.gradient import DisconnectedType, disconnected_grad, grad_not_implemented
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import graph_rewriter
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg import solve_triangular
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian import log_prob_gradient as gradients
from pymc_skewgp._gaussian.sparse import SparseCholesky
from pymc_skewgp._model.ops.plain_mode import as_real
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, as_count

# Implementations for numba that are imported when PyTensor first compiles for it.


_NUMBA = "pymc_skewgp._model.ops.numba_dispatch"


@graph_rewriter
def _import_for_numba(fgraph: Any) -> None:
    """Have the module that registers implementations imported before the backend needs them.

    PyTensor's numba backend takes a second to import: whoever only imports this package must not
    pay for it. Rewrites with the tag of a backend run for every function that is compiled for it,
    and for no other.
    """
    importlib.import_module(_NUMBA)


optdb.register(f"import_{_NUMBA}", _import_for_numba, "numba", position=-1)

# An Op whose first output is a value and whose others are its derivatives, one for each input.


class ObjectModeDraws(Op):
    """The draws of a random variable by its ``perform``, for numba to call in object mode."""

    __props__ = ("rv_op",)

    def __init__(self, rv_op: RandomVariable) -> None:
        self.rv_op = rv_op
        if rv_op.inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, *inputs: Any) -> Apply:
        """Node with the inputs and outputs of the random variable's own."""
        outputs = self.rv_op.make_node(*inputs).outputs
        return Apply(self, list(inputs), [output.type() for output in outputs])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Draw."""
        self.rv_op.perform(node, inputs, outputs)


class ValueWithDerivatives(Op):
    """One evaluation gives the value and its gradient; the derivatives themselves have none.

    Attributes
    ----------
    quantity : str
        What the value is, for the message about second derivatives.
    input_names : tuple of str
        Names of the inputs, for messages; the last may be left out.
    gufunc_signature : str
        Their core dimensions, those that must agree by one name.
    """

    quantity: ClassVar[str]
    input_names: ClassVar[tuple[str, ...]]
    gufunc_signature: ClassVar[str]
    # The value and its derivatives in the inputs, arrays.
    evaluate: Callable[..., tuple[FloatArray, ...]]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if multiprocessing.parent_process() is not None:
            # A spawned chain compiles functions that were rewritten by its parent: the rewrite that
            # imports the implementation for numba ran there, not here.
            importlib.import_module(_NUMBA)

    def input_dims(self) -> list[list[str]]:
        """Names of the core dimensions of each input."""
        inputs = self.gufunc_signature.split("->")[0]
        return [re.findall(r"\w+", group) for group in re.findall(r"\((.*?)\)", inputs)]

    def make_node(self, *inputs: Any) -> Apply:
        """Node with the value and a derivative for each input; inputs become float64."""
        variables = [pt.cast(pt.as_tensor_variable(x), "float64") for x in inputs]
        known: dict[str, int] = {}
        dims = self.input_dims()
        names = self.input_names[: len(dims)]  # the last may be left out
        for name, own, x in zip(names, dims, variables, strict=True):
            if x.type.ndim != len(own):
                raise ValueError(
                    f"{name} must have {len(own)} dimension(s), got {x.type.ndim}: "
                    "batches go through `with_batches`."
                )
            for dim, length in zip(own, x.type.shape, strict=True):
                if length is not None and known.setdefault(dim, length) != length:
                    found = ", ".join(str(x.type.shape) for x in variables)
                    raise ValueError(
                        f"{', '.join(self.input_names)} must be of one length {dim} each, "
                        f"got shapes {found}."
                    )
        shapes = [tuple(known.get(dim) for dim in own) for own in dims]
        derivatives = [pt.tensor(dtype="float64", shape=shape) for shape in shapes]
        return Apply(self, variables, [pt.dscalar(), *derivatives])

    def infer_shape(self, node: Apply, input_shapes: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Shapes of the outputs from those of the inputs."""
        return [(), *input_shapes]

    def perform(self, node: Apply, inputs: Sequence[FloatArray], outputs: Any) -> None:
        """Evaluate."""
        for storage, result in zip(outputs, self.evaluate(*inputs), strict=True):
            storage[0] = result

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """Gradient of the value; the derivatives among the outputs have none."""
        of_value, *of_derivatives = cotangents
        if any(not isinstance(x.type, DisconnectedType) for x in of_derivatives):
            comment = f"Second derivatives of a {self.quantity} are not available."
            return [grad_not_implemented(self, i, x, comment) for i, x in enumerate(inputs)]
        return [of_value * derivative for derivative in outputs[1:]]


def with_batches(op: ValueWithDerivatives, *inputs: TensorVariable) -> TensorVariable:
    """Value of `op`, for each member of the inputs' batch dimensions where there are any."""
    if all(x.type.ndim == len(own) for x, own in zip(inputs, op.input_dims(), strict=True)):
        return op(*inputs)[0]
    return Blockwise(op)(*(pt.cast(x, "float64") for x in inputs))[0]


def checked_method(method: gradients.LogProbMethod) -> gradients.LogProbMethod:
    """One that there is; ValueError otherwise."""
    if method not in gradients.METHODS:
        raise ValueError(f"method must be one of {gradients.METHODS}, got {method!r}.")
    return method


class CARLogDet(ValueWithDerivatives):
    r"""Log determinant of :math:`I - \alpha D^{-1} W`, W sparse with row sums D; input alpha.

    Its derivative is :math:`-\mathrm{tr}\{(D - \alpha W)^{-1} W\}`, which asks for the inverse
    where W has entries.

    Parameters
    ----------
    W : csr_array, shape (d, d)
        Symmetric, each row with an entry.
    """

    quantity = "log determinant"
    input_names = ("alpha",)
    gufunc_signature = "()->(),()"

    def __init__(self, W: Any) -> None:
        self._W, self._rows = W, sparse.diags_array(W.sum(axis=0))

    def evaluate(self, alpha: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Minus infinity where the matrix is not positive definite."""
        try:
            chol = SparseCholesky(self._rows - float(alpha) * self._W)
        except NotPositiveDefiniteError:
            return np.array(-np.inf), np.array(0.0)
        i, j = self._W.nonzero()
        slope = -float(self._W[i, j] @ chol.entries(i, j))
        value = chol.log_det - float(np.log(self._rows.diagonal()).sum())
        return np.array(value), np.array(slope)


class MvnLogProb(ValueWithDerivatives):
    r"""Log probability of a rectangle under N(0, cov), and its derivatives.

    Inputs lower (n,), upper (n,), cov (n, n); outputs value (), d/dlower (n,), d/dupper (n,),
    d/dcov (n, n): see `log_prob_and_gradient`. One evaluation gives all, because the draws behind
    the value are those behind the gradient; the derivatives themselves have none.

    Parameters
    ----------
    method : {"twisted", "ep"}
        How, for n >= 3; one and two dimensions are exact.
    n_draws : int, default 256
        Draws of "twisted".
    random_seed : int, default 0
        Fixes its points.

    Raises
    ------
    ValueError
        An unknown method, `n_draws` < 1, a negative seed.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.densities import MvnLogProb
    >>> value, *gradient = MvnLogProb()(np.zeros(3), np.full(3, np.inf), 0.5 + 0.5 * np.eye(3))
    >>> print(f"{value.eval():.2f}")  # log(1/4)
    -1.39
    """

    quantity = "normal probability"
    __props__ = ("method", "n_draws", "random_seed")
    input_names = ("lower", "upper", "cov")
    gufunc_signature = "(n),(n),(n,n)->(),(n),(n),(n,n)"

    def __init__(
        self, method: gradients.LogProbMethod = "twisted", n_draws: int = 256, random_seed: int = 0
    ) -> None:
        self.method, self.n_draws = checked_method(method), as_count("n_draws", n_draws)
        # An integer and nothing else: a value that changes from call to call would mislead NUTS.
        self.random_seed = as_count("random_seed", random_seed, minimum=0)

    def evaluate(self, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        """`log_prob_and_gradient` as the arrays that an Op gives."""
        options: dict[str, Any] = {"method": self.method, "n_draws": self.n_draws}
        found = gradients.log_prob_and_gradient(*inputs, random_seed=self.random_seed, **options)
        return _as_outputs(found.value, found.lower, found.upper, found.cov)


def _as_outputs(value: Any, *derivatives: FloatArray) -> tuple[FloatArray, ...]:
    return np.asarray(value), *(np.ascontiguousarray(x) for x in derivatives)


def pt_mvn_logcdf(
    x: Any,
    cov: Any,
    *,
    lower: Any = None,
    method: gradients.LogProbMethod = "twisted",
    n_draws: int = 256,
    random_seed: int = 0,
) -> TensorVariable:
    r"""Log probability that a multivariate normal lies in a rectangle, with gradient.

    .. math:: \log P(l < u \le x), \qquad u \sim N(0, \Sigma)

    The symbolic counterpart of `mvn_logcdf`, for models: differentiable in `x`, `lower` and `cov`,
    deterministic (its random points are fixed), and minus infinity, with gradient zero, where a
    limit is not a number, a lower limit is not below its upper one, or the covariance of the rows
    with limits is not positive definite (from three rows on: beyond what a jitter of round-off's
    size mends).

    Parameters
    ----------
    x : tensor_like, shape (..., n)
        Upper limits, infinities allowed; a scalar is repeated.
    cov : tensor_like, shape (..., n, n)
        Covariance, of which the symmetric part is read.
    lower : tensor_like, shape (..., n), optional
        Lower limits, or a scalar. Default: minus infinity.
    method : {"twisted", "ep"}
        For n >= 3 (one and two dimensions are exact). "twisted": sequential importance sampling,
        right up to a small Monte Carlo error, in value and gradient. "ep": expectation propagation,
        cheaper, smooth and with the exact gradient of its value, but biased by some hundredths
        of a nat, and more at large variances.
    n_draws : int, default 256
        Draws of "twisted".
    random_seed : int, default 0
        Which points they use.

    Returns
    -------
    tensor_variable, shape (...)
        The batch dimensions of the arguments, broadcast together.

    Raises
    ------
    ValueError
        Dimensions or static shapes that do not fit, an unknown method, `n_draws` < 1.

    References
    ----------
    .. [1] A. Genz (1992), Numerical computation of multivariate normal probabilities,
       doi:10.1080/10618600.1992.10477010.
    .. [2] R. L. Plackett (1954), A reduction formula for normal multivariate integrals,
       doi:10.1093/biomet/41.3-4.351.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.densities import pt_mvn_logcdf
    >>> rho = pt.dscalar("rho")
    >>> cov = (1 - rho) * pt.eye(2) + rho
    >>> log_prob = pt_mvn_logcdf([0.0, 0.0], cov)  # log{1/4 + asin(rho)/(2 pi)}
    >>> f = pytensor.function([rho], [log_prob, pytensor.grad(log_prob, rho)])
    >>> print(*(f"{float(value):.4f}" for value in f(0.5)))
    -1.0986 0.5513
    """
    op = MvnLogProb(method, n_draws, random_seed)
    cov = pt.as_tensor_variable(cov)
    if cov.type.ndim < 2:
        raise ValueError(f"cov must be (..., n, n), got {cov.type.ndim} dimension(s).")
    n = cov.shape[-1]
    upper = _vector(x, n)
    low = _vector(-np.inf if lower is None else lower, n)
    return with_batches(op, low, upper, cov)


def _vector(value: Any, n: TensorVariable) -> TensorVariable:
    variable = pt.cast(pt.as_tensor_variable(value), "float64")
    return variable if variable.type.ndim else pt.full((n,), variable)


# The numerator of the unified skew-normal density as a graph with gradient.


class LogDensityAndOrthant(ValueWithDerivatives):
    r"""Log density of a normal vector at d, times the probability of a latent orthant.

    .. math:: \log N(d; 0, \Omega)
        + \log \Phi_s(\gamma + C^\top\Omega^{-1} d;\, \Gamma - C^\top\Omega^{-1} C)

    Inputs d (p,), Omega (p, p), C (p, s), gamma (s,), Gamma (s, s); outputs the value and its
    derivatives in each: see `density_and_orthant`. The same could be written with PyTensor's
    Cholesky factor, triangular solves and products; but numba takes half a minute to compile these
    and their gradients the first time, and a second for this.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._model.ops.densities import LogDensityAndOrthant
    >>> one = np.eye(1)
    >>> value, *gradient = LogDensityAndOrthant()(np.zeros(1), one, 0.5 * one, np.zeros(1), one)
    >>> print(f"{value.eval():.4f}")  # log phi(0) + log 1/2
    -1.6121
    """

    quantity = "skew-normal density"
    __props__ = ()
    input_names = ("offset", "scale", "cross_cov", "limits", "latent_cov")
    gufunc_signature = "(p),(p,p),(p,s),(s),(s,s)->(),(p),(p,p),(p,s),(s),(s,s)"

    def evaluate(self, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        """`density_and_orthant` as the arrays that an Op gives."""
        return _as_outputs(*gradients.density_and_orthant(*inputs))


def pt_log_density_and_orthant(
    offset: Any, scale: Any, cross_cov: Any, limits: Any, latent_cov: Any
) -> TensorVariable:
    r"""Log density of a normal vector at d, times the probability of a latent orthant.

    .. math:: \log N(d; 0, \Omega)
        + \log \Phi_s(\gamma + C^\top\Omega^{-1} d;\, \Gamma - C^\top\Omega^{-1} C)

    Parameters
    ----------
    offset : tensor_variable, shape (..., p)
        d.
    scale : tensor_variable, shape (..., p, p)
        Omega.
    cross_cov : tensor_variable, shape (..., p, s)
        C; s may be 0.
    limits : tensor_variable, shape (..., s)
        gamma.
    latent_cov : tensor_variable, shape (..., s, s)
        Gamma.

    Returns
    -------
    tensor_variable, shape (...)
        Minus infinity, with gradient 0, where something is not a number or a covariance not
        positive definite.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.densities import pt_log_density_and_orthant
    >>> one, zero = pt.eye(1), pt.zeros(1)
    >>> print(f"{pt_log_density_and_orthant(zero, one, 0.5 * one, zero, one).eval():.4f}")
    -1.6121
    """
    inputs = (offset, scale, cross_cov, limits, latent_cov)
    return with_batches(LogDensityAndOrthant(), *inputs)


def pt_normal_log_density(offset: Any, cov: Any) -> TensorVariable:
    r"""Log density of a normal vector, :math:`\log N(d; 0, \Sigma)`.

    With batch dimensions it is written out, because rows are many as a rule, cost little each, and
    share the factorisation.

    Parameters
    ----------
    offset : tensor_variable, shape (..., n)
        d.
    cov : tensor_variable, shape (..., n, n)
        Sigma.

    Returns
    -------
    tensor_variable, shape (...)
        Minus infinity or NaN where something is not a number or `cov` not positive definite.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.densities import pt_normal_log_density
    >>> print(f"{pt_normal_log_density(pt.zeros(2), pt.eye(2)).eval():.4f}")  # -log(2 pi)
    -1.8379
    """
    if offset.type.ndim == 1 and cov.type.ndim == 2:
        nothing = (pt.constant(np.zeros(shape)) for shape in ((0,), (0, 0)))
        return pt_log_density_and_orthant(offset, cov, pt.zeros((offset.shape[0], 0)), *nothing)
    chol = pt.linalg.cholesky(cov, lower=True)
    white = solve_triangular(chol, offset, lower=True, b_ndim=1)
    log_det = pt.log(pt.diagonal(chol, axis1=-2, axis2=-1)).sum(axis=-1)
    log_2pi = offset.shape[-1].astype("floatX") * np.log(2.0 * np.pi)
    return -0.5 * (pt.sqr(white).sum(axis=-1) + log_2pi) - log_det


# Unified skew-normal parameters as PyTensor graphs: the SkewGP prior and what follows from it.

# Graphs have no static types of their own that would help here.
Graph = Any


def static_n_latent(sun: SunParameters) -> int | None:
    """Number s of latent dimensions, where the static shapes say it; those made here do."""
    n_latent: int | None = sun.latent_cov.type.shape[-1]
    return n_latent


def sun_of_process(
    mean: Graph, cov: Graph, phase: Graph, truncation: Graph, n_latent: int
) -> SunParameters:
    r"""A Gaussian vector conditioned on the signs of its first s coordinates.

    .. math:: f_{s+1:} \;\text{ given }\; \ell_j (f_j - m_j) / \mathrm{sd}_j + \gamma_j > 0

    Parameters
    ----------
    mean : (p,)
        Mean of the coordinates after the first s.
    cov : (s + p, s + p)
        Covariance of all.
    phase, truncation : (s,)
    n_latent : int
        s.

    Returns
    -------
    SunParameters
    """
    s = n_latent
    mean, cov = as_real(mean), as_real(cov)
    if s == 0:  # zeros of static shape, which later graphs leave out
        return SunParameters(
            mean, cov, pt.zeros((mean.shape[0], 0)), pt.zeros((0,)), pt.zeros((0, 0))
        )
    factor = as_real(phase) / pt.sqrt(pt.diagonal(cov)[:s])
    latent_cov = factor[:, None] * cov[:s, :s] * factor
    return SunParameters(
        mean,
        cov[s:, s:],
        cov[s:, :s] * factor,
        pt.specify_shape(as_real(truncation), (s,)),
        pt.specify_shape(latent_cov, (s, s)),
    )


def sun_given(sun: SunParameters, value: Graph) -> SunParameters:
    r"""The other coordinates of `sun`, given that the first ones equal `value`.

    With the given coordinates as 1, the others as 2:
    :math:`\mu_2 + \Omega_{21}\Omega_{11}^{-1}(z_1-\mu_1)`,
    :math:`\Omega_{22} - \Omega_{21}\Omega_{11}^{-1}\Omega_{12}`,
    :math:`C_2 - \Omega_{21}\Omega_{11}^{-1}C_1`,
    :math:`\gamma + C_1'\Omega_{11}^{-1}(z_1-\mu_1)`,
    :math:`\Gamma - C_1'\Omega_{11}^{-1}C_1`.
    """
    n = value.shape[0]
    known = sun.scale[:n, :n]
    chol = pt.linalg.cholesky(known)
    half = solve_triangular(chol, sun.scale[:n, n:], lower=True)
    white = solve_triangular(chol, value - sun.mu[:n], lower=True)
    mu = sun.mu[n:] + half.T @ white
    scale = sun.scale[n:, n:] - half.T @ half
    scale = 0.5 * (scale + scale.T)
    s = static_n_latent(sun)
    if s == 0:
        return sun_of_process(mu, scale, None, None, 0)
    cross = solve_triangular(chol, sun.cross_cov[:n], lower=True)
    latent_cov = sun.latent_cov - cross.T @ cross
    return SunParameters(
        mu,
        scale,
        sun.cross_cov[n:] - half.T @ cross,
        sun.truncation + cross.T @ white,
        pt.specify_shape(0.5 * (latent_cov + latent_cov.T), (s, s)),
    )


def sun_from_white(sun: SunParameters, latent: Graph | None, white: Graph) -> Graph:
    r"""The vector as a function of its truncated latent variable and of white noise.

    .. math:: f = \mu + C\Gamma^{-1}u + \mathrm{chol}(\Omega - C\Gamma^{-1}C')\, v
    """
    if latent is None:
        return sun.mu + pt.linalg.cholesky(sun.scale) @ white
    chol = pt.linalg.cholesky(sun.latent_cov)
    half = solve_triangular(chol, sun.cross_cov.T, lower=True)
    residual = pt.linalg.cholesky(sun.scale - half.T @ half)
    return sun.mu + half.T @ solve_triangular(chol, latent, lower=True) + residual @ white


def interval_limits(
    sun: SunParameters, lower: Graph, upper: Graph, noise: Graph
) -> tuple[Graph, Graph, Graph]:
    r"""Limits and covariance of the rows behind a SUN vector seen in intervals.

    .. math:: l_i < f_i + e_i < h_i, \quad e_i \sim N(0, S_i); \qquad
        G = \begin{pmatrix}\Gamma & C' \\ C & \Omega + S\end{pmatrix}

    The rows are the latent variables of the SUN, above :math:`-\gamma`, then f + e less its mean.
    The evidence is the probability of this rectangle over that of the first rows alone.

    Parameters
    ----------
    sun : SunParameters
    lower, upper : (p,)
        l and h.
    noise : (p,) or (p, p)
        S: variances, or covariances.

    Returns
    -------
    lower, upper : (s + p,)
    cov : (s + p, s + p)
    """
    lower, upper = lower - sun.mu, upper - sun.mu
    noisy = sun.scale + (noise if noise.ndim == 2 else pt.eye(noise.shape[0]) * noise)
    if static_n_latent(sun) == 0:
        return lower, upper, noisy
    top = pt.concatenate([sun.latent_cov, sun.cross_cov.T], axis=1)
    bottom = pt.concatenate([sun.cross_cov, noisy], axis=1)
    return (
        pt.concatenate([-sun.truncation, lower]),
        pt.concatenate([pt.full_like(sun.truncation, np.inf, dtype=sun.truncation.dtype), upper]),
        pt.concatenate([top, bottom], axis=0),
    )


def label_intervals(labels: Graph) -> tuple[Graph, Graph, Graph]:
    """Limits and noise of a probit likelihood's rows, as `interval_limits` takes them."""
    positive = pt.gt(labels, 0)
    # Of NumPy: PyTensor would take a Python number for single precision.
    zero, infinity = np.float64(0.0), np.float64(np.inf)
    lower, upper = pt.switch(positive, zero, -infinity), pt.switch(positive, infinity, zero)
    return lower, upper, pt.ones_like(labels, dtype="float64")


# Log of the standard normal distribution function as a PyTensor expression.

_ROOT_HALF = float(np.sqrt(0.5))
# Left of it the scaled complementary error function carries the tail; right of it nothing cancels.
_SWITCH = -1.0


def pt_log_ndtr(z: TensorVariable) -> TensorVariable:
    r"""Log distribution function of the standard normal, stable in both tails.

    .. math:: \log \Phi(z) = \log\{\tfrac12 \mathrm{erfcx}(-z/\sqrt2)\} - z^2/2
        = \mathrm{log1p}\{-\tfrac12 \mathrm{erfc}(z/\sqrt2)\}

    The first form serves z < -1, the second the rest. Each sees only arguments of its own side:
    out of its range erfcx overflows, and the gradient of a switch multiplies that by zero.

    Parameters
    ----------
    z : tensor_variable
        Any shape; infinities allowed.

    Returns
    -------
    tensor_variable
        Same shape.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.densities import pt_log_ndtr
    >>> log_p = pt_log_ndtr(pt.constant([-40.0, 0.0, 2.0])).eval()
    >>> print(*(f"{value:.4f}" for value in log_p))
    -804.6084 -0.6931 -0.0230
    """
    left, right = pt.minimum(z, _SWITCH), pt.maximum(z, _SWITCH)
    tail = pt.log(0.5 * pt.erfcx(-_ROOT_HALF * left)) - 0.5 * pt.sqr(left)
    body = pt.log1p(-0.5 * pt.erfc(_ROOT_HALF * right))
    return pt.switch(pt.lt(z, _SWITCH), tail, body)


# Log probability of an interval under the standard normal, as a PyTensor expression.

# Beyond it, infinite limits included, nothing is left of a normal, whose log is -5e15 there.
_FAR = np.float64(1e8)


def pt_log_normal_mass(lower: Any, upper: Any) -> TensorVariable:
    r"""Log probability that a standard normal is in an interval.

    .. math:: \log\{\Phi(b) - \Phi(a)\} = \log\Phi(b) + \log[1 - \exp\{\log\Phi(a) - \log\Phi(b)\}]

    on the side of 0 where the interval, or more of it, is to the left. The relative error is
    about 1e-16 (1 + a^2) / (b - a) for narrow intervals, and round-off else.

    Parameters
    ----------
    lower, upper : tensor_like
        a < b, any shapes that broadcast; infinities allowed.

    Returns
    -------
    tensor_variable
        Minus infinity where the limits are equal, with a gradient that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._model.ops.densities import pt_log_normal_mass
    >>> log_p = pt_log_normal_mass([-np.inf, 0.0, 40.0], [0.0, np.inf, 41.0]).eval()
    >>> print(*(f"{value:.4f}" for value in log_p))
    -0.6931 -0.6931 -804.6084
    """
    lower, upper = (pt.clip(as_real(x), -_FAR, _FAR) for x in (lower, upper))
    right = pt.gt(lower + upper, 0.0)
    a, b = pt.switch(right, -upper, lower), pt.switch(right, -lower, upper)
    log_below = pt_log_ndtr(b)
    return log_below + pt.log1mexp(pt_log_ndtr(a) - log_below)


# Log probability that one of several normal variables is the greatest.

_SQRT_HALF, _MILLS = np.float64(np.sqrt(0.5)), np.float64(np.sqrt(2.0 / np.pi))
_LOG_2PI = np.float64(np.log(2.0 * np.pi))
# The integrand falls off its mode at least like a standard normal: 3e-11 is left at this distance.
_REACH = 7.0
# Nodes per unit of the least width that it can have, for a relative error below 1e-10.
_DENSITY = 1.15
_N_NEWTON = 6
_N_UNKNOWN = 32  # number of variables that nodes are for where it is not known


def pt_log_greatest(mean: Any, index: Any) -> TensorVariable:
    r"""Log probability that variable c is the greatest of k independent unit normals.

    .. math:: \log \int \phi(z) \prod_{j \ne c} \Phi(\mu_c - \mu_j + z)\, dz

    The integrand is log-concave, and at its mode narrower than a standard normal, by no more than
    a factor of the root of k. The trapezoid rule around the mode converges there like a Gaussian:
    seven units to each side, and 1.15 times the root of k nodes a unit, leave a relative error
    below 1e-10, however improbable the variable. Second derivatives exist.

    Parameters
    ----------
    mean : tensor_variable, shape (..., k)
        mu.
    index : tensor_variable of int, shape (...)
        c, from 0 to k - 1.

    Returns
    -------
    tensor_variable, shape (...)

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.densities import pt_log_greatest
    >>> log_p = pt_log_greatest(pt.constant([1.0, 0.0]), pt.constant(0))
    >>> print(f"{log_p.exp().eval():.4f}")  # Phi(1 / sqrt(2))
    0.7602
    """
    k = mean.type.shape[-1] or _N_UNKNOWN
    n_nodes = 2 * ceil(_REACH * _DENSITY * sqrt(k)) + 1
    offsets = np.linspace(-_REACH, _REACH, n_nodes)
    step = offsets[1] - offsets[0]
    chosen = pt.eq(pt.arange(mean.shape[-1]), pt.shape_padright(index))
    own = pt.sum(pt.switch(chosen, mean, 0.0), axis=-1, keepdims=True)
    lead = own - mean
    # The sum hardly depends on where its nodes are: they are no part of the derivative.
    nodes = pt.expand_dims(disconnected_grad(_mode(lead, chosen)), -1) + offsets
    z = pt.shape_padright(nodes)
    each = pt_log_ndtr(pt.expand_dims(lead, -2) + z)
    # The variable itself has no factor: log Phi of 0 takes its place, then nothing.
    others = pt.sum(pt.switch(pt.expand_dims(chosen, -2), 0.0, each), axis=-1)
    log_terms = others - 0.5 * (pt.sqr(nodes) + _LOG_2PI)
    return pt.logsumexp(log_terms, axis=-1) + np.log(step)


def _mode(lead: Any, chosen: Any) -> Any:
    """Mode of the integrand, by Newton's method, which rises from 0 without passing it."""
    z = pt.zeros_like(lead[..., 0])
    for _ in range(_N_NEWTON):
        x = lead + pt.shape_padright(z)
        # phi / Phi; right of 30 it is 0, and erfcx overflows.
        ratio = _MILLS / pt.erfcx(-_SQRT_HALF * pt.minimum(x, 30.0))
        curvature = ratio * (ratio + x)
        slope = pt.sum(pt.switch(chosen, 0.0, ratio), axis=-1) - z
        z = z + slope / (1.0 + pt.sum(pt.switch(chosen, 0.0, curvature), axis=-1))
    return z
