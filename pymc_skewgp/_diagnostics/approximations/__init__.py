"""One data set, one prior, many ways to the posterior of f; each is a function of a `Problem`."""

from collections.abc import Callable

from pymc_skewgp._diagnostics.approximations.exact import ep, exact, laplace, lin_ess
from pymc_skewgp._diagnostics.approximations.extras import extras_laplace, extras_pathfinder
from pymc_skewgp._diagnostics.approximations.models import (
    advi,
    fullrank_advi,
    hsgp_nuts,
    latent_nuts,
)
from pymc_skewgp._diagnostics.approximations.problem import Approximation, Problem

METHODS: dict[str, Callable[[Problem], Approximation]] = {
    method.__name__: method
    for method in (
        exact,
        lin_ess,
        ep,
        laplace,
        advi,
        fullrank_advi,
        latent_nuts,
        hsgp_nuts,
        extras_laplace,
        extras_pathfinder,
    )
}

# Those that take a prior with pseudo-points.
SKEW_PRIOR_METHODS = ("exact", "lin_ess", "ep")

# Those that take any likelihood of one function.
ROW_METHODS = ("exact", "lin_ess", "ep", "laplace")

# Those of it for a likelihood without rows; PyMC's have to be asked for, as they take minutes.
SITE_METHODS = ("exact", "ep", "laplace")

__all__ = [
    "METHODS",
    "ROW_METHODS",
    "SITE_METHODS",
    "SKEW_PRIOR_METHODS",
    "Approximation",
    "Problem",
]
