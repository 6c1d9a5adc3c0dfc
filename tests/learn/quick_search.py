"""A search that is over soon, for tests of interfaces; averages of models with a known evidence."""

import numpy as np

from pymc_skewgp import SkewGPClassifier, integrate
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


def averaged(model, log_evidence, errors=5.0, floor=0.0, largest=1.0, **options):
    """The posterior, whose log evidence is right, with a standard error below the largest.

    Five standard errors are a false alarm in 2e6 seeds, 4.5 in 150,000; the floor is what the
    oracle leaves, or round-off.
    """
    options = {"draws": 200, "chains": 2, "random_seed": 0, "progressbar": False, **options}
    found = integrate(model, **options)["posterior"]
    error = found.attrs["log_evidence_se"]
    assert abs(found.attrs["log_evidence"] - log_evidence) < errors * error + floor
    assert error < largest
    return found
