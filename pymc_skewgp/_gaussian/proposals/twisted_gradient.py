r"""The twisted sampler's log probability, differentiated along its own draws.

At fixed points the log of the mean weight is a smooth function of the limits and of the
covariance G: directly, and through EP's sites. The derivative of that function is the
reverse of the recursion by which the draws were made, and of EP's fixed point. Its noise is that of
the *value*, which is small because the weights are nearly equal; averages of scores over the draws
(Fisher's identity) have the noise of the draws.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.proposals.ep_adjoint import site_motion
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal
from pymc_skewgp._gaussian.proposals.twisted_draws import StepSums, TwistedDraws
from pymc_skewgp._gaussian.weights import IntArray, log_mean_exp, normalized_weights
from pymc_skewgp._validation import FloatArray

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
    drawn: TwistedDraws,
    *,
    ep: EPResult | None = None,
    relax: float = 1.0,
) -> WeightGradient:
    r"""Derivative of the log of the mean weight in the limits and the covariance.

    With the adjoints of the steps, `StepSums`: :math:`\bar C = \bar c e'`, through
    :math:`C C' = S`, and :math:`\mathrm dS = S (G^{-1}\, \mathrm dG\, G^{-1} - \mathrm dT)\, S`,
    T being the sites' precisions.

    Parameters
    ----------
    cov : DenseCovariance
    proposal : TwistedProposal
        Without a leading direction.
    drawn : TwistedDraws
        At fixed points.
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
    log_weights = drawn.log_weights
    steps = _steps(proposal, drawn.sums(normalized_weights(log_weights)))
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


def _steps(proposal: TwistedProposal, sums: StepSums) -> _Steps:
    chol, mean, tau, nu = proposal.chol, proposal.mean, proposal.tau, proposal.nu
    scale = chol.diagonal()
    var = scale**2
    left = 1.0 - tau * var
    sd = scale / np.sqrt(left)
    first, second = sums.centre, sums.square
    total, product, sd_bar = sums.cavity_bar, sums.cavity_product, sums.sd_bar
    quadratic = (tau * second - 2.0 * nu * first + nu**2 * var) / left
    var_bar = nu**2 + quadratic * tau + tau + sd_bar / (sd * left)
    var_bar += 2.0 * (tau * product - nu * total)
    var_bar /= 2.0 * left
    tau_bar = (second + var * (quadratic + 1.0 + 2.0 * product + sd_bar * sd)) / (2.0 * left)
    nu_bar = (nu * var - first - var * total) / left

    chol_bar = sums.chol_bar
    own = np.diag_indices_from(chol_bar)
    chol_bar[own] = 2.0 * scale * var_bar - chol_bar[own] / scale
    # log Z = -alpha'm/2 - log det(I + GT)/2, whose determinant is left to the caller.
    alpha_bar = nu_bar - 0.5 * mean
    mean_bar = -tau * alpha_bar - 0.5 * nu - sums.lower_bar - sums.upper_bar
    return _Steps(sums.lower_bar, sums.upper_bar, mean_bar, alpha_bar, tau_bar, chol_bar)


def _by_sites(
    proposal: TwistedProposal, steps: _Steps, phi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Derivatives in nu and tau of sites exp(nu w - tau w^2 / 2), w = u - mean, mean fixed."""
    chol = proposal.chol
    by_nu = steps.alpha + chol @ (chol.T @ steps.mean)
    # dS = -S dT S, and d log det(I + G T) = tr(S dT).
    by_tau = steps.tau - np.einsum("ij,ij->i", chol @ phi + 0.5 * chol, chol)
    return by_nu, by_tau


def _unordered(x: FloatArray, order: IntArray) -> FloatArray:
    """Rows put back where the caller has them."""
    result = np.empty_like(x)
    result[order] = x
    return result
