r"""Pairs under factors that are Gaussian in one of their predictors, given the others.

Such is the mean of values whose standard deviation has a predictor of its own. With
:math:`p(y_i \mid \eta_i) = \exp(l_i + b_i \eta_{i1} - \tau_i \eta_{i1}^2 / 2)`, where l, b and tau
are functions of the other predictors, coordinates :math:`c_1` of the first predictor alone are
integrated out given the others, :math:`c_2`, and drawn given these:

.. math:: \int \prod_i p(y_i \mid \eta_i)\, N(c_1; 0, I)\, dc_1 = |P|^{-1/2}
    \exp\Bigl(\sum_i l_i + \tfrac12 \beta^\top P^{-1} \beta\Bigr), \quad
    P = I + F_1^\top \mathrm{diag}(\tau) F_1, \quad \beta = F_1^\top b

(Rao-Blackwellisation; Casella & Robert 1996, doi:10.1093/biomet/83.1.81). Of the weights of joint
draws those of :math:`c_2` are left, which come in mirrored pairs from EP's Gaussian, and some from
the prior, which bounds the weights (Owen & Zhou 2000, doi:10.1080/01621459.2000.10473909).
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from pymc_skewgp._gaussian.blocks.ep import Blocks, LocalBlocks
from pymc_skewgp._gaussian.blocks.groups import slices_of, times
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.sequential import FieldSampler
from pymc_skewgp._gaussian.blocks.several import SeveralBlock
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.escalation import DEFAULT
from pymc_skewgp._gaussian.pairs import DrawnInPairs, Pairs
from pymc_skewgp._gaussian.sparse import FieldGaussian
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Share of draws of c_2 that are of the prior.
_OF_PRIOR = 0.1
# Log weight of draws of the prior that are beyond double precision: no end of the likelihood.
_NOTHING = -1e300
# Of a correlation matrix, which makes it regular; root of a diagonal that the identity is lost in.
_RIDGE, _LARGE = 1e-15, 1e6
# Numbers of the precisions of draws at a time, which stay in the cache, and these at least; rows of
# a triangle that is not halved.
_AT_ONCE, _LEAST_DRAWS, _FEW = 2**17, 32, 4


@dataclass(frozen=True)
class ConditionalPairs(DrawnInPairs):
    """Pairs of all coordinates, of which some are drawn given the others.

    Attributes
    ----------
    block : SeveralBlock
        After EP.
    others_of : CoordinateGaussian
        EP's of the others.
    inner, others : ndarray of int
        Coordinates that are drawn given the others, and these.
    """

    block: SeveralBlock
    others_of: CoordinateGaussian
    inner: IntArray
    others: IntArray

    @property
    def n_sites(self) -> int:
        """Number of observations."""
        return self.block.n_rows

    @property
    def n_modes(self) -> int:
        """One: of the coordinates that are integrated out there is no other."""
        return 1

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw: of all coordinates, of the component, and of a member."""
        return self.inner.size + self.others.size + 2

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the evidence from tails that so many draws hardly meet."""
        return float(np.sqrt(self.block.missing(n_draws, self.block.gaussian_in, _OF_PRIOR)))

    def pairs(self, points: FloatArray) -> Pairs:
        """See `DrawnInPairs`."""
        m, q = self.others.size, self.others_of
        white, inner = ndtri(points[:m]), ndtri(points[m:-2])
        off = np.where(points[-2] < _OF_PRIOR, white, q.spread @ white)
        centre = np.where(points[-2] < _OF_PRIOR, 0.0, q.mean[:, None])
        both = np.hstack([centre + off, centre - off])
        c, log_evidence = self._given(both, np.hstack([inner, -inner]))
        log_ratio = q.log_over_prior(both)
        of_both = np.logaddexp(np.log1p(-_OF_PRIOR) + log_ratio, np.log(_OF_PRIOR))
        return Pairs(*np.hsplit(c, 2), *np.split(log_evidence - of_both, 2))

    def _given(self, others: FloatArray, white: FloatArray) -> tuple[FloatArray, FloatArray]:
        """All coordinates of draws of the others, as columns, and log evidences given these."""
        r, n_draws = self.inner.size, others.shape[1]
        c, logs = np.empty((r + self.others.size, n_draws)), np.empty(n_draws)
        c[self.others] = others
        factor, place = self.block.predictors.rows(), self.block.gaussian_in
        rows = factor[place :: self.block.width][:, self.inner]
        size = max(_LEAST_DRAWS, _AT_ONCE // max(r * max(r, len(rows)), 1))
        for some in (slice(i, i + size) for i in range(0, n_draws, size)):
            eta = (factor[:, self.others] @ others[:, some]).T
            with np.errstate(all="ignore"):
                _, slope, bend = self.block.expansion(eta)
                beyond = ~(np.isfinite(bend * (rows**2).sum(axis=1)).all(axis=1))
                bend[beyond], slope[beyond] = 0.0, 0.0
                back, log_det = _factorised(rows, bend)
                mean = times(back, times(back.swapaxes(1, 2), slope @ rows))
                # About this mean: far from it what is left would have no digits.
                eta.reshape(*slope.shape, -1)[..., place] += mean @ rows.T
                level, slope, _ = self.block.expansion(eta)
                pull = times(back.swapaxes(1, 2), slope @ rows - mean)
                log_evidence = level.sum(axis=1) + 0.5 * ((pull**2).sum(axis=1) - log_det)
                log_evidence -= 0.5 * (mean**2).sum(axis=1)
            logs[some] = np.where(beyond, np.nan, log_evidence)
            c[self.inner, some] = (mean + times(back, pull + white.T[some])).T
        return c, np.maximum(np.nan_to_num(logs, nan=_NOTHING, posinf=_NOTHING), _NOTHING)


def _factorised(rows: FloatArray, bend: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Of :math:`P = I + F^\top \mathrm{diag}(\tau) F = L L^\top` the inverse of L', and log |P|.

    By Cholesky of a unit diagonal, whatever the units are. Where that fails, beside a diagonal so
    large that the identity is lost in it, by QR of the rows, of whose roots less is lost.
    """
    r = rows.shape[1]
    precision = np.broadcast_to(np.eye(r).ravel(), (len(bend), r * r)).copy()
    for some in slices_of(len(rows), _AT_ONCE // r**2):  # products of many draws are one
        own = rows[some]
        precision += bend[:, some] @ (own[:, :, None] * own[:, None]).reshape(len(own), -1)
    precision = precision.reshape(-1, r, r)
    scale = np.sqrt(precision.diagonal(axis1=1, axis2=2))
    precision /= scale[:, :, None] * scale[:, None, :]
    precision += _RIDGE * np.eye(r)
    large = np.zeros(len(scale), dtype=bool)
    try:
        chol = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        large = scale.max(axis=1) > _LARGE
        precision[large] = np.eye(r)
        chol = np.linalg.cholesky(precision)
    log_det = 2.0 * np.log(scale * chol.diagonal(axis1=1, axis2=2)).sum(axis=1)
    back = _inverse(chol).swapaxes(1, 2) / scale[:, :, None]
    if large.any():
        tall = np.sqrt(np.maximum(bend[large], 0.0))[:, :, None] * rows
        eye = np.broadcast_to(np.eye(r), (len(tall), r, r))
        upper = np.linalg.qr(np.concatenate([tall, eye], axis=1), mode="r")
        log_det[large] = 2.0 * np.log(np.abs(upper.diagonal(axis1=1, axis2=2))).sum(axis=1)
        back[large] = np.linalg.inv(upper)
    return back, log_det


def _inverse(lower: FloatArray) -> FloatArray:
    """Of lower triangular matrices, by halves: NumPy knows no triangles, and takes three times."""
    half = lower.shape[1] // 2
    if half < _FEW:
        return np.linalg.inv(lower)
    found = np.zeros_like(lower)
    found[:, :half, :half] = first = _inverse(lower[:, :half, :half])
    found[:, half:, half:] = last = _inverse(lower[:, half:, half:])
    found[:, half:, :half] = -(last @ lower[:, half:, :half]) @ first
    return found


def conditional_pairs(block: SeveralBlock, gaussian: CoordinateGaussian) -> ConditionalPairs | None:
    """From EP's Gaussian; None where no predictor has Gaussian factors and own coordinates."""
    factor, k, place = block.predictors.rows(), block.width, block.gaussian_in
    if place is None:
        return None
    moves = np.array([(factor[i::k] != 0.0).any(axis=0) for i in range(k)])
    alone = moves[place] & (moves.sum(axis=0) == 1)
    if alone.all() or not alone.any():
        return None
    inner, others = np.flatnonzero(alone), np.flatnonzero(~alone)
    spread = gaussian.spread[others]
    # Of these alone: a root of the precision of their marginal.
    chol = np.linalg.cholesky(np.linalg.inv(spread @ spread.T))
    of_others = CoordinateGaussian(gaussian.mean[others], chol)
    return ConditionalPairs(block, of_others, inner, others)


# Pairs under factors of several predictors weigh less alike: so many times as many take less time
# than to temper, and their error is larger than what tails hold that they miss.
_SEVERAL = replace(DEFAULT, large=0, accept_large=0.1)
_MOST_UNSEEN, _MORE, _MORE_OTHERS = 0.02, 8, 4


def block_sampler(gaussian: CoordinateGaussian, blocks: Blocks) -> SiteSampler:
    """Pairs from EP's Gaussian under factors in blocks, and tempering where these are too few."""
    every = blocks.blocks if isinstance(blocks, LocalBlocks) else []
    several = [x for x in every if isinstance(x, SeveralBlock)]
    found = conditional_pairs(several[0], gaussian) if several and len(every) == 1 else None
    if found:
        return SiteSampler(found, _SEVERAL, _MOST_UNSEEN, _MORE_OTHERS, by_tails=True)
    proposal = BlockPairs(gaussian, blocks).with_modes()
    if isinstance(gaussian, FieldGaussian):
        return FieldSampler(proposal)
    if several:
        is_coupled = any(x.n_rows == 1 for x in several)
        return SiteSampler(proposal, _SEVERAL, _MOST_UNSEEN, _MORE, not is_coupled)
    return SiteSampler(proposal)
