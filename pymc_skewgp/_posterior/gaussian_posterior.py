r"""Gaussian approximations of the posterior of f: expectation propagation, and Laplace's.

Either is a Gaussian at the data and at new points, and an approximation of the evidence. They are
here to be compared with the exact posterior.
"""

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.proposals.ep import fit_ep
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.shared_rows import RowsInBlocks
from pymc_skewgp._observations.values import Values
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.data_sets import DataSet, as_data_sets, n_functions, rows_of, sites_of
from pymc_skewgp._posterior.gaussian_function import GaussianPosterior
from pymc_skewgp._posterior.laplace_mode import mode_of
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_factor import factored_covariance_of
from pymc_skewgp._posterior.prior_values import log_prob_of_signs, mean_of
from pymc_skewgp._posterior.process import factored_process_given
from pymc_skewgp._posterior.site_approximations import site_ep, site_laplace
from pymc_skewgp._validation import FloatArray

_EP_TOLERANCE = 1e-6


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
    sets = as_data_sets(X, y, likelihood)
    (given, n_latent), sites = _conditioned(prior, sets, new), sites_of(sets)
    signs = 0.0
    if n_latent:
        signs = log_prob_of_signs(prior, n_latent // prior.n_pseudo_points, 1024).value
    if sites is not None:
        found = site_ep(given, sites, n_latent, _EP_TOLERANCE)
        return found._replace(log_evidence=found.log_evidence - signs)
    if not given.n_rows:
        return _regression(given)
    ep = fit_ep(given.cov, given.lower, given.upper, tol=_EP_TOLERANCE)
    log_evidence = given.log_density + ep.log_prob - signs
    return _with_sites(given, n_latent, ep.tau, ep.weights, log_evidence)


def laplace_posterior(
    prior: Prior, X: Any, y: Any, new: FloatArray, likelihood: Likelihood | None = None
) -> GaussianPosterior:
    r"""Laplace's approximation: the mode of p(f | y), and the curvature there.

    In coordinates c of :math:`f = \mu + F c`, :math:`c \sim N(0, I)`, of the data's rows
    :math:`\eta = A f + a` and with -W the second derivative of their log likelihood at the mode
    :math:`\hat c`,

    .. math:: f \sim N\{\mu + F \hat c,\; F (I + X^\top W X)^{-1} F^\top\}, \quad X = A F, \qquad
        \log p(y) \approx \log p(y \mid \hat c) - \tfrac12 \hat c^\top \hat c
            - \tfrac12 \log |I + X^\top W X|

    (Rasmussen & Williams 2006, section 3.4). W is diagonal, or of blocks where rows share noise, as
    those of one choice do. Points are conditioned on first, exactly. The log posterior density is
    concave: Newton's method finds the mode.

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
        without noise, likewise, and for more than six rows that share noise.
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
    (given, _), of_sites = _conditioned(prior, sets, new), sites_of(sets)
    if of_sites is not None:
        return site_laplace(given, of_sites)
    if not given.n_rows:
        return _regression(given)
    found = mode_of(RowsInBlocks(given.lower, given.upper, given.noise), given.row_factor)
    half = solve_triangular(found.chol, given.factor.T, lower=True, check_finite=False)
    mean = given.mean + given.factor @ found.c
    return GaussianPosterior(mean, half.T @ half, given.log_density + found.log_prob)


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
