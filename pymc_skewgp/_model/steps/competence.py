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
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.graph.observed import NoObservationsError, find_observed

# Under PyMC's own: its lines are shown, and kept back, together with PyMC's.
_log = logging.getLogger("pymc.pymc_skewgp")
_WARNED: "WeakKeyDictionary[pm.Model, set[str]]" = WeakKeyDictionary()
_PACKAGES = tuple(str(Path(str(x.__file__)).parent) for x in (pm, pymc_skewgp._errors))


class Asked(NamedTuple):
    """The model that a variable belongs to, and whether its sampling is to be quiet."""

    model: pm.Model
    quiet: bool


def can_be_sampled_exactly(rv: Any, has_grad: bool) -> bool:
    """Whether `ConjugateStep` samples a free random variable of the model that asks.

    Warns
    -----
    NotConjugateWarning
        Once for each variable of a model, when it is a SkewGP that NUTS would sample as it is.
    """
    if not isinstance(rv.owner.op, UnifiedSkewNormalRV):
        return False
    asked = who_asks(rv)
    if asked is None:
        return False
    try:
        find_observed(asked.model, rv)
    except NotConjugateError as error:
        _say_why(rv.name, error, asked, has_grad)
        return False
    return True


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
    context it is the one that PyMC's `assign_step_methods` is at work on, up the stack. ``quiet``
    is an argument of ``pm.sample``, farther up.
    """
    candidates = [pm.Model.get_context(error_if_none=False)]
    quiet = False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "assign_step_methods":
            candidates.append(frame.f_locals.get("model"))
        elif frame.f_code.co_name == "sample" and frame.f_globals.get("__name__", "") == (
            "pymc.sampling.mcmc"
        ):
            quiet = bool(frame.f_locals.get("quiet", False))
            break
        frame = frame.f_back
    for model in candidates:
        if isinstance(model, pm.Model) and rv in model.free_RVs:
            return Asked(model, quiet)
    return None
