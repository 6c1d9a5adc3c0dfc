r"""Blocks of groups of rows that share noise: their sites and their part of all sums.

A group has predictors :math:`\eta = F c` and rows :math:`u = \eta + e`, :math:`e \sim N(0, S)`.
With a site :math:`\exp(\nu u - \tau u^2 / 2)` for each row of u, that of eta is Gaussian too, of
precision :math:`T = (I + \mathrm{diag}(\tau) S)^{-1} \mathrm{diag}(\tau)`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.special import ndtr

from pymc_skewgp._gaussian.blocks.rows import RowSites, SiteSteps, SiteSums, Tilts
from pymc_skewgp._gaussian.compiled.row_sites import one_factor_log_probs
from pymc_skewgp._gaussian.compiled.rows import LEAST_CAVITY, ndtr_tables
from pymc_skewgp._gaussian.linalg import symmetric, times
from pymc_skewgp._gaussian.tabulated import HERMITE_NODES, missing_of_functions
from pymc_skewgp._gaussian.tilted import Tilted, cavity
from pymc_skewgp._validation import FloatArray

# Sites of groups of rows: noisy predictors between limits, whose noise the rows of a group share.
#
# A group has m rows :math:`u = \eta + e`, :math:`e \sim N(0, S)`, each within its limits.
# Expectation propagation has a site for each row of u. Weights need the log probability of the
# whole group given eta, an integral over what its noise has in common.

_ROUND_OFF = 1e-9  # of correlations
_LEAST_OWN = 1e-10  # share of its variance that a row's own noise is, at least


# Log probability of some groups given their predictors: (groups, N) of (groups, m, N).
GroupLogProbs = Callable[[slice, FloatArray], FloatArray]


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
        """Of some groups, shape (groups, N), for predictors of shape (groups, m, N)."""
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


# Predictors of groups of rows, linear in coordinates: as they are, or of several functions.

_AT_ONCE = 4096  # rows at a time of products with features


class DenseRows:
    """Rows as they are.

    Parameters
    ----------
    factor : ndarray, shape (n m, R)
        The rows of the first group, of the second, and so on.
    size : int
        Number m of rows of a group.
    """

    def __init__(self, factor: FloatArray, size: int) -> None:
        self._factor = np.ascontiguousarray(factor)
        self._groups = self._factor.reshape(-1, size, factor.shape[1])

    @property
    def rank(self) -> int:
        """Number R of coordinates."""
        return self._factor.shape[1]

    def rows(self) -> FloatArray:
        """All rows of F."""
        return self._factor

    def at(self, groups: slice, coordinates: FloatArray) -> FloatArray:
        """Of some groups, shape (groups, m, N), for columns of coordinates."""
        rows = self._groups[groups]
        found = rows.reshape(-1, self.rank) @ coordinates
        return np.asarray(found.reshape(*rows.shape[:2], -1))

    def covariances(self, spread: FloatArray) -> FloatArray:
        """Of each group, shape (n, m, m), for coordinates of covariance spread spread'."""
        n, m, r = self._groups.shape
        found = np.empty((n, m, m))
        for some in slices_of(n, _AT_ONCE // m):
            white = (self._groups[some].reshape(-1, r) @ spread).reshape(-1, m, r)
            found[some] = white @ white.swapaxes(1, 2)
        return found

    def gram(self, weight: FloatArray) -> FloatArray:
        """Sum over the groups of F_i' W_i F_i, for precisions W of shape (n, m, m)."""
        n, m, r = self._groups.shape
        found = np.zeros((r, r))
        for some in slices_of(n, _AT_ONCE // m):
            rows = self._groups[some]
            found += rows.reshape(-1, r).T @ (weight[some] @ rows).reshape(-1, r)
        return symmetric(found)

    def pull(self, weight: FloatArray) -> FloatArray:
        """Sum over the groups of F_i' w_i, for w of shape (n, m)."""
        return np.asarray(self._factor.T @ weight.ravel())

    def gradient(
        self, weight: FloatArray, precision: FloatArray, mean: FloatArray, spread: FloatArray
    ) -> FloatArray:
        """Of EP's log evidence in the rows, (n, m, R), from that in the offsets; see `RowBlock`.

        `precision`, of shape (n, m, m), is that of the sites of the predictors.
        """
        n, m, r = self._groups.shape
        found = np.empty((n, m, r))
        for some in slices_of(n, _AT_ONCE // m):
            moved = (precision[some] @ self._groups[some]).reshape(-1, r) @ spread
            found[some] = weight[some][:, :, None] * mean - (moved @ spread.T).reshape(-1, m, r)
        return found


class FunctionRows:
    """Each group's rows are combinations of L functions of one input, with r features each.

    The coordinates are those of the first function, of the second, and so on.

    Parameters
    ----------
    phi : ndarray, shape (n, r)
        Features at the input of each group.
    mixing : ndarray, shape (n, m, L)
    """

    def __init__(self, phi: FloatArray, mixing: FloatArray) -> None:
        self._phi, self._mixing = np.ascontiguousarray(phi), np.ascontiguousarray(mixing)

    @property
    def rank(self) -> int:
        """Number R of coordinates."""
        return self._phi.shape[1] * self._mixing.shape[2]

    def rows(self) -> FloatArray:
        """All rows of F."""
        wide = self._mixing[:, :, :, None] * self._phi[:, None, None, :]
        return np.asarray(wide.reshape(-1, self.rank))

    def at(self, groups: slice, coordinates: FloatArray) -> FloatArray:
        """Of some groups, shape (groups, m, N), for columns of coordinates."""
        own = coordinates.reshape(self._mixing.shape[2], self._phi.shape[1], -1)
        values = self._phi[groups] @ own  # (L, groups, N)
        return np.asarray(self._mixing[groups] @ values.swapaxes(0, 1))

    def covariances(self, spread: FloatArray) -> FloatArray:
        """Of each group, shape (n, m, m), for coordinates of covariance spread spread'."""
        found = self._of_functions(spread)
        return np.asarray(self._mixing @ found @ self._mixing.swapaxes(1, 2))

    def _of_functions(self, spread: FloatArray) -> FloatArray:
        """Covariances of the functions at each input, shape (n, L, L).

        By the rows of `spread`, which is upper triangular: so no block makes the covariance of all
        coordinates.
        """
        r, n_functions = self._phi.shape[1], self._mixing.shape[2]
        found = np.empty((self._phi.shape[0], n_functions, n_functions))
        rows = [spread[a * r : (a + 1) * r, a * r :] for a in range(n_functions)]
        for some in slices_of(found.shape[0], _AT_ONCE // n_functions):
            white = [self._phi[some] @ own for own in rows]
            for a in range(n_functions):
                for b in range(a + 1):
                    both = white[a], white[b][:, (a - b) * r :]
                    found[some, a, b] = found[some, b, a] = np.einsum("ij,ij->i", *both)
        return found

    def gram(self, weight: FloatArray) -> FloatArray:
        """Sum over the groups of F_i' W_i F_i, for precisions W of shape (n, m, m)."""
        r, n_functions = self._phi.shape[1], self._mixing.shape[2]
        between = self._mixing.swapaxes(1, 2) @ weight @ self._mixing
        found = np.zeros((n_functions, r, n_functions, r))
        for some in slices_of(between.shape[0], _AT_ONCE):
            phi = self._phi[some]
            for a in range(n_functions):
                half = phi * np.sqrt(np.maximum(between[some, a, a], 0.0))[:, None]
                found[a, :, a] += dsyrk(1.0, half.T, lower=1)
                for b in range(a):
                    found[a, :, b] += phi.T @ (between[some, a, b][:, None] * phi)
        for a in range(n_functions):
            found[a, :, a] += np.tril(found[a, :, a], -1).T
            for b in range(a):
                found[b, :, a] = found[a, :, b].T
        return found.reshape(self.rank, self.rank)

    def pull(self, weight: FloatArray) -> FloatArray:
        """Sum over the groups of F_i' w_i, for w of shape (n, m)."""
        of_functions = np.einsum("ij,ijk->ik", weight, self._mixing)
        return np.asarray((of_functions.T @ self._phi).ravel())

    def gradient(
        self, weight: FloatArray, precision: FloatArray, mean: FloatArray, spread: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """See `DenseRows`, in what the rows are made of: phi, (n, r), and the mixing, (n, m, L).

        As many operations as `covariances`.
        """
        mixing, (r, n_functions) = self._mixing, (self._phi.shape[1], self._mixing.shape[2])
        covariance = (spread @ spread.T).reshape(n_functions, r, n_functions, r)
        centre = mean.reshape(n_functions, -1)
        sites = precision @ mixing
        between = mixing.swapaxes(1, 2) @ sites
        in_phi = np.einsum("ij,ijk->ik", weight, mixing) @ centre
        for some in slices_of(in_phi.shape[0], _AT_ONCE):
            phi = self._phi[some]
            for a in range(n_functions):
                for b in range(a + 1):
                    both = covariance[a, :, b]
                    both = both if a == b else both + both.T
                    in_phi[some] -= between[some, a, b][:, None] * (phi @ both)
        in_mixing = weight[:, :, None] * (self._phi @ centre.T)[:, None]
        return in_phi, in_mixing - sites @ self._of_functions(spread)


type GroupPredictors = DenseRows | FunctionRows


def slices_of(n: int, size: int) -> list[slice]:
    size = max(size, 1)
    return [slice(i, i + size) for i in range(0, n, size)]


PREDICTORS = 2**18  # at a time, of weights: they stay in the cache


class OfPredictors(NamedTuple):
    """Sites of eta: precision T, shift h = (I + tau S)^-1 nu, and (I + tau S)^-1 itself."""

    precision: FloatArray
    shift: FloatArray
    left: FloatArray


class _Marginals(NamedTuple):
    """Means and variances of u, shape (n, m), and what the mean of u given eta = 0 is."""

    mean: FloatArray
    variance: FloatArray
    moved: FloatArray


class GroupGradient(NamedTuple):
    """Derivatives of EP's log evidence, of a block's groups.

    Attributes
    ----------
    offset : ndarray, shape (n, m)
        In the predictors' offsets.
    noise : ndarray, shape (n, m, m)
        In the covariance of the noise of each group.
    precision : ndarray, shape (n, m, m)
        Of the sites of the predictors, T, which derivatives in these are made of.
    cavity_mean, cavity_sd : ndarray, shape (n, m)
        Of u less its offset, without the row's own site.
    """

    offset: FloatArray
    noise: FloatArray
    precision: FloatArray
    cavity_mean: FloatArray
    cavity_sd: FloatArray


class GroupBlock(SiteSteps):
    """Groups of rows under sites, with EP's approximation of these.

    Parameters
    ----------
    predictors : GroupPredictors
    sites : GroupSites
    """

    def __init__(self, predictors: GroupPredictors, sites: Any) -> None:
        n, m = sites.shape
        super().__init__(n * m)
        self.predictors, self._sites = predictors, sites
        self._mean, self._cov = np.zeros((n, m)), np.zeros((n, m, m))

    @property
    def n_rows(self) -> int:
        """Number of groups."""
        return self._sites.shape[0]

    @property
    def rank(self) -> int:
        """Number of coordinates."""
        return self.predictors.rank

    def sums(self) -> SiteSums:
        """Of the sites as they are."""
        sites = self._of_predictors(self.tau, self.nu)
        return SiteSums(self.predictors.gram(sites.precision), self.predictors.pull(sites.shift))

    def tilt(self, mean: FloatArray, spread: FloatArray) -> Tilts:
        """See `RowBlock`: the marginals that are compared are those of u."""
        sites, nu = self._of_predictors(self.tau, self.nu), self.nu.reshape(self._sites.shape)
        self._mean = centre = self.predictors.at(slice(None), mean[:, None])[:, :, 0]
        self._cov = self.predictors.covariances(spread)
        of_u = self._marginals(sites)
        gap, log_scales = self.step_towards(of_u.mean.ravel(), of_u.variance.ravel(), self._sites)
        new = self._of_predictors(*self._new)
        pull = new.shift - sites.shift - times(new.precision - sites.precision, centre)
        log_det = np.linalg.slogdet(sites.left)[1].sum()
        constant = 0.5 * float(log_det) + 0.5 * float((nu * of_u.moved).sum())
        return Tilts(gap, self.predictors.pull(pull), log_scales + constant, self.remember())

    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """Sum over the groups of log p, for columns of coordinates (r, N)."""
        total = np.zeros(coordinates.shape[1])
        for groups, draws in self._tiles(total.size):
            eta = self.predictors.at(groups, coordinates[:, draws])
            total[draws] += self._sites.log_probs(groups, eta).sum(axis=0)
        return total

    def pair_log_probs(self, centre: FloatArray, off: FloatArray) -> FloatArray:
        """The same of centre + off and centre - off, shape (2, N), by one product for both."""
        totals = np.zeros((2, off.shape[1]))
        middle = self.predictors.at(slice(None), centre[:, None])
        for groups, draws in self._tiles(off.shape[1]):
            eta = self.predictors.at(groups, off[:, draws])
            totals[0, draws] += self._sites.log_probs(groups, middle[groups] + eta).sum(axis=0)
            totals[1, draws] += self._sites.log_probs(groups, middle[groups] - eta).sum(axis=0)
        return totals

    def missing(self, n_draws: int, but: int | None = None, of_prior: float = 0.0) -> float:
        """See `RowBlock`: along each predictor `but` one, the others of its group going with it.

        A share of draws, `of_prior`, are of the prior, c ~ N(0, I).
        """
        total, sites = 0.0, self._of_predictors(self.tau, self.nu)
        prior = np.linalg.norm(self.predictors.rows(), axis=1).reshape(self._mean.shape)
        for groups in self._slices(HERMITE_NODES.size):
            cov = self._cov[groups]
            for j in set(range(cov.shape[1])) - {but}:
                along = cov[:, :, j] / np.sqrt(np.maximum(cov[:, j, j], 1e-300))[:, None]
                eta = self._mean[groups][:, :, None] + along[:, :, None] * HERMITE_NODES
                log_ratio = self._sites.log_probs(groups, eta)
                shift = sites.shift[groups][:, :, None] - 0.5 * sites.precision[groups] @ eta
                log_ratio -= (shift * eta).sum(axis=1)
                out = (
                    np.sign(HERMITE_NODES) * eta[:, j] / np.maximum(prior[groups, j, None], 1e-300)
                )
                missing = missing_of_functions(log_ratio, n_draws, beyond=of_prior * ndtr(-out))
                total += float(missing @ missing)
        return total

    def gradient(self, mean: FloatArray, spread: FloatArray) -> GroupGradient:
        """See `RowBlock`; derivatives in the predictors are made by these."""
        shape = self._sites.shape
        sites = self._of_predictors(self.tau, self.nu)
        self._mean = self.predictors.at(slice(None), mean[:, None])[:, :, 0]
        self._cov = self.predictors.covariances(spread)
        of_u, precision = self._marginals(sites), sites.precision
        offset = sites.shift - times(precision, self._mean)
        noise = offset[:, :, None] * offset[:, None, :] + precision @ self._cov @ precision
        noise = 0.5 * (noise - precision)
        tau, nu = self.tau.reshape(shape), self.nu.reshape(shape)
        centre, left = cavity(of_u.mean, of_u.variance, tau, nu, LEAST_CAVITY / of_u.variance)
        return GroupGradient(offset, noise, precision, centre, np.sqrt(left))

    def _marginals(self, sites: OfPredictors) -> _Marginals:
        """Of u, from those of the predictors."""
        # u given eta and its sites, and u with eta averaged over.
        given = self._sites.noise @ sites.left
        gain = sites.left.swapaxes(1, 2)
        cov = gain @ self._cov @ sites.left + given
        moved = times(given, self.nu.reshape(self._sites.shape))
        variance = np.maximum(np.einsum("ijj->ij", cov), 1e-300)
        return _Marginals(times(gain, self._mean) + moved, variance, moved)

    def _of_predictors(self, tau: FloatArray, nu: FloatArray) -> OfPredictors:
        n, m = self._sites.shape
        tau, nu = tau.reshape(n, m), nu.reshape(n, m)
        left = tau[:, :, None] * self._sites.noise
        np.einsum("ijj->ij", left)[:] += 1.0
        left = np.linalg.inv(left)
        precision = left * tau[:, None, :]
        return OfPredictors(symmetric(precision), times(left, nu), left)

    def _tiles(self, n_draws: int) -> list[tuple[slice, slice]]:
        """Groups and draws at a time."""
        return [(some, slice(None)) for some in self._slices(n_draws)]

    def _slices(self, n_draws: int) -> list[slice]:
        n, m = self._sites.shape
        return slices_of(n, PREDICTORS // max(n_draws * m, 1))
