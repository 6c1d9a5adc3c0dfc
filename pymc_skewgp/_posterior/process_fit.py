"""A process conditioned on data, its sampler fitted once: what every answer is computed from."""

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.proposals.coordinates import RowKinds
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.samplers.repeated import RepeatedRowsSampler
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate, IntArray, add_estimates
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.repeats import RepeatedRows, repeated_rows
from pymc_skewgp._observations.values import Derivative, Values
from pymc_skewgp._posterior.conditioning import Conditioning, Regression
from pymc_skewgp._posterior.contradiction import refuse_contradictory_constraints
from pymc_skewgp._posterior.latent import draw_latent, equal_draws
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_factor import factored_covariance_of
from pymc_skewgp._posterior.prior_values import (
    covariance_of,
    function_units,
    log_prob_of_signs,
    mean_of,
    variances_of,
)
from pymc_skewgp._posterior.process import factored_process_given
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, Seed

_PAIRS = 256  # of points, whose covariances are read off the diagonal of a matrix


class ProcessFit:
    """Functions at the pseudo-points, at the data and at new points, given the data.

    There are K functions, as many as the data are about, independent in the prior.

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

    Attributes
    ----------
    n_functions : int
        K.
    n_latent : int
        K times the number of pseudo-points.
    """

    def __init__(
        self,
        prior: Prior,
        parts: Sequence[Values],
        observations: Observations,
        constrained: NDArray[np.bool_],
    ) -> None:
        self._constrained = constrained[~observations.is_point]
        self._prior, self._parts, self._observations = prior, tuple(parts), observations
        self._merges = not self._constrained.any()
        self.n_functions = max(part.n_functions for part in parts)
        self.n_latent = prior.n_pseudo_points * self.n_functions
        self._everything = list(self._parts)
        if self.n_latent:
            self._everything.insert(0, Values(prior.pseudo_points, self.n_functions))

    @cached_property
    def conditioning(self) -> Conditioning:
        """Of f at the pseudo-points and at the data; u has means of rows that repeat."""
        if self._merged is not None:
            return self._merged[0]
        return self._given(self._observations)

    def _given(self, rows: Observations) -> Conditioning:
        prior, k = self._prior, self.n_functions
        return factored_process_given(
            factored_covariance_of(prior, "X", self._everything),
            mean_of(prior, "X", self._parts),
            np.repeat(prior.phase, k),
            np.repeat(prior.truncation, k),
            rows,
        )

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

    def evidence(self, joint: Estimate, signs: Estimate) -> Estimate:
        """Log evidence, from the probability of the rectangle and that of the prior's signs."""
        value, std_error, _, _ = add_estimates(self.conditioning.log_density, joint, signs)
        return joint._replace(value=value, std_error=std_error)

    def prior_log_prob(self, n_draws: int) -> Estimate:
        """Log probability of the signs at the pseudo-points, before any data."""
        return log_prob_of_signs(self._prior, self.n_functions, n_draws)

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
        self, latent: TruncatedDraws, chosen: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        """Draws of f at the data, all parts in a row, shape (chains, draws, q)."""
        f = self.conditioning.draw(latent.draws, rng, chosen.ravel(), skip=self.n_latent)
        return f.reshape(*chosen.shape, -1)

    def regression(
        self, new: FloatArray | None, *, joint: bool = False, derivative: Derivative | None = None
    ) -> Regression:
        """At new points; for None at the data, which are not new points at their inputs."""
        given, prior = self.conditioning, self._prior  # first: what is wrong at the data is named
        if new is None:
            group = self.n_functions if len(self._parts) == 1 else 1
            return given.regression(skip=self.n_latent, joint=joint, group=group)
        at = Values(new, self.n_functions, derivative)
        cross = covariance_of(prior, "Xnew", self._everything, [at])
        variance = variances_of(prior, "Xnew", at)
        return given.regression_at(mean_of(prior, "Xnew", [at]), variance, cross, joint=joint)

    def pair_regression(self, a: FloatArray, b: FloatArray) -> Regression:
        """Of the first function at pairs of points, rows of `a` and `b` by turns."""
        given, prior = self.conditioning, self._prior
        at = Values(np.stack([a, b], axis=1).reshape(-1, a.shape[1]))
        covariance = np.zeros((a.shape[0], 2, 2))
        covariance[:, [0, 1], [0, 1]] = variances_of(prior, "Xnew", at).reshape(-1, 2)
        for start in range(0, a.shape[0], _PAIRS):
            block = slice(start, start + _PAIRS)
            between = covariance_of(prior, "Xnew", [Values(a[block])], [Values(b[block])])
            covariance[block, 0, 1] = covariance[block, 1, 0] = between.diagonal()
        cross = covariance_of(prior, "Xnew", self._everything, [at])
        return given.regression_at(mean_of(prior, "Xnew", [at]), covariance, cross)

    def covariance_at(self, new: FloatArray, regression: Regression) -> FloatArray:
        """Of f at t new points given u, shape (t K, t K)."""
        assert regression.taken is not None
        at = [Values(new, self.n_functions)]
        return linalg.symmetric(covariance_of(self._prior, "Xnew", at) - regression.taken)

    def draw_at(
        self,
        regression: Regression,
        covariance: FloatArray,
        shape: tuple[int, int],
        rng: np.random.Generator,
    ) -> FloatArray:
        """Joint draws of f at t new points, shape (chains, draws, t K)."""
        latent, chosen = self.equal_draws(shape, "twisted", rng)
        units = function_units(self._prior, covariance.shape[0])
        if units is None:
            factor = linalg.low_rank_factor(covariance)
        else:
            measured = covariance / units / units[:, None]
            factor = units[:, None] * linalg.low_rank_factor(measured)
        f = regression.centre[:, None] + (latent.draws[chosen.ravel()] @ regression.solved).T
        f += factor @ rng.standard_normal((factor.shape[1], f.shape[1]))
        return f.T.reshape(*shape, -1)

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
