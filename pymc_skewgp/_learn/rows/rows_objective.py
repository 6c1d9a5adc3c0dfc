r"""Log evidence of many rows plus log prior as a function of a point, f having finite rank.

EP's evidence is stationary in its sites. So its gradient is that in the features of f, in what they
leave of its variances and in the numbers that sites are made of, block by block, each carried on to
the model's variables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._errors import DoublePrecisionError, no_warnings
from pymc_skewgp._gaussian.blocks.ep import BlockEP, fit_blocks
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.compiled import CompiledLogPrior, CompiledValues
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Pattern, Point, Value
from pymc_skewgp._learn.rows.block_at import BlockOfData
from pymc_skewgp._learn.rows.latent_at import Latent
from pymc_skewgp._learn.rows.rows_at import Rows, RowsAt, RowsHere
from pymc_skewgp._learn.rows.signs_block import SignsBlock
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._posterior.factor_terms import FactorTerms
from pymc_skewgp._validation import FloatArray

# EP's residual over all rows; the evidence is off by its square.
_TOLERANCE = 1e-2
_DIFFERENCE_TOLERANCE = 1e-4  # behind differences of gradients
_MOST_SWEEPS, _LARGEST_RESIDUAL = 120, 1.0


@dataclass(frozen=True, eq=False)
class RowsObjective:
    """What `Objective` is for few rows, by expectation propagation alone.

    Attributes
    ----------
    coordinates : Coordinates
    latent : Latent
        The same basis at every point of the search.
    signs : SignsBlock or None
    prior : CompiledLogPrior
    values : CompiledValues
    rows : Rows
        The data.
    tolerance : float
        Of EP.
    """

    coordinates: Coordinates
    latent: Latent
    signs: SignsBlock | None
    prior: CompiledLogPrior
    values: CompiledValues
    rows: Rows
    tolerance: float = _TOLERANCE

    @property
    def density_one(self) -> tuple[str, ...]:
        """See `Objective`."""
        return ()

    def why_no_value(self, point: Point) -> str | None:
        """See `Objective`."""
        return None

    def on(self, blocks: Sequence[BlockOfData], basis: Any) -> "RowsObjective":
        """The same for other data and another basis, nothing compiled anew."""
        latent = replace(self.latent, basis=basis)
        return self.of(RowsHere(latent, blocks, self.signs), latent)

    def of(self, rows: Rows, latent: Latent) -> "RowsObjective":
        """The same of rows that are of this latent process, wherever they are."""
        return replace(self, rows=rows, latent=latent)

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

    def terms_at(self, point: Point) -> Iterator[EvidenceTerms | FactorTerms]:
        """There are no matrices of all rows."""
        return iter(())

    def by_ep(self, point: Point) -> Value:
        """Value and gradient with the evidence of expectation propagation."""
        nowhere = Value(-np.inf, -np.inf, np.zeros_like(point.x))
        log_prior, slopes = self.prior(point)
        known = self.rows.evaluate(point, self._with_gradient) if np.isfinite(log_prior) else None
        if known is None:
            return nowhere
        log_evidence, gradient = known
        total = [np.asarray(x) + y for x, y in zip(slopes, gradient, strict=True)]
        flat = np.concatenate([np.ravel(x) for x in total] or [np.zeros(0)])
        if not np.isfinite(flat).all():
            return nowhere
        return Value(log_evidence + log_prior, log_evidence, flat)

    def total_by_ep(self, point: Point) -> tuple[float, float]:
        """See `Objective`."""
        log_prior = self.log_prior(point)
        known = self.rows.evaluate(point, self._log_evidence) if np.isfinite(log_prior) else None
        return (-np.inf, -np.inf) if known is None else (known + log_prior, known)

    def estimate(self, point: Point, n_draws: int, seed: int) -> Estimate:
        """Log evidence with its error, by mirrored pairs from EP's Gaussian.

        Raises
        ------
        DoublePrecisionError
            Where EP has none.
        """

        def by_pairs(rows: RowsAt) -> Estimate | None:
            ep = self._fit(rows)
            if ep is None:
                return None
            draws = SiteSampler(rows.proposal(ep.gaussian)).members(
                n_draws, np.random.default_rng(seed)
            )
            assert draws.log_prob is not None
            return rows.of_data(draws.log_prob, n_draws)

        found = self.rows.evaluate(point, by_pairs)
        if found is None:
            raise DoublePrecisionError(
                "the marginal likelihood has no value at this point in double precision: check the "
                "priors and the scale of the inputs."
            )
        return found

    def _fit(self, rows: RowsAt) -> BlockEP | None:
        """EP of the rows at a point; None where double precision ends."""
        with no_warnings():
            ep = fit_blocks(rows, tol=self.tolerance, max_sweeps=_MOST_SWEEPS)
        # Where EP goes round in circles the labels are as good as separated, far from any optimum.
        if not (np.isfinite(ep.log_prob) and ep.residual < _LARGEST_RESIDUAL):
            return None
        rows.keep()
        return ep

    def _log_evidence(self, rows: RowsAt) -> float | None:
        ep = self._fit(rows)
        return None if ep is None else ep.log_prob + rows.log_constant

    def _with_gradient(self, rows: RowsAt) -> tuple[float, tuple[FloatArray, ...]] | None:
        ep = self._fit(rows)
        if ep is None:
            return None
        return ep.log_prob + rows.log_constant, rows.gradient(ep.gaussian)
