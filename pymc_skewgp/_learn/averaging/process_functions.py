"""The latent functions of a SkewGP given data, hyperparameter by hyperparameter."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.averaging.exact_points import EqualDraws
from pymc_skewgp._learn.averaging.named_values import as_dataset, dataset_of, with_deterministics
from pymc_skewgp._learn.averaging.tasks import Task, VectorTask
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._learn.point import Point
from pymc_skewgp._model.gp.latent_draws import LatentGivenData
from pymc_skewgp._model.gp.latent_tree import LatentDraws, latent_tree
from pymc_skewgp._model.gp.marginal_variable import DataOfModel
from pymc_skewgp._posterior.draws_with_evidence import Case, log_prob_of_prior_signs
from pymc_skewgp._validation import FloatArray


class ProcessFunctions:
    """See `LatentFunctions`.

    Parameters
    ----------
    gp : SkewGP
    data : DataOfModel
    Xnew : ndarray, shape (t, d), or None
    objective : Objective
    coefficients : sequence of variables
        Of the mean, drawn as the functions are.
    """

    def __init__(
        self,
        gp: Any,
        data: DataOfModel,
        Xnew: FloatArray | None,
        objective: Objective,
        coefficients: Sequence[Any] = (),
    ) -> None:
        self._latent = LatentGivenData(gp, data, Xnew, coefficients)
        self._Xnew, self._objective = Xnew, objective
        self._likelihoods: dict[int, Any] = {}  # by identity of the point

    @property
    def size(self) -> int:
        """Values of the functions in one draw."""
        return self._latent.size

    @property
    def side_by_side(self) -> bool:
        """Whether draws may be made so: see `draws_of_many`."""
        return not self._latent.has_sites

    def tasks(self, points: Sequence[Point]) -> Iterator[list[Task]]:
        """See `LatentFunctions`."""
        trace = self._trace(points, np.arange(len(points))[None])
        n_signs = self._latent.n_signs
        for point, (_, at) in zip(points, self._latent.each(trace, "", False), strict=True):
            self._likelihoods[id(point)] = at.likelihoods
            log_prob = log_prob_of_prior_signs(*at.signs)
            yield [VectorTask(Case(at.given, n_signs, log_prob, at.sites))]

    def tree(
        self, points: Sequence[Point], draws: EqualDraws, rng: np.random.Generator
    ) -> DataTree:
        """See `LatentFunctions`."""
        likelihoods = np.empty(len(points), dtype=object)
        likelihoods[:] = [self._likelihoods[id(point)] for point in points]
        trace, f = self._with_coefficients(self._trace(points, draws.point), draws.f)
        drawn = LatentDraws("f", f, draws.relative_ess, likelihoods[draws.point], self._Xnew)
        return latent_tree(trace, self._latent.sets, drawn, rng)

    def _with_coefficients(self, trace: Dataset, f: FloatArray) -> tuple[Dataset, FloatArray]:
        """Draws of the functions, and of the coefficients with what is determined by them."""
        shapes = self._latent.coefficient_shapes
        if not shapes:
            return trace, f
        model = self._objective.coordinates.model
        sizes = [int(np.prod(shape, dtype=int)) for shape in shapes.values()]
        f, *parts = np.split(f, f.shape[2] - np.cumsum(sizes[::-1])[::-1], axis=2)
        named = zip(shapes.items(), parts, strict=True)
        values = {name: part.reshape(*f.shape[:2], *shape) for (name, shape), part in named}
        trace = trace.merge(as_dataset(model, values))
        return with_deterministics(model, trace), f

    def _trace(self, points: Sequence[Point], index: IntArray) -> Dataset:
        return dataset_of(self._objective, points, index)
