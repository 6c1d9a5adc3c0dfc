r"""Sites of groups of rows: noisy predictors between limits, whose noise the rows of a group share.

A group has m rows :math:`u = \eta + e`, :math:`e \sim N(0, S)`, each within its limits. Expectation
propagation has a site for each row of u. Weights need the log probability of the whole group given
eta, an integral over what its noise has in common.
"""

from typing import Protocol

import numpy as np

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.compiled.log_ndtr_table import ndtr_tables
from pymc_skewgp._gaussian.compiled.one_factor import one_factor_log_probs
from pymc_skewgp._gaussian.tilted import Tilted
from pymc_skewgp._validation import FloatArray

_ROUND_OFF = 1e-9  # of correlations
_LEAST_OWN = 1e-10  # share of its variance that a row's own noise is, at least


class GroupLogProbs(Protocol):
    """Log probability of groups given their predictors."""

    def __call__(self, groups: slice, eta: FloatArray) -> FloatArray:
        """Of some groups, shape (groups, N), for predictors of shape (groups, m, N)."""
        ...


class GroupSites:
    """Groups of m intervals each.

    Parameters
    ----------
    lower, upper : ndarray, shape (n, m)
        Limits, less the predictor's offset.
    noise : ndarray, shape (n, m, m)
        Covariance of the noise of each group.
    log_probs : GroupLogProbs
    """

    def __init__(
        self, lower: FloatArray, upper: FloatArray, noise: FloatArray, log_probs: GroupLogProbs
    ) -> None:
        self.noise, self.log_probs = noise, log_probs
        nowhere = np.full(lower.size, np.nan)
        self._limits = RowSites(lower.ravel(), upper.ravel(), nowhere, np.zeros(lower.size))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers n of groups, and m of rows of each."""
        return self.noise.shape[0], self.noise.shape[1]

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """Moments of N(mean, sd^2) of each row of u within its limits; see `Factors`."""
        return self._limits.tilted(mean, sd)


class OneFactor:
    """Log probabilities of groups whose noise is a factor times one normal, and noise of rows.

    Parameters
    ----------
    lower, upper : ndarray, shape (n, m)
        Limits, of which each row has one.
    loading, own : ndarray, shape (n, m)
        Factor, and standard deviation of each row's own noise.
    """

    def __init__(
        self, lower: FloatArray, upper: FloatArray, loading: FloatArray, own: FloatArray
    ) -> None:
        above = np.isposinf(upper)
        side = np.where(above, 1.0, -1.0) / own
        limit = np.where(above, lower, upper)
        self._rows = np.stack([-side * limit, side, side * loading])

    def __call__(self, groups: slice, eta: FloatArray) -> FloatArray:
        """See `GroupLogProbs`."""
        found = np.empty((eta.shape[0], eta.shape[2]))
        one_factor_log_probs(self._rows[:, groups], eta, ndtr_tables(), found)
        return found


def one_factor(noise: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Loadings b and own deviations s with S = b b' + diag(s^2), of shape (n, m) each.

    None where some S, of shape (n, m, m), has no such form. For two rows all have.
    """
    m = noise.shape[1]
    variance = np.einsum("ijj->ij", noise)
    sd = np.sqrt(variance)
    correlation = noise / sd[:, :, None] / sd[:, None, :]
    if m == 1:
        return np.zeros_like(sd), sd
    if m == 2:
        size = np.sqrt(np.abs(correlation[:, 0, 1]))
        loading = np.stack([size, np.sign(correlation[:, 0, 1]) * size], axis=1)
    else:
        index = np.arange(m)
        other, third = (index + 1) % m, (index + 2) % m
        between = correlation[:, other, third]
        if (np.abs(between) < _ROUND_OFF).any():
            return None
        squares = correlation[:, index, other] * correlation[:, index, third] / between
        if (squares < 0.0).any():
            return None
        loading = np.sqrt(squares) * np.sign(np.where(index == 0, 1.0, correlation[:, 0]))
    left = correlation - loading[:, :, None] * loading[:, None, :]
    own = np.einsum("ijj->ij", left).copy()
    np.einsum("ijj->ij", left)[:] = 0.0
    if (np.abs(left) > _ROUND_OFF).any() or (own < _LEAST_OWN).any():
        return None
    return loading * sd, np.sqrt(own) * sd
