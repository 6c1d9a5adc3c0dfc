"""Variables that nothing observed depends on: drawn from their distributions.

Masked data are such variables, and predictions that stand in the model. They say nothing of the
block: it is moved with them integrated out, and they are drawn given everything else afterwards.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.steps.block_move import Point


class Predictions:
    """Draws of variables given all others, on the scale that they are sampled on.

    Parameters
    ----------
    model : pymc.Model
    rvs : sequence of TensorVariable
        Free random variables of it; one may depend on others of them.

    Attributes
    ----------
    rvs : list of TensorVariable
    """

    def __init__(self, model: pm.Model, rvs: Sequence[Any]) -> None:
        self.rvs = list(rvs)
        self._names = [model.rvs_to_values[rv].name for rv in rvs]
        if not rvs:
            return
        others = [rv for rv in model.basic_RVs if rv not in self.rvs]
        values = dict(zip(others, model.replace_rvs_by_values(others), strict=True))
        drawn = clone_replace(self.rvs, values)
        outputs = []
        for rv, new in zip(self.rvs, drawn, strict=True):
            transform = model.rvs_to_transforms[rv]
            outputs.append(new if transform is None else transform.forward(new, *new.owner.inputs))
        used = list(graph_inputs(outputs))
        own = [x for x in used if isinstance(x.type, RandomGeneratorType)]
        generators = [x.type() for x in own]
        outputs = clone_replace(outputs, dict(zip(own, generators, strict=True)))
        inputs = [value for value in model.value_vars if value in used]
        self._inputs, self._n_generators = [value.name for value in inputs], len(own)
        self._function = pytensor.function([*generators, *inputs], outputs, mode=PLAIN)

    def draw(self, point: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Point:
        """`point` with new draws of the variables."""
        if not self.rvs:
            return dict(point)
        seeds = rng.integers(2**63, size=self._n_generators)
        arguments = [point[name] for name in self._inputs]
        drawn = self._function(*map(np.random.default_rng, seeds), *arguments)
        return {**point, **dict(zip(self._names, drawn, strict=True))}
