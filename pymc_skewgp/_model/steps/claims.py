"""Hyperparameters that the step of a block takes for itself, so that no NUTS is needed for them."""

from typing import Any

import pymc as pm

from pymc_skewgp._model.graph.analysis import block_graph
from pymc_skewgp._model.graph.blocks import Block

_MOST = 8  # entries of all of them together


def is_claimed(model: pm.Model, block: Block, rv: Any) -> bool:
    """Whether a hyperparameter is left to the block's step alone.

    It is where there are few, and where nothing depends on it but the block, its observations and
    other such hyperparameters.
    """
    return rv in claimed(model, block)


def claimed(model: pm.Model, block: Block) -> list[Any]:
    """Hyperparameters that are left to the block's step alone."""
    found = [model.values_to_rvs[value] for value in block_graph(model, block).hyperparameters]
    return found
