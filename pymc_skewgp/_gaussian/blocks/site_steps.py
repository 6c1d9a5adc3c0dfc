"""Sites of a block of rows and the steps that expectation propagation takes with them."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_skewgp._gaussian.proposals.coordinate_gaussian import SiteLogDensity
from pymc_skewgp._gaussian.proposals.ep import SHRINKAGE
from pymc_skewgp._gaussian.proposals.modes import Target
from pymc_skewgp._gaussian.tilted import Tilted
from pymc_skewgp._validation import FloatArray

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


class TiltedMoments(Protocol):
    """What makes tilted moments of cavities."""

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `BlockSites`."""
        ...


class NextSites(NamedTuple):
    """Distance of the tilted moments from the marginals, and the log of the sites' scales."""

    gap: float
    log_scales: float


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
        self._new = np.zeros((2, 0))
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
    ) -> NextSites:
        """Find the next sites, which match the tilted moments, of values with these marginals."""
        self._variance = variance
        precision = np.maximum(1.0 / variance - self.tau, 1e-10 / variance)
        cavity_var = 1.0 / precision
        cavity_mean = cavity_var * (mean / variance - self.nu)
        sd = np.sqrt(cavity_var)
        log_mass, shift, tilted_spread, known = factors.tilted(cavity_mean, sd)
        tilted_spread = np.maximum(tilted_spread, SHRINKAGE[0])
        # Where features say almost nothing of a row its site takes a share of the variance that
        # 1 - spread has no digit of: over this variance that would be any number.
        taken = np.clip(1.0 - tilted_spread, *SHRINKAGE)
        if known is not None:
            taken = np.clip(known, 0.0, SHRINKAGE[1])
        kept = cavity_var * np.where(tilted_spread < 0.5, tilted_spread, 1.0 - taken)
        self._new = np.stack([taken / kept, (cavity_mean * taken + sd * shift) / kept])
        gaps = np.abs(np.log(cavity_var * tilted_spread / variance))
        ratio = 1.0 + self.tau * cavity_var
        quadratic = cavity_mean**2 * self.tau - 2.0 * cavity_mean * self.nu
        quadratic -= cavity_var * self.nu**2
        log_scales = log_mass + 0.5 * np.log(ratio) + 0.5 * quadratic / ratio
        sums = (self._counts * gaps).sum(), (self._counts * log_scales).sum()
        return NextSites(*(float(x) for x in sums))

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

    def back(self, damping: float) -> SiteSums:
        """Take a damped step in place of the last one, and forget those before it."""
        new, step = self._values[-2], self._steps[-2]
        self.tau, self.nu = new - (1.0 - damping) * step
        self._values, self._steps = [new], [step]
        return self.sums()

    def forget(self) -> None:
        """Of the last steps."""
        self._values, self._steps = self._values[-1:], self._steps[-1:]

    def finish(self) -> None:
        """EP has converged: what only its steps needed is let go."""
        self._values, self._steps, self._new = [], [], np.zeros((2, 0))

    def remember(self) -> FloatArray:
        """Keep this step; inner products of the changes of the last ones."""
        step = self._new - np.stack([self.tau, self.nu])
        self._values = [*self._values[-_HISTORY:], self._new]
        self._steps = [*self._steps[-_HISTORY:], step]
        scale = np.stack([self._variance, np.sqrt(self._variance)]) * np.sqrt(self._counts)
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
