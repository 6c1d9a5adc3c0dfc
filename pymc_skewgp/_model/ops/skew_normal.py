"""Unified skew-normal parameters as PyTensor graphs: the SkewGP prior and what follows from it."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.linalg import solve_triangular

from pymc_skewgp._model.ops.double_precision import as_real
from pymc_skewgp._sun.parameters import SunParameters

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


def probit_limits(sun: SunParameters, labels: Graph) -> tuple[Graph, Graph, Graph]:
    """`interval_limits` of labels: f + e > 0 for those that are positive, f + e < 0 for others."""
    return interval_limits(sun, *label_intervals(labels))


def label_intervals(labels: Graph) -> tuple[Graph, Graph, Graph]:
    """Limits and noise of a probit likelihood's rows, as `interval_limits` takes them."""
    positive = pt.gt(labels, 0)
    # Of NumPy: PyTensor would take a Python number for single precision.
    zero, infinity = np.float64(0.0), np.float64(np.inf)
    lower, upper = pt.switch(positive, zero, -infinity), pt.switch(positive, infinity, zero)
    return lower, upper, pt.ones_like(labels, dtype="float64")
