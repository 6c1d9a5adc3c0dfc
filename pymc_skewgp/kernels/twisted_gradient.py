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
from pymc_skewgp.kernels.univariate import BoolArray, edge_densities
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
    tau, nu, scale = proposal.tau, proposal.nu, chol.diagonal()
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    var = scale**2
    left = 1.0 - tau * var
    sd = scale / np.sqrt(left)
    value = u[order] - mean[:, None]
    noise = solve_triangular(chol, value, lower=True, check_finite=False)
    centre = value - scale[:, None] * noise
    cavity = (centre - (nu * var)[:, None]) / left[:, None]
    z = (value - cavity) / sd[:, None]
    sides = _sides(proposal.lower - mean, proposal.upper - mean, cavity, sd, z, points)

    followed, pushed = np.zeros_like(value), np.zeros_like(value)
    for side in sides:
        followed[side.rows] += side.follows
        pushed[side.rows] += side.density
    pushed *= weights / sd[:, None]
    slope = ((1.0 - followed) / left[:, None] - 1.0) / scale[:, None]
    own = ((tau[:, None] * centre - nu[:, None]) * weights - pushed) / left[:, None]
    noise_bar, centre_bar = _reverse(chol, slope, own)

    cavity_bar = noise_bar * ((1.0 - followed) / scale[:, None]) - pushed
    sd_bar = _dots(noise_bar, z) / scale
    limits_bar = np.zeros((2, mean.size))
    for side in sides:
        rows = side.rows
        follows = noise_bar[rows] * side.follows
        ratio = 1.0 / scale[rows]
        limits_bar[side.which, rows] = (
            follows.sum(axis=1) * ratio + side.density @ weights / sd[rows]
        )
        sd_bar[rows] -= _dots(follows, side.limit) * ratio
        sd_bar[rows] -= _dots(side.density, side.limit * weights) / sd[rows]

    first, second = centre @ weights, _dots(centre, centre * weights)
    total = cavity_bar.sum(axis=1)
    quadratic = tau * second - 2.0 * nu * first + nu**2 * var
    var_bar = nu**2 + quadratic * tau / left + tau + sd_bar / (sd * left)
    var_bar += 2.0 * (tau * _dots(cavity_bar, cavity) - nu * total)
    var_bar /= 2.0 * left
    nu_bar = (nu * var - first - var * total) / left

    chol_bar = np.tril(centre_bar @ noise.T, -1)
    chol_bar[np.diag_indices_from(chol_bar)] = (
        2.0 * scale * var_bar - _dots(noise_bar, noise) / scale
    )
    mean_bar = tau * (0.5 * mean - nu_bar) - 0.5 * nu - limits_bar.sum(axis=0)
    gradient = _through_covariance(cov, proposal, chol_bar, mean_bar)
    unordered = np.empty_like(limits_bar)
    unordered[:, order] = limits_bar
    return WeightGradient(unordered[0], unordered[1], gradient)


class _Side(NamedTuple):
    """Finite limits on one side, standardised by the step's cavity, and what they do to the step.

    `density`: derivative of its log normaliser in the limit. `follows`: that of the draw, its point
    held fixed, 0 to 1.
    """

    which: int  # 0 for lower, 1 for upper
    rows: slice | BoolArray
    limit: FloatArray
    density: FloatArray
    follows: FloatArray


def _sides(
    lower: FloatArray,
    upper: FloatArray,
    cavity: FloatArray,
    sd: FloatArray,
    z: FloatArray,
    points: FloatArray,
) -> list[_Side]:
    a, b = (lower[:, None] - cavity) / sd[:, None], (upper[:, None] - cavity) / sd[:, None]
    at_a, at_b = edge_densities(a, b)
    sides = []
    for which, limits, x, density in ((0, lower, a, -at_a), (1, upper, b, at_b)):
        finite = np.isfinite(limits)
        if finite.any():
            rows = slice(None) if finite.all() else finite
            x, draw = x[rows], z[rows]
            share = points[rows] if which else 1.0 - points[rows]
            follows = share * np.exp(0.5 * (draw - x) * (draw + x))
            sides.append(_Side(which, rows, x, density[rows], follows))
    return sides


def _dots(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.einsum("ij,ij->i", x, y)


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
