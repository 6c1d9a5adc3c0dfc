"""Sites that are any functions of their predictors, averaged over noise of these."""

from copy import copy
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.rows import BlockSites, FactorGradient
from pymc_skewgp._gaussian.tilted import SiteFactors, SiteFunction, SlopeFunction, Tilted
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Nodes of Gauss-Hermite rules, tried in this order: noise that is small beside the scale on which
# a site changes needs few.
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# From one rule to the next. Errors of a million rows may add up.
_CHANGE = 1e-8
_NUMBERS_AT_ONCE = 2**17  # nodes of predictors: what is done to them stays in the cache
_LOST = 15.0  # nats below its largest value, where a site is not looked at
_PLACES = np.linspace(-3.0, 3.0, 13)  # prior deviations, where rules are compared


class NoiseRule:
    """A Gauss-Hermite rule for the noise of n predictors.

    Parameters
    ----------
    variance : ndarray, shape (n,)
    n_nodes : int
    """

    def __init__(self, variance: FloatArray, n_nodes: int) -> None:
        nodes, self._log_mass = _hermite(n_nodes)
        self._steps = np.sqrt(variance) * nodes[:, None]

    @classmethod
    def of(
        cls, log_prob: SiteFunction, variance: FloatArray, mean: FloatArray, sd: FloatArray
    ) -> "NoiseRule | None":
        """The first that is exact enough for predictors N(mean, sd^2); None where it is no noise.

        Raises
        ------
        ApproximationError
            Where none is.
        """
        if not variance.any():
            return None
        eta = mean + _PLACES[:, None] * sd
        rule = cls(variance, _SIZES[0])
        before = rule.log_mean(log_prob, eta)
        for size in _SIZES[1:]:
            finer = cls(variance, size)
            found = finer.log_mean(log_prob, eta)
            seen = found > found.max(axis=0) - _LOST
            if (np.abs(found[seen] - before[seen]) < _CHANGE).all():
                return rule if rule.size > 1 else None
            rule, before = finer, found
        i = int(np.argmax(variance))
        raise ApproximationError(
            f"the features leave a variance of {variance[i]:.3g} of f at row {i}, which is wide "
            "beside what a row of the data says of f: take more features."
        )

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self._log_mass.size

    def averaged(
        self, log_prob: SiteFunction, slopes: SlopeFunction
    ) -> tuple[SiteFunction, SlopeFunction]:
        r"""Log of the mean of p(eta + e), e being the noise, and its two derivatives.

        With the shares of the nodes as weights, the first derivative is the mean of that of log p,
        the second the mean of the second plus the variance of the first.
        """

        def mean_slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            nodes, logs = self._logs(log_prob, eta)
            shares = np.exp(logs - logs.max(axis=-2, keepdims=True))
            shares /= shares.sum(axis=-2, keepdims=True)
            first, second = slopes(nodes)
            mean = (shares * first).sum(axis=-2)
            bend = (shares * (second + first**2)).sum(axis=-2) - mean**2
            return mean, bend

        return lambda eta: self.log_mean(log_prob, eta), mean_slopes

    def log_mean(self, log_prob: SiteFunction, eta: FloatArray) -> FloatArray:
        """Log of the mean of p(eta + e)."""
        size = max(1, _NUMBERS_AT_ONCE // (self.size * eta.shape[-1]))
        if eta.ndim == 2 and eta.shape[0] > size:
            parts = [eta[i : i + size] for i in range(0, eta.shape[0], size)]
            return np.concatenate([self.log_mean(log_prob, part) for part in parts])
        _, logs = self._logs(log_prob, eta)
        largest = logs.max(axis=-2)
        base = np.where(np.isfinite(largest), largest, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(base + np.log(np.exp(logs - base[..., None, :]).sum(axis=-2)))

    def _logs(self, log_prob: SiteFunction, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        nodes = eta[..., None, :] + self._steps
        with np.errstate(over="ignore"):
            logs = log_prob(nodes)
        return nodes, logs + self._log_mass[:, None]


@lru_cache
def _hermite(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and the logs of their shares."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(n_nodes)
    kept = mass > 0.0
    return nodes[kept], np.log(mass[kept] / mass[kept].sum())


class FunctionSites(BlockSites):
    """Functions of f = predictor + e, with e ~ N(0, rest) of each row's own: moments by quadrature.

    Moments are those of f under the cavity that e widens; log p, which the weights of draws need
    and a search does not, is averaged over e.

    Parameters
    ----------
    log_prob : SiteFunction
    slopes : SlopeFunction
    mean, rest, sd : ndarray, shape (n,)
        Of the predictors in the prior: their mean, which they are less, and deviation; and the
        variance of e.
    """

    divisible = False

    def __init__(
        self,
        log_prob: SiteFunction,
        slopes: SlopeFunction,
        mean: FloatArray,
        rest: FloatArray,
        sd: FloatArray,
    ) -> None:
        self._of_f, self._mean, self._rest, self._sd = (log_prob, slopes), mean, rest, sd
        self.factors = SiteFactors(log_prob, slopes, mean)

    @property
    def size(self) -> int:
        """See `BlockSites`."""
        return self._mean.size

    @property
    def log_concave(self) -> bool:
        """See `BlockSites`; within the prior."""
        return self.factors.log_concave_within(np.sqrt(self._sd**2 + self._rest))

    def with_noise(self, variance: FloatArray) -> Self:
        """Of predictors less noise of their own, of these variances: for EP, by the same nodes."""
        found = copy(self)
        found._rest = self._rest + variance
        return found

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `BlockSites`."""
        deviation = np.sqrt(sd**2 + self._rest)
        log_mass, shift, spread, _ = self.factors.tilted(mean, deviation)
        share = sd / deviation
        taken = share**2 * (1.0 - spread)
        return Tilted(log_mass, share * shift, 1.0 - taken, taken)

    def nodes(self, found: FactorGradient) -> tuple[FloatArray, FloatArray]:
        """Values of f, shape (k, n), and their weights under the cavities times the sites."""
        return self.factors.nodes(found.cavity_mean, np.sqrt(found.cavity_sd**2 + self._rest))

    def log_prob(self, rows: slice, eta: FloatArray) -> FloatArray:
        """See `BlockSites`; of all rows."""
        return self.averaged[0](self._mean + eta)

    def some_log_prob(self, rows: IntArray, eta: FloatArray) -> FloatArray:
        """See `BlockSites`."""
        every = np.zeros((len(eta), self.size))
        every[:, rows] = eta
        return self.log_prob(slice(None), every)[:, rows]

    def slopes(self, rows: slice, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `BlockSites`; of all rows."""
        return self.averaged[1](self._mean + eta)

    @cached_property
    def averaged(self) -> tuple[SiteFunction, SlopeFunction]:
        """Log of the mean of p over e, and its two derivatives.

        Raises
        ------
        ApproximationError
            Where e is wide beside what p says.
        """
        rule = NoiseRule.of(self._of_f[0], self._rest, self._mean, self._sd)
        return self._of_f if rule is None else rule.averaged(*self._of_f)
