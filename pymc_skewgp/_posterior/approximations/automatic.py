"""When a prior is approximated by itself, and with how many inducing points."""

import logging
from typing import Any, Literal

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.approximations.inducing import Inducing
from pymc_skewgp._posterior.data_sets import DataSet, n_functions
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.row_predictors import refuse_other_data

_log = logging.getLogger("pymc.pymc_skewgp")

# What `approximation` may be; "auto" is the kernel as it is up to `MANY_ROWS`.
Asked = Approximation | Literal["auto"] | None
# Above it exact algebra takes minutes for smooth kernels, and hours for rough ones.
MANY_ROWS = 5000
_MOST_POINTS, _LEAST_POINTS = 300, 100
_MOST_COORDINATES = 1200  # of all functions together
_BYTES = 2**30  # of the features, up to which there are as many points


def as_approximation(value: Any) -> Asked:
    """`value` as what `SkewGP` and its posterior take.

    Raises
    ------
    ApproximationError
    """
    if value is None or (isinstance(value, str) and value == "auto") or hasattr(value, "features"):
        found: Asked = value
        return found
    raise ApproximationError(
        'approximation must be "auto", None or one of pymc_skewgp.approximations, such as '
        f"Inducing(300); got {value!r}."
    )


def chosen(asked: Asked, sets: tuple[DataSet, ...], prior: Prior) -> Approximation | None:
    """What was asked for, or what "auto" is for these data, which is logged."""
    if asked != "auto":
        return asked
    n = sum(data.X.shape[0] for data in sets)
    if n <= MANY_ROWS:
        return None
    try:
        refuse_other_data(sets, prior)
    except ApproximationError:
        return None
    found = automatic(n, n_functions(sets))
    _log.info(
        f"{n} rows: the prior is approximated by {found}. prior_report() says what that changes; "
        "SkewGP(approximation=None) takes the kernel as it is."
    )
    return found


def automatic(n: int, n_functions: int = 1) -> Inducing:
    """Inducing points for so many rows: 300, and fewer from half a million rows on.

    And fewer for more than four functions, each of which has coordinates of its own.
    """
    most = min(_MOST_POINTS, _MOST_COORDINATES // n_functions)
    return Inducing(int(max(_LEAST_POINTS, min(most, _BYTES // (8 * n)))))
