r"""One block of rows with predictors F c, and its part of what all rows are asked for.

The coordinates c ~ N(0, I_r) are few. With sites :math:`\exp(\nu \eta - \tau \eta^2 / 2)` EP's
Gaussian of c has the precision :math:`I + F^\top T F`; a block keeps its own rows of F, its sites
and the last steps that these have taken, and returns sums of size r x r at most.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk, dtrmm

from pymc_skewgp._gaussian.blocks.block_sites import BlockSites
from pymc_skewgp._gaussian.proposals.ep import SHRINKAGE
from pymc_skewgp._gaussian.proposals.unseen import HERMITE_NODES, missing_of_functions
from pymc_skewgp._validation import FloatArray

# Rows at a time of products with F, and predictors at a time of weights: they stay in the cache.
_ROWS, _PREDICTORS = 1024, 2**18
_LEAST_KEPT = 0.1  # see `fit_factors`
_HISTORY = 5
_ROWS_OF_TAILS = 2048


class Tilts(NamedTuple):
    """What a block says of a Gaussian of c before its sites move.

    Attributes
    ----------
    gap : float
        Sum over the rows of the distance between log variances, tilted and marginal.
    pull : ndarray, shape (r,)
        F'(new nu - nu - (new tau - tau) mean): where the mean of c is drawn to.
    log_scales : float
        Sum of the logs of the sites' scales.
    products : ndarray, shape (k, k + 1)
        Inner products of the last changes of the sites' steps, and of these with the last step.
    """

    gap: float
    pull: FloatArray
    log_scales: float
    products: FloatArray


class SiteSums(NamedTuple):
    """F'TF and F'nu of a block."""

    gram: FloatArray
    pull: FloatArray


class FactorGradient(NamedTuple):
    """Derivatives of EP's log evidence, of a block's rows.

    Attributes
    ----------
    factor : ndarray, shape (n, r)
        In F.
    offset, noise : ndarray, shape (n,)
        In the predictors' offsets, and in the variance of noise added to the predictors.
    cavity_mean, cavity_sd : ndarray, shape (n,)
        Of the predictors less their offsets, without the row's own site: what derivatives in
        other numbers of the sites are taken under.
    """

    factor: FloatArray
    offset: FloatArray
    noise: FloatArray
    cavity_mean: FloatArray
    cavity_sd: FloatArray


class RowBlock:
    """Rows of predictors F c under sites, with EP's approximation of these.

    Parameters
    ----------
    factor : ndarray, shape (n, r)
        F, in C order.
    sites : BlockSites
    """

    def __init__(self, factor: FloatArray, sites: BlockSites) -> None:
        self.factor = np.ascontiguousarray(factor)
        self.sites = sites
        self.tau, self.nu = np.zeros(sites.size), np.zeros(sites.size)
        self._mean = self._variance = np.zeros(0)
        self._new = np.zeros((2, 0))
        self._values: list[FloatArray] = []
        self._steps: list[FloatArray] = []

    @property
    def n_rows(self) -> int:
        """Number n of rows."""
        return self.sites.size

    @property
    def rank(self) -> int:
        """Number r of coordinates."""
        return self.factor.shape[1]

    def sums(self) -> SiteSums:
        """Of the sites as they are: n r^2 operations."""
        r = self.rank
        gram = np.zeros((r, r), order="F")
        for rows in self._slices(_ROWS):
            half = self.factor[rows] * np.sqrt(self.tau[rows])[:, None]
            gram = dsyrk(1.0, half.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        lower = np.tril(gram)
        return SiteSums(lower + np.tril(lower, -1).T, self.factor.T @ self.nu)

    def tilt(self, mean: FloatArray, spread: FloatArray) -> Tilts:
        """Compare the marginals of N(mean, spread spread') with the tilted ones: n r^2 operations.

        `spread` is upper triangular, the inverse of L' for the precision L L'.
        """
        self._mean = m = self.factor @ mean
        self._variance = variance = self._variances(spread)
        precision = np.maximum(1.0 / variance - self.tau, 1e-10 / variance)
        cavity_var = 1.0 / precision
        cavity_mean = cavity_var * (m / variance - self.nu)
        sd = np.sqrt(cavity_var)
        log_mass, shift, tilted_spread = self.sites.tilted(cavity_mean, sd)
        tilted_spread = np.maximum(tilted_spread, SHRINKAGE[0])
        taken = np.clip(1.0 - tilted_spread, *SHRINKAGE)
        kept = cavity_var * np.where(tilted_spread < 0.5, tilted_spread, 1.0 - taken)
        self._new = np.stack([taken / kept, (cavity_mean * taken + sd * shift) / kept])
        gap = float(np.abs(np.log(cavity_var * tilted_spread / variance)).sum())
        pull = self._new[1] - self.nu - (self._new[0] - self.tau) * m
        ratio = 1.0 + self.tau * cavity_var
        quadratic = cavity_mean**2 * self.tau - 2.0 * cavity_mean * self.nu
        quadratic -= cavity_var * self.nu**2
        log_scales = log_mass + 0.5 * np.log(ratio) + 0.5 * quadratic / ratio
        return Tilts(gap, self.factor.T @ pull, float(log_scales.sum()), self._remember())

    def move(self, shares: FloatArray | None, damping: float) -> SiteSums:
        """Take a step, where `shares` of the last changes say or else damped; see `AndersonMixing`.

        A site that would lose most of its precision takes the damped step.
        """
        old = np.stack([self.tau, self.nu])
        damped = (1.0 - damping) * old + damping * self._new
        if shares is not None:
            mixed = self._new.copy()
            for share, before, after in zip(shares, self._values, self._values[1:], strict=False):
                mixed -= share * (after - before)
            proper = mixed[0] >= _LEAST_KEPT * np.minimum(self.tau, self._new[0])
            damped = np.where(proper, mixed, damped)
        self.tau, self.nu = damped
        return self.sums()

    def forget(self) -> None:
        """Of the last steps."""
        self._values, self._steps = self._values[-1:], self._steps[-1:]

    def finish(self) -> None:
        """EP has converged: what only its steps needed is let go."""
        self._values, self._steps, self._new = [], [], np.zeros((2, 0))

    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """Sum over the rows of log p, for columns of coordinates (r, N): n r N operations."""
        total = np.zeros(coordinates.shape[1])
        for rows, draws in self._tiles(total.size):
            eta = self.factor[rows] @ coordinates[:, draws]
            self.sites.add_log_probs(rows, eta, total[draws])
        return total

    def pair_log_probs(self, centre: FloatArray, off: FloatArray) -> FloatArray:
        """The same of centre + off and centre - off, shape (2, N), by one product for both."""
        totals = np.zeros((2, off.shape[1]))
        middle = self.factor @ centre
        for rows, draws in self._tiles(off.shape[1]):
            eta = self.factor[rows] @ off[:, draws]
            self.sites.add_pair_log_probs(rows, middle[rows], eta, totals[:, draws])
        return totals

    def missing(self, n_draws: int) -> float:
        """Sum over the rows of squared shares of the evidence in tails that draws hardly meet."""
        total = 0.0
        sd = np.sqrt(self._variance)
        for rows in self._slices(_ROWS_OF_TAILS if self.sites.divisible else self.n_rows):
            eta = self._mean[rows] + sd[rows] * HERMITE_NODES[:, None]
            with np.errstate(over="ignore"):
                log_ratio = self.sites.log_prob(rows, eta)
            log_ratio -= (self.nu[rows] - 0.5 * self.tau[rows] * eta) * eta
            missing = missing_of_functions(log_ratio.T, n_draws)
            total += float(missing @ missing)
        return total

    def gradient(self, mean: FloatArray, spread: FloatArray) -> FactorGradient:
        r"""Of EP's log evidence at its fixed point, where it is stationary in the sites.

        .. math:: \partial_F = (\nu - \tau m) m_c^\top - \mathrm{diag}(\tau) F S
        """
        m = self.factor @ mean
        offset = self.nu - self.tau * m
        factor = self.factor @ spread
        variance = np.maximum(np.einsum("ij,ij->i", factor, factor), 1e-300)
        factor = factor @ spread.T
        factor *= -self.tau[:, None]
        factor += offset[:, None] * mean
        # The mass of a site under its cavity solves the heat equation, in the noise and the mean.
        noise = 0.5 * (offset**2 - self.tau * (1.0 - self.tau * variance))
        cavity_var = 1.0 / np.maximum(1.0 / variance - self.tau, 1e-10 / variance)
        cavity_mean = cavity_var * (m / variance - self.nu)
        return FactorGradient(factor, offset, noise, cavity_mean, np.sqrt(cavity_var))

    def _variances(self, spread: FloatArray) -> FloatArray:
        variance = np.empty(self.n_rows)
        for rows in self._slices(_ROWS):
            white = dtrmm(1.0, spread, self.factor[rows].T, lower=0, trans_a=1)
            variance[rows] = np.einsum("ij,ij->j", white, white)
        return np.maximum(variance, 1e-300)

    def _tiles(self, n_draws: int) -> list[tuple[slice, slice]]:
        """Rows and draws at a time."""
        if self.sites.divisible:
            rows = self._slices(max(1, _PREDICTORS // max(n_draws, 1)))
            return [(some, slice(None)) for some in rows]
        size = max(1, _PREDICTORS // self.n_rows)
        return [(slice(None), slice(i, i + size)) for i in range(0, n_draws, size)]

    def _slices(self, size: int) -> list[slice]:
        return [slice(i, i + size) for i in range(0, self.n_rows, size)]

    def _remember(self) -> FloatArray:
        """Keep this step; inner products of the changes of the last ones."""
        step = self._new - np.stack([self.tau, self.nu])
        self._values = [*self._values[-_HISTORY:], self._new]
        self._steps = [*self._steps[-_HISTORY:], step]
        scale = np.stack([self._variance, np.sqrt(self._variance)])
        pairs = zip(self._steps, self._steps[1:], strict=False)
        changes = [((after - before) * scale).ravel() for before, after in pairs]
        last = (step * scale).ravel()
        k = len(changes)
        products = np.empty((k, k + 1))
        for i, change in enumerate(changes):
            products[i, k] = change @ last
            for j in range(i + 1):
                products[i, j] = products[j, i] = change @ changes[j]
        return products
