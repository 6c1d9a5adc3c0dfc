"""Whether a variable has an exact step; where a SkewGP variable has none, its user reads why."""

import logging
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pymc as pm

import pymc_skewgp._errors
from pymc_skewgp._errors import NotConjugateError, NotConjugateWarning, warnings_are_wanted
from pymc_skewgp._model.graph.blocks import Block
from pymc_skewgp._model.graph.members import is_function
from pymc_skewgp._model.graph.observed import NoObservationsError, is_prediction
from pymc_skewgp._model.graph.site_blocks import refuse_with_reason
from pymc_skewgp._model.steps.claims import is_claimed, too_many
from pymc_skewgp._model.steps.joined_blocks import joined_blocks
from pymc_skewgp._model.steps.site_rule import is_fast, refuse_slow

# Under PyMC's own: its lines are shown, and kept back, together with PyMC's.
_log = logging.getLogger("pymc.pymc_skewgp")
_WARNED: "WeakKeyDictionary[pm.Model, set[str]]" = WeakKeyDictionary()
_PACKAGES = tuple(str(Path(str(x.__file__)).parent) for x in (pm, pymc_skewgp._errors))


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
    if not is_function(rv) or is_prediction(asked.model, rv):
        goes = any(_goes_with(rv, block, asked) for block in blocks)
        if goes or not is_function(rv):
            return goes
    try:
        own = [block for block in blocks if rv in block.members]
        for block in own:
            if block.sites:
                refuse_slow(asked.model, rv, block)
        if not own:
            refuse_with_reason(asked.model, rv)
    except NotConjugateError as error:
        _say_why(rv.name, error, asked, has_grad)
        return False
    for block in own:
        _refuse_other_sampler(rv.name, asked)
        if rv is next(x for x in block.members if is_function(x)):
            _say_that_nuts_moves(block, asked)
    return bool(own)


def _goes_with(rv: Any, block: Block, asked: Asked) -> bool:
    """Whether a variable is moved by the step of a block that the user left to ``pm.sample``."""
    functions = [x for x in block.members if is_function(x)]
    if block.sites and not is_fast(asked.model, block):
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


def _say_that_nuts_moves(block: Block, asked: Asked) -> None:
    """A line where so many hyperparameters are left to NUTS that would otherwise not be."""
    names = [x.name for x in too_many(asked.model, block)]
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
    alone = isinstance(error, NoObservationsError)  # NUTS is the way to sample a distribution
    if alone or not has_grad or name in warned or not warnings_are_wanted():
        return
    warned.add(name)
    warnings.warn(
        f"NUTS is to sample {name} as it stands, and its values are strongly correlated: few "
        f"effective draws are to be expected. {error}",
        NotConjugateWarning,
        skip_file_prefixes=_PACKAGES,
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
