"""The latent functions of a model's blocks, hyperparameter by hyperparameter."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from xarray import DataTree

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.averaging.exact_points import EqualDraws
from pymc_skewgp._learn.averaging.named_values import as_dataset, dataset_of
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._learn.point import Point
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.collapsed import Collapsed
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.steps.at_point import LatentAtPoint
from pymc_skewgp._posterior.draws_with_evidence import (
    DrawsWithEvidence,
    draws_with_evidence,
    sun_given,
)
from pymc_skewgp._posterior.evidence_gradient import evidence_estimate
from pymc_skewgp._validation import FloatArray


class ModelFunctions:
    """See `LatentFunctions`.

    Parameters
    ----------
    model : pymc.Model
    collapsed : Collapsed
        With the blocks that were integrated out of the model.
    objective : Objective
    """

    def __init__(self, model: pm.Model, collapsed: Collapsed, objective: Objective) -> None:
        if any(collapsed.sites):
            raise ValueError(
                "integrate draws functions of models whose observed variables are rows, such as "
                "probit labels and normal values; this model has other ones, such as counts: use "
                "find_hyperparameters, and SkewGP.posterior at its point."
            )
        self._model, self._objective = model, objective
        self._parts = [
            None if block is None else _BlockFunctions(model, block) for block in collapsed.blocks
        ]

    @property
    def size(self) -> int:
        """Values of the functions in one draw, as far as they are known."""
        return sum(part.size for part in self._parts if part is not None)

    def each(
        self, points: Sequence[Point], counts: IntArray, n_candidates: int, rng: np.random.Generator
    ) -> Iterator[DrawsWithEvidence]:
        """See `LatentFunctions`."""
        for point, count in zip(points, counts, strict=True):
            parts = [
                self._at(point, i, int(count), n_candidates, rng) for i in range(len(self._parts))
            ]
            yield DrawsWithEvidence(
                sum(x.log_evidence for x in parts),
                float(np.sqrt(sum(x.std_error**2 for x in parts))),
                min(x.relative_ess for x in parts),
                np.concatenate([x.f for x in parts], axis=1),
            )

    def tree(
        self, points: Sequence[Point], draws: EqualDraws, rng: np.random.Generator
    ) -> DataTree:
        """See `LatentFunctions`."""
        model = self._model
        trace = dataset_of(self._objective, points, draws.point)
        values: dict[str, NDArray[Any]] = {}
        start = 0
        for part in self._parts:
            if part is not None:
                values |= part.named(draws.f[..., start : start + part.size])
                start += part.size
        if not values:
            return DataTree.from_dict({"posterior": trace})
        trace = trace.merge(as_dataset(model, values))
        later = [x.name for x in model.deterministics if x.name not in trace]
        options: dict[str, Any] = {"model": model, "progressbar": False}
        options["compile_kwargs"] = {"mode": PLAIN}
        if later:
            trace = pm.compute_deterministics(
                trace.copy(), var_names=later, extend_dataset=True, **options
            )
        tree = DataTree.from_dict({"posterior": trace})
        pm.compute_log_likelihood(tree, **options)
        return tree

    def _at(
        self, point: Point, i: int, count: int, n_candidates: int, rng: np.random.Generator
    ) -> DrawsWithEvidence:
        objective, part = self._objective, self._parts[i]
        terms = objective.terms[i](point, ())
        if part is None:
            found = evidence_estimate(terms, n_candidates, int(rng.integers(2**31)))
            nothing = np.zeros((count, 0))
            return DrawsWithEvidence(found.value, found.std_error, found.relative_ess, nothing)
        inputs = objective.coordinates.inputs
        named = zip(inputs, objective.coordinates.arguments(point), strict=True)
        drawn = part.draw({x.name: value for x, value in named}, count, n_candidates, rng)
        constant = float(terms.log_constant)
        return drawn._replace(log_evidence=drawn.log_evidence + constant)


class _BlockFunctions:
    """One block."""

    def __init__(self, model: pm.Model, block: BlockGraph) -> None:
        self._latent = LatentAtPoint(model, block, {"mode": PLAIN})
        self._values = block.values
        self._rvs = [model.values_to_rvs[value] for value in block.values]
        self._transforms = [model.rvs_to_transforms[rv] for rv in self._rvs]
        point = model.initial_point()
        self._shapes = [np.shape(point[value.name]) for value in block.values]

    @property
    def size(self) -> int:
        """Length of the block's vector."""
        return sum(int(np.prod(shape, dtype=int)) for shape in self._shapes)

    def draw(
        self, values: dict[str, NDArray[Any]], count: int, n_candidates: int, rng: Any
    ) -> DrawsWithEvidence:
        """The block's vector at values of the hyperparameters; constants are left out."""
        model = self._latent.model(values)
        given, log_prob_of_signs = sun_given(model.prior, model.observations)
        return draws_with_evidence(
            given,
            count,
            n_candidates,
            rng,
            n_pseudo_points=model.prior.truncation.size,
            log_prob_of_signs=log_prob_of_signs,
        )

    def named(self, f: FloatArray) -> dict[str, NDArray[Any]]:
        """Draws of its vector as draws of its variables, on their own scale."""
        found, start = {}, 0
        each = zip(self._rvs, self._values, self._transforms, self._shapes, strict=True)
        for rv, value, transform, shape in each:
            stop = start + int(np.prod(shape, dtype=int))
            own = f[..., start:stop].reshape(*f.shape[:2], *shape)
            start = stop
            if transform is not None:
                back = pytensor.function(
                    [value], transform.backward(value, *rv.owner.inputs), mode=PLAIN
                )
                flat = own.reshape(-1, *shape)
                own = np.stack([back(x) for x in flat])
                own = own.reshape(*f.shape[:2], *own.shape[1:])
            found[rv.name] = own
        return found
