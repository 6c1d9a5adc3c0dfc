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
        self._predictors, self._sites = predictors, sites
        self._mean, self._cov = np.zeros((n, m)), np.zeros((n, m, m))

    @property
    def n_rows(self) -> int:
        """Number of groups."""
        return self._sites.shape[0]

    @property
    def rank(self) -> int:
        """Number of coordinates."""
        return self._predictors.rank

    def sums(self) -> SiteSums:
        """Of the sites as they are."""
        sites = self._of_predictors(self.tau, self.nu)
        return SiteSums(self._predictors.gram(sites.precision), self._predictors.pull(sites.shift))

    def tilt(self, mean: FloatArray, spread: FloatArray) -> Tilts:
        """See `RowBlock`: the marginals that are compared are those of u."""
        noise, (n, m) = self._sites.noise, self._sites.shape
        sites, nu = self._of_predictors(self.tau, self.nu), self.nu.reshape(n, m)
        self._mean = centre = self._predictors.at(slice(None), mean[:, None])[:, :, 0]
        self._cov = self._predictors.covariances(spread)
        # u given eta and its sites, and u with eta averaged over.
        given = noise @ sites.left
        gain = sites.left.swapaxes(1, 2)
        cov = gain @ self._cov @ sites.left + given
        moved = _times(given, nu)
        variance = np.maximum(np.einsum("ijj->ij", cov), 1e-300)
        mean_of_u = _times(gain, centre) + moved
        step = self.step_towards(mean_of_u.ravel(), variance.ravel(), self._sites)
        new = self._of_predictors(*self._new)
        pull = new.shift - sites.shift - _times(new.precision - sites.precision, centre)
        log_det = np.linalg.slogdet(sites.left)[1].sum()
        constant = 0.5 * float(log_det) + 0.5 * float((nu * moved).sum())
        return Tilts(
            step.gap, self._predictors.pull(pull), step.log_scales + constant, self.remember()
        )

    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """Sum over the groups of log p, for columns of coordinates (r, N)."""
        total = np.zeros(coordinates.shape[1])
        for groups in self._slices(total.size):
            eta = self._predictors.at(groups, coordinates)
            total += self._sites.log_probs(groups, eta).sum(axis=0)
        return total

    def pair_log_probs(self, centre: FloatArray, off: FloatArray) -> FloatArray:
        """The same of centre + off and centre - off, shape (2, N), by one product for both."""
        totals = np.zeros((2, off.shape[1]))
        middle = self._predictors.at(slice(None), centre[:, None])
        for groups in self._slices(off.shape[1]):
            eta = self._predictors.at(groups, off)
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
