r"""Gaussian approximations of the posterior of f: expectation propagation, and Laplace's.

Either is a Gaussian at the data and at new points, and an approximation of the evidence. They are
here to be compared with the exact posterior.
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.proposals.ep import fit_ep
from pymc_skewgp._gaussian.univariate_moments import truncated_moments
from pymc_skewgp._observations.interval_rows import log_masses
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.values import Values
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.data_sets import DataSet, as_data_sets, n_functions, rows_of
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_factor import factored_covariance_of
from pymc_skewgp._posterior.prior_values import log_prob_of_signs, mean_of
from pymc_skewgp._posterior.process import factored_process_given
from pymc_skewgp._validation import FloatArray

_EP_TOLERANCE = 1e-6
_NEWTON_TOLERANCE = 1e-10  # of the log posterior density
_MOST_STEPS = 100
_LEAST_LEFT = 1e-12  # of the variance of the noise, between limits that are close to each other


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


def ep_posterior(
    prior: Prior, X: Any, y: Any, new: FloatArray, likelihood: Likelihood | None = None
) -> GaussianPosterior:
    r"""Expectation propagation, in u and so, as f given u is Gaussian, in f.

    With EP's Gaussian N(m, S) for u, sites T = diag(tau), G = cov(u) and C = cov(u, f),

    .. math:: f \sim N\{\mu + C^\top G^{-1} m,\; K - C^\top (G + T^{-1})^{-1} C\}.

    It is the fixed point that EP on f with probit sites has (Rasmussen & Williams 2006, section
    3.6), and takes pseudo-points as well. Points are conditioned on first, exactly.

    Parameters
    ----------
    prior : Prior
    X, new : ndarray, shape (n, d) and (t, d)
        Inputs with data, and new points, whose noise of the kernel is their own.
    y : array_like, shape (n,)
        Data; labels by default. For several kinds of data see `SkewGPPosterior`.
    likelihood : Likelihood, optional

    Returns
    -------
    GaussianPosterior
        Of the values of all functions at the first of the data, and so on.
    """
    given, n_latent = _conditioned(prior, as_data_sets(X, y, likelihood), new)
    if not given.n_rows:
        return _regression(given)
    ep = fit_ep(given.cov, given.lower, given.upper, tol=_EP_TOLERANCE)
    log_evidence = given.log_density + ep.log_prob
    if n_latent:
        k = n_latent // prior.n_pseudo_points
        log_evidence -= log_prob_of_signs(prior, k, 1024).value
    return _with_sites(given, n_latent, ep.tau, ep.weights, log_evidence)


def laplace_posterior(
    prior: Prior, X: Any, y: Any, new: FloatArray, likelihood: Likelihood | None = None
) -> GaussianPosterior:
    r"""Laplace's approximation: the mode of p(f | y), and the curvature there.

    Of the rows :math:`\eta = A f + a` with covariance :math:`K_\eta = A K A^\top`, g and -W the
    first and the (diagonal) second derivatives of their log likelihood at the mode
    :math:`\hat\eta = K_\eta\, g`,

    .. math:: f \sim N\{\mu + K A^\top g,\;
            K - K A^\top (K_\eta + W^{-1})^{-1} A K\}, \qquad
        \log p(y) \approx \log p(y \mid \hat\eta) - \tfrac12 g^\top K_\eta\, g
            - \tfrac12 \log |I + W K_\eta|

    and GP regression at new points. Points are conditioned on first, exactly. Newton's method,
    with steps halved where they overshoot; the log posterior density is concave (Rasmussen &
    Williams 2006, section 3.4).

    Parameters
    ----------
    prior, X, y, new, likelihood
        As for `ep_posterior`; `prior` without pseudo-points.

    Returns
    -------
    GaussianPosterior

    Raises
    ------
    ValueError
        For pseudo-points: a prior that is cut off at them has no mode of this kind. For rows
        without noise, likewise, and for rows that share noise.
    """
    if prior.n_pseudo_points:
        raise ValueError(
            "Laplace's approximation needs a Gaussian prior: it has pseudo_points, and their "
            "sign cannot be had from a mode and a curvature."
        )
    sets = as_data_sets(X, y, likelihood)
    if any(data.likelihood.relative_noise for data in sets):
        raise ValueError(
            "Laplace's approximation needs noise on every row, and a Constraint has only a nugget: "
            "use EP."
        )
    given, _ = _conditioned(prior, sets, new)
    if not given.n_rows:
        return _regression(given)
    found = _mode(given.cov, _own_noise(given.noise), given.lower, given.upper)
    return _with_sites(given, 0, found.tau, found.weights, given.log_density + found.log_prob)


def _conditioned(
    prior: Prior, sets: tuple[DataSet, ...], new: FloatArray
) -> tuple[Conditioning, int]:
    """The process at pseudo-points, data and new points given points; how many are the first."""
    k, parts = n_functions(sets), [data.values for data in sets]
    wanted = [*parts, Values(new, k)]
    points = Values(prior.pseudo_points, k)
    everything = [points, *wanted] if points.size else wanted
    given = factored_process_given(
        factored_covariance_of(prior, "X", everything),
        mean_of(prior, "X", wanted),
        np.repeat(prior.phase, k),
        np.repeat(prior.truncation, k),
        rows_of(sets, prior)[0],
    )
    return given, points.size


def _regression(given: Conditioning) -> GaussianPosterior:
    return GaussianPosterior(given.mean, given.factor @ given.factor.T, given.log_density)


def _with_sites(
    given: Conditioning, skip: int, tau: FloatArray, weights: FloatArray, log_evidence: float
) -> GaussianPosterior:
    """F under sites on u: precisions `tau`, and `weights` = G^-1 times the mean of u."""
    factor = given.factor[skip:]
    mean = given.mean[skip:] + factor @ (given.row_factor.T @ weights)
    if isinstance(given.cov, LowRankCovariance):
        half = given.cov.coordinate_half(tau, factor)
        return GaussianPosterior(mean, half.T @ half, log_evidence)
    cross = given.row_factor @ factor.T
    cov = factor @ factor.T
    cov -= cross.T @ given.cov.site_precision(tau) @ cross
    return GaussianPosterior(mean, cov, log_evidence)


def _own_noise(noise: FloatArray) -> FloatArray:
    """Variances of the rows' noise, where a mode can be had from them."""
    own = noise if noise.ndim == 1 else noise.diagonal()
    if noise.ndim == 2 and (noise != np.diag(own)).any():
        raise ValueError(
            "Laplace's approximation needs rows with noise of their own, and some of these "
            "observations share theirs: use EP."
        )
    if not (own > 0).all():
        raise ValueError(
            "Laplace's approximation needs noise on every row, and some of these observations "
            "have none: use EP."
        )
    return own


class _Mode(NamedTuple):
    """Sites on u that Laplace's approximation is, G^-1 times their mean, and the log evidence."""

    tau: FloatArray
    weights: FloatArray
    log_prob: float


def _mode(cov: Covariance, noise: FloatArray, lower: FloatArray, upper: FloatArray) -> _Mode:
    """Newton's method on the noise-free rows, u = eta + e.

    A site on eta with precision W is one on u with precision W / (1 - W S), S its noise; and for
    limits on u, 1 - W S is the variance of e between them in units of S.
    """
    sd, work = np.sqrt(noise), cov.workspace()

    def log_density(eta: FloatArray, weights: FloatArray) -> float:
        return float(log_masses(eta, lower, upper, sd).sum()) - 0.5 * float(weights @ eta)

    def sites(eta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        _, shift, left = truncated_moments((lower - eta) / sd, (upper - eta) / sd)
        left = np.clip(left, _LEAST_LEFT, 1.0)
        return shift / sd, (1.0 - left) / noise, left

    weights = eta = np.zeros(noise.size)
    value = log_density(eta, weights)
    for _ in range(_MOST_STEPS):
        gradient, curvature, left = sites(eta)
        product = cov.site_product(curvature / left, (curvature * eta + gradient) / left, work)
        step = product.weights - weights
        moved = product.mean - noise * product.weights - eta
        size, new_value = 1.0, -np.inf
        while size > 1e-6:
            trial_eta, trial = eta + size * moved, weights + size * step
            new_value = log_density(trial_eta, trial)
            if new_value >= value:
                break
            size *= 0.5
        else:
            break  # at the mode to round-off
        gained, eta, weights, value = new_value - value, trial_eta, trial, new_value
        if gained < _NEWTON_TOLERANCE * (1.0 + abs(value)):
            break
    gradient, curvature, left = sites(eta)
    tau = curvature / left
    # |I + W (G - S)|, from that of the sites on u.
    log_det = cov.site_product(tau, np.zeros(noise.size), work).log_det + np.log(left).sum()
    return _Mode(tau, gradient, value - 0.5 * float(log_det))
