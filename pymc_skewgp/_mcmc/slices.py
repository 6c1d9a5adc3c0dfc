"""Moves of a few numbers: slices along learnt axes (Neal 2003), and independent proposals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._errors import NotPositiveDefiniteError, no_warnings
from pymc_skewgp._gaussian.linalg import squared_distances
from pymc_skewgp._gaussian.weights import log_mean_exp
from pymc_skewgp._mcmc.augmentation import Augmentation, ConjugateModel, Walk
from pymc_skewgp._mcmc.site_target import SitePairs, SiteTarget, Weighed, picked
from pymc_skewgp._validation import FloatArray

_STEPS_OUT = 8
# Brackets that grow begin with one deviation, others are so many wide.
_BRACKET = 4.0
_SHRINKAGES = 100
_MOST_COORDINATES = 8  # a sweep; of more a random choice, along the axes that they have
_LEAST_SCALE = 1e-3
# Sweeps before axes are learnt, at least and for each coordinate.
_FIRST_SWEEPS = 10, 5
# Degrees of freedom of proposals, and their squared scale over the covariance.
_FREEDOM, _WIDER = 5.0, 1.2
_PROPOSALS = 2  # a step, and one where more than this share of them is accepted
_ONE_WILL_DO = 0.8
# What proposals have found teaches their shape: from so many on, anew with a quarter more sweeps,
# from so many at most.
_LEAST_SEEN, _AGAIN, _MOST_SEEN = 20, 1.25, 200
# Of that shape, in proposals' deviations and nats: how far it is alike, in one dimension, its
# deviation and error; densities below the largest that count, and the least of its shares.
_ALIKE, _DEVIATION, _ERROR, _COUNTS, _LEAST_LOG = 1.5, 3.0, 0.05, 12.0, -3.0
# Wider again where the share decides: a state far out is hard to leave where none are proposed.
_ROOM = 1.3
_CANDIDATES = 16  # of which the first that is taken is proposed
_NOWHERE = -1e300  # log density where there is none
# Of steps with a sweep of slices, where proposals do all the work; and while axes are learnt.
_LEAST_SHARE, _TUNING_SHARE = 0.05, 0.3


class Learnt(NamedTuple):
    """What sweeps have shown of some numbers; the k-th of them counts k times.

    Attributes
    ----------
    n_sweeps : int
    mean : ndarray, shape (d,)
    cov : ndarray, shape (d, d)
    accepted : float
        Share of independent proposals that were.
    seen : ndarray, shape (k, d + 1)
        The last of these proposals, and their log densities.
    shaped : tuple of int and Proposal
        The sweeps after which they were looked at, and the proposal that they made.
    """

    n_sweeps: int
    mean: FloatArray
    cov: FloatArray
    accepted: float
    seen: FloatArray = np.empty((0, 0))
    shaped: "tuple[int, Proposal] | None" = None

    def after(self, values: FloatArray) -> "Learnt":
        """With those of one more sweep."""
        gain, off = 2.0 / (self.n_sweeps + 2.0), values - self.mean
        cov = (1.0 - gain) * (self.cov + gain * np.outer(off, off))
        known = self._replace(n_sweeps=self.n_sweeps + 1, mean=self.mean + gain * off, cov=cov)
        due = self.shaped is None or known.n_sweeps > _AGAIN * self.shaped[0]
        if not due or len(self.seen) < _LEAST_SEEN:
            return known
        plain = known._replace(shaped=None).proposal()
        assert plain is not None
        wide = plain._replace(factor=_ROOM * plain.factor).like(self.seen)
        return known._replace(shaped=(known.n_sweeps, wide if wide.weights.size else plain))

    def tried(self, values: FloatArray, log_density: float, accepted: bool) -> "Learnt":
        """With one more proposal."""
        gain = 1.0 / (0.5 * self.n_sweeps + 1.0)
        share = self.accepted + gain * (accepted - self.accepted)
        log_density = np.nan_to_num(log_density, nan=_NOWHERE, neginf=_NOWHERE)
        before = self.seen.reshape(-1, values.size + 1)
        seen = np.vstack([before, [*values, log_density]])[-_MOST_SEEN:]
        return self._replace(accepted=share, seen=seen)

    @property
    def is_known(self) -> bool:
        """Whether there is enough of it."""
        least, each = _FIRST_SWEEPS
        return self.n_sweeps >= least + each * self.mean.size

    def axes(self) -> FloatArray:
        """Columns along which the numbers move, a deviation long."""
        size, variances = self.mean.size, np.maximum(self.cov.diagonal(), _LEAST_SCALE**2)
        if not self.is_known:
            return np.eye(size)
        if size > _MOST_COORDINATES:
            return np.diag(np.sqrt(variances))
        share = self.n_sweeps / (self.n_sweeps + 4.0 * size)
        found: FloatArray = np.linalg.cholesky(
            share * self.cov + (1.0 - share) * np.diag(variances)
        )
        return found

    def proposal(self) -> "Proposal | None":
        """None before enough is known, and of more coordinates than can be."""
        if not self.is_known or self.mean.size > _MOST_COORDINATES:
            return None
        if self.shaped is not None:
            return self.shaped[1]
        return Proposal(self.mean, np.sqrt(_WIDER) * self.axes())


class Proposal(NamedTuple):
    """Student's t distribution with this mean and factor of its scale, times a share of draws.

    The share that is taken, at least exp(-3), follows a Gaussian process regression on the target's
    log density over that of the distribution, and is about 1 at its largest. So the proposal is
    nearly the target where that was learnt, and has the tails of the distribution elsewhere.

    Attributes
    ----------
    mean : ndarray, shape (d,)
    factor : ndarray, shape (d, d)
    centres : ndarray, shape (k, d)
        Places where the target is known, standardised.
    weights : ndarray, shape (k,)
        Of the regression.
    level : float
        Of its values, from which on all draws are taken.
    """

    mean: FloatArray
    factor: FloatArray
    centres: FloatArray = np.empty((0, 0))
    weights: FloatArray = np.empty(0)
    level: float = 0.0

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Values: the first candidate that is taken."""
        n = _CANDIDATES if self.weights.size else 1
        while True:
            white = rng.standard_normal((n, self.mean.size))
            white *= np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, (n, 1)))
            taken = -rng.exponential(size=n) < self._log_share(white)
            if taken.any():
                return self.mean + self.factor @ white[taken.argmax()]

    def log_density(self, values: FloatArray) -> float:
        """Up to a constant."""
        white = np.linalg.solve(self.factor, values - self.mean)[None]
        return float((self._log_base(white) + self._log_share(white))[0])

    def like(self, seen: FloatArray) -> "Proposal":
        """With the share that places and their log densities ask for, where these agree on one.

        They do not where densities are of a target that changes from step to step: then all draws
        are taken.
        """
        white = np.linalg.solve(self.factor, (seen[:, :-1] - self.mean).T).T
        below = np.minimum(seen[:, -1].max() - seen[:, -1], _COUNTS)
        ratio, counts = -below - self._log_base(white), np.exp(-0.5 * below)
        mean = np.average(ratio, weights=counts)
        cov = _alike(white, white)
        inverse = np.linalg.inv(cov + np.diag(_ERROR**2 / counts))
        weights = inverse @ (ratio - mean)
        # Of each place the error that the others make there.
        left_out = np.average((weights / inverse.diagonal()) ** 2, weights=counts)
        if left_out > 0.5 * np.average((ratio - mean) ** 2, weights=counts):
            return self
        level = float((cov @ weights)[below < _COUNTS].max())
        return Proposal(self.mean, self.factor, white, weights, level)

    def _log_base(self, white: FloatArray) -> FloatArray:
        squares = np.einsum("ij,ij->i", white, white)
        found: FloatArray = -0.5 * (_FREEDOM + self.mean.size) * np.log1p(squares / _FREEDOM)
        return found

    def _log_share(self, white: FloatArray) -> FloatArray:
        if not self.weights.size:
            return np.zeros(len(white))
        share: FloatArray = _alike(white, self.centres) @ self.weights - self.level
        return np.clip(share, _LEAST_LOG, 0.0)


def _alike(x: FloatArray, y: FloatArray) -> FloatArray:
    """Covariance of the regression of a proposal's shape."""
    squares = squared_distances(x, y) / (_ALIKE**2 * np.sqrt(x.shape[1]))
    found: FloatArray = _DEVIATION**2 * np.exp(-0.5 * squares)
    return found


class SliceState(NamedTuple):
    """Where the numbers are, shape (d,), and what was learnt of them."""

    values: FloatArray
    learnt: Learnt


def init(values: FloatArray) -> SliceState:
    """State at `values`, of which nothing else is known."""
    d = values.size
    return SliceState(values, Learnt(0, np.zeros(d), np.zeros((d, d)), 0.0))


class Place(NamedTuple):
    """Hyperparameters with their log density, up to a constant, and u and the target there.

    And the members of the pairs under sites; the part of the density that depends on neither u nor
    sites; draws of u, by which it may be integrated out; and what is known of a step.
    """

    values: FloatArray
    log_density: float
    u: FloatArray = np.empty(0)
    target: Augmentation | None = None
    weighed: Weighed | None = None
    log_rest: float = -np.inf
    cloud: "Cloud | None" = None
    stats: Mapping[str, float] = MappingProxyType({})


class Cloud(NamedTuple):
    """Draws of u with weights: one of them may be the state, the others are independent.

    Attributes
    ----------
    move : object
        What has made them.
    log_weights : ndarray, shape (n,)
        Target over proposal density; the mean weight estimates the probability of the rectangle.
    draw : callable
        From a number to the draw.
    own : int
        Which of them is the state, -1 for none.
    """

    move: Any
    log_weights: FloatArray
    draw: Callable[[int], FloatArray]
    own: int = -1

    @property
    def log_mean(self) -> float:
        """Log of the mean weight."""
        return log_mean_exp(self.log_weights)

    def pick(self, rng: np.random.Generator) -> tuple["Cloud", dict[str, float]]:
        """With a state picked by weight, and what is known of it."""
        i, stats = picked(self.log_weights, self.own, rng)
        return self._replace(own=i), stats


@dataclass(frozen=True)
class SliceMove:
    """Sweeps of slices over a density.

    Attributes
    ----------
    locate : callable
        From values to the place there.
    tune : bool
        Whether to learn axes and widths.
    exists : callable, optional
        Whether a place within a slice may be the next.
    """

    locate: Callable[[FloatArray], Place]
    tune: bool
    exists: Callable[[Place], bool] = lambda place: True

    def sweep(
        self, here: Place, state: SliceState, rng: np.random.Generator
    ) -> tuple[Place, SliceState]:
        """Each axis once, from a place of positive density; `state` has its values."""
        size, learnt = state.values.size, state.learnt
        chosen = np.arange(size)
        if size > _MOST_COORDINATES:
            chosen = rng.choice(size, _MOST_COORDINATES, replace=False)
        axes, grows = learnt.axes(), self.tune or not learnt.is_known
        for i in chosen:
            here = self._slice(here, axes[:, i], grows, rng)
        return here, SliceState(here.values, learnt.after(here.values) if self.tune else learnt)

    def _slice(self, here: Place, axis: FloatArray, grows: bool, rng: np.random.Generator) -> Place:
        """Step out from a random bracket, then shrink it until a point of the slice is met.

        A bracket that does not step out is two places fewer to be looked at.
        """
        level = here.log_density - rng.exponential()
        most, width = (_STEPS_OUT, 1.0) if grows else (1, _BRACKET)
        left = -width * rng.random()
        right = left + width
        n_left = int(rng.integers(most))
        for _ in range(n_left):
            if self.locate(here.values + left * axis).log_density <= level:
                break
            left -= width
        for _ in range(most - 1 - n_left):
            if self.locate(here.values + right * axis).log_density <= level:
                break
            right += width
        for _ in range(_SHRINKAGES):
            step = float(rng.uniform(left, right))
            trial = self.locate(here.values + step * axis)
            if trial.log_density > level and self.exists(trial):
                return trial
            if step < 0.0:
                left = step
            else:
                right = step
        return here


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
# Sampled by slices. The rows are to f what Murray & Adams (2010, arXiv:1006.0868) call surrogate
# data.
#
# Given u a theta still goes only a part of the way: some .3 effective draws a sweep. Under rows
# alone proposals therefore integrate u out too. With q the density of the twisted sampler at a
# theta and W the weights of its draws u_j, the density
#
# .. math:: \tilde\pi(\theta, u_1, \dots, u_N, k) \propto p(\theta)\, N(y; \theta)\,
#     \prod_j q_\theta(u_j)\; W_\theta(u_k)
#
# has the right marginal in (theta, u_k). Three moves leave it as it is: the others drawn anew
# given theta and u_k, which after a sweep of slices or a change from outside is where a step
# begins; theta and all N draws proposed together, independent of the state, and accepted by the
# ratio of prior times mean weight over the proposal's density (particle marginal Metropolis and
# Hastings, Andrieu, Doucet & Holenstein 2010, doi:10.1111/j.1467-9868.2009.00736.x); and k, drawn
# by weight. The proposal is a Student-t distribution with the moments of theta, thinned (by
# rejection) to the density of theta that proposals before have met; all learnt while the chain is
# tuned and fixed then, as are the axes of the slices and the sites that EP begins with, a function
# of theta. Elsewhere (points alone, sites, lin-ess) the same proposals are of theta given what a
# sweep is given. Slices follow where all else is poor: the more often, the more were refused.


# From theta to parameters there and the log of its prior, of what else it enters and of 1/Phi_s:
# all that depends on theta but N(u; 0, G), the other variables fixed.
Density = Callable[[FloatArray], tuple[ConjugateModel, float]]


@dataclass(frozen=True)
class HyperparameterMove:
    """Proposals of theta, and a sweep of slices over p(theta | u), f integrated out.

    Attributes
    ----------
    density : callable
        See `Density`.
    tune : bool, default False
        Whether to learn the widths.
    pairs : SitePairs, optional
        Under sites, with which they are integrated out.
    draws : callable, optional
        Under rows alone, from values, the target there and a state of it, or none, to draws of u:
        proposals are of hyperparameters and draws together, the rows integrated out by these. See
        the module.
    """

    density: Density
    tune: bool = False
    pairs: SitePairs | None = None
    draws: Callable[[FloatArray, Augmentation, FloatArray | None], Cloud] | None = None

    def given(self, indicators: Sequence[FloatArray]) -> "HyperparameterMove":
        """The move that leaves the indicators of mixtures as they are: they are further data."""

        def density(values: FloatArray) -> tuple[ConjugateModel, float]:
            model, log_rest = self.density(values)
            return model.given(indicators), log_rest + model.log_indicators(indicators)

        return replace(self, density=density)

    def sweep(
        self,
        state: SliceState,
        u: FloatArray,
        target: Augmentation,
        rng: np.random.Generator,
        cloud: Cloud | None = None,
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
        cloud : Cloud, optional
            That the last sweep ended with, if nothing has changed since.
        """
        log_rest, rows = self.density(state.values)[1], _Rows(u + target.mean, *target.limits)
        at = Place(state.values, -np.inf, u, target, log_rest=log_rest, cloud=cloud)
        at = self._given(at, rows) if self.draws is None else self._integrated(at)
        at = at._replace(u=u)
        learnt = state.learnt
        proposal = learnt.proposal()
        # Where the density is no number there is nothing to compare with: stay.
        if proposal is not None and np.isfinite(at.log_density):
            # Independent proposals, each accepted or not (Metropolis and Hastings).
            known_rows = rows if self.draws is None else None
            log_ratio = at.log_density - proposal.log_density(at.values)
            once = learnt.accepted > _ONE_WILL_DO and not self.tune
            for _ in range(1 if once else _PROPOSALS):
                values = proposal.draw(rng)
                place = self._located(values, known_rows)
                ratio = place.log_density - proposal.log_density(values)
                accepted = ratio - log_ratio > -rng.exponential() and _is_regular(place)
                if accepted:
                    at, log_ratio = place, ratio
                if self.tune:
                    learnt = learnt.tried(values, place.log_density, accepted)
            state = SliceState(at.values, learnt)
        if at.cloud is not None and (there := at.target) is not None:
            cloud, known = at.cloud.pick(rng)
            at = at._replace(cloud=cloud, u=cloud.draw(cloud.own), stats=known)
            rows = _Rows(at.u + there.mean, *there.limits)
        # Most steps have slices where proposals are refused.
        share = max((1.0 - learnt.accepted) ** 2, _TUNING_SHARE if self.tune else _LEAST_SHARE)
        if np.isfinite(at.log_density) and (proposal is None or rng.random() < share):
            stats = at.stats
            locate = partial(self._located, rows=rows)
            at = at if at.cloud is None else self._given(at, rows)
            at, state = SliceMove(locate, self.tune, _is_regular).sweep(at, state, rng)
            at = at._replace(stats=stats)
        elif self.tune:
            state = state._replace(learnt=learnt.after(at.values))
        return (state if at.values is state.values else state._replace(values=at.values)), at

    def _located(self, values: FloatArray, rows: "_Rows | None") -> Place:
        """Given the rows, or else integrated over them."""
        model, log_rest = self.density(values)
        nowhere = Place(values, -np.inf, log_rest=log_rest)
        if not np.isfinite(log_rest):
            return nowhere
        try:
            with no_warnings():  # of jitter where the chain only looks; where it is, it is told
                there = nowhere._replace(target=Augmentation(model))
                return self._integrated(there) if rows is None else self._given(there, rows)
        except (NotPositiveDefiniteError, FloatingPointError, np.linalg.LinAlgError):
            return nowhere

    def _given(self, at: Place, rows: "_Rows") -> Place:
        target = at.target
        assert target is not None
        moved, log_jacobian = rows.within(*target.limits)
        u = moved - target.mean
        if not target.holds(u):
            return at._replace(log_density=-np.inf)
        log_density = at.log_rest + log_jacobian + target.log_density(u)
        weighed = None
        if self.pairs is not None:
            weighed = self.pairs.at(at.values, SiteTarget(target.model, moved))
            log_density += weighed.log_evidence
        return at._replace(log_density=log_density, u=u, weighed=weighed)

    def _integrated(self, at: Place) -> Place:
        """By draws of u, that of `at` among them if it has one."""
        assert at.target is not None
        assert self.draws is not None
        cloud = at.cloud or self.draws(at.values, at.target, at.u if at.u.size else None)
        log_density = at.log_rest + at.target.log_points + cloud.log_mean
        return at._replace(log_density=log_density, cloud=cloud)


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
