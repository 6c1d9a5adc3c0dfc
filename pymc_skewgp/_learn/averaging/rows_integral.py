"""An integral over hyperparameters with many rows, from the problem to posteriors at points."""

from dataclasses import dataclass, replace

import numpy as np
from xarray import Dataset

from pymc_skewgp._learn.averaging.exact_points import ExactPoints, exact_points
from pymc_skewgp._learn.averaging.integration import Integral, integral_by_ep
from pymc_skewgp._learn.averaging.named_values import dataset_of
from pymc_skewgp._learn.averaging.posterior_functions import PosteriorFunctions, Wanted
from pymc_skewgp._learn.averaging.problem import ManyRowsProblem
from pymc_skewgp._learn.averaging.progress import Stages
from pymc_skewgp._learn.averaging.rows_start import begun
from pymc_skewgp._learn.averaging.settings import IntegrationSettings
from pymc_skewgp._learn.searched import Searched


@dataclass(frozen=True, eq=False)
class RowsIntegral:
    """Hyperparameters by EP's evidence, and exact posteriors at few of them.

    Attributes
    ----------
    objective : Searched
    integral : Integral
    exact : ExactPoints
    latent : PosteriorFunctions
        What was drawn, or kept, at the points of `exact`.
    """

    objective: Searched
    integral: Integral
    exact: ExactPoints
    latent: PosteriorFunctions

    def hyperparameters(self, count: int, rng: np.random.Generator) -> Dataset:
        """Draws with equal weights under EP's evidence, in one chain.

        There are far more points than exact posteriors, and the ratio of the two evidences is the
        more nearly the same at all of them the more rows there are: see `ExactPoints.correction`.
        """
        points = self.integral.points
        chosen = np.sort(points.resampled(count, rng))
        different, index = np.unique(chosen, return_inverse=True)
        found = [points.point(i) for i in different]
        return dataset_of(self.objective, found, index[None])


def integral_with_many_rows(
    problem: ManyRowsProblem,
    settings: IntegrationSettings,
    wanted: Wanted,
    n_draws: float,
    rng: np.random.Generator,
    stages: Stages,
    n_jobs: int | None = None,
) -> RowsIntegral:
    """Modes, importance sampling with EP's evidence, and posteriors at points with equal weights.

    Parameters
    ----------
    problem : ManyRowsProblem
    settings : IntegrationSettings
    wanted : Wanted
    n_draws : float
        Of f, at all points together.
    rng : numpy.random.Generator
    stages : Stages
    n_jobs : int, optional
        Of joblib.
    """
    found = begun(problem, settings, wanted, rng)
    latent, settings = found.latent, found.settings
    integral = integral_by_ep(found.integrand, settings, rng, stages, found.modes)
    integral = replace(integral, n_evaluations=integral.n_evaluations + found.n_evaluations)
    count = 1 if integral.points.log_weights.size == 1 else settings.n_evidences
    stages.begin("Exact evidences", count)
    exact = exact_points(latent, integral.points, count, n_draws, 0, rng, stages.tick, n_jobs)
    return RowsIntegral(found.integrand.objective, integral, exact, latent)
