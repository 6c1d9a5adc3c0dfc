"""Hyperparameters of a block in a PyMC model, moved with its variables integrated out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.pytensorf import compile
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_skewgp._mcmc import slices
from pymc_skewgp._mcmc.collapsed_slices import HyperparameterMove
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._mcmc.slices import SliceState
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.ops.mvn_logcdf import pt_mvn_logcdf
from pymc_skewgp._model.steps.at_point import LatentAtPoint, with_values
from pymc_skewgp._validation import FloatArray

Point = dict[str, NDArray[Any]]


class Hyperparameters:
    """Continuous free variables that a block's prior and rows depend on, as one vector.

    Parameters
    ----------
    model : pymc.Model
    latent : BlockGraph
        The block.
    at_point : LatentAtPoint
        Of the same.
    compile_kwargs : dict, optional
        Of ``pymc.pytensorf.compile``.

    Attributes
    ----------
    names : list of str
        Of their value variables, on whose unconstrained scale they are moved.
    """

    def __init__(
        self,
        model: pm.Model,
        latent: BlockGraph,
        at_point: LatentAtPoint,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        moved = latent.hyperparameters
        self.names = [value.name for value in moved]
        self._latent = at_point
        if not moved:
            return
        terms = model.logp(vars=latent.rest, jacobian=True, sum=False)
        # With f integrated out its own density leaves the constant that normalises it.
        terms += [-pt_mvn_logcdf(*normaliser) for normaliser in latent.normalisers]
        if latent.log_constant is not None:
            terms.append(latent.log_constant)
        terms = [term.sum() for term in terms if not set(moved).isdisjoint(ancestors([term]))]
        total = sum(terms[1:], start=terms[0])
        used = set(graph_inputs([total]))
        inputs = [value for value in model.value_vars if value in used]
        self._inputs = [value.name for value in inputs]
        self._log_rest = compile(inputs, total, **(compile_kwargs or {}))

    def state(self, point: Point, last: SliceState | None) -> SliceState:
        """Their values at a point, with what was learnt until the last one."""
        values = np.concatenate([np.ravel(point[name]) for name in self.names]).astype(float)
        if last is None:
            return slices.init(values)
        return last._replace(values=values)

    def move(self, point: Point, *, tune: bool) -> HyperparameterMove:
        """A move of them while the model's other variables stay at `point`."""
        return HyperparameterMove(DensityAtPoint(self, point), tune)

    def point(self, values: FloatArray, point: Point) -> Point:
        """`point` with these values."""
        return with_values(self.names, values, point)

    def model(self, point: Point) -> ConjugateModel:
        """Parameters of the block."""
        return self._latent.model(point)

    def log_rest(self, point: Point) -> float:
        """Log of what the density has that depends on them, but for the rows behind the data."""
        return float(self._log_rest(*(point[name] for name in self._inputs)))


@dataclass(frozen=True)
class DensityAtPoint:
    """`HyperparameterDensity` with the model's other variables at `point`."""

    hyperparameters: Hyperparameters
    around: Point

    def at(self, values: FloatArray) -> tuple[ConjugateModel, float]:
        """See `HyperparameterDensity`."""
        there = self.hyperparameters.point(values, self.around)
        log_rest = self.hyperparameters.log_rest(there)
        return self.hyperparameters.model(there), log_rest
