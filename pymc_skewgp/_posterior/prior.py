"""The prior of a latent function, a Gaussian process or a Skew GP, and the data it is given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp import _validation as check
from pymc_skewgp._errors import NotDifferentiableError, NotPositiveDefiniteError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.covariance import FactoredCovariance
from pymc_skewgp._gaussian.truncated import log_prob_rectangle
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._limits import announce_rows
from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.binary import BernoulliLogit, BernoulliProbit, BinomialLogit
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.observations import Observations, stacked
from pymc_skewgp._observations.sites import SiteLikelihood, Sites, stacked_sites
from pymc_skewgp._observations.weighted import Weighted, as_weights, weighted_observations
from pymc_skewgp._sun.parameters import refuse_contradictory_points
from pymc_skewgp._validation import FloatArray

# What a prior of finite rank is: :math:`f(x) = m(x) + \phi(x)^\top c + e(x)`.
#
# With c ~ N(0, I_r), and e(x) ~ N(0, d(x)) independent from row to row.


class Features(Protocol):
    """The functions phi of one process; immutable, and can be pickled."""

    @property
    def rank(self) -> int:
        """Number r of functions."""
        ...

    def at(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Phi, shape (n, r), and d, shape (n,), at a block of rows."""
        ...


class Approximation(Protocol):
    """How a prior is approximated, before there are inputs."""

    def doubled(self) -> "Approximation":
        """Of twice the rank, to compare with."""
        ...

    def features(self, prior: "Prior", X: FloatArray) -> Features:
        """Of the process at inputs like X; the same for the same arguments."""
        ...


class CovarianceFunction(Protocol):
    """A kernel on arrays: ``k(X, Xs)`` of shape (n, m), ``k(X, diag=True)`` of shape (n,).

    ``k(X)`` is the covariance of one set of rows, with ``k(X, diag=True)`` on its diagonal. What it
    has beyond ``k(X, X)`` is noise of each row, which no other row shares: a diagonal matrix.

    Where derivatives of f are asked for it also has a method ``derivative(X, Xs, left, right)``,
    the covariance (n, m) of a `Derivative` of f at X with another one at Xs, None for f itself; and
    the mean function one ``derivative(X, derivative)``.
    """

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Evaluate the kernel."""
        ...


# Of the eigenvalues of a correlation matrix of a few functions.
_ROUND_OFF = 1e-12
# Of a variance, up to which what a row has beyond f is no noise.
ROUND_OFF = 1e-9
MeanFunction = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Prior:
    """A Gaussian process, conditioned on its sign at pseudo-points.

    Attributes
    ----------
    cov_func, mean_func : callable
        Kernel and mean on arrays; what they return is checked at every call.
    pseudo_points : ndarray, shape (s, d)
    phase, truncation : ndarray, shape (s,)
    coregion : ndarray, shape (K, K), optional
        B, the covariance of K functions times the kernel. Default: independent ones.
    approximation : Approximation, optional
        By which the process has finite rank. Default none: the kernel as it is.
    """

    cov_func: CovarianceFunction
    mean_func: MeanFunction
    pseudo_points: FloatArray
    phase: FloatArray
    truncation: FloatArray
    coregion: FloatArray | None = None
    approximation: Approximation | None = None

    @property
    def n_pseudo_points(self) -> int:
        """Number s of pseudo-points."""
        return self.phase.size

    @cached_property
    def scale(self) -> FloatArray:
        """Phase over prior standard deviation at each pseudo-point."""
        if not self.n_pseudo_points:
            return np.zeros(0)
        return self.phase / np.sqrt(self.covariance("pseudo_points", self.pseudo_points, diag=True))

    @cached_property
    def latent_cov(self) -> FloatArray:
        """Gamma: correlations of f at the pseudo-points, with the phases."""
        if not self.n_pseudo_points:
            return np.zeros((0, 0))
        cov = self.covariance("pseudo_points", self.pseudo_points)
        base.refuse_coincident(cov, self.phase, self.truncation)
        scale = self.phase / np.sqrt(cov.diagonal())
        latent_cov = scale[:, None] * cov * scale
        refuse_contradictory_points(latent_cov, self.truncation)
        return latent_cov

    def mean(
        self, name: str, points: FloatArray, derivative: base.Derivative | None = None
    ) -> FloatArray:
        """Mean of f, or of a derivative of it, at `points`, which the caller knows as `name`."""
        if derivative is None:
            found = self.mean_func(points)
        else:
            found = _method(self.mean_func, "mean_func")(points, derivative)
        return _checked("mean_func", name, found, points.shape[:1])

    def covariance(
        self, name: str, a: FloatArray, b: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Covariance of f at `a`, which the caller knows as `name`, with f at `b`."""
        wanted = (a.shape[0],) if diag else (a.shape[0], (a if b is None else b).shape[0])
        value = _checked("cov_func", name, self.cov_func(a, b, diag), wanted)
        if diag or b is None:
            variances = value if diag else value.diagonal()
            check.refuse_extreme_variances(f"cov_func at {name}", variances)
        return value

    def pairs(self, name: str, a: FloatArray, b: FloatArray) -> FloatArray:
        """Covariances of f at each row of `a` with f at the same row of `b`, without noise."""
        cov_func: Any = self.cov_func
        return _checked("cov_func", name, cov_func.pairs(a, b), (len(a),))

    def noise(self, name: str, X: FloatArray, variance: FloatArray) -> FloatArray:
        """Of the kernel itself at each row, as by ``pm.gp.cov.WhiteNoise``, beside f's variance."""
        noise = self.covariance(name, X, diag=True) - variance
        noise[noise < ROUND_OFF * variance] = 0.0
        return noise

    def derivative_covariance(
        self,
        name: str,
        a: FloatArray,
        b: FloatArray,
        left: base.Derivative | None,
        right: base.Derivative | None,
    ) -> FloatArray:
        """Covariance of a derivative of f at `a` with one at `b`; None for f itself.

        Raises
        ------
        NotDifferentiableError
            When the kernel is not smooth enough, or an array function that has no derivatives.
        """
        found = _method(self.cov_func, "cov_func")(a, b, left, right)
        return _checked("derivatives of cov_func", name, found, (a.shape[0], b.shape[0]))


def _checked(what: str, name: str, found: Any, wanted: tuple[int, ...]) -> FloatArray:
    value = check.as_real_array(f"{what} at {name}", found)
    if value.shape != wanted:
        raise ValueError(f"{what} gave shape {value.shape} at {name}, expected {wanted}.")
    if not np.isfinite(value).all():
        raise ValueError(
            f"{what} gave NaN or infinite values at {name}: check its hyperparameters and the "
            "scale of the inputs."
        )
    return value


def as_coregion(value: ArrayLike | None, n_functions: int) -> FloatArray | None:
    """B, the covariance of so many functions, checked; None for independent ones of variance 1."""
    if value is None:
        return None
    matrix = check.as_float_array("coregion", value, 2)
    if matrix.shape != (n_functions, n_functions):
        raise ValueError(
            f"coregion must have shape ({n_functions}, {n_functions}), as the data are about "
            f"{n_functions} function(s); got {matrix.shape}."
        )
    matrix = check.as_covariance("coregion", matrix)
    sd = np.sqrt(matrix.diagonal())
    smallest = float(np.linalg.eigvalsh(matrix / sd / sd[:, None])[0])
    if smallest < -_ROUND_OFF:
        raise NotPositiveDefiniteError(
            f"coregion is not positive semidefinite: as correlations its smallest eigenvalue is "
            f"{smallest:.3g}. W W' + diag(kappa) with positive kappa is, for any W."
        )
    return matrix


def _method(function: Any, name: str) -> Any:
    """Its method that gives derivatives."""
    method = getattr(function, "derivative", None)
    if method is None:
        raise NotDifferentiableError(
            f"{name} is a function of arrays without derivatives, which constraints on derivatives "
            "need: use SkewGP(cov_func=...).posterior with a pm.gp.cov object."
        )
    return method


# Prior moments of values of several functions, and of their derivatives.
#
# The functions have one kernel and mean, and are independent but for a coregionalization matrix B:
# :math:`\mathrm{cov}\{f_k(x), f_l(t)\} = B_{kl}\, k(x, t)`.

_ROWS_AT_ONCE = 256


def covariance_of(
    prior: Prior, name: str, a: Sequence[base.Values], b: Sequence[base.Values] | None = None
) -> FloatArray:
    """Covariance of the values `a`, which the caller knows as `name`, with `b`.

    Without `b` they are one set of rows, with noise of the kernel of their own.
    """
    kernel = kernel_of(prior, name, a, b)
    others = a if b is None else b
    if prior.coregion is None and all(part.n_functions == 1 for part in (*a, *others)):
        return kernel
    left, right = base.function_index(a), base.function_index(others)
    matrix = kernel[np.ix_(base.input_index(a), base.input_index(others))]
    k = max(part.n_functions for part in (*a, *others))
    matrix *= between_functions(prior, k)[np.ix_(left, right)]
    return matrix


def units_of(variances: FloatArray, groups: Mapping[Any, IntArray]) -> FloatArray | None:
    """What to measure values with these variances in, by groups; None where there is only one.

    Derivatives have other units than f, and round-off in one must not be counted in another's.
    """
    if len(groups) == 1:
        return None
    units = np.ones(variances.size)
    for rows in groups.values():
        units[rows] = np.sqrt(variances[rows].max()) or 1.0
    return units


def variances_of(prior: Prior, name: str, part: base.Values) -> FloatArray:
    """Variances, shape (n,), or covariances of the K functions at each input, shape (n, K, K)."""
    if part.derivative is None:
        variances = prior.covariance(name, part.X, diag=True)
    else:
        own = (part.derivative, part.derivative)
        some = [part.X[i : i + _ROWS_AT_ONCE] for i in range(0, part.X.shape[0], _ROWS_AT_ONCE)]
        blocks = [prior.derivative_covariance(name, x, x, *own) for x in some]
        variances = np.concatenate([block.diagonal() for block in blocks])
    between = between_functions(prior, part.n_functions)
    if part.n_functions == 1:
        return np.asarray(variances * between[0, 0])
    return np.asarray(variances[:, None, None] * between)


def mean_of(prior: Prior, name: str, a: Sequence[base.Values]) -> FloatArray:
    """Their means."""
    X = base.stacked_inputs(a)
    mean = np.empty(X.shape[0])
    for derivative, rows in base.derivative_groups(a).items():
        mean[rows] = prior.mean(name, X[rows], derivative)
    mean_of_values: FloatArray = mean[base.input_index(a)]
    return mean_of_values


def log_prob_of_signs(prior: Prior, n_functions: int, n_draws: int) -> Estimate:
    """Log probability of the signs of all functions at the pseudo-points, before any data."""
    if prior.coregion is None:
        one = log_prob_rectangle(prior.latent_cov, -np.inf, prior.truncation, n_draws, None, 0)
        return one._replace(value=n_functions * one.value, std_error=n_functions * one.std_error)
    # The first pseudo-point of each function, then the second, as in `Values`.
    between = between_functions(prior, n_functions)
    sd = np.sqrt(between.diagonal())
    correlation = np.asarray(np.kron(prior.latent_cov, between / sd / sd[:, None]), dtype=float)
    truncation = np.repeat(prior.truncation, n_functions)
    return log_prob_rectangle(correlation, -np.inf, truncation, n_draws, None, 0)


def between_functions(prior: Prior, n_functions: int) -> FloatArray:
    """B, for the first functions."""
    if prior.coregion is None:
        return np.eye(n_functions)
    return prior.coregion[:n_functions, :n_functions]


def kernel_of(
    prior: Prior, name: str, a: Sequence[base.Values], b: Sequence[base.Values] | None = None
) -> FloatArray:
    """Covariance of one function at all the inputs, or of its derivatives there."""
    X, rows = base.stacked_inputs(a), base.derivative_groups(a)
    Xs, columns = (X, rows) if b is None else (base.stacked_inputs(b), base.derivative_groups(b))
    if set(rows) | set(columns) == {None}:
        return prior.covariance(name, X, None if b is None else Xs)
    kernel = np.empty((X.shape[0], Xs.shape[0]))
    for i, (left, own) in enumerate(rows.items()):
        for j, (right, other) in enumerate(columns.items()):
            if b is None and j < i:
                block = kernel[np.ix_(other, own)].T
            elif left is None and right is None:
                block = prior.covariance(name, X[own], None if b is None else Xs[other])
            else:
                block = prior.derivative_covariance(name, X[own], Xs[other], left, right)
            kernel[np.ix_(own, other)] = block
    return kernel


# The prior covariance of values of several functions, by one factor for all functions.


def factored_covariance_of(
    prior: Prior, name: str, parts: Sequence[base.Values]
) -> FactoredCovariance:
    """Covariance of the values `parts`, which the caller knows as `name`, with its factor.

    The K functions have one kernel, so that its matrix at the n inputs is factorised, in n^3
    operations, and not that of the n K values: with k = F F' and B = R R' between the functions,
    value (i, a) has the factor's row R_a x F_i.
    """
    announce_rows(sum(part.X.shape[0] for part in parts))
    kernel = kernel_of(prior, name, parts)
    cov = FactoredCovariance.of_kernel(
        kernel, units_of(kernel.diagonal(), base.derivative_groups(parts))
    )
    k = max(part.n_functions for part in parts)
    if k == 1 and prior.coregion is None:
        return cov
    between = between_functions(prior, k)
    at, function = base.input_index(parts), base.function_index(parts)
    half = factor_between(between)[function]
    factor = half[:, :, None] * cov.factor[at][:, None, :]
    units = cov.units
    if units is not None or prior.coregion is not None:
        units = np.ones(at.size) if units is None else units[at]
        units = units * np.sqrt(between.diagonal())[function]
    # Where its rank is low the matrix is never asked for.
    matrix = partial(_entries, cov, at, between, function)
    return FactoredCovariance(factor.reshape(factor.shape[0], -1), matrix, units)


def _entries(
    kernel: FactoredCovariance, at: IntArray, between: FloatArray, function: IntArray
) -> FloatArray:
    """Covariance of function a at input i with function b at j: k_ij B_ab."""
    matrix: FloatArray = kernel.dense()[np.ix_(at, at)]
    matrix *= between[np.ix_(function, function)]
    return matrix


def factor_between(between: FloatArray) -> FloatArray:
    """Of B, each function in its own units."""
    sd = np.sqrt(between.diagonal())
    return sd[:, None] * linalg.low_rank_factor(between / sd / sd[:, None])


# Data of one kind, or of several kinds on the same latent functions.

BoolArray = NDArray[np.bool_]
# Noise of more than this share of the variance is noise in its own right.
_MOST_NUGGET = 1e-4
# Of limits, in standard deviations of the noise: the nugget itself.
_LEAST_WIDTH = 8.0


class DataSet(NamedTuple):
    """Data under one likelihood.

    Attributes
    ----------
    name : str
        Empty where it is the only one.
    X : ndarray, shape (n, d)
    y : ndarray
    likelihood : Likelihood
    weights : ndarray of int, or None
        How often each observation was made; None where each was made once.
    columns : tuple of str, or None
        Names of the columns of X, of a DataFrame.
    """

    name: str
    X: FloatArray
    y: Data
    likelihood: Likelihood
    weights: IntArray | None = None
    columns: base.Columns = None

    @property
    def features(self) -> Any:
        """What columns of X are called."""
        return np.arange(self.X.shape[1]) if self.columns is None else list(self.columns)

    def as_inputs(self, name: str, X: ArrayLike) -> FloatArray:
        """New inputs, of the same columns."""
        return base.as_inputs(name, X, self.X.shape[1], self.columns)

    def weighted(self, weights: ArrayLike) -> "DataSet":
        """The same, each observation made so often; sites have powers, whole or not."""
        known, y, n = self.likelihood, self.y, self.X.shape[0]
        if not known.has_data:
            raise ValueError(f"weights are of data, and {known!r} has none: leave them out.")
        if isinstance(known, SiteLikelihood):
            powers = Weighted(known, weights)
            powers.sites(y, n)  # refuses impossible ones at once
            return self._replace(likelihood=powers)
        return self._replace(weights=as_weights("weights", weights, len(y)))

    def rows(self) -> Observations:
        """What is observed, in rows."""
        return weighted_observations(self.likelihood, self.y, self.X.shape[0], self.weights)

    def part(self, index: IntArray) -> "DataSet":
        """Some rows of data that are about one row of X each."""
        known, weights = self.likelihood, self.weights
        if known.y_dim != "obs_id":
            raise ValueError(
                f"rows= chooses rows of X, and {known!r} has observations of several of them."
            )
        return self._replace(
            X=self.X[index],
            y=self.y[index],
            likelihood=known.of_observations(index, self.y),
            weights=None if weights is None else weights[index],
        )

    @property
    def values(self) -> base.Values:
        """What of the functions it is about."""
        known = self.likelihood
        return base.Values(self.X, known.n_functions(self.y), known.derivative)

    def named(self, variable: str) -> str:
        """What a variable that belongs to it is called; standard errors end in ``_se``."""
        if not self.name:
            return variable
        stem = variable.removesuffix("_se")
        return f"{stem}_{self.name}{variable[len(stem) :]}"


def as_data_sets(
    X: Any, y: Any, likelihood: Any, weights: ArrayLike | None = None
) -> tuple[DataSet, ...]:
    """Checked data: X and y, or, without y, (X, y, likelihood) of each kind.

    `weights` are those of data of one kind.

    Raises
    ------
    ValueError, TypeError
        The message says which of them, what was found and what was expected.
    """
    sets: list[DataSet] = []
    for name, kind in kinds_of(X, y, likelihood).items():
        try:
            columns = sets[0].columns if sets else base.column_names(kind[0])
            inputs, known = base.as_inputs("X", kind[0], None, columns), as_likelihood(kind[2])
            base.as_derivative(known.derivative, inputs.shape[1])
            y_checked = known.as_data(kind[1], inputs.shape[0])
            sets.append(DataSet(name, inputs, y_checked, known, columns=columns))
        except (TypeError, ValueError) as error:
            if not name:
                raise
            raise type(error)(f"in the data {name!r}: {error}") from error
    if weights is not None:
        if len(sets) > 1 or sets[0].name:
            raise ValueError(
                "weights are for data of one kind: repeat the rows of X and y in those of several."
            )
        sets = [sets[0].weighted(weights)]
    widths = {data.X.shape[1] for data in sets}
    if len(widths) > 1:
        raise ValueError(
            f"the X of all data must have one number of columns, got {sorted(widths)}."
        )
    return tuple(sets)


def kinds_of(X: Any, y: Any, likelihood: Any) -> dict[str, tuple[Any, Any, Any]]:
    """(X, y, likelihood) by name, not checked; the name is empty where there is only one."""
    if y is not None or not getattr(likelihood, "has_data", True):
        _refuse_another_order(X, y)
        return {"": (X, y, likelihood)}
    if isinstance(X, Mapping):
        kinds = {str(name): kind for name, kind in X.items()}
    elif isinstance(X, list | tuple) and all(isinstance(kind, tuple) for kind in X):
        kinds = {str(i): kind for i, kind in enumerate(X)}
    else:
        raise TypeError(
            "y is missing. Data of several kinds are a list of tuples (X, y, likelihood), or a "
            "dict of them by name, without y."
        )
    if likelihood is not None:
        raise TypeError("with data of several kinds each tuple (X, y, likelihood) has its own.")
    if not kinds:
        raise ValueError("there are no data: the list of (X, y, likelihood) is empty.")
    for name, kind in kinds.items():
        if not isinstance(kind, tuple) or len(kind) != 3:
            found = f"{type(kind).__name__}"
            found += f" of length {len(kind)}" if isinstance(kind, tuple) else ""
            raise TypeError(f"data {name!r} must be a tuple (X, y, likelihood), got a {found}.")
        if not name:
            raise ValueError("names of data must not be empty.")
        _refuse_another_order(*kind[:2])
    return kinds


def _refuse_another_order(X: Any, y: Any) -> None:
    """Raise for y of pandas that has the labels of X's rows in another order: rows go by place."""
    if not (hasattr(X, "iloc") and hasattr(y, "iloc")) or X.index.equals(y.index):
        return
    if len(X) == len(y) and set(X.index) == set(y.index):
        raise ValueError(
            "the index of y has the labels of that of X in another order, and rows go by place: "
            "give y.loc[X.index], or y.to_numpy() where it is in the order of X."
        )


def rows_of(sets: tuple[DataSet, ...], prior: Prior) -> tuple[Observations, BoolArray]:
    """Rows of all of them, one after the other, of the values that `DataSet.values` are.

    And which of these rows are constraints, whose noise is only a nugget.
    """
    parts, constrained = [], []
    for data in sets:
        rows = data.rows()
        relative = data.likelihood.relative_noise
        constrained.append(np.full(rows.n_rows, relative) & (rows.variances < _MOST_NUGGET))
        parts.append(in_prior_units(rows, prior, data) if relative else rows)
    return stacked(parts, [data.values.size for data in sets]), np.concatenate(constrained)


def sites_of(sets: tuple[DataSet, ...]) -> Sites | None:
    """Observations that are no rows, likewise; None where all are."""
    return stacked_sites((x.likelihood, x.y, x.X.shape[0], x.values.size) for x in sets)


def link_of(sets: tuple[DataSet, ...]) -> str:
    """Link of labels, "probit" or "logit"; of sites that are none the name of their likelihood."""
    known = [data.likelihood for data in sets]
    plain = [x.likelihood if isinstance(x, Weighted) else x for x in known]
    if not all(isinstance(x, SiteLikelihood) for x in plain):
        return "probit"
    if any(isinstance(x, BernoulliLogit | BinomialLogit) for x in plain):
        return "logit"
    return type(plain[0]).__name__


def updated_sets(
    sets: tuple[DataSet, ...], Xnew: ArrayLike | None, ynew: ArrayLike, name: str | None
) -> tuple[DataSet, ...]:
    """The same with new data in the one called `name`, or in the only one."""
    names = [data.name for data in sets]
    wanted = names[0] if name is None and len(names) == 1 else name
    if wanted not in names:
        raise ValueError(f"name must say which data the new ones belong to: {names}; got {name!r}.")
    at = names.index(wanted)
    old = sets[at]
    new = np.zeros((0, old.X.shape[1]))
    if Xnew is not None:
        new = old.as_inputs("Xnew", Xnew)
    try:
        y = old.likelihood.joined(old.y, old.X.shape[0], ynew, new.shape[0])
    except (TypeError, ValueError) as error:
        raise type(error)(f"in the new data: {error}") from error
    weights = old.weights
    if weights is not None:  # the new ones were made once
        weights = np.append(weights, np.ones(len(y) - weights.size, dtype=np.intp))
    grown = old._replace(X=np.vstack([old.X, new]), y=y, weights=weights)
    return (*sets[:at], grown, *sets[at + 1 :])


def as_likelihood(likelihood: Any) -> Likelihood:
    """`likelihood`, by default binary probit; TypeError for what is none."""
    if likelihood is None:
        return BernoulliProbit()
    if not isinstance(likelihood, Likelihood):
        kind = likelihood if isinstance(likelihood, type) else type(likelihood)
        found = f"the class {kind.__name__}" if kind is likelihood else kind.__name__
        raise TypeError(
            f"likelihood must be an object of pymc_skewgp.likelihoods, such as BernoulliProbit() "
            "or Gaussian(0.1), or for SkewGP.posterior a function such as lambda eta: "
            f"pm.Poisson.dist(pm.math.exp(eta)); got {found}."
        )
    return likelihood


def in_prior_units(rows: Observations, prior: Prior, data: DataSet) -> Observations:
    """Constraints, with noise that was a share of the prior variance of what they limit."""
    variances = variances_of(prior, "X", data.values)
    named = f" in the data {data.name!r}" if data.name else ""
    if not (variances > 0).all():
        raise ValueError(
            f"what is constrained{named} has no variance at {int((variances <= 0).sum())} of "
            f"{variances.size} point(s): the kernel does not depend on that feature there, or its "
            "derivative is a constant."
        )
    noise = rows.S * variances
    width = rows.upper - rows.lower
    narrow = width < _LEAST_WIDTH * np.sqrt(noise)
    if narrow.any():
        i = int(np.argmax(narrow))
        raise ValueError(
            f"limits of the constraint{named} are closer together than its nugget in "
            f"{int(narrow.sum())} row(s): row {i} has the width {width[i]:.3g}. Lower the nugget, "
            "or give such values as data, under Gaussian."
        )
    return replace(rows, S=noise)


def n_functions(sets: tuple[DataSet, ...]) -> int:
    """Of all the data together."""
    return int(np.max([data.values.n_functions for data in sets]))
