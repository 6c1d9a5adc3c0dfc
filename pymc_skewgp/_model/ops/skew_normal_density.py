"""The numerator of the unified skew-normal density as a graph with gradient."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.linalg import solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.density_and_orthant import density_and_orthant
from pymc_skewgp._model.ops.value_with_derivatives import ValueWithDerivatives, with_batches
from pymc_skewgp._validation import FloatArray


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
    >>> from pymc_skewgp._model.ops.skew_normal_density import LogDensityAndOrthant
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
        return evaluate(*inputs)


def evaluate(*inputs: FloatArray) -> tuple[FloatArray, ...]:
    """`density_and_orthant` as the arrays that an Op gives."""
    value, *derivatives = density_and_orthant(*inputs)
    return np.asarray(value), *(np.ascontiguousarray(x) for x in derivatives)


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
    >>> from pymc_skewgp._model.ops.skew_normal_density import pt_log_density_and_orthant
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
    >>> from pymc_skewgp._model.ops.skew_normal_density import pt_normal_log_density
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
