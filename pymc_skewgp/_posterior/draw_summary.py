"""Averages and quantiles of draws, chain by chain, with their Monte Carlo errors."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Parts of each chain whose averages tell the error of what is not kept for each draw.
_BATCHES = 16
FEW_DRAWS = 4  # of a chain, below which nothing tells of autocorrelation


def mean_error(values: FloatArray) -> FloatArray:
    """Standard error of the mean over (chain, draw), dependent draws seen as such."""
    count = values.shape[0] * values.shape[1]
    if count == 1:  # has no spread
        return np.full(values.shape[2:], np.inf)
    if values.shape[1] < FEW_DRAWS:
        return np.asarray(values.std(axis=(0, 1)) / np.sqrt(count))
    return _mcse(values, "mean")


def no_error(values: FloatArray) -> FloatArray:
    """Zeros in place of `mean_error`, which takes far longer than a mean."""
    return np.zeros(values.shape[2:])


def summary_of_draws(
    name: str,
    draws: NDArray[Any],
    probs: FloatArray,
    *,
    skewness: bool = False,
    error: Callable[[FloatArray], FloatArray] = mean_error,
) -> dict[str, FloatArray]:
    """Mean, standard deviation and quantiles of each entry, with errors ``_se``.

    Parameters
    ----------
    name : str
        What the names of all of them begin with.
    draws : ndarray, shape (chain, draw, ...)
    probs : ndarray, shape (n_probs,)
        Of the quantiles, which come first in the shape of ``{name}_quantile``.
    skewness : bool
        Whether it is wanted too.
    error : callable
        What gives the standard error of a mean over draws: `mean_error` or `no_error`.
    """
    x = draws.astype(np.float64)
    found = averages(f"{name}_mean", x, error)
    found |= deviation(name, np.zeros(x.shape), x, error)
    if skewness:
        mean, sd = found[f"{name}_mean"], found[f"{name}_sd"]
        z = np.divide(x - mean, sd, out=np.zeros(x.shape), where=sd > 0)
        third = (z**3).mean(axis=(0, 1))
        found[f"{name}_skewness"] = third
        # How one more draw changes it.
        influence = z**3 - third - 3.0 * z - 1.5 * third * (z**2 - 1.0)
        found[f"{name}_skewness_se"] = error(influence)
    if probs.size:
        # Weibull's rule: NumPy's default makes intervals of few draws too short.
        value = np.quantile(x, probs, axis=(0, 1), method="weibull")
        found[f"{name}_quantile"] = value
        errors = [_mcse(x, "quantile", p) for p in probs]
        found[f"{name}_quantile_se"] = np.stack(errors)
    return found


def highest_density(draws: NDArray[Any], prob: float) -> tuple[FloatArray, FloatArray]:
    """Ends of the shortest interval of each entry, shape (2, ...), and their standard errors.

    An end is off by the cube root of the number of draws, not by its square root: errors are those
    of parts of the chains, over the cube root of how many these are [1]_.

    References
    ----------
    .. [1] J. Kim & D. Pollard (1990), Cube root asymptotics, doi:10.1214/aos/1176347498.
    """
    from arviz_stats.base import array_stats  # a second of import that only draws need

    x = draws.astype(np.float64).reshape(*draws.shape[:2], -1)
    batch = batch_numbers(*x.shape[:2])
    each = [x[batch == b] for b in range(int(batch.max()) + 1)]
    ends = [array_stats.hdi(part, prob, axis=0) for part in each if len(part) > 1]
    value = array_stats.hdi(x.reshape(-1, x.shape[2]), prob, axis=0)
    error = np.std(ends, axis=0, ddof=1) / np.cbrt(len(ends))
    shape = 2, *draws.shape[2:]
    return value.T.reshape(shape), error.T.reshape(shape)


def averages(
    name: str, values: FloatArray, error: Callable[[FloatArray], FloatArray] = mean_error
) -> dict[str, FloatArray]:
    """The mean over draws, with its error."""
    return {name: values.mean(axis=(0, 1)), f"{name}_se": error(values)}


def deviation(
    name: str,
    sd: FloatArray,
    mean: FloatArray,
    error: Callable[[FloatArray], FloatArray] = mean_error,
) -> dict[str, FloatArray]:
    """Standard deviation of a mixture with these means and deviations, one component a draw."""
    with np.errstate(invalid="ignore", over="ignore"):
        # Equal draws differ from their mean by its round-off, which is no deviation.
        moves = np.ptp(mean, axis=(0, 1)) > 0
        square = sd**2 + np.where(moves, mean - mean.mean(axis=(0, 1)), 0.0) ** 2
        total = np.sqrt(square.mean(axis=(0, 1)))
        off = error(square) / np.where(total > 0, 2.0 * total, 1.0)
    return {f"{name}_sd": total, f"{name}_sd_se": off}


def _mcse(values: FloatArray, method: str, prob: float | None = None) -> FloatArray:
    from arviz_stats.base import array_stats  # a second of import that only draws need

    shape = values.shape[2:]
    flat = values.reshape(*values.shape[:2], -1)
    moves = np.ptp(flat, axis=(0, 1)) > 0  # what does not has no effective sample size
    found = np.zeros(flat.shape[2])
    if moves.any():
        options = {"chain_axis": 0, "draw_axis": 1, "method": method}
        if prob is not None:
            options["prob"] = float(prob)
        found[moves] = array_stats.mcse(flat[..., moves], **options)
    return found.reshape(shape)


def batch_numbers(n_chains: int, n_draws: int) -> IntArray:
    """Which of the parts of the chains each draw is in, shape (chain, draw)."""
    count = min(_BATCHES, n_draws)
    own = np.arange(n_draws) * count // n_draws
    return np.asarray(np.arange(n_chains)[:, None] * count + own)


def averages_by_batches(
    batch: IntArray, parts: Iterator[tuple[IntArray, Mapping[str, FloatArray]]]
) -> dict[str, FloatArray]:
    """Averages over draws of what is known for some of them together, with errors ``_se``.

    Parameters
    ----------
    batch : ndarray of int, shape (n_draws,)
    parts : iterator of (index, dict)
        Draws of one batch, and averages over them.
    """
    n_batches = int(batch.max()) + 1
    size = np.bincount(batch, minlength=n_batches)
    sums: dict[str, FloatArray] = {}
    for index, values in parts:
        for name, x in values.items():
            total = sums.setdefault(name, np.zeros((n_batches, *x.shape)))
            total[batch[index[0]]] += index.size * x
    found = {}
    for name, total in sums.items():
        mean = total.sum(axis=0) / size.sum()
        share = (size / size.sum()).reshape(-1, *(1,) * (total.ndim - 1))
        off = share * (total / size.reshape(share.shape) - mean)
        found[name] = mean
        found[f"{name}_se"] = np.sqrt((off**2).sum(axis=0) * n_batches / max(n_batches - 1, 1))
    return found
