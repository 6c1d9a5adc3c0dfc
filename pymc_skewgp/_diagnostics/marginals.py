"""Marginal distributions of a latent function, whoever they come from, behind one interface."""

import logging
import operator
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from xarray import DataArray, Dataset, DataTree

from pymc_skewgp._observations.likelihood import Moments
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior import output
from pymc_skewgp._posterior.output import LatentMarginals
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray, as_generator, as_real_array

_SAMPLE_DIMS = ("chain", "draw")


@dataclass(frozen=True)
class DrawnMarginals:
    """Marginals as draws say them, with errors that know of their autocorrelation.

    Attributes
    ----------
    draws : ndarray, shape (n_chains, n_draws, t)
    """

    draws: FloatArray

    @property
    def size(self) -> int:
        """Number t of points."""
        return self.draws.shape[-1]

    @cached_property
    def ess(self) -> FloatArray:
        """Bulk effective sample size of each point."""
        n_chains, n_draws, t = self.draws.shape
        if n_draws < output.FEW_DRAWS:
            return np.full(t, float(n_chains * n_draws))
        from arviz_stats.base import array_stats  # a second of import

        with np.errstate(all="ignore"):
            found = array_stats.ess(self.draws, chain_axis=0, draw_axis=1, method="bulk")
        return np.asarray(found, dtype=float)

    @cached_property
    def moments(self) -> Moments:
        """Mean, standard deviation and skewness, shape (t,) each."""
        found = output.summary_of_draws(
            "f", self.draws, np.zeros(0), skewness=True, error=output.no_error
        )
        return Moments(*(found[f"f_{name}"] for name in Moments._fields))

    @cached_property
    def moment_errors(self) -> Moments:
        """Monte Carlo standard errors of `moments`, by their influence functions."""
        found = output.summary_of_draws("f", self.draws, np.zeros(0), skewness=True)
        return Moments(*(found[f"f_{name}_se"] for name in Moments._fields))

    def quantile(self, probs: ArrayLike) -> FloatArray:
        """Quantiles, shape (n_probs, t).

        By Weibull's rule: P(f < quantile) is the probability asked for on average over the draws,
        where NumPy's own rule makes intervals of few draws too short.
        """
        p = np.atleast_1d(as_real_array("probs", probs))
        return np.quantile(self.draws, p, axis=(0, 1), method="weibull")

    def cdf(self, values: ArrayLike) -> Probability:
        """P(f <= value), for values of shape (..., t)."""
        rows, shape = output.as_columns(values, self.size)
        found = [self._share(self.draws <= row) for row in rows]
        value, error = (np.array(part).reshape(shape) for part in zip(*found, strict=True))
        return Probability(value, error)

    def cdf_values(self, values: ArrayLike) -> FloatArray:
        """Values of `cdf` alone: the errors are what takes time."""
        rows, shape = output.as_columns(values, self.size)
        ordered = np.sort(self.draws.reshape(-1, self.size), axis=0)
        columns = [np.searchsorted(ordered[:, i], rows[:, i], "right") for i in range(self.size)]
        return np.stack(columns, axis=-1).reshape(shape) / ordered.shape[0]

    def density(self, values: ArrayLike) -> FloatArray:
        """Density of f at values of shape (..., t), by a Gaussian kernel estimate."""
        from scipy.stats import gaussian_kde  # slow to import

        rows, shape = output.as_columns(values, self.size)
        flat = self.draws.reshape(-1, self.size)
        columns = [gaussian_kde(flat[:, i])(rows[:, i]) for i in range(self.size)]
        return np.stack(columns, axis=-1).reshape(shape)

    def probability(self) -> Probability:
        """P(y = 1) under a probit link: the mean of Phi(f)."""
        return self._share(ndtr(self.draws))

    def _share(self, values: Any) -> Probability:
        values = np.asarray(values, dtype=float)
        return Probability(values.mean(axis=(0, 1)), output.mean_error(values))


# What is known of f at each of t points by itself.
Marginals = LatentMarginals | DrawnMarginals


class Labelled(NamedTuple):
    """Marginals, and the names of their points.

    Attributes
    ----------
    marginals : Marginals
    dims : tuple of str
        Dimensions of the latent variable, without chain and draw.
    shape : tuple of int
        Their sizes; the product is the number of points.
    coords : mapping
        Their coordinates.
    """

    marginals: Marginals
    dims: tuple[Hashable, ...]
    shape: tuple[int, ...]
    coords: Mapping[Any, Any]

    def dataset(self, first: Mapping[str, Any] | None = None, **arrays: FloatArray) -> Dataset:
        """Arrays with points last, and before them the dimensions and coordinates of `first`."""
        first = dict(first or {})
        variables = {
            name: ((*first, *self.dims), array.reshape((*array.shape[:-1], *self.shape)))
            for name, array in arrays.items()
        }
        return Dataset(variables, coords={**self.coords, **first})


def as_marginals(source: Any, *, var: str = "f", group: str = "posterior") -> Marginals:
    """Marginal distributions of a latent function.

    Parameters
    ----------
    source : SkewGPPosterior, LatentMarginals or DataTree
        A posterior stands for its data, noise of the kernel included; a DataTree for its draws.
    var, group : str
        Where the draws are, in a DataTree.

    Returns
    -------
    LatentMarginals or DrawnMarginals

    Raises
    ------
    TypeError
        For other objects.
    KeyError
        When the DataTree has not the group, or the group not the variable.
    ValueError
        Without draws, or for draws that are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz as az
    >>> from pymc_skewgp._diagnostics.marginals import as_marginals
    >>> draws = np.random.default_rng(1).normal(size=(4, 500, 2))
    >>> at = as_marginals(az.from_dict({"posterior": {"f": draws}}))
    >>> bool((abs(at.moments.skewness) < 4 * at.moment_errors.skewness).all())
    True
    """
    return labelled_marginals(source, var=var, group=group).marginals


def labelled_marginals(source: Any, *, var: str = "f", group: str = "posterior") -> Labelled:
    """As `as_marginals`, with the names of the points: without any, obs_id or pred_id."""
    if not isinstance(var, str):
        raise TypeError(
            f"var must be the name of a variable, got {type(var).__name__}: for new points give "
            "posterior.marginals(Xnew) instead of the posterior."
        )
    name = "pred_id"
    if isinstance(source, SkewGPPosterior):
        source, name = source.marginals(), "obs_id"
    if isinstance(source, LatentMarginals | DrawnMarginals):
        return Labelled(source, (name,), (source.size,), {name: np.arange(source.size)})
    if not isinstance(source, DataTree):
        raise TypeError(
            "expected a SkewGPPosterior, LatentMarginals or a DataTree of draws, got "
            f"{type(source).__name__}."
        )
    array = drawn_variable(source, var, group)
    points = array.isel(chain=0, draw=0, drop=True)
    draws = np.asarray(array.values, dtype=float).reshape(*array.shape[:2], -1)
    return Labelled(DrawnMarginals(draws), points.dims, points.shape, points.coords)


def drawn_variable(tree: DataTree, var: str, group: str) -> DataArray:
    """A variable of a DataTree with chain and draw first; errors list what there is."""
    if group not in tree.children:
        hint = ": give the whole tree, not one group" if not tree.children else ""
        raise KeyError(
            f"the DataTree has no group {group!r}; it has {sorted(tree.children)}{hint}."
        )
    dataset = tree[group].dataset
    if var not in dataset:
        found = sorted(map(str, dataset.data_vars))
        raise KeyError(f"group {group!r} has no variable {var!r}; it has {found}.")
    array = dataset[var]
    missing = [name for name in _SAMPLE_DIMS if name not in array.dims]
    if missing:
        raise ValueError(
            f"{var!r} of group {group!r} needs the dimensions chain and draw, got {array.dims}."
        )
    array = array.transpose(*_SAMPLE_DIMS, ...)
    if not array.size:
        raise ValueError(
            f"{var!r} of group {group!r} holds no draws: its sizes are {dict(array.sizes)}."
        )
    if not np.isfinite(array.values).all():
        raise ValueError(f"{var!r} of group {group!r} holds draws that are NaN or infinite.")
    return array


# One number from what a `random_seed` may be, for methods that take no more than that.


def as_number(random_seed: Any) -> int:
    """An integer of at least 0: the one given, or one drawn from anything else."""
    if random_seed is not None and not isinstance(
        random_seed, np.random.Generator | np.random.SeedSequence | list | tuple | np.ndarray
    ):
        as_generator(random_seed)  # refuses what is no seed
        return operator.index(random_seed)
    return int(as_generator(random_seed).integers(2**31))


# PyMC without its messages.


@contextmanager
def quiet_pymc() -> Iterator[None]:
    """Hold back what PyMC logs, but for warnings: it would break a progress bar."""
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
