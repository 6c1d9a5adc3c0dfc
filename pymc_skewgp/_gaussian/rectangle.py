"""Log probability and draws of N(0, cov) within a rectangle, for arguments that were checked.

What the layers above call. Limits are given for every row, infinities allowed; a number stands for
all rows.
"""

import numpy as np

from pymc_skewgp._errors import LowEffectiveSampleWarning, warn
from pymc_skewgp._gaussian.bivariate import bivariate_log_prob
from pymc_skewgp._gaussian.limits import row_limits
from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.policy import DEFAULT, SamplerSettings
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._gaussian.weights import Estimate, describe_weights, systematic_resample
from pymc_skewgp._memory import refuse_too_many_draws
from pymc_skewgp._validation import FloatArray, Seed, as_generator

_LEAST_RELATIVE_ESS = 0.1  # of draws: a warning is due below it


def log_prob_rectangle(
    cov: FloatArray,
    lower: FloatArray | float,
    upper: FloatArray | float,
    n_draws: int,
    rtol: float | None,
    random_seed: Seed,
    settings: SamplerSettings = DEFAULT,
) -> Estimate:
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
    low, high = row_limits(lower, upper, len(cov))
    bounded = np.isfinite(low) | np.isfinite(high)
    if not bounded.any():
        return Estimate(0.0, 0.0, 1.0, -np.inf)
    low, high, matrix = low[bounded], high[bounded], symmetric(cov[np.ix_(bounded, bounded)])
    exact = exact_log_prob(matrix, low, high)
    if exact is not None:
        return Estimate(exact, 0.0, 1.0, -np.inf)
    refuse_too_many_draws("n_draws", n_draws, low.size)
    sampler = RectangleSampler(DenseCovariance(matrix), low, high, settings)
    result = sampler.sample(n_draws, as_generator(random_seed), goal="probability", rtol=rtol)
    warn_of_error(result.log_prob, settings.largest_se if rtol is None else rtol)
    return result.log_prob


def log_orthant(limits: FloatArray, cov: FloatArray, n_draws: int, random_seed: Seed) -> Estimate:
    """Log probability that every row is below its limit."""
    return log_prob_rectangle(cov, -np.inf, limits, n_draws, None, random_seed)


def exact_log_prob(cov: FloatArray, lower: FloatArray, upper: FloatArray) -> float | None:
    """Log probability of a rectangle in one or two dimensions; None in more."""
    if lower.size == 1:
        sd = np.sqrt(cov[0, 0])
        return float(log_ndtr_interval(lower / sd, upper / sd)[0])
    if lower.size == 2:
        return bivariate_log_prob(lower, upper, cov)
    return None


def warn_of_error(estimate: Estimate, wanted: float) -> None:
    """Warn where an estimate fell short of what was asked."""
    if not estimate.std_error <= wanted or estimate.heavy_tailed:
        warn(
            f"the log probability has standard error {estimate.std_error:.2g} nats, "
            f"{wanted:.2g} wanted ({describe_weights(estimate)}): ask for more draws with n_draws.",
            LowEffectiveSampleWarning,
            stacklevel=4,
        )


def twisted_draws(
    cov: Covariance,
    lower: FloatArray | float,
    upper: FloatArray | float,
    n_draws: int,
    rng: np.random.Generator,
    rtol: float | None = None,
    settings: SamplerSettings = DEFAULT,
) -> TruncatedDraws:
    """Weighted draws by the twisted sampler."""
    return draws_by(RectangleSampler(cov, lower, upper, settings), n_draws, rng, rtol)


def draws_by(
    sampler: RectangleSampler, n_draws: int, rng: np.random.Generator, rtol: float | None = None
) -> TruncatedDraws:
    """The same by a sampler, which is fitted once for all calls."""
    refuse_too_many_draws("the number of draws", n_draws, sampler.size)
    result = sampler.sample(n_draws, rng, goal="draws", rtol=rtol)
    warn_of_few(result.log_prob, result.log_weights.size, sampler.settings.largest_se)
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
        replicate=result.replicate,
    )


def warn_of_few(estimate: Estimate, n_draws: int, largest_se: float) -> None:
    """Warn where draws are so unequal in weight that there are few of them."""
    few = not estimate.relative_ess >= _LEAST_RELATIVE_ESS
    if few or not estimate.std_error <= largest_se or estimate.heavy_tailed:
        warn(
            f"the effective sample size of {n_draws} draws is about "
            f"{estimate.relative_ess * n_draws:.0f} ({describe_weights(estimate)}; standard error "
            f"of the log probability {estimate.std_error:.2g} nats): ask for more draws, or lower "
            "the kernel's variance.",
            LowEffectiveSampleWarning,
            stacklevel=4,
        )


def lin_ess_draws_by(
    sampler: RectangleSampler,
    n_draws: int,
    rng: np.random.Generator,
    *,
    n_chains: int = 8,
    thin: int = 1,
) -> TruncatedDraws:
    """Draws by linear elliptical slice sampling: chains started at weighted draws, resampled."""
    refuse_too_many_draws("the number of draws", n_draws, sampler.size, buffers=1)
    from pymc_skewgp._gaussian.samplers.lin_ess import lin_ess  # numba: half a second of import

    # Chains of equal length: the largest number up to the one asked for that divides the draws.
    n_chains = next(k for k in range(min(n_chains, n_draws), 0, -1) if n_draws % k == 0)
    start = sampler.sample(max(n_chains, 64), rng, goal="draws")
    chosen = systematic_resample(start.log_weights, n_chains, rng)
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
