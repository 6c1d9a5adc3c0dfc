"""Whether a variable has an exact step, alone or with the blocks it shares; if not, why."""

import logging
import sys
from collections.abc import Callable
from math import prod
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pymc as pm
from pymc.distributions.continuous import FlatRV

from pymc_skewgp._errors import NotConjugateError, warnings_are_wanted
from pymc_skewgp._model.distributions.unified_skew_normal import warn_of_other_step
from pymc_skewgp._model.graph import analysis
from pymc_skewgp._model.graph import sites as graph_sites
from pymc_skewgp._model.graph.members import is_function, known_shape, proper_joint
from pymc_skewgp._model.ops.densities import sun_of_process

# Hyperparameters that the step of a block takes for itself, so that NUTS is not needed for them.
#
# At n = 80 and two hyperparameters slices given the rows alone had more effective draws than slices
# and NUTS together, in a quarter of the time: given f NUTS can hardly move them.

_MOST = 8  # entries of all of them together: beyond, NUTS has its gradient

_KNOWN: "WeakKeyDictionary[pm.Model, dict[Any, Any]]" = WeakKeyDictionary()


def _remembered[T](model: pm.Model, key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """Made once while the model stays as it is: PyMC asks for one variable after the other."""
    whole = (*model.basic_RVs, *model.potentials)
    known = _KNOWN.get(model, {})
    if known.get("model") != whole:
        known = _KNOWN[model] = {"model": whole}
    if key not in known:
        known[key] = make()
    found: T = known[key]
    return found


def is_claimed(model: pm.Model, block: analysis.Block, rv: Any) -> bool:
    """Whether a hyperparameter is left to the step of a block alone.

    It is where nothing depends on it but the block, its observations and other such
    hyperparameters, and where these are few.
    """
    claimed = _claimed(model, block)
    return rv in claimed and _n_entries(model, claimed) <= _MOST


def _claimed(model: pm.Model, block: analysis.Block) -> list[Any]:
    """Hyperparameters that the step of a block takes for itself, where they are not too many."""

    def make() -> list[Any]:
        claimed = _moved(model, block)
        below = {x: {y.name for y in graph_sites.children(model, x)} for x in claimed}
        own, before = {*(x.name for x in block.members), *block.below}, None
        while claimed != before:
            before, inside = claimed, {*own, *(x.name for x in claimed)}
            claimed = [x for x in claimed if below[x] <= inside]
        return claimed

    return _remembered(model, ("claims", *block.members), make)


def _moved(model: pm.Model, block: analysis.Block) -> list[Any]:
    return [model.values_to_rvs[value] for value in analysis.block_graph(model, block).moved]


def _n_entries(model: pm.Model, rvs: list[Any]) -> int:
    shapes = [(rv, model.rvs_to_values[rv].type.shape) for rv in rvs]
    return sum(prod(known_shape(rv) if None in own else own) for rv, own in shapes)


# Where `pm.sample` picks the step for sites: where NUTS has fewer effective draws a second. Each
# entry of hyperparameters takes a slice of its own, NUTS has one gradient for all.


def why_slow(model: pm.Model, block: analysis.Block, rv: Any) -> NotConjugateError | None:
    """Why the step is not picked for a function of a block under sites; None where it is."""
    # Functions that enter the sites, but are not in the block: in turn they would mix slowly.
    values = {x for y in block.sites for x in y.hyperparameters}
    for other in model.free_RVs:
        if model.rvs_to_values[other] in values and is_function(other):
            why = f"what observes {rv.name} depends on {other.name} too, and not jointly affinely."
            return NotConjugateError(why)
    n = _n_entries(model, _moved(model, block))
    if n <= _MOST:
        return None
    return NotConjugateError(
        f"{n} entries of hyperparameters would move with {rv.name}, more than {_MOST}.",
        f"Make {rv.name} with SkewGP.prior(..., reparameterize=True), which NUTS samples well, or "
        "give pm.sample the step yourself.",
    )


# Blocks that share hyperparameters, moved as one.
#
# Given f the hyperparameters of a smooth kernel are all but determined: a step that moved them
# given the function of one block, with that of the other integrated out, would hardly move them.
# Functions that no data see together are independent given the hyperparameters, so that all of them
# are one unified skew-normal vector too.


def joined_blocks(model: pm.Model) -> list[analysis.Block]:
    """Blocks of a model, those with a hyperparameter in common as one, where they can be."""
    return _remembered(
        model, ("blocks",), lambda: _joined(model, analysis.blocks_under_rows_or_sites(model))
    )


def every_block(model: pm.Model, *, joined: bool) -> list[analysis.Block]:
    """`joined_blocks`, and those of Gaussian variables without a SkewGP.

    Flat variables are given: they have no covariance.
    """
    known = analysis.blocks_under_rows_or_sites(model)
    taken = {name for block in known for name in [*(x.name for x in block.members), *block.below]}
    for block in analysis.gaussian_blocks(model, taken, {}, analysis.Reach.ONE):
        proper = [x for x in block.members if not isinstance(x.owner.op, FlatRV)]
        if proper:
            known.append(analysis.part_of(model, block, proper))
    return _joined(model, known) if joined else known


def graph_to_move(model: pm.Model, block: analysis.Block) -> analysis.BlockGraph:
    """`block_graph`, with potentials in the prior, and the constant of that."""
    graph = analysis.block_graph(model, block)
    if any(is_function(x) for x in block.members):
        return graph
    joint = proper_joint(model, graph.members, block.potentials)
    prior = sun_of_process(joint.mean, joint.factor @ joint.factor.T, None, None, 0)
    return graph._replace(prior=prior, log_constant=joint.log_constant)


def _joined(model: pm.Model, blocks: list[analysis.Block]) -> list[analysis.Block]:
    if len(blocks) < 2:
        return blocks
    found: list[tuple[analysis.Block, set[Any]]] = []
    for block in blocks:
        moved = set(analysis.block_graph(model, block).moved)
        for other in list(found):
            if not moved.isdisjoint(other[1]) and _are_apart(model, block, other[0]):
                found.remove(other)
                block, moved = _both(model, other[0], block), moved | other[1]
        found.append((block, moved))
    return [block for block, _ in found]


def _are_apart(model: pm.Model, one: analysis.Block, other: analysis.Block) -> bool:
    """Whether neither depends on members of the other."""
    for block, rest in ((one, other), (other, one)):
        names = {*(x.name for x in rest.members), *rest.below}
        below = {x.name for rv in block.members for x in graph_sites.children(model, rv)}
        if not names.isdisjoint(below):
            return False
    return True


def _both(model: pm.Model, one: analysis.Block, other: analysis.Block) -> analysis.Block:
    """Of the variables of two, in the order of the model."""
    members, predicted = {*one.members, *other.members}, {*one.predicted, *other.predicted}
    observed = {y.name: y for y in [*one.observed, *other.observed]}
    sites = {y.name: y for y in [*one.sites, *other.sites]}
    return analysis.Block(
        [x for x in model.free_RVs if x in members],
        [observed[y.name] for y in model.observed_RVs if y.name in observed],
        [x for x in model.free_RVs if x in predicted],
        list(sites.values()),
        [*one.potentials, *other.potentials],
    )


# Under PyMC's own: its lines are shown, and kept back, together with PyMC's.
_log = logging.getLogger("pymc.pymc_skewgp")
_WARNED: "WeakKeyDictionary[pm.Model, set[str]]" = WeakKeyDictionary()


class Asked(NamedTuple):
    """The model that a variable belongs to, and what its user asked of ``pm.sample``.

    Attributes
    ----------
    model : pymc.Model
    quiet : bool
    assigned : set of TensorVariable
        Value variables for which the user gave steps.
    options : dict
        Arguments for step methods, by their names.
    nuts_sampler : str or None
    """

    model: pm.Model
    quiet: bool
    assigned: set[Any]
    options: dict[str, Any]
    nuts_sampler: str | None = None


def can_be_sampled_exactly(rv: Any, has_grad: bool) -> bool:
    """Whether `ConjugateStep` samples a free random variable of the model that asks.

    So it does with SkewGP variables, and, unless the user chose steps for these, with the Gaussian
    variables of their blocks, with what these predict, such as masked data, and with
    hyperparameters that nothing else depends on. Options for NUTS leave it the hyperparameters.

    Raises
    ------
    NotConjugateError
        Where a ``nuts_sampler`` of another package was asked for, which samples all variables.

    Warns
    -----
    NotConjugateWarning
        Once for each variable of a model, when it is a SkewGP that NUTS would sample as it is.
    """
    asked = who_asks(rv)
    if asked is None:
        return False
    blocks = joined_blocks(asked.model)
    if not is_function(rv) or graph_sites.is_prediction(asked.model, rv):
        goes = any(_goes_with(rv, block, asked) for block in blocks)
        if goes or not is_function(rv):
            return goes
    try:
        own = [block for block in blocks if rv in block.members]
        for block in own:
            if block.sites and (error := why_slow(asked.model, block, rv)) is not None:
                if not error.remedy:  # rows may say what to do
                    analysis.find_observed(asked.model, rv)
                raise error
        if not own:
            analysis.refuse_with_reason(asked.model, rv)
    except NotConjugateError as error:
        _say_why(rv.name, error, asked, has_grad)
        return False
    for block in own:
        _refuse_other_sampler(rv.name, asked)
        if rv is next(x for x in block.members if is_function(x)):
            _say_that_nuts_moves(block, asked)
    return bool(own)


def _goes_with(rv: Any, block: analysis.Block, asked: Asked) -> bool:
    """Whether a variable is moved by the step of a block that the user left to ``pm.sample``."""
    functions = [x for x in block.members if is_function(x)]
    if block.sites and why_slow(asked.model, block, rv) is not None:
        return False
    if any(asked.model.rvs_to_values[x] in asked.assigned for x in functions):
        return False
    if rv in block.predicted:
        return True
    # Options for NUTS without a variable for NUTS would be an error.
    nuts = "nuts" in asked.options
    if rv in block.members:
        return not nuts or _are_others(asked.model)
    collapse = asked.options.get("conjugate", {}).get("collapse", True)
    return collapse and not nuts and is_claimed(asked.model, block, rv)


def _refuse_other_sampler(name: str, asked: Asked) -> None:
    if asked.nuts_sampler not in (None, "pymc"):
        raise NotConjugateError(
            f"nuts_sampler={asked.nuts_sampler!r} is to sample all variables, and {name} is one "
            "that ConjugateStep draws exactly.",
            f"Leave nuts_sampler out, or make {name} with SkewGP.prior(..., reparameterize=True).",
        )


def _say_that_nuts_moves(block: analysis.Block, asked: Asked) -> None:
    """A line where so many hyperparameters are left to NUTS that would otherwise not be."""
    claimed = _claimed(asked.model, block)
    names = [x.name for x in claimed if _n_entries(asked.model, claimed) > _MOST]
    collapse = asked.options.get("conjugate", {}).get("collapse", True)
    if names and collapse and not asked.quiet and "nuts" not in asked.options:
        function = block.members[0].name
        _log.info(
            f"{', '.join(names)}: more than 8 numbers are left to NUTS, which moves them slowly "
            f"given {function}. To move them with {function} integrated out alone give pm.sample "
            f"step=ConjugateStep([{', '.join([function, *names])}]), or use integrate(model)."
        )


def _are_others(model: pm.Model) -> bool:
    """Whether a model has variables that are in no block."""
    taken = [x for block in joined_blocks(model) for x in [*block.members, *block.predicted]]
    return any(rv not in taken for rv in model.free_RVs)


def _say_why(name: str, error: NotConjugateError, asked: Asked, has_grad: bool) -> None:
    if not asked.quiet:
        _log.info(f"{name} is not sampled by ConjugateStep: {error}")
    warned = _WARNED.setdefault(asked.model, set())
    # NUTS is the way to sample a distribution.
    alone = isinstance(error, graph_sites.NoObservationsError)
    if alone or not has_grad or name in warned or not warnings_are_wanted():
        return
    warned.add(name)
    warn_of_other_step(
        f"NUTS is to sample {name} as it stands, and its values are strongly correlated: few "
        f"effective draws are to be expected. {error}"
    )


def who_asks(rv: Any) -> Asked | None:
    """The model that a free random variable belongs to, where it can be found.

    PyMC asks a step method for its competence with the variable alone, and a variable does not know
    its model. The model in context is it, as a rule; for ``pm.sample(model=...)`` outside of any
    context it is the one that PyMC's `assign_step_methods` is at work on, up the stack, as are the
    variables that have steps already. ``quiet`` and options are arguments of ``pm.sample``, farther
    up.
    """
    candidates = [pm.Model.get_context(error_if_none=False)]
    quiet, assigned, options, nuts_sampler = False, set(), {}, None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "assign_step_methods":
            candidates.append(frame.f_locals.get("model"))
            assigned = set(frame.f_locals.get("assigned_vars", ()))
        elif frame.f_code.co_name == "sample" and frame.f_globals.get("__name__", "") == (
            "pymc.sampling.mcmc"
        ):
            quiet = bool(frame.f_locals.get("quiet", False))
            options = frame.f_locals.get("kwargs", {})
            nuts_sampler = frame.f_locals.get("nuts_sampler")
            break
        frame = frame.f_back
    for model in candidates:
        if isinstance(model, pm.Model) and rv in model.free_RVs:
            return Asked(model, quiet, assigned, options, nuts_sampler)
    return None
