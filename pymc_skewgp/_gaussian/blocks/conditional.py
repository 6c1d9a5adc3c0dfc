r"""Pairs under factors that are Gaussian in one of their predictors, given the others.

Such is the mean of values whose standard deviation has a predictor of its own. With
:math:`p(y_i \mid \eta_i) = \exp(l_i + b_i \eta_{i1} - \tau_i \eta_{i1}^2 / 2)`, where l, b and tau
are functions of the other predictors, coordinates :math:`c_1` of the first predictor alone are
integrated out given the others, :math:`c_2`, and drawn given these:

.. math:: \int \prod_i p(y_i \mid \eta_i)\, N(c_1; 0, I)\, dc_1 = |P|^{-1/2}
    \exp\Bigl(\sum_i l_i + \tfrac12 \beta^\top P^{-1} \beta\Bigr), \quad
    P = I + F_1^\top \mathrm{diag}(\tau) F_1, \quad \beta = F_1^\top b

(Rao-Blackwellisation; Casella & Robert 1996, doi:10.1093/biomet/83.1.81). Of the weights of joint
draws those of :math:`c_2` are left, which come in mirrored pairs from EP's Gaussian, from one of
their marginal's mode where EP's is narrower than that or far off, and some from the prior, which
bounds the weights (Owen & Zhou 2000, doi:10.1080/01621459.2000.10473909).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from pymc_skewgp._gaussian.blocks.ep import Blocks, LocalBlocks
from pymc_skewgp._gaussian.blocks.own_effects import OwnEffects
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.sequential import FieldPairs, FieldSampler
from pymc_skewgp._gaussian.blocks.several import SeveralBlock
from pymc_skewgp._gaussian.compiled.rows import factorise, solve
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.escalation import DEFAULT
from pymc_skewgp._gaussian.pairs import DrawnInPairs, Pairs
from pymc_skewgp._gaussian.sparse import FieldGaussian
from pymc_skewgp._validation import FloatArray

# Share of draws of c_2 that are of the prior.
_OF_PRIOR = 0.1
# Log weight of draws of the prior that are beyond double precision: no end of the likelihood. Size
# of the terms of a log evidence from which on their sum is round-off.
_NOTHING, _LOST = -1e300, 1e12
# Of a correlation matrix, which makes it regular; root of a diagonal that the identity is lost in.
_RIDGE, _LARGE = 1e-15, 1e6
# Of the largest singular value: directions that move a predictor by round-off alone.
_RANK = 1e-10
# Newton steps to the mode of the marginal, halvings of one, what a step gains at least, and the
# least precision of its Gaussian, beside the prior's of 1.
_STEPS, _HALVINGS, _SHORT, _LEAST_BEND = 20, 10, 1e-3, 0.25
# Deviations of EP's Gaussian that the mode is far off, and the share of its precision that is less.
_FAR_OFF, _NARROW = 1.0, 0.7
# Numbers of the precisions of draws at a time, which stay in the cache, and these at least.
_AT_ONCE, _LEAST_DRAWS = 2**17, 32


@dataclass(frozen=True)
class ConditionalPairs(DrawnInPairs):
    """Pairs of all coordinates, of which some are drawn given the others.

    Attributes
    ----------
    block : SeveralBlock
        After EP.
    others_of : tuple of CoordinateGaussian
        EP's of the others, and one of their marginal's mode where EP's is unlike it.
    inner, others : ndarray, shape (r, d) and (r, r - d)
        Orthonormal directions of coordinates that are drawn given the others, and of these.
    """

    block: SeveralBlock
    others_of: tuple[CoordinateGaussian, ...]
    inner: FloatArray
    others: FloatArray

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
        return len(self.inner) + 2

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the evidence from tails that so many draws hardly meet."""
        return float(np.sqrt(self.block.missing(n_draws, self.block.gaussian_in, _OF_PRIOR)))

    def pairs(self, points: FloatArray) -> Pairs:
        """See `DrawnInPairs`."""
        m, k = self.others.shape[1], len(self.others_of)
        white, inner = ndtri(points[:m]), ndtri(points[m:-2])
        # Of each Gaussian as many draws as of the others; the last are of the prior.
        part = np.floor((points[-2] - _OF_PRIOR) / (1.0 - _OF_PRIOR) * k)
        off, centre = white.copy(), np.zeros(white.shape)
        for i, q in enumerate(self.others_of):
            own = part == i
            off[:, own], centre[:, own] = q.spread @ white[:, own], q.mean[:, None]
        both = np.hstack([centre + off, centre - off])
        c, log_evidence = self.given(both, np.hstack([inner, -inner]))
        log_share = np.log((1.0 - _OF_PRIOR) / k)
        of_all = np.full(both.shape[1], np.log(_OF_PRIOR))
        for q in self.others_of:
            of_all = np.logaddexp(of_all, log_share + q.log_over_prior(both))
        return Pairs(*np.hsplit(c, 2), *np.split(log_evidence - of_all, 2))

    def given(self, others: FloatArray, white: FloatArray) -> tuple[FloatArray, FloatArray]:
        """All coordinates of draws of the others, as columns, and log evidences given these."""
        r, n_draws = self.inner.shape[1], others.shape[1]
        c, logs = self.others @ others, np.empty(n_draws)
        factor, place = self.block.predictors.rows(), self.block.gaussian_in
        rows, factor = factor[place :: self.block.width] @ self.inner, factor @ self.others
        size = max(_LEAST_DRAWS, _AT_ONCE // max(r * r, 1))
        for some in (slice(i, i + size) for i in range(0, n_draws, size)):
            eta = (factor @ others[:, some]).T
            with np.errstate(all="ignore"):
                slope, bend = self.block.bends_given(eta)
                beyond = ~(np.isfinite(bend * (rows**2).sum(axis=1)).all(axis=1))
                bend[beyond], slope[beyond] = 0.0, 0.0
                chol, log_det = _factorised(rows, bend)
                mean = _solved(chol, _solved(chol, slope @ rows), transposed=True)
                # About this mean: far from it what is left would have no digits.
                eta.reshape(*slope.shape, -1)[..., place] += mean @ rows.T
                level, slope = self.block.levels_given(eta)
                pull = _solved(chol, slope @ rows - mean)
                log_evidence = level.sum(axis=1) + 0.5 * ((pull**2).sum(axis=1) - log_det)
                log_evidence -= 0.5 * (mean**2).sum(axis=1)
                lost = ~(np.abs(level).sum(axis=1) + (pull**2).sum(axis=1) < _LOST)
            logs[some] = np.where(beyond | lost, np.nan, log_evidence)
            drawn = _solved(chol, pull + white.T[some], transposed=True)
            c[:, some] += self.inner @ (mean + drawn).T
        return c, np.maximum(np.nan_to_num(logs, nan=_NOTHING, posinf=_NOTHING), _NOTHING)


def _factorised(rows: FloatArray, bend: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Of :math:`P = I + F^\top \mathrm{diag}(\tau) F = L L^\top` L, and log |P|.

    Where Cholesky fails, beside a diagonal so large that the identity is lost in it, by QR of the
    rows, of whose roots less is lost.
    """
    r = rows.shape[1]
    chol, log_det = np.empty((len(bend), r, r)), np.empty(len(bend))
    factorise(np.ascontiguousarray(rows), np.ascontiguousarray(bend), _RIDGE, chol, log_det)
    lost = np.isnan(log_det)
    if lost.any():
        size = 1.0 + bend[lost] @ rows**2
        if not (size.max(axis=1) > _LARGE**2).all():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        tall = np.sqrt(np.maximum(bend[lost], 0.0))[:, :, None] * rows
        eye = np.broadcast_to(np.eye(r), (len(tall), r, r))
        upper = np.linalg.qr(np.concatenate([tall, eye], axis=1), mode="r")
        log_det[lost] = 2.0 * np.log(np.abs(upper.diagonal(axis1=1, axis2=2))).sum(axis=1)
        chol[lost] = upper.swapaxes(1, 2)
    return chol, log_det


def _solved(chol: FloatArray, x: FloatArray, *, transposed: bool = False) -> FloatArray:
    """Of each L, L^-1 x or L'^-1 x."""
    found = x.copy()
    solve(chol, found, transposed)
    return found


def conditional_pairs(
    block: SeveralBlock, gaussian: CoordinateGaussian, searches: bool = True
) -> ConditionalPairs | None:
    """From EP's Gaussian; None where no predictor has Gaussian factors and own coordinates.

    If `searches`, from the marginal's mode too, where EP's Gaussian of it is unlike that.
    """
    if block.gaussian_in is None:
        return None
    inner, others = _apart(block.predictors.rows(), block.width, block.gaussian_in)
    if not (inner.size and others.size):
        return None
    spread = others.T @ gaussian.spread
    # Of these alone: a root of the precision of their marginal.
    chol = np.linalg.cholesky(np.linalg.inv(spread @ spread.T))
    of_others = CoordinateGaussian(others.T @ gaussian.mean, chol)
    found = ConditionalPairs(block, (of_others,), inner, others)
    mode = _Marginal(found).unlike(of_others) if searches else None
    return found if mode is None else replace(found, others_of=(of_others, mode))


def _apart(factor: FloatArray, k: int, place: int) -> tuple[FloatArray, FloatArray]:
    """Directions that move one of k predictors alone, and the others; of a correlated one too."""
    moves = np.array([(factor[i::k] != 0.0).any(axis=0) for i in range(k)])
    alone, every = moves[place] & (moves.sum(axis=0) == 1), np.eye(factor.shape[1])
    if not alone.any():
        rest = np.delete(factor.reshape(-1, k, len(every)), place, axis=1).reshape(-1, len(every))
        _, sizes, turned = np.linalg.svd(rest, full_matrices=len(rest) < len(every))
        every = turned.T
        alone = np.arange(len(every)) >= (sizes > _RANK * sizes[0]).sum()
    return every[:, alone], every[:, ~alone]


class _Marginal:
    """Log density of :math:`c_2`, the rest integrated out.

    Its derivatives are by the identities of Fisher and of Louis (1982,
    doi:10.1111/j.2517-6161.1982.tb01203.x): slopes of log p in the other predictors are quadratic
    in the first one, which is Gaussian given these.
    """

    def __init__(self, pairs: ConditionalPairs) -> None:
        self._pairs, self._block = pairs, pairs.block
        factor, k = pairs.block.predictors.rows(), pairs.block.width
        self._of_others = (factor @ pairs.others).reshape(-1, k, pairs.others.shape[1])
        self._rows = factor[pairs.block.gaussian_in :: k] @ pairs.inner

    def at(self, c: FloatArray) -> tuple[float, FloatArray]:
        """Its value, but for a constant, and all coordinates, the others at their mean."""
        found, log_evidence = self._pairs.given(c[:, None], np.zeros((len(self._rows[0]), 1)))
        return float(log_evidence[0] - 0.5 * c @ c), found[:, 0]

    def slopes(self, found: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient, and minus the second derivatives, where `found` are those coordinates."""
        place, k = self._block.gaussian_in, self._block.width
        c, others = self._pairs.others.T @ found, [i for i in range(k) if i != place]
        middle = (self._block.predictors.rows() @ found).reshape(-1, k)
        bend = self._block.bends_given(middle.reshape(1, -1))[1]
        root = solve_triangular(_factorised(self._rows, bend)[0][0], self._rows.T, lower=True)
        cov = root.T @ root
        step = np.sqrt(3.0 * cov.diagonal())
        eta = np.repeat(middle[None], 3, axis=0)
        eta[:, :, place] += step * np.array([[-1.0], [0.0], [1.0]])
        first, second = self._block.slopes(eta)
        shares = np.array([1.0, 4.0, 1.0]) / 6.0  # of three nodes of Gauss and Hermite
        rows = self._of_others[:, others]
        gradient = np.einsum("s,sni,nip->p", shares, first[:, :, others], rows) - c
        own = np.einsum("s,snij->nij", shares, second[:, :, others][..., others])
        bends = np.eye(c.size) - np.einsum("nip,nij,njq->pq", rows, own, rows)
        # How slopes go with the first predictor, and with its square.
        along = second[:, :, others, place]
        bow = (along[2] - along[0]) / (2.0 * np.maximum(step, 1e-300)[:, None])
        tilt, bow = (np.einsum("ni,nip->np", x, rows) for x in (along[1], bow))
        return gradient, bends - tilt.T @ cov @ tilt - 0.5 * bow.T @ cov**2 @ bow

    def unlike(self, q: CoordinateGaussian) -> CoordinateGaussian | None:
        """The Gaussian of its curvature at its mode, where q is narrower or far from it.

        EP's is where a mean goes with its standard deviation: values that are equal at one place
        have a spike between them, which no Gaussian of both is like. None else, and where there are
        no numbers.
        """
        c = q.mean
        value, found = self.at(c)
        for i in range(_STEPS):
            gradient, bends = self.slopes(found)
            if not (np.isfinite(value) and np.isfinite(bends).all()):
                return None
            if i == 0 and np.abs(q.spread.T @ gradient).max() < _FAR_OFF:
                narrow = np.linalg.eigvalsh(q.spread.T @ bends @ q.spread)[0] < _NARROW
                if not narrow:
                    return None
            values, vectors = np.linalg.eigh(bends)
            values = np.maximum(values, _LEAST_BEND)
            step = vectors @ ((vectors.T @ gradient) / values)
            if step @ gradient < _SHORT:
                break
            for _ in range(_HALVINGS):
                trial, moved = self.at(c + step)
                if trial > value:
                    break
                step *= 0.5
            else:
                break
            c, value, found = c + step, trial, moved
        return CoordinateGaussian(c, np.linalg.cholesky((vectors * values) @ vectors.T))


# Pairs under factors of several predictors weigh less alike: so many times as many take less time
# than to temper, and their error is larger than what tails hold that they miss.
_SEVERAL = replace(DEFAULT, large=0, accept_large=0.1)
_MOST_UNSEEN, _MORE, _MORE_OTHERS = 0.02, 8, 4
# Coordinates that one factor may couple where pairs fail: along a chain of parabolas tempered
# evidences of three were within their errors, one of four 2 beyond, and one of five 7. Gradients do
# not help: chains of NUTS in these coordinates had half the deviations, of 78 effective draws.
_MOST_TEMPERED = 3


def block_sampler(
    gaussian: CoordinateGaussian, blocks: Blocks, searches: bool = True
) -> SiteSampler:
    """Pairs from EP's Gaussian under factors in blocks, and tempering where these are too few.

    And from other modes, if `searches` for them.
    """
    every = blocks.blocks if isinstance(blocks, LocalBlocks) else []
    several = [x for x in every if isinstance(x, SeveralBlock)]
    one = several and len(every) == 1
    found = conditional_pairs(several[0], gaussian, searches) if one else None
    if found:
        return SiteSampler(found, _SEVERAL, _MOST_UNSEEN, _MORE_OTHERS, by_tails=True)
    if isinstance(gaussian, FieldGaussian):
        own = OwnEffects.of(gaussian, every)
        if own:
            return FieldSampler(FieldPairs(own.gaussian, LocalBlocks(own.blocks)), own=own)
        field = FieldPairs(gaussian, blocks)
        return FieldSampler(field.with_modes() if searches else field)
    proposal: Any = BlockPairs(gaussian, blocks)
    proposal = proposal.with_modes() if searches else proposal
    if several:
        is_coupled = any(x.n_rows == 1 and x.width > _MOST_TEMPERED for x in several)
        return SiteSampler(proposal, _SEVERAL, _MOST_UNSEEN, _MORE, not is_coupled)
    return SiteSampler(proposal)


def is_alone(sampler: SiteSampler) -> bool:
    """Whether draws are from EP's Gaussian, and from nothing beside it."""
    found = sampler.proposal
    if isinstance(found, ConditionalPairs):
        return len(found.others_of) == 1
    return isinstance(found, BlockPairs)
