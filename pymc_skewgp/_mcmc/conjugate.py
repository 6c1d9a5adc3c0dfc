"""Markov chain on (f, u, theta): a SUN vector with observations, exact for any history.

A model's state holds f, and its hyperparameters may have moved since f was drawn. A step that is
right all the same: draw u given f (exact), move u by a kernel that leaves its truncated Gaussian
invariant, draw f given u (exact); in between, theta may be moved given u, f integrated out. To keep
an old u across a change of hyperparameters would be wrong: it was drawn under others.

While neither parameters nor f change between two steps, (f, u) is itself the state of a Markov
chain with the right invariant distribution, and f is a by-product of u: then a block of states is
made at a time, in matrix products, and a step takes the next of them.

The state is data. What `ConjugateSampler` keeps besides is computed from parameters alone, or made
in advance from the very state that it returned last: dropping either changes no distribution.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.collapsed_slices import HyperparameterMove
from pymc_skewgp._mcmc.mode_jumps import ModeJumps
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._mcmc.moves import Move, Walk
from pymc_skewgp._mcmc.slices import SliceState
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

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
    """

    f: FloatArray
    u: FloatArray | None = None
    model: ConjugateModel | None = None
    theta: SliceState | None = None


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
        self._jumps = ModeJumps()

    def forget(self) -> None:
        """Begin a chain: only what fixed parameters decide is kept, in case they are the same."""
        self._block, self._jumps = None, ModeJumps()
        if not self._fixed:
            self._prepared = None

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
        if model.mixtures:
            with few_blas_threads(state.f.size):
                return self._through_indicators(state, model, rng, hyperparameters)
        prepared = self._prepare(model)
        if hyperparameters is None and state.u is not None and state.model is model:
            return self._continue(state, prepared, rng, most)
        self._block = None
        with few_blas_threads(state.f.size):
            if not self._fixed:
                return self._from_f(state, prepared, rng, hyperparameters)
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

    def _from_f(
        self,
        state: ConjugateState,
        prepared: "_Prepared",
        rng: np.random.Generator,
        hyperparameters: HyperparameterMove | None,
    ) -> tuple[ConjugateState, ConjugateInfo]:
        """Sweeps over one set of rows; theta moves in the last."""
        known = state.u is not None and state.model is prepared.key
        state, exact = state if known else init(state.f, state.theta), True
        for left in reversed(range(self._n_sweeps)):
            state, info = self._sweep(state, prepared, rng, None if left else hyperparameters)
            exact &= info.exact
            if left:
                state = init(state.f, state.theta)
        return state, info._replace(refreshed=not known, exact=exact)

    def _through_indicators(
        self,
        state: ConjugateState,
        model: ConjugateModel,
        rng: np.random.Generator,
        hyperparameters: HyperparameterMove | None,
    ) -> tuple[ConjugateState, ConjugateInfo]:
        """Sweeps over the rows that indicators make, drawn anew given f in each of them."""
        exact = True
        f = self._jumps.through_noise(state.f, model, _CANDIDATES, rng)
        state = init(f, state.theta)
        for left in reversed(range(self._n_sweeps)):
            z = model.indicators(state.f, rng)
            move = None if left or hyperparameters is None else hyperparameters.given(z)
            prepared = self._prepare(model.given(z))
            state, info = self._sweep(init(state.f, state.theta), prepared, rng, move)
            exact &= info.exact
        return init(state.f, state.theta), info._replace(exact=exact)

    def _sweep(
        self,
        state: ConjugateState,
        prepared: "_Prepared",
        rng: np.random.Generator,
        hyperparameters: HyperparameterMove | None,
    ) -> tuple[ConjugateState, ConjugateInfo]:
        """Draw u given f unless it is known, move it, move theta given it, draw f given u."""
        u, theta, target, exact = state.u, state.theta, prepared.target, True
        refreshed = u is None
        if u is None:
            u, exact = target.rows_given(state.f, rng)
        stats: dict[str, float] = {}
        if prepared.move is not None:
            walk = prepared.move.walk(u, 1, rng, thin=self._n_steps)
            u = walk.u[0]
            stats = {name: float(values[0]) for name, values in walk.stats.items()}
        if hyperparameters is not None and theta is not None:
            theta, u, target = hyperparameters.step(theta, u, target, rng)
            if target is not prepared.target:
                self._prepared = _Prepared(target.model, target)
        f = target.function_given(u[None], rng)[0]
        return ConjugateState(f, u, target.model, theta), ConjugateInfo(refreshed, exact, stats)

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
        f = block.f[i]
        state = ConjugateState(f, block.walk.u[i], state.model, state.theta)
        self._block = block._replace(taken=i + 1, last=state)
        stats = {name: float(values[i]) for name, values in block.walk.stats.items()}
        return state, ConjugateInfo(False, True, stats)

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
