r"""The evidence of labels with its gradient: a ratio of two orthant probabilities.

.. math:: \log p(y) = \log P(u > -\tilde\gamma) - \log P(u_{1:s} > -\gamma), \qquad
    u \sim N(0, \tilde\Gamma)

By expectation propagation for an optimiser on its way, by the twisted sampler where it arrives.
"""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.log_prob_gradient import LARGEST_EFFECT, log_prob_and_gradient
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.ep_gradient import ep_gradient
from pymc_skewgp._gaussian.truncated import log_orthant
from pymc_skewgp._gaussian.weights import Estimate, add_estimates
from pymc_skewgp._sun.contradiction import round_off_effect
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

# An optimiser needs a gradient that is right to a few digits; the value is off by the square.
EP_TOLERANCE = 1e-4
_MAX_SWEEPS = 100
# What may be left of the prior's variances besides its leading factor, in units of the labels'
# noise; it joins the noise, so that the variances stay as they are.
_LEFT_OVER = 2e-6
_COINCIDENT = 1.0 - 1e-6
# Above this share of columns the dense form needs fewer operations.
_LOW_RANK_SHARE = 0.4


class Orthants(NamedTuple):
    """Limits and covariances of the two probabilities.

    Attributes
    ----------
    limits : ndarray, shape (s + n,)
        Mean over sign: the first probability is that of u > -limits.
    cov : ndarray, shape (s + n, s + n)
        Of u: s rows for the pseudo-points, then n labels with noise of variance 1 in it.
    truncation : ndarray, shape (s,)
    latent_cov : ndarray, shape (s, s)
    """

    limits: FloatArray
    cov: FloatArray
    truncation: FloatArray
    latent_cov: FloatArray


class EvidenceGradient(NamedTuple):
    """Log evidence, its derivatives in everything that `Orthants` holds, and what it jumps by."""

    value: float
    wrt: Orthants
    noise: float = 0.0


class EvidenceByEP:
    """Expectation propagation's log evidence, begun each time where the last one ended.

    Parameters
    ----------
    tol : float, default 1e-4
        Residual, in standard deviations, at which EP stops.
    """

    def __init__(self, tol: float = EP_TOLERANCE) -> None:
        self._tol = tol
        self._last: EPResult | None = None

    def __call__(self, orthants: Orthants) -> EvidenceGradient:
        """Value and gradient; minus infinity and zeros where there is no evidence to speak of."""
        limits = orthants.limits
        lower, upper = -limits, np.full(limits.size, np.inf)
        start = self._last if self._last is not None and self._last.tau.size == lower.size else None
        try:
            with no_warnings(), np.errstate(all="ignore"), few_blas_threads(limits.size):
                cov = _covariance(orthants)
                ep = fit_ep(cov, lower, upper, tol=self._tol, max_sweeps=_MAX_SWEEPS, start=start)
                gradient = ep_gradient(cov, ep, lower, upper)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return _nothing(orthants)
        if not (np.isfinite(ep.log_prob) and np.isfinite(gradient.cov).all()):
            return _nothing(orthants)
        self._last = ep
        return _ratio(orthants, ep.log_prob, -gradient.lower, gradient.cov)


def evidence_by_twisting(
    orthants: Orthants, n_draws: int, random_seed: int = 0
) -> EvidenceGradient:
    """Log evidence by the twisted sampler at fixed points, and the gradient of this very number."""
    joint = log_prob_and_gradient(
        -orthants.limits,
        np.full(orthants.limits.size, np.inf),
        orthants.cov,
        n_draws=n_draws,
        random_seed=random_seed,
    )
    ratio = _ratio(orthants, joint.value, -joint.lower, joint.cov)
    return ratio._replace(noise=joint.noise)


def evidence_estimate(orthants: Orthants, n_draws: int, random_seed: int = 0) -> Estimate:
    """Log evidence with its standard error, no gradient.

    Minus infinity where the signs at pseudo-points have a probability that round-off decides.
    """
    nothing = Estimate(-np.inf, 0.0, 1.0, -np.inf)
    if not round_off_effect(orthants.latent_cov, orthants.truncation).nats <= LARGEST_EFFECT:
        return nothing
    joint = log_orthant(orthants.limits, orthants.cov, n_draws, random_seed)
    if not orthants.truncation.size:
        return joint
    prior = log_orthant(orthants.truncation, orthants.latent_cov, n_draws, random_seed)
    total = add_estimates(0.0, joint, prior)
    return joint._replace(value=total.value, std_error=total.std_error)


def _covariance(orthants: Orthants) -> Covariance:
    """In the form that needs fewer operations: smooth kernels have few columns."""
    s, matrix = orthants.truncation.size, orthants.cov
    n = matrix.shape[0]
    if not np.isfinite(matrix).all():
        raise ArithmeticError("the covariance is not finite.")
    noise = np.ones(n)
    noise[:s] = 0.0
    # Improbable signs at pseudo-points feel the little that the low-rank form leaves to noise.
    left_over = round_off_effect(orthants.latent_cov, orthants.truncation, _LEFT_OVER)
    if not left_over.nats <= LARGEST_EFFECT:
        return DenseCovariance(matrix)
    # A part of the rows shows at an eighth of the cost that there are too many columns.
    half = slice(None, None, 2)
    if _factor(matrix[half, half], noise[half]).shape[1] <= _LOW_RANK_SHARE * n:
        factor = _factor(matrix, noise)
        if factor.shape[1] <= _LOW_RANK_SHARE * n:
            left = matrix.diagonal() - np.einsum("ij,ij->i", factor, factor)
            # A row without noise that the factor holds altogether keeps what round-off may ask.
            return LowRankCovariance(np.maximum(left, 1e-10), factor)
    return DenseCovariance(matrix)


def _factor(matrix: FloatArray, noise: FloatArray) -> FloatArray:
    prior = matrix.copy()
    prior[np.diag_indices_from(prior)] -= noise
    if not (matrix.diagonal() > 0).all():
        raise ArithmeticError("a variance is not positive.")
    largest = float(prior.diagonal().max())
    if largest <= _LEFT_OVER:  # nothing but noise
        return np.zeros((noise.size, 0))
    return linalg.low_rank_factor(prior, _LEFT_OVER / largest)


def _ratio(
    orthants: Orthants, joint: float, limits: FloatArray, cov: FloatArray
) -> EvidenceGradient:
    """The joint probability over that of the prior's signs."""
    truncation, latent_cov = orthants.truncation, orthants.latent_cov
    if not truncation.size:
        wrt = Orthants(limits, cov, np.zeros(0), np.zeros((0, 0)))
        return EvidenceGradient(joint, wrt) if np.isfinite(joint) else _nothing(orthants)
    if _coincide(latent_cov):
        return _nothing(orthants)
    told = np.full(truncation.size, np.inf)
    prior = log_prob_and_gradient(-truncation, told, latent_cov, n_draws=1024)
    if not (np.isfinite(joint) and np.isfinite(prior.value)):
        return _nothing(orthants)
    return EvidenceGradient(joint - prior.value, Orthants(limits, cov, prior.lower, -prior.cov))


def _coincide(latent_cov: FloatArray) -> bool:
    """Whether two pseudo-points are as good as one: of opposite phases P(u > -truncation) is 0."""
    sd = np.sqrt(latent_cov.diagonal())
    return bool((np.abs(np.triu(latent_cov / sd / sd[:, None], 1)) > _COINCIDENT).any())


def _nothing(orthants: Orthants) -> EvidenceGradient:
    return EvidenceGradient(-np.inf, Orthants(*(np.zeros_like(x) for x in orthants)))
