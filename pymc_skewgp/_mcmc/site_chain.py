"""Markov chain on (f, u, theta) under sites, beside rows or without.

A step, whatever happened to f and theta since the last: the rows u drawn given f, exactly; where
there are any, f and u moved together (`site_rows`); f along an ellipse; theta given u, f integrated
out by pairs, and f given theta and u (`site_pairs`). There is no other state than f and theta.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.collapsed_slices import HyperparameterMove
from pymc_skewgp._mcmc.conjugate import ConjugateInfo, ConjugateState
from pymc_skewgp._mcmc.ellipses import elliptical_slice
from pymc_skewgp._mcmc.mode_jumps import ModeJumps
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._mcmc.site_pairs import Reference, SitePairs, site_map
from pymc_skewgp._mcmc.site_rows import RowsAndSites
from pymc_skewgp._mcmc.site_target import SiteTarget
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

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
        self._reference, self._jumps = Reference(), ModeJumps()
        self._prepared = _Kept()

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
            target = self._prepared.of(model, "target", lambda: Augmentation(model))
            f, exact = state.f, True
            stats: dict[str, float] = {}
            joint = self._prepared.of(model, "joint", lambda: _joint_move(model, target))
            if joint is not None:
                f, stats, exact = joint.step(f, target, self._n_pairs, rng)
            u, also_exact = target.rows_given(f, rng)
            given = self._given(u, target)
            # Far from EP's Gaussian a state has a weight that no pair has: it would stay for long.
            c = given.coordinates(f)
            for _ in range(_ELLIPSES):
                c = elliptical_slice(c, given.density, rng)
            if self._jumps.due():
                self._jumps.learn(c, given)
            c = self._jumps.step(c, given, self._n_pairs, rng)
            if hyperparameters is not None and state.theta is not None:
                state, stats = self._with_theta(state, c, u, target, rng, hyperparameters)
            elif target.n_rows:
                state = ConjugateState(given.function(c), None, model, state.theta)
            else:
                f, stats = self._at_theta(c, u, target, rng)
                state = ConjugateState(f, None, model, state.theta)
        return state, ConjugateInfo(target.n_rows > 0, exact and also_exact, stats)

    def _given(self, u: FloatArray, target: Augmentation) -> SiteTarget:
        """Sites given the rows; without rows always the same."""

        def make() -> SiteTarget:
            return SiteTarget(target.model, u + target.mean)

        return make() if target.n_rows else self._prepared.of(target.model, "given", make)

    def _at_theta(
        self, c: FloatArray, u: FloatArray, target: Augmentation, rng: np.random.Generator
    ) -> tuple[FloatArray, dict[str, float]]:
        """Move f alone, without rows."""
        given = self._given(u, target)
        here = self._prepared.of(target.model, "map", lambda: site_map(given, None))
        weighed = SitePairs.around(c, here, None, self._n_pairs, rng).weighed(here)
        if not np.isfinite(weighed.log_evidence):
            return given.function(c), {}
        found, stats = weighed.pick(rng)
        points = target.log_density(u)
        return found, {**stats, "log_evidence": points + weighed.log_evidence}

    def _with_theta(
        self,
        state: ConjugateState,
        c: FloatArray,
        u: FloatArray,
        target: Augmentation,
        rng: np.random.Generator,
        move: HyperparameterMove,
    ) -> tuple[ConjugateState, dict[str, float]]:
        theta = state.theta
        assert theta is not None
        known, given = self._reference.sites, self._given(u, target)
        pairs = SitePairs.around(c, site_map(given, known), known, self._n_pairs, rng)
        theta, at = replace(move, pairs=pairs).sweep(theta, u, target, rng)
        if at.target is None or at.weighed is None:
            return ConjugateState(given.function(c), None, target.model, theta), {}
        if move.tune:
            self._reference.learn(at.weighed.target)
        f, stats = at.weighed.pick(rng)
        points = np.nan if target.n_rows else at.target.log_density(at.u)
        stats["log_evidence"] = points + at.weighed.log_evidence
        return ConjugateState(f, None, at.target.model, theta), stats


def _joint_move(model: ConjugateModel, target: Augmentation) -> RowsAndSites | None:
    """None without rows, and where EP finds no proposal: there u and f are drawn in turn."""
    if not target.n_rows:
        return None
    try:
        return RowsAndSites(model)
    except (ValueError, ArithmeticError):
        return None


class _Kept:
    """What the parameters alone decide, as long as they are the same object."""

    def __init__(self) -> None:
        self._model: ConjugateModel | None = None
        self._parts: dict[str, object] = {}

    def of[T](self, model: ConjugateModel, name: str, make: Callable[[], T]) -> T:
        """The part of this name."""
        if self._model is not model:
            self._model, self._parts = model, {}
        if name not in self._parts:
            self._parts[name] = make()
        return self._parts[name]  # type: ignore[return-value]
