"""Draws of many rows: their coordinates are kept, and f is made where it is asked for."""

from abc import ABC

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.forecasts import refuse_large
from pymc_skewgp._posterior.function_fit import FunctionFit
from pymc_skewgp._posterior.output import sample_tree
from pymc_skewgp._posterior.row_predictors import as_rows, part_of
from pymc_skewgp._validation import Seed, as_generator


class KeptCoordinates(ABC):
    """The part of `SkewGPPosterior` that makes f of draws of its coordinates."""

    _sets: tuple[DataSet, ...]
    _fit: FunctionFit

    def at_rows(self, draws: DataTree, rows: ArrayLike, *, random_seed: Seed = None) -> DataTree:
        """F, new data and log likelihoods at some rows of the data, given drawn coordinates.

        Parameters
        ----------
        draws : DataTree
            What `sample` gave for more than 10,000 rows under an approximated prior.
        rows : array_like of int
            Rows of `X`, counted from 0.
        random_seed : int, Generator, SeedSequence or None
            Of the new data ``y``, and of what features leave of f.

        Returns
        -------
        DataTree
            As of `sample`, for these rows; the coordinate ``obs_id`` has their numbers.

        Raises
        ------
        ValueError
            For draws without coordinates, or of another posterior; for rows that there are not.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> from pymc_skewgp import SkewGPPosterior
        >>> from pymc_skewgp.approximations import Inducing
        >>> def rbf(X, Xs=None, diag=False):
        ...     if diag:
        ...         return np.ones(len(X))
        ...     return np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)
        >>> x = np.linspace(-3.0, 3.0, 12_000)
        >>> posterior = SkewGPPosterior(x, x > 0, cov_func=rbf, approximation=Inducing(x[::1500]))
        >>> draws = posterior.sample(20, 2, random_seed=1)
        >>> draws["posterior"]["coordinates"].sizes["coordinate"]
        8
        >>> posterior.at_rows(draws, [0, 11_999], random_seed=2)["posterior"]["f"].shape
        (2, 20, 2)
        """
        if "coordinates" not in draws["posterior"]:
            raise ValueError(
                "these draws have no coordinates: sample() keeps them for more than 10,000 rows "
                "under an approximated prior, and else has f at all rows itself."
            )
        (index, part), rng = self._chosen(rows), as_generator(random_seed)
        coordinates = np.asarray(draws["posterior"]["coordinates"].values)
        chains, n_draws, rank = coordinates.shape
        refuse_large(n_draws, chains, index.size)
        f = self._fit.given_coordinates(coordinates.reshape(-1, rank), rng, index)
        log_weight = np.asarray(draws["sample_stats"]["log_weight"].values)
        attributes = dict(draws["posterior"].attrs)
        f = f.reshape(chains, n_draws, -1)
        return sample_tree((part,), f, log_weight, rng, attributes, index)

    def _chosen(self, rows: ArrayLike) -> tuple[IntArray, DataSet]:
        """Numbers of rows, checked, and the data there."""
        index = as_rows(rows, self._sets)
        return index, part_of(self._sets[0], index)
