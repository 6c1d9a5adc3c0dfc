"""What the step methods of SkewGP variables have in common."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.model.core import modelcontext
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from rich.progress import TextColumn
from rich.table import Column

from pymc_skewgp._errors import (
    InexactStepWarning,
    NotConjugateError,
    NotPositiveDefiniteError,
    warn,
)
from pymc_skewgp._mcmc.conjugate import ConjugateInfo
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.blocks import Block, find_blocks
from pymc_skewgp._model.graph.observed import distribution_name, find_observed
from pymc_skewgp._model.graph.site_blocks import (
    blocks_under_rows_or_sites,
    part_of_any,
    refuse_with_reason,
)
from pymc_skewgp._model.steps.block_move import BlockMove, Kernel, Point
from pymc_skewgp._model.steps.claims import is_claimed
from pymc_skewgp._model.steps.joined_blocks import every_block, graph_to_move, joined_blocks
from pymc_skewgp._model.steps.predictions import Predictions


class SUNStep(BlockedStep):
    """A step on SkewGP variables and what is jointly Gaussian with them, given everything else.

    Parameters
    ----------
    vars : variable or list of variables, or None
        Random variables or value variables: members of blocks, and hyperparameters of these. None
        for all blocks, also those without a SkewGP, and hyperparameters that need no other step.
    kernel : Kernel
        How the rows behind f are moved.
    model, rng, initial_point, compile_kwargs
        As PyMC passes them.

    Raises
    ------
    NotConjugateError
        When a variable has other children than observations with a known likelihood.
    ValueError
        For impossible data.
    """

    # The sample statistic that progress shows, its heading and its format.
    _progress: ClassVar[tuple[str, str, str]]
    # Statistics of a block whose observations are all points: there is no u to be moved.
    _without_rows: ClassVar[dict[str, Any]] = {}

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
        if vars is None:
            blocks = every_block(model, joined=kernel.collapse)
            listed: Any = _all_of(model, blocks, kernel)
        else:
            blocks = _blocks_of(model, kernel)
            listed = vars if isinstance(vars, list | tuple) else [vars]
        self.vars = get_value_vars_from_user_vars(listed, model)
        self.rng = get_random_generator(rng)
        graphs = _chosen_blocks(model, blocks, self.vars, kernel)
        self._blocks = [BlockMove(model, graph, kernel, compile_kwargs) for graph in graphs]
        predicted = [rv for graph in graphs for rv in graph.predicted]
        self._predictions = Predictions(model, list(dict.fromkeys(predicted)))
        # Blocks move with these integrated out: a step that left them as they were would be wrong.
        own = [model.rvs_to_values[rv] for rv in self._predictions.rvs]
        self.vars += [value for value in own if value not in self.vars]
        start = model.initial_point() if initial_point is None else initial_point
        for block in self._blocks:
            block.prepare(start)
        self._left: int | None = None
        self._n_draws, self._warned = 0, False

    @property
    def _name(self) -> str:
        return ", ".join(block.name for block in self._blocks)

    @property
    def _moved(self) -> list[str]:
        return list(dict.fromkeys(name for block in self._blocks for name in block.moved))

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain: nothing of the one before is left, and data are read anew."""
        super().setup_chain(rng, tune, draws)
        for block in self._blocks:
            block.forget()
        self._left, self._n_draws, self._warned = tune + draws, draws, False

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        """Draw the variables given all others, block after block.

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
            Once in a chain, when rows behind f were picked by weight.
        """
        tune = self._left is not None and self._left > self._n_draws
        infos = []
        for block in self._blocks:
            try:
                point, info = block.step(point, self.rng, tune=tune, most=self._left)
            except (NotPositiveDefiniteError, FloatingPointError) as error:
                raise SamplingError(
                    f"{type(self).__name__} cannot move {block.name} at this point: {error} "
                    "Where a chain starts there, give the variables that it depends on an "
                    "initval, increasing for cut-points that are ordered."
                ) from error
            infos.append(info)
            self._warn_if_inexact(block.name, info)
        point = self._predictions.draw(point, self.rng)
        if self._left is not None:
            self._left -= 1
        return point, [self._stats(point, infos)]

    def _warn_if_inexact(self, name: str, info: ConjugateInfo) -> None:
        """Once in a chain."""
        if info.exact or self._warned:
            return
        self._warned = True
        warn(
            f"{type(self).__name__} picked rows behind {name} by weight, because rejection found "
            "none in time: these steps are right only nearly. Fewer pseudo-points, or farther from "
            "each other, and noise that fewer observations share, make them exact.",
            InexactStepWarning,
            stacklevel=3,
        )

    def _stats(self, point: Point, infos: list[ConjugateInfo]) -> dict[str, Any]:
        """Statistics of a step: means over its blocks."""
        stats: dict[str, Any] = {name: np.nan for name in self.stats_dtypes_shapes}
        found = [info.stats or self._without_rows for info in infos]
        for name in found[0]:
            stats[name] = float(np.mean([x[name] for x in found]))
        return {**stats, "refreshed": any(info.refreshed for info in infos)}

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


def _blocks_of(model: pm.Model, kernel: Kernel) -> list[Block]:
    """All that a step with this kernel knows how to move."""
    if kernel.collapse:
        return joined_blocks(model)
    return blocks_under_rows_or_sites(model) if kernel.under_sites else find_blocks(model)


def _all_of(model: pm.Model, blocks: list[Block], kernel: Kernel) -> list[Any]:
    """Members of blocks, and hyperparameters that nothing else depends on.

    Raises
    ------
    NotConjugateError
        Where there are no blocks.
    """
    if not blocks:
        raise NotConjugateError(
            "no variable of the model is Gaussian and enters the predictors of its observations "
            "affinely.",
            "Leave the model to NUTS.",
        )
    found = [x for block in blocks for x in block.members]
    if kernel.collapse:
        found += [x for x in model.free_RVs if any(is_claimed(model, b, x) for b in blocks)]
    return found


def _chosen_blocks(
    model: pm.Model, blocks: list[Block], values: list[Any], kernel: Kernel
) -> list[BlockGraph]:
    """Blocks of what a step is given, with the hyperparameters that it moves."""
    rvs = [model.values_to_rvs[value] for value in values]
    found = []
    for block in blocks:
        if any(rv in block.members for rv in rvs):
            found.append(graph_to_move(model, part_of_any(model, block, rvs)))
    names = {name for graph in found for name in graph.names}
    known = {value for graph in found for value in graph.moved}
    known |= {model.rvs_to_values[x] for graph in found for x in graph.predicted}
    for rv, value in zip(rvs, values, strict=True):
        if rv.name not in names and value not in known:
            _refuse(model, rv, kernel)
    if kernel.collapse:
        return found
    return [
        graph._replace(
            hyperparameters=[x for x in graph.hyperparameters if x in values],
            likelihood_parameters=[x for x in graph.likelihood_parameters if x in values],
        )
        for graph in found
    ]


def _refuse(model: pm.Model, rv: Any, kernel: Kernel) -> None:
    if kernel.under_sites:
        refuse_with_reason(model, rv)
    find_observed(model, rv)
    raise NotConjugateError(f"{rv.name} is a {distribution_name(rv)} variable of no block.")
