"""Skew Gaussian processes for PyMC: exact skewed posteriors where approximations are symmetric."""

from typing import TYPE_CHECKING, Any

from pymc_skewgp._version import __version__
from pymc_skewgp.kernels.errors import (
    EPConvergenceWarning,
    JitterWarning,
    LowEffectiveSampleWarning,
    NotPositiveDefiniteError,
    SkewGPWarning,
    StuckChainWarning,
)
from pymc_skewgp.kernels.truncated import TruncatedDraws, mvn_logcdf, truncated_mvn
from pymc_skewgp.kernels.weights import Estimate
from pymc_skewgp.posterior import SkewGPPosterior
from pymc_skewgp.sun import SUN

if TYPE_CHECKING:
    from pymc_skewgp.gp.skewgp import SkewGP

__all__ = [
    "SUN",
    "EPConvergenceWarning",
    "Estimate",
    "JitterWarning",
    "LowEffectiveSampleWarning",
    "NotPositiveDefiniteError",
    "SkewGP",
    "SkewGPPosterior",
    "SkewGPWarning",
    "StuckChainWarning",
    "TruncatedDraws",
    "__version__",
    "mvn_logcdf",
    "truncated_mvn",
]


def __getattr__(name: str) -> Any:
    # PyMC takes seconds to import; those who need only the core do not wait for it.
    if name == "SkewGP":
        from pymc_skewgp.gp.skewgp import SkewGP

        return SkewGP
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
