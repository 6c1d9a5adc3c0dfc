"""Where `pm.sample` picks the step for sites: where NUTS has fewer effective draws a second."""

from typing import Any

import pymc as pm

from pymc_skewgp._model.graph.analysis import block_graph
from pymc_skewgp._model.graph.blocks import Block
from pymc_skewgp._model.steps.claims import n_entries

_MOST = 8


def is_fast(model: pm.Model, block: Block) -> bool:
    """Whether the step is to be picked for a block under sites."""
    return _n_moved(model, block) <= _MOST


def refuse_slow(model: pm.Model, block: Block) -> None:
    """NotConjugateError for a block under sites that NUTS samples faster."""


def _n_moved(model: pm.Model, block: Block) -> int:
    moved: list[Any] = [model.values_to_rvs[x] for x in block_graph(model, block).moved]
    return sum(n_entries(model, x) for x in moved)
