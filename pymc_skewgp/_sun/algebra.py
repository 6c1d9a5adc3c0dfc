"""Marginals, conditionals, affine maps and conjugate updates of SUN parameters."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

Rows = NDArray[np.intp]
_LOG_2PI = float(np.log(2.0 * np.pi))


def marginal(sun: SunParameters, rows: Rows) -> SunParameters:
    """Of the coordinates `rows`."""
    return sun._replace(
        mu=sun.mu[rows], scale=sun.scale[np.ix_(rows, rows)], cross_cov=sun.cross_cov[rows]
    )


def conditional(sun: SunParameters, given: Rows, rest: Rows, value: FloatArray) -> SunParameters:
    r"""Of the coordinates `rest`, given that those in `given` equal `value`.

    With the given coordinates as 1, the others as 2:

    .. math::

        \mu_2 + \Omega_{21}\Omega_{11}^{-1}(z_1 - \mu_1), \quad
        \Omega_{22} - \Omega_{21}\Omega_{11}^{-1}\Omega_{12}, \quad
        C_2 - \Omega_{21}\Omega_{11}^{-1} C_1,

        \gamma + C_1^\top\Omega_{11}^{-1}(z_1 - \mu_1), \quad
        \Gamma - C_1^\top\Omega_{11}^{-1}C_1.
    """
    offset = value - sun.mu[given]
    known, shared = sun.scale[np.ix_(given, given)], sun.scale[np.ix_(given, rest)]
    chol, _ = linalg.cholesky("scale of the given coordinates", known)
    weights = cho_solve((chol, True), shared)
    cross = sun.cross_cov[given]
    pull = cho_solve((chol, True), cross)
    return SunParameters(
        sun.mu[rest] + weights.T @ offset,
        symmetric(sun.scale[np.ix_(rest, rest)] - shared.T @ weights),
        sun.cross_cov[rest] - weights.T @ cross,
        sun.truncation + pull.T @ offset,
        symmetric(sun.latent_cov - cross.T @ pull),
    )


def affine(sun: SunParameters, A: FloatArray, b: FloatArray) -> SunParameters:
    """Of A z + b."""
    return sun._replace(
        mu=A @ sun.mu + b, scale=symmetric(A @ sun.scale @ A.T), cross_cov=A @ sun.cross_cov
    )


def conjugate_update(
    sun: SunParameters, W: FloatArray, Z: FloatArray, S: FloatArray
) -> SunParameters:
    r"""Posterior under the likelihood :math:`\Phi_m(Z + W z; S)`.

    .. math::

        \tilde\gamma = \begin{pmatrix}\gamma \\ Z + W\mu\end{pmatrix}, \quad
        \tilde C = (C, \Omega W^\top), \quad
        \tilde\Gamma = \begin{pmatrix}\Gamma & C^\top W^\top \\
        W C & W\Omega W^\top + S\end{pmatrix}.
    """
    pull, cross = W @ sun.scale, W @ sun.cross_cov
    return sun._replace(
        cross_cov=np.hstack([sun.cross_cov, pull.T]),
        truncation=np.concatenate([sun.truncation, Z + W @ sun.mu]),
        latent_cov=np.block([[sun.latent_cov, cross.T], [cross, symmetric(pull @ W.T) + S]]),
    )


def density_terms(
    sun: SunParameters, point: FloatArray, chol: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    r"""Log density of the normal part, and the limits and covariance of the orthant given z.

    .. math:: \log N(z; \mu, \Omega), \quad \gamma + C^\top \Omega^{-1} (z - \mu), \quad
        \Gamma - C^\top \Omega^{-1} C

    `point` is z less mu, `chol` the Cholesky factor of Omega.
    """
    white = solve_triangular(chol, point, lower=True)
    normal = -0.5 * (white @ white + point.size * _LOG_2PI) - np.log(chol.diagonal()).sum()
    half = solve_triangular(chol, sun.cross_cov, lower=True)
    return normal, sun.truncation + half.T @ white, sun.latent_cov - half.T @ half


def coordinates(n_dims: int, idx: ArrayLike | slice) -> Rows:
    """What `idx` names among so many coordinates: at least one, and each once."""
    try:
        rows = np.atleast_1d(np.arange(n_dims)[idx])  # type: ignore[index]
    except IndexError as error:
        raise IndexError(f"idx does not fit {n_dims} coordinates: {error}.") from error
    if rows.size == 0 or np.unique(rows).size != rows.size:
        raise ValueError(f"idx must name at least one coordinate, each once; got {idx!r}.")
    return rows
