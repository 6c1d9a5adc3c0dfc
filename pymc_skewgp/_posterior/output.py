"""A posterior's marginals, draws and forecasts as DataTrees."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from xarray import DataArray, Dataset, DataTree

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.binary import LOGISTIC_NOISE, probability_sd
from pymc_skewgp._observations.likelihood import Mixture, some_values
from pymc_skewgp._observations.new_rows import NewRows
from pymc_skewgp._observations.probability import Probability, interval_probability
from pymc_skewgp._posterior.prior import DataSet, n_functions
from pymc_skewgp._validation import FloatArray, as_real_array, as_vector
from pymc_skewgp._version import __version__

# What is known of f at each point by itself: a mixture of Gaussians over draws of u.


@dataclass(frozen=True)
class LatentMarginals(Mixture):
    r"""Marginal distributions of f at t points, exact but for the draws of u that they average.

    .. math:: f(x_i) \sim \sum_j w_j N(m_{ij}, v_i)

    `SkewGPPosterior.marginals` makes it.

    Attributes
    ----------
    means : ndarray, shape (t, S)
        Mean of f given each draw of u.
    variance : ndarray, shape (t,)
        Variance of f given u, which is the same for all draws.
    weights : ndarray, shape (S,)
        Weights of the draws; their sum is 1.
    replicate : ndarray of int, shape (S,), or None
        Equal numbers for draws that depend on each other, see `TruncatedDraws`; None where all are
        independent.
    exact : bool
        Whether nothing was drawn: a Gaussian, whose Monte Carlo errors are 0.
    covariance : ndarray, shape (t / k, k, k), or None
        Of k functions at each input, given u, where there are more than one. Then the points are
        the values of all functions at the first input, at the second, and so on.
    joint : ndarray, shape (t, t), or None
        Covariance of all points given u, where it was asked for.
    link : str
        Of labels: "probit", "logit", or else the name of a likelihood that has none.
    """

    link: str = "probit"

    @property
    def size(self) -> int:
        """Number t of points."""
        return self.variance.size

    def quantile(self, probs: ArrayLike) -> FloatArray:
        """Quantiles at probabilities between 0 and 1, shape (n_probs, t)."""
        p = as_vector("probs", np.atleast_1d(as_real_array("probs", probs)))
        refuse_other_probabilities(p, probs)
        return self._quantiles_at(p)

    def cdf(self, values: ArrayLike) -> Probability:
        """P(f <= value), for values of shape (..., t), one column for each point."""
        rows, shape = as_columns(values, self.size)
        return Probability(self.cdf_values(values), self._cdf_errors_at(rows).reshape(shape))

    def cdf_values(self, values: ArrayLike) -> FloatArray:
        """Values of `cdf` alone, in half the time."""
        rows, shape = as_columns(values, self.size)
        return self._cdf_at(rows).reshape(shape)

    def density(self, values: ArrayLike) -> FloatArray:
        """Density of f at values of shape (..., t), one column for each point."""
        rows, shape = as_columns(values, self.size)
        return self._density_at(rows).reshape(shape)

    def probability(self) -> Probability:
        r"""Probability of a label 1, with its Monte Carlo standard error.

        .. math:: p = \sum_j w_j \Phi\{m_{ij} / (1 + v_i)^{1/2}\}

        under a probit link; under a logit link the mean of :math:`1 / (1 + e^{-f})`.

        Raises
        ------
        ValueError
            Where the data are no labels, but counts, say.
        """
        if self.link == "logit":
            return interval_probability(self, 0.0, np.inf, LOGISTIC_NOISE)
        self._refuse_other_links("probability")
        return interval_probability(self, 0.0, np.inf)

    def probability_sd(self) -> FloatArray:
        r"""Standard deviation of :math:`p = \Phi(f)`, shape (t,): second-order uncertainty.

        .. math:: \mathrm{var}\{\Phi(f)\} = \sum_j w_j\, \mathrm E\{\Phi(f)^2 \mid u_j\} - p^2

        Raises
        ------
        ValueError
            Under another likelihood than a probit one.
        """
        self._refuse_other_links("probability_sd")
        return probability_sd(self)

    def _refuse_other_links(self, name: str) -> None:
        if self.link != "probit":
            raise ValueError(
                f"{name}() is of labels under a probit link, and this is the posterior under "
                f"{self.link}: SkewGPPosterior.predict has what that predicts, and draws of it."
            )

    def first_functions(self, wanted: int) -> "LatentMarginals":
        """Of the first `wanted` functions alone, at each input."""
        if self.covariance is None:
            return self
        k = self.covariance.shape[-1]
        chosen = np.arange(self.size).reshape(-1, k)[:, :wanted].ravel()
        covariance = None if wanted == 1 else self.covariance[:, :wanted, :wanted]
        joint = None if self.joint is None else self.joint[np.ix_(chosen, chosen)]
        return some_values(self, chosen, covariance, joint)

    def with_points(self, other: "LatentMarginals") -> "LatentMarginals":
        """These points, then those of `other`, a mixture over the same draws."""
        covariance = None
        if self.covariance is not None and other.covariance is not None:
            covariance = np.concatenate([self.covariance, other.covariance])
        return replace(
            self,
            means=np.vstack([self.means, other.means]),
            variance=np.concatenate([self.variance, other.variance]),
            covariance=covariance,
            joint=None,
        )


def as_columns(values: ArrayLike, size: int) -> tuple[FloatArray, tuple[int, ...]]:
    """`values` in rows, with a column for each of so many points; and their shape."""
    array = as_real_array("values", values)
    if not array.ndim or array.shape[-1] != size:
        raise ValueError(
            f"values must have a column for each of the {size} points, got shape {array.shape}."
        )
    return array.reshape(-1, size), array.shape


# Draws and summaries as a DataTree with named dimensions.


def as_datatree(
    groups: dict[str, dict[str, Any]],
    *,
    dims: dict[str, list[str]],
    coords: dict[str, Any],
    attrs: dict[str, Any],
    dims_of: Mapping[str, dict[str, list[str]]] = MappingProxyType({}),
) -> DataTree:
    """Pack groups of arrays; those named ``*_summary`` have no chain and draw dimensions.

    Parameters
    ----------
    groups : dict
        Arrays by variable by group.
    dims, coords : dict
        Dimensions of each variable after chain and draw, and their coordinates.
    attrs : dict
        Attributes of the groups that hold draws or summaries.
    dims_of : mapping, optional
        Groups whose variables have other dimensions than `dims` says, with these.

    Returns
    -------
    DataTree
    """
    described = ("posterior", "sample_stats", "predictions", "prior_sbc")
    tree = DataTree()
    for name in sorted(groups, key=lambda name: (name in dims_of, name.endswith("_summary"))):
        known = attrs if name.endswith("_summary") or name in described else {}
        found = named_dataset(name, groups[name], dims_of.get(name, dims), coords, known)
        tree[name] = DataTree(found)
    return tree


def named_dataset(
    group: str,
    values: Mapping[str, Any],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Any],
    attrs: Mapping[str, Any] = MappingProxyType({}),
) -> Dataset:
    """Arrays with the dimensions and attributes that ArviZ gives them, which is slow to import.

    Parameters
    ----------
    group : str
        What the arrays will be. In data and in summaries chain and draw are no dimensions; those of
        log likelihoods are the first ones of `dims` that fit, events having no dimensions there.
    values : mapping
        Arrays by name.
    dims, coords : mapping
        Dimensions of each array after chain and draw, the last of which may have no name, and
        coordinates, numbers from 0 where there are none.
    attrs : mapping
        In addition to those that say when and by what it was made.
    """
    found = {}
    drawn = [] if "data" in group or group.endswith("_summary") else ["chain", "draw"]
    for name, x in values.items():
        shape, named = np.shape(x), dims.get(name, ())
        own = [*(dim for dim in drawn if dim not in named), *named]
        sizes = list(zip(own, shape, strict=False))
        if "log_likelihood" in group:
            differ = (i for i, (dim, n) in enumerate(sizes) if len(coords.get(dim, range(n))) != n)
            own = own[: next(differ, len(shape))]
        own += [f"{name}_dim_{i}" for i in range(len(shape) - len(own))]
        sizes = list(zip(own, shape, strict=False))  # xarray itself refuses names too many
        found[name] = DataArray(x, {dim: coords.get(dim, np.arange(n)) for dim, n in sizes}, own)
    made = {"created_at": datetime.now(UTC).isoformat(), "sample_dims": drawn}
    made |= {"creation_library": "pymc_skewgp", "creation_library_version": __version__}
    return Dataset(found, attrs={**made, **attrs})


DataSets = tuple[DataSet, ...]
# Log likelihoods and replicated data of a data set, by its number, given draws of f there.
OfEach = Callable[[int, FloatArray], tuple[FloatArray, Any]]
# Of draws at the data, and what follows from them.
DRAWN_GROUPS = (
    "posterior",
    "posterior_predictive",
    "sample_stats",
    "log_likelihood",
    "observed_data",
    "constant_data",
)


class DataGroups(NamedTuple):
    """The data of a tree: arrays by variable by group, their dimensions and coordinates."""

    groups: dict[str, dict[str, Any]]
    dims: dict[str, list[str]]
    coords: dict[str, Any]
    one_each: dict[str, list[str]]  # dimensions of log likelihoods

    @classmethod
    def of(cls, sets: DataSets, numbers: IntArray | None = None) -> "DataGroups":
        """Groups that have the data alone; `numbers` are what rows of X are called."""
        found = cls({name: {} for name in DRAWN_GROUPS}, {}, {}, {})
        groups, dims, coords, _ = found
        coords["feature"] = sets[0].features
        for data in sets:
            likelihood, X_name, row = data.likelihood, data.named("X"), data.named("obs_id")
            groups["constant_data"][X_name], dims[X_name] = data.X, [row, "feature"]
            coords[row] = np.arange(data.X.shape[0]) if numbers is None else numbers
            coords |= own_coords(data)
            if not likelihood.has_data:
                continue
            observed = data.named(likelihood.y_dim)
            if data.weights is not None:
                groups["constant_data"][data.named("weights")] = data.weights
                dims[data.named("weights")] = [observed]
            inner = [data.named(dim) for dim in likelihood.y_inner_dims]
            for name, values in likelihood.observed(data.y).items():
                groups["observed_data"][data.named(name)] = values
                dims[data.named(name)] = [observed, *inner]
                coords.setdefault(observed, np.arange(len(values)))
            dims[data.named("y")], found.one_each[data.named("y")] = [observed, *inner], [observed]
        return found

    def add_draws(self, sets: DataSets, f: FloatArray, name: str, of_each: OfEach) -> None:
        """Draws of f at the data, (chain, draw, q), with log likelihoods and replicated data."""
        start = 0
        for i, data in enumerate(sets):
            y_name, f_name, size = data.named("y"), data.named(name), data.values.size
            own = by_function(f[..., start : start + size], data)
            start += size
            self.groups["posterior"][f_name] = own
            further = [] if own.ndim == 3 else [data.likelihood.function_dim]
            self.dims[f_name] = [data.named("obs_id"), *further]
            if not data.likelihood.has_data:
                continue
            log_likelihood, replicated = of_each(i, own)
            if replicated is not None:
                self.groups["posterior_predictive"][y_name] = replicated
            if data.weights is not None:
                log_likelihood = data.weights * log_likelihood
            self.groups["log_likelihood"][y_name] = log_likelihood

    def tree(self, attrs: dict[str, Any]) -> DataTree:
        """All of it, but for groups that are empty."""
        groups = {name: group for name, group in self.groups.items() if group}
        apart = {"log_likelihood": self.one_each} if "log_likelihood" in groups else {}
        known = {"dims": self.dims, "coords": self.coords, "dims_of": apart}
        return as_datatree(groups, attrs=attrs, **known)


def sample_tree(
    sets: DataSets,
    f: FloatArray,
    log_weight: FloatArray,
    rng: np.random.Generator,
    attrs: dict[str, Any],
    numbers: IntArray | None = None,
) -> DataTree:
    """Draws f at the data, shape (chain, draw, q), and what follows from them.

    `numbers` are what rows of X are called, where they are not all. With several data sets the
    names of variables and their dimensions end in that of the set.
    """
    found = DataGroups.of(sets, numbers)
    found.groups["sample_stats"]["log_weight"] = log_weight

    def of_each(i: int, own: FloatArray) -> tuple[FloatArray, Any]:
        likelihood, y = sets[i].likelihood, sets[i].y
        log_likelihood = likelihood.log_likelihood(y, own)
        return log_likelihood, likelihood.replicate(y, own, log_likelihood, rng)

    found.add_draws(sets, f, "f", of_each)
    return found.tree(attrs)


def as_probabilities(quantiles: Sequence[float] | None) -> FloatArray:
    """Probabilities of quantiles; by default the ends and the middle of ArviZ's interval."""
    if quantiles is None:
        from arviz_base import rcParams  # a quarter of a second of import

        outside = 0.5 * (1.0 - float(rcParams["stats.ci_prob"]))
        quantiles = (outside, 0.5, 1.0 - outside)
    probs = as_vector("quantiles", np.atleast_1d(as_real_array("quantiles", quantiles)))
    refuse_other_probabilities(probs, quantiles)
    return probs


def refuse_other_probabilities(probs: FloatArray, given: object) -> None:
    """Refuse quantiles at 0 and 1, and beyond."""
    if (probs <= 0).any() or (probs >= 1).any():
        raise ValueError(
            f"probabilities of quantiles must lie strictly between 0 and 1, got {given!r}."
        )


class PredictedGroups:
    """Functions and what likelihoods predict at t new rows: arrays, dimensions and coordinates.

    Parameters
    ----------
    sets : tuple of DataSet
        Of nothing but a function it is empty.
    new : NewRows
    probs : ndarray or None
        Of the quantiles.
    """

    def __init__(self, sets: DataSets, new: NewRows, probs: FloatArray | None) -> None:
        self._k = k = n_functions(sets) if sets else 1
        widest = [x.likelihood for x in sets if x.values.n_functions == k > 1]
        self._point = ["pred_id", *(x.function_dim for x in widest[:1])]
        self.shape = (new.size,) if k == 1 else (new.size, k)
        self._dims = {"X": ["pred_id", "feature"]}
        features = sets[0].features if sets else np.arange(new.X.shape[1])
        self._coords: dict[str, Any] = {"pred_id": np.arange(new.size), "feature": features}
        self._coords["pred_id_other"] = self._coords["pred_id"]
        if probs is not None:
            self._coords["quantile"] = probs
        self._drawn: dict[str, Any] = {}
        self._summary: dict[str, Any] = {}
        self._groups = {"predictions": self._drawn, "predictions_summary": self._summary}
        self._groups["predictions_constant_data"] = {"X": new.X}

    def own(self, f: FloatArray, data: DataSet) -> FloatArray:
        """Draws of the functions that one of the data has, of draws of shape (..., *shape)."""
        k = data.values.n_functions
        return f if k == self._k else f[..., 0] if k == 1 else f[..., :k]

    def add(
        self, drawn: Mapping[str, Any], summary: Mapping[str, Any], data: DataSet | None = None
    ) -> None:
        """What is drawn and what is known of it, of the functions or under one likelihood."""
        for group, found in ((self._drawn, drawn), (self._summary, summary)):
            for name, x in found.items():
                plain = name.removesuffix("_se")
                first, dims, named = [], self._point, name
                if plain.endswith("_quantile"):
                    first, plain = ["quantile"], plain.removesuffix("_quantile")
                if data is not None:
                    further = data.likelihood.predicted_dims.get(plain, ())
                    dims, named = (
                        ["pred_id", *(own_dim(data, d) for d in further)],
                        data.named(name),
                    )
                group[named], self._dims[named] = x, [*first, *dims]
        if data is not None:
            self._coords |= own_coords(data)

    def tree(self, attrs: dict[str, Any]) -> DataTree:
        """All of it, but for groups that are empty."""
        groups = {name: group for name, group in self._groups.items() if group}
        return as_datatree(groups, dims=self._dims, coords=self._coords, attrs=attrs)


def predictions_tree(
    sets: DataSets,
    new: NewRows,
    marginals: LatentMarginals,
    f: FloatArray | None,
    probs: FloatArray,
    rng: np.random.Generator,
    attrs: dict[str, Any],
) -> DataTree:
    """Summaries at t new points and, where given, draws f of shape (chain, draw, t K)."""
    groups = PredictedGroups(sets, new, probs)
    names, shape = ("f_mean", "f_sd", "f_skewness"), groups.shape
    summary = dict(zip(names, (x.reshape(shape) for x in marginals.moments), strict=True))
    errors = (x.reshape(shape) for x in marginals.moment_errors)
    summary |= {f"{name}_se": x for name, x in zip(names, errors, strict=True)}
    if probs.size:
        quantiles = marginals.quantile(probs)
        for name, x in (("", quantiles), ("_se", marginals.quantile_errors(quantiles))):
            summary[f"f_quantile{name}"] = x.reshape(probs.size, *shape)
    if f is not None:
        f = f.reshape(*f.shape[:2], *shape)
    groups.add({} if f is None else {"f": f}, summary)
    for data in sets:
        likelihood = data.likelihood
        mixture, draws = marginals.first_functions(data.values.n_functions), {}
        found = new.summary(likelihood, mixture)
        if f is not None:
            own = groups.own(f, data)
            found |= new.joint(likelihood, own, mixture)
            draws = new.draws(likelihood, own, rng)
        if probs.size:
            found |= new.quantiles(likelihood, mixture, probs)
        groups.add(draws, found, data)
    return groups.tree(attrs)


def by_function(f: FloatArray, data: DataSet) -> FloatArray:
    """Values of a data set with the functions in a dimension of their own, where it has several."""
    k = data.values.n_functions
    return f if k == 1 else f.reshape(*f.shape[:-1], data.X.shape[0], k)


def own_dim(data: DataSet, dim: str) -> str:
    """What a dimension is called: functions are the same for all the data, categories are not."""
    shared = (data.likelihood.function_dim, "pred_id_other")
    return dim if dim in shared else data.named(dim)


def own_coords(data: DataSet) -> dict[str, Any]:
    """Coordinates of the dimensions that only its likelihood has."""
    coords = data.likelihood.coords(data.y)
    return {own_dim(data, dim): values for dim, values in coords.items()}


# Averages and quantiles of draws, chain by chain, with their Monte Carlo errors.

# Parts of each chain whose averages tell the error of what is not kept for each draw.
_BATCHES = 16
FEW_DRAWS = 4  # of a chain, below which nothing tells of autocorrelation


def mean_error(values: FloatArray) -> FloatArray:
    """Standard error of the mean over (chain, draw), dependent draws seen as such."""
    count = values.shape[0] * values.shape[1]
    if count == 1:  # has no spread
        return np.full(values.shape[2:], np.inf)
    if values.shape[1] < FEW_DRAWS:
        return np.asarray(values.std(axis=(0, 1)) / np.sqrt(count))
    return _mcse(values, "mean")


def no_error(values: FloatArray) -> FloatArray:
    """Zeros in place of `mean_error`, which takes far longer than a mean."""
    return np.zeros(values.shape[2:])


def summary_of_draws(
    name: str,
    draws: NDArray[Any],
    probs: FloatArray,
    *,
    skewness: bool = False,
    error: Callable[[FloatArray], FloatArray] = mean_error,
) -> dict[str, FloatArray]:
    """Mean, standard deviation and quantiles of each entry, with errors ``_se``.

    Parameters
    ----------
    name : str
        What the names of all of them begin with.
    draws : ndarray, shape (chain, draw, ...)
    probs : ndarray, shape (n_probs,)
        Of the quantiles, which come first in the shape of ``{name}_quantile``.
    skewness : bool
        Whether it is wanted too.
    error : callable
        What gives the standard error of a mean over draws: `mean_error` or `no_error`.
    """
    x = draws.astype(np.float64)
    found = averages(f"{name}_mean", x, error)
    found |= deviation(name, np.zeros(x.shape), x, error)
    if skewness:
        mean, sd = found[f"{name}_mean"], found[f"{name}_sd"]
        z = np.divide(x - mean, sd, out=np.zeros(x.shape), where=sd > 0)
        third = (z**3).mean(axis=(0, 1))
        found[f"{name}_skewness"] = third
        # How one more draw changes it.
        influence = z**3 - third - 3.0 * z - 1.5 * third * (z**2 - 1.0)
        found[f"{name}_skewness_se"] = error(influence)
    if probs.size:
        # Weibull's rule: NumPy's default makes intervals of few draws too short.
        value = np.quantile(x, probs, axis=(0, 1), method="weibull")
        found[f"{name}_quantile"] = value
        errors = [_mcse(x, "quantile", p) for p in probs]
        found[f"{name}_quantile_se"] = np.stack(errors)
    return found


def highest_density(draws: NDArray[Any], prob: float) -> tuple[FloatArray, FloatArray]:
    """Ends of the shortest interval of each entry, shape (2, ...), and their standard errors.

    An end is off by the cube root of the number of draws, not by its square root: errors are those
    of parts of the chains, over the cube root of how many these are [1]_.

    References
    ----------
    .. [1] J. Kim & D. Pollard (1990), Cube root asymptotics, doi:10.1214/aos/1176347498.
    """
    from arviz_stats.base import array_stats  # a second of import that only draws need

    x = draws.astype(np.float64).reshape(*draws.shape[:2], -1)
    batch = batch_numbers(*x.shape[:2])
    each = [x[batch == b] for b in range(int(batch.max()) + 1)]
    ends = [array_stats.hdi(part, prob, axis=0) for part in each if len(part) > 1]
    value = array_stats.hdi(x.reshape(-1, x.shape[2]), prob, axis=0)
    error = np.std(ends, axis=0, ddof=1) / np.cbrt(len(ends))
    shape = 2, *draws.shape[2:]
    return value.T.reshape(shape), error.T.reshape(shape)


def averages(
    name: str, values: FloatArray, error: Callable[[FloatArray], FloatArray] = mean_error
) -> dict[str, FloatArray]:
    """The mean over draws, with its error."""
    return {name: values.mean(axis=(0, 1)), f"{name}_se": error(values)}


def deviation(
    name: str,
    sd: FloatArray,
    mean: FloatArray,
    error: Callable[[FloatArray], FloatArray] = mean_error,
) -> dict[str, FloatArray]:
    """Standard deviation of a mixture with these means and deviations, one component a draw."""
    with np.errstate(invalid="ignore", over="ignore"):
        # Equal draws differ from their mean by its round-off, which is no deviation.
        moves = np.ptp(mean, axis=(0, 1)) > 0
        square = sd**2 + np.where(moves, mean - mean.mean(axis=(0, 1)), 0.0) ** 2
        total = np.sqrt(square.mean(axis=(0, 1)))
        off = error(square) / np.where(total > 0, 2.0 * total, 1.0)
    return {f"{name}_sd": total, f"{name}_sd_se": off}


def _mcse(values: FloatArray, method: str, prob: float | None = None) -> FloatArray:
    from arviz_stats.base import array_stats  # a second of import that only draws need

    shape = values.shape[2:]
    flat = values.reshape(*values.shape[:2], -1)
    moves = np.ptp(flat, axis=(0, 1)) > 0  # what does not has no effective sample size
    found = np.zeros(flat.shape[2])
    if moves.any():
        options = {"chain_axis": 0, "draw_axis": 1, "method": method}
        if prob is not None:
            options["prob"] = float(prob)
        found[moves] = array_stats.mcse(flat[..., moves], **options)
    return found.reshape(shape)


def batch_numbers(n_chains: int, n_draws: int) -> IntArray:
    """Which of the parts of the chains each draw is in, shape (chain, draw)."""
    count = min(_BATCHES, n_draws)
    own = np.arange(n_draws) * count // n_draws
    return np.asarray(np.arange(n_chains)[:, None] * count + own)


def averages_by_batches(
    batch: IntArray, parts: Iterator[tuple[IntArray, Mapping[str, FloatArray]]]
) -> dict[str, FloatArray]:
    """Averages over draws of what is known for some of them together, with errors ``_se``.

    Parameters
    ----------
    batch : ndarray of int, shape (n_draws,)
    parts : iterator of (index, dict)
        Draws of one batch, and averages over them.
    """
    n_batches = int(batch.max()) + 1
    size = np.bincount(batch, minlength=n_batches)
    sums: dict[str, FloatArray] = {}
    for index, values in parts:
        for name, x in values.items():
            total = sums.setdefault(name, np.zeros((n_batches, *x.shape)))
            total[batch[index[0]]] += index.size * x
    found = {}
    for name, total in sums.items():
        mean = total.sum(axis=0) / size.sum()
        share = (size / size.sum()).reshape(-1, *(1,) * (total.ndim - 1))
        off = share * (total / size.reshape(share.shape) - mean)
        found[name] = mean
        found[f"{name}_se"] = np.sqrt((off**2).sum(axis=0) * n_batches / max(n_batches - 1, 1))
    return found
