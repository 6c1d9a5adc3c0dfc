"""The multivariate normal log density as a PyTensor graph, with the factors that it is made of."""

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.linalg import solve_triangular


class NormalLogDensity(NamedTuple):
    """Log density (...), lower Cholesky factor L (..., n, n) of the covariance, L^-1 (x - mu)."""

    value: Any
    chol: Any
    white: Any


def normal_log_density(value: Any, mu: Any, cov: Any) -> NormalLogDensity:
    r"""Log density of a multivariate normal, NaN where `cov` is not positive definite.

    .. math:: \log N(x; \mu, L L^\top) = -\tfrac12 \|L^{-1}(x - \mu)\|^2 - \sum_i \log L_{ii}
        - \tfrac{n}{2} \log 2\pi

    Parameters
    ----------
    value, mu : tensor_variable, shape (..., n)
    cov : tensor_variable, shape (..., n, n)

    Returns
    -------
    NormalLogDensity
    """
    chol = pt.linalg.cholesky(cov, lower=True)
    white = solve_triangular(chol, value - mu, lower=True, b_ndim=1)
    log_det = pt.log(pt.diagonal(chol, axis1=-2, axis2=-1)).sum(axis=-1)
    log_2pi = value.shape[-1].astype("floatX") * np.log(2.0 * np.pi)
    return NormalLogDensity(-0.5 * (pt.sqr(white).sum(axis=-1) + log_2pi) - log_det, chol, white)
