"""Parameters of a unified skew-normal distribution, in cross-covariance form."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._validation import FloatArray, as_covariance, as_vector


class SunParameters(NamedTuple):
    r"""One record of the parameters, for arrays and for graphs of them alike.

    .. math:: \begin{pmatrix} x_0 \\ x_1 \end{pmatrix} \sim N\left(0,
        \begin{pmatrix} \Gamma & C^\top \\ C & \Omega \end{pmatrix}\right), \qquad
        z = \mu + x_1 \;\text{ given }\; x_0 > -\gamma

    The skewness matrix :math:`\Delta = \mathrm{diag}(\Omega)^{-1/2} C` of the literature is an
    argument or an attribute of what users see, and nowhere else.

    Attributes
    ----------
    mu : (p,)
        Location.
    scale : (p, p)
        Omega.
    cross_cov : (p, s)
        C, covariance with the latent variable x_0.
    truncation : (s,)
        gamma.
    latent_cov : (s, s)
        Gamma, covariance of the latent variable.
    """

    mu: Any
    scale: Any
    cross_cov: Any
    truncation: Any
    latent_cov: Any


def cross_covariance(scale: FloatArray, skewness: FloatArray) -> FloatArray:
    """C = D Delta, with the standard deviations of `scale` on the diagonal of D.

    A negative variance counts as none: what refuses it is the factorisation of `scale`.
    """
    return np.sqrt(np.maximum(scale.diagonal(), 0.0))[:, None] * skewness


def skewness_matrix(scale: FloatArray, cross_cov: FloatArray) -> FloatArray:
    """Delta = D^-1 C, the inverse of `cross_covariance`."""
    delta: FloatArray = cross_cov / np.sqrt(scale.diagonal())[:, None]
    return delta


def checked_parameters(
    mu: ArrayLike,
    scale: FloatArray,
    cross_cov: FloatArray,
    truncation: ArrayLike,
    latent_cov: ArrayLike,
    cross_name: str,
) -> SunParameters:
    """Parameters of the right shapes, whose covariances are positive definite.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        The message calls the cross-covariance what the caller gave it as.
    """
    p, s = cross_cov.shape
    location = as_vector("mu", mu, p)
    gamma = as_vector("truncation", truncation, s)
    if s == 0:
        linalg.cholesky("scale", scale)
        return SunParameters(location, scale, cross_cov, gamma, np.zeros((0, 0)))
    latent = as_covariance("latent_cov", latent_cov, s)
    linalg.cholesky("scale", scale)
    linalg.cholesky("latent_cov", latent)
    joint = np.block([[latent, cross_cov.T], [cross_cov, scale]])
    linalg.cholesky(f"[[latent_cov, C'], [C, scale]] (C from {cross_name})", joint)
    return SunParameters(location, scale, cross_cov, gamma, latent)


def read_only(sun: SunParameters) -> SunParameters:
    """Copies that cannot be written to."""
    copies = [np.array(parameter) for parameter in sun]
    for copy in copies:
        copy.flags.writeable = False
    return SunParameters(*copies)
