"""Blocks that share hyperparameters, moved as one.

Given f the hyperparameters of a smooth kernel are all but determined: a step that moved them given
the function of one block, with that of the other integrated out, would hardly move them. Functions
that no data see together are independent given the hyperparameters, so that all of them are one
unified skew-normal vector too.
"""

from typing import Any
from weakref import WeakKeyDictionary

import pymc as pm
from pymc.distributions.continuous import FlatRV

from pymc_skewgp._model.graph.analysis import BlockGraph, block_graph
from pymc_skewgp._model.graph.blocks import Block
from pymc_skewgp._model.graph.joint_gaussian import proper_joint
from pymc_skewgp._model.graph.members import is_function
from pymc_skewgp._model.graph.observed import children
from pymc_skewgp._model.graph.site_blocks import (
    blocks_under_rows_or_sites,
    gaussian_blocks,
    part_of_any,
)
from pymc_skewgp._model.ops.skew_normal import sun_of_process

_KNOWN: "WeakKeyDictionary[pm.Model, tuple[Any, list[Block]]]" = WeakKeyDictionary()


def joined_blocks(model: pm.Model) -> list[Block]:
    """Blocks of a model, those with a hyperparameter in common as one, where they can be."""
    # PyMC asks for one variable after the other: the blocks are the same for all of them.
    key = (*model.basic_RVs, *model.potentials)
    known = _KNOWN.get(model)
    if known is None or known[0] != key:
        known = _KNOWN[model] = key, _joined(model, blocks_under_rows_or_sites(model))
    return known[1]


def every_block(model: pm.Model, *, joined: bool) -> list[Block]:
    """`joined_blocks`, and those of Gaussian variables without a SkewGP.

    Flat variables are given: they have no covariance.
    """
    known = blocks_under_rows_or_sites(model)
    taken = {name for block in known for name in [*(x.name for x in block.members), *block.below]}
    for block in gaussian_blocks(model, taken, {}):
        proper = [x for x in block.members if not isinstance(x.owner.op, FlatRV)]
        if proper:
            known.append(part_of_any(model, block, proper))
    return _joined(model, known) if joined else known


def graph_to_move(model: pm.Model, block: Block) -> BlockGraph:
    """`block_graph`, with potentials in the prior, and the constant of that."""
    graph = block_graph(model, block)
    if any(is_function(x) for x in block.members):
        return graph
    joint = proper_joint(model, graph.members, block.potentials)
    prior = sun_of_process(joint.mean, joint.factor @ joint.factor.T, None, None, 0)
    return graph._replace(prior=prior, log_constant=joint.log_constant)


def _joined(model: pm.Model, blocks: list[Block]) -> list[Block]:
    if len(blocks) < 2:
        return blocks
    found: list[tuple[Block, set[Any]]] = []
    for block in blocks:
        moved = set(block_graph(model, block).moved)
        for other in list(found):
            if not moved.isdisjoint(other[1]) and _are_apart(model, block, other[0]):
                found.remove(other)
                block, moved = _both(model, other[0], block), moved | other[1]
        found.append((block, moved))
    return [block for block, _ in found]


def _are_apart(model: pm.Model, one: Block, other: Block) -> bool:
    """Whether neither depends on members of the other."""
    for block, rest in ((one, other), (other, one)):
        names = {*(x.name for x in rest.members), *rest.below}
        below = {x.name for rv in block.members for x in children(model, rv)}
        if not names.isdisjoint(below):
            return False
    return True


def _both(model: pm.Model, one: Block, other: Block) -> Block:
    """Of the variables of two, in the order of the model."""
    members, predicted = {*one.members, *other.members}, {*one.predicted, *other.predicted}
    observed = {y.name: y for y in [*one.observed, *other.observed]}
    sites = {y.name: y for y in [*one.sites, *other.sites]}
    return Block(
        [x for x in model.free_RVs if x in members],
        [observed[y.name] for y in model.observed_RVs if y.name in observed],
        [x for x in model.free_RVs if x in predicted],
        list(sites.values()),
        [*one.potentials, *other.potentials],
    )
