"""How far marginal distributions are from the exact ones, with Monte Carlo errors."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pymc_skewgp._diagnostics.marginals import DrawnMarginals, Marginals
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._validation import FloatArray

_GRID = 120
_REACH = 6.0  # standard deviations, of the wider one
_BLOCKS = 8
_MEAN_ABSOLUTE = float(np.sqrt(2.0 / np.pi))  # of a standard normal


class Distance(NamedTuple):
    """A mean over points of what is never negative.

    Attributes
    ----------
    value : float
    std_error : float
        Its Monte Carlo standard error.
    noise : float
        Its mean where there is nothing but Monte Carlo error: what as many effective draws of the
        exact posterior show. 0 without draws.
    """

    value: float
    std_error: float
    noise: float

    @property
    def is_noise(self) -> bool:
        """Whether Monte Carlo error alone explains it."""
        return self.value <= self.bound

    @property
    def bound(self) -> float:
        """What Monte Carlo error alone hardly exceeds: its mean and two standard errors."""
        return self.noise + 2.0 * self.std_error


def wasserstein(approximation: Marginals, exact: Marginals) -> Distance:
    r"""Mean 1-Wasserstein distance of marginals to the exact ones, in exact standard deviations.

    .. math:: W_1(x) = \int |F_a(z) - F(z)|\, dz \;/\; \mathrm{sd}(x)

    by the trapezoidal rule; 0 where f is known exactly beforehand. Draws of the exact posterior
    itself are not at distance 0 but on average at

    .. math:: \sqrt{2 / (\pi\, \mathrm{ESS})} \int \sqrt{F(z) (1 - F(z))}\, dz
        \;/\; \mathrm{sd}(x),

    which is the noise: a share of draws below z is nearly normal around F(z).
    """
    (ours, our_sd, _), (theirs, sd, _) = approximation.moments, exact.moments
    low = np.minimum(ours - _REACH * our_sd, theirs - _REACH * sd)
    high = np.maximum(ours + _REACH * our_sd, theirs + _REACH * sd)
    grid = low + np.linspace(0.0, 1.0, _GRID)[:, None] * (high - low)
    step = (high - low) / (_GRID - 1)

    def summary(marginals: Marginals) -> FloatArray:
        # With the deviation, whose own noise counts where draws are behind the exact marginals.
        return np.vstack([marginals.cdf_values(grid), marginals.moments.sd])

    def integral(a: FloatArray, b: FloatArray) -> FloatArray:
        area, unit = np.trapezoid(np.abs(a[:-1] - b[:-1]), axis=0) * step, b[-1]
        return np.where(unit > 0, area / np.where(unit > 0, unit, 1.0), 0.0)

    noise = 0.0
    if isinstance(approximation, DrawnMarginals):
        below = np.clip(exact.cdf_values(grid), 0.0, 1.0)  # round-off
        area = np.trapezoid(np.sqrt(below * (1.0 - below)), axis=0) * step
        relative = np.where(sd > 0, area / np.where(sd > 0, sd, 1.0), 0.0)
        noise = float((_MEAN_ABSOLUTE * relative / np.sqrt(approximation.ess)).mean())
    return _mean_distance(approximation, exact, summary, integral, noise)


def skewness_error(approximation: Marginals, exact: Marginals) -> Distance:
    """Mean absolute difference of the skewness of marginals to that of the exact ones."""
    noise = 0.0
    if isinstance(approximation, DrawnMarginals):
        noise = float(_MEAN_ABSOLUTE * approximation.moment_errors.skewness.mean())
    return _mean_distance(
        approximation, exact, lambda m: m.moments.skewness, lambda a, b: np.abs(a - b), noise
    )


def probability_error(found: Probability, exact: Probability) -> Distance:
    """Mean absolute difference of probabilities; as they share draws, errors are not averaged.

    NaN where there are none.
    """
    if not found.value.size:
        return Distance(np.nan, np.nan, np.nan)
    error = np.hypot(found.std_error, exact.std_error)
    noise = float(_MEAN_ABSOLUTE * found.std_error.mean())
    return Distance(float(np.abs(found.value - exact.value).mean()), float(error.mean()), noise)


def _mean_distance(
    approximation: Marginals,
    exact: Marginals,
    summary: Callable[[Marginals], FloatArray],
    measure: Callable[[FloatArray, FloatArray], FloatArray],
    noise: float,
) -> Distance:
    """Mean of `measure` over the points; the error is from the spread over parts of the draws.

    Parts of the draws behind the approximation, and of those behind the exact posterior, are taken
    one after the other. The error does not hold the bias that a distance between two clouds of
    draws has, which is `noise`.
    """
    ours, theirs = summary(approximation), summary(exact)
    variance = 0.0
    for means in (
        [measure(summary(part), theirs).mean() for part in parts(approximation)],
        [measure(ours, summary(part)).mean() for part in parts(exact)],
    ):
        if means:
            variance += float(np.var(means, ddof=1)) / len(means)
    return Distance(float(measure(ours, theirs).mean()), float(np.sqrt(variance)), noise)


def parts(marginals: Marginals) -> Iterator[Marginals]:
    """Marginals from parts of the draws that hardly depend on each other; none without draws."""
    if isinstance(marginals, DrawnMarginals):
        n_chains, n_draws, _ = marginals.draws.shape
        stretches = -(-_BLOCKS // n_chains)
        if n_draws >= 4 * stretches:
            for piece in np.array_split(marginals.draws, stretches, axis=1):
                for chain in piece:
                    yield DrawnMarginals(chain[None])
    elif isinstance(marginals, LatentMarginals) and marginals.weights.size >= 4 * _BLOCKS:
        for chosen in _blocks(marginals):
            weights = marginals.weights[chosen]
            yield LatentMarginals(
                marginals.means[:, chosen], marginals.variance, weights / weights.sum()
            )


def _blocks(marginals: LatentMarginals) -> list[IntArray]:
    """Of draws, those of one replicate together; of independent ones eight blocks."""
    if marginals.replicate is None:
        n = marginals.weights.size
        index = np.arange(n) * _BLOCKS // n
    else:
        index = np.unique(marginals.replicate, return_inverse=True)[1]
    blocks = [np.flatnonzero(index == i) for i in range(index.max() + 1)]
    # The last may have been cut off: few draws are far from everything.
    return [block for block in blocks if 2 * block.size >= blocks[0].size]
