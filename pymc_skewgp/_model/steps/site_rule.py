"""Where `pm.sample` picks the step for sites: where NUTS has fewer effective draws a second."""

from typing import Any

import pymc as pm

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.graph.analysis import block_graph
from pymc_skewgp._model.graph.blocks import Block
from pymc_skewgp._model.graph.members import is_function
from pymc_skewgp._model.graph.observed import find_observed
from pymc_skewgp._model.steps.claims import n_entries

# Entries of hyperparameters: each takes a slice of its own, NUTS has one gradient for all.
_MOST_MOVED = 8


def is_fast(model: pm.Model, block: Block) -> bool:
    """Whether the step is to be picked for a block under sites."""
    return not _other_functions(model, block) and _n_moved(model, block) <= _MOST_MOVED


def refuse_slow(model: pm.Model, rv: Any, block: Block) -> None:
    """NotConjugateError for a function of a block under sites for which it is not picked."""
    if is_fast(model, block):
        return
    others = _other_functions(model, block)
    if others:
        find_observed(model, rv)
        raise NotConjugateError(
            f"what observes {rv.name} depends on {others[0]} too, and not jointly affinely."
        )
    raise NotConjugateError(
        f"{_n_moved(model, block)} entries of hyperparameters would move with {rv.name}, more than "
        f"{_MOST_MOVED}.",
        f"Make {rv.name} with SkewGP.prior(..., reparameterize=True), which NUTS samples well, or "
        "give pm.sample the step yourself.",
    )


def _other_functions(model: pm.Model, block: Block) -> list[str]:
    """Functions that enter the sites, but are not in the block: in turn they would mix slowly."""
    values = {x for y in block.sites for x in y.hyperparameters}
    return [rv.name for rv in model.free_RVs if is_function(rv) and _value(model, rv) in values]


def _value(model: pm.Model, rv: Any) -> Any:
    return model.rvs_to_values[rv]


def _n_moved(model: pm.Model, block: Block) -> int:
    moved: list[Any] = [model.values_to_rvs[x] for x in block_graph(model, block).moved]
    return sum(n_entries(model, x) for x in moved)
