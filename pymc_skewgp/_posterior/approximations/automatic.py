"""When a prior is approximated by itself, and with how many inducing points."""

from typing import Literal

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.approximations.inducing import Inducing

# What `approximation` may be; "auto" is the kernel as it is up to `MANY_ROWS`.
Asked = Approximation | Literal["auto"] | None
# Above it exact algebra takes minutes for smooth kernels, and hours for rough ones.
MANY_ROWS = 5000
_MOST_POINTS, _LEAST_POINTS = 300, 100
_BYTES = 2**30  # of the features, up to which there are as many points


def as_approximation(value: object) -> Asked:
    """`value` as what `SkewGP` and its posterior take.

    Raises
    ------
    ApproximationError
    """
    if value is None or value == "auto" or hasattr(value, "features"):
        return value
    raise ApproximationError(
        'approximation must be "auto", None or one of pymc_skewgp.approximations, such as '
        f"Inducing(300); got {value!r}."
    )


def automatic(n: int) -> Inducing:
    """Inducing points for so many rows: 300, and fewer from half a million rows on."""
    return Inducing(int(min(_MOST_POINTS, max(_LEAST_POINTS, _BYTES // (8 * n)))))
