"""Many rows under a prior of finite rank, kept by the workers of a dask cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.blocks import Blocks
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.gaussian import Gaussian
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._posterior.approximations.features import Features
from pymc_skewgp._posterior.approximations.several_functions import FunctionFeatures
from pymc_skewgp._posterior.conditioning import Regression
from pymc_skewgp._posterior.distributed.chunked_data import ChunkedData, as_data_set
from pymc_skewgp._posterior.distributed.dask_blocks import DaskBlocks
from pymc_skewgp._posterior.distributed.dask_groups import Group
from pymc_skewgp._posterior.distributed.kept_blocks import BuiltBlocks, built_blocks
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.finite_rank_values import FiniteRankValues, are_values
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class BlocksOfChunks:
    """From chunks (first row, X, y) to blocks, on the worker that has them."""

    likelihood: Likelihood
    features: FunctionFeatures
    prior: Prior

    def __call__(self, chunks: Sequence[Any]) -> BuiltBlocks:
        """See `Build`."""
        sets = [
            as_data_set(self.likelihood, X, y, start + np.arange(len(y))) for start, X, y in chunks
        ]
        return built_blocks(sets, self.features, self.prior)


class DistributedFit(FiniteRankFit):
    """A function of finite rank given rows that other processes keep.

    Parameters
    ----------
    prior : Prior
        With the kernel of finite rank.
    features : Features
    data : ChunkedData
    """

    keeps_coordinates = True
    predictors = None

    def __init__(self, prior: Prior, features: Features, data: ChunkedData) -> None:
        super().__init__(prior, features, (data.some,))
        if self.n_functions > 1:
            raise ApproximationError(
                f"{data.likelihood!r} is about several functions, which rows as dask arrays do "
                "not take: give them as NumPy arrays, in rows_on to keep them on the workers."
            )
        self._data = data

    @cached_property
    def _rows(self) -> tuple[Blocks, float]:
        data = self._data
        build = BlocksOfChunks(data.likelihood, self._features, self._prior)
        blocks = DaskBlocks(data.client, [Group(chunks, build) for chunks in data.groups()])
        return blocks, blocks.log_constant

    def given_coordinates(
        self, coordinates: FloatArray, rng: np.random.Generator, rows: IntArray
    ) -> FloatArray:
        """See `FunctionFit`."""
        return self._values(coordinates, self._data.rows(rows), rng)

    def regression(
        self, new: FloatArray | None, *, joint: bool = False, derivative: Derivative | None = None
    ) -> Regression:
        """See `FunctionFit`; ApproximationError at the data, which are not here."""
        if new is None:
            raise ApproximationError(
                "marginals at the data would be as many as the rows, which are on the workers: "
                "give Xnew, or draw f at some rows by at_rows."
            )
        return super().regression(new, joint=joint, derivative=derivative)


class DistributedValues(DistributedFit, FiniteRankValues):
    """The same of values with Gaussian noise, in closed form."""


def distributed_fit(prior: Prior, features: Features, data: ChunkedData) -> DistributedFit:
    """Given rows that other processes keep."""
    # Of other likelihoods not all rows need be points where those are that came here.
    closed = isinstance(data.likelihood, Gaussian) and are_values((data.some,), prior)
    return (DistributedValues if closed else DistributedFit)(prior, features, data)
