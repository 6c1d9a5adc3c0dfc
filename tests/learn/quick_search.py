"""A search that is over soon, for tests of interfaces."""

import numpy as np

from pymc_skewgp import SkewGPClassifier
from pymc_skewgp._learn.optimizers import OptimizerSettings, SearchSettings

# Two steps of L-BFGS, and one evaluation by twisting.
QUICK = SearchSettings(
    n_draws=64,
    hessian=False,
    max_noise=np.inf,
    optimizer=OptimizerSettings(max_iterations=2, newton_gain=np.inf),
)


class QuickClassifier(SkewGPClassifier):
    """What it learns is judged elsewhere."""

    _search = QUICK
