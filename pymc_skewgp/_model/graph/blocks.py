"""Which variables of a model are jointly Gaussian, but for truncated ones: its blocks.

A block is a SkewGP variable with all SkewGP and Gaussian variables that enter the predictors of its
observations, or the means of its Gaussian variables, jointly affinely and nothing else. Given the
data and everything else it is one unified skew-normal vector.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pymc as pm

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.graph.affine import uses_values, why_not_affine
from pymc_skewgp._model.graph.members import is_function, is_gaussian, mean_and_spread
from pymc_skewgp._model.graph.observed import (
    Observed,
    children,
    find_observed,
    is_prediction,
    outside_predictor,
    predictions_of,
    recognised,
)
from pymc_skewgp._model.graph.sites import ObservedSites


class Block(NamedTuple):
    """Random variables that are drawn together, what observes them, and what they predict.

    Attributes
    ----------
    members : list of TensorVariable
    observed : list of Observed
        Those that are rows.
    predicted : list of TensorVariable
        Free variables that depend on members, and that nothing observed depends on, such as masked
        data, with what only they depend on.
    sites : sequence of ObservedSites
        Observations that are functions of one predictor each; see `site_blocks`.
    potentials : sequence of TensorVariable
        Those that are quadratic in members.
    """

    members: list[Any]
    observed: list[Observed]
    predicted: list[Any]
    sites: Sequence[ObservedSites] = ()
    potentials: Sequence[Any] = ()

    @property
    def below(self) -> set[str]:
        """Names of the variables that depend on members."""
        kids = [*self.observed, *self.sites, *self.predicted, *self.potentials]
        return {x.name for x in kids}


def find_blocks(model: pm.Model) -> list[Block]:
    """Blocks of a model, each with at least one SkewGP variable; no variable is in two of them."""
    functions = [rv for rv in model.free_RVs if is_function(rv) and _is_conjugate(model, rv)]
    if not functions:
        return []
    gaussian = [rv for rv in model.free_RVs if is_gaussian(model, rv)]
    below = {rv: children(model, rv) for rv in [*functions, *gaussian]}
    blocks: list[Block] = []
    for rv in functions:
        if not any(rv in block.members for block in blocks):
            blocks.append(_grown(model, rv, below, blocks))
    return blocks


def block_of(model: pm.Model, rv: Any) -> Block:
    """The block that a variable is in.

    Raises
    ------
    NotConjugateError
        Where it is in none; the message names what is in the way.
    """
    for block in find_blocks(model):
        if rv in block.members:
            return block
    find_observed(model, rv)
    raise NotConjugateError(f"{rv.name} belongs to no SkewGP.")  # pragma: no cover


def part_of(model: pm.Model, block: Block, chosen: Sequence[Any]) -> Block:
    """Some members of a block, given the others.

    Raises
    ------
    NotConjugateError
        Where another member has one of them in its mean: its density would be left out.
    """
    members = [rv for rv in block.members if rv in chosen]
    if members == block.members:
        return block
    for rv in members:
        for other in children(model, rv):
            if other in block.members and other not in chosen:
                raise NotConjugateError(
                    f"the mean of {other.name} depends on {rv.name}, which is to move without it.",
                    "Give the step both, or neither.",
                )
    names = {other.name for rv in members for other in children(model, rv)}
    return Block(
        members,
        [y for y in block.observed if y.name in names],
        predictions_of(model, members),
    )


def _is_conjugate(model: pm.Model, rv: Any) -> bool:
    try:
        find_observed(model, rv)
    except NotConjugateError:
        return False
    return True


def _grown(model: pm.Model, rv: Any, below: dict[Any, list[Any]], others: list[Block]) -> Block:
    """The block of a SkewGP variable: candidates join it until none is left that can."""
    taken = [x for block in others for x in block.members]
    candidates = [x for x in below if x is not rv and x not in taken]
    members, observed = [rv], {y.name: y for y in find_observed(model, rv)}
    grows = True
    while grows:
        grows = False
        for candidate in candidates:
            if candidate in members:
                continue
            joined = _join(model, members, observed, candidate, below[candidate])
            if joined is not None:
                members, observed, grows = [*members, candidate], joined, True
    return Block(
        [x for x in model.free_RVs if x in members],
        [observed[y.name] for y in model.observed_RVs if y.name in observed],
        predictions_of(model, members),
    )


def _join(
    model: pm.Model,
    members: list[Any],
    observed: dict[str, Observed],
    candidate: Any,
    below: list[Any],
) -> dict[str, Observed] | None:
    """Observations of a block that a candidate joins; None where it cannot."""
    if not any(x in members or x.name in observed for x in below):
        return None
    joint, found = [*members, candidate], dict(observed)
    for child in below:
        if child in members:
            mean, spread = mean_and_spread(child)
            if uses_values(spread, candidate, []) or why_not_affine(mean, joint) is not None:
                return None
            continue
        if is_prediction(model, child):
            continue
        try:
            y = recognised(model, child)
        except NotConjugateError:  # of a kind that is known, but for its limits or trials
            return None
        if y is None or outside_predictor(y.rows, candidate):
            return None
        if why_not_affine(y.rows.predictor, joint) is not None:
            return None
        found[y.name] = y
    return found
