"""Slice sampling of a few numbers, one coordinate after another (Neal 2003), f integrated out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.model import ConjugateModel, Walk
from pymc_skewgp._mcmc.site_target import SitePairs, SiteTarget, Weighed
from pymc_skewgp._validation import FloatArray

_STEPS_OUT = 8
_STRETCH = 2.0  # of brackets that do not step out
_SHRINKAGES = 100
_MOST_COORDINATES = 8  # a sweep; of more a random choice
_LEAST_WIDTH = 1e-3


class SliceState(NamedTuple):
    """Where the numbers are, and what was learnt of their scale.

    Attributes
    ----------
    values : ndarray, shape (d,)
    widths : ndarray, shape (d,)
        Of the brackets that a slice is looked for with.
    counts : ndarray, shape (d,)
        Slices that each width was learnt from.
    """

    values: FloatArray
    widths: FloatArray
    counts: FloatArray


def init(values: FloatArray) -> SliceState:
    """State at `values`, of which nothing else is known."""
    return SliceState(values, np.ones(values.size), np.zeros(values.size))


class Place(NamedTuple):
    """Hyperparameters with their log density, up to a constant, and u and the target there.

    And, under sites, the members of the pairs.
    """

    values: FloatArray
    log_density: float
    u: FloatArray = np.empty(0)
    target: Augmentation | None = None
    weighed: Weighed | None = None


@dataclass(frozen=True)
class SliceMove:
    """Sweeps of slices over a density.

    Attributes
    ----------
    locate : callable
        From values to the place there.
    tune : bool
        Whether to learn the widths.
    exists : callable, optional
        Whether a place within a slice may be the next.
    steps_out : bool, default True
        Whether a bracket grows until its ends are outside of the slice. Without, one of twice the
        width is only shrunk: two places fewer to be looked at for each new one, where widths are
        known well.
    """

    locate: Callable[[FloatArray], Place]
    tune: bool
    exists: Callable[[Place], bool] = lambda place: True
    steps_out: bool = True

    def sweep(
        self, here: Place, state: SliceState, rng: np.random.Generator
    ) -> tuple[Place, SliceState]:
        """Each coordinate once, from a place of positive density; `state` has its values."""
        size = state.values.size
        widths, counts = state.widths.copy(), state.counts.copy()
        chosen = np.arange(size)
        if size > _MOST_COORDINATES:
            chosen = rng.choice(size, _MOST_COORDINATES, replace=False)
        for i in chosen:
            new = self._slice(here, int(i), widths[i], rng)
            if self.tune:  # a third of a slice lies between two points of it, on average
                step = 3.0 * abs(new.values[i] - here.values[i])
                counts[i] += 1.0
                widths[i] += (step - widths[i]) / (counts[i] + 1.0)
                widths[i] = max(widths[i], _LEAST_WIDTH)
            here = new
        return here, SliceState(here.values, widths, counts)

    def _slice(self, here: Place, i: int, width: float, rng: np.random.Generator) -> Place:
        """Step out from a random bracket, then shrink it until a point of the slice is met."""
        level = here.log_density - rng.exponential()
        most = _STEPS_OUT if self.steps_out else 1
        width *= 1.0 if self.steps_out else _STRETCH
        left = here.values[i] - width * rng.random()
        right = left + width
        n_left = int(rng.integers(most))
        for _ in range(n_left):
            if self.locate(_moved(here.values, i, left)).log_density <= level:
                break
            left -= width
        for _ in range(most - 1 - n_left):
            if self.locate(_moved(here.values, i, right)).log_density <= level:
                break
            right += width
        for _ in range(_SHRINKAGES):
            trial = self.locate(_moved(here.values, i, rng.uniform(left, right)))
            if trial.log_density > level and self.exists(trial):
                return trial
            if trial.values[i] < here.values[i]:
                left = trial.values[i]
            else:
                right = trial.values[i]
        return here


def _moved(values: FloatArray, i: int, value: float) -> FloatArray:
    values = values.copy()
    values[i] = value
    return values


# Hyperparameters moved with the function integrated out, given the rows u behind the data.
#
# Given f a smooth kernel's hyperparameters are all but determined, and a chain that alternates
# between theta given f and f given theta mixes slowly. Given u they are not: u carries the noise of
# the observations, and with f integrated out
#
# .. math:: p(\theta \mid r) \propto p(\theta)\, N(y; \theta)\, N(r - m_\theta; 0, G_\theta) /
#     \Phi_s(\gamma_\theta; \Gamma_\theta)
#
# with :math:`N(y; \theta)` the density of the points, :math:`m_\theta` and :math:`G_\theta` the
# moments of r given them, and r, u with its mean: :math:`x_0 + \gamma`, which is positive under
# every theta, and the noisy predictor v. They stay as they are where theta does not move the
# intervals. Where it does (cut-points, thresholds) each row of v keeps its place in its interval:
# to keep v itself would leave a cut-point no more room than between the nearest rows (Cowles 1996,
# doi:10.1007/BF00162520). The density is then one of the places, and has the product of the
# intervals' lengths as a factor.
#
# Under sites the density has the evidence of these as a further factor, given y and r, by pairs at
# fixed vectors: see `site_pairs`.
#
# Sampled by `slices`. The rows are to f what Murray & Adams (2010, arXiv:1006.0868) call surrogate
# data.


# From theta to parameters there and the log of its prior, of what else it enters and of 1/Phi_s:
# all that depends on theta but N(u; 0, G), the other variables fixed.
Density = Callable[[FloatArray], tuple[ConjugateModel, float]]


@dataclass(frozen=True)
class HyperparameterMove:
    """A sweep of slices over p(theta | u), f integrated out.

    Attributes
    ----------
    density : callable
        See `Density`.
    tune : bool, default False
        Whether to learn the widths.
    pairs : SitePairs, optional
        Under sites, with which they are integrated out.
    """

    density: Density
    tune: bool = False
    pairs: SitePairs | None = None

    def given(self, indicators: Sequence[FloatArray]) -> "HyperparameterMove":
        """The move that leaves the indicators of mixtures as they are: they are further data."""

        def density(values: FloatArray) -> tuple[ConjugateModel, float]:
            model, log_rest = self.density(values)
            return model.given(indicators), log_rest + model.log_indicators(indicators)

        return replace(self, density=density)

    def sweep(
        self, state: SliceState, u: FloatArray, target: Augmentation, rng: np.random.Generator
    ) -> tuple[SliceState, Place]:
        """New values, and all that is known of them.

        Parameters
        ----------
        state : SliceState
        u : ndarray, shape (s + m,)
            A state of `target`.
        target : Augmentation
            At the values of `state`.
        rng : numpy.random.Generator
        """
        rows = _Rows(u + target.mean, *target.limits)
        at = self._located(state.values, rows, target)
        if not np.isfinite(at.log_density):  # nothing to compare with: stay
            return state, at._replace(u=u, target=target)
        # Under sites each place is several times as much work.
        steps_out = self.tune or self.pairs is None
        locate = partial(self._located, rows=rows)
        at, state = SliceMove(locate, self.tune, _is_regular, steps_out).sweep(at, state, rng)
        return state, at

    def _located(
        self, values: FloatArray, rows: "_Rows", target: Augmentation | None = None
    ) -> Place:
        model, log_rest = self.density(values)
        nowhere = Place(values, -np.inf)
        if not np.isfinite(log_rest):
            return nowhere
        try:
            if target is None:
                target = Augmentation(model)
            moved, log_jacobian = rows.within(*target.limits)
            u = moved - target.mean
            if not target.holds(u):
                return nowhere
            log_density = log_rest + log_jacobian + target.log_density(u)
            weighed = None
            if self.pairs is not None:
                weighed = self.pairs.at(SiteTarget(target.model, moved))
                log_density += weighed.log_evidence
        except (NotPositiveDefiniteError, FloatingPointError):
            return nowhere
        return Place(values, log_density, u, target, weighed)


class _Rows(NamedTuple):
    """The rows x0 + truncation and v where a sweep starts, and their limits there."""

    values: FloatArray
    lower: FloatArray
    upper: FloatArray

    def within(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, float]:
        """The rows at the same places in other intervals, and the log of the Jacobian.

        From a finite limit to a finite one each row is stretched, from the only finite one it keeps
        its distance.
        """
        if np.array_equal(lower, self.lower) and np.array_equal(upper, self.upper):
            return self.values, 0.0
        low, high = np.isfinite(lower), np.isfinite(upper)
        same = np.array_equal(low, np.isfinite(self.lower))
        if not same or not np.array_equal(high, np.isfinite(self.upper)) or (lower >= upper).any():
            return np.full(lower.size, np.nan), 0.0
        moved = self.values.copy()
        for finite, old, new in ((low, self.lower, lower), (high & ~low, self.upper, upper)):
            moved[finite] += new[finite] - old[finite]
        two = low & high
        width, before = (upper - lower)[two], (self.upper - self.lower)[two]
        moved[two] = lower[two] + (self.values - self.lower)[two] * (width / before)
        return moved, float(np.log(width / before).sum())


def _is_regular(place: Place) -> bool:
    """Where f's own density would fail to factorise, the model does not live."""
    return place.target is not None and place.target.is_regular()


# Linear elliptical slice sampling of u.


class LinESSMove:
    """Steps of linear elliptical slice sampling.

    Parameters
    ----------
    target : Augmentation
    n_steps : int
        Steps between two draws of f.
    """

    def __init__(self, target: Augmentation, n_steps: int) -> None:
        self._target, self._n_steps = target, n_steps

    def adapt(self) -> int:
        """Nothing to prepare, and always `n_steps`."""
        return self._n_steps

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """See `Move`."""
        from pymc_skewgp._gaussian.lin_ess import lin_ess  # numba: half a second of import

        target = self._target
        result = lin_ess(
            target.cov.chol,
            u[None],
            target.lower,
            target.upper,
            n_draws=n,
            thin=thin,
            random_seed=rng,
        )
        return Walk(
            result.draws[0],
            {"arc_length": result.arc_length[0], "n_active": result.n_active[0].astype(np.float64)},
        )
