"""A process conditioned on data, its sampler fitted once: what every answer is computed from."""

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.proposals.coordinates import RowKinds
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.samplers.repeated import RepeatedRowsSampler
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.repeats import RepeatedRows, repeated_rows
from pymc_skewgp._observations.values import Values
from pymc_skewgp._posterior.conditioning import Conditioning, Regression
from pymc_skewgp._posterior.contradiction import refuse_contradictory_constraints
from pymc_skewgp._posterior.function_fit import FunctionFit
from pymc_skewgp._posterior.latent import draw_latent, equal_draws
from pymc_skewgp._posterior.prior import Prior
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
        self._merges = not self._constrained.any()

    @cached_property
    def conditioning(self) -> Conditioning:
        """See `FunctionFit`; u has means of rows that repeat."""
        if self._merged is not None:
            return self._merged[0]
        return self._given(self._observations)

    @cached_property
    def sampler(self) -> RectangleSampler:
        """EP and proposals, which the evidence and all draws share."""
        if self._merged is not None:
            return self._merged[1]
        given = self.conditioning
        sampler = RectangleSampler(given.cov, given.lower, given.upper)
        if self._constrained.any():
            rows = np.flatnonzero(self._constrained) + self.n_latent
            refuse_contradictory_constraints(sampler, rows, given.noise_variances[rows])
        return sampler

    @cached_property
    def _merged(self) -> tuple[Conditioning, RepeatedRowsSampler] | None:
        """With rows that repeat as their means; None where that would not save time."""
        repeated = repeated_rows(self._observations) if self._merges else None
        if repeated is None:
            return None
        given = self._given(repeated.rows)
        sampler = RepeatedRowsSampler(given.cov, _kinds(given, self.n_latent, repeated))
        # Where all trials of many places fail, say, rows one by one do better, if they are few.
        many = self._constrained.size > sampler.settings.large
        return (given, sampler) if many or sampler.near_target else None

    @cached_property
    def of_single_rows(self) -> "ProcessFit":
        """The same with a row of u for each interval, also where intervals repeat."""
        if self._merged is None:
            return self
        single = copy(self)
        for name in ("conditioning", "sampler", "_merged"):
            single.__dict__.pop(name, None)
        single._merges = False
        return single

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
        given, s = self.of_single_rows.conditioning, self.n_latent
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


def _kinds(given: Conditioning, n_latent: int, repeated: RepeatedRows) -> RowKinds:
    """Rows behind u: signs at pseudo-points, then the kinds of repeated rows."""
    first, group = np.arange(n_latent), n_latent + repeated.group
    row, centre = np.concatenate([first, group]), given.centre[group]
    return RowKinds(
        given.row_factor[row],
        np.concatenate([np.zeros(n_latent), repeated.noise]),
        np.concatenate([given.lower[:n_latent], repeated.lower - centre]),
        np.concatenate([given.upper[:n_latent], repeated.upper - centre]),
        np.concatenate([np.ones(n_latent), repeated.counts]),
        row,
    )
