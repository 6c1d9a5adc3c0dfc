"""Points of hyperparameters with importance weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    normalized_weights,
    pareto_k,
    relative_ess,
    replicate_estimate,
    systematic_resample,
)
from pymc_skewgp._learn.point import Pattern, Point
from pymc_skewgp._validation import FloatArray

# Of plain Monte Carlo's error: a dozen points a replicate save no more, and the spread of sixteen
# replicates is far too small by chance now and then.
_LEAST_SHARE = 0.6


@dataclass(frozen=True, eq=False)
class WeightedPoints:
    """Points, what the target is there, and their weights.

    Attributes
    ----------
    x : ndarray, shape (N, D)
    pattern : ndarray of int, shape (N,)
        Which of `patterns` each has.
    patterns : list of tuples
    log_target : ndarray, shape (N,)
        Log prior plus EP's log evidence, on the unconstrained scale.
    log_evidence : ndarray, shape (N,)
        By EP.
    log_weights : ndarray, shape (N,)
        Their mean estimates the integral of the target, where that is known.
    replicate : ndarray of int, shape (N,)
        Which of the independent randomisations each comes from.
    log_ratio : ndarray, shape (N,), optional
        Log of the target over what each point was drawn from alone, where that was known before:
        NaN for the points that do not count. Their mean has no bias, while weights by mixtures that
        are fitted to the same points are a little too small. Default the weights.
    """

    x: FloatArray
    pattern: IntArray
    patterns: Sequence[Pattern]
    log_target: FloatArray
    log_evidence: FloatArray
    log_weights: FloatArray
    replicate: IntArray
    log_ratio: FloatArray | None = None

    def point(self, i: int) -> Point:
        """One of them."""
        return Point(self.x[i], self.patterns[self.pattern[i]])

    @property
    def weights(self) -> FloatArray:
        """Normalised."""
        return normalized_weights(self.log_weights)

    def estimate(self) -> Estimate:
        """Log integral of the target, from the replicates, with relative ESS and Pareto k.

        Where no point has any weight nothing is known: an infinite error.
        """
        if not self.log_weights.max() > -np.inf:
            return Estimate(-np.inf, np.inf, 0.0, np.inf)
        ratio = self.log_weights if self.log_ratio is None else self.log_ratio
        counted = np.flatnonzero(~np.isnan(ratio))
        order = counted[np.argsort(self.replicate[counted], kind="stable")]
        found = replicate_estimate(ratio[order], int(self.replicate.max()) + 1)
        # Points where nothing can be computed have no weight, and are no part of a tail.
        tail = pareto_k(self.log_weights[self.log_weights > -np.inf])
        ess = relative_ess(self.log_weights)
        plain = float(np.sqrt(max(1.0 / ess - 1.0, 0.0) / counted.size))
        error = max(found.std_error, _LEAST_SHARE * plain)
        return found._replace(std_error=error, pareto_k=tail, relative_ess=ess)

    def resampled(self, count: int, rng: np.random.Generator) -> IntArray:
        """Indices of `count` of them with equal weights."""
        return systematic_resample(self.log_weights, count, rng)
