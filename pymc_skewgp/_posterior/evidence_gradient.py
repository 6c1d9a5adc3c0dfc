r"""The log evidence with its gradient: a ratio of the probabilities of two rectangles.

.. math:: \log p(y) = \log P(l < u < h) - \log P(l_0 < u_{1:s} < h_0), \qquad u \sim N(0, G)

The rows of u are the pseudo-points of a Skew GP, then the observations. By expectation propagation
for an optimiser on its way, by the twisted sampler where it arrives.
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.log_prob_gradient import LARGEST_EFFECT, log_prob_and_gradient
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.ep_gradient import ep_gradient
from pymc_skewgp._gaussian.rectangle import log_prob_rectangle
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


class EvidenceTerms(NamedTuple):
    """Limits and covariances of the two rectangles, for arrays and for graphs of them alike.

    Attributes
    ----------
    lower, upper : (s + n,)
        Limits of u, less its mean. A label 1 is the interval (0, inf) of the noisy predictor, a
        label 0 is (-inf, 0).
    cov : (s + n, s + n)
        G: s rows for the pseudo-points, then n observations with noise of variance 1 in it.
    prior_lower, prior_upper : (s,)
        Limits of the pseudo-points' rows alone; the upper ones are infinite.
    prior_cov : (s, s)
        Their covariance.
    """

    lower: Any
    upper: Any
    cov: Any
    prior_lower: Any
    prior_upper: Any
    prior_cov: Any


class EvidenceGradient(NamedTuple):
    """Log evidence with its gradient.

    Attributes
    ----------
    value : float
    wrt : EvidenceTerms
        Derivatives in each of its entries; 0 for infinite limits.
    noise : float
        See `LogProbGradient`.
    """

    value: float
    wrt: EvidenceTerms
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

    def __call__(self, terms: EvidenceTerms) -> EvidenceGradient:
        """Value and gradient; minus infinity and zeros where no evidence can be computed."""
        lower, upper = terms.lower, terms.upper
        start = self._last if self._last is not None and self._last.tau.size == lower.size else None
        try:
            with no_warnings(), np.errstate(all="ignore"), few_blas_threads(lower.size):
                cov = _covariance(terms)
                ep = fit_ep(cov, lower, upper, tol=self._tol, max_sweeps=_MAX_SWEEPS, start=start)
                gradient = ep_gradient(cov, ep, lower, upper)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return _nothing(terms)
        if not (np.isfinite(ep.log_prob) and np.isfinite(gradient.cov).all()):
            return _nothing(terms)
        self._last = ep
        return _ratio(terms, ep.log_prob, gradient.lower, gradient.upper, gradient.cov)


def evidence_by_twisting(
    terms: EvidenceTerms, n_draws: int, random_seed: int = 0
) -> EvidenceGradient:
    """Log evidence by the twisted sampler at fixed points, and the gradient of this very number."""
    joint = log_prob_and_gradient(
        terms.lower, terms.upper, terms.cov, n_draws=n_draws, random_seed=random_seed
    )
    ratio = _ratio(terms, joint.value, joint.lower, joint.upper, joint.cov)
    return ratio._replace(noise=joint.noise)


def evidence_estimate(terms: EvidenceTerms, n_draws: int, random_seed: int = 0) -> Estimate:
    """Log evidence with its standard error, no gradient.

    Minus infinity where the signs at pseudo-points have a probability that round-off decides.
    """
    if not _round_off(terms) <= LARGEST_EFFECT:
        return Estimate(-np.inf, 0.0, 1.0, -np.inf)
    joint = log_prob_rectangle(terms.cov, terms.lower, terms.upper, n_draws, None, random_seed)
    if not terms.prior_lower.size:
        return joint
    prior = log_prob_rectangle(
        terms.prior_cov, terms.prior_lower, terms.prior_upper, n_draws, None, random_seed
    )
    total = add_estimates(0.0, joint, prior)
    return joint._replace(value=total.value, std_error=total.std_error)


def _round_off(terms: EvidenceTerms, added: float = 0.0) -> float:
    """Nats that round-off may move the pseudo-points' log probability by."""
    return round_off_effect(terms.prior_cov, -terms.prior_lower, added).nats


def _covariance(terms: EvidenceTerms) -> Covariance:
    """In the form that needs fewer operations: smooth kernels have few columns."""
    s, matrix = terms.prior_lower.size, terms.cov
    n = matrix.shape[0]
    if not np.isfinite(matrix).all():
        raise ArithmeticError("the covariance is not finite.")
    noise = np.ones(n)
    noise[:s] = 0.0
    # Improbable signs at pseudo-points feel the little that the low-rank form leaves to noise.
    if not _round_off(terms, _LEFT_OVER) <= LARGEST_EFFECT:
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
    terms: EvidenceTerms, joint: float, lower: FloatArray, upper: FloatArray, cov: FloatArray
) -> EvidenceGradient:
    """The joint probability, with its gradient, over that of the pseudo-points' rows."""
    if not terms.prior_lower.size:
        none = np.zeros(0)
        wrt = EvidenceTerms(lower, upper, cov, none, none, np.zeros((0, 0)))
        return EvidenceGradient(joint, wrt) if np.isfinite(joint) else _nothing(terms)
    if _coincide(terms.prior_cov):
        return _nothing(terms)
    prior = log_prob_and_gradient(
        terms.prior_lower, terms.prior_upper, terms.prior_cov, n_draws=1024
    )
    if not (np.isfinite(joint) and np.isfinite(prior.value)):
        return _nothing(terms)
    wrt = EvidenceTerms(lower, upper, cov, -prior.lower, -prior.upper, -prior.cov)
    return EvidenceGradient(joint - prior.value, wrt)


def _coincide(prior_cov: FloatArray) -> bool:
    """Whether two pseudo-points are as good as one: of opposite phases their probability is 0."""
    sd = np.sqrt(prior_cov.diagonal())
    return bool((np.abs(np.triu(prior_cov / sd / sd[:, None], 1)) > _COINCIDENT).any())


def _nothing(terms: EvidenceTerms) -> EvidenceGradient:
    return EvidenceGradient(-np.inf, EvidenceTerms(*(np.zeros_like(x) for x in terms)))
