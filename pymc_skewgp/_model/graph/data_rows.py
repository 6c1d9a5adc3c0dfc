"""Data under a likelihood of `pymc_skewgp.likelihoods` as rows, for graphs.

The rows are computed in NumPy and go into graphs as arrays; what is a random variable of the
likelihood enters the graph: its noise, what limits or correlations of the noise depend on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.gp.process import ValuesAt
from pymc_skewgp._observations.binary import BinomialProbit
from pymc_skewgp._observations.classes import MultinomialProbit
from pymc_skewgp._observations.likelihood import Data, Likelihood, as_derivative
from pymc_skewgp._observations.observations import Observations, as_matrix, equal_rows
from pymc_skewgp._observations.weighted import as_weights, weighted_observations
from pymc_skewgp._posterior.data_blocks import Arrays, RowTable
from pymc_skewgp._posterior.prior import as_likelihood
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Parameters that limits, or correlations of the noise, are an affine function of.
_LIMITS = ("cutpoints", "lower", "upper", "threshold")
_CORRELATION = "rho"
_LEARNT = ("sigma", _CORRELATION, *_LIMITS)
# Numbers that stand for random ones: a step away from them must be allowed too.
_CORRELATED = 0.5


class RowsOfData(NamedTuple):
    """Rows v = A f + e, e ~ N(0, S), as graphs, f being values of K functions at the rows of X.

    Attributes
    ----------
    values : ValuesAt
        X and K.
    A : TensorVariable, shape (m, n K), or None
        None for the identity.
    S : TensorVariable, shape (m,) or (m, m)
    lower, upper, value : TensorVariable, shape (m,)
        See `Observations`.
    log_constant : TensorVariable, shape ()
        Minus infinity where parameters or data are impossible.
    relative : bool
        Whether S is in units of the prior variances of the values.
    counts : TensorVariable, shape (m,), or None
        How many rows each interval stands for, each with noise of its own. None for one each.
    sites : SitesOfData, or None
        Where the rows are predictors of sites: intervals of width 0 at 0, without noise.
    """

    values: ValuesAt
    A: Any
    S: Any
    lower: Any
    upper: Any
    value: Any
    log_constant: Any
    relative: bool
    counts: Any = None
    sites: Any = None


@dataclass(frozen=True, eq=False)
class Known:
    """Checked data under a likelihood.

    Attributes
    ----------
    X : ndarray, shape (n, d)
    y : ndarray
    likelihood : Likelihood
        With numbers in place of random parameters.
    random : dict
        These parameters by name, graphs.
    """

    X: FloatArray
    y: Data
    likelihood: Any
    random: dict[str, Any]

    @property
    def n_functions(self) -> int:
        """K."""
        return int(self.likelihood.n_functions(self.y))

    @property
    def by_row(self) -> bool:
        """Whether a random parameter is one number for each of the data."""
        return any(x.ndim for name, x in self.random.items() if name != "cutpoints")

    def without_graphs(self) -> Self:
        """The same for what outlives a graph: the names of random parameters alone."""
        return replace(self, random=dict.fromkeys(self.random))

    def at(self, random: Mapping[str, Any]) -> Likelihood:
        """The likelihood with numbers as its random parameters."""
        values = {name: np.asarray(x)[()] for name, x in random.items()}
        return cast("Likelihood", self.likelihood.with_parameters(values))


@dataclass(frozen=True, eq=False)
class KnownData(Known):
    """Data under a likelihood of rows.

    Attributes
    ----------
    weights : ndarray of int, or None
        How often each observation was made; None where each was made once.
    """

    weights: IntArray | None = None

    @cached_property
    def arrays(self) -> Arrays:
        """What `inputs` of the rows are, for all the data."""
        return self.part(np.arange(self.X.shape[0]))

    @property
    def strata(self) -> NDArray[Any] | None:
        """What parts of the data should have equal shares of, shape (n,).

        None where they have no parts: an observation is not one row of X, or parameters of the
        likelihood are one a row.
        """
        n, values = self.X.shape[0], vars(self.likelihood).values()
        by_row = any(x.ndim and len(x) == n for x in values if isinstance(x, np.ndarray))
        if self.likelihood.y_dim != "obs_id" or len(self.y) != n or by_row or self.by_row:
            return None
        if self.y.ndim == 1 and self.y.dtype.kind in "iub":
            return self.y
        if self.y.dtype.kind == "f" and np.isnan(self.y).any():  # outcomes that are not seen
            return ~np.isnan(self.y)
        return self.likelihood.observations(self.y, n).is_point

    @property
    def repeats(self) -> bool:
        """Whether several intervals may be of one value of f."""
        return self.weights is not None or isinstance(self.likelihood, BinomialProbit)

    def _observations(self, likelihood: Likelihood, y: Data, chosen: NDArray[Any]) -> Observations:
        """Rows of some of the data under `likelihood`, with numbers as its parameters."""
        n = chosen.size
        if self.weights is None:
            return likelihood.observations(y, n)
        whole = n == self.X.shape[0]
        return weighted_observations(
            likelihood, y, n, self.weights if whole else self.weights[chosen]
        )

    @cached_property
    def whole(self) -> RowTable:
        """Rows of all the data."""
        return self._table(np.arange(self.X.shape[0]))

    def part(self, chosen: NDArray[Any]) -> Arrays:
        """The same for some of the data."""
        table = self.whole if chosen.size == self.X.shape[0] else self._table(chosen)
        if table.design is not None:
            design = _dense_design(table.design, chosen.size * self.n_functions)
            table = table._replace(design=design)
        return tuple(_dense(x) for x in (self.X[chosen], *table.arrays))

    def _table(self, chosen: NDArray[Any]) -> RowTable:
        """Rows of some of the data."""
        whole = chosen.size == self.X.shape[0]
        y = self.y if whole else self.y[chosen]
        found = self._observations(self.likelihood, y, chosen)
        slopes = {name: self._slopes(found, y, chosen, name) for name in self._affine}
        lower, upper = found.lower - found.a, found.upper - found.a
        for name in self._affine:
            if name != _CORRELATION:  # limits at 0
                at = np.ravel(getattr(self.likelihood, name))
                lower, upper = lower - slopes[name][0] @ at, upper - slopes[name][1] @ at
        columns = [lower, upper, found.value - found.a, found.S]
        A = None if found.A is None else as_matrix(found.A, found.n_rows)
        flat = [slope for pair in slopes.values() for slope in pair]
        counts = None
        if self.repeats:
            kinds = equal_rows(found, flat, merge=not self.by_row)
            columns, flat = [x[kinds.first] for x in columns], [x[kinds.first] for x in flat]
            A = None if A is None else A[kinds.first]
            counts = kinds.counts
        log_constant = np.asarray(found.log_constant, dtype=np.float64)
        return RowTable(tuple(columns), log_constant, counts, A, tuple(flat))

    @property
    def shares_noise(self) -> bool:
        """Whether rows do."""
        return bool(self.whole.columns[3].ndim == 2)

    def rows(self) -> tuple[list[Any], RowsOfData]:
        """Graphs of the rows, and the inputs of these graphs."""
        # Of the types of `arrays`, which these need not be made for: A may be large.
        inputs = [pt.matrix("X", shape=(None, self.X.shape[1]), dtype="float64")]
        inputs += [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in self.whole.arrays]
        return inputs, self.rows_of(inputs, self.random)

    def rows_of(self, inputs: Sequence[Any], random: Mapping[str, Any]) -> RowsOfData:
        """Graphs of the rows, from what `arrays` are and from the random parameters."""
        X, lower, upper, value, S, log_constant, *others = inputs
        counts = others.pop(0) if self.repeats else None
        known = self.likelihood
        n_slopes = 2 * len(self._affine) - (_CORRELATION in self._affine)
        A = others[0] if len(others) > n_slopes else None
        slopes = iter(others[len(others) - n_slopes :])
        possible: list[Any] = []
        for name in self._affine:
            by = pt.atleast_1d(pt.cast(random[name], "float64"))
            if name == _CORRELATION:
                S = S + next(slopes) * by[0]
                possible.append(pt.lt(pt.abs(by[0]), 1.0))
            else:
                lower, upper = lower + next(slopes) @ by, upper + next(slopes) @ by
        if "sigma" in random:
            sigma = pt.cast(random["sigma"], "float64")
            possible.append(pt.all(pt.gt(sigma, 0.0)))
            if known.sigma_of_points_only:
                sigma = pt.switch(pt.isnan(value), np.float64(1.0), sigma)
            S = _times_variance(S, sigma)
        if "threshold" in random:
            possible.append(pt.ge(random["threshold"], 0.0))
        if "lower" in random or "upper" in random:  # a value that is seen is within them
            possible.append(pt.all(~pt.or_(pt.lt(value, lower), pt.gt(value, upper))))
        if possible:
            log_constant = pt.switch(pt.all(pt.stack(possible)), log_constant, -np.float64(np.inf))
        values = ValuesAt(X, self.n_functions, known.derivative, known.relative_noise)
        rows = lower, upper, value, log_constant, known.relative_noise
        return RowsOfData(values, A, S, *rows, counts)

    @property
    def _affine(self) -> list[str]:
        return [name for name in self.random if name != "sigma"]

    def _slopes(self, found: Observations, y: Data, chosen: NDArray[Any], name: str) -> Arrays:
        """Derivatives of the limits, or of S, in a parameter: differences, as they are affine."""
        here = getattr(self.likelihood, name)
        if name == _CORRELATION:
            known = self.likelihood.with_parameters({name: _CORRELATED})
            other = self._observations(known, y, chosen)
            return ((other.S - found.S) / (_CORRELATED - here),)
        size = np.size(here)
        slopes = np.zeros((2, found.n_rows, size))
        # Away from the other limit, and from the data.
        step = -1.0 if name == "lower" else 1.0
        for j in range(size):
            moved = np.ravel(here) + step * (np.arange(size) == j)
            known = self.likelihood.with_parameters({name: moved.reshape(np.shape(here))})
            other = self._observations(known, y, chosen)
            for k, (old, new) in enumerate(
                ((found.lower, other.lower), (found.upper, other.upper))
            ):
                finite = np.isfinite(old)
                slopes[k, finite, j] = (new[finite] - old[finite]) / step
        return tuple(slopes)


def known_data(
    X: FloatArray, y: Any, likelihood: Any, weights: ArrayLike | None = None
) -> KnownData:
    """Check data under a likelihood, some of whose parameters may be random variables.

    Raises
    ------
    TypeError, ValueError
        What is no likelihood, data that do not fit, random parameters that cannot be learnt.
    """
    likelihood = as_likelihood(likelihood)
    as_derivative(likelihood.derivative, X.shape[1])
    random = likelihood.graphs
    known = _with_numbers(likelihood, random, y)
    data = known.as_data(y, X.shape[0])
    if known.has_data:
        _refuse_unknown_censoring(likelihood, random, data)
    if isinstance(known, MultinomialProbit):  # a part of the data may lack a class
        known = replace(known, n_classes=known.n_functions(data))
    if weights is None:
        return KnownData(X, data, known, random)
    if not known.has_data:
        raise ValueError(f"weights are of data, and {known!r} has none: leave them out.")
    return KnownData(X, data, known, random, as_weights("weights", weights, len(data)))


def _refuse_unknown_censoring(likelihood: Any, random: Mapping[str, Any], y: Data) -> None:
    for name, censored in (("lower", np.isneginf), ("upper", np.isposinf)):
        if name in random and not censored(y).any():
            sign = "-" if name == "lower" else ""
            raise ValueError(
                f"{name} of {type(likelihood).__name__} is a random variable, so that no y can "
                f"equal it: mark values that are censored there by {sign}np.inf in y. There are "
                "none."
            )


def _with_numbers(likelihood: Likelihood, random: dict[str, Any], y: Any) -> Likelihood:
    """`likelihood` with numbers that would do in place of random ones."""
    numbers: dict[str, Any] = {}
    for name, variable in random.items():
        if name not in _LEARNT:
            raise ValueError(
                f"{name} of {type(likelihood).__name__} is a random variable, which is not learnt "
                "from data here: give a number."
            )
        if name in ("lower", "upper"):
            numbers[name] = stand_in(name, variable, _beyond(likelihood, random, y, name))
        else:
            if name == "cutpoints":
                known_length(name, variable)  # refuses what is no vector
            known = {"sigma": 1.0, _CORRELATION: 0.0}
            numbers[name] = known[name] if name in known else stand_in(name, variable)
    return likelihood.with_parameters(numbers)


def stand_in(name: str, variable: Any, value: float = 1.0) -> Any:
    """Numbers that would do in place of a random parameter."""
    if not variable.type.ndim:
        return value
    steps = np.arange(known_length(name, variable))
    return 2.0 * steps if name == "cutpoints" else value + 0.0 * steps


def known_length(name: str, variable: Any) -> float:
    """Of a vector that is a parameter of a likelihood."""
    count = variable.type.shape[0] if variable.type.ndim == 1 else None
    if count is None:
        raise ValueError(
            f"{name} must be a vector whose length is known, as in pm.Normal(..., shape=2); got a "
            f"variable of shape {variable.type.shape}."
        )
    return float(count)


def _beyond(likelihood: Any, random: dict[str, Any], y: Any, name: str) -> float:
    """A lower limit below all data and numbers, or an upper one above them."""
    other = {"lower": "upper", "upper": "lower"}[name]
    numbers = [np.zeros(1)]
    if other not in random and getattr(likelihood, other) is not None:
        numbers.append(np.ravel(getattr(likelihood, other)))
    if y is not None:
        numbers.append(np.ravel(np.asarray(y, dtype=np.float64)))
    known = np.concatenate(numbers)
    largest = float(np.abs(known[np.isfinite(known)]).max()) + 2.0
    return -largest if name == "lower" else largest


def _dense(matrix: Any) -> FloatArray:
    found: FloatArray = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    return found


def _dense_design(design: Any, n_values: int) -> FloatArray:
    dense = _dense(design)
    missing = n_values - dense.shape[1]
    return np.pad(dense, ((0, 0), (0, missing))) if missing else dense


def _times_variance(noise: Any, sigma: Any) -> Any:
    """Noise of rows made with sigma = 1, with another one; also that of groups of rows."""
    if noise.type.ndim == 1 or sigma.type.ndim == 0:
        return noise * pt.sqr(sigma)
    return noise * sigma[..., :, None] * sigma[..., None, :]


# Rows of several sets of data on the same functions, joined into one.


class NoisyRows(NamedTuple):
    """Rows eta + e, eta being a unified skew-normal vector and e ~ N(0, S).

    Attributes
    ----------
    S : (m,) or (m, m)
    lower, upper, value : (m,)
        As in `Observations`.
    log_constant : ()
    constrained : bool
        Whether some have noise that is only a nugget.
    counts : (m,), or None
        How many rows each interval stands for; None for one each.
    """

    S: Any
    lower: Any
    upper: Any
    value: Any
    log_constant: Any
    constrained: bool = False
    counts: Any = None


def joined_rows(parts: Sequence[NoisyRows]) -> NoisyRows:
    """Rows of several parts, one part after the other."""
    if all(x.S.type.ndim == 1 for x in parts):
        S = pt.concatenate([x.S for x in parts])
    else:
        S = block_diagonal([x.S if x.S.type.ndim == 2 else pt.diag(x.S) for x in parts])
    lower, upper, value = (
        pt.concatenate([getattr(x, name) for x in parts]) for name in ("lower", "upper", "value")
    )
    counts = None
    if any(x.counts is not None for x in parts):
        one = [
            pt.ones_like(x.lower, dtype="float64") if x.counts is None else x.counts for x in parts
        ]
        counts = pt.concatenate([pt.cast(x, "float64") for x in one])
    log_constant = sum(x.log_constant for x in parts)
    constrained = any(x.constrained for x in parts)
    return NoisyRows(S, lower, upper, value, log_constant, constrained, counts)


def row_terms(parts: Sequence[NoisyRows]) -> tuple[Any, ...]:
    """Limits, values, noise, counts and the constant of parts whose noise is each row's own."""
    none, zero = pt.zeros(0, dtype="float64"), pt.constant(0.0, dtype="float64")
    S, lower, upper, value, log_constant, _, counts = joined_rows(
        parts or [NoisyRows(none, none, none, none, zero)]
    )
    counts = pt.as_tensor_variable(np.float64(1.0) if counts is None else counts)
    return lower, upper, value, S, counts, log_constant


def rows_of_parts(
    sun: SunParameters, parts: Sequence[RowsOfData]
) -> tuple[SunParameters, NoisyRows]:
    """The predictors eta of the rows of all parts, and these rows.

    Parameters
    ----------
    sun : SunParameters
        Of the values of f that the parts are about, one after the other.
    parts : sequence of RowsOfData
    """
    rows, start = [], 0
    for x in parts:
        end = start + x.values.n_functions * x.values.n_rows
        S = x.S * pt.diagonal(sun.scale)[start:end] if x.relative else x.S
        rows.append(NoisyRows(S, x.lower, x.upper, x.value, x.log_constant, x.relative, x.counts))
        start = end
    if any(part.A is not None for part in parts):
        designs = [pt.eye(x.value.shape[0]) if x.A is None else x.A for x in parts]
        sun = predictor(sun, block_diagonal(designs))
    return sun, joined_rows(rows)


def predictor(sun: SunParameters, A: Any, a: Any = 0.0) -> SunParameters:
    """A f + a."""
    return sun._replace(mu=a + A @ sun.mu, scale=A @ sun.scale @ A.T, cross_cov=A @ sun.cross_cov)


def block_diagonal(parts: list[Any]) -> Any:
    """One matrix."""
    return parts[0] if len(parts) == 1 else pt.linalg.block_diag(*parts)
