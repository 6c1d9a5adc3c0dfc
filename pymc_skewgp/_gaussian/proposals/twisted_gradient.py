r"""The twisted sampler's log probability, differentiated along its own draws.

At fixed points the log of the mean weight is a smooth function of the limits and of the
covariance G: directly, and through EP's sites. The derivative of that function is the
reverse of the recursion by which the draws were made, and of EP's fixed point. Its noise is that of
the *value*, which is small because the weights are nearly equal; averages of scores over the draws
(Fisher's identity) have the noise of the draws.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.proposals.ep_adjoint import site_motion
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal
from pymc_skewgp._gaussian.univariate import BoolArray, edge_densities
from pymc_skewgp._gaussian.weights import IntArray, log_mean_exp, normalized_weights
from pymc_skewgp._validation import FloatArray

_BLOCK = 64  # rows between two matrix products
# Nats. EP's residual leaves a thousandth of this; more, or what is not a number, is the round-off
# of a covariance that has next to no digits, and the sites count as constants.
_LARGEST_CORRECTION = 0.01


class WeightGradient(NamedTuple):
    """The log of the mean weight and its derivatives, at fixed points."""

    value: float  # where EP's sites count, as they are at the fixed point
    lower: FloatArray  # (n,)
    upper: FloatArray  # (n,)
    cov: FloatArray  # (n, n), symmetric


def weight_gradient(
    cov: DenseCovariance,
    proposal: TwistedProposal,
    points: FloatArray,
    u: FloatArray,
    log_weights: FloatArray,
    *,
    ep: EPResult | None = None,
    relax: float = 1.0,
) -> WeightGradient:
    r"""Derivative of ``log_mean_exp(log_weights)`` in the limits and the covariance.

    Step k of the sampler is a function of the conditional mean :math:`c_k = C_{k,<k} e_{<k}` and of
    :math:`C_{kk}`: its noise :math:`e_k` and its term of the log weight. Backwards from the last
    step, the adjoint of :math:`e_k` collects :math:`C_{jk} \bar c_j` from the later steps j and
    gives :math:`\bar c_k`; then :math:`\bar C = \bar c e'`, through :math:`C C' = S`, and
    :math:`\mathrm dS = S (G^{-1}\, \mathrm dG\, G^{-1} - \mathrm dT)\, S`, T being the sites'
    precisions.

    Parameters
    ----------
    cov : DenseCovariance
    proposal : TwistedProposal
        Without a leading direction.
    points, u, log_weights : ndarray
        What ``u, log_weights = proposal.draw(points)`` took and gave.
    ep : EPResult, optional
        The fixed point behind the proposal: its sites are functions of the limits and the
        covariance, and count as such. None: the sites are constants.
    relax : float, default 1
        Power of EP's sites that the proposal was made with.

    Returns
    -------
    WeightGradient

    References
    ----------
    .. [1] S. P. Smith (1995), Differentiation of the Cholesky algorithm,
       doi:10.1080/10618600.1995.10474671.
    """
    order, chol = proposal.order, proposal.chol
    steps = _reverse_steps(proposal, points, u, log_weights)
    # S S_bar S = C phi C', phi the lower triangle of C' C_bar with half its diagonal.
    phi = np.tril(chol.T @ steps.chol)
    phi[np.diag_indices_from(phi)] *= 0.5
    half = cho_solve((cov.chol, True), _unordered(chol, order), check_finite=False)  # G^-1 C
    inverse = np.empty_like(chol)
    inverse[:, order] = half @ chol.T  # G^-1 S
    tau, alpha = _unordered(proposal.tau, order), _unordered(proposal.nu, order)
    by_mean = np.outer(half @ (chol.T @ steps.mean), alpha)
    gradient = half @ phi @ half.T + by_mean - 0.5 * inverse * tau
    value = log_mean_exp(log_weights)
    lower, upper = _unordered(steps.lower, order), _unordered(steps.upper, order)
    if ep is not None:
        by_nu, by_tau = (_unordered(x, order) for x in _by_sites(proposal, steps, phi))
        if relax == 1.0:
            posterior = np.empty_like(chol)
            posterior[np.ix_(order, order)] = chol @ chol.T
        else:
            # By EP's sites, not their power, and about EP's mean, not the proposal's.
            by_tau = relax * (by_tau + (ep.mean - _unordered(proposal.mean, order)) * by_nu)
            by_nu = relax * by_nu
            posterior = cov.site_covariance(ep.tau)
            inverse = cho_solve((cov.chol, True), posterior, check_finite=False)
        limits = _unordered(proposal.lower, order), _unordered(proposal.upper, order)
        motion = site_motion(ep, posterior, *limits, by_nu, by_tau)
        if abs(motion.value) < _LARGEST_CORRECTION:
            gradient += np.outer(inverse @ motion.mean, ep.weights)
            gradient += (inverse * motion.variance) @ inverse.T
            lower, upper, value = lower + motion.lower, upper + motion.upper, value + motion.value
    return WeightGradient(value, lower, upper, symmetric(gradient))


class _Steps(NamedTuple):
    """Derivatives in what the steps are made of, in the order of the steps."""

    lower: FloatArray
    upper: FloatArray
    mean: FloatArray  # at fixed nu, that is with alpha = nu - tau mean
    alpha: FloatArray  # G^-1 mean: what the proposal calls nu
    tau: FloatArray  # at fixed alpha, mean and chol
    chol: FloatArray


def _reverse_steps(
    proposal: TwistedProposal, points: FloatArray, u: FloatArray, log_weights: FloatArray
) -> _Steps:
    order, chol, mean = proposal.order, proposal.chol, proposal.mean
    tau, nu, scale = proposal.tau, proposal.nu, chol.diagonal()
    weights = normalized_weights(log_weights)
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
    total, product = cavity_bar.sum(axis=1), _dots(cavity_bar, cavity)
    quadratic = (tau * second - 2.0 * nu * first + nu**2 * var) / left
    var_bar = nu**2 + quadratic * tau + tau + sd_bar / (sd * left)
    var_bar += 2.0 * (tau * product - nu * total)
    var_bar /= 2.0 * left
    tau_bar = (second + var * (quadratic + 1.0 + 2.0 * product + sd_bar * sd)) / (2.0 * left)
    nu_bar = (nu * var - first - var * total) / left

    chol_bar = np.tril(centre_bar @ noise.T, -1)
    chol_bar[np.diag_indices_from(chol_bar)] = (
        2.0 * scale * var_bar - _dots(noise_bar, noise) / scale
    )
    # log Z = -alpha'm/2 - log det(I + GT)/2, whose determinant is left to the caller.
    alpha_bar = nu_bar - 0.5 * mean
    mean_bar = -tau * alpha_bar - 0.5 * nu - limits_bar.sum(axis=0)
    return _Steps(limits_bar[0], limits_bar[1], mean_bar, alpha_bar, tau_bar, chol_bar)


def _by_sites(
    proposal: TwistedProposal, steps: _Steps, phi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Derivatives in nu and tau of sites exp(nu w - tau w^2 / 2), w = u - mean, mean fixed."""
    chol = proposal.chol
    by_nu = steps.alpha + chol @ (chol.T @ steps.mean)
    # dS = -S dT S, and d log det(I + G T) = tr(S dT).
    by_tau = steps.tau - _dots(chol @ phi, chol) - 0.5 * _dots(chol, chol)
    return by_nu, by_tau


def _unordered(x: FloatArray, order: IntArray) -> FloatArray:
    """Rows put back where the caller has them."""
    result = np.empty_like(x)
    result[order] = x
    return result


class _Side(NamedTuple):
    """Finite limits on one side, standardised by the step's cavity, and what they do to the step.

    `density`: derivative of its log normaliser in the limit. `follows`: that of the draw at a fixed
    point, 0 to 1.
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
