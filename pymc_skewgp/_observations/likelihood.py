"""What a likelihood is, what its data and inputs may be, and what it predicts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Number
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from pymc_skewgp import _validation as check
from pymc_skewgp._gaussian import weights as of_draws
from pymc_skewgp._gaussian.blocks.rows import RowSites
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._validation import FloatArray

# What a posterior says of f at each of t points, as a likelihood needs it for its forecasts.


class Moments(NamedTuple):
    """Mean, standard deviation and skewness at each point, or the standard errors of these."""

    mean: FloatArray
    sd: FloatArray
    skewness: FloatArray


@dataclass(frozen=True)
class Mixture(of_draws.GaussianMixture):
    r"""f at point i is :math:`\sum_j w_j N(m_{ij}, v_i)`; see `LatentMarginals` for all it has."""

    exact: bool = False  # whether the components are all there is, rather than draws of them
    # Of K functions at each input given the component, shape (t / K, K, K); None for one.
    covariance: FloatArray | None = None
    # Covariance of all values given the component, (t, t); None unless it was asked for.
    joint: FloatArray | None = None

    @cached_property
    def moments(self) -> Moments:
        """Mean, standard deviation and skewness, shape (t,) each."""
        return Moments(*self._moments_of_rows())

    @cached_property
    def moment_errors(self) -> Moments:
        """Monte Carlo standard errors of `moments`."""
        zero = np.zeros((3, self.variance.size))
        return Moments(*(zero if self.exact else self._moment_errors_of_rows()))

    def quantile_errors(self, quantiles: FloatArray) -> FloatArray:
        """Monte Carlo standard errors of quantiles that were found."""
        return np.zeros(quantiles.shape) if self.exact else self._quantile_errors_at(quantiles)


def some_values[M: Mixture](
    mixture: M, values: Any, covariance: FloatArray | None = None, joint: FloatArray | None = None
) -> M:
    """Of the values that are chosen, with covariances of those, where they are asked for."""
    means, variance = mixture.means[values], mixture.variance[values]
    return replace(mixture, means=means, variance=variance, covariance=covariance, joint=joint)


def n_points_of(mixture: Mixture) -> int:
    """Number of points, at which there may be several functions."""
    found = mixture.variance if mixture.covariance is None else mixture.covariance
    return int(found.shape[0])


def average_error(mixture: Mixture, influence: FloatArray) -> FloatArray:
    """Monte Carlo errors of averages, by how far components are from them, shape (..., S)."""
    if mixture.exact:
        return np.zeros(influence.shape[:-1])
    return of_draws.weighted_error(influence, mixture.weights, mixture.replicate)


# Which values of latent functions observations are made of.


class Derivative(NamedTuple):
    """A derivative of a function: in which feature, a column of X, and how many times."""

    feature: int
    order: int


@dataclass(frozen=True, eq=False)
class Values:
    """Values of K functions at n inputs, row by row: all functions at the first input, and so on.

    Attributes
    ----------
    X : ndarray, shape (n, d)
    n_functions : int, default 1
        K: the first K functions that there are.
    derivative : Derivative, optional
        What is taken of the functions; None for themselves.
    """

    X: FloatArray
    n_functions: int = 1
    derivative: Derivative | None = None

    @property
    def size(self) -> int:
        """Number n K of values."""
        return self.X.shape[0] * self.n_functions


def stacked_inputs(parts: Sequence[Values]) -> FloatArray:
    """Inputs of several parts, one after the other, shape (q, d)."""
    return parts[0].X if len(parts) == 1 else np.vstack([part.X for part in parts])


def input_index(parts: Sequence[Values]) -> IntArray:
    """Which of `stacked_inputs` each value of the parts is at."""
    each = np.concatenate([np.full(part.X.shape[0], part.n_functions) for part in parts])
    return np.repeat(np.arange(each.size), each)


def function_index(parts: Sequence[Values]) -> IntArray:
    """Which function each value of the parts is of."""
    return np.concatenate([np.tile(np.arange(p.n_functions), p.X.shape[0]) for p in parts])


def derivative_groups(parts: Sequence[Values]) -> dict[Derivative | None, IntArray]:
    """Which of `stacked_inputs` belong to each derivative."""
    part_of = np.repeat(np.arange(len(parts)), [part.X.shape[0] for part in parts])
    kinds = [part.derivative for part in parts]
    return {
        kind: np.flatnonzero(np.array([kind == other for other in kinds])[part_of])
        for kind in dict.fromkeys(kinds)
    }


Data = NDArray[Any]


class Likelihood(ABC):
    """A frozen object: the parameters of p(y | f), which the data are handed to.

    f are values of K functions at the n rows of X. Where K is 1 arrays of it have shape (..., n),
    else (..., n, K). A class that lacks one of the abstract methods cannot be made, and Python says
    which; the others have defaults. `ClosedFormSites` is for factors log p(y | f).

    Examples
    --------
    A likelihood of rows, v = A f + a + e. Numbers that were rounded:

    >>> from dataclasses import dataclass
    >>> from typing import Any
    >>> import numpy as np
    >>> from pymc_skewgp._observations.likelihood import Likelihood, as_integers
    >>> from pymc_skewgp._observations.observations import intervals
    >>> from pymc_skewgp._observations.real_values import as_scale
    >>> @dataclass(frozen=True, eq=False)
    ... class Rounded(Likelihood):
    ...     sigma: Any  # one number, one for each row, or a random variable of a PyMC model
    ...     row_parameters = ("sigma",)
    ...
    ...     def as_data(self, y, n):  # checks data and parameters, and says what is wrong
    ...         as_scale("sigma", self.sigma, n)
    ...         return as_integers(y, n, "rounded number")
    ...
    ...     def observations(self, y, n):  # lower and upper limits, and variances of the noise
    ...         return intervals(y - 0.5, y + 0.5, as_scale("sigma", self.sigma, n) ** 2)
    ...
    ...     def draw(self, f, rng):  # replicated data, and new ones; None if it is left out
    ...         noise = as_scale("sigma", self.sigma, f.shape[-1]) * rng.standard_normal(f.shape)
    ...         return np.rint(f + noise).astype(int)
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior([0.0, 1.0], [1, 2], likelihood=Rounded(0.3))
    >>> posterior.predict([0.5], draws=10, chains=1)["predictions"]["y"].shape
    (1, 10, 1)
    """

    # Dimension of y: of the rows of X, unless the data are about several of them each.
    y_dim: str = "obs_id"
    # Parameters that may be one number for each observation.
    row_parameters: ClassVar[tuple[str, ...]] = ()
    # Further dimensions of y, where an observation is not one number.
    y_inner_dims: tuple[str, ...] = ()
    # Further dimensions of what is predicted, after that of the point, by variable.
    predicted_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Dimension that tells functions apart, where there are several.
    function_dim: str = "function"
    # What of the functions the rows are of: a derivative, or None for themselves.
    derivative: Derivative | None = None
    # Whether there is a y that can be replicated, or else only a statement about f.
    has_data: ClassVar[bool] = True
    # Whether a parameter sigma is that of the points alone: the noise of intervals is 1.
    sigma_of_points_only: ClassVar[bool] = False
    # Whether S is in units of the prior variance of what the rows are of.
    relative_noise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in self.row_parameters:
            check.refuse_masked(name, getattr(self, name))
            object.__setattr__(self, name, frozen_copy(getattr(self, name)))

    @property
    def single(self) -> bool:
        """Whether all parameters are numbers, those of new points as well."""
        return not any(np.ndim(getattr(self, name)) for name in self.row_parameters)

    @property
    def predicts(self) -> bool:
        """Whether all that forecasts need of new points is known."""
        return self.single

    @property
    def graphs(self) -> dict[str, Any]:
        """Parameters that are graphs of random variables, by name; of a likelihood inside too."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Likelihood):
                found |= value.graphs
            elif hasattr(value, "owner"):
                found[name] = value
        return found

    def with_parameters(self, values: Mapping[str, Any]) -> "Likelihood":
        """The same with other parameters, be they those of a likelihood inside."""
        own: Any = self
        found = {name: values[name] for name in vars(self) if name in values}
        for name, value in vars(self).items():
            if isinstance(value, Likelihood):
                found[name] = value.with_parameters(values)
        return cast("Likelihood", replace(own, **found)) if found else self

    @abstractmethod
    def as_data(self, y: ArrayLike, n: int) -> Data:
        """`y`, one value for each of `n` rows of X, checked and copied.

        Raises
        ------
        ValueError, TypeError
            The message says what was found and what was expected.
        """

    @abstractmethod
    def observations(self, y: Data, n: int) -> Observations:
        """Rows of f at `n` rows of X: the n K values of f in the order of `Values`."""

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f), one for each observation in the last dimension.

        Of one row each, by itself, unless a class says more.
        """
        rows = self.observations(y, f.shape[-1])
        sites = RowSites(rows.lower, rows.upper, rows.value, rows.variances)
        flat = f.reshape(-1, f.shape[-1])
        eta = flat if rows.A is None else rows.of(flat.T).T
        found = sites.log_prob(slice(None), np.ascontiguousarray(eta, dtype=np.float64))
        return found.reshape(*f.shape[:-1], rows.n_rows)

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data | None:
        """New data given f, by parameters of as many rows; None where they cannot be drawn."""
        return None

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data | None:
        """New data at the rows of the old ones, drawn given f; None where they cannot be drawn."""
        return self.draw(f, rng)

    def of_observations(self, index: IntArray, y: Data) -> "Likelihood":
        """The same for observations chosen from all of `y`; they may repeat.

        Where a parameter is one number for each observation, these numbers are chosen with them.
        """
        if not self.row_parameters:
            return self
        chosen = {name: chosen_of(getattr(self, name), index) for name in self.row_parameters}
        return cast("Likelihood", replace(cast("Any", self), **chosen))

    def n_functions(self, y: Data) -> int:
        """Number K of functions."""
        return 1

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Coordinates of dimensions that only this likelihood has, such as names of categories."""
        return {}

    def observed(self, y: Data) -> dict[str, Data]:
        """The data by name, one for each observation: what a DataTree shows of them."""
        return {"y": y}

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """What is predicted at new points given draws of f there, by name."""
        drawn = self.draw(f, rng) if self.predicts else None
        return {} if drawn is None else {"y": drawn}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """The same averaged over f, one number a point, with standard errors (``_se``)."""
        return {}

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """Quantiles of what is predicted, f averaged over, shape (n_probs, t), by name."""
        return {}

    def joint_summary(self, f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
        """What the new points tell only together, with standard errors (``_se``).

        `f` are joint draws there; `mixture` has their covariance given u, in ``joint``.
        """
        return {}

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]] | None:
        """PyMC's distribution of y given f, a graph: its name and parameters; None: there is none.

        `exp` is the exponential function of graphs.
        """
        return None

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Checked data at `n` rows of X together with `new` ones, at so many rows more."""
        return np.concatenate([y, self.as_data(new, n_new)])


# What the exact posterior accepts: inputs, labels, pseudo-points.

# Beyond it the covariance of a derivative is one of sixth derivatives of the kernel.
_HIGHEST_ORDER = 2
# Correlation at which two pseudo-points are one: beyond it their difference is round-off.
_COINCIDENT = 1.0 - 1e-9


Columns = tuple[str, ...] | None


def column_names(X: Any) -> Columns:
    """Names of a DataFrame's columns, where all of them are strings."""
    found = tuple(getattr(X, "columns", ()))
    return found if found and all(isinstance(x, str) for x in found) else None


def as_inputs(
    name: str, value: ArrayLike, n_features: int | None = None, columns: Columns = None
) -> FloatArray:
    """`value` as a matrix of inputs; a vector is a column, and a DataFrame has these `columns`."""
    check.refuse_masked(name, value)
    found = column_names(value)
    if columns is not None and found not in (None, columns):
        raise ValueError(
            f"{name} has the columns {', '.join(found)}, and the data have {', '.join(columns)}: "
            f"give these, in this order, as in {name}[{list(columns)}]."
        )
    if issparse(value):
        raise TypeError(
            f"{name} is a sparse matrix of shape {value.shape}, and kernels take all its entries: "
            f"pass {name}.toarray(), or fewer columns that say the same."
        )
    array = np.asarray(value)
    if array.ndim == 1:
        array = array[:, None]
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}): at least one point is needed.")
    # A copy: what is computed later must not follow the caller's array.
    return check.as_matrix(name, array, (None, n_features)).copy()


def as_labels(y: ArrayLike, n: int, name: str = "y", rows: str = "X") -> NDArray[np.int64]:
    """Labels of two classes as 0 and 1; the caller knows them as `name`, one a row of `rows`."""
    check.refuse_masked(name, y)
    labels = np.asarray(y)
    check.refuse_other_kinds(name, labels, "cMm")
    refuse_shape(name, labels, n, "label", rows)
    try:
        found = np.unique(labels)
    except TypeError as error:  # None among numbers, say
        raise TypeError(f"{name} must hold numbers or booleans: {error}.") from error
    for negative in (0, -1):
        if np.isin(found, (negative, 1)).all():
            return (labels == 1).astype(np.int64)
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise ValueError(f"{name} must be finite, found NaN: drop those rows of {rows} and {name}.")
    shown = ", ".join(map(repr, found[:5].tolist())) + (", ..." if found.size > 5 else "")
    raise ValueError(
        f"{name} must hold two classes coded 0 and 1 (or -1 and 1); found {found.size} value(s): "
        f"{shown}. For other codes use ({name} == positive_class); counts, ratings, values and "
        "duels have likelihoods of their own, such as Poisson() or Gaussian(sigma)."
    )


def as_values(y: ArrayLike, n: int, name: str = "y") -> FloatArray:
    """Finite values, one a row of X, as a copy."""
    values = check.as_real_array(name, y)
    refuse_shape(name, values, n, "value")
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise ValueError(
            f"{name} must be finite, found {count} NaN or infinite value(s): drop those rows of X "
            f"and {name}."
        )
    return values.copy()


def as_integers(y: ArrayLike, n: int, meaning: str, name: str = "y") -> NDArray[np.int64]:
    """Integers, one a row of X; `meaning` is what each of them is."""
    values = as_values(y, n, name)
    whole = np.floor(values)
    refuse_rows(name, values, whole != values, f"hold integers, one {meaning} for each row of X")
    return whole.astype(np.int64)


def as_counts(y: ArrayLike, n: int, meaning: str = "count") -> NDArray[np.int64]:
    """Whole numbers, 0 or more."""
    counts = as_integers(y, n, meaning)
    refuse_rows("y", counts, counts < 0, "hold counts of 0 and more")
    return counts


def as_positive_values(y: ArrayLike, n: int) -> FloatArray:
    """Finite numbers above 0."""
    values = as_values(y, n)
    refuse_rows("y", values, ~(values > 0), "be positive")
    return values


def as_codes(y: ArrayLike, n: int, names: Sequence[Any]) -> NDArray[np.int64]:
    """Places in `names` of what y holds; numbers are places where no name is a number."""
    check.refuse_masked("y", y)
    found = np.asarray(y)
    refuse_shape("y", found, n, "category")
    known = {name: code for code, name in enumerate(names)}
    if found.dtype.kind in "iufb" and not any(isinstance(name, Number) for name in names):
        known = {code: code for code in range(len(names))}
    entries = found.tolist()
    unknown = [entry for entry in entries if entry not in known]
    if unknown:
        shown = ", ".join(map(repr, dict.fromkeys(unknown[:5])))
        raise ValueError(
            f"y must hold the categories {list(known)}; found {shown} in {len(unknown)} row(s)."
        )
    return np.array([known[entry] for entry in entries], dtype=np.int64)


def refuse_shape(name: str, array: NDArray[Any], n: int, what: str, rows: str = "X") -> None:
    """Refuse another shape than that of a vector of `n`."""
    if array.shape != (n,):
        raise ValueError(
            f"{name} must have shape ({n},), one {what} for each row of {rows}; got {array.shape}."
        )


def refuse_rows(
    name: str, values: NDArray[Any], wrong: NDArray[np.bool_], must: str, advice: str = ""
) -> None:
    """Refuse rows whose values are wrong, by the first of them."""
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"{name} must {must}; row {i} has {values[i]:.6g} ({int(wrong.sum())} such row(s))"
            f"{advice}."
        )


def frozen_copy(value: Any) -> Any:
    """An array of its own that nobody can change; numbers, graphs and None as they are."""
    if not np.ndim(value) or hasattr(value, "owner"):
        return value
    copy = np.array(value)
    copy.flags.writeable = False
    return copy


def as_positive_parameter(name: str, value: Any, *, or_zero: bool = False) -> float:
    """One positive number; the value of a random variable, an array without dimensions, is one."""
    plain = value.item() if isinstance(value, np.ndarray) and not value.ndim else value
    return check.as_positive(name, plain, or_zero=or_zero)


def chosen_of(value: Any, index: IntArray) -> Any:
    """Of a parameter that is one number for each observation, those that are chosen."""
    return np.asarray(value)[index] if np.ndim(value) == 1 else value


def as_phase(phase: ArrayLike | None, s: int) -> FloatArray:
    """Phases, +1 or -1 for each of `s` pseudo-points."""
    signs = check.as_vector("phase", 1.0 if phase is None else phase, s)
    if not np.isin(signs, (-1.0, 1.0)).all():
        raise ValueError(f"phase must hold +1 and -1 only, got {signs}.")
    return signs


def refuse_coincident(cov: FloatArray, phase: FloatArray, truncation: FloatArray) -> None:
    """Refuse pseudo-points with covariance `cov` that are one point, or have no variance."""
    if not (cov.diagonal() > 0).all():
        raise ValueError("cov_func has no variance at some of pseudo_points: move them.")
    sd = np.sqrt(cov.diagonal())
    correlation = np.abs(np.triu(cov / sd / sd[:, None], 1))
    i, j = np.unravel_index(int(np.argmax(correlation)), correlation.shape)
    if correlation[i, j] < _COINCIDENT:
        return
    if phase[i] * phase[j] * cov[i, j] < 0 and truncation[i] + truncation[j] <= 0:
        raise ValueError(
            f"pseudo_points {i} and {j} coincide with opposite phases: the prior asks f to be "
            "positive and negative at one point, which has probability 0. Move one, or flip its "
            "phase."
        )
    raise ValueError(
        f"pseudo_points {i} and {j} coincide (correlation 1 within 1e-9), so their latent "
        "covariance is singular: remove one of them."
    )


def as_derivative(value: Any, n_features: int | None = None) -> Derivative | None:
    """`value` as (feature, order) of a derivative, with a feature that there is; None for None."""
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"derivative must be (feature, order), as in (0, 1); got {value!r}.")
    feature = check.as_count("the feature of derivative", value[0], 0)
    order = check.as_count("the order of derivative", value[1])
    if order > _HIGHEST_ORDER:
        raise ValueError(f"derivatives may be of order 1 or 2, got {order}.")
    if n_features is not None and feature >= n_features:
        raise ValueError(
            f"the derivative is in feature {feature}, but X has {n_features} column(s), features 0 "
            f"to {n_features - 1}."
        )
    return Derivative(feature, order)
