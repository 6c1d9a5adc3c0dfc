r"""One block of rows with predictors F c, and its part of what all rows are asked for.

The coordinates c ~ N(0, I_r) are few. With sites :math:`\exp(\nu \eta - \tau \eta^2 / 2)` EP's
Gaussian of c has the precision :math:`I + F^\top T F`; a block keeps its own rows of F, its sites
and the last steps that these have taken, and returns sums of size r x r at most.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk, dtrmm

from pymc_skewgp._gaussian.blocks.block_sites import BlockSites, RowSites
from pymc_skewgp._gaussian.blocks.site_steps import SiteSteps, SiteSums, Tilts
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import SiteLogDensity
from pymc_skewgp._gaussian.proposals.modes import Target
from pymc_skewgp._gaussian.proposals.unseen import HERMITE_NODES, missing_of_functions
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Rows at a time of products with F, and predictors at a time of weights: they stay in the cache.
_ROWS, _PREDICTORS = 1024, 2**18
_ROWS_OF_TAILS = 2048
# Deviations that draws of a predictor reach, and a log probability that is as good as none.
_REACH, _NOTHING = 3.0, 1e-4


class FactorGradient(NamedTuple):
    """Derivatives of EP's log evidence, of a block's rows.

    Attributes
    ----------
    factor : ndarray, shape (n, r)
        In F.
    offset, noise : ndarray, shape (n,)
        In the predictors' offsets, and in the variance of noise added to the predictors. All
        three are of as many equal rows as a row stands for.
    cavity_mean, cavity_sd : ndarray, shape (n,)
        Of the predictors less their offsets, without the row's own site: what derivatives in
        other numbers of the sites are taken under.
    """

    factor: FloatArray
    offset: FloatArray
    noise: FloatArray
    cavity_mean: FloatArray
    cavity_sd: FloatArray


class RowBlock(SiteSteps):
    """Rows of predictors F c under sites, with EP's approximation of these.

    Parameters
    ----------
    factor : ndarray, shape (n, r)
        F, in C order.
    sites : BlockSites
    """

    pattern: Any = None  # of sparse rows

    def __init__(self, factor: FloatArray, sites: BlockSites) -> None:
        self.factor = np.ascontiguousarray(factor)
        self.sites = sites
        super().__init__(sites.size, sites.counts)
        self._mean = np.zeros(0)
        self._rough: RowBlock | None = None

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
        return self._sums_of(self.tau, self.nu)

    def n_rough(self, level: float) -> int:
        """See `SiteSteps`."""
        if not isinstance(self.sites, RowSites):
            return self.n_rows
        return int(np.count_nonzero(self._taken() > level))

    def set_apart(self, level: float) -> SiteSums:
        """See `SiteSteps`."""
        if not isinstance(self.sites, RowSites):
            return super().set_apart(level)
        rough = self._taken() > level
        left_out = rough | self._silent()
        rows = np.flatnonzero(rough)
        self._rough = RowBlock(self._factor_of(rows), self.sites.some(rows))
        return self._sums_of(np.where(left_out, 0.0, self.tau), np.where(left_out, 0.0, self.nu))

    def of_rough(self, method: str, *arguments: Any) -> Any:
        """See `SiteSteps`."""
        return getattr(self if self._rough is None else self._rough, method)(*arguments)

    def tilt(self, mean: FloatArray, spread: FloatArray) -> Tilts:
        """Compare the marginals of N(mean, spread spread') with the tilted ones: n r^2 operations.

        `spread` is upper triangular, the inverse of L' for the precision L L'.
        """
        self._mean = m = self.factor @ mean
        variance = self._variances(spread)
        step = self.step_towards(m, variance, self.sites)
        pull = self._counts * (self._new[1] - self.nu - (self._new[0] - self.tau) * m)
        return Tilts(step.gap, self.factor.T @ pull, step.log_scales, self.remember())

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

    @property
    def log_concave(self) -> bool:
        """See `SiteSteps`."""
        return self.sites.log_concave

    def target(self) -> Target:
        """See `SiteSteps`."""
        counts, sites, every = self._counts, self.sites, slice(None)

        def log_prob(eta: FloatArray) -> FloatArray:
            return counts * sites.log_prob(every, np.ascontiguousarray(eta))

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            first, second = sites.slopes(every, np.ascontiguousarray(eta))
            return counts * first, counts * second

        return Target(SiteLogDensity(log_prob, np.zeros(self.n_rows), self.factor), slopes)

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
            total += float(np.sum(self._some_counts(rows) * missing**2))
        return total

    def gradient(self, mean: FloatArray, spread: FloatArray) -> FactorGradient:
        r"""Of EP's log evidence at its fixed point, where it is stationary in the sites.

        .. math:: \partial_F = (\nu - \tau m) m_c^\top - \mathrm{diag}(\tau) F S
        """
        m = self.factor @ mean
        offset = self.nu - self.tau * m
        factor, variance = self._covariances(spread)
        factor *= -(self._counts * self.tau)[:, None]
        factor += (self._counts * offset)[:, None] * mean
        # The mass of a site under its cavity solves the heat equation, in the noise and the mean.
        noise = 0.5 * (offset**2 - self.tau * (1.0 - self.tau * variance))
        cavity_var = 1.0 / np.maximum(1.0 / variance - self.tau, 1e-10 / variance)
        cavity_mean = cavity_var * (m / variance - self.nu)
        offset, noise = self._counts * offset, self._counts * noise
        return FactorGradient(factor, offset, noise, cavity_mean, np.sqrt(cavity_var))

    def _sums_of(self, tau: FloatArray, nu: FloatArray) -> SiteSums:
        r = self.rank
        tau, nu = self._counts * tau, self._counts * nu
        gram = np.zeros((r, r), order="F")
        for rows in self._slices(_ROWS):
            half = self.factor[rows] * np.sqrt(tau[rows])[:, None]
            gram = dsyrk(1.0, half.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        lower = np.tril(gram)
        return SiteSums(lower + np.tril(lower, -1).T, self.factor.T @ nu)

    def _taken(self) -> FloatArray:
        """Share of its variance that each site takes, by the last `tilt`."""
        return np.asarray(self.tau * self._variance)

    def _silent(self) -> NDArray[np.bool_]:
        """Rows whose probability is 1 wherever draws are: a Gaussian site says less than that."""
        reach = _REACH * np.sqrt(self._variance)
        ends = np.stack([self._mean - reach, self._mean + reach])
        return np.asarray((self.sites.log_prob(slice(None), ends) > -_NOTHING).all(axis=0))

    def _variances(self, spread: FloatArray) -> FloatArray:
        variance = np.empty(self.n_rows)
        for rows in self._slices(_ROWS):
            white = dtrmm(1.0, spread, self.factor[rows].T, lower=0, trans_a=1)
            variance[rows] = np.einsum("ij,ij->j", white, white)
        return np.maximum(variance, 1e-300)

    def _covariances(self, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """F S with S the covariance of c, and the variances of F c."""
        white = self.factor @ spread
        variance = np.einsum("ij,ij->i", white, white)
        return white @ spread.T, np.maximum(variance, 1e-300)

    def _factor_of(self, rows: IntArray) -> FloatArray:
        return self.factor[rows]

    def _some_counts(self, rows: slice) -> FloatArray | float:
        return self._counts[rows] if isinstance(self._counts, np.ndarray) else self._counts

    def _tiles(self, n_draws: int) -> list[tuple[slice, slice]]:
        """Rows and draws at a time."""
        if self.sites.divisible:
            rows = self._slices(max(1, _PREDICTORS // max(n_draws, 1)))
            return [(some, slice(None)) for some in rows]
        size = max(1, _PREDICTORS // self.n_rows)
        return [(slice(None), slice(i, i + size)) for i in range(0, n_draws, size)]

    def _slices(self, size: int) -> list[slice]:
        return [slice(i, i + size) for i in range(0, self.n_rows, size)]
