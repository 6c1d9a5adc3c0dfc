r"""Gaussian approximations of the posterior of f: expectation propagation, and Laplace's.

Either is a Gaussian at the data and at new points, and an approximation of the evidence. They are
here to be compared with the exact posterior.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.proposals.ep import fit_ep
from pymc_skewgp._gaussian.rectangle import log_prob_rectangle
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.process import process_given
from pymc_skewgp._validation import FloatArray

_EP_TOLERANCE = 1e-6
_NEWTON_TOLERANCE = 1e-10  # of the log posterior density
_MOST_STEPS = 100


class GaussianPosterior(NamedTuple):
    """N(mean, cov) for f at n data and t new points, and an approximate log evidence.

    Attributes
    ----------
    mean : ndarray, shape (n + t,)
    cov : ndarray, shape (n + t, n + t)
    log_evidence : float
    """

    mean: FloatArray
    cov: FloatArray
    log_evidence: float

    def marginals(self) -> LatentMarginals:
        """Its marginals: mixtures of one component each."""
        variance = np.maximum(self.cov.diagonal(), 0.0)  # round-off
        return LatentMarginals(self.mean[:, None], variance, np.ones(1))

    def sample(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draws of f, shape (n_draws, n + t)."""
        factor = linalg.low_rank_factor(self.cov)
        return np.asarray(
            self.mean + rng.standard_normal((n_draws, factor.shape[1])) @ factor.T, dtype=float
        )


def ep_posterior(prior: Prior, X: FloatArray, y: ArrayLike, new: FloatArray) -> GaussianPosterior:
    r"""Expectation propagation, in u and so, as f given u is Gaussian, in f.

    With EP's Gaussian N(m, S) for u, sites T = diag(tau), G = cov(u) and C = cov(u, f),

    .. math:: f \sim N\{\mu + C^\top G^{-1} m,\; K - C^\top (G + T^{-1})^{-1} C\}.

    It is the fixed point that EP on f with probit sites has (Rasmussen & Williams 2006, section
    3.6), and takes pseudo-points as well.

    Parameters
    ----------
    prior : Prior
    X, new : ndarray, shape (n, d) and (t, d)
        Inputs with labels, and new points, whose noise of the kernel is their own.
    y : array_like, shape (n,)
        Labels of a probit likelihood.

    Returns
    -------
    GaussianPosterior
    """
    everywhere = np.vstack([prior.pseudo_points, X, new])
    likelihood, s = BernoulliProbit(), prior.n_pseudo_points
    given = process_given(
        prior.covariance("X", everywhere),
        prior.mean("X", np.vstack([X, new])),
        prior.phase,
        prior.truncation,
        likelihood.observations(likelihood.as_data(y, X.shape[0]), X.shape[0]),
    )
    ep = fit_ep(given.cov, given.lower, given.upper, tol=_EP_TOLERANCE)
    factor = given.factor[s:]
    cross = given.row_factor @ factor.T
    cov = factor @ factor.T
    cov -= cross.T @ given.cov.site_precision(ep.tau) @ cross
    log_evidence = ep.log_prob
    if s:
        limits = -np.inf, prior.truncation
        log_evidence -= log_prob_rectangle(prior.latent_cov, *limits, 1024, None, 0).value
    return GaussianPosterior(given.mean[s:] + cross.T @ ep.weights, cov, log_evidence)


def laplace_posterior(
    prior: Prior, X: FloatArray, y: ArrayLike, new: FloatArray
) -> GaussianPosterior:
    r"""Laplace's approximation: the mode of p(f | y), and the curvature there.

    With g and -W the first and the (diagonal) second derivatives of the log likelihood at the mode
    :math:`\hat f = \mu + K a`,

    .. math:: f \sim N\{\hat f,\; (K^{-1} + W)^{-1}\}, \qquad
        \log p(y) \approx \log p(y \mid \hat f) - \tfrac12 a^\top K a
            - \tfrac12 \log |I + W^{1/2} K W^{1/2}|

    and GP regression on :math:`\hat f` at new points. Newton's method, with steps halved where
    they overshoot; the log posterior density is concave (Rasmussen & Williams 2006, section 3.4).

    Parameters
    ----------
    prior, X, y, new
        As for `ep_posterior`; `prior` without pseudo-points.

    Returns
    -------
    GaussianPosterior

    Raises
    ------
    ValueError
        For pseudo-points: a prior that is cut off at them has no mode of this kind.
    """
    if prior.n_pseudo_points:
        raise ValueError(
            "Laplace's approximation needs a Gaussian prior: it has pseudo_points, and their "
            "sign cannot be had from a mode and a curvature."
        )
    everywhere = prior.covariance("X", np.vstack([X, new]))
    mean = prior.mean("X", np.vstack([X, new]))
    likelihood, n = BernoulliProbit(), X.shape[0]
    labels = likelihood.as_data(y, n)
    K, centre = everywhere[:n, :n], mean[:n]
    a, f = np.zeros(n), centre.copy()
    value = float(likelihood.log_likelihood(labels, f).sum())
    for _ in range(_MOST_STEPS):
        gradient, weight = likelihood.derivatives(labels, f)
        root = np.sqrt(weight)
        chol = _site_chol(K, root)
        b = weight * (f - centre) + gradient
        step = b - root * cho_solve((chol, True), root * (K @ b)) - a
        moved = K @ step
        size, new_value = 1.0, -np.inf
        while size > 1e-6:
            trial_f, trial_a = f + size * moved, a + size * step
            new_value = float(likelihood.log_likelihood(labels, trial_f).sum())
            new_value -= 0.5 * float(trial_a @ (trial_f - centre))
            if new_value >= value:
                break
            size *= 0.5
        else:
            break  # at the mode to round-off
        gained, f, a, value = new_value - value, trial_f, trial_a, new_value
        if gained < _NEWTON_TOLERANCE * (1.0 + abs(value)):
            break
    gradient, weight = likelihood.derivatives(labels, f)
    root = np.sqrt(weight)
    chol = _site_chol(K, root)
    log_evidence = value - float(np.log(chol.diagonal()).sum())
    half = solve_triangular(chol, root[:, None] * everywhere[:n], lower=True, check_finite=False)
    return GaussianPosterior(
        mean + everywhere[:, :n] @ gradient, everywhere - half.T @ half, log_evidence
    )


def _site_chol(K: FloatArray, root: FloatArray) -> FloatArray:
    """Cholesky factor of I + W^.5 K W^.5."""
    matrix = root[:, None] * K * root
    matrix[np.diag_indices_from(matrix)] += 1.0
    return linalg.cholesky("the curvature at the mode", matrix)[0]
