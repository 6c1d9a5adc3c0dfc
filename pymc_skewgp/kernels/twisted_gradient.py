r"""The twisted sampler's log probability, differentiated along its own draws.

The log of the mean weight is a smooth function of the limits and of the covariance G when its
points and its sites are held fixed, and any sites give an unbiased weight: what the sites' own
motion would add has mean zero. The derivative of that function is the reverse of the recursion by
which the draws were made. Its noise is that of the *value*, which is small because the weights are
nearly equal; averages of scores over the draws (Fisher's identity) have the noise of the draws.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp.kernels.covariance import DenseCovariance
from pymc_skewgp.kernels.linalg import symmetric
from pymc_skewgp.kernels.twisted import TwistedProposal
from pymc_skewgp.kernels.univariate import edge_densities
from pymc_skewgp.kernels.validation import FloatArray

_BLOCK = 64  # rows between two matrix products


class WeightGradient(NamedTuple):
    """Derivatives of the log of the mean weight, at fixed points and sites."""

    lower: FloatArray  # (n,)
    upper: FloatArray  # (n,)
    cov: FloatArray  # (n, n), symmetric


def weight_gradient(
    cov: DenseCovariance,
    proposal: TwistedProposal,
    points: FloatArray,
    u: FloatArray,
    log_weights: FloatArray,
) -> WeightGradient:
    r"""Derivative of ``log_mean_exp(log_weights)`` in the limits and the covariance.

    Step k of the sampler is a function of the conditional mean :math:`c_k = C_{k,<k} e_{<k}` and of
    :math:`C_{kk}`: its noise :math:`e_k` and its term of the log weight. Backwards from the last
    step, the adjoint of :math:`e_k` collects :math:`C_{jk} \bar c_j` from the later steps j and
    gives :math:`\bar c_k`; then :math:`\bar C = \bar c e'`, through :math:`C C' = S`, and
    :math:`\mathrm dS = S G^{-1}\, \mathrm dG\, G^{-1} S`.

    Parameters
    ----------
    cov : DenseCovariance
    proposal : TwistedProposal
        Without a leading direction.
    points, u, log_weights : ndarray
        What ``u, log_weights = proposal.draw(points)`` took and gave.

    Returns
    -------
    WeightGradient

    References
    ----------
    .. [1] S. P. Smith (1995), Differentiation of the Cholesky algorithm,
       doi:10.1080/10618600.1995.10474671.
    """
    order, chol, mean = proposal.order, proposal.chol, proposal.mean
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    tau, nu = proposal.tau[:, None], proposal.nu[:, None]
    scale = chol.diagonal()[:, None]
    var = scale**2
    left = 1.0 - tau * var
    sd = scale / np.sqrt(left)
    value = u[order] - mean[:, None]
    noise = solve_triangular(chol, value, lower=True, check_finite=False)
    centre = value - scale * noise
    cavity = (centre - nu * var) / left
    a = (proposal.lower[:, None] - mean[:, None] - cavity) / sd
    b = (proposal.upper[:, None] - mean[:, None] - cavity) / sd
    z = (value - cavity) / sd
    at_a, at_b = edge_densities(a, b)
    # How far the draw follows each limit, point held fixed: 0 to 1.
    with_a = (1.0 - points) * np.exp(0.5 * (z - a) * (z + a))
    with_b = points * np.exp(0.5 * (z - b) * (z + b))

    slope = ((1.0 - with_a - with_b) / left - 1.0) / scale
    own = weights * ((at_a - at_b) / sd + tau * centre - nu) / left
    noise_bar, centre_bar = _reverse(chol, slope, own)

    value_bar = noise_bar / scale
    a_bar = sd * value_bar * with_a - weights * at_a
    b_bar = sd * value_bar * with_b + weights * at_b
    cavity_bar = value_bar - (a_bar + b_bar) / sd
    moved = np.where(np.isfinite(a), a * a_bar, 0.0) + np.where(np.isfinite(b), b * b_bar, 0.0)
    sd_bar = _row_sums(value_bar * z) - _row_sums(moved) / sd
    quadratic = (tau * centre - 2.0 * nu) * centre + nu**2 * var
    var_bar = (
        _row_sums(
            weights * (nu**2 + quadratic * tau / left) + 2.0 * cavity_bar * (cavity * tau - nu)
        )
        + tau
        + sd_bar / (sd * left)
    ) / (2.0 * left)
    nu_bar = _row_sums(weights * (nu * var - centre) - cavity_bar * var) / left
    low_bar, high_bar = _row_sums(a_bar / sd)[:, 0], _row_sums(b_bar / sd)[:, 0]

    chol_bar = np.tril(centre_bar @ noise.T, -1)
    diagonal = 2.0 * scale * var_bar - _row_sums(noise_bar * noise) / scale
    chol_bar[np.diag_indices_from(chol_bar)] = diagonal[:, 0]
    mean_bar = -(low_bar + high_bar) + (tau * (0.5 * mean[:, None] - nu_bar) - 0.5 * nu)[:, 0]
    gradient = _through_covariance(cov, proposal, chol_bar, mean_bar)
    lower, upper = np.empty_like(mean), np.empty_like(mean)
    lower[order], upper[order] = low_bar, high_bar
    return WeightGradient(lower, upper, gradient)


def _row_sums(x: FloatArray) -> FloatArray:
    return x.sum(axis=1, keepdims=True)


def _reverse(chol: FloatArray, slope: FloatArray, own: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Adjoints of e and c: c_bar = slope e_bar + own, e_bar_k = sum over j > k of C_jk c_bar_j."""
    noise_bar = np.zeros_like(own)
    centre_bar = np.empty_like(own)
    n = own.shape[0]
    for start in range((n - 1) // _BLOCK * _BLOCK, -1, -_BLOCK):
        stop = min(start + _BLOCK, n)
        for k in range(stop - 1, start - 1, -1):
            if k + 1 < stop:
                noise_bar[k] += chol[k + 1 : stop, k] @ centre_bar[k + 1 : stop]
            centre_bar[k] = slope[k] * noise_bar[k] + own[k]
        if start:
            noise_bar[:start] += chol[start:stop, :start].T @ centre_bar[start:stop]
    return noise_bar, centre_bar


def _through_covariance(
    cov: DenseCovariance, proposal: TwistedProposal, chol_bar: FloatArray, mean_bar: FloatArray
) -> FloatArray:
    """Derivative in G, from those in C and in m, at fixed sites."""
    order, chol = proposal.order, proposal.chol
    half = np.empty_like(chol)
    half[order] = chol
    half = cho_solve((cov.chol, True), half, check_finite=False)  # G^-1 C
    # S S_bar S = C phi C', phi the lower triangle of C' C_bar with half its diagonal.
    inner = np.tril(chol.T @ chol_bar)
    inner[np.diag_indices_from(inner)] *= 0.5
    alpha = np.empty_like(mean_bar)
    alpha[order] = proposal.nu
    tau = np.empty_like(mean_bar)
    tau[order] = proposal.tau
    gradient = half @ inner @ half.T + np.outer(half @ (chol.T @ mean_bar), alpha)
    inverse = np.empty_like(chol)  # G^-1 S
    inverse[:, order] = half @ chol.T
    return symmetric(gradient - 0.5 * inverse * tau)
