r"""One block of groups of rows that share noise, and its part of what all rows are asked for.

A group has predictors :math:`\eta = F c` and rows :math:`u = \eta + e`, :math:`e \sim N(0, S)`.
With a site :math:`\exp(\nu u - \tau u^2 / 2)` for each row of u, that of eta is Gaussian too, of
precision :math:`T = (I + \mathrm{diag}(\tau) S)^{-1} \mathrm{diag}(\tau)`.
"""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.blocks.group_predictors import GroupPredictors
from pymc_skewgp._gaussian.blocks.group_sites import GroupSites
from pymc_skewgp._gaussian.blocks.site_steps import SiteSteps, SiteSums, Tilts
from pymc_skewgp._gaussian.proposals.unseen import HERMITE_NODES, missing_of_functions
from pymc_skewgp._validation import FloatArray

_PREDICTORS = 2**18  # at a time, of weights: they stay in the cache


class _OfPredictors(NamedTuple):
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

    def __init__(self, predictors: GroupPredictors, sites: GroupSites) -> None:
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
        step = self.step_towards(of_u.mean.ravel(), of_u.variance.ravel(), self._sites)
        new = self._of_predictors(*self._new)
        pull = new.shift - sites.shift - _times(new.precision - sites.precision, centre)
        log_det = np.linalg.slogdet(sites.left)[1].sum()
        constant = 0.5 * float(log_det) + 0.5 * float((nu * of_u.moved).sum())
        return Tilts(
            step.gap, self.predictors.pull(pull), step.log_scales + constant, self.remember()
        )

    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """Sum over the groups of log p, for columns of coordinates (r, N)."""
        total = np.zeros(coordinates.shape[1])
        for groups in self._slices(total.size):
            eta = self.predictors.at(groups, coordinates)
            total += self._sites.log_probs(groups, eta).sum(axis=0)
        return total

    def pair_log_probs(self, centre: FloatArray, off: FloatArray) -> FloatArray:
        """The same of centre + off and centre - off, shape (2, N), by one product for both."""
        totals = np.zeros((2, off.shape[1]))
        middle = self.predictors.at(slice(None), centre[:, None])
        for groups in self._slices(off.shape[1]):
            eta = self.predictors.at(groups, off)
            totals[0] += self._sites.log_probs(groups, middle[groups] + eta).sum(axis=0)
            totals[1] += self._sites.log_probs(groups, middle[groups] - eta).sum(axis=0)
        return totals

    def missing(self, n_draws: int) -> float:
        """See `RowBlock`: along each predictor, the others of its group going with it."""
        total, sites = 0.0, self._of_predictors(self.tau, self.nu)
        for groups in self._slices(HERMITE_NODES.size):
            cov = self._cov[groups]
            for j in range(cov.shape[1]):
                along = cov[:, :, j] / np.sqrt(np.maximum(cov[:, j, j], 1e-300))[:, None]
                eta = self._mean[groups][:, :, None] + along[:, :, None] * HERMITE_NODES
                log_ratio = self._sites.log_probs(groups, eta)
                shift = sites.shift[groups][:, :, None] - 0.5 * sites.precision[groups] @ eta
                log_ratio -= (shift * eta).sum(axis=1)
                missing = missing_of_functions(log_ratio, n_draws)
                total += float(missing @ missing)
        return total

    def gradient(self, mean: FloatArray, spread: FloatArray) -> GroupGradient:
        """See `RowBlock`; derivatives in the predictors are made by these."""
        shape = self._sites.shape
        sites = self._of_predictors(self.tau, self.nu)
        self._mean = self.predictors.at(slice(None), mean[:, None])[:, :, 0]
        self._cov = self.predictors.covariances(spread)
        of_u, precision = self._marginals(sites), sites.precision
        offset = sites.shift - _times(precision, self._mean)
        noise = offset[:, :, None] * offset[:, None, :] + precision @ self._cov @ precision
        noise = 0.5 * (noise - precision)
        tau, nu = self.tau.reshape(shape), self.nu.reshape(shape)
        cavity = np.maximum(1.0 / of_u.variance - tau, 1e-10 / of_u.variance)
        cavity_mean = (of_u.mean / of_u.variance - nu) / cavity
        return GroupGradient(offset, noise, precision, cavity_mean, 1.0 / np.sqrt(cavity))

    def _marginals(self, sites: _OfPredictors) -> _Marginals:
        """Of u, from those of the predictors."""
        # u given eta and its sites, and u with eta averaged over.
        given = self._sites.noise @ sites.left
        gain = sites.left.swapaxes(1, 2)
        cov = gain @ self._cov @ sites.left + given
        moved = _times(given, self.nu.reshape(self._sites.shape))
        variance = np.maximum(np.einsum("ijj->ij", cov), 1e-300)
        return _Marginals(_times(gain, self._mean) + moved, variance, moved)

    def _of_predictors(self, tau: FloatArray, nu: FloatArray) -> _OfPredictors:
        n, m = self._sites.shape
        tau, nu = tau.reshape(n, m), nu.reshape(n, m)
        left = tau[:, :, None] * self._sites.noise
        np.einsum("ijj->ij", left)[:] += 1.0
        left = np.linalg.inv(left)
        precision = left * tau[:, None, :]
        precision = 0.5 * (precision + precision.swapaxes(1, 2))
        return _OfPredictors(precision, _times(left, nu), left)

    def _slices(self, n_draws: int) -> list[slice]:
        n, m = self._sites.shape
        size = max(1, _PREDICTORS // max(n_draws * m, 1))
        return [slice(i, i + size) for i in range(0, n, size)]


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Of each group: (n, k, m) times (n, m)."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])
