"""The log probability of the intervals: rows one by one, or kinds of rows that repeat."""

from typing import Any

import numpy as np

from pymc_skewgp._gaussian.log_prob_gradient import (
    LogProbGradient,
    LogProbMethod,
    log_prob_and_gradient,
)
from pymc_skewgp._gaussian.proposals.policy import DEFAULT
from pymc_skewgp._gaussian.rectangle import log_prob_rectangle, warn_of_error
from pymc_skewgp._gaussian.repeated_log_prob import RepeatedRectangle, folded, repeated_log_prob
from pymc_skewgp._gaussian.row_factors import ALIKE, EQUAL, OpenRows, are_alike, squared_gaps_of
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._posterior.evidence_terms import Intervals
from pymc_skewgp._validation import Seed, as_generator

# Share of its variance below which the noise of a single row is left in the covariance of z.
_NUGGET = 1e-4


def repeated_rows_of(rows: Intervals) -> RepeatedRectangle | None:
    """The kinds of rows, where some of them stand for several."""
    if (rows.counts == 1).all() or not np.isfinite(rows.cov).all():
        return None
    return _kinds(rows)


def alike_rows_of(rows: Intervals, within: float = ALIKE) -> RepeatedRectangle | None:
    """The kinds of rows, where many rows with noise of their own are of nearly one predictor.

    Rows drawn one by one would share a tail that all draws miss. See `are_alike` for `within`: of
    predictors that are one whatever the hyperparameters, where what is climbed must not jump with
    them.
    """
    if not (rows.noise > 0.0).any() or not np.isfinite(rows.cov).all():
        return None
    found = _kinds(rows)
    own = np.flatnonzero(found.noise > 0.0)
    if not own.size:
        return None
    noise = found.noise[own]
    cov = rows.cov if own.size == rows.noise.size else rows.cov[np.ix_(own, own)]
    limits = OpenRows(found.lower[own], found.upper[own], cov.diagonal() - noise)
    alike = are_alike(rows.counts[own], noise, squared_gaps_of(cov, noise), within, limits)
    return found if alike else None


def _kinds(rows: Intervals) -> RepeatedRectangle:
    # A nugget is not what draws of z can be weighed by.
    nugget = (rows.counts == 1) & (rows.noise < _NUGGET * rows.cov.diagonal())
    noise = np.where(nugget, 0.0, rows.noise)
    return RepeatedRectangle(rows.cov, noise, rows.lower, rows.upper, rows.counts)


def single_rows(
    rows: Intervals,
) -> tuple[Intervals | RepeatedRectangle, IntArray | None]:
    """The rows one by one, and which kind each is of; None where none stands for several."""
    repeated = repeated_rows_of(rows)
    return (rows, None) if repeated is None else repeated.single()


def interval_log_prob(
    rows: Intervals,
    *,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
    random_seed: int = 0,
    compiled: bool = False,
) -> LogProbGradient:
    """Log probability with its gradient; options as of `log_prob_and_gradient`."""
    options: dict[str, Any] = {"method": method, "n_draws": n_draws, "random_seed": random_seed}
    repeated = repeated_rows_of(rows)
    alike = repeated if method == "ep" else alike_rows_of(rows, EQUAL)
    if alike is not None:
        return repeated_log_prob(alike, **options)
    options["compiled"] = compiled
    if repeated is None:
        return log_prob_and_gradient(rows.lower, rows.upper, rows.cov, **options)
    single, kind = repeated.single()
    found = log_prob_and_gradient(single.lower, single.upper, single.cov, **options)
    return folded(found, kind, rows.counts.size)


def interval_estimate(rows: Intervals, n_draws: int, random_seed: Seed) -> Estimate:
    """Log probability with its standard error, no gradient."""
    alike = alike_rows_of(rows)
    sampler = None if alike is None else alike.sampler()
    if sampler is not None and not (sampler.single and sampler.collapsed):
        rng = as_generator(random_seed)
        found = sampler.coordinates(n_draws, rng, goal="probability").log_prob
        warn_of_error(found, DEFAULT.largest_se)
        return found
    single, _ = single_rows(rows)
    return log_prob_rectangle(single.cov, single.lower, single.upper, n_draws, None, random_seed)
