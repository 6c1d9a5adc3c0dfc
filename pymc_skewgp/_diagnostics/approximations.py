"""One data set, one prior, many ways to the posterior of f; each is a function of a `Problem`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import sparse
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import ndtr
from xarray import DataTree

from pymc_skewgp._diagnostics.marginals import DrawnMarginals, Marginals
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.ep import LocalBlocks, fit_blocks
from pymc_skewgp._gaussian.blocks.several import SeveralBlock
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._gaussian.independent import independent_draws
from pymc_skewgp._gaussian.truncated import truncated_mvn
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.distributions import probit
from pymc_skewgp._model.gp.exact_posterior import CovarianceAtPoint, mean_at_point
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._observations.binary import BernoulliProbit
from pymc_skewgp._observations.likelihood import Likelihood, Values
from pymc_skewgp._observations.observations import RowsInBlocks, RowSlopes
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior import fits
from pymc_skewgp._posterior import prior as priors
from pymc_skewgp._posterior.blocks_at import LearntSeveral
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.output import LatentMarginals, as_datatree
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._sun.parameters import SunParameters, conditional
from pymc_skewgp._validation import FloatArray

# What every approximation is given, and what it gives back.

_PSEUDO = ("pseudo_points", "phase", "truncation")


@dataclass(frozen=True)
class Problem:
    """Data, a prior, and how hard to work.

    Attributes
    ----------
    gp : SkewGP
        The prior as a model has it.
    point : mapping
        Values of the random variables among its hyperparameters.
    prior : Prior
        The same on arrays.
    X, new : ndarray, shape (n, d) and (t, d)
        Inputs with data, and those to predict at.
    labels : ndarray
        The data: 0 and 1, shape (n,), or what `likelihood` asks for.
    draws, chains, tune : int
        For each chain; of methods that draw.
    seed : int
    options : dict
        More arguments for the method.
    likelihood : Likelihood, default BernoulliProbit()
        Its parameters are numbers.
    """

    gp: SkewGP
    point: dict[str, Any]
    prior: Prior
    X: FloatArray
    labels: Any
    new: FloatArray
    draws: int = 1000
    chains: int = 4
    tune: int = 1000
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    likelihood: Likelihood = field(default_factory=BernoulliProbit)

    @cached_property
    def n_functions(self) -> int:
        """Number K of functions."""
        return self.likelihood.n_functions(self.labels)

    def by_function(self, f: FloatArray) -> FloatArray:
        """Values in a row, shape (.., n K), as (.., n, K) where K is more than 1."""
        k = self.n_functions
        return f if k == 1 else f.reshape(*f.shape[:-1], -1, k)

    @cached_property
    def posterior(self) -> SkewGPPosterior:
        """The exact posterior; its draws are not made before they are asked for."""
        prior = self.prior
        pseudo = {}
        if prior.n_pseudo_points:
            pseudo = {name: getattr(prior, name) for name in _PSEUDO}
        return SkewGPPosterior(
            self.X,
            self.labels,
            cov_func=prior.cov_func,
            mean_func=prior.mean_func,
            likelihood=self.likelihood,
            random_seed=self.seed,
            **pseudo,
        )

    def cov_func(self) -> Any:
        """Covariance function for a model in PyMC, which has no place for pseudo-points."""
        if self.prior.n_pseudo_points:
            raise ValueError(
                "a pm.gp process cannot be conditioned on its sign at pseudo_points: the methods "
                "'exact', 'lin_ess' and 'ep' take them."
            )
        cov = self.gp.cov_func
        return CovarianceAtPoint(cov, self.point) if self.point else cov

    def mean_func(self) -> Any:
        """Mean function for a model in PyMC."""
        mean = self.gp.mean_func
        return mean_at_point(mean, self.point) if self.point else mean


class Approximation(NamedTuple):
    """What a method says of f and of new data.

    Attributes
    ----------
    marginals : Marginals
        Of f at the data and then at the new points.
    probability : Probability
        P(y = 1), or what probabilities the likelihood predicts, shape (t,) or (t, k), at the new
        points; without any, at the data.
    tree : DataTree
        Draws: ``posterior`` with f at the data, and with new points ``predictions`` with f and p
        there.
    evidence, evidence_se : float
        Log evidence and its Monte Carlo standard error; for variational methods its lower bound.
        NaN where a method has none.
    drawing : float or None
        Seconds that the draws took, tuning included and compilation left out; None where draws are
        independent of each other and cost nothing next to the rest.
    """

    marginals: Marginals
    probability: Probability
    tree: DataTree
    evidence: float = np.nan
    evidence_se: float = np.nan
    drawing: float | None = None


def predicted_probability(likelihood: Likelihood, at: LatentMarginals) -> Probability:
    """The probabilities that a likelihood predicts at each point, (t,) or (t, k); k may be 0."""
    found = likelihood.predictive_summary(at)
    names = [name for name in found if name.startswith("p_") and f"{name}_se" in found]
    if len(names) == 1:
        return Probability(found[names[0]], found[f"{names[0]}_se"])
    nothing = np.zeros((at.size, 0))
    value, error = (
        np.column_stack([nothing, *(found[f"{name}{suffix}"] for name in names)])
        for suffix in ("", "_se")
    )
    return Probability(value, error)


def function_tree(
    problem: Problem, f: FloatArray, new: FloatArray, attrs: dict[str, Any]
) -> DataTree:
    """DataTree of draws of f at the data and at new points, (chain, draw, n K) and (.., t K)."""
    f, new = problem.by_function(f), problem.by_function(new)
    groups = {"posterior": {"f": f}}
    inner = [problem.likelihood.function_dim] if f.ndim == 4 else []
    if new.shape[2]:
        groups["predictions"] = {"f": new}
        if isinstance(problem.likelihood, BernoulliProbit):
            groups["predictions"]["p"] = ndtr(new)
    return as_datatree(
        groups,
        dims={"f": ["obs_id", *inner]},
        dims_of={"predictions": {"f": ["pred_id", *inner], "p": ["pred_id"]}},
        coords={
            "obs_id": np.arange(f.shape[2]),
            "pred_id": np.arange(new.shape[2]),
            **{dim: np.arange(f.shape[3]) for dim in inner},
        },
        attrs=attrs,
    )


# Data under a likelihood as an observed variable of a PyMC model, for PyMC's own methods.


def observe(problem: Problem, f: Any) -> None:
    """The data, in the model of the context.

    Raises
    ------
    ValueError
        Where PyMC has no such variable.
    """
    known = problem.likelihood
    found = known.in_pymc(f, pt.exp)
    if found is None:
        raise ValueError(
            f"PyMC's methods are compared on labels with noise of their own, and on likelihoods of "
            f"one distribution of PyMC; under {known!r} the methods 'exact', 'lin_ess', 'ep' and "
            "'laplace' are there."
        )
    name, parameters = found
    distribution = getattr(pm, name, None) or getattr(probit, name)
    y = known.as_data(problem.labels, problem.X.shape[0])
    distribution("y", **parameters, observed=y)


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

    def marginals(self, start: int = 0, k: int = 1) -> LatentMarginals:
        """Mixtures of one component each, from a value on, of k functions at each input."""
        cov = self.cov[start:, start:]
        variance = np.maximum(cov.diagonal(), 0.0)  # round-off
        together = np.einsum("tktl->tkl", cov.reshape(-1, k, variance.size // k, k))
        covariance = together if k > 1 else None
        given = self.mean[start:, None], variance, np.ones(1)
        return LatentMarginals(*given, exact=True, covariance=covariance)

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
        density = fits.site_log_density(given, sites, 0)
        own = LearntSeveral(sites.known, density.offset)
        blocks = LocalBlocks([SeveralBlock(density.factor, own)])
        known = fit_blocks(blocks, tol=_EP_TOLERANCE)
        log_evidence = given.log_density + known.log_prob
        return _of_coordinates(given, 0, known.gaussian.mean, known.gaussian.chol, log_evidence)
    if sites is not None:
        draws = fits.site_draws(given, sites, n_latent, tol=_EP_TOLERANCE)
        cov, ep, rows = draws.cov, draws.ep, np.vstack([given.row_factor, draws.density.factor])
    elif given.n_rows:
        cov, rows = given.cov, given.row_factor
        ep = fit_ep(cov, given.lower, given.upper, tol=_EP_TOLERANCE)
    else:
        return _regression(given)
    factor = given.factor[n_latent:]
    mean = given.mean[n_latent:] + factor @ (rows.T @ ep.weights)
    left = np.eye(factor.shape[1]) - rows.T @ cov.site_precision(ep.tau) @ rows
    return GaussianPosterior(
        mean, factor @ left @ factor.T, given.log_density + ep.log_prob - signs
    )


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
    density = fits.site_log_density(given, sites, 0)

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
    prior: Prior, sets: tuple[priors.DataSet, ...], new: FloatArray
) -> tuple[Conditioning, int]:
    """The process at pseudo-points, data and new points given points; how many are the first."""
    k = priors.n_functions(sets)
    wanted = [*(data.values for data in sets), Values(new, k)]
    return fits.conditioned(
        prior, wanted, priors.rows_of(sets, prior)[0]
    ), k * prior.n_pseudo_points


def _regression(given: Conditioning) -> GaussianPosterior:
    return GaussianPosterior(given.mean, given.factor @ given.factor.T, given.log_density)


# From draws of f at the data to an `Approximation`.

_BLOCKS_A_CHAIN = 4


def from_draws(
    problem: Problem,
    f: FloatArray,
    new: FloatArray | None = None,
    *,
    attrs: dict[str, Any] | None = None,
    **known: float | None,
) -> Approximation:
    """What draws of f say, at the data and at the new points.

    Parameters
    ----------
    problem : Problem
    f : ndarray, shape (n_chains, n_draws, n)
        At the data; of K functions n K values, all functions at the first of the data, and so on.
    new : ndarray, shape (n_chains, n_draws, t), optional
        At the new points; default GP regression on `f`, which also averages their noise out of the
        probabilities.
    attrs : dict, optional
        Of the DataTree.
    **known
        Other fields of `Approximation`.
    """
    f = f.reshape(*f.shape[:2], -1)  # several functions: all in a row
    n_chains, n_draws, _ = f.shape
    k = problem.n_functions
    # Draws depend on their neighbours in a chain; stretches of it hardly do.
    stretch = np.arange(n_draws) * min(_BLOCKS_A_CHAIN, n_draws) // n_draws
    replicate = (np.arange(n_chains)[:, None] * _BLOCKS_A_CHAIN + stretch).ravel()
    drawn = new
    if not problem.new.shape[0]:
        drawn, new = f, np.zeros((n_chains, n_draws, 0))
    if drawn is None or new is None:
        at, new = _continued(problem, f, replicate)
        probability = predicted_probability(problem.likelihood, at)
    elif isinstance(problem.likelihood, BernoulliProbit):
        probability = DrawnMarginals(drawn).probability()
    else:
        at = _mixture(drawn.reshape(-1, drawn.shape[2]).T, np.zeros(drawn.shape[2]), k, replicate)
        probability = predicted_probability(problem.likelihood, at)
    tree = function_tree(problem, f, new, attrs or {})
    marginals = DrawnMarginals(np.concatenate([f, new], axis=2))
    return Approximation(marginals, probability, tree, **known)  # type: ignore[arg-type]


def _continued(
    problem: Problem, f: FloatArray, replicate: IntArray
) -> tuple[LatentMarginals, FloatArray]:
    """F at the new points given draws at the data: marginals, and draws."""
    rng, k = np.random.default_rng([problem.seed, 1]), problem.n_functions
    each, drawn = [], []
    with no_warnings():  # of the jitter that f at one of the data needs
        for function in range(k):  # independent of each other
            own = f.reshape(-1, f.shape[2])[:, function::k]
            there = continue_draws(problem.prior, problem.X, own, problem.new, rng)
            known = GaussianPosterior(*there[:2], np.nan)
            each.append((known.mean.T, np.maximum(known.cov.diagonal(), 0.0)))
            drawn.append(known.sample(len(own), rng))
    means, variance = (np.stack(x, axis=1) for x in zip(*each, strict=True))
    at = _mixture(means.reshape(-1, replicate.size), variance.ravel(), k, replicate)
    return at, np.stack(drawn, axis=2).reshape(*f.shape[:2], -1)


def _mixture(
    means: FloatArray, variance: FloatArray, k: int, replicate: IntArray
) -> LatentMarginals:
    """Equally weighted components, (t K, S); those of one replicate may depend on each other."""
    weights = np.full(means.shape[1], 1.0 / means.shape[1])
    covariance = variance.reshape(-1, k, 1) * np.eye(k) if k > 1 else None
    return LatentMarginals(means, variance, weights, replicate, covariance=covariance)


# The exact posterior by its two samplers, and the two Gaussians that approximate it.


def sampled(problem: Problem, method: Literal["twisted", "lin_ess"]) -> Approximation:
    """Near-independent draws, or a Markov chain by linear elliptical slice sampling."""
    if method == "lin_ess":
        _compile_lin_ess()
    tree = problem.posterior.sample(
        problem.draws, problem.chains, method, problem.seed, **problem.options
    )
    attrs = dict(tree["sample_stats"].attrs)
    return from_draws(
        problem,
        tree["posterior"].dataset["f"].values,
        attrs=attrs,
        evidence=attrs.get("log_marginal_likelihood", np.nan),
        evidence_se=attrs.get("log_marginal_likelihood_se", np.nan),
        drawing=attrs["sampling_time"],
    )


@cache
def _compile_lin_ess() -> None:
    """Let numba do its work before the seconds of drawing are counted."""
    for lower in (-0.5, 0.0):
        truncated_mvn(np.eye(4), lower, None, n_draws=8, method="lin_ess")


def gaussian(problem: Problem, fit: Callable[..., GaussianPosterior]) -> Approximation:
    """Expectation propagation, or Laplace's approximation at the mode of f."""
    data = problem.X, problem.labels, problem.new, problem.likelihood
    found = fit(problem.prior, *data, **problem.options)
    k = problem.n_functions
    n = problem.X.shape[0] * k
    f = found.sample(problem.draws * problem.chains, np.random.default_rng(problem.seed))
    f = f.reshape(problem.chains, problem.draws, -1)
    at = found.marginals(n if problem.new.shape[0] else 0, k)
    attrs = {"log_marginal_likelihood": found.log_evidence}
    return Approximation(
        found.marginals(),
        predicted_probability(problem.likelihood, at),
        function_tree(problem, f[..., :n], f[..., n:], attrs),
        evidence=found.log_evidence,
    )


# What PyMC offers for the same model: NUTS, variational inference, basis functions.

# Basis functions of each input column, by the number of columns: their product is what counts.
BASIS = {1: 60, 2: 20, 3: 9}
_BOUNDARY = 1.5  # of the range of the inputs
_ITERATIONS = 30_000
_ELBO_SHARE = 10  # the bound is the mean over the last tenth of the iterations


def latent_model(problem: Problem) -> pm.Model:
    """`pm.gp.Latent` under the likelihood, hyperparameters as they are."""
    with pm.Model() as model:
        gp = pm.gp.Latent(mean_func=problem.mean_func(), cov_func=problem.cov_func())
        f = gp.prior("f", X=problem.X)
        observe(problem, f)
    return model


def hsgp_nuts(problem: Problem) -> Approximation:
    """`pm.gp.HSGP` by NUTS: the kernel by basis functions.

    Options: ``m`` (basis functions of each column), ``c`` or ``L``, and others of ``pm.sample``.
    """
    options = dict(problem.options)
    basis = {name: options.pop(name) for name in ("m", "c", "L") if name in options}
    cov = problem.cov_func()
    if "m" not in basis:
        if cov.n_dims not in BASIS:
            raise ValueError(
                f"a basis for {cov.n_dims} input columns would need too many functions (their "
                f"number is a product over the columns); there are defaults for {sorted(BASIS)} "
                "columns, and options={'hsgp_nuts': {'m': [...]}} for others."
            )
        basis["m"] = [BASIS[cov.n_dims]] * cov.n_dims
    if "L" not in basis:
        basis.setdefault("c", _BOUNDARY)

    with pm.Model() as model:
        gp = pm.gp.HSGP(mean_func=problem.mean_func(), cov_func=cov, **basis)
        # At all points at once: f is linear in the coefficients, here and there.
        f = gp.prior("f", X=np.vstack([problem.X, problem.new]))
        observe(problem, f[: problem.X.shape[0]])
    return _nuts(replace(problem, options=options), model)


def _nuts(problem: Problem, model: pm.Model | None = None) -> Approximation:
    """By NUTS; of the latent model by default."""
    idata = pm.sample(
        draws=problem.draws,
        tune=problem.tune,
        chains=problem.chains,
        model=latent_model(problem) if model is None else model,
        random_seed=problem.seed,
        progressbar=False,
        compute_convergence_checks=False,
        **problem.options,
    )
    f, n = idata["posterior"]["f"].values, problem.X.shape[0]
    attrs = {
        "divergences": int(idata["sample_stats"]["diverging"].sum()),
        "sampling_time": float(idata["posterior"].attrs.get("sampling_time", np.nan)),
    }
    new = f[..., n:] if f.shape[-1] > n else None
    return from_draws(problem, f[..., :n], new, attrs=attrs, drawing=attrs["sampling_time"])


def variational(problem: Problem, method: str) -> Approximation:
    """A Gaussian of whitened f, its covariance diagonal or any."""
    options = {"n": _ITERATIONS, **problem.options}
    with latent_model(problem):
        fit = pm.fit(method=method, random_seed=problem.seed, progressbar=False, **options)
        idata = fit.sample(problem.draws * problem.chains, random_seed=problem.seed)
    bound = -np.asarray(fit.hist)[-max(1, len(fit.hist) // _ELBO_SHARE) :]
    attrs = {"elbo": float(bound.mean()), "elbo_se": float(bound.std() / np.sqrt(bound.size))}
    f = idata["posterior"]["f"].values.reshape(problem.chains, problem.draws, -1)
    return from_draws(problem, f, attrs=attrs, evidence=attrs["elbo"], evidence_se=attrs["elbo_se"])


def extras(problem: Problem, fit: str, draws: str) -> Approximation:
    """What pymc-extras offers for the same model, of whitened f, where it is installed."""
    try:
        import pymc_extras
    except ImportError as error:
        raise ModuleNotFoundError(
            f"pymc-extras could not be imported ({error}): pip install pymc-extras, which needs a "
            "release of PyMC that it supports.",
            name="pymc_extras",
        ) from error
    options: dict[str, Any] = {draws: problem.draws * problem.chains, **problem.options}
    idata = getattr(pymc_extras, fit)(
        model=latent_model(problem), random_seed=problem.seed, progressbar=False, **options
    )
    f = np.asarray(idata["posterior"]["f"].values, dtype=float)
    return from_draws(problem, f.reshape(problem.chains, problem.draws, -1))


METHODS: dict[str, Callable[[Problem], Approximation]] = {
    "exact": partial(sampled, method="twisted"),
    "lin_ess": partial(sampled, method="lin_ess"),
    "ep": partial(gaussian, fit=ep_posterior),
    "laplace": partial(gaussian, fit=laplace_posterior),
    "advi": partial(variational, method="advi"),
    "fullrank_advi": partial(variational, method="fullrank_advi"),
    "latent_nuts": _nuts,
    "hsgp_nuts": hsgp_nuts,
    "extras_laplace": partial(extras, fit="fit_laplace", draws="draws"),
    "extras_pathfinder": partial(extras, fit="fit_pathfinder", draws="num_draws"),
}

# Those that take a prior with pseudo-points.
SKEW_PRIOR_METHODS = ("exact", "lin_ess", "ep")

# Those that take any likelihood of one function.
ROW_METHODS = ("exact", "lin_ess", "ep", "laplace")

# Those of it for a likelihood without rows; PyMC's have to be asked for, as they take minutes.
SITE_METHODS = ("exact", "ep", "laplace")
