r"""Log evidence of many rows plus log prior as a function of a point, by inducing points.

With f of finite rank, :math:`\Phi = k(X, Z) L^{-\top}`, EP's evidence is stationary in its sites.
So its gradient is that in the blocks of Phi and of what is left of the variances, carried on to the
kernel block by block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._errors import DoublePrecisionError, no_warnings
from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.blocks.blocks import LocalBlocks
from pymc_skewgp._gaussian.blocks.ep import BlockEP, fit_blocks
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.compiled import Batch, CompiledLogPrior, CompiledValues
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point, Value
from pymc_skewgp._learn.rows.compiled_rows import CompiledRows, Moments
from pymc_skewgp._posterior.approximations.inducing import NUGGET, whitened, with_nugget
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._validation import FloatArray

# EP's residual over all rows; the evidence is off by its square.
_TOLERANCE = 1e-2
_MOST_SWEEPS, _LARGEST_RESIDUAL = 60, 1.0


class _Fit(NamedTuple):
    """EP at a point.

    Attributes
    ----------
    factor : ndarray, shape (r, r)
        L of the inducing points.
    blocks : list of RowBlock
    clipped : list of ndarray of bool
        In which rows of each block nothing of the variance is left.
    log_constant : float
    ep : BlockEP
    """

    factor: FloatArray
    blocks: list[RowBlock]
    clipped: list[NDArray[np.bool_]]
    log_constant: float
    ep: BlockEP

    @property
    def log_evidence(self) -> float:
        """By EP."""
        return self.ep.log_prob + self.log_constant


@dataclass(frozen=True, eq=False)
class RowsObjective:
    """What `Objective` is for few rows, by expectation propagation alone.

    Attributes
    ----------
    coordinates : Coordinates
    compiled : CompiledRows
    prior : CompiledLogPrior
    values : CompiledValues
    blocks : list of tuples of arrays
        The data of each block of rows.
    points : ndarray, shape (r, d)
        Inducing points, the same at every point of the search.
    sites : list of ndarray, shape (2, n)
        Of each block: EP begins where it has ended last.
    """

    coordinates: Coordinates
    compiled: CompiledRows
    prior: CompiledLogPrior
    values: CompiledValues
    blocks: Sequence[Batch]
    points: FloatArray
    sites: dict[int, FloatArray] = field(default_factory=dict)

    def on(self, blocks: Sequence[Batch], points: FloatArray) -> "RowsObjective":
        """The same for other data and inducing points, nothing compiled anew."""
        return replace(self, blocks=blocks, points=points, sites={})

    def log_prior(self, point: Point) -> float:
        """See `Objective`."""
        return self.prior(point)[0]

    def named(self, point: Point) -> dict[str, NDArray[Any]]:
        """See `Objective`."""
        return self.values(point)

    def terms_at(self, point: Point) -> Iterator[EvidenceTerms]:
        """There are no matrices of all rows."""
        return iter(())

    def by_ep(self, point: Point) -> Value:
        """Value and gradient with the evidence of expectation propagation."""
        nowhere = Value(-np.inf, -np.inf, np.zeros_like(point.x))
        log_prior, slopes = self.prior(point)
        known = self._fit(point) if np.isfinite(log_prior) else None
        if known is None:
            return nowhere
        gradient = [np.array(slope, dtype=np.float64) for slope in slopes]
        for part in self._parts(point, known):
            for sum_, own in zip(gradient, part, strict=True):
                sum_ += own
        flat = np.concatenate([np.ravel(g) for g in gradient] or [np.zeros(0)])
        if not np.isfinite(flat).all():
            return nowhere
        return Value(known.log_evidence + log_prior, known.log_evidence, flat)

    def estimate(self, point: Point, n_draws: int, seed: int) -> Estimate:
        """Log evidence with its error, by mirrored pairs from EP's Gaussian.

        Raises
        ------
        DoublePrecisionError
            Where EP has none.
        """
        known = self._fit(point)
        if known is None:
            raise DoublePrecisionError(
                "the marginal likelihood has no value at this point in double precision: check the "
                "priors and the scale of the inputs."
            )
        proposal = BlockPairs(known.ep.gaussian, LocalBlocks(known.blocks))
        draws = SiteSampler(proposal).members(n_draws, np.random.default_rng(seed))
        assert draws.log_prob is not None
        return draws.log_prob._replace(value=draws.log_prob.value + known.log_constant)

    def _fit(self, point: Point) -> _Fit | None:
        """EP at a point; None where double precision ends."""
        factor = self._factor(point)
        if factor is None:
            return None
        known = self._blocks(point, factor)
        if known is None:
            return None
        blocks, clipped, constant = known
        with no_warnings():
            ep = fit_blocks(LocalBlocks(blocks), tol=_TOLERANCE, max_sweeps=_MOST_SWEEPS)
        # Where EP goes round in circles the labels are as good as separated, far from any optimum.
        if not (np.isfinite(ep.log_prob) and ep.residual < _LARGEST_RESIDUAL):
            return None
        for i, block in enumerate(blocks):
            self.sites[i] = np.stack([block.tau, block.nu])
        return _Fit(factor, blocks, clipped, constant, ep)

    def _factor(self, point: Point) -> FloatArray | None:
        """L of the inducing points; None where double precision ends."""
        matrix = self.compiled.between(point, self.points)
        if not np.isfinite(matrix).all():
            return None
        factor, info = dpotrf(with_nugget(matrix), lower=1, clean=1)
        return None if info else np.asarray(factor)

    def _blocks(
        self, point: Point, factor: FloatArray
    ) -> tuple[list[RowBlock], list[NDArray[np.bool_]], float] | None:
        """Blocks at a point, in which rows nothing is left, and the sum of constants."""
        blocks, clipped, constant = [], [], 0.0
        for i, batch in enumerate(self.blocks):
            moments, limits, log_constant = self.compiled(point, batch, self.points)
            constant += log_constant
            if not (np.isfinite(log_constant) and np.isfinite(moments.cross).all()):
                return None
            phi = whitened(np.ascontiguousarray(moments.cross), factor)
            left = moments.variance - np.einsum("ij,ij->i", phi, phi)
            nothing = left <= 0.0
            clipped.append(nothing)
            variance = np.where(nothing, 0.0, left) + moments.noise
            if not (np.isfinite(variance).all() and np.isfinite(moments.mean).all()):
                return None
            lower, upper, value = (limit - moments.mean for limit in limits)
            sites = RowSites(lower, upper, value, variance)
            block = RowBlock(phi, sites)
            if i in self.sites:
                block.tau, block.nu = self.sites[i]
            blocks.append(block)
        return blocks, clipped, constant

    def _parts(self, point: Point, known: _Fit) -> Iterator[list[FloatArray]]:
        """The gradient's parts: of each block, then of the inducing points."""
        r, factor, gaussian = self.points.shape[0], known.factor, known.ep.gaussian
        in_factor = np.zeros((r, r))
        for batch, block, nothing in zip(self.blocks, known.blocks, known.clipped, strict=True):
            found = block.gradient(gaussian.mean, gaussian.spread)
            in_left = np.where(nothing, 0.0, found.noise)
            in_phi = found.factor
            in_phi -= (2.0 * in_left)[:, None] * block.factor
            in_factor -= in_phi.T @ block.factor
            cross = dtrsm(1.0, factor, in_phi.T, lower=1, trans_a=1, overwrite_b=1).T
            wrt = Moments(cross, in_left, found.offset, found.noise)
            yield self.compiled.pull_back(point, batch, self.points, wrt)
        in_factor = np.tril(solve_triangular(factor, in_factor, lower=True, trans=1))
        wrt_between = cholesky_adjoint(factor, in_factor)
        wrt_between[np.diag_indices(r)] += NUGGET / r * np.trace(wrt_between)
        yield self.compiled.pull_back_between(point, self.points, wrt_between)


def cholesky_adjoint(factor: FloatArray, wrt: FloatArray) -> FloatArray:
    """Gradient in a symmetric matrix from that in its lower Cholesky factor."""
    inner = np.tril(factor.T @ wrt)
    inner[np.diag_indices_from(inner)] *= 0.5
    half = solve_triangular(factor, inner, lower=True, trans=1)
    found = solve_triangular(factor, half.T, lower=True, trans=1)
    return np.asarray(0.5 * (found + found.T))
