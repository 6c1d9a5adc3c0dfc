"""Draws of the means of rows that repeat: a thousand rows of one value take the algebra of one."""

from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.repeated import RepeatedCovariance
from pymc_skewgp._gaussian.proposals.coordinates import CoordinateProposal, RowKinds
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.policy import DEFAULT, Goal, Rung, SamplerSettings
from pymc_skewgp._gaussian.proposals.runs import SamplingResult, point_sets, run_once
from pymc_skewgp._gaussian.univariate import draw_truncated, survival
from pymc_skewgp._validation import FloatArray

_CHUNK = 2**18  # numbers drawn at a time
_TAIL = 5.0  # limits beyond are drawn with more care


class RepeatedRowsSampler(RectangleSampler):
    """N(0, cov), each row the mean of rows within limits of their own.

    Parameters
    ----------
    cov : Covariance
        Of the means.
    kinds : RowKinds
        The rows that they are means of, in coordinates.
    settings : SamplerSettings
        Thresholds of the escalation policy. Of a rung only `relax` is looked at.
    """

    is_rectangle = False

    def __init__(
        self, cov: Covariance, kinds: RowKinds, settings: SamplerSettings = DEFAULT
    ) -> None:
        super().__init__(cov, -np.inf, np.inf, settings)
        self._kinds = kinds

    @cached_property
    def ep(self) -> EPResult:
        """EP's fixed point: sites of a row of each kind."""
        kinds = self._kinds
        cov = RepeatedCovariance(kinds.noise, kinds.factor, kinds.count)
        tol = self.settings.ep_tolerance
        return fit_ep(cov, kinds.lower, kinds.upper, tol=tol, count=kinds.count)

    @cached_property
    def near_target(self) -> bool:
        """Whether the first proposal needs no wider one for draws, by a pilot run of its own."""
        settings = self.settings
        rng = np.random.default_rng(settings.pilot_seed)
        pilot = run_once(self.first, point_sets(self.first, settings.pilot_draws), rng).log_prob
        return settings.accepts_first(pilot, "draws", self.size)

    def sample(
        self, n_draws: int, rng: np.random.Generator, *, goal: Goal, rtol: float | None = None
    ) -> SamplingResult:
        """Draw as `RectangleSampler` does: the coordinates, and given them the means."""
        result = self.coordinates(n_draws, rng, goal=goal, rtol=rtol)
        return replace(result, u=self.means(result.u, rng))

    def coordinates(
        self, n_draws: int, rng: np.random.Generator, *, goal: Goal, rtol: float | None = None
    ) -> SamplingResult:
        """Draws of the coordinates in place of the means."""
        result = super().sample(n_draws, rng, goal=goal, rtol=rtol)
        return replace(result, method=result.method.replace("twisted", "coordinates"))

    def log_masses(self, value: FloatArray) -> FloatArray:
        """Log probability of the limits of a row of each kind, given its value without noise."""
        assert isinstance(self.first, CoordinateProposal)
        return self.first.log_masses(value)

    def _twist(self, rung: Rung) -> CoordinateProposal:
        return CoordinateProposal(self._kinds, self.ep, rung.relax, self.settings.ep_tolerance)

    @property
    def _jitter_effect(self) -> float:
        """The coordinates are drawn without jitter."""
        return 0.0

    def means(self, coordinates: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Means of the rows given the coordinates, a draw a column."""
        return means_given(self._kinds, self.size, coordinates, rng)


def means_given(
    kinds: RowKinds, size: int, coordinates: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Means of the `size` groups of rows given the coordinates, a draw a column."""
    means, total = np.zeros((size, coordinates.shape[1])), np.zeros(size)
    for d, group in enumerate(kinds.group):
        value, count = kinds.factor[d] @ coordinates, int(kinds.count[d])
        means[group] += count * value
        total[group] += count
        if kinds.noise[d] > 0:
            sd = float(np.sqrt(kinds.noise[d]))
            low, high = ((x[d] - value) / sd for x in (kinds.lower, kinds.upper))
            means[group] += sd * sum_between(low, high, count, rng)
    return means / total[:, None]


def sum_between(
    low: FloatArray, high: FloatArray, count: int, rng: np.random.Generator
) -> FloatArray:
    """Sums of `count` standard normals between limits, one sum for each pair of limits."""
    total = np.zeros(low.size)
    below = bool(np.isneginf(low).all())
    near = -high if below else low
    simple = (below or bool(np.isposinf(high).all())) and near.max(initial=-np.inf) < _TAIL
    mass = survival(near) if simple else None
    for start in range(0, count, size := max(1, _CHUNK // low.size)):
        uniform = rng.random((min(size, count - start), low.size))
        np.maximum(uniform, np.finfo(float).tiny, out=uniform)
        if mass is None:
            total += draw_truncated(uniform, low, high)[0].sum(axis=0)
            continue
        uniform *= mass
        drawn = np.asarray(ndtri(uniform, out=uniform)).sum(axis=0)
        total += drawn if below else -drawn
    return total
