"""Exact posteriors of latent Gaussian models for PyMC."""

from importlib import import_module
from typing import Any

from pymc_skewgp import approximations, cov, likelihoods
from pymc_skewgp._diagnostics.approximations import Approximation, Problem
from pymc_skewgp._diagnostics.comparison import Comparison, compare_approximations, sbc
from pymc_skewgp._diagnostics.explain import Explanation, explain
from pymc_skewgp._diagnostics.measures import coverage, posterior_skewness
from pymc_skewgp._diagnostics.model_comparison import compare
from pymc_skewgp._errors import (
    ApproximationError,
    BoundaryOptimumWarning,
    ClusterLostError,
    CollapsedWeightsError,
    ComparisonWarning,
    ContradictoryConstraintsError,
    ContradictoryPseudoPointsError,
    DiscreteHyperparameterError,
    DoublePrecisionError,
    DrawOverflowWarning,
    EPConvergenceWarning,
    FlatOptimumWarning,
    HeavyTailWarning,
    ImproperPriorError,
    InexactStepWarning,
    IntegrationWarning,
    InterruptedSearchWarning,
    JitterWarning,
    LowEffectiveSampleWarning,
    NotConjugateError,
    NotConjugateWarning,
    NotDifferentiableError,
    NotPositiveDefiniteError,
    NotSitesError,
    OptimumConvergenceWarning,
    PriorApproximationWarning,
    SeveralModesWarning,
    SkewGPWarning,
    StuckChainWarning,
    TooManyDrawsError,
    TooManyRowsError,
    UnnormalizedPriorWarning,
)
from pymc_skewgp._gaussian.truncated import TruncatedDraws, mvn_logcdf, truncated_mvn
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.hyperparameters import find_hyperparameters, maximize_frechet_bound
from pymc_skewgp._learn.integrate import correct, integrate
from pymc_skewgp._learn.predict import predict
from pymc_skewgp._learn.problem import HyperparameterFit
from pymc_skewgp._model.distributions.marginal import MarginalProbit
from pymc_skewgp._model.distributions.probit import (
    BernoulliProbit,
    ChoiceProbit,
    IntervalNormal,
    MultinomialProbit,
    PreferenceProbit,
)
from pymc_skewgp._model.distributions.truncated_mvnormal import TruncatedMvNormal
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.ops.densities import pt_mvn_logcdf
from pymc_skewgp._model.steps.sun_step import ConjugateStep, LinESS
from pymc_skewgp._observations.likelihood import Moments
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._plots.densities import plot_slice_density, plot_sun_density
from pymc_skewgp._plots.latent import (
    plot_coverage,
    plot_latent_band,
    plot_prior_draws,
    plot_prior_report,
    plot_second_order,
    plot_skewness,
)
from pymc_skewgp._posterior.dask_blocks import rows_on
from pymc_skewgp._posterior.distributed_posterior import DistributedPosterior
from pymc_skewgp._posterior.output import LatentMarginals
from pymc_skewgp._posterior.posterior import LatentPosterior, SkewGPPosterior
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._version import __version__

__all__ = [
    "SUN",
    "Approximation",
    "ApproximationError",
    "BernoulliProbit",
    "BoundaryOptimumWarning",
    "ChoiceProbit",
    "ClusterLostError",
    "CollapsedWeightsError",
    "Comparison",
    "ComparisonWarning",
    "ConjugateStep",
    "ContradictoryConstraintsError",
    "ContradictoryPseudoPointsError",
    "DiscreteHyperparameterError",
    "DistributedPosterior",
    "DoublePrecisionError",
    "DrawOverflowWarning",
    "EPConvergenceWarning",
    "Estimate",
    "Explanation",
    "FlatOptimumWarning",
    "HeavyTailWarning",
    "HyperparameterFit",
    "ImproperPriorError",
    "InexactStepWarning",
    "IntegrationWarning",
    "InterruptedSearchWarning",
    "IntervalNormal",
    "JitterWarning",
    "LatentMarginals",
    "LatentPosterior",
    "LinESS",
    "LowEffectiveSampleWarning",
    "MarginalProbit",
    "Moments",
    "MultinomialProbit",
    "NotConjugateError",
    "NotConjugateWarning",
    "NotDifferentiableError",
    "NotPositiveDefiniteError",
    "NotSitesError",
    "OptimumConvergenceWarning",
    "PreferenceProbit",
    "PriorApproximationWarning",
    "Probability",
    "Problem",
    "SeveralModesWarning",
    "SkewGP",
    "SkewGPClassifier",
    "SkewGPOrdinalClassifier",
    "SkewGPPosterior",
    "SkewGPPreference",
    "SkewGPRegressor",
    "SkewGPSurvival",
    "SkewGPWarning",
    "StuckChainWarning",
    "TooManyDrawsError",
    "TooManyRowsError",
    "TruncatedDraws",
    "TruncatedMvNormal",
    "UnifiedSkewNormal",
    "UnnormalizedPriorWarning",
    "__version__",
    "approximations",
    "compare",
    "compare_approximations",
    "correct",
    "cov",
    "coverage",
    "explain",
    "find_hyperparameters",
    "integrate",
    "likelihoods",
    "maximize_frechet_bound",
    "mvn_logcdf",
    "plot_coverage",
    "plot_latent_band",
    "plot_prior_draws",
    "plot_prior_report",
    "plot_second_order",
    "plot_skewness",
    "plot_slice_density",
    "plot_sun_density",
    "posterior_skewness",
    "predict",
    "pt_mvn_logcdf",
    "rows_on",
    "sbc",
    "truncated_mvn",
]


# Modules that need scikit-learn.
_ESTIMATORS = {
    "SkewGPClassifier": "classifier",
    "SkewGPOrdinalClassifier": "estimators",
    "SkewGPPreference": "estimators",
    "SkewGPRegressor": "estimators",
    "SkewGPSurvival": "survival",
}


def __getattr__(name: str) -> Any:
    # scikit-learn is not needed for anything else, and takes as long to import as all the rest.
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"pymc_skewgp._learn.{_ESTIMATORS[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("sklearn", "joblib"):
            raise
        raise ModuleNotFoundError(
            f"{name} needs scikit-learn: pip install scikit-learn", name=error.name
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
