"""What the step methods of a SkewGP variable have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.exceptions import SamplingError
from pymc.model.core import modelcontext
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from rich.progress import TextColumn
from rich.table import Column

from pymc_skewgp._errors import InexactStepWarning, NotPositiveDefiniteError, warn
from pymc_skewgp._mcmc import conjugate
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.conjugate import ConjugateInfo, ConjugateSampler, ConjugateState
from pymc_skewgp._mcmc.moves import Move
from pymc_skewgp._model.graph.analysis import analyse
from pymc_skewgp._model.steps.at_point import LatentAtPoint
from pymc_skewgp._model.steps.hyperparameters import Hyperparameters

Point = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Kernel:
    """How a step moves its variable; see `ConjugateSampler`.

    Attributes
    ----------
    make_move, n_steps, n_sweeps
        As of `ConjugateSampler`.
    collapse : bool, default False
        Whether the step moves hyperparameters too, the variable integrated out.
    """

    make_move: Callable[[Augmentation], Move]
    n_steps: int
    n_sweeps: int = 1
    collapse: bool = False


class SUNStep(BlockedStep):
    """A step on one SkewGP variable, given everything else.

    Parameters
    ----------
    vars : variable or list of one variable
        Random variable or value variable.
    kernel : Kernel
        How the rows behind f are moved.
    model, rng, initial_point, compile_kwargs
        As PyMC passes them.

    Raises
    ------
    NotConjugateError
        When the variable has other children than observations with a known likelihood.
    ValueError
        For more than one variable, and for impossible data.
    """

    default_blocked = False
    # The sample statistic that progress shows, its heading and its format.
    _progress: ClassVar[tuple[str, str, str]]

    def __init__(
        self,
        vars: Any,
        kernel: Kernel,
        *,
        model: pm.Model | None,
        rng: Any,
        initial_point: Point | None,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        model = modelcontext(model)
        listed = vars if isinstance(vars, list | tuple) else [vars]
        values = get_value_vars_from_user_vars(listed, model)
        if len(values) != 1:
            raise ValueError(
                f"{type(self).__name__} moves one variable, got {[v.name for v in values]}: "
                "make a step for each."
            )
        self.vars = values
        self.rng = get_random_generator(rng)
        self._name = values[0].name
        rv = model.values_to_rvs[values[0]]
        latent = analyse(model, rv, only=[rv])
        if not kernel.collapse:
            latent = latent._replace(hyperparameters=[])
        self._latent = LatentAtPoint(model, latent, compile_kwargs)
        self._hyperparameters = Hyperparameters(model, latent, self._latent, compile_kwargs)
        self._moved = [model.values_to_rvs[value].name for value in latent.hyperparameters]
        # The first call compiles: here, once, rather than in every process that chains run in.
        self._latent.model(model.initial_point() if initial_point is None else initial_point)
        self._sampler = ConjugateSampler(
            kernel.make_move, kernel.n_steps, kernel.n_sweeps, fixed=self._latent.fixed
        )
        self._state: ConjugateState | None = None
        self._left: int | None = None
        self._n_draws, self._warned = 0, False

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain: nothing of the one before is left, and data are read anew."""
        super().setup_chain(rng, tune, draws)
        self._latent.forget()
        self._sampler.forget()
        self._state = None
        self._left, self._n_draws, self._warned = tune + draws, draws, False

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        """Draw the variable given all others, and move its hyperparameters where that is asked.

        Parameters
        ----------
        point : dict
            Values of the value variables.

        Returns
        -------
        point : dict
        stats : list of one dict

        Raises
        ------
        SamplingError
            At a point where the covariances are none, which only a chain's start can be.

        Warns
        -----
        InexactStepWarning
            Once in a chain, when the latent variables given f were picked by weight.
        """
        f, hyperparameters = point[self._name], None
        state = self._state
        if state is None:
            state = conjugate.init(f)
        elif not np.array_equal(f, state.f):
            state = conjugate.init(f, state.theta)
        if self._moved:
            tune = self._left is not None and self._left > self._n_draws
            hyperparameters = self._hyperparameters.move(point, tune=tune)
            theta = self._hyperparameters.state(point, state.theta)
            state = state._replace(theta=theta)
        try:
            state, info = self._sampler.step(
                state,
                self._latent.model(point),
                self.rng,
                most=self._left,
                hyperparameters=hyperparameters,
            )
        except (NotPositiveDefiniteError, FloatingPointError) as error:
            raise SamplingError(
                f"{type(self).__name__} cannot move {self._name} at this point: {error}"
            ) from error
        self._state = state
        self._warn_if_inexact(info)
        if self._left is not None:
            self._left -= 1
        new = state.f.astype(f.dtype, copy=False)
        if state.theta is not None:
            point = self._hyperparameters.point(state.theta.values, point)
        return {**point, self._name: new}, [self._stats(new, info)]

    def _warn_if_inexact(self, info: ConjugateInfo) -> None:
        """Once in a chain."""
        if info.exact or self._warned:
            return
        self._warned = True
        warn(
            f"{type(self).__name__} picked the latent variables of {self._name} given it by "
            "weight, because rejection found none in time: these steps are right only nearly. "
            "Fewer pseudo-points, or farther from each other, make them exact.",
            InexactStepWarning,
            stacklevel=3,
        )

    def _stats(self, f: NDArray[Any], info: ConjugateInfo) -> dict[str, Any]:
        """Statistics of a step."""
        stats = {name: np.nan for name in self.stats_dtypes_shapes}
        return {**stats, **info.stats, "refreshed": info.refreshed}

    @classmethod
    def _progressbar_config(
        cls, n_chains: int = 1
    ) -> tuple[list[TextColumn], dict[str, list[float]]]:
        stat, heading, shown = cls._progress
        text = f"{{task.fields[{stat}]:{shown}}}"
        return [TextColumn(text, table_column=Column(heading, ratio=1))], {stat: [0.0] * n_chains}

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Callable[[Any], dict[str, Any]], ...]:
        stat = cls._progress[0]
        return (lambda stats: {stat: stats[stat]},)
