"""Probabilities, draws and moments of a multivariate normal restricted to a rectangle."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp import _validation as check
from pymc_skewgp._errors import LowEffectiveSampleWarning, warn
from pymc_skewgp._gaussian import escalation, linalg, univariate
from pymc_skewgp._gaussian import weights as w
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._limits import refuse_too_many_draws
from pymc_skewgp._validation import FloatArray, Seed

# Weighted draws, with what is known of their quality.


@dataclass(frozen=True)
class TruncatedDraws:
    """Draws of a truncated multivariate normal.

    Attributes
    ----------
    draws : ndarray, shape (n_draws, N)
        Draws, every one within the limits. With ``method="lin_ess"`` the chains follow one another.
    log_weights : ndarray, shape (n_draws,)
        Log importance weights up to a constant: a mean under the truncated normal is a mean of the
        draws with weights ``exp(log_weights)``. All zero for ``method="lin_ess"``.
    log_prob : Estimate or None
        Log probability of the rectangle with its error; None for ``method="lin_ess"``, which does
        not know it.
    method : str
        What was run: "twisted", "twisted (relaxed)", "tempered", "filtered" or "lin_ess".
    n_chains : int
        Markov chains behind the draws; 1 where they are independent.
    replicate : ndarray of int, shape (n_draws,), or None
        Equal numbers for draws that depend on each other: those of one set of mirrored points;
        for "tempered" and "filtered" those of one run, which share ancestors. The spread of their
        sums gives the error of a mean. None where draws are as good as independent, or of chains.
    n_modes : int
        Modes that the proposal is about: above 1 only for likelihoods that are not log-concave.
    """

    draws: FloatArray
    log_weights: FloatArray
    log_prob: w.Estimate | None
    method: str
    n_chains: int = 1
    replicate: w.IntArray | None = None
    n_modes: int = 1

    @cached_property
    def relative_ess(self) -> float:
        """Effective sample size over the number of draws, in (0, 1]; may exceed 1 for chains.

        Of the weights; for ``method="lin_ess"`` the smallest of the chains' bulk effective sample
        sizes over the coordinates, which takes a moment to find.
        """
        if self.log_prob is not None:
            return self.log_prob.relative_ess
        return w.chain_relative_ess(self.draws.reshape(self.n_chains, -1, self.draws.shape[1]))

    @property
    def pareto_k(self) -> float:
        """Tail shape of the weights; -inf where there are none."""
        return -np.inf if self.log_prob is None else self.log_prob.pareto_k

    def equally_weighted(
        self,
        n: int | None = None,
        *,
        scheme: Literal["systematic", "metropolis"] = "systematic",
        random_seed: Seed = None,
    ) -> FloatArray:
        """Draws that need no weights.

        Parameters
        ----------
        n : int, optional
            How many; default as many as there are. "metropolis" gives at most that.
        scheme : {"systematic", "metropolis"}
            "systematic" resampling: each draw is repeated in proportion to its weight, in random
            order; with a relative ESS near 1 few are repeated. "metropolis": a chain of
            independence Metropolis over the draws in their order, with runs of equal draws. Both
            are exact as the number of draws grows.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness.

        Returns
        -------
        ndarray, shape (n, N)
        """
        count = check.as_count("n", self.log_weights.size if n is None else n)
        refuse_too_many_draws("n", count, self.draws.shape[1], buffers=1)
        rng = check.as_generator(random_seed)
        if scheme == "systematic":
            return self.draws[w.systematic_resample(self.log_weights, count, rng)]
        if scheme != "metropolis":
            raise ValueError(f'scheme must be "systematic" or "metropolis", got {scheme!r}.')
        if count > self.log_weights.size:
            raise ValueError(
                f"n must be at most the number of draws ({self.log_weights.size}) for "
                f'scheme="metropolis", got {count}: use scheme="systematic" or draw more.'
            )
        return self.draws[w.metropolis_resample(self.log_weights, rng)[:count]]


# Log probability and draws of N(0, cov) within a rectangle, for arguments that were checked.
#
# What the layers above call. Limits are given for every row, infinities allowed; a number stands
# for all rows.

_LEAST_RELATIVE_ESS = 0.1  # of draws: a warning is due below it


def log_prob_rectangle(
    cov: FloatArray,
    lower: FloatArray | float,
    upper: FloatArray | float,
    n_draws: int,
    rtol: float | None,
    random_seed: Seed,
) -> w.Estimate:
    """Log probability of a rectangle, exact where it has limits in at most two rows.

    Parameters
    ----------
    cov : ndarray, shape (n, n)
        Covariance of all rows, of which the symmetric part is read.
    lower, upper : float or ndarray, shape (n,)
        Limits, ``lower < upper``. Rows without any are dropped.
    n_draws, rtol, random_seed
        As for `pymc_skewgp.mvn_logcdf`.
    settings : SamplerSettings
        Thresholds of the escalation policy.

    Returns
    -------
    Estimate
        0 without error where no limit is finite, or there is no row.

    Warns
    -----
    LowEffectiveSampleWarning
        When the standard error stayed above `rtol` (0.1 without it), or is unreliable.
    """
    low, high = linalg.row_limits(lower, upper, len(cov))
    bounded = np.isfinite(low) | np.isfinite(high)
    if not bounded.any():
        return w.Estimate(0.0, 0.0, 1.0, -np.inf)
    low, high, matrix = low[bounded], high[bounded], linalg.symmetric(cov[np.ix_(bounded, bounded)])
    exact = exact_log_prob(matrix, low, high)
    if exact is not None:
        return w.Estimate(exact, 0.0, 1.0, -np.inf)
    refuse_too_many_draws("n_draws", n_draws, low.size)
    sampler = escalation.RectangleSampler(DenseCovariance(matrix), low, high)
    result = sampler.sample(n_draws, check.as_generator(random_seed), goal="probability", rtol=rtol)
    warn_of_error(result.log_prob, escalation.DEFAULT.largest_se if rtol is None else rtol)
    return result.log_prob


def log_orthant(limits: FloatArray, cov: FloatArray, n_draws: int, random_seed: Seed) -> w.Estimate:
    """Log probability that every row is below its limit."""
    return log_prob_rectangle(cov, -np.inf, limits, n_draws, None, random_seed)


def exact_log_prob(cov: FloatArray, lower: FloatArray, upper: FloatArray) -> float | None:
    """Log probability of a rectangle in one or two dimensions; None in more."""
    if lower.size == 1:
        sd = np.sqrt(cov[0, 0])
        return float(univariate.log_ndtr_interval(lower / sd, upper / sd)[0])
    if lower.size == 2:
        return univariate.bivariate_log_prob(lower, upper, cov)
    return None


def warn_of_error(estimate: w.Estimate, wanted: float) -> None:
    """Warn where an estimate fell short of what was asked."""
    if not estimate.std_error <= wanted or estimate.heavy_tailed:
        warn(
            f"the log probability has standard error {estimate.std_error:.2g} nats, "
            f"{wanted:.2g} wanted ({w.describe_weights(estimate)}): ask for more draws with "
            "n_draws.",
            LowEffectiveSampleWarning,
            stacklevel=4,
        )


def draws_by(
    sampler: escalation.RectangleSampler, n_draws: int, rng: np.random.Generator
) -> TruncatedDraws:
    """The same by a sampler, which is fitted once for all calls."""
    refuse_too_many_draws("the number of draws", n_draws, sampler.size)
    result = sampler.sample(n_draws, rng, goal="draws")
    warn_of_few(result.log_prob, result.log_weights.size, sampler.settings.largest_se)
    estimate, exact = result.log_prob, None
    if sampler.size <= 2:
        exact = exact_log_prob(sampler.cov.dense(), sampler.lower, sampler.upper)
    if exact is not None:
        estimate = estimate._replace(value=exact, std_error=0.0)
    return TruncatedDraws(
        result.u.T, result.log_weights, estimate, result.method, replicate=result.replicate
    )


def warn_of_few(estimate: w.Estimate, n_draws: int, largest_se: float) -> None:
    """Warn where draws are so unequal in weight that there are few of them."""
    few = not estimate.relative_ess >= _LEAST_RELATIVE_ESS
    if few or not estimate.std_error <= largest_se or estimate.heavy_tailed:
        warn(
            f"the effective sample size of {n_draws} draws is about "
            f"{estimate.relative_ess * n_draws:.0f} ({w.describe_weights(estimate)}; standard "
            f"error of the log probability {estimate.std_error:.2g} nats): ask for more draws, or "
            "lower the kernel's variance.",
            LowEffectiveSampleWarning,
            stacklevel=4,
        )


def lin_ess_draws_by(
    sampler: escalation.RectangleSampler,
    n_draws: int,
    rng: np.random.Generator,
    *,
    n_chains: int = 8,
    thin: int = 1,
) -> TruncatedDraws:
    """Draws by linear elliptical slice sampling: chains started at weighted draws, resampled."""
    refuse_too_many_draws("the number of draws", n_draws, sampler.size, buffers=1)
    from pymc_skewgp._gaussian.lin_ess import lin_ess  # numba: half a second of import

    # Chains of equal length: the largest number up to the one asked for that divides the draws.
    n_chains = next(k for k in range(min(n_chains, n_draws), 0, -1) if n_draws % k == 0)
    start = sampler.sample(max(n_chains, 64), rng, goal="draws")
    chosen = w.systematic_resample(start.log_weights, n_chains, rng)
    cov = sampler.cov
    dense = cov if isinstance(cov, DenseCovariance) else DenseCovariance(cov.dense())
    result = lin_ess(
        dense.chol,
        np.ascontiguousarray(start.u[:, chosen].T),
        sampler.lower,
        sampler.upper,
        n_draws=n_draws // n_chains,
        thin=thin,
        random_seed=rng,
    )
    draws = result.draws.reshape(n_draws, -1)
    return TruncatedDraws(draws, np.zeros(n_draws), None, "lin_ess", n_chains)


def mvn_logcdf(
    x: ArrayLike,
    cov: ArrayLike,
    *,
    lower: ArrayLike | None = None,
    n_draws: int = 1024,
    rtol: float | None = None,
    random_seed: Seed = 0,
) -> w.Estimate:
    r"""Log probability that a multivariate normal lies in a rectangle.

    .. math:: \log P(l < u \le x), \qquad u \sim N(0, \Sigma)

    Exact for N <= 2. Otherwise importance sampling: coordinates are drawn one after another, each
    truncated exactly, under a Gaussian "twist" from expectation propagation that stands for the
    limits still to come; the points are randomised quasi-Monte Carlo. Where the weights collapse
    (large correlations with steep limits), the sampler widens its proposal and then tempers.

    Parameters
    ----------
    x : array_like, shape (N,)
        Upper limits, in the units of the variable; infinite entries are allowed. A scalar is
        repeated.
    cov : array_like, shape (N, N)
        Covariance: symmetric, positive definite.
    lower : array_like, shape (N,), optional
        Lower limits, below `x`. Default: minus infinity.
    n_draws : int, default 1024
        Draws. Cost grows as N^2 `n_draws` + N^3.
    rtol : float, optional
        Standard error of the log probability (the relative error of the probability) to go on for,
        doubling the draws. Default: one run of `n_draws`, tempering until the error is 0.1.
    random_seed : int, Generator, SeedSequence or None, default 0
        Fixed by default, so that equal arguments give equal values.

    Returns
    -------
    Estimate
        ``value``, ``std_error`` (from 16 independent randomisations; 0 where exact),
        ``relative_ess``, ``pareto_k``.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, `cov` not symmetric, a lower limit not below its upper one,
        `n_draws` < 1.
    NotPositiveDefiniteError
        `cov` not positive definite; the message says by how much.

    Warns
    -----
    LowEffectiveSampleWarning
        When the standard error stayed above `rtol` (0.1 without it).
    JitterWarning
        When `cov` was singular to round-off and a jitter was added.

    References
    ----------
    .. [1] A. Genz (1992), Numerical computation of multivariate normal probabilities,
       doi:10.1080/10618600.1992.10477010.
    .. [2] Z. I. Botev (2017), The normal law under linear restrictions: simulation and estimation
       via minimax tilting, arXiv:1603.04166.
    .. [3] J. P. Cunningham, P. Hennig & S. Lacoste-Julien (2011), Gaussian probabilities and
       expectation propagation, arXiv:1111.6832.

    Examples
    --------
    All N variables equicorrelated with correlation 1/2 are negative with probability 1/(N + 1):

    >>> import numpy as np
    >>> from pymc_skewgp import mvn_logcdf
    >>> cov = 0.5 * np.eye(100) + 0.5
    >>> estimate = mvn_logcdf(np.zeros(100), cov)
    >>> print(f"{estimate.value:.3f}, exact {-np.log(101):.3f}")
    -4.615, exact -4.615
    """
    matrix = check.as_covariance("cov", cov)
    size = matrix.shape[0]
    high = check.as_vector("x", x, size, allow_inf=True)
    count = check.as_count("n_draws", n_draws)
    if rtol is not None:
        rtol = check.as_positive("rtol", rtol)
    rng = check.as_generator(random_seed)
    low = check.as_vector("lower", -np.inf if lower is None else lower, size, allow_inf=True)
    if (high == -np.inf).any():
        return w.Estimate(-np.inf, 0.0, 1.0, -np.inf)
    low, high = check.as_bounds(low, high, size, upper_name="x")
    return log_prob_rectangle(matrix, low, high, count, rtol, rng)


def truncated_mvn(
    cov: ArrayLike,
    lower: ArrayLike | None,
    upper: ArrayLike | None,
    *,
    n_draws: int = 1024,
    method: Literal["twisted", "lin_ess"] = "twisted",
    n_chains: int = 8,
    thin: int = 1,
    random_seed: Seed = None,
) -> TruncatedDraws:
    r"""Draws of a multivariate normal restricted to a rectangle.

    .. math:: u \sim N(0, \Sigma) \text{ given } l < u < x

    Parameters
    ----------
    cov : array_like, shape (N, N)
        Covariance: symmetric, positive definite.
    lower, upper : array_like, shape (N,), or None
        Limits, in the units of the variable; infinite entries and None (unbounded) are allowed.
    n_draws : int, default 1024
        Draws returned.
    method : {"twisted", "lin_ess"}
        "twisted": independent weighted draws by sequential sampling under EP's twist; falls back
        on tempering where the weights collapse. "lin_ess": linear elliptical slice sampling, a
        Markov chain that never rejects, but whose steps shrink like 1/N.
    n_chains : int, default 8
        Chains of lin-ess (fewer where that does not divide `n_draws`), started from resampled
        twisted draws, so that no burn-in is needed.
    thin : int, default 1
        Steps of lin-ess for each draw kept.
    random_seed : int, Generator, SeedSequence or None
        Source of randomness.

    Returns
    -------
    TruncatedDraws
        Draws with log weights and diagnostics; ``equally_weighted()`` resamples them.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        As `mvn_logcdf`.

    Warns
    -----
    LowEffectiveSampleWarning
        When the relative ESS of the draws is below a tenth.

    References
    ----------
    .. [1] A. Gessner, O. Kanjilal & P. Hennig (2020), Integrals over Gaussians under linear domain
       constraints, arXiv:1910.09328.
    .. [2] Z. I. Botev (2017), arXiv:1603.04166.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import truncated_mvn
    >>> cov = 0.5 * np.eye(50) + 0.5
    >>> result = truncated_mvn(cov, 0.0, None, n_draws=500, random_seed=1)
    >>> bool((result.draws > 0).all()), result.method
    (True, 'twisted')
    """
    matrix = check.as_covariance("cov", cov)
    low, high = check.as_bounds(lower, upper, matrix.shape[0])
    count = check.as_count("n_draws", n_draws)
    rng = check.as_generator(random_seed)
    if method not in ("twisted", "lin_ess"):
        raise ValueError(f'method must be "twisted" or "lin_ess", got {method!r}.')
    n_chains, thin = check.as_count("n_chains", n_chains), check.as_count("thin", thin)
    sampler = escalation.RectangleSampler(DenseCovariance(matrix), low, high)
    if method == "twisted":
        return draws_by(sampler, count, rng)
    return lin_ess_draws_by(sampler, count, rng, n_chains=n_chains, thin=thin)


# Moments of a truncated Gaussian: exact in one and two dimensions, from weighted draws in more.


def latent_moments(
    cov: FloatArray, lower: FloatArray, n_draws: int, random_seed: Seed
) -> univariate.LatentMoments:
    """Moments of N(0, cov) above `lower`."""
    s = lower.size
    if s == 0:
        return univariate.LatentMoments(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)))
    if s == 1:
        sd = np.sqrt(cov[0, 0])
        bound, top = lower / sd, np.full(1, np.inf)
        _, mean, variance = univariate.truncated_moments(bound, top)
        third = univariate.truncated_third_moment(bound, top)
        return univariate.LatentMoments(
            sd * mean, sd**2 * variance[None], sd**3 * third[None, None]
        )
    if s == 2:
        return univariate.bivariate_truncated_moments(lower, np.full(2, np.inf), cov)
    sampler = escalation.RectangleSampler(DenseCovariance(cov, "latent_cov"), lower, np.inf)
    result = draws_by(sampler, n_draws, check.as_generator(random_seed))
    weights = w.normalized_weights(result.log_weights)
    mean = weights @ result.draws
    centred = result.draws - mean
    second = (centred * weights[:, None]).T @ centred
    return univariate.LatentMoments(mean, second, None, centred, weights)
