"""The posterior of a process with its hyperparameters averaged over, for estimators."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from xarray import Dataset, DataTree

from pymc_skewgp._cost import announce_exact_average, posteriors_kept
from pymc_skewgp._gaussian.weights import Estimate, normalized_weights, systematic_resample
from pymc_skewgp._learn.averaging.averaged_posterior import AveragedPosterior
from pymc_skewgp._learn.averaging.exact_points import ExactPoints, exact_points
from pymc_skewgp._learn.averaging.integration import Integral, integral_by_ep
from pymc_skewgp._learn.averaging.named_values import dataset_of
from pymc_skewgp._learn.averaging.posterior_functions import PosteriorFunctions, Wanted
from pymc_skewgp._learn.averaging.problem import ManyRowsProblem, integration_problem
from pymc_skewgp._learn.averaging.progress import Stages
from pymc_skewgp._learn.averaging.reports import attributes_of, warn_of
from pymc_skewgp._learn.averaging.rows_integral import integral_with_many_rows
from pymc_skewgp._learn.averaging.settings import (
    ChainSettings,
    ImportanceSettings,
    IntegrationSettings,
)
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._posterior.posterior import SkewGPPosterior

# Forecasts are means: few points give them to a hundredth, and each has a posterior of its own. So
# some tens of effective points do, whatever share they are of all.
SETTINGS = IntegrationSettings(
    n_evidences=32,
    many_rows_evidences=16,
    most_rows_of_chains=300,
    importance=ImportanceSettings(
        n_points=64, points_per_coordinate=24, enough=64, more_rounds=8, least_ess=0.03
    ),
    chains=ChainSettings(chains=2, tune=150, draws=150, least_ess=50),
)
_DRAWS = 256  # of u, at each point
_DRAWN = 1000  # of the hyperparameters


class AveragedProcess(NamedTuple):
    """A mixture of posteriors, and the posterior of the hyperparameters."""

    posterior: AveragedPosterior
    hyperparameters: DataTree


def averaged_process(
    data: TrainingData,
    start: Mapping[str, Any],
    seed: int,
    settings: IntegrationSettings = SETTINGS,
) -> AveragedProcess:
    """Average over the hyperparameters of a SkewGP.

    Parameters
    ----------
    data : TrainingData
        A SkewGP with X, y and likelihood.
    start : mapping
        Where its hyperparameters start.
    seed : int
    settings : IntegrationSettings
    """
    rng = np.random.default_rng(seed)
    problem = integration_problem(data, None, start, settings.most_binary, drawn=False)
    if isinstance(problem, ManyRowsProblem):
        return _of_many_rows(problem, settings.for_many_rows(), rng)
    n = problem.n_distinct
    settings = replace(settings, n_evidences=posteriors_kept(n, settings.n_evidences))
    n_points = settings.evaluations(problem.origins[0].x.size)
    announce_exact_average(n, n_points, settings.n_evidences)
    integral = integral_by_ep(problem, settings, rng, Stages(False))
    count = 1 if integral.points.log_weights.size == 1 else settings.n_evidences
    # Each evidence is by the draws that forecasts are made of afterwards.
    latent = PosteriorFunctions(
        data, problem.objective, Wanted(n_draws=_DRAWS), int(rng.integers(2**31))
    )
    exact = exact_points(latent, integral.points, count, 0.0, 0, rng, lambda: None)
    # Equal ones side by side, where an effective sample size sees them, in no order otherwise.
    order = rng.permutation(len(exact.points))
    index = order[np.sort(systematic_resample(exact.log_weights[order], _DRAWN, rng))]
    drawn = dataset_of(problem.objective, exact.points, index[None])
    warn_of(integral, exact, stacklevel=5)
    return _averaged(latent.posteriors(exact), drawn, integral, exact)


def _of_many_rows(
    problem: ManyRowsProblem, settings: IntegrationSettings, rng: np.random.Generator
) -> AveragedProcess:
    """With f of finite rank; few posteriors, so that hyperparameters are drawn from all points."""
    found = integral_with_many_rows(
        problem, settings, Wanted(n_draws=_DRAWS), 0.0, rng, Stages(False)
    )
    drawn = found.hyperparameters(_DRAWN, rng)
    warn_of(found.integral, found.exact, stacklevel=6)
    return _averaged(found.latent.posteriors(found.exact), drawn, found.integral, found.exact)


def _averaged(
    posteriors: list[SkewGPPosterior], drawn: Dataset, integral: Integral, exact: ExactPoints
) -> AveragedProcess:
    """A mixture, weighted by exact evidences, and what it says of itself."""
    attributes = attributes_of(integral, exact)
    evidence = Estimate(
        attributes["log_evidence"],
        attributes["log_evidence_se"],
        attributes["relative_ess"],
        attributes["pareto_k"],
    )
    tree = DataTree.from_dict({"posterior": drawn})
    tree["posterior"].attrs.update(attributes)
    mixture = AveragedPosterior(posteriors, normalized_weights(exact.log_weights), evidence)
    return AveragedProcess(mixture, tree)
