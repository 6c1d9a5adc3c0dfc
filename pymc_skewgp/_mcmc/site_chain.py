"""Markov chains on (f, u, theta), under rows, factors, or both.

A step, whatever happened to f and theta since the last: the rows u drawn given f, exactly; where
there are any, f and u moved together (`site_rows`); f along an ellipse; theta given u, f integrated
out by pairs, and f given theta and u (`site_pairs`). There is no other state than f and theta.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian import escalation as policy
from pymc_skewgp._gaussian.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.pairs import Pairs
from pymc_skewgp._gaussian.twisted import Rung, TwistedDraws, TwistedProposal
from pymc_skewgp._gaussian.weights import log_mean_exp, relative_ess
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._mcmc import site_target
from pymc_skewgp._mcmc.augmentation import Augmentation, ConjugateModel, Move, Walk
from pymc_skewgp._mcmc.slices import Cloud, HyperparameterMove, SliceState
from pymc_skewgp._posterior.draws_with_evidence import sun_given
from pymc_skewgp._posterior.fits import site_draws
from pymc_skewgp._validation import FloatArray

# f and the rows u beside sites, moved together at given hyperparameters.
#
# To draw u given f and f given u in turn mixes slowly. Here both have a proposal of their own: EP's
# Gaussian under all sites and rows, its rectangle u by the twisted sampler, and coordinates c of f
# given u in mirrored pairs :math:`E(c \mid u) \pm x`.
#
# With the proposal's density q(u) N(x; 0, I) and weights W(u, +-x) the argument of `site_pairs`
# holds with (u_j, x_j) in place of x_j and theta fixed: N(0, I) is symmetric, so the density of u
# and c has the right marginal, a state that has its mirror image at its side and the other pairs
# drawn anew is one of the extended target, and a member is drawn by its weight.


class RowsAndSites:
    """The move at one value of the hyperparameters.

    Parameters
    ----------
    model : ConjugateModel
        With sites, and with rows or latent variables.
    """

    def __init__(self, model: ConjugateModel) -> None:
        prior, sites = model.prior, model.sites
        assert sites is not None
        self._truncation = prior.truncation
        s = prior.truncation.size
        self._given = given = sun_given(prior, model.observations)
        # The weight of a state needs a proposal without a leading direction.
        with no_warnings():
            self._proposal = site_draws(given, sites, s, rung=policy.DEFAULT.move_rungs[0]).proposal

    def step(
        self, f: FloatArray, target: Augmentation, n_pairs: int, rng: np.random.Generator
    ) -> tuple[FloatArray, dict[str, float], bool]:
        """New f; statistics, and whether the draw of u given f was exact."""
        u, exact = target.rows_given(f, rng)
        given, s = self._given, self._truncation.size
        rows = u + target.mean
        rows[:s] -= self._truncation
        coordinates = given.coordinates(np.concatenate([rows[:s], f]))
        own = self._proposal.pair_at(coordinates, rows - given.centre)
        others = self._proposal.pairs(rng.random((self._proposal.n_dims, n_pairs - 1)))
        pairs = Pairs(*(np.concatenate([x, y], axis=-1) for x, y in zip(own, others, strict=True)))
        if not np.isfinite(pairs.log_plus[0]):
            return f, {}, exact
        c, stats = site_target.pick(pairs, rng)
        moved: FloatArray = given.mean[s:] + given.factor[s:] @ c
        return (moved if stats["accept"] else f), stats, exact


# Elliptical slice sampling (Murray, Adams & MacKay 2010, arXiv:1001.0175).

_SHRINKAGES = 100


def elliptical_slice(
    c: FloatArray, log_density: Callable[[FloatArray], FloatArray], rng: np.random.Generator
) -> FloatArray:
    """A move that leaves N(0, I) times a density of columns c invariant."""
    level = float(log_density(c[:, None])[0]) - rng.exponential()
    other = rng.standard_normal(c.size)
    angle = rng.uniform(0.0, 2.0 * np.pi)
    low, high = angle - 2.0 * np.pi, angle
    for _ in range(_SHRINKAGES):
        new: FloatArray = np.cos(angle) * c + np.sin(angle) * other
        if float(log_density(new[:, None])[0]) > level:
            return new
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = rng.uniform(low, high)
    return c


# Markov chain on (f, u, theta): a SUN vector with observations, exact for any history.
#
# A model's state holds f, and its hyperparameters may have moved since f was drawn. A step that is
# right all the same: draw u given f (exact), move u by a kernel that leaves its truncated Gaussian
# invariant, draw f given u (exact); in between, theta may be moved given u, f integrated out. To
# keep an old u across a change of hyperparameters would be wrong: it was drawn under others.
#
# While neither parameters nor f change between two steps, (f, u) is itself the state of a Markov
# chain with the right invariant distribution, and f is a by-product of u: then a block of states is
# made at a time, in matrix products, and a step takes the next of them.
#
# The state is data. What `ConjugateSampler` keeps besides is computed from parameters alone, or
# made in advance from the very state that it returned last: dropping either changes no
# distribution.

# Blocks grow from the first to the last size: hyperparameters that merely paused cost little.
_BLOCKS = (4, 64, 512)
_CANDIDATES = 8  # for f in another mode, where there are several
_BLOCK_VALUES = 2**22  # numbers in a block of parameters that are fixed: 32 MiB


class ConjugateState(NamedTuple):
    """State of the chain.

    Attributes
    ----------
    f : ndarray, shape (p,)
        The latent function.
    u : ndarray, shape (s + m,), or None
        The rows behind it. None: not known for this f, so that the next step draws it.
    model : ConjugateModel or None
        What `u` was drawn under. Under any other object the next step draws u anew.
    theta : SliceState or None
        Hyperparameters that the steps move, None for none of them.
    cloud : Cloud or None
        Draws that `u` is one of, with the move that they were made by.
    """

    f: FloatArray
    u: FloatArray | None = None
    model: ConjugateModel | None = None
    theta: SliceState | None = None
    cloud: Cloud | None = None


class ConjugateInfo(NamedTuple):
    """What a step did.

    Attributes
    ----------
    refreshed : bool
        Whether u was drawn from f, because parameters or f had changed.
    exact : bool
        See `Augmentation.rows_given`.
    stats : dict of float
        Of the move.
    """

    refreshed: bool
    exact: bool
    stats: dict[str, float]


def init(f: FloatArray, theta: SliceState | None = None) -> ConjugateState:
    """State at `f`, whatever it was drawn by."""
    return ConjugateState(f, theta=theta)


class ConjugateSampler:
    """Steps on f, each of them right whatever happened to f and the parameters since the last.

    Parameters
    ----------
    make_move : callable
        From an `Augmentation` to a `Move`.
    n_steps : int
        Steps of the move between two draws of f, where parameters or f have changed.
    n_sweeps : int, default 1
        Draws of f that make one step.
    fixed : bool, default False
        Whether the parameters are the same all along a chain: then blocks are large from the first.
    """

    def __init__(
        self,
        make_move: Callable[[Augmentation], Move],
        n_steps: int,
        n_sweeps: int = 1,
        *,
        fixed: bool = False,
    ) -> None:
        self._make_move = make_move
        self._n_steps = n_steps
        self._n_sweeps = n_sweeps
        self._fixed = fixed
        self._prepared: _Prepared | None = None
        self._block: _Block | None = None
        self._jumps, self._reference = site_target.ModeJumps(), site_target.Reference()

    def forget(self) -> None:
        """Begin a chain: only what fixed parameters decide is kept, in case they are the same."""
        self._block, self._jumps = None, site_target.ModeJumps()
        self._reference = site_target.Reference()
        if not self._fixed:
            self._prepared = None

    def prepare(self, model: ConjugateModel) -> None:
        """Make draws that nobody needs: the first compile the loops that make them."""
        move = self._prepare(model).move
        if isinstance(move, IndependenceMove):
            move.cloud(None, np.random.default_rng(0))

    def step(
        self,
        state: ConjugateState,
        model: ConjugateModel,
        rng: np.random.Generator,
        *,
        most: int | None = None,
        hyperparameters: HyperparameterMove | None = None,
    ) -> tuple[ConjugateState, ConjugateInfo]:
        """Move f once.

        Parameters
        ----------
        state : ConjugateState
        model : ConjugateModel
            The very object of the last step where nothing has changed: that is how it is known.
        rng : numpy.random.Generator
        most : int, optional
            Steps to come, this one included: no more states are made in advance.
        hyperparameters : HyperparameterMove, optional
            A move of theta, f integrated out, before f is drawn. `model` is then that at
            ``state.theta``, and the new one is in the state returned. No states are made in
            advance. Not for parameters that are fixed.

        Returns
        -------
        state : ConjugateState
        info : ConjugateInfo
        """
        if not model.mixtures:
            prepared = self._prepare(model)
            if hyperparameters is None and state.u is not None and state.model is model:
                return self._continue(state, prepared, rng, most)
            self._block = None
        with few_blas_threads(state.f.size):
            if model.mixtures or not self._fixed:
                return self._sweeps(state, model, rng, hyperparameters)
            u, exact = prepared.target.rows_given(state.f, rng)
        known = ConjugateState(state.f, u, model, state.theta)
        state, info = self._continue(known, prepared, rng, most)
        return state, info._replace(refreshed=True, exact=exact)

    def _prepare(self, model: ConjugateModel) -> "_Prepared":
        """What the parameters alone decide, kept as long as they do not change."""
        kept = self._prepared
        if kept is not None and kept.key is not model and self._fixed and kept.key.equals(model):
            kept.key = model  # a new chain, of the same data
        if kept is None or kept.key is not model:
            kept = self._prepared = _Prepared(model, Augmentation(model))
        if kept.move is None and kept.target.n_rows:
            kept.move = self._make_move(kept.target)
        return kept

    def _sweeps(
        self,
        state: ConjugateState,
        model: ConjugateModel,
        rng: np.random.Generator,
        hyperparameters: HyperparameterMove | None,
    ) -> tuple[ConjugateState, ConjugateInfo]:
        """Over one set of rows, or those of indicators drawn anew; theta moves in the last."""
        known = state.u is not None and state.model is model and not model.mixtures
        if model.mixtures:
            f = self._jumps.through_noise(state.f, model, _CANDIDATES, rng)
            state = init(f, state.theta)
            self._reference = site_target.Reference()  # rows are others at each step
        state, exact = state if known else init(state.f, state.theta), True
        for left in reversed(range(self._n_sweeps)):
            rows, move = model, None if left else hyperparameters
            if model.mixtures:
                z = model.indicators(state.f, rng)
                rows, move = model.given(z), None if move is None else move.given(z)
            state, info = self._sweep(state, self._prepare(rows), rng, move)
            exact &= info.exact
            if left or model.mixtures:
                state = init(state.f, state.theta)
        return state, info._replace(refreshed=not known, exact=exact)

    def _sweep(
        self,
        state: ConjugateState,
        prepared: "_Prepared",
        rng: np.random.Generator,
        hyperparameters: HyperparameterMove | None,
    ) -> tuple[ConjugateState, ConjugateInfo]:
        """Draw u given f unless it is known, move it, move theta given it, draw f given u."""
        u, theta, target, exact = state.u, state.theta, prepared.target, True
        if u is None:
            u, exact = target.rows_given(state.f, rng)
        stats: Mapping[str, float] = {}
        cloud, move = None, prepared.move
        if hyperparameters is not None and isinstance(move, IndependenceMove):
            draws = partial(self._draws, hyperparameters.tune, rng)
            hyperparameters = replace(hyperparameters, draws=draws)
        elif move is not None:
            walk = move.walk(u, 1, rng, thin=self._n_steps)
            u, stats = walk.u[0], walk.stats_at(0)
        if hyperparameters is not None and theta is not None:
            theta, at = hyperparameters.sweep(theta, u, target, rng, state.cloud)
            u, stats, cloud = at.u, at.stats or stats, at.cloud
            if at.target is not None and at.target is not target:
                target = at.target
                self._prepared = _Prepared(target.model, target, cloud and cloud.move)
        f = target.function_given(u[None], rng)[0]
        info = ConjugateInfo(state.u is None, exact, dict(stats))
        return ConjugateState(f, u, target.model, theta, cloud), info

    def _draws(
        self,
        tune: bool,
        rng: np.random.Generator,
        values: FloatArray,
        target: Augmentation,
        u: FloatArray | None,
    ) -> Cloud:
        """Of u at hyperparameters that may be new; sites by these are learnt."""
        here = self._prepared
        move = here.move if here and here.target is target else self._make_move(target)
        assert isinstance(move, IndependenceMove)
        move.begin(self._reference.at(values), rough=not tune)
        if tune:
            self._reference.learn(values, move.sites)
        return move.cloud(u, rng)

    def _continue(
        self,
        state: ConjugateState,
        prepared: "_Prepared",
        rng: np.random.Generator,
        most: int | None,
    ) -> tuple[ConjugateState, ConjugateInfo]:
        """The next joint state of the chain on (f, u)."""
        block = self._block
        if block is None or block.last is not state:
            block = self._make_block(state, prepared, rng, most, 0)
        elif block.taken == len(block.f):
            block = self._make_block(state, prepared, rng, most, block.number + 1)
        i = block.taken
        state = ConjugateState(block.f[i], block.walk.u[i], state.model, state.theta)
        self._block = block._replace(taken=i + 1, last=state)
        return state, ConjugateInfo(False, True, block.walk.stats_at(i))

    def _make_block(
        self,
        state: ConjugateState,
        prepared: "_Prepared",
        rng: np.random.Generator,
        most: int | None,
        number: int,
    ) -> "_Block":
        """States that follow `state`, the `number`-th block since u was drawn from f."""
        u = state.u
        assert u is not None
        size = _BLOCKS[min(number, len(_BLOCKS) - 1)]
        if self._fixed and most is not None:
            size = max(_BLOCKS[-1], _BLOCK_VALUES // (u.size + state.f.size))
        size = size if most is None else max(min(size, most), 1)
        with few_blas_threads(u.size):
            if prepared.move is None:
                walk = Walk(np.repeat(u[None], size, axis=0), {})
            else:
                if prepared.thin is None and (self._fixed or number):  # parameters seem to stay
                    prepared.thin = prepared.move.adapt()
                thin = self._n_steps if prepared.thin is None else prepared.thin
                walk = prepared.move.walk(u, size, rng, thin=thin * self._n_sweeps)
            return _Block(walk, prepared.target.function_given(walk.u, rng), 0, number, state)


@dataclass
class _Prepared:
    """Cache, by parameters: the target, the move on it, and steps of it once they were chosen."""

    key: ConjugateModel
    target: Augmentation
    move: Move | None = None
    thin: int | None = None


class _Block(NamedTuple):
    """States made in advance, how many of them were taken, and which of them last."""

    walk: Walk
    f: FloatArray
    taken: int
    number: int
    last: ConjugateState


_ELLIPSES = 8


class SiteChain:
    """Steps on f, as those of `ConjugateSampler`, for models with sites.

    Parameters
    ----------
    n_pairs : int
        Mirrored pairs in a step, that of the state among them.
    """

    def __init__(self, n_pairs: int) -> None:
        self._n_pairs = n_pairs
        self.forget()

    def forget(self) -> None:
        """Begin a chain."""
        self._reference, self._jumps = site_target.Reference(), site_target.ModeJumps()
        self._prepared: _SitesOfModel | None = None

    def step(
        self,
        state: ConjugateState,
        model: ConjugateModel,
        rng: np.random.Generator,
        *,
        most: int | None = None,
        hyperparameters: HyperparameterMove | None = None,
    ) -> tuple[ConjugateState, ConjugateInfo]:
        """Move f once, and theta with it: see `ConjugateSampler.step`.

        Sites for the map of pairs are learnt where the move of theta is tuned, and fixed then.
        """
        with few_blas_threads(state.f.size):
            if self._prepared is None or self._prepared.model is not model:
                self._prepared = _SitesOfModel(model)
            target, joint = self._prepared.target, self._prepared.joint
            f, exact = state.f, True
            stats: dict[str, float] = {}
            if joint is not None:
                f, stats, exact = joint.step(f, target, self._n_pairs, rng)
            u, also_exact = target.rows_given(f, rng)
            rows = target.n_rows > 0
            given = site_target.SiteTarget(model, u + target.mean) if rows else self._prepared.given
            # Far from EP's Gaussian a state has a weight that no pair has: it would stay for long.
            c = given.coordinates(f)
            for _ in range(_ELLIPSES):
                c = elliptical_slice(c, given.density, rng)
            if self._jumps.due():
                self._jumps.learn(c, given)
            c = self._jumps.step(c, given, self._n_pairs, rng)
            f, there, theta = given.function(c), target, state.theta
            weighed, known = None, self._reference
            if hyperparameters is not None and theta is not None:
                here, stats = site_target.site_map(given, known.at(theta.values)), {}
                pairs = site_target.SitePairs.around(c, here, known, self._n_pairs, rng)
                theta, at = replace(hyperparameters, pairs=pairs).sweep(theta, u, target, rng)
                if at.weighed is not None and at.target is not None:
                    u, weighed, there = at.u, at.weighed, at.target
                    if hyperparameters.tune:
                        start = known.at(theta.values)
                        found = weighed.target.ep(site_target.REFERENCE_TOLERANCE, start)
                        known.learn(theta.values, found)
            elif not target.n_rows:  # f alone
                here = self._prepared.map
                pairs = site_target.SitePairs.around(c, here, known, self._n_pairs, rng)
                weighed, stats = pairs.weighed(here), {}
            if weighed is not None and np.isfinite(weighed.log_evidence):
                f, stats = weighed.pick(rng)
                points = np.nan if target.n_rows else there.log_density(u)
                stats["log_evidence"] = points + weighed.log_evidence
            state = ConjugateState(f, None, there.model, theta)
        return state, ConjugateInfo(target.n_rows > 0, exact and also_exact, stats)


class _SitesOfModel:
    """What the parameters alone decide, made when it is asked for."""

    def __init__(self, model: ConjugateModel) -> None:
        self.model, self.target = model, Augmentation(model)
        self.joint: RowsAndSites | None = None
        if self.target.n_rows:
            # Where EP finds no proposal u and f are drawn in turn.
            with suppress(ValueError, ArithmeticError):
                self.joint = RowsAndSites(model)

    @cached_property
    def given(self) -> site_target.SiteTarget:
        """Sites without rows."""
        return site_target.SiteTarget(self.model, np.zeros(0))

    @cached_property
    def map(self) -> site_target.SiteMap:
        """Of these."""
        return site_target.site_map(self.given, None)


# Independence Metropolis on u: proposals of the sequential sampler twisted by EP.

# Of a standard deviation; a proposal for one step need not be the fixed point, only near it.
_EP_TOLERANCE, _EP_ADAPTED, _EP_ROUGH = 0.1, 1e-3, 0.25
_EP_SWEEPS = 60
_MISSED = 0.1  # probability that all proposals between two draws of f are refused, at most
_REFUSED = -1e300


class IndependenceMove:
    """Independence Metropolis whose proposal is the sequential sampler twisted by EP.

    A proposal is accepted with probability min(1, w_new / w_old), the w being target over proposal
    density. Proposals do not depend on the state, so they are made together.

    Parameters
    ----------
    target : Augmentation
    n_proposals : int
        Proposals between two draws of f, at most.
    settings : SamplerSettings
        Thresholds of the escalation policy: `move_rungs` and `move_pilot_draws`.
    """

    def __init__(
        self,
        target: Augmentation,
        n_proposals: int,
        settings: policy.SamplerSettings = policy.DEFAULT,
    ) -> None:
        self._target, self._n_proposals, self._settings = target, n_proposals, settings
        self._proposal: Any = None
        self.sites: site_target.GaussianSites | None = None

    def _fit(self, tol: float) -> EPResult:
        target = self._target
        with no_warnings():  # a rough fit makes a worse proposal, which the acceptance rate shows
            return fit_ep(target.cov, target.lower, target.upper, tol=tol, max_sweeps=_EP_SWEEPS)

    def _twisted(self, ep: EPResult, rung: Rung) -> TwistedProposal:
        return rung.twist(self._target.cov, ep, self._target.lower, self._target.upper)

    def begin(self, known: site_target.GaussianSites | None, *, rough: bool) -> None:
        """Fit, if it is not yet, from sites that are known; roughly, where these are of use."""
        if self._proposal is not None:
            return
        target = self._target
        start = None if known is None else known.start(target.mean)
        tol = _EP_ROUGH if rough and start is not None else _EP_TOLERANCE
        limits = target.lower, target.upper
        found = policy.twist_dense(target.cov.matrix, *limits, tol=tol, start=start)
        ep = self._fit(tol) if found is None else found.ep
        self._proposal = (
            found.proposal if found else self._twisted(ep, self._settings.move_rungs[0])
        )
        self.sites = site_target.GaussianSites(ep.tau, ep.nu + ep.tau * target.mean)

    def cloud(self, u: FloatArray | None, rng: np.random.Generator) -> Cloud:
        """As many draws as there are proposals, with `u` for the first if it is given."""
        self.begin(None, rough=False)
        proposal = self._proposal
        n_new = max(self._n_proposals, 2) - (u is not None)
        draws = TwistedDraws(proposal, rng.random((proposal.n_dims, n_new)), compiled=True)
        log_weights = _finite(draws.log_weights)
        if u is None:
            return Cloud(self, log_weights, draws.draw)
        own = _finite(proposal.log_weights_of(u[:, None]))
        own = np.append(own, log_weights)
        return Cloud(self, own, lambda k: u if k == 0 else draws.draw(k - 1), 0)

    def adapt(self) -> int:
        """Refine the proposal; steps that leave the chance of no move at all below a tenth.

        Both by pilot runs, with random numbers of their own.
        """
        ep, rng = self._fit(_EP_ADAPTED), np.random.default_rng(0)

        def pilot(rung: Rung) -> tuple[Any, float]:
            proposal = self._twisted(ep, rung)
            log_weights = policy.pilot_log_weights(proposal, self._settings.move_pilot_draws, rng)
            return proposal, relative_ess(_finite(log_weights))

        self._proposal, fraction, _ = policy.first_accepted(self._settings.move_rungs, pilot)
        refused = min(1.0 - fraction, 1.0 - 1e-9)
        if refused <= _MISSED:
            return 1
        return min(self._n_proposals, int(np.ceil(np.log(_MISSED) / np.log(refused))))

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """Every `thin`-th of `n` times `thin` states that follow `u`."""
        self.begin(None, rough=False)
        points = rng.random((self._proposal.n_dims, n * thin))
        proposed, log_weights = self._proposal.draw(points, overwrite_points=True)
        log_weights = _finite(log_weights)
        log_uniforms = np.log(rng.random(n * thin)).tolist()
        current = float(_finite(self._proposal.log_weights_of(u[:, None]))[0])
        chosen, taken, path = -1, [], []
        for i, log_weight in enumerate(log_weights.tolist()):
            accepted = log_uniforms[i] < log_weight - current
            if accepted:
                chosen, current = i, log_weight
            taken.append(accepted)
            path.append((chosen, current))
        index, weight = (np.array(x) for x in zip(*path[thin - 1 :: thin], strict=True))
        states = np.where(index >= 0, proposed[:, index], u[:, None])
        return Walk(
            np.ascontiguousarray(states.T),
            {
                "accept": np.reshape(taken, (n, thin)).mean(axis=1),
                "log_weight": weight - log_mean_exp(log_weights),
                "relative_ess": np.full(n, relative_ess(log_weights)),
            },
        )


def _finite(log_weights: FloatArray) -> FloatArray:
    """A weight that overflowed is that of a proposal refused, or of a state left at once."""
    return np.where(np.isfinite(log_weights), log_weights, _REFUSED)
