r"""Rows of a field with an effect of their own, which their factors are averaged over.

A predictor is :math:`s + g` with s of the coordinates that rows share, and
:math:`g \sim N(g_0, r)` of the row alone, as in areas with independent effects beside those of
their neighbours. Given s the factor :math:`p(s + g)` is averaged over g by Gauss and Hermite's
nodes about EP's Gaussian of g, so that only s is drawn and weighed, which leaves the weights far
less unequal; g follows given s, by some Metropolis steps from a Gaussian of its mean and variance.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_skewgp._gaussian.blocks.ep import LocalBlocks
from pymc_skewgp._gaussian.blocks.functions import FunctionSites
from pymc_skewgp._gaussian.blocks.rows import BlockSites, FieldBlock
from pymc_skewgp._gaussian.sparse import FieldGaussian
from pymc_skewgp._gaussian.truncated import TruncatedDraws
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Nodes, of a density over one that is nearly the same; Metropolis steps for each draw, how much
# wider proposals are, and least variance of an effect over that of EP's.
_Z, _MASS = np.polynomial.hermite_e.hermegauss(11)
_MASS /= _MASS.sum()
_STEPS, _WIDER, _NARROW = 8, 1.2, 0.01
_LEAST = -1e300  # in place of minus infinity


class AveragedSites(FunctionSites):
    """Factors of predictors without effects of variances r about g_0, averaged over these.

    Parameters
    ----------
    sites : BlockSites
        Of whole predictors.
    tau, nu : ndarray, shape (n,)
        EP's sites of these.
    centre, variance : ndarray, shape (n,)
        g_0 and r; both 0 in rows without an effect.
    """

    def __init__(
        self,
        sites: BlockSites,
        tau: FloatArray,
        nu: FloatArray,
        centre: FloatArray,
        variance: FloatArray,
    ) -> None:
        zero = np.zeros(tau.size)
        super().__init__(self._averaged, self._slopes, zero, zero, zero + 1.0)
        self._sites, self._known = sites, (tau, nu, centre, np.sqrt(variance))

    @property
    def log_concave(self) -> bool:
        """As the factors themselves are (Prekopa 1973)."""
        return True

    def given(
        self, rows: IntArray | slice, eta: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """EP's Gaussian of the effects given the rest, in deviations of the prior.

        How far its mean is from that, (N, n), its variance, and the prior's deviation, (n,).
        """
        tau, nu, centre, sd = (x[rows] for x in self._known)
        share = 1.0 / (1.0 + tau * sd**2)
        return sd * share * (nu - tau * (eta + centre)), share, sd

    def effects(
        self, rows: IntArray | slice, eta: FloatArray, z: Iterable[Any]
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Those z deviations from their mean given the rest, for each z.

        Each followed by log of their density times p, over that of EP's Gaussian.
        """
        off, share, sd = self.given(rows, eta)
        of_some = isinstance(rows, np.ndarray)
        log_prob: Any = self._sites.some_log_prob if of_some else self._sites.log_prob
        constant, root = 0.5 * np.log(share), np.sqrt(share)
        for own in z:
            moved = off + root * own
            effect = self._known[2][rows] + sd * moved
            ratio = log_prob(rows, eta + effect)
            moved **= 2
            moved -= own**2
            yield effect, ratio + constant - 0.5 * moved

    def some_log_prob(self, rows: IntArray, eta: FloatArray) -> FloatArray:
        """See `BlockSites`."""
        return self._mean_over_nodes(rows, eta)

    def _averaged(self, eta: FloatArray) -> FloatArray:
        return self._mean_over_nodes(slice(None), eta)

    def _mean_over_nodes(self, rows: IntArray | slice, eta: FloatArray) -> FloatArray:
        logs = np.array([ratio for _, ratio in self.effects(rows, eta, _Z)])
        largest = np.maximum(logs.max(axis=0), _LEAST)
        logs -= largest
        with np.errstate(divide="ignore"):
            return np.asarray(largest + np.log(np.tensordot(_MASS, np.exp(logs, out=logs), 1)))

    def _slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By the posterior of the effect."""
        every, average = slice(None), self._averaged(eta)
        first, second = np.zeros((2, *eta.shape))
        for mass, (effect, ratio) in zip(_MASS, self.effects(every, eta, _Z), strict=True):
            weight, slopes = mass * np.exp(ratio - average), self._sites.slopes(every, eta + effect)
            first += weight * slopes[0]
            second += weight * (slopes[1] + slopes[0] ** 2)
        return first, second - first**2

    def drawn(self, eta: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Effects given the rest, (N, n): proposals have their mean and a greater deviation."""
        every = slice(None)
        logs = np.array([ratio for _, ratio in self.effects(every, eta, _Z)])
        weights = np.exp(logs - logs.max(axis=0))
        moments = np.stack([_MASS, _Z * _MASS, _Z**2 * _MASS])
        total, mean, square = np.tensordot(moments, weights, 1)
        mean, square = mean / total, square / total
        deviation = _WIDER * np.sqrt(np.maximum(square - mean**2, _NARROW))
        white = [rng.standard_normal(eta.shape) for _ in range(_STEPS + 1)]
        proposed = [mean + deviation * x for x in white]
        found, last = np.zeros_like(eta), np.full(eta.shape, -np.inf)
        drawn = self.effects(every, eta, proposed)
        for x, z, (effect, ratio) in zip(white, proposed, drawn, strict=True):
            ratio += 0.5 * (x**2 - z**2)
            moved = rng.random(eta.shape) < np.exp(np.minimum(ratio - last, 0.0))
            np.copyto(found, effect, where=moved)
            np.copyto(last, ratio, where=moved)
        return found


@dataclass(frozen=True)
class OwnEffects:
    """Which coordinates are of one row alone, and blocks of the others.

    Attributes
    ----------
    columns : ndarray of bool, shape (d,)
    rows, own : ndarray of int
        Rows that have one, and which coordinate it is.
    slopes : ndarray
        Of the rows' predictors in it.
    blocks : list of FieldBlock
    gaussian : FieldGaussian
        EP's of the other coordinates.
    log_constant : float
        Log integral of the effects' prior.
    """

    columns: Any
    rows: IntArray
    own: IntArray
    slopes: FloatArray
    blocks: list[FieldBlock]
    gaussian: FieldGaussian
    log_constant: float

    @classmethod
    def of(cls, gaussian: FieldGaussian, blocks: Sequence[Any]) -> "OwnEffects | None":
        """None where there are none, or factors that are not log-concave."""
        prior, whole = gaussian.prior, gaussian.prior.pattern
        columns = whole.alone & ~prior.ties.any(axis=0)
        entries = np.flatnonzero(columns[whole.columns])
        sites = [block.sites for block in blocks]
        plain = all(isinstance(x, FunctionSites) and np.all(x.counts == 1.0) for x in sites)
        proper = plain and all(x.log_concave and (x.tau >= 0.0).all() for x in blocks)
        if not proper or not 0 < entries.size < whole.shape[1]:
            return None
        rows, own, slopes = whole.rows[entries], whole.columns[entries], blocks[0].design[entries]
        q, b = prior.precision.diagonal()[own], prior.slope[own]
        centre, variance = np.zeros((2, whole.shape[0]))
        centre[rows], variance[rows] = slopes * b / q, slopes**2 / q
        others = prior.without(columns)
        kept = np.delete(blocks[0].design, entries)
        new = []
        for x in blocks:
            g, r = centre[x.rows], variance[x.rows]
            averaged = AveragedSites(x.sites, x.tau, x.nu, g, r)
            new.append(FieldBlock(kept, others.pattern, x.rows, averaged))
            share = 1.0 / (1.0 + x.tau * r)
            new[-1].tau, new[-1].nu = share * x.tau, share * (x.nu - x.tau * g)
        together = LocalBlocks(new)
        marginal = others.times(together.total("sums"))
        together.total("place", marginal.mean, marginal.spread)
        log_constant = 0.5 * float((b**2 / q - np.log(q)).sum())
        return cls(columns, rows, own, slopes, new, marginal, log_constant)

    def completed(self, found: TruncatedDraws, rng: np.random.Generator) -> TruncatedDraws:
        """Draws of the others with the effects, and the evidence of all."""
        draws = np.empty((len(found.draws), self.columns.size))
        draws[:, ~self.columns] = found.draws
        effects = np.zeros((len(draws), self.gaussian.prior.pattern.shape[0]))
        for block in self.blocks:
            assert isinstance(block.sites, AveragedSites)
            effects[:, block.rows] = block.sites.drawn(found.draws @ block.factor.T, rng)
        draws[:, self.own] = effects[:, self.rows] / self.slopes
        assert found.log_prob is not None
        value = found.log_prob.value + self.log_constant
        return replace(found, draws=draws, log_prob=found.log_prob._replace(value=value))
