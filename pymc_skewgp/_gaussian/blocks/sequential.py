r"""A field drawn part by part, with resampling: variances of the parts' weights add up.

EP's Gaussian of a field is drawn from the end of its Cholesky factor to the beginning, each entry
given those that it depends on. A row i has its weight :math:`p(y_i \mid \eta_i) / t_i(\eta_i)`, t
its site, as soon as all entries of its predictor are there. Draws are resampled where the weights
so far have become unequal: it is a particle filter along the elimination order, twisted by EP,
whose log evidence has the variance V / N of N draws, V the sum over the parts, where weights of
whole draws have :math:`(e^V - 1) / N`. (Doucet, de Freitas & Gordon 2001, Sequential Monte Carlo
methods in practice, doi:10.1007/978-1-4757-3437-9; Guarniero, Johansen & Lee 2017, The iterated
auxiliary particle filter, doi:10.1080/01621459.2016.1222291.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from pymc_skewgp._gaussian.blocks.ep import LocalBlocks
from pymc_skewgp._gaussian.blocks.own_effects import OwnEffects
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.escalation import (
    MIN_DRAWS,
    N_REPLICATES,
    SamplingResult,
    pilot_log_weights,
)
from pymc_skewgp._gaussian.pairs import Pairs
from pymc_skewgp._gaussian.sparse import FieldGaussian
from pymc_skewgp._gaussian.truncated import TruncatedDraws
from pymc_skewgp._gaussian.weights import (
    Estimate,
    log_mean_exp,
    log_sum_exp,
    pareto_k,
    random_points,
    relative_ess,
    spread_of_replicates,
    systematic_rows,
)
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._validation import FloatArray

# Relative ESS below which draws are resampled. Parts for pairs whose log weights have a variance
# of 1, and fewest and most of them.
_UNEQUAL = 0.5
# Pairs of a pilot run, and variance of their log weights above which there are no more of them:
# that is a relative ESS of .02; as few pairs as take hardly longer are drawn at once.
_PILOT, _TOO_UNEQUAL, _FEW = 64, 4.0, 256
_PARTS, _FEWEST, _MOST = 6.0, 6, 64
# Draws of one call from which on more are made, how many times as many, and numbers of all of them;
# values whose means are looked at.
_MANY, _MORE, _NUMBERS, _SOME = 1000, 8, 2 * 10**7, 256
_COPIED = 256  # rows of all draws that are copied at once
# Numbers of pairs that are made at once, which stay in the cache, and fewest of the pairs.
_AT_ONCE, _FEWEST_AT_ONCE = 2**18, 16


@dataclass(frozen=True)
class FieldPairs(BlockPairs):
    """Under a field, some pairs at a time; after EP.

    Weights are what factors are over their sites, in which no stiff direction of Q is.
    """

    gaussian: FieldGaussian

    def pairs(self, points: FloatArray) -> Pairs:
        """See `BlockPairs`."""
        mean = self.gaussian.mean[:, None]
        shape = mean.size, points.shape[1]
        plus, minus, logs = np.empty(shape), np.empty(shape), np.empty((2, shape[1]))
        size = max(_FEWEST_AT_ONCE, _AT_ONCE // mean.size)
        for some in (slice(i, i + size) for i in range(0, shape[1], size)):
            off = self.gaussian.spread @ ndtri(points[: mean.size, some])
            logs[:, some] = self.blocks.total("pair_log_over_sites", off)
            np.add(mean, off, out=plus[:, some])
            np.subtract(mean, off, out=minus[:, some])
        logs += self.gaussian.log_integral(self.gaussian.sums.pull)
        return Pairs(plus, minus, *logs)


@dataclass(frozen=True)
class FieldSampler(SiteSampler):
    """Pairs, and where their weights are unequal draws part by part.

    `own` effects of rows are averaged over, and drawn afterwards.
    """

    own: OwnEffects | None = None

    def _draws(self, n_pairs: int, rng: np.random.Generator, *, both: bool) -> TruncatedDraws:
        found = self._of_others(n_pairs, rng, both=both)
        return found if self.own is None else self.own.completed(found, rng)

    def _of_others(self, n_pairs: int, rng: np.random.Generator, *, both: bool) -> TruncatedDraws:
        if n_pairs <= _FEW:
            return super()._draws(n_pairs, rng, both=both)
        few = np.random.default_rng(self.settings.pilot_seed)
        with few_blas_threads(self.proposal.n_sites), np.errstate(all="ignore"):
            log_weights = pilot_log_weights(self.proposal, _PILOT, few)
            too_unequal = np.var(log_weights) > _TOO_UNEQUAL  # False where some are not finite
        if too_unequal and self.tempers:
            return self._by_tempering(n_pairs, log_weights, rng)
        return super()._draws(n_pairs, rng, both=both)

    def _points(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Independent: of so many coordinates evenly spaced ones take as long as all else."""
        return random_points(self.proposal.n_dims, size * N_REPLICATES, rng)

    def _tempered(
        self, n_pairs: int, log_weights: FloatArray, rng: np.random.Generator
    ) -> SamplingResult:
        assert isinstance(self.proposal, FieldPairs)
        gaussian, blocks = self.proposal.gaussian, self.proposal.blocks
        assert isinstance(blocks, LocalBlocks)
        variance = np.var(log_weights[np.isfinite(log_weights)])
        n_parts = int(np.clip(_PARTS * variance, _FEWEST, _MOST))
        found = drawn_in_parts(gaussian, blocks.blocks, n_pairs, n_parts, rng)
        known = found.log_prob
        error = float(np.hypot(known.std_error, self.proposal.unseen_share(n_pairs)))
        return replace(found, log_prob=known._replace(std_error=error))


def drawn_in_parts(
    gaussian: FieldGaussian,
    blocks: Sequence[Any],
    n_draws: int,
    n_parts: int,
    rng: np.random.Generator,
) -> SamplingResult:
    """Draws of the coordinates, in independent replicates.

    Parameters
    ----------
    gaussian : FieldGaussian
        EP's, with the sites of the blocks.
    blocks : sequence of FieldBlock
        After EP.
    n_draws, n_parts : int
    rng : numpy.random.Generator
    """
    chol, d = gaussian.chol, gaussian.mean.size
    # Draws share ancestors: of many so many times as many are made, and every so manyth is kept.
    more = int(np.clip(_NUMBERS // (d * n_draws), 1, _MORE)) if n_draws >= _MANY else 1
    size = -(-max(more * n_draws, MIN_DRAWS) // N_REPLICATES)
    factors = [_in_order(block.factor, chol.place) for block in blocks]
    known = [_last_entries(factor, d) for factor in factors]
    cuts = np.quantile(np.concatenate(known), np.linspace(0.0, 1.0, n_parts + 1)[1:-1])
    cuts = np.unique(np.concatenate([[0, d], cuts.astype(np.intp)]))
    off = np.zeros((d + chol.n_sums, N_REPLICATES * size))
    log_weights = np.zeros((N_REPLICATES, size))
    log_probs = np.zeros(N_REPLICATES)
    worst_k = -np.inf
    for first, stop in zip(cuts[-2::-1], cuts[:0:-1], strict=True):
        off[first:stop] = rng.standard_normal((stop - first, off.shape[1]))
        chol.draw_part(off, first, stop)
        for block, factor, last in zip(blocks, factors, known, strict=True):
            rows = np.flatnonzero((last >= first) & (last < stop))
            if rows.size:
                added = block.log_over_sites(rows, factor, off[:d])
                log_weights += added.reshape(log_weights.shape)
        if relative_ess(log_weights.ravel()) < _UNEQUAL or not first:
            worst_k = max(worst_k, pareto_k(log_weights.ravel()))
            log_probs += log_sum_exp(log_weights, axis=1) - np.log(size)
            order = systematic_rows(log_weights, size, rng).ravel()
            for start in range(first, len(off), _COPIED):
                some = off[start : start + _COPIED]
                some[:] = some.take(order, axis=1)  # twenty times as fast as by an index
            log_weights[:] = 0.0
    log_probs += gaussian.log_integral(gaussian.sums.pull)
    value = log_mean_exp(log_probs)
    error = spread_of_replicates(log_probs, value)
    draws = off[:d]
    for start in range(0, draws.shape[1], _PILOT):  # all of them twice would take too much memory
        some = draws[:, start : start + _PILOT]
        some[:] = some[chol.place]
    draws += gaussian.mean[:, None]
    # As many of each replicate; those of one share ancestors.
    chosen = np.arange(n_draws) * draws.shape[1] // n_draws
    replicate = chosen // size
    share = min(1.0 / (1.0 + draws.shape[1] * error**2), _share_of_own(draws[:: 1 + d // _SOME]))
    fraction = min(1.0, share * draws.shape[1] / n_draws)
    estimate = Estimate(value, error, fraction, max(worst_k, pareto_k(log_probs)))
    kept = draws if n_draws == draws.shape[1] else draws[:, chosen]
    return SamplingResult(kept, log_probs[replicate], estimate, "in parts", replicate)


def _share_of_own(draws: FloatArray) -> float:
    """Independent draws over draws, by how far the replicates' means lie apart."""
    each = draws.reshape(len(draws), N_REPLICATES, -1)
    apart = each.shape[2] * each.mean(axis=2).var(axis=1, ddof=1)
    return 1.0 / max(1.0, float(np.mean(apart / draws.var(axis=1))))


def _in_order(factor: Any, place: Any) -> Any:
    found = factor.copy()
    found.indices = place[factor.indices].astype(factor.indices.dtype)
    found.has_sorted_indices = False
    return found


def _last_entries(factor: Any, d: int) -> Any:
    """Of each row the entry that is drawn last: the first in the order."""
    filled = np.append(factor.indices, d - 1)
    found = np.minimum.reduceat(filled, factor.indptr[:-1])
    return np.where(np.diff(factor.indptr) > 0, found, d - 1)
