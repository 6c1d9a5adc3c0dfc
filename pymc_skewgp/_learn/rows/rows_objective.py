r"""Log evidence of many rows plus log prior as a function of a point, f having finite rank.

EP's evidence is stationary in its sites. So its gradient is that in the features of f, in what they
leave of its variances and in the numbers that sites are made of, block by block, each carried on to
the model's variables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._errors import DoublePrecisionError, no_warnings
from pymc_skewgp._gaussian.blocks.blocks import LocalBlocks
from pymc_skewgp._gaussian.blocks.ep import BlockEP, fit_blocks, gaussian_of
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.compiled import CompiledLogPrior, CompiledValues
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Pattern, Point, Value
from pymc_skewgp._learn.rows.block_at import BlockAt, BlockOfData
from pymc_skewgp._learn.rows.functions_at import Functions, FunctionsAt
from pymc_skewgp._learn.rows.prior_at import PriorAt, PriorFamily, PriorRows
from pymc_skewgp._learn.rows.signs_block import SignsAt, SignsBlock
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._posterior.hard_rows import joined
from pymc_skewgp._validation import FloatArray

# EP's residual over all rows; the evidence is off by its square.
_TOLERANCE = 1e-2
_DIFFERENCE_TOLERANCE = 1e-4  # behind differences of gradients
_MOST_SWEEPS, _LARGEST_RESIDUAL = 120, 1.0
# Inputs at which the kernel is evaluated at once: what they take stays in the cache.
_INPUTS_AT_ONCE = 4096


class _Part(NamedTuple):
    """A block of data at a point: f at its inputs, and its predictors with their sites."""

    prior: PriorRows
    data: BlockAt


class _Fit(NamedTuple):
    """EP at a point.

    Attributes
    ----------
    prior : PriorAt
    functions : FunctionsAt
    parts : list of _Part
        That of the signs, where there are any, last.
    log_constant : float
    ep : BlockEP
    """

    prior: PriorAt
    functions: FunctionsAt
    parts: list[_Part]
    log_constant: float
    ep: BlockEP

    @property
    def proposal(self) -> BlockPairs:
        """Of coordinates, rows with next to no noise first."""
        found = [(part.data.block, part.data.hard()) for part in self.parts]
        blocks = LocalBlocks([block for block, hard in found if hard is None])
        # Signs come first.
        rows = joined([hard for _, hard in reversed(found) if hard is not None])
        if rows is None:
            return BlockPairs(self.ep.gaussian, blocks)
        gaussian = gaussian_of(blocks.total("sums"))
        return BlockPairs(gaussian, blocks, rows.given(gaussian))

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
    process : PriorFamily
    functions : Functions
    signs : SignsBlock or None
    prior : CompiledLogPrior
    values : CompiledValues
    blocks : sequence of BlockOfData
    basis : object
        Inducing points, or the box of a spectral basis: the same at every point of the search.
    tolerance : float
        Of EP.
    sites : dict
        Of each block, shape (2, n): EP begins where it has ended last.
    """

    coordinates: Coordinates
    process: PriorFamily
    functions: Functions
    signs: SignsBlock | None
    prior: CompiledLogPrior
    values: CompiledValues
    blocks: Sequence[BlockOfData]
    basis: Any
    tolerance: float = _TOLERANCE
    sites: dict[int, FloatArray] = field(default_factory=dict)

    def on(self, blocks: Sequence[BlockOfData], basis: Any) -> "RowsObjective":
        """The same for other data and another basis, nothing compiled anew."""
        return replace(self, blocks=blocks, basis=basis, sites={})

    def for_differences(self) -> "RowsObjective":
        """The same by a finer EP, for differences of its gradients."""
        return replace(self, tolerance=_DIFFERENCE_TOLERANCE)

    def log_prior(self, point: Point) -> float:
        """See `Objective`."""
        return self.prior.value(point)

    def log_prior_at(self, x: FloatArray, pattern: Pattern) -> tuple[FloatArray, FloatArray]:
        """As `log_prior` at many rows, with gradients."""
        return self.prior.at_rows(x, pattern)

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
        for part in self._parts_of_gradient(point, known):
            for sum_, own in zip(gradient, part, strict=True):
                sum_ += own
        flat = np.concatenate([np.ravel(g) for g in gradient] or [np.zeros(0)])
        if not np.isfinite(flat).all():
            return nowhere
        return Value(known.log_evidence + log_prior, known.log_evidence, flat)

    def total_by_ep(self, point: Point) -> tuple[float, float]:
        """See `Objective`."""
        log_prior = self.log_prior(point)
        known = self._fit(point) if np.isfinite(log_prior) else None
        if known is None:
            return -np.inf, -np.inf
        return known.log_evidence + log_prior, known.log_evidence

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
        proposal = known.proposal
        draws = SiteSampler(proposal).members(n_draws, np.random.default_rng(seed))
        assert draws.log_prob is not None
        found = draws.log_prob._replace(value=draws.log_prob.value + known.log_constant)
        own = known.parts[-1].data
        return own.with_error(found, n_draws) if isinstance(own, SignsAt) else found

    def _fit(self, point: Point) -> _Fit | None:
        """EP at a point; None where double precision ends."""
        prior, functions = self.process.at(point, self.basis), self.functions.at(point)
        if prior is None or functions is None:
            return None
        parts, constant = [], 0.0
        for i, data in enumerate(self._all_blocks):
            part = _part_at(data, prior, functions, point)
            if part is None:
                return None
            constant += part.data.log_constant
            if i in self.sites:
                part.data.block.tau, part.data.block.nu = self.sites[i]
            parts.append(part)
        blocks = LocalBlocks([part.data.block for part in parts])
        with no_warnings():
            ep = fit_blocks(blocks, tol=self.tolerance, max_sweeps=_MOST_SWEEPS)
        # Where EP goes round in circles the labels are as good as separated, far from any optimum.
        if not (np.isfinite(ep.log_prob) and ep.residual < _LARGEST_RESIDUAL):
            return None
        for i, part in enumerate(parts):
            self.sites[i] = np.stack([part.data.block.tau, part.data.block.nu])
        return _Fit(prior, functions, parts, constant, ep)

    @property
    def _all_blocks(self) -> Sequence[BlockOfData]:
        """Of data and signs."""
        return self.blocks if self.signs is None else [*self.blocks, self.signs]

    def _parts_of_gradient(self, point: Point, known: _Fit) -> Iterator[Sequence[FloatArray]]:
        """Of each block, then of what all blocks have in common."""
        gaussian = known.ep.gaussian
        for data, part in zip(self._all_blocks, known.parts, strict=True):
            wrt, own = part.data.gradient(gaussian.mean, gaussian.spread)
            if own is not None:
                yield own
            for rows in _slices(data.X.shape[0]):
                at, by = (PriorRows(*(x[rows] for x in y)) for y in (part.prior, wrt))
                yield known.prior.pull_back(data.X[rows], at, by, data.of)
        yield known.prior.pull_back_common()
        of_functions = self.functions.pull_back(point, known.functions)
        if of_functions is not None:
            yield of_functions


def _part_at(
    data: BlockOfData, prior: PriorAt, functions: FunctionsAt, point: Point
) -> _Part | None:
    """A block at a point; None where double precision ends."""
    pieces = [prior.rows(data.X[rows], data.of) for rows in _slices(data.X.shape[0])]
    if not all(piece.finite for piece in pieces):
        return None
    of_f = pieces[0]
    if len(pieces) > 1:
        of_f = PriorRows(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    found = data.at(point, of_f, functions)
    return None if found is None else _Part(of_f, found)


def _slices(n: int) -> list[slice]:
    return [slice(i, i + _INPUTS_AT_ONCE) for i in range(0, n, _INPUTS_AT_ONCE)]
