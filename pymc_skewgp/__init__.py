"""Skew Gaussian processes for PyMC: exact skewed posteriors where approximations are symmetric."""

from pymc_skewgp import cov
from pymc_skewgp._version import __version__
from pymc_skewgp.distributions.bernoulli_probit import BernoulliProbit
from pymc_skewgp.distributions.marginal_probit import MarginalProbit
from pymc_skewgp.distributions.truncated_mvnormal import TruncatedMvNormal
from pymc_skewgp.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp.gp.skewgp import SkewGP
from pymc_skewgp.kernels.errors import (
    EPConvergenceWarning,
    InexactStepWarning,
    JitterWarning,
    LowEffectiveSampleWarning,
    NotPositiveDefiniteError,
    SkewGPWarning,
    StuckChainWarning,
)
from pymc_skewgp.kernels.truncated import TruncatedDraws, mvn_logcdf, truncated_mvn
from pymc_skewgp.kernels.weights import Estimate
from pymc_skewgp.posterior import SkewGPPosterior
from pymc_skewgp.steps.conjugate import ConjugateStep
from pymc_skewgp.steps.lin_ess import LinESS
from pymc_skewgp.sun import SUN
from pymc_skewgp.symbolic.mvn_logcdf import pt_mvn_logcdf

__all__ = [
    "SUN",
    "BernoulliProbit",
    "ConjugateStep",
    "EPConvergenceWarning",
    "Estimate",
    "InexactStepWarning",
    "JitterWarning",
    "LinESS",
    "LowEffectiveSampleWarning",
    "MarginalProbit",
    "NotPositiveDefiniteError",
    "SkewGP",
    "SkewGPPosterior",
    "SkewGPWarning",
    "StuckChainWarning",
    "TruncatedDraws",
    "TruncatedMvNormal",
    "UnifiedSkewNormal",
    "__version__",
    "cov",
    "mvn_logcdf",
    "pt_mvn_logcdf",
    "truncated_mvn",
]
