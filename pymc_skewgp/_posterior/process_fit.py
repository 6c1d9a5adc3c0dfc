"""A process conditioned on data, its sampler fitted once: what every answer is computed from."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.repeats import equal_rows
from pymc_skewgp._observations.values import Values
from pymc_skewgp._posterior.conditioning import Conditioning, Regression
from pymc_skewgp._posterior.contradiction import refuse_contradictory_constraints
from pymc_skewgp._posterior.function_fit import FunctionFit
from pymc_skewgp._posterior.latent import draw_latent, equal_draws
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.site_fit import SiteFit
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, Seed


class ProcessFit(FunctionFit):
    """Functions given data that are rows: the latent vector is u, within its rectangle.

    Parameters
    ----------
    prior : Prior
        Of each function.
    parts : sequence of Values
        What the data are about.
    observations : Observations
        Rows of these values.
    constrained : ndarray of bool, shape (m,)
        Which of them are constraints, which may contradict each other or the data.
    """

    def __init__(
        self,
        prior: Prior,
        parts: Sequence[Values],
        observations: Observations,
        constrained: NDArray[np.bool_],
    ) -> None:
        super().__init__(prior, parts)
        self._constrained = constrained[~observations.is_point]
        self._observations = observations

    @cached_property
    def conditioning(self) -> Conditioning:
        """See `FunctionFit`."""
        return self._given(self._observations)

    @cached_property
    def sampler(self) -> RectangleSampler:
        """EP and proposals, which the evidence and all draws share."""
        given = self.conditioning
        sampler = RectangleSampler(given.cov, given.lower, given.upper)
        if self._constrained.any():
            rows = np.flatnonzero(self._constrained) + self.n_latent
            refuse_contradictory_constraints(sampler, rows, given.noise_variances[rows])
        return sampler

    def by_factors(self) -> FunctionFit:
        """See `FunctionFit`: rows drawn one by one would share a tail of f that all draws miss."""
        rows = self._observations
        equal = equal_rows(rows)
        given, few = None, rows
        if equal.first.size < rows.n_rows:
            chosen = np.zeros(rows.n_rows, dtype=bool)
            chosen[equal.first] = True
            few = replace(rows.rows(chosen), log_constant=rows.log_constant)
            given = self._given(few)
        elif rows.is_point.all():
            return self
        given = given or self.conditioning
        own = ~few.is_point
        every = np.zeros(rows.n_rows, dtype=bool)
        every[~rows.is_point] = self._constrained
        constrained = every[equal.first][own]
        left = constrained | (few.variances[own] <= 0.0)
        kept = np.concatenate([np.ones(self.n_latent, dtype=bool), left])
        counts = np.concatenate([np.ones(self.n_latent), equal.counts[own]])
        found = given.with_factors(counts, kept, self.n_latent)
        if found is None:
            return self
        fit = SiteFit(self._prior, self._parts, *found, constrained[left], self)
        return self if few is rows and fit.sampler.collapsed else fit

    @property
    def fitted(self) -> bool:
        """Whether EP and its proposal are there: what is asked next only draws from them."""
        return "sampler" in vars(self) and self.sampler.fitted

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Weighted draws of u."""
        count = n_draws if self.sampler.size else 1  # without u there is nothing to draw
        n_latent = self.n_latent
        return draw_latent(self.sampler, count, "twisted", random_seed, n_pseudo_points=n_latent)

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, IntArray]:
        """Draws of u, and which of them to take, `shape` being (chains, draws)."""
        n_latent = self.n_latent
        return equal_draws(self.sampler, shape, method, rng, n_pseudo_points=n_latent, thin=thin)

    def draw(
        self,
        latent: TruncatedDraws,
        chosen: IntArray,
        rng: np.random.Generator,
        rows: IntArray | None = None,
    ) -> FloatArray:
        """Draws of f at the data, all parts in a row, shape (chains, draws, q)."""
        f = self.conditioning.draw(latent.draws, rng, chosen.ravel(), skip=self.n_latent)
        if rows is not None:
            k = self.n_functions
            f = f[:, (k * rows[:, None] + np.arange(k)).ravel()]
        return f.reshape(*chosen.shape, -1)

    def _here(self, joint: bool, group: int) -> Regression:
        return self.conditioning.regression(skip=self.n_latent, joint=joint, group=group)

    def _there(
        self, mean: FloatArray, variance: FloatArray, cross: FloatArray, joint: bool = False
    ) -> Regression:
        return self.conditioning.regression_at(mean, variance, cross, joint=joint)

    def sun(self) -> SunParameters:
        """Of f at the data, one latent dimension for each row of u.

        Raises
        ------
        ValueError
            For observations with two finite limits.
        """
        given, s = self.conditioning, self.n_latent
        above = np.isposinf(given.upper)
        if not (above | np.isneginf(given.lower)).all():
            raise ValueError(
                "a SUN has one-sided latent limits, and some observations have two: use sample, "
                "predict or marginals."
            )
        side = np.where(above, 1.0, -1.0)
        factor, row_factor = given.factor[s:], side[:, None] * given.row_factor
        return SunParameters(
            given.mean[s:],
            factor @ factor.T,
            factor @ row_factor.T,
            np.where(above, -given.lower, given.upper),
            side[:, None] * given.cov.dense() * side,
        )
