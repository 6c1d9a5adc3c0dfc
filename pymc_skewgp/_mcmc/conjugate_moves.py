"""Markov moves on a SUN vector f under probit observations, exact for any history.

A model's state holds f, and its hyperparameters may have moved since f was drawn. A move that is
right all the same: draw u given f (exact), move u by a kernel that leaves its truncated Gaussian
invariant, draw f given u (exact). To keep an old u across a change of hyperparameters would be
wrong: it was drawn under others.

While neither parameters nor f change between two calls, (f, u) is itself the state of a Markov
chain with the right invariant distribution, and f is a by-product of u: then a block of states is
made at a time, in matrix products, and a call takes the next of them.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from pymc_skewgp._errors import EPConvergenceWarning
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal, twist
from pymc_skewgp._gaussian.weights import log_mean_exp, relative_ess
from pymc_skewgp._mcmc.augmentation import Augmentation, ProbitSUN
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

# Of a standard deviation; a proposal for one step need not be the fixed point, only near it.
_EP_TOLERANCE, _EP_SETTLED = 1e-2, 1e-3
_EP_SWEEPS = 60
# Blocks grow from the first to the last size: hyperparameters that merely paused cost little.
_BLOCKS = (4, 64, 512)
_BLOCK_VALUES = 2**22  # numbers in a block of parameters that are fixed: 32 MiB
_MISSED = 0.1  # probability that all proposals between two draws of f are refused, at most
_PILOT = 128  # draws, which no chain sees
# Relative ESS below which wider proposals are tried in its place, and those: steep cases,
# where EP's Gaussian is too narrow.
_ENOUGH = 0.7
_RELAXED = (0.6, 0.35)
_REFUSED = -1e300


class Walk(NamedTuple):
    """Successive states of u, shape (n, s + m), and what is known of each, arrays of length n."""

    u: FloatArray
    stats: dict[str, FloatArray]


class Move(Protocol):
    """A Markov kernel that leaves N(0, G) restricted to u > lower invariant."""

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """Every `thin`-th of `n` times `thin` states that follow `u`."""
        ...

    def settle(self) -> int:
        """Prepare for a long run at these parameters, and choose steps between two draws of f.

        Whatever it does depends on the parameters alone: neither on a state, nor on what a chain
        drew before.
        """
        ...


class IndependenceMove:
    """Independence Metropolis whose proposal is the sequential sampler twisted by EP.

    A proposal is accepted with probability min(1, w_new / w_old), the w being target over proposal
    density. Proposals do not depend on the state, so they are made together.

    Parameters
    ----------
    target : Augmentation
    n_proposals : int
        Proposals between two draws of f, at most.
    """

    def __init__(self, target: Augmentation, n_proposals: int) -> None:
        self._target, self._n_proposals = target, n_proposals
        self._proposal: TwistedProposal | None = None

    def _fit(self, tol: float) -> EPResult:
        target, upper = self._target, np.full(self._target.n_rows, np.inf)
        with warnings.catch_warnings():
            # A rough fit makes a worse proposal, which the acceptance rate shows.
            warnings.simplefilter("ignore", EPConvergenceWarning)
            return fit_ep(target.cov, target.lower, upper, tol=tol, max_sweeps=_EP_SWEEPS)

    def _twisted(self, ep: EPResult, relax: float = 1.0) -> TwistedProposal:
        upper = np.full(self._target.n_rows, np.inf)
        return twist(self._target.cov, ep, self._target.lower, upper, relax=relax)

    def settle(self) -> int:
        """Refine the proposal; steps that leave the chance of no move at all below a tenth.

        Both by pilot runs, with random numbers of their own.
        """
        ep, rng = self._fit(_EP_SETTLED), np.random.default_rng(0)
        fraction = 0.0
        for relax in (1.0, *_RELAXED):
            proposal = self._twisted(ep, relax)
            reached = relative_ess(_propose(proposal, _PILOT, rng)[1])
            if reached > fraction or self._proposal is None:
                self._proposal, fraction = proposal, reached
            if fraction >= _ENOUGH:
                break
        refused = min(1.0 - fraction, 1.0 - 1e-9)
        if refused <= _MISSED:
            return 1
        return min(self._n_proposals, int(np.ceil(np.log(_MISSED) / np.log(refused))))

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """See `Move`."""
        if self._proposal is None:
            self._proposal = self._twisted(self._fit(_EP_TOLERANCE))
        proposed, log_weights = _propose(self._proposal, n * thin, rng)
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


def _propose(
    proposal: TwistedProposal, n: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    u, log_weights = proposal.draw(rng.random((proposal.n_dims, n)), overwrite_points=True)
    return u, _finite(log_weights)


def _finite(log_weights: FloatArray) -> FloatArray:
    """A weight that overflowed is that of a proposal refused, or of a state left at once."""
    return np.where(np.isfinite(log_weights), log_weights, _REFUSED)


class LinESSMove:
    """Steps of linear elliptical slice sampling.

    Parameters
    ----------
    target : Augmentation
    n_steps : int
        Steps between two draws of f.
    """

    def __init__(self, target: Augmentation, n_steps: int) -> None:
        self._chol, self._lower, self._n_steps = target.cov.chol, target.lower, n_steps

    def settle(self) -> int:
        """Nothing to prepare, and always `n_steps`."""
        return self._n_steps

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """See `Move`."""
        from pymc_skewgp._gaussian.samplers.lin_ess import lin_ess  # numba: half a second of import

        result = lin_ess(self._chol, u[None], self._lower, n_draws=n, thin=thin, random_seed=rng)
        return Walk(
            result.draws[0],
            {
                "arc_length": result.arc_length[0],
                "n_active": result.n_active[0].astype(np.float64),
            },
        )


Between = Callable[[FloatArray, Augmentation], tuple[FloatArray, Augmentation]]


class StepInfo(NamedTuple):
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

    Attributes
    ----------
    state : tuple of (ProbitSUN, f, u) or None
        The joint state that the last step left behind. None: the next step draws u from f.
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
        self._target: Augmentation | None = None
        self._move: Move | None = None
        self._thin: int | None = None
        self.reset()

    def reset(self) -> None:
        """Begin a chain: only what parameters alone decide is kept, in case they are the same."""
        self.state: tuple[ProbitSUN, FloatArray, FloatArray] | None = None
        if not self._fixed:
            self._target, self._move, self._thin = None, None, None
        self._block: _Block | None = None
        self._n_blocks = 0

    def step(
        self,
        f: FloatArray,
        parameters: ProbitSUN,
        rng: np.random.Generator,
        *,
        most: int | None = None,
        between: Between | None = None,
    ) -> tuple[FloatArray, StepInfo]:
        """Move f once.

        Parameters
        ----------
        f : ndarray, shape (p,)
            Where it is.
        parameters : ProbitSUN
            The very object of the last call where nothing has changed: that is how it is known.
        rng : numpy.random.Generator
        most : int, optional
            Calls to come, this one included: no more states are made in advance.
        between : callable, optional
            A further move of (u, parameters), f integrated out, before f is drawn: from u and its
            `Augmentation` to new ones. No states are then made in advance. Not for parameters that
            are fixed.

        Returns
        -------
        f : ndarray, shape (p,)
        info : StepInfo
        """
        target = self._target_at(parameters)
        if (
            between is None
            and self.state is not None
            and self.state[0] is parameters
            and np.array_equal(self.state[1], f)
        ):
            return self._continue(rng, most)
        self._block, self._n_blocks = None, 0
        with few_blas_threads(f.size):
            if not self._fixed:
                return self._from_f(f, target, rng, between)
            u, exact = target.rows_given(f, rng)
        self.state = (parameters, f, u)
        f, info = self._continue(rng, most)
        return f, info._replace(refreshed=True, exact=exact)

    def _target_at(self, parameters: ProbitSUN) -> Augmentation:
        kept = self._target
        if self.state is None:  # a chain begins
            same = kept is not None and _equal(kept.model, parameters)
        else:
            same = self.state[0] is parameters
        if kept is None or not same:
            kept, self._move, self._thin = Augmentation(parameters), None, None
            self._target = kept
        if self._move is None and kept.n_rows:
            self._move = self._make_move(kept)
        return kept

    def _from_f(
        self,
        f: FloatArray,
        target: Augmentation,
        rng: np.random.Generator,
        between: Between | None,
    ) -> tuple[FloatArray, StepInfo]:
        """Draw u given f, move it, draw f given u."""
        exact = True
        stats: dict[str, float] = {}
        for sweep in range(self._n_sweeps):
            u, exact_draw = target.rows_given(f, rng)
            exact &= exact_draw
            if self._move is not None:
                walk = self._move.walk(u, 1, rng, thin=self._n_steps)
                u = walk.u[0]
                stats = {name: float(values[0]) for name, values in walk.stats.items()}
            if between is not None and sweep == self._n_sweeps - 1:
                u, target = between(u, target)
                if target is not self._target:
                    self._target, self._move = target, None
            f = target.function_given(u[None], rng)[0]
        self.state = (target.model, f, u)
        return f, StepInfo(True, exact, stats)

    def _continue(self, rng: np.random.Generator, most: int | None) -> tuple[FloatArray, StepInfo]:
        """The next joint state of the chain on (f, u)."""
        assert self.state is not None
        parameters, _, u = self.state
        if self._block is None or self._block.taken == len(self._block.f):
            with few_blas_threads(u.size):
                self._block = self._make_block(u, rng, most)
        block = self._block
        i = block.taken
        self._block = block._replace(taken=i + 1)
        self.state = (parameters, block.f[i], block.walk.u[i])
        stats = {name: float(values[i]) for name, values in block.walk.stats.items()}
        return block.f[i], StepInfo(False, True, stats)

    def _make_block(self, u: FloatArray, rng: np.random.Generator, most: int | None) -> "_Block":
        assert self._target is not None
        size = _BLOCKS[min(self._n_blocks, len(_BLOCKS) - 1)]
        if self._fixed and most is not None:
            size = max(_BLOCKS[-1], _BLOCK_VALUES // (u.size + self._target.model.mu.size))
        size = size if most is None else max(min(size, most), 1)
        if self._move is None:
            walk = Walk(np.repeat(u[None], size, axis=0), {})
        else:
            walk = self._move.walk(u, size, rng, thin=self._steps_between())
        self._n_blocks += 1
        return _Block(walk, self._target.function_given(walk.u, rng), 0)

    def _steps_between(self) -> int:
        """Steps of the move between two draws of f, chosen once the parameters seem to stay."""
        assert self._move is not None
        if self._thin is None and (self._fixed or self._n_blocks):
            self._thin = self._move.settle() * self._n_sweeps
        return self._n_steps * self._n_sweeps if self._thin is None else self._thin


def _equal(a: ProbitSUN, b: ProbitSUN) -> bool:
    return all(
        np.array_equal(x, y) if x is not None and y is not None else x is y
        for x, y in zip(a, b, strict=True)
    )


class _Block(NamedTuple):
    """States made in advance, and how many of them were taken."""

    walk: Walk
    f: FloatArray
    taken: int
