"""Hyperparameters that the step of a block takes for itself, so that NUTS is not needed for them.

At n = 80 and two hyperparameters slices given the rows alone had more effective draws than slices
and NUTS together, in a quarter of the time: given f NUTS can hardly move them.
"""

from typing import Any
from weakref import WeakKeyDictionary

import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._model.graph.analysis import block_graph
from pymc_skewgp._model.graph.blocks import Block
from pymc_skewgp._model.graph.observed import children
from pymc_skewgp._model.ops.plain_mode import PLAIN

_MOST = 8  # entries of all of them together: beyond, NUTS has its gradient

_KNOWN: "WeakKeyDictionary[pm.Model, tuple[Any, list[Any]]]" = WeakKeyDictionary()


def is_claimed(model: pm.Model, block: Block, rv: Any) -> bool:
    """Whether a hyperparameter is left to the step of a block alone.

    It is where nothing depends on it but the block, its observations and other such
    hyperparameters, and where these are few.
    """
    claimed = _known(model, block)
    return rv in claimed and _n_entries(model, claimed) <= _MOST


def too_many(model: pm.Model, block: Block) -> list[Any]:
    """Hyperparameters that the step of a block would take for itself, were they not so many."""
    claimed = _known(model, block)
    return claimed if _n_entries(model, claimed) > _MOST else []


def _known(model: pm.Model, block: Block) -> list[Any]:
    # PyMC asks for one variable after the other: the graphs are the same for all of them.
    key = (*model.basic_RVs, *model.potentials, *block.members)
    known = _KNOWN.get(model)
    if known is None or known[0] != key:
        known = _KNOWN[model] = key, _claimed(model, block)
    return known[1]


def _claimed(model: pm.Model, block: Block) -> list[Any]:
    claimed = [model.values_to_rvs[value] for value in block_graph(model, block).moved]
    below = {x: {y.name for y in children(model, x)} for x in claimed}
    own = {*(x.name for x in block.members), *block.below}
    while True:
        inside = {*own, *(x.name for x in claimed)}
        left = [x for x in claimed if below[x] <= inside]
        if left == claimed:
            break
        claimed = left
    return claimed


def _n_entries(model: pm.Model, rvs: list[Any]) -> int:
    return sum(n_entries(model, x) for x in rvs)


def n_entries(model: pm.Model, rv: Any) -> int:
    """Entries of a variable, more than enough where they are hard to count."""
    value = model.rvs_to_values[rv]
    if None not in value.type.shape:
        size = 1
        for length in value.type.shape:
            size *= length
        return size
    infer_shape = getattr(rv.owner.op, "_infer_shape", None)
    if infer_shape is None:
        return _MOST + 1
    shape = infer_shape(rv.owner.op.size_param(rv.owner), rv.owner.op.dist_params(rv.owner))
    (size,) = model.replace_rvs_by_values([pt.prod(pt.stack(list(shape)))])
    return int(size.eval(mode=PLAIN))
