"""Step methods for PyMC; importing the package adds those that ``pm.sample`` may pick."""

from pymc.step_methods import STEP_METHODS

from pymc_skewgp._model.steps.sun_step import ConjugateStep

# The list object itself is what ``pm.sample`` reads. Of steps that are equally good for a variable,
# as PyMC's own for labels and categories are for masked ones, it takes the first.
if ConjugateStep not in STEP_METHODS:
    STEP_METHODS.insert(0, ConjugateStep)
