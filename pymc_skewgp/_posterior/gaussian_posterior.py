r"""Gaussian approximations of the posterior of f: expectation propagation, and Laplace's.

Either is a Gaussian at the data and at new points, and an approximation of the evidence. They are
here to be compared with the exact posterior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.ep import LocalBlocks, fit_blocks
from pymc_skewgp._gaussian.blocks.several import SeveralBlock
from pymc_skewgp._gaussian.coordinate_gaussian import coordinate_gaussian
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._gaussian.independent import independent_draws
from pymc_skewgp._observations.likelihood import Likelihood, Values
from pymc_skewgp._observations.observations import RowsInBlocks, RowSlopes
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior import prior as priors
from pymc_skewgp._posterior.blocks_at import LearntSeveral
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.fits import conditioned, site_draws, site_log_density
from pymc_skewgp._posterior.output import LatentMarginals
from pymc_skewgp._posterior.prior import DataSet, Prior
from pymc_skewgp._sun.parameters import SunParameters, conditional
from pymc_skewgp._validation import FloatArray

# A Gaussian that approximates the posterior of f.


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
        """Draws of f, shape (n_draws, n + t); `mean` may have a row for each."""
        factor = linalg.low_rank_factor(self.cov)
        return np.asarray(
            self.mean + rng.standard_normal((n_draws, factor.shape[1])) @ factor.T, dtype=float
        )


# A process at new points given draws of it at the data.

_JITTER = 1e-6  # as pm.gp adds, so that the draws and their continuation agree


def continue_draws(
    prior: Prior, X: FloatArray, f: FloatArray, new: FloatArray, rng: np.random.Generator
) -> SunParameters:
    r"""GP regression without noise on each draw.

    .. math:: f_* \mid f \sim N\{m_* + K_* K^{-1} (f - m),\; K_{**} - K_* K^{-1} K_*^\top\}

    Given f there, the data and the signs say nothing more of f elsewhere. At the pseudo-points it
    is the Gaussian process given f at the data, restricted to their signs, which is drawn once for
    each draw, and then given too.

    Parameters
    ----------
    prior : Prior
    X, new : ndarray, shape (n, d) and (t, d)
        The data, and new points, whose noise of the kernel is their own.
    f : ndarray, shape (S, n)
        Draws at `X`.
    rng : numpy.random.Generator

    Returns
    -------
    SunParameters
        Gaussian; at the new points, `mu` with a row for each draw.
    """
    points = np.vstack([prior.pseudo_points, X, new])
    s, n = prior.n_pseudo_points, len(X)
    cov = prior.covariance("X", points)
    cov[np.diag_indices(s + n)] += _JITTER
    nothing = np.zeros((len(points), 0))
    gaussian = SunParameters(prior.mean("X", points), cov, nothing, np.zeros(0), np.zeros((0, 0)))
    signed, at_data, at_new = np.split(np.arange(len(points)), [s, s + n])
    if s:
        given, scale = conditional(gaussian, at_data, signed, f), prior.scale
        own = scale[:, None] * given.scale * scale
        truncated = DenseCovariance(own, "the covariance at pseudo_points")
        least = -prior.truncation - scale * (given.mu - gaussian.mu[signed])
        away = [independent_draws(truncated, low, np.inf, 1, rng)[0] for low in least]
        f = np.hstack([given.mu + np.array(away) / scale, f])
    return conditional(gaussian, np.arange(s + n), at_new, f)


# The mode of a Gaussian vector's coordinates given its rows, and the curvature.

_TOLERANCE = 1e-10  # of the log posterior density
_MOST_STEPS = 100
_LEAST_STEP = 1e-6


def mode_of(
    slopes: Callable[[FloatArray], RowSlopes], X: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    r"""Newton's method, with steps halved where they overshoot.

    With g and -W the first two derivatives of the rows' log likelihood, the step is
    :math:`(I + X^\top W X)^{-1} (X^\top g - c)`. The log posterior density is concave.

    Returns
    -------
    c : ndarray, shape (r,)
        The mode of the coordinates of eta = X c.
    chol : ndarray, shape (r, r)
        Cholesky factor of the precision there.
    log_prob : float
        Laplace's approximation of the log probability of the rows.
    """

    def log_density(c: FloatArray) -> tuple[float, RowSlopes]:
        found = slopes(X @ c)
        return found.value - 0.5 * float(c @ c), found

    c = np.zeros(X.shape[1])
    value, found = log_density(c)
    for _ in range(_MOST_STEPS):
        step = cho_solve((_precision(found.curvature, X), True), X.T @ found.gradient - c)
        size = 1.0
        while size > _LEAST_STEP:
            trial, there = log_density(c + size * step)
            if trial >= value:
                break
            size *= 0.5
        else:
            break  # at the mode to round-off
        gained, c, value, found = trial - value, c + size * step, trial, there
        if gained < _TOLERANCE * (1.0 + abs(value)):
            break
    chol = _precision(found.curvature, X)
    return c, chol, value - float(np.log(chol.diagonal()).sum())


def _precision(curvature: Any, X: FloatArray) -> FloatArray:
    """Cholesky factor of I + X' W X."""
    matrix = np.asarray(X.T @ (curvature @ X))
    matrix[np.diag_indices_from(matrix)] += 1.0
    return linalg.cholesky("the precision at the mode", linalg.symmetric(matrix))[0]


def _of_coordinates(
    given: Conditioning, skip: int, mean: FloatArray, chol: FloatArray, log_evidence: float
) -> GaussianPosterior:
    factor = given.factor[skip:]
    half = solve_triangular(chol, factor.T, lower=True, check_finite=False)
    return GaussianPosterior(given.mean[skip:] + factor @ mean, half.T @ half, log_evidence)


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
    sets = priors.as_data_sets(X, y, likelihood)
    (given, n_latent), sites = _conditioned(prior, sets, new), priors.sites_of(sets)
    signs = 0.0
    if n_latent:
        signs = priors.log_prob_of_signs(prior, n_latent // prior.n_pseudo_points, 1024).value
    if sites is not None and sites.width > 1 and not given.n_rows:
        density = site_log_density(given, sites, 0)
        own = LearntSeveral(sites.known, density.offset)
        blocks = LocalBlocks([SeveralBlock(density.factor, own)])
        known = fit_blocks(blocks, tol=_EP_TOLERANCE)
        log_evidence = given.log_density + known.log_prob
        return _of_coordinates(given, 0, known.gaussian.mean, known.gaussian.chol, log_evidence)
    if sites is not None:
        draws = site_draws(given, sites, n_latent, tol=_EP_TOLERANCE)
        joint = np.vstack([given.row_factor, draws.density.factor])
        gaussian = coordinate_gaussian(joint, draws.ep.tau, draws.ep.nu)
        log_evidence = given.log_density + draws.ep.log_prob - signs
        return _of_coordinates(given, n_latent, gaussian.mean, gaussian.chol, log_evidence)
    if not given.n_rows:
        return _regression(given)
    ep = fit_ep(given.cov, given.lower, given.upper, tol=_EP_TOLERANCE)
    log_evidence = given.log_density + ep.log_prob - signs
    factor = given.factor[n_latent:]
    mean = given.mean[n_latent:] + factor @ (given.row_factor.T @ ep.weights)
    taken = given.row_factor.T @ given.cov.site_precision(ep.tau) @ given.row_factor
    cov = factor @ (np.eye(len(taken)) - taken) @ factor.T
    return GaussianPosterior(mean, cov, log_evidence)


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
    sets = priors.as_data_sets(X, y, likelihood)
    if any(data.likelihood.relative_noise for data in sets):
        raise ValueError(
            "Laplace's approximation needs noise on every row, and a Constraint has only a nugget: "
            "use EP."
        )
    (given, _), sites = _conditioned(prior, sets, new), priors.sites_of(sets)
    if sites is not None:
        return _site_laplace(given, sites)
    if not given.n_rows:
        return _regression(given)
    slopes = RowsInBlocks(given.lower, given.upper, given.intervals.S).slopes
    c, chol, log_prob = mode_of(slopes, given.row_factor)
    return _of_coordinates(given, 0, c, chol, given.log_density + log_prob)


def _site_laplace(given: Conditioning, sites: Sites) -> GaussianPosterior:
    density = site_log_density(given, sites, 0)

    def slopes(eta: FloatArray) -> RowSlopes:
        there = density.offset + eta
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(sites.log_prob(there).sum())
            first, second = sites.slopes(there)
        return RowSlopes(value, first, _curvature(second, sites.width, 0.0))

    c, of_steps, log_prob = mode_of(slopes, density.factor)
    # Newton's steps take no negative curvature; what there is of it at the mode counts.
    second = sites.slopes(density.offset + density.factor @ c)[1]
    chol = _precision(_curvature(second, sites.width), density.factor)
    change = float(np.log(of_steps.diagonal() / chol.diagonal()).sum())
    return _of_coordinates(given, 0, c, chol, given.log_density + log_prob + change)


def _curvature(second: FloatArray, width: int, least: float = -np.inf) -> Any:
    """Minus second derivatives, (m,) or (m, K, K), as one matrix, eigenvalues no less than that."""
    if width == 1:
        return sparse.diags_array(np.maximum(-second, least), format="csr")
    values, vectors = np.linalg.eigh(-second)
    blocks = (vectors * np.maximum(values, least)[:, None]) @ vectors.swapaxes(1, 2)
    m = len(blocks)
    return sparse.bsr_array((blocks, np.arange(m), np.arange(m + 1))).tocsr()


def _conditioned(
    prior: Prior, sets: tuple[DataSet, ...], new: FloatArray
) -> tuple[Conditioning, int]:
    """The process at pseudo-points, data and new points given points; how many are the first."""
    k = priors.n_functions(sets)
    wanted = [*(data.values for data in sets), Values(new, k)]
    return conditioned(prior, wanted, priors.rows_of(sets, prior)[0]), k * prior.n_pseudo_points


def _regression(given: Conditioning) -> GaussianPosterior:
    return GaussianPosterior(given.mean, given.factor @ given.factor.T, given.log_density)
