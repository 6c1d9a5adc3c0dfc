"""The latent function as a posterior at each value of the hyperparameters.

Where posteriors are what is wanted, or rows are many: see `LatentFunctions` for draws alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xarray import DataTree

from pymc_skewgp._learn.averaging.exact_points import EqualDraws, ExactPoints
from pymc_skewgp._learn.averaging.named_values import dataset_of
from pymc_skewgp._learn.averaging.tasks import Task
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._learn.searched import Searched
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._model.gp.functions import SharedFunctions
from pymc_skewgp._model.gp.latent_tree import LatentDraws, latent_tree
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.draws_here_and_there import draws_here_and_there
from pymc_skewgp._posterior.draws_with_evidence import DrawsWithEvidence
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class Wanted:
    """What is drawn of each posterior, or whether it is kept as it is.

    Attributes
    ----------
    Xnew : ndarray, shape (t, d), or None
    at_data : bool
        Whether f there is.
    n_draws : int
        Pairs of draws behind its evidence.
    kept : bool
        Whether the posterior itself is, and nothing drawn.
    """

    Xnew: FloatArray | None = None
    at_data: bool = False
    n_draws: int = 256
    kept: bool = True


@dataclass(frozen=True, eq=False)
class PosteriorTask:
    """The evidence of a posterior, and draws."""

    posterior: SkewGPPosterior
    wanted: Wanted

    def run(self, count: int, n_candidates: int, rng: np.random.Generator) -> DrawsWithEvidence:
        """See `Task`."""
        wanted = self.wanted
        found = self.posterior.log_marginal_likelihood
        drawn = np.zeros((count, 0))
        if not wanted.kept:
            drawn = draws_here_and_there(self.posterior, wanted.Xnew, wanted.at_data, count, rng)
        return DrawsWithEvidence(found.value, found.std_error, found.relative_ess, drawn)


class PosteriorFunctions:
    """See `LatentFunctions`: a posterior at each point.

    Parameters
    ----------
    data : TrainingData
        Of a SkewGP; of many rows with an approximation that is one basis.
    objective : Searched
    wanted : Wanted
    seed : int
    """

    def __init__(self, data: TrainingData, objective: Searched, wanted: Wanted, seed: int) -> None:
        self._data, self._objective, self._wanted = data, objective, wanted
        self._rng, self._shared = np.random.default_rng(seed), SharedFunctions()
        self._posteriors: dict[int, SkewGPPosterior] = {}  # by identity of the point
        self._likelihoods: dict[int, list[Any]] = {}
        self._sets: tuple[DataSet, ...] = ()

    def tasks(self, points: Sequence[Point]) -> Iterator[list[Task]]:
        """See `LatentFunctions`."""
        data = self._data
        for point in points:
            posterior = posterior_of(
                data.model,
                data.X,
                data.y,
                data.likelihood,
                self._objective.named(point),
                coregion=data.coregion,
                shared=self._shared,
                n_draws=self._wanted.n_draws,
                random_seed=int(self._rng.integers(2**31)),
            )
            self._sets = posterior._sets
            self._likelihoods[id(point)] = [own.likelihood for own in self._sets]
            if self._wanted.kept:
                self._posteriors[id(point)] = posterior
            yield [PosteriorTask(posterior, self._wanted)]

    def posteriors(self, exact: ExactPoints) -> list[SkewGPPosterior]:
        """At points whose evidences were computed, where they are kept."""
        return [self._posteriors[id(point)] for point in exact.points]

    def tree(
        self, points: Sequence[Point], draws: EqualDraws, rng: np.random.Generator
    ) -> DataTree:
        """See `LatentFunctions`; of many rows without f at the data."""
        likelihoods = np.empty(len(points), dtype=object)
        likelihoods[:] = [self._likelihoods[id(point)] for point in points]
        wanted = self._wanted
        drawn = LatentDraws(
            "f",
            draws.f,
            draws.relative_ess,
            likelihoods[draws.point],
            wanted.Xnew,
            wanted.at_data,
        )
        return latent_tree(dataset_of(self._objective, points, draws.point), self._sets, drawn, rng)
