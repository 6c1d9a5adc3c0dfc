"""Methods that would take a latent function for a vector like any other, and what to do instead.

They ask nobody: which of them builds a log density is to be seen up the stack alone.
"""

import sys
import warnings
from pathlib import Path
from types import FrameType

import pymc as pm

import pymc_skewgp._errors
from pymc_skewgp._errors import NotConjugateWarning, warnings_are_wanted

_REPARAMETERIZE = "make it with SkewGP.prior(..., reparameterize=True)"
# By the name of a function, and the package that it is of.
_ADVICE = {
    ("find_MAP", "pymc"): "the mode of a latent function and its hyperparameters together says "
    "nothing of either, with an amplitude of 0 as a rule: use find_hyperparameters(model), which "
    "integrates the function out",
    (
        "fit",
        "pymc",
    ): "pm.fit hardly moves a latent function as it stands, whose values are strongly "
    f"correlated: {_REPARAMETERIZE}, or use pm.sample or integrate(model), which need no fit",
    ("compile_pymc_model", "nutpie"): "nutpie samples a latent function as it stands, whose values "
    f"are strongly correlated, with few effective draws: {_REPARAMETERIZE}, or use pm.sample, "
    "which draws it exactly where it can and says why where not",
}
_ADVICE |= {("find_MAP", "pymc_extras"): _ADVICE["find_MAP", "pymc"]}
_ADVICE |= {
    (name, "pymc_extras"): _ADVICE["fit", "pymc"].replace("pm.fit", name)
    for name in ("fit", "fit_laplace", "fit_pathfinder", "fit_dadvi")
}
_PACKAGES = tuple(str(Path(str(x.__file__)).parent) for x in (pm, pymc_skewgp._errors))


def warn_of_other_methods() -> None:
    """Say what to do instead, where such a method asks for the log density of a function.

    Not inside of ``pm.sample``, which has asked `can_be_sampled_exactly` whether there is something
    to say before it turns to nutpie.

    Warns
    -----
    NotConjugateWarning
    """
    advice = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        called = frame.f_code.co_name, str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if called == ("sample", "pymc"):
            return
        advice = advice or _ADVICE.get(called)
        frame = frame.f_back
    if advice is not None and warnings_are_wanted():
        warnings.warn(f"{advice}.", NotConjugateWarning, skip_file_prefixes=_PACKAGES)
