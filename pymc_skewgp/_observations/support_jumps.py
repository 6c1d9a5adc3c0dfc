"""Whether a log probability jumps to minus infinity: where y is possible depends on the predictor.

What such a place adds to the derivative of a mean over predictors no draw shows.
"""

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._observations.sites import LogProb
from pymc_skewgp._validation import FloatArray

_NODES = 65
_HALVINGS = 50
# Nats below the largest value from which on what jumps is negligible; so does a density that
# falls to 0 without a jump, which halving follows down to 1e-15 of the range.
_LEAST = 30.0


def support_jumps(log_prob: LogProb, eta: FloatArray) -> NDArray[np.bool_]:
    """Of m sites, which have one that jumps so within the range of predictors, shape (S, m)."""
    nodes = eta.min(axis=0) + np.ptp(eta, axis=0) * np.linspace(0.0, 1.0, _NODES)[:, None]
    values = log_prob(nodes)
    possible = values > -np.inf
    jumps = np.zeros(eta.shape[1], dtype=bool)
    if possible.all():
        return jumps
    largest = values.max(axis=0)
    # From possible to impossible on the right, then on the left.
    for step in (1, -1):
        inside, there = possible[::step], nodes[::step]
        edges = inside[:-1] & ~inside[1:]
        cell = edges.argmax(axis=0)[None]
        known = np.take_along_axis(there, cell, axis=0)[0]
        beyond = np.take_along_axis(there, cell + 1, axis=0)[0]
        for _ in range(_HALVINGS):
            middle = 0.5 * (known + beyond)
            is_in = log_prob(middle) > -np.inf
            known, beyond = np.where(is_in, middle, known), np.where(is_in, beyond, middle)
        jumps |= edges.any(axis=0) & (log_prob(known) > largest - _LEAST)
    return jumps
