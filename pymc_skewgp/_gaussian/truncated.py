"""Probabilities and draws of a multivariate normal restricted to a rectangle: the public face."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._deprecation import RenamedAttribute
from pymc_skewgp._errors import LowEffectiveSampleWarning, warn
from pymc_skewgp._gaussian.bivariate import bivariate_log_prob
from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.escalation import (
    RectangleSampler,
    SamplingResult,
    heavy_tailed,
    sample_rectangle,
)
from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    chain_relative_ess,
    metropolis_resample,
    systematic_resample,
)
from pymc_skewgp._memory import refuse_too_many_draws
from pymc_skewgp._validation import (
    FloatArray,
    as_bounds,
    as_count,
    as_covariance,
    as_generator,
    as_positive,
    as_vector,
)
from pymc_skewgp._validation import Seed as Seed

_WORST_ERROR = 0.1  # nats
_LEAST_FRACTION = 0.1


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
        What was run: "twisted", "twisted (relaxed)", "tempered" or "lin_ess".
    n_chains : int
        Markov chains behind the draws; 1 where they are independent.
    replicate : ndarray of int, shape (n_draws,), or None
        For "tempered", the independent run that each draw comes from: draws of one run share
        ancestors. None where draws are independent, or of Markov chains.
    """

    draws: FloatArray
    log_weights: FloatArray
    log_prob: Estimate | None
    method: str
    n_chains: int = 1
    replicate: IntArray | None = None

    @cached_property
    def relative_ess(self) -> float:
        """Effective sample size over the number of draws, in (0, 1]; may exceed 1 for chains.

        Of the weights; for ``method="lin_ess"`` the smallest of the chains' bulk effective sample
        sizes over the coordinates, which takes a moment to find.
        """
        if self.log_prob is not None:
            return self.log_prob.relative_ess
        return chain_relative_ess(self.draws.reshape(self.n_chains, -1, self.draws.shape[1]))

    ess_fraction = RenamedAttribute("relative_ess")

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
        count = as_count("n", self.log_weights.size if n is None else n)
        refuse_too_many_draws("n", count, self.draws.shape[1], buffers=1)
        rng = as_generator(random_seed)
        return self.draws[equal_weight_indices(self.log_weights, count, scheme, rng)]


def equal_weight_indices(
    log_weights: FloatArray, n: int, scheme: str, rng: np.random.Generator
) -> IntArray:
    """Indices of `n` equally weighted draws by the named scheme."""
    if scheme == "systematic":
        return systematic_resample(log_weights, n, rng)
    if scheme == "metropolis":
        if n > log_weights.size:
            raise ValueError(
                f"n must be at most the number of draws ({log_weights.size}) for "
                f'scheme="metropolis", got {n}: use scheme="systematic" or draw more.'
            )
        return metropolis_resample(log_weights, rng)[:n]
    raise ValueError(f'scheme must be "systematic" or "metropolis", got {scheme!r}.')


def mvn_logcdf(
    x: ArrayLike,
    cov: ArrayLike,
    *,
    lower: ArrayLike | None = None,
    n_draws: int = 1024,
    rtol: float | None = None,
    random_seed: Seed = 0,
) -> Estimate:
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
    matrix = as_covariance("cov", cov)
    size = matrix.shape[0]
    high = as_vector("x", x, size, allow_inf=True)
    count = as_count("n_draws", n_draws)
    if rtol is not None:
        rtol = as_positive("rtol", rtol)
    rng = as_generator(random_seed)
    low = as_vector("lower", -np.inf if lower is None else lower, size, allow_inf=True)
    if (high == -np.inf).any():
        return Estimate(-np.inf, 0.0, 1.0, -np.inf)
    low, high = as_bounds(low, high, size, upper_name="x")
    kept = np.isfinite(low) | np.isfinite(high)
    if not kept.all():  # an unbounded coordinate integrates out
        matrix, low, high = matrix[np.ix_(kept, kept)], low[kept], high[kept]
    if low.size == 0:
        return Estimate(0.0, 0.0, 1.0, -np.inf)
    return log_prob_rectangle(matrix, low, high, count, rtol, rng)


def log_prob_rectangle(
    matrix: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    n_draws: int,
    rtol: float | None,
    rng: np.random.Generator,
) -> Estimate:
    """`mvn_logcdf` for checked arguments, every row bounded on at least one side."""
    exact = exact_log_prob(matrix, lower, upper)
    if exact is not None:
        return Estimate(exact, 0.0, 1.0, -np.inf)
    refuse_too_many_draws("n_draws", n_draws, lower.size)
    result = sample_rectangle(
        DenseCovariance(matrix), lower, upper, n_draws, rng, goal="probability", rtol=rtol
    )
    warn_if_unsure(result.log_prob, rtol)
    return result.log_prob


def log_orthant(limits: FloatArray, cov: FloatArray, n_draws: int, random_seed: Seed) -> Estimate:
    """`mvn_logcdf` for checked arguments; 0 when no limit is finite, or there is none."""
    kept = np.isfinite(limits)
    if not kept.any():
        return Estimate(0.0, 0.0, 1.0, -np.inf)
    high = limits[kept]
    return log_prob_rectangle(
        symmetric(cov[np.ix_(kept, kept)]),
        np.full(high.size, -np.inf),
        high,
        n_draws,
        None,
        as_generator(random_seed),
    )


def exact_log_prob(matrix: FloatArray, lower: FloatArray, upper: FloatArray) -> float | None:
    """Log probability of a rectangle in one or two dimensions; None in more."""
    if lower.size == 1:
        sd = np.sqrt(matrix[0, 0])
        return float(log_ndtr_interval(lower / sd, upper / sd)[0])
    if lower.size == 2:
        return bivariate_log_prob(lower, upper, matrix)
    return None


def warn_if_unsure(estimate: Estimate, rtol: float | None) -> None:
    """Name the problem when an estimate fell short of what was asked."""
    wanted = _WORST_ERROR if rtol is None else rtol
    if not estimate.std_error <= wanted or heavy_tailed(estimate):
        warn(
            f"the log probability has standard error {estimate.std_error:.2g} nats "
            f"({wanted:.2g} wanted; relative ESS {estimate.relative_ess:.3f}, Pareto k "
            f"{estimate.pareto_k:.2f}, above 0.7 the error itself is in doubt): ask for more "
            "draws with n_draws.",
            LowEffectiveSampleWarning,
            stacklevel=3,
        )


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
        When the draws are worth less than a tenth of their number.

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
    matrix = as_covariance("cov", cov)
    low, high = as_bounds(lower, upper, matrix.shape[0])
    count = as_count("n_draws", n_draws)
    rng = as_generator(random_seed)
    if method == "twisted":
        return twisted_draws(DenseCovariance(matrix), low, high, count, rng)
    if method == "lin_ess":
        return lin_ess_draws(
            DenseCovariance(matrix),
            low,
            high,
            count,
            rng,
            n_chains=as_count("n_chains", n_chains),
            thin=as_count("thin", thin),
        )
    raise ValueError(f'method must be "twisted" or "lin_ess", got {method!r}.')


def twisted_draws(
    cov: Covariance,
    lower: FloatArray,
    upper: FloatArray,
    n_draws: int,
    rng: np.random.Generator,
    rtol: float | None = None,
) -> TruncatedDraws:
    """`truncated_mvn` by the twisted sampler, for checked arguments."""
    return draws_by(RectangleSampler(cov, lower, upper), n_draws, rng, rtol)


def draws_by(
    sampler: RectangleSampler, n_draws: int, rng: np.random.Generator, rtol: float | None = None
) -> TruncatedDraws:
    """The same by a sampler, which is fitted once for all calls."""
    refuse_too_many_draws("the number of draws", n_draws, sampler.size)
    result = sampler.sample(n_draws, rng, goal="draws", rtol=rtol)
    _warn_if_few(result)
    estimate, exact = result.log_prob, None
    if sampler.size <= 2:
        exact = exact_log_prob(sampler.cov.dense(), sampler.lower, sampler.upper)
    if exact is not None:
        estimate = estimate._replace(value=exact, std_error=0.0)
    return TruncatedDraws(
        result.u.T,
        result.log_weights,
        estimate,
        result.method,
        replicate=result.replicate if result.method == "tempered" else None,
    )


def _warn_if_few(result: SamplingResult) -> None:
    estimate = result.log_prob
    few = not estimate.relative_ess >= _LEAST_FRACTION
    if few or not estimate.std_error <= _WORST_ERROR or heavy_tailed(estimate):
        n_draws = result.log_weights.size
        warn(
            f"{n_draws} draws are worth about {estimate.relative_ess * n_draws:.0f} independent "
            f"ones (log probability +- {estimate.std_error:.2g} nats, Pareto k "
            f"{estimate.pareto_k:.2f}, above 0.7 a tail is missing): ask for more draws, or "
            "lower the kernel's variance.",
            LowEffectiveSampleWarning,
            stacklevel=5,
        )


def lin_ess_draws(
    cov: Covariance,
    lower: FloatArray,
    upper: FloatArray,
    n_draws: int,
    rng: np.random.Generator,
    *,
    n_chains: int = 8,
    thin: int = 1,
) -> TruncatedDraws:
    """`truncated_mvn` by lin-ess, for checked arguments."""
    refuse_too_many_draws("the number of draws", n_draws, lower.size, buffers=1)
    from pymc_skewgp._gaussian.samplers.lin_ess import lin_ess  # numba: half a second of import

    # Chains of equal length: the largest number up to the one asked for that divides the draws.
    n_chains = next(k for k in range(min(n_chains, n_draws), 0, -1) if n_draws % k == 0)
    start = sample_rectangle(cov, lower, upper, max(n_chains, 64), rng, goal="draws")
    chosen = systematic_resample(start.log_weights, n_chains, rng)
    dense = cov if isinstance(cov, DenseCovariance) else DenseCovariance(cov.dense())
    result = lin_ess(
        dense.chol,
        np.ascontiguousarray(start.u[:, chosen].T),
        lower,
        upper,
        n_draws=n_draws // n_chains,
        thin=thin,
        random_seed=rng,
    )
    draws = result.draws.reshape(n_draws, -1)
    return TruncatedDraws(draws, np.zeros(n_draws), None, "lin_ess", n_chains)
