"""Importance weights: effective sample size, tail, standard errors, and resampling."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._deprecation import warn_renamed
from pymc_skewgp._validation import FloatArray

IntArray = NDArray[np.intp]


# Pareto shape of the tail of the weights from which their statistics are unreliable (Vehtari et al.
# 2024), and relative ESS from which a heavy tail holds too few draws to matter.
UNRELIABLE_K, NEARLY_EQUAL = 0.7, 0.5
_LEAST_SHARE = 0.2  # of plain Monte Carlo's error: what quasi-Monte Carlo is believed to save
_ENOUGH_REPLICATES = 8
_ROUND_OFF = 2e-14  # relative, of a log probability summed from well-conditioned steps
_LARGE_ERROR = 0.5


class Estimate(NamedTuple):
    """A Monte Carlo estimate with what is known of its error.

    Attributes
    ----------
    value : float
        The estimate (for log probabilities: in nats).
    std_error : float
        Standard error of `value`, from independent randomisations; 0 for exact values and
        infinite when there was only one randomisation.
    relative_ess : float
        Effective sample size of the weights over the number of draws, in (0, 1].
    pareto_k : float
        Shape of the generalised Pareto tail of the weights (Vehtari et al. 2024,
        arXiv:1507.02646); -inf where the weights have no tail. From 0.7 on the standard error is
        itself unreliable, unless `relative_ess` is a half or more: a tail that is heavy in shape
        then holds too few draws to matter (`heavy_tailed`).
    """

    value: float
    std_error: float
    relative_ess: float
    pareto_k: float

    @property
    def heavy_tailed(self) -> bool:
        """Whether the tail of the weights makes the standard error unreliable.

        That is, where the Pareto shape is 0.7 or more and the relative ESS below a half.
        """
        return not (self.pareto_k < UNRELIABLE_K or self.relative_ess >= NEARLY_EQUAL)

    def __str__(self) -> str:
        if self.std_error == 0.0:
            return f"{self.value:.4f} (exact)"
        return f"{self.value:.4f} +- {self.std_error:.2g} ({describe_weights(self)})"

    @property
    def ess_fraction(self) -> float:
        """Old name of `relative_ess`."""
        warn_renamed("Estimate.ess_fraction", "relative_ess")
        return self.relative_ess


def describe_weights(estimate: Estimate) -> str:
    """Relative ESS in words, and the Pareto shape where the error may depend on it."""
    ess = f"relative ESS {estimate.relative_ess:.2f}"
    k = estimate.pareto_k
    if estimate.relative_ess >= NEARLY_EQUAL or k == -np.inf:
        return ess
    judged = "" if k < UNRELIABLE_K else ", and from 0.7 on the error is unreliable"
    return f"{ess}, Pareto k {k:.2f}{judged}"


def add_estimates(constant: float, plus: Estimate, minus: Estimate) -> Estimate:
    """Estimate of constant + plus - minus, for independent estimates."""
    return Estimate(
        float(constant + plus.value - minus.value),
        float(np.hypot(plus.std_error, minus.std_error)),
        min(plus.relative_ess, minus.relative_ess),
        max(plus.pareto_k, minus.pareto_k),
    )


def log_mean_exp(log_weights: FloatArray) -> float:
    """Log of the mean weight."""
    largest = log_weights.max()
    if not np.isfinite(largest):
        return float(largest)
    # SciPy's `logsumexp` takes ten times as long for some hundred weights.
    return float(largest + np.log(np.exp(log_weights - largest).mean()))


def log_sum_exp(logs: FloatArray, axis: int) -> FloatArray:
    """Log of sums along an axis, in a fifth of the time that SciPy's takes."""
    largest = logs.max(axis=axis, keepdims=True)
    largest[~np.isfinite(largest)] = 0.0
    with np.errstate(divide="ignore"):
        found: FloatArray = np.log(np.exp(logs - largest).sum(axis=axis))
    found += largest.squeeze(axis)
    return found


def scaled_weights(log_weights: FloatArray) -> FloatArray:
    """Weights over the largest of them."""
    return np.exp(log_weights - log_weights.max())


def mean_probability(p: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted means of probabilities, (..., S): no round-off of the weights' sum is above one."""
    found: FloatArray = np.minimum(p @ weights, 1.0)
    return found


def normalized_weights(log_weights: FloatArray) -> FloatArray:
    """Weights that sum to one."""
    weights = scaled_weights(log_weights)
    weights /= weights.sum()
    return weights


def relative_ess(log_weights: FloatArray) -> float:
    """Kish's effective sample size over the number of draws."""
    weights = scaled_weights(log_weights)
    return float(weights.sum() ** 2 / (weights @ weights) / weights.size)


def pareto_k(log_weights: FloatArray) -> float:
    """Pareto shape of the right tail of the weights; -inf where there is no tail.

    That is, where the largest weight is within a tenth of the mean one, or where fewer than 25
    weights differ. Copies of a draw, which resampling makes, count once.
    """
    if log_weights.max() - log_mean_exp(log_weights) < np.log(1.1):
        return -np.inf
    distinct = np.unique(log_weights)
    if distinct.size < 25:
        return -np.inf
    # Here and not at the top: a second of import that only sampling needs.
    from arviz_stats.base import array_stats

    # psislw asks for log likelihoods to be divided out: the negative log weights. Weights many
    # orders apart overflow in its search; what it then returns is not a number.
    with np.errstate(all="ignore"):
        shape = float(array_stats.psislw(distinct[-1] - distinct)[1])
    return np.inf if np.isnan(shape) else shape


def replicate_estimate(log_weights: FloatArray, n_replicates: int) -> Estimate:
    """Log of the mean weight, its standard error from `n_replicates` equal, independent blocks.

    The standard error is never less than a fifth of plain Monte Carlo's, because a part of the
    space that no point set reaches is seen by no replicate, nor less than round-off.
    """
    value = log_mean_exp(log_weights)
    blocks = log_weights.reshape(n_replicates, -1)
    means = log_sum_exp(blocks, 1) - np.log(blocks.shape[1])
    fraction = relative_ess(log_weights)
    plain = np.sqrt(max(1.0 / fraction - 1.0, 0.0) / log_weights.size)
    error = np.hypot(spread_of_replicates(means, value), _LEAST_SHARE * plain)
    error = np.hypot(error, _ROUND_OFF * abs(value))
    return Estimate(value, float(error), fraction, pareto_k(log_weights))


def spread_of_replicates(log_means: FloatArray, value: float) -> float:
    """Standard error of the log of an average of independent positive estimates."""
    if log_means.size < 2:
        return np.inf
    ratio = np.exp(log_means - value)
    error = float(ratio.std(ddof=1) / np.sqrt(ratio.size))
    # The error of a logarithm is that of the ratio only while it is small: where one replicate is
    # all of the mean, the ratio's never exceeds 1.
    return error if error < _LARGE_ERROR else max(error, float(log_means.std(ddof=1)))


def weighted_error(
    influence: FloatArray,
    weights: FloatArray,
    replicate: IntArray | None,
    least: float = _LEAST_SHARE,
    varying: float = 1.0,
) -> FloatArray:
    """Standard error of sum_j w_j influence_j, one for each row of `influence` (n, n_draws).

    Draws are independent of each other, or, with `replicate` given, only from one replicate to
    another: then it comes from the spread of the replicates' sums. As in `replicate_estimate` it is
    then no less than a share of independent draws' error: `least`, or, where weights vary,
    `varying` times the root of 1 minus their relative ESS, since evenly spaced points do not meet
    few large weights evenly. Of fewer than eight replicates, whose spread says little, it is no
    less than that error.
    """
    independent = np.sqrt(influence**2 @ weights**2)
    if replicate is None:
        return independent
    names, own = np.unique(replicate, return_inverse=True)
    of_replicate = np.zeros((weights.size, names.size))
    of_replicate[np.arange(weights.size), own] = weights
    sums = influence @ of_replicate
    spread = np.sqrt((sums**2).sum(axis=-1) * (names.size / max(names.size - 1, 1)))
    lost = max(1.0 - 1.0 / (weights.size * float(weights @ weights)), 0.0)
    enough = names.size >= _ENOUGH_REPLICATES
    share = max(least, varying * np.sqrt(lost)) if enough else 1.0
    found: FloatArray = np.maximum(spread, share * independent)
    return found


def systematic_resample(log_weights: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    """Indices of `n` equally weighted draws, in random order (Kitagawa 1996).

    Draw i appears floor or ceiling of n w_i times, w_i its normalised weight. Means under the
    resampled draws are unbiased for the weighted ones. Copies are few where the relative ESS is
    near 1.
    """
    cumulative = np.cumsum(scaled_weights(log_weights))
    ticks = (np.arange(n) + rng.random()) * (cumulative[-1] / n)
    chosen = np.searchsorted(cumulative, ticks, side="right")
    return rng.permutation(np.minimum(chosen, log_weights.size - 1))


def metropolis_resample(log_weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """Indices of a chain of independence Metropolis over the draws, started at a weighted pick.

    The proposal's draws in their order are the proposals; each is taken with probability
    min(1, w_new / w_old): a chain that leaves the target invariant. Its start is picked from the
    same draws, so it is exact only as their number grows, like resampling.
    """
    n = log_weights.size
    state = int(systematic_resample(log_weights, 1, rng)[0])
    chain = np.empty(n, dtype=np.intp)
    log_uniform = np.log(rng.random(n))
    for proposal in range(n):
        if log_uniform[proposal] < log_weights[proposal] - log_weights[state]:
            state = proposal
        chain[proposal] = state
    return chain


def chain_relative_ess(draws: FloatArray) -> float:
    """Smallest bulk effective sample size over the coordinates, over the number of draws.

    `draws` has shape (n_chains, n_draws, N); runs too short for an estimate give 1/n_draws.
    """
    n_chains, n_draws, _ = draws.shape
    if n_draws < 4:
        return 1.0 / n_draws
    from arviz_stats.base import array_stats  # a second of import that only sampling needs

    ess = array_stats.ess(draws, chain_axis=0, draw_axis=1)
    # Chains that alternate can beat independent draws; as a fraction that is 1.
    return float(min(np.min(ess) / (n_chains * n_draws), 1.0))
