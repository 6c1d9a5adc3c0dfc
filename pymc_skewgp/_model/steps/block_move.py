"""One block of a PyMC model, moved by a Markov chain on (f, u, hyperparameters)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_skewgp._mcmc import conjugate
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.conjugate import ConjugateInfo, ConjugateSampler, ConjugateState
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._mcmc.moves import Move
from pymc_skewgp._mcmc.site_chain import SiteChain
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.steps.at_point import LatentAtPoint, with_values
from pymc_skewgp._model.steps.hyperparameters import Hyperparameters
from pymc_skewgp._model.steps.likelihood_parameters import LikelihoodParameters
from pymc_skewgp._validation import FloatArray

Point = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Kernel:
    """How a step moves its variables; see `ConjugateSampler`.

    Attributes
    ----------
    make_move, n_steps, n_sweeps
        As of `ConjugateSampler`.
    collapse : bool, default False
        Whether the step moves hyperparameters too, the variables integrated out.
    under_sites : bool, default False
        Whether observations may be sites, and intervals that repeat factors, which are the same;
        then `n_steps` is the number of pairs there.
    """

    make_move: Callable[[Augmentation], Move]
    n_steps: int
    n_sweeps: int = 1
    collapse: bool = False
    under_sites: bool = False


class BlockMove:
    """Moves the variables of one block, given everything else, and its hyperparameters.

    Parameters
    ----------
    model : pymc.Model
    block : BlockGraph
        Its `hyperparameters` are those to be moved.
    kernel : Kernel
    compile_kwargs : dict, optional
        Of ``pymc.pytensorf.compile``.

    Attributes
    ----------
    name : str
        Of the members, for messages.
    moved : list of str
        Names of the hyperparameters, those of the likelihood among them.
    """

    def __init__(
        self,
        model: pm.Model,
        block: BlockGraph,
        kernel: Kernel,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self.name = ", ".join(block.names)
        self._values = [value.name for value in block.values]
        self._kernel = kernel
        by_factors = kernel.under_sites
        self._latent = LatentAtPoint(model, block, compile_kwargs, by_factors=by_factors)
        self._hyperparameters = Hyperparameters(model, block, self._latent, compile_kwargs)
        self._parameters = LikelihoodParameters(model, block, compile_kwargs)
        self.moved = [model.values_to_rvs[value].name for value in block.moved]
        mixed = any(y.mixture is not None for y in block.observed)
        self._fixed = self._latent.fixed and not mixed  # indicators make other rows at each step
        self._sampler: ConjugateSampler | SiteChain | None = None
        self._state: ConjugateState | None = None
        self._seen: list[NDArray[Any]] = []

    def prepare(self, point: Point) -> None:
        """Evaluate once: the first call compiles, here rather than in every process of a chain."""
        self._latent.model(point)

    def forget(self) -> None:
        """Begin a chain: nothing of the one before is left, and data are read anew."""
        self._latent.forget()
        if self._sampler is not None:
            self._sampler.forget()
        self._parameters.forget()
        self._state = None

    def step(
        self, point: Point, rng: np.random.Generator, *, tune: bool, most: int | None
    ) -> tuple[Point, ConjugateInfo]:
        """Draw the variables, and move the hyperparameters.

        Parameters
        ----------
        point : dict
            Values of the model's value variables.
        rng : numpy.random.Generator
        tune : bool
            Whether to learn widths of slices.
        most : int, optional
            Steps to come, this one included.

        Returns
        -------
        point : dict
        info : ConjugateInfo
        """
        point = self._parameters.step(point, rng, tune=tune)
        f, hyperparameters = self._vector(point), None
        state, inputs = self._state, self._latent.inputs(point)
        if state is None:
            state = conjugate.init(f)
        elif not np.array_equal(f, state.f):
            state = conjugate.init(f, state.theta)
        if self._hyperparameters.names:
            hyperparameters = self._hyperparameters.move(point, tune=tune)
            state = state._replace(theta=self._hyperparameters.state(point, state.theta))
        if state.model is not None and all(map(np.array_equal, inputs, self._seen)):
            model = state.model
        else:
            model = self._latent.model(point)
        state, info = self._sampler_of(model).step(
            state, model, rng, most=most, hyperparameters=hyperparameters
        )
        self._state = state
        if state.theta is not None:
            point = self._hyperparameters.point(state.theta.values, point)
            inputs = self._latent.inputs(point)
        # Copies: the caller may write the next point where this one is.
        self._seen = [np.array(x) for x in inputs]
        return with_values(self._values, state.f, point), info

    def _sampler_of(self, model: ConjugateModel) -> ConjugateSampler | SiteChain:
        """That of the last step, where the data have not changed to another kind."""
        kind = ConjugateSampler if model.sites is None else SiteChain
        if not isinstance(self._sampler, kind):
            known = self._kernel
            self._sampler = (
                ConjugateSampler(known.make_move, known.n_steps, known.n_sweeps, fixed=self._fixed)
                if model.sites is None
                else SiteChain(known.n_steps)
            )
        return self._sampler

    def _vector(self, point: Point) -> FloatArray:
        """Values of the members, one after the other."""
        if len(self._values) == 1:
            return np.ravel(point[self._values[0]])
        return np.concatenate([np.ravel(point[name]) for name in self._values])
