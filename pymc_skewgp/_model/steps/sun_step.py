"""What the step methods of a unified skew-normal variable have in common."""

import sys
from collections.abc import Callable, Mapping
from types import FrameType
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
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.conjugate_moves import ConjugateSampler, Move, StepInfo
from pymc_skewgp._model.graph.probit_model import ProbitModel
from pymc_skewgp._model.steps.hyperparameters import Hyperparameters

Point = dict[str, NDArray[Any]]


class SUNStep(BlockedStep):
    """A step on one unified skew-normal variable, given everything else.

    Parameters
    ----------
    vars : variable or list of one variable
        Random variable or value variable.
    make_move, n_steps, n_sweeps
        As of `ConjugateSampler`.
    collapse : bool
        Whether the step moves hyperparameters too, the variable integrated out.
    model, rng, initial_point, compile_kwargs
        As PyMC passes them.

    Raises
    ------
    NotConjugateError
        When the variable has other children than probit observations.
    ValueError
        For more than one variable, and for data other than 0 and 1.
    """

    default_blocked = False
    # The sample statistic that progress shows, its heading and its format.
    _progress: ClassVar[tuple[str, str, str]]

    def __init__(
        self,
        vars: Any,
        make_move: Callable[[Augmentation], Move],
        n_steps: int,
        n_sweeps: int = 1,
        *,
        collapse: bool,
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
        self._probit = ProbitModel(model, rv, compile_kwargs)
        self._hyperparameters = Hyperparameters(
            model, rv, self._probit, compile_kwargs, collapse=collapse
        )
        # The first call compiles: here, once, rather than in every process that chains run in.
        self._probit.parameters(model.initial_point() if initial_point is None else initial_point)
        fixed = self._probit.fixed
        self._sampler = ConjugateSampler(make_move, n_steps, n_sweeps, fixed=fixed)
        self._left: int | None = None
        self._n_draws, self._told = 0, False

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain: nothing of the one before is left, and data are read anew."""
        super().setup_chain(rng, tune, draws)
        self._probit.forget()
        self._sampler.reset()
        self._hyperparameters.begin()
        self._left, self._n_draws, self._told = tune + draws, draws, False

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
        f = point[self._name]
        tune = self._left is not None and self._left > self._n_draws
        between, moved = self._hyperparameters.between(point, self.rng, tune=tune)
        try:
            parameters = self._probit.parameters(point)
            new, info = self._sampler.step(
                f, parameters, self.rng, most=self._left, between=between
            )
        except (NotPositiveDefiniteError, FloatingPointError) as error:
            raise SamplingError(
                f"{type(self).__name__} cannot move {self._name} at this point: {error}"
            ) from error
        if not info.exact and not self._told:
            self._told = True
            warn(
                f"{type(self).__name__} picked the latent variables of {self._name} given it by "
                "weight, because rejection found none in time: these steps are right only nearly. "
                "Fewer pseudo-points, or farther from each other, make them exact.",
                InexactStepWarning,
                stacklevel=2,
            )
        if self._left is not None:
            self._left -= 1
        new = new.astype(f.dtype, copy=False)
        return {**point, **moved(), self._name: new}, [self._stats(new, info)]

    def _stats(self, f: NDArray[Any], info: StepInfo) -> dict[str, Any]:
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


def model_of(rv: Any) -> pm.Model | None:
    """The model that a free random variable belongs to, where it can be found.

    PyMC asks a step method for its competence with the variable alone, and a variable does not know
    its model. The model in context is it, as a rule; for ``pm.sample(model=...)`` outside of any
    context it is the one that PyMC's `assign_step_methods` is at work on, up the stack.
    """
    candidates = [pm.Model.get_context(error_if_none=False)]
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "assign_step_methods":
            candidates.append(frame.f_locals.get("model"))
        frame = frame.f_back
    for model in candidates:
        if isinstance(model, pm.Model) and rv in model.free_RVs:
            return model
    return None
