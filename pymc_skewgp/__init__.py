"""Skew Gaussian processes for PyMC: exact skewed posteriors where approximations are symmetric."""

from typing import Any

from pymc_skewgp import cov
from pymc_skewgp._version import __version__
from pymc_skewgp.distributions.bernoulli_probit import BernoulliProbit
from pymc_skewgp.distributions.marginal_probit import MarginalProbit
from pymc_skewgp.distributions.truncated_mvnormal import TruncatedMvNormal
from pymc_skewgp.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp.gp.skewgp import SkewGP
from pymc_skewgp.inference.latent_marginals import LatentMarginals
from pymc_skewgp.kernels.errors import (
    BoundaryOptimumWarning,
    ContradictoryPseudoPointsError,
    DoublePrecisionError,
    EPConvergenceWarning,
    FlatOptimumWarning,
    InexactStepWarning,
    JitterWarning,
    LowEffectiveSampleWarning,
    NotPositiveDefiniteError,
    SkewGPWarning,
    StuckChainWarning,
    TooManyDrawsError,
    UnsettledOptimumWarning,
)
from pymc_skewgp.kernels.truncated import TruncatedDraws, mvn_logcdf, truncated_mvn
from pymc_skewgp.kernels.weights import Estimate
from pymc_skewgp.plots import (
    plot_coverage,
    plot_latent_band,
    plot_prior_draws,
    plot_second_order,
    plot_skewness,
    plot_slice_density,
    plot_sun_density,
)
from pymc_skewgp.posterior import SkewGPPosterior
from pymc_skewgp.steps.conjugate import ConjugateStep
from pymc_skewgp.steps.lin_ess import LinESS
from pymc_skewgp.steps.probit_model import NotConjugateError
from pymc_skewgp.sun import SUN
from pymc_skewgp.symbolic.mvn_logcdf import pt_mvn_logcdf
from pymc_skewgp.workflow.comparison import Comparison, compare_approximations
from pymc_skewgp.workflow.coverage import coverage
from pymc_skewgp.workflow.fit_report import HyperparameterFit
from pymc_skewgp.workflow.frechet import maximize_frechet_bound
from pymc_skewgp.workflow.hyperparameters import find_hyperparameters
from pymc_skewgp.workflow.sbc import sbc
from pymc_skewgp.workflow.skewness import posterior_skewness

__all__ = [
    "SUN",
    "BernoulliProbit",
    "BoundaryOptimumWarning",
    "Comparison",
    "ConjugateStep",
    "ContradictoryPseudoPointsError",
    "DoublePrecisionError",
    "EPConvergenceWarning",
    "Estimate",
    "FlatOptimumWarning",
    "HyperparameterFit",
    "InexactStepWarning",
    "JitterWarning",
    "LatentMarginals",
    "LinESS",
    "LowEffectiveSampleWarning",
    "MarginalProbit",
    "NotConjugateError",
    "NotPositiveDefiniteError",
    "SkewGP",
    "SkewGPClassifier",
    "SkewGPPosterior",
    "SkewGPWarning",
    "StuckChainWarning",
    "TooManyDrawsError",
    "TruncatedDraws",
    "TruncatedMvNormal",
    "UnifiedSkewNormal",
    "UnsettledOptimumWarning",
    "__version__",
    "compare_approximations",
    "cov",
    "coverage",
    "find_hyperparameters",
    "maximize_frechet_bound",
    "mvn_logcdf",
    "plot_coverage",
    "plot_latent_band",
    "plot_prior_draws",
    "plot_second_order",
    "plot_skewness",
    "plot_slice_density",
    "plot_sun_density",
    "posterior_skewness",
    "pt_mvn_logcdf",
    "sbc",
    "truncated_mvn",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is not needed for anything else, and takes as long to import as all the rest.
    if name != "SkewGPClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from pymc_skewgp.workflow.classifier import SkewGPClassifier
    except ModuleNotFoundError as error:
        if error.name not in ("sklearn", "joblib"):
            raise
        raise ModuleNotFoundError(
            "SkewGPClassifier needs scikit-learn: pip install scikit-learn", name=error.name
        ) from error
    return SkewGPClassifier


def __dir__() -> list[str]:
    return sorted(__all__)
