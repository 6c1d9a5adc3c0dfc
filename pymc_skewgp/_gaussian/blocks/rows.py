r"""Blocks of rows with predictors F c, dense or sparse: sites, steps, sums over the rows.

The coordinates c ~ N(0, I_r) are few. With sites :math:`\exp(\nu \eta - \tau \eta^2 / 2)` EP's
Gaussian of c has the precision :math:`I + F^\top T F`; a block keeps its own rows of F, its sites
and the last steps that these have taken, and returns sums of size r x r at most.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.blas import dsyrk, dtrmm

from pymc_skewgp._gaussian.compiled.row_sites import (
    add_log_probs,
    log_probs,
    row_moments,
    row_slopes,
)
from pymc_skewgp._gaussian.compiled.rows import LEAST_CAVITY
from pymc_skewgp._gaussian.coordinate_gaussian import SiteLogDensity, SiteMarginals
from pymc_skewgp._gaussian.modes import Target
from pymc_skewgp._gaussian.sparse import FieldPattern
from pymc_skewgp._gaussian.tilted import (
    SiteFactors,
    Tilted,
    TiltedMoments,
    cavity,
    next_sites,
)
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Sites of one block of rows: what expectation propagation and weights ask of them.


class BlockSites(ABC):
    """Functions p(y_i | eta_i) of the predictors of n rows; these are less their offset.

    Attributes
    ----------
    counts : ndarray, shape (n,), or 1.0
        How many equal rows each row stands for, each with noise of its own.
    divisible : bool
        Whether some of the rows may be asked for without the others.
    factors : SiteFactors
        What `tilted` asks.
    """

    counts: FloatArray | float = 1.0
    divisible = True
    factors: SiteFactors

    @property
    @abstractmethod
    def size(self) -> int:
        """Number n of rows."""

    @property
    def log_concave(self) -> bool:
        """Whether all sites are, after `tilted`."""
        return self.factors.log_concave

    @abstractmethod
    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """Moments of N(mean_i, sd_i^2) times site i; see `Factors`."""

    @abstractmethod
    def log_prob(self, rows: slice, eta: FloatArray) -> FloatArray:
        """Log p of each of some rows, once, for predictors of shape (k, rows)."""

    @abstractmethod
    def slopes(self, rows: slice, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of `log_prob`."""

    @abstractmethod
    def some_log_prob(self, rows: IntArray, eta: FloatArray) -> FloatArray:
        """`log_prob` of rows by their numbers."""

    def add_log_probs(
        self, rows: slice, centre: FloatArray, off: FloatArray, sign: float, total: FloatArray
    ) -> None:
        """Add the sum over some rows of log p, as often as they count, to `total` (N,).

        For predictors centre_i + sign off_ij, of shape (rows, N).
        """
        with np.errstate(over="ignore"):
            total += self.log_prob(rows, centre + sign * off.T).sum(axis=1)


_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


class RowSites(BlockSites):
    """Points and intervals of eta + e, with noise e ~ N(0, variance) of each row's own.

    Parameters
    ----------
    lower, upper, value, variance : ndarray, shape (n,)
        Limits, or the value where it is known, else NaN, all less the predictor's offset; variance
        of the noise, positive unless no weights are asked for.
    counts : ndarray, shape (n,), optional
        See `BlockSites`; by default 1.
    """

    def __init__(
        self,
        lower: FloatArray,
        upper: FloatArray,
        value: FloatArray,
        variance: FloatArray,
        counts: FloatArray | None = None,
    ) -> None:
        repeats = np.ones(lower.size) if counts is None else counts
        self._rows = np.stack([lower, upper, value, variance, repeats])
        self.counts = 1.0 if counts is None else counts
        # Of points alone NumPy has all of it in a few passes: nothing is compiled.
        self._are_points = not np.isnan(value).any()

    @property
    def size(self) -> int:
        """See `BlockSites`."""
        return self._rows.shape[1]

    @property
    def log_concave(self) -> bool:
        """All are."""
        return True

    def with_noise(self, variance: FloatArray) -> Self:
        """Of predictors less noise of their own, of these variances."""
        found = copy(self)
        found._rows = self._rows.copy()
        found._rows[3] += variance
        return found

    def some(self, rows: IntArray) -> "RowSites":
        """Of some of the rows."""
        return RowSites(*self._rows[:, rows])

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `BlockSites`."""
        if self._are_points:
            noise, cavity = self._rows[3], sd**2
            total = cavity + noise
            off = self._rows[2] - mean
            mass = -0.5 * (off**2 / total + np.log(total)) - _LOG_SQRT_2PI
            return Tilted(mass, sd / total * off, noise / total, cavity / total)
        found = np.empty((4, mean.size))
        row_moments(self._rows, mean, sd, found)
        return Tilted(*found)

    def log_prob(self, rows: slice, eta: FloatArray) -> FloatArray:
        """See `BlockSites`."""
        if self._are_points:
            _, _, value, noise, _ = self._rows[:, rows]
            return np.asarray(-0.5 * ((value - eta) ** 2 / noise + np.log(noise)) - _LOG_SQRT_2PI)
        return log_probs(self._rows[:, rows], eta)

    def some_log_prob(self, rows: IntArray, eta: FloatArray) -> FloatArray:
        """See `BlockSites`."""
        return self.some(rows).log_prob(slice(None), eta)

    def slopes(self, rows: slice, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `BlockSites`."""
        if self._are_points:
            _, _, value, noise, _ = self._rows[:, rows]
            return (value - eta) / noise, np.tile(-1.0 / noise, (*eta.shape[:-1], 1))
        first, second = np.empty(eta.shape), np.empty(eta.shape)
        row_slopes(self._rows[:, rows], eta, first, second)
        return first, second

    def add_log_probs(
        self, rows: slice, centre: FloatArray, off: FloatArray, sign: float, total: FloatArray
    ) -> None:
        """See `BlockSites`."""
        if self._are_points:
            _, _, value, noise, repeats = self._rows[:, rows]
            z = (value - centre)[:, None] - sign * off
            total -= np.einsum("ij,ij,i->j", z, z, 0.5 * repeats / noise)
            total -= np.sum(repeats * (0.5 * np.log(noise) + _LOG_SQRT_2PI))
            return
        add_log_probs(self._rows[:, rows], centre, off, sign, total)


# Sites of a block of rows and the steps that expectation propagation takes with them.

_LEAST_KEPT = 0.1  # see `fit_factors`
_HISTORY = 5
_ROUND_OFF = 1e-12  # of the largest precision


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


class SiteSteps(ABC):
    r"""Sites :math:`\exp(\nu u - \tau u^2 / 2)` of n Gaussian values, with their last steps.

    Parameters
    ----------
    size : int
        Number n.
    counts : ndarray, shape (n,), or 1.0
        How many equal values each stands for, each with a site of its own: these are equal too.
    """

    def __init__(self, size: int, counts: FloatArray | float = 1.0) -> None:
        self._counts = counts
        self.tau, self.nu = np.zeros(size), np.zeros(size)
        self._variance = np.zeros(0)
        self._new = (np.zeros(0), np.zeros(0))
        self._values: list[FloatArray] = []
        self._steps: list[FloatArray] = []

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Of the block."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number r of coordinates."""

    @abstractmethod
    def sums(self) -> SiteSums:
        """Of the sites as they are."""

    @property
    def log_concave(self) -> bool:
        """Whether all factors are, after EP."""
        return True

    def bent(self) -> int:
        """1 where they are not, so that `Blocks.total` counts such blocks."""
        return int(not self.log_concave)

    def target(self) -> Target:
        """The factors as functions of predictors: here a Gaussian as their sites are."""
        gram, pull = self.sums()
        values, vectors = np.linalg.eigh(gram)
        kept = values > _ROUND_OFF * values[-1]
        factor = vectors[:, kept].T
        tau, nu = values[kept], factor @ pull

        def log_prob(eta: FloatArray) -> FloatArray:
            return (nu - 0.5 * tau * eta) * eta

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            return nu - tau * eta, np.broadcast_to(-tau, eta.shape)

        return Target(SiteLogDensity(log_prob, np.zeros(tau.size), factor), slopes)

    def n_rough(self, level: float) -> int:
        """Number of rows that `set_apart` would take: all, where they do not come apart."""
        return self.n_rows

    def set_apart(self, level: float) -> SiteSums:
        """Take the rows whose sites take more than this share of their variance, after EP.

        These answer to `of_rough`; the sums are of the sites of all others.
        """
        r = self.rank
        return SiteSums(np.zeros((r, r)), np.zeros(r))

    def of_rough(self, method: str, *arguments: Any) -> Any:
        """What a method says of the rows that are set apart."""
        return getattr(self, method)(*arguments)

    def step_towards(
        self, mean: FloatArray, variance: FloatArray, factors: TiltedMoments
    ) -> tuple[float, float]:
        """Find the next sites, which match the tilted moments, of values with these marginals.

        Distance of the tilted moments from the marginals, and the log of the sites' scales.
        """
        self._variance = variance
        new = next_sites(factors, mean, variance, self.tau, self.nu, LEAST_CAVITY / variance)
        self._new = new.tau, new.nu
        log_scales_of = new.log_scales(self.tau, self.nu)
        sums = (self._counts * x for x in (new.variance_gap, log_scales_of))
        gap, log_scales = (float(x.sum()) for x in sums)
        return gap, log_scales

    def move(self, shares: FloatArray | None, damping: float) -> SiteSums:
        """Take a step, where `shares` of the last changes say or else damped; see `AndersonMixing`.

        A site that would lose most of its precision takes the damped step.
        """
        old, new = np.concatenate([self.tau, self.nu]), np.concatenate(self._new)
        damped = (1.0 - damping) * old + damping * new
        if shares is not None:
            mixed = new.copy()
            for share, before, after in zip(shares, self._values, self._values[1:], strict=False):
                mixed -= share * (after - before)
            damped = np.where(self._proper(mixed[: self.tau.size]), mixed, damped)
        return self._moved_to(damped)

    def _proper(self, tau: FloatArray) -> NDArray[np.bool_]:
        """Numbers, those of tau and of nu, that may take a step of which the first are `tau`."""
        return np.tile(tau >= _LEAST_KEPT * np.minimum(self.tau, self._new[0]), 2)

    def _moved_to(self, numbers: FloatArray) -> SiteSums:
        self.tau, self.nu = np.split(numbers, [self.tau.size])
        return self.sums()

    def back(self, damping: float) -> SiteSums:
        """Take a damped step in place of the last one, and forget those before it."""
        new, step = self._values[-2], self._steps[-2]
        self._values, self._steps = [new], [step]
        return self._moved_to(new - (1.0 - damping) * step)

    def forget(self) -> None:
        """Of the last steps."""
        self._values, self._steps = self._values[-1:], self._steps[-1:]

    def finish(self) -> None:
        """EP has converged: what only its steps needed is let go."""
        self._values, self._steps, self._new = [], [], (np.zeros(0), np.zeros(0))

    def remember(self) -> FloatArray:
        """Keep this step; inner products of the changes of the last ones."""
        new = np.concatenate(self._new)
        step = new - np.concatenate([self.tau, self.nu])
        self._values = [*self._values[-_HISTORY:], new]
        self._steps = [*self._steps[-_HISTORY:], step]
        scale = np.concatenate(self._scales())
        pairs = zip(self._steps, self._steps[1:], strict=False)
        changes = [(after - before) * scale for before, after in pairs]
        last = step * scale
        k = len(changes)
        products = np.empty((k, k + 1))
        for i, change in enumerate(changes):
            products[i, k] = change @ last
            for j in range(i + 1):
                products[i, j] = products[j, i] = change @ changes[j]
        return products

    def _scales(self) -> tuple[FloatArray, FloatArray]:
        """In what tau and nu are measured."""
        root = np.sqrt(self._counts)
        return self._variance * root, np.sqrt(self._variance) * root


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
        self.factor = factor if sparse.issparse(factor) else np.ascontiguousarray(factor)
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
        self.place(mean, spread)
        m = self._mean
        gap, log_scales = self.step_towards(m, self._variance, self.sites)
        pull = self._counts * (self._new[1] - self.nu - (self._new[0] - self.tau) * m)
        return Tilts(gap, self.factor.T @ pull, log_scales, self.remember())

    def place(self, mean: FloatArray, spread: FloatArray) -> None:
        """Find the marginals of N(mean, spread spread')."""
        self._mean, self._variance = self.factor @ mean, self._variances(spread)

    @property
    def marginals(self) -> SiteMarginals:
        """Of the predictors, by the last `tilt` or `place`."""
        return SiteMarginals(self._mean, self._variance, self.tau, self.nu)

    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """Sum over the rows of log p, for columns of coordinates (r, N): n r N operations."""
        return self._log_probs(np.zeros(self.n_rows), coordinates, (1.0,))[0]

    def pair_log_probs(self, centre: FloatArray, off: FloatArray) -> FloatArray:
        """The same of centre + off and centre - off, shape (2, N), by one product for both."""
        return self._log_probs(self.factor @ centre, off, (1.0, -1.0))

    def _log_probs(
        self, middle: FloatArray, off: FloatArray, signs: tuple[float, ...]
    ) -> FloatArray:
        totals = np.zeros((len(signs), off.shape[1]))
        for rows, draws in self._tiles(off.shape[1]):
            eta = self.factor[rows] @ off[:, draws]
            for sign, total in zip(signs, totals, strict=True):
                self.sites.add_log_probs(rows, middle[rows], eta, sign, total[draws])
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
        for rows in self._slices(_ROWS_OF_TAILS if self.sites.divisible else self.n_rows):
            own = SiteMarginals(*(x[rows] for x in self.marginals))
            missing = own.missing(partial(self.sites.log_prob, rows), n_draws)
            total += float(np.sum(self._some_counts(rows) * missing**2))
        return total

    def gradient(self, mean: FloatArray, spread: FloatArray) -> FactorGradient:
        r"""Of EP's log evidence at its fixed point, where it is stationary in the sites.

        .. math:: \partial_F = (\nu - \tau m) m_c^\top - \mathrm{diag}(\tau) F S
        """
        m = self.factor @ mean
        offset = self.nu - self.tau * m
        factor, variance = self._covariances(spread)
        factor = self._in_factor(-self._counts * self.tau, factor, self._counts * offset, mean)
        # The mass of a site under its cavity solves the heat equation, in the noise and the mean.
        noise = 0.5 * (offset**2 - self.tau * (1.0 - self.tau * variance))
        centre, left = cavity(m, variance, self.tau, self.nu, LEAST_CAVITY / variance)
        offset, noise = self._counts * offset, self._counts * noise
        return FactorGradient(factor, offset, noise, centre, np.sqrt(left))

    def _in_factor(
        self, tau: FloatArray, covariance: FloatArray, pull: FloatArray, mean: FloatArray
    ) -> FloatArray:
        covariance *= tau[:, None]
        covariance += pull[:, None] * mean
        return covariance

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

    def _variances(self, spread: Any) -> FloatArray:
        variance = np.empty(self.n_rows)
        for rows in self._slices(_ROWS):
            white = dtrmm(1.0, spread, self.factor[rows].T, lower=0, trans_a=1)
            variance[rows] = np.einsum("ij,ij->j", white, white)
        return np.maximum(variance, 1e-300)

    def _covariances(self, spread: Any) -> tuple[FloatArray, FloatArray]:
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


# Rows of few non-zero loadings each, as of effects: what a block does in n r^2 takes n k^2.

# Share of the largest terms of a sum below which too few of its digits are left.
_CANCELLED = 1e-8
# Operations of dense rows in the time of one of sparse rows, and those not worth the trouble.
_SLOWER, _FEW = 10, 10**5


class Pattern(NamedTuple):
    """Where entries are that are not zero, and where products of two of a row are.

    Attributes
    ----------
    rows, columns : ndarray of int, shape (m,)
    starts : ndarray of int, shape (n + 1,)
        Of each row's.
    shape : tuple of int
    place : ndarray of int, shape (m,)
        In the row.
    products : ndarray of int, shape (n, k (k + 1) / 2)
        Places in the lower triangle, raveled; of entries that a row lacks the first.
    """

    rows: IntArray
    columns: IntArray
    starts: IntArray
    shape: tuple[int, ...]
    place: IntArray
    products: IntArray

    @classmethod
    def of(cls, factor: FloatArray, k: int) -> "Pattern":
        """Of rows of at most k entries."""
        n, r = factor.shape
        rows, columns = np.nonzero(factor)
        starts = np.searchsorted(rows, np.arange(n + 1))
        place = np.arange(rows.size) - starts[rows]
        index = np.zeros((n, k), dtype=np.intp)
        index[rows, place] = columns
        i, j = np.tril_indices(k)
        first, second = index[:, i], index[:, j]
        products = np.maximum(first, second) * r + np.minimum(first, second)
        return cls(rows, columns, starts, factor.shape, place, products)

    def is_of(self, factor: FloatArray) -> bool:
        """Whether these are the entries that are not zero."""
        if factor.shape != self.shape:
            return False
        own = factor[self.rows, self.columns]
        return np.count_nonzero(factor) == own.size and bool(own.all())


def row_block(
    factor: FloatArray, sites: BlockSites, pattern: Pattern | None = None
) -> "RowBlock | SparseBlock":
    """A block, of sparse rows where that takes less time; maybe of a pattern known before."""
    n, r = factor.shape
    if n * r * r < _FEW:
        return RowBlock(factor, sites)
    if pattern is None or not pattern.is_of(factor):
        k = int(np.count_nonzero(factor, axis=1).max())
        if _SLOWER * k * (k + 1) > r * r:
            return RowBlock(factor, sites)
        pattern = Pattern.of(factor, k)
    return SparseBlock(factor, pattern, sites)


class SparseBlock(RowBlock):
    """Rows of few entries that are not zero.

    Parameters
    ----------
    factor : ndarray, shape (n, r)
    pattern : Pattern
        Of these.
    sites : BlockSites
    """

    factor: Any

    def __init__(self, factor: FloatArray, pattern: Pattern, sites: BlockSites) -> None:
        super().__init__(factor, sites)
        self.pattern = pattern
        n, r = factor.shape
        known = factor[pattern.rows, pattern.columns]
        self.factor = sparse.csr_array((known, pattern.columns, pattern.starts), shape=(n, r))
        n_products = pattern.products.shape[1]
        i, j = np.tril_indices(int(np.sqrt(2 * n_products)))
        value = np.zeros((n, i[-1] + 1))
        value[pattern.rows, pattern.place] = known
        self._products = sparse.csr_array(
            (
                (value[:, i] * value[:, j]).ravel(),
                pattern.products.ravel(),
                np.arange(n + 1) * n_products,
            ),
            shape=(n, r * r),
        )

    def _sums_of(self, tau: FloatArray, nu: FloatArray) -> SiteSums:
        r = self.rank
        lower = (self._products.T @ (self._counts * tau)).reshape(r, r)
        return SiteSums(lower + np.tril(lower, -1).T, self.factor.T @ (self._counts * nu))

    def _variances(self, spread: Any) -> FloatArray:
        if self.factor.nnz > self.rank**2:
            return self._of_covariance(spread, spread @ spread.T)
        white = self.factor @ spread
        return np.maximum(np.einsum("ij,ij->i", white, white), 1e-300)

    def _covariances(self, spread: Any) -> tuple[FloatArray, FloatArray]:
        cov = spread @ spread.T
        return self.factor @ cov, self._of_covariance(spread, cov)

    def _of_covariance(self, spread: FloatArray, cov: FloatArray) -> FloatArray:
        """Sums of products, or of squares where nothing would be left of those."""
        twice = 2.0 * cov
        twice[np.diag_indices_from(twice)] *= 0.5
        variance: FloatArray = self._products @ twice.ravel()
        largest = abs(self.factor) @ np.sqrt(cov.diagonal())
        if (variance < _CANCELLED * largest**2).any():
            white = self.factor @ spread
            variance = np.einsum("ij,ij->i", white, white)
        return np.maximum(variance, 1e-300)

    def _factor_of(self, rows: IntArray) -> FloatArray:
        found: FloatArray = self.factor[rows].toarray()
        return found


class FieldBlock(RowBlock):
    """Rows of a field, whose precision is sparse.

    Parameters
    ----------
    values : ndarray, shape (m,)
        Entries of the design of all rows.
    pattern : FieldPattern
        Where these are.
    rows : slice
        Those of the block.
    sites : BlockSites
    """

    factor: Any

    def __init__(
        self, values: FloatArray, pattern: FieldPattern, rows: slice, sites: BlockSites
    ) -> None:
        super().__init__(pattern.design(values)[rows], sites)
        self.pattern, self.design, self.rows = pattern, values, rows
        self._row_of = np.repeat(np.arange(self.n_rows), np.diff(self.factor.indptr))

    def n_rough(self, level: float) -> int:
        """All: none is set apart."""
        return self.n_rows

    def log_over_sites(self, rows: IntArray, factor: Any, off: FloatArray) -> FloatArray:
        """Sum over some rows of log p less the sites, at draws (d, N) less their mean.

        `factor` is that of the block, with columns in the order of the draws.
        """
        eta = factor[rows] @ off + self._mean[rows, None]
        with np.errstate(over="ignore"):
            found = self.sites.some_log_prob(rows, eta.T)
        found -= (self.nu[rows] - 0.5 * self.tau[rows] * eta.T) * eta.T
        return np.asarray((found * np.broadcast_to(self._counts, self.n_rows)[rows]).sum(axis=1))

    def pair_log_over_sites(self, off: FloatArray) -> FloatArray:
        """The same over all rows at the mean plus and minus `off`, shape (2, N)."""
        tau, nu, mean = self._counts * self.tau, self._counts * self.nu, self._mean
        eta = self.factor @ off
        odd = (nu - tau * mean) @ eta
        even = 0.5 * (tau @ np.square(eta)) - (nu - 0.5 * tau * mean) @ mean
        return np.asarray(self._log_probs(mean, off, (1.0, -1.0)) + even - [odd, -odd])

    def _sums_of(self, tau: FloatArray, nu: FloatArray) -> SiteSums:
        every = np.zeros(self.pattern.shape[0])
        every[self.rows] = self._counts * tau
        return SiteSums(self.pattern.gram(self.design, every), self.factor.T @ (self._counts * nu))

    def _variances(self, spread: Any) -> FloatArray:
        return self._covariances(spread)[1]

    def _covariances(self, spread: Any) -> tuple[FloatArray, FloatArray]:
        """Of entries of the design alone."""
        A = self.factor
        found = spread.covariances(A.indices, A.indptr, A.data)
        variance = np.bincount(self._row_of, A.data * found, minlength=self.n_rows)
        return found, np.maximum(variance, 1e-300)

    def _in_factor(
        self, tau: FloatArray, covariance: FloatArray, pull: FloatArray, mean: FloatArray
    ) -> FloatArray:
        covariance *= tau[self._row_of]
        covariance += pull[self._row_of] * mean[self.factor.indices]
        return covariance


def field_blocks(
    values: FloatArray, pattern: FieldPattern, sites: Iterable[BlockSites]
) -> list[FieldBlock]:
    """Of sites one after the other."""
    stop = 0
    return [FieldBlock(values, pattern, slice(stop, stop := stop + x.size), x) for x in sites]
