"""Data under any likelihood as rows or factors, for graphs.

The rows are computed in NumPy and go into graphs as arrays; what is a random variable of the
likelihood enters the graph: its noise, what limits or correlations of the noise depend on. Factors
are compiled log probabilities, closed forms recognised.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.gp.distribution_graph import distribution_graph
from pymc_skewgp._model.gp.process import ValuesAt
from pymc_skewgp._model.gp.site_functions import DistributionSites, SiteFunctions
from pymc_skewgp._model.graph.initial_point import initial_point
from pymc_skewgp._model.ops.plain_mode import softplus
from pymc_skewgp._observations import sites as factors
from pymc_skewgp._observations.binary import BinomialProbit, logistic_with_slope
from pymc_skewgp._observations.classes import MultinomialProbit, Softmax
from pymc_skewgp._observations.likelihood import Data, Likelihood, as_derivative
from pymc_skewgp._observations.observations import Observations, as_matrix, equal_rows
from pymc_skewgp._observations.weighted import Weighted, weighted_observations
from pymc_skewgp._posterior.data_blocks import Arrays, RowTable
from pymc_skewgp._posterior.prior import DataSet, as_likelihood
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Parameters that limits, or correlations of the noise, are an affine function of.
_LIMITS = ("cutpoints", "lower", "upper", "threshold")
_CORRELATION = "rho"
_LEARNT = ("sigma", _CORRELATION, *_LIMITS)
# Numbers that stand for random ones: a step away from them must be allowed too.
_CORRELATED = 0.5


_NO_CONSTANT = pt.constant(0.0, dtype="float64")


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
    log_constant: Any = _NO_CONSTANT
    constrained: bool = False
    counts: Any = None


def at_zero(like: Any) -> NoisyRows:
    """Predictors of sites as rows: intervals of width 0 at 0, without noise, as many as `like`."""
    zero = pt.zeros_like(like, dtype="float64")
    return NoisyRows(zero, zero, zero, nowhere(zero))


def nowhere(like: Any) -> Any:
    """The value of rows that are intervals."""
    return pt.full_like(like, pt.constant(float("nan"), dtype="float64"), dtype="float64")


class RowsOfData(NamedTuple):
    """Rows v = A f + e as graphs, f being values of K functions at the rows of X.

    Attributes
    ----------
    values : ValuesAt
        X and K.
    A : TensorVariable, shape (m, n K), or None
        None for the identity.
    noisy : NoisyRows
        With e; the constant is minus infinity where parameters or data are impossible, and S of
        `constrained` rows in units of the prior variances of the values.
    sites : SitesOfData, or None
        Where the rows are predictors of sites; see `at_zero`.
    """

    values: ValuesAt
    A: Any
    noisy: NoisyRows
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
        weights = self.weights
        if weights is not None and chosen.size < self.X.shape[0]:  # parts have data a row
            weights = weights[chosen]
        return weighted_observations(likelihood, y, chosen.size, weights)

    @cached_property
    def whole(self) -> RowTable:
        """Rows of all the data."""
        return self._table(np.arange(self.X.shape[0]))

    def part(self, chosen: NDArray[Any]) -> Arrays:
        """The same for some of the data."""
        table = self.whole if chosen.size == self.X.shape[0] else self._table(chosen)
        if table.design is not None:
            design = _dense(table.design)
            missing = chosen.size * self.n_functions - design.shape[1]
            table = table._replace(design=np.pad(design, ((0, 0), (0, missing))))
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
            shared = S.type.ndim > 1 and sigma.type.ndim  # by rows, or groups of rows, of noise
            S = S * (sigma[..., :, None] * sigma[..., None, :] if shared else pt.sqr(sigma))
        if "threshold" in random:
            possible.append(pt.ge(random["threshold"], 0.0))
        if "lower" in random or "upper" in random:  # a value that is seen is within them
            possible.append(pt.all(~pt.or_(pt.lt(value, lower), pt.gt(value, upper))))
        if possible:
            log_constant = pt.switch(pt.all(pt.stack(possible)), log_constant, -np.float64(np.inf))
        values = ValuesAt(X, self.n_functions, known.derivative, known.relative_noise)
        rows = NoisyRows(S, lower, upper, value, log_constant, known.relative_noise, counts)
        return RowsOfData(values, A, rows)

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


def _with_numbers(likelihood: Likelihood, y: Any) -> Any:
    """`likelihood` with numbers that would do in place of random ones."""
    numbers, random = dict[str, Any](), likelihood.graphs
    of_sites = isinstance(likelihood, factors.SiteLikelihood)
    for name, variable in random.items():
        real = name != "weights" and variable.dtype.startswith("float")
        if not (real if of_sites else name in _LEARNT):
            raise ValueError(
                f"{name} of {type(likelihood).__name__} is a random variable, which is not learnt "
                "from data here: give numbers."
            )
        if of_sites:
            numbers[name] = stand_in(name, variable)
        elif name in ("lower", "upper"):
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


# Rows of several sets of data on the same functions, joined into one.


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
        own = (pt.ones_like(x.lower) if x.counts is None else x.counts for x in parts)
        counts = pt.concatenate([pt.cast(x, "float64") for x in own])
    log_constant = sum(x.log_constant for x in parts)
    constrained = any(x.constrained for x in parts)
    return NoisyRows(S, lower, upper, value, log_constant, constrained, counts)


def row_terms(parts: Sequence[NoisyRows]) -> tuple[Any, ...]:
    """Limits, values, noise, counts and the constant of parts whose noise is each row's own."""
    none = pt.zeros(0, dtype="float64")
    S, lower, upper, value, log_constant, _, counts = joined_rows(
        parts or [NoisyRows(none, none, none, none)]
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
        end, own = start + x.values.n_functions * x.values.n_rows, x.noisy
        if own.constrained:
            own = own._replace(S=own.S * pt.diagonal(sun.scale)[start:end])
        rows.append(own)
        start = end
    if any(part.A is not None for part in parts):
        designs = [pt.eye(x.noisy.value.shape[0]) if x.A is None else x.A for x in parts]
        sun = predictor(sun, block_diagonal(designs))
    return sun, joined_rows(rows)


def predictor(sun: SunParameters, A: Any, a: Any = 0.0) -> SunParameters:
    """A f + a."""
    return sun._replace(mu=a + A @ sun.mu, scale=A @ sun.scale @ A.T, cross_cov=A @ sun.cross_cov)


def block_diagonal(parts: list[Any]) -> Any:
    """One matrix."""
    return parts[0] if len(parts) == 1 else pt.linalg.block_diag(*parts)


_ROWS_TRIED = 100


class SitesOfData(NamedTuple):
    """Sites of one kind of data, in graphs.

    Attributes
    ----------
    family : SiteFamily
    y : TensorVariable
        The data.
    parameters : tuple of TensorVariable
        What `family` is to be taken at.
    """

    family: factors.SiteFamily
    y: Any
    parameters: tuple[Any, ...]

    @property
    def graphs(self) -> list[Any]:
        """Data, then parameters."""
        return [self.y, *self.parameters]


def sites_at(parts: Sequence[SitesOfData], values: Sequence[Any]) -> factors.SitesGiven | None:
    """Sites of all parts at values of their `graphs`; None of none."""
    if not parts:
        return None
    rest = iter(values)
    given = [(part, [next(rest) for _ in part.graphs]) for part in parts]
    return factors.joined_sites([part.family(own[0], own[1:]) for part, own in given])


@dataclass(frozen=True, eq=False)
class KnownSites(Known):
    """Data under a likelihood of sites."""

    @property
    def arrays(self) -> Arrays:
        """What `inputs` of the rows are, for all the data."""
        return self.X, self.y

    @property
    def strata(self) -> NDArray[Any] | None:
        """See `KnownData`: neighbours in y, or in its first column, are dealt out in turn."""
        first = self.y if self.y.ndim == 1 else self.y[:, 0]
        return first * 1.0 if self.likelihood.single else None

    def part(self, chosen: NDArray[Any]) -> Arrays:
        """The same for some of the data."""
        return self.X[chosen], self.y[chosen]

    @cached_property
    def divisible(self) -> bool:
        """Whether any of the data, by themselves, have sites of `family_of`."""
        if self.by_row:
            return False
        if not isinstance(self.likelihood, DistributionSites):
            return bool(self.likelihood.divisible)
        n = self.y.size
        every_other = np.arange(1, n, 2)[:_ROWS_TRIED]
        return n > 1 and self.likelihood.is_same_of(every_other, self.y)

    def family_of(self, index: IntArray | None = None) -> factors.SiteFamily:
        """Sites of the data, or of some of them, with random parameters at any values."""
        known = self.likelihood
        own = known if index is None else known.of_observations(index, self.y)
        return partial(own.sites_at, tuple(self.random))

    def rows(self) -> tuple[list[Any], RowsOfData]:
        """Graphs of the rows, and the inputs of these graphs."""
        X = pt.matrix("X", shape=(None, self.X.shape[1]), dtype="float64")
        y = pt.tensor("y", dtype=self.y.dtype, shape=(None,) * self.y.ndim)
        return [X, y], self.rows_of([X, y], self.random)

    def rows_of(self, inputs: Sequence[Any], random: Mapping[str, Any]) -> RowsOfData:
        """Predictors as rows without noise at 0, and the sites on them."""
        X, y = inputs
        values = ValuesAt(X, self.n_functions)
        rows = at_zero(pt.zeros((values.n_functions * values.n_rows,)))
        parameters = tuple(pt.cast(x, "float64") for x in random.values())
        return RowsOfData(values, None, rows, SitesOfData(self.family_of(), y, parameters))


def known_of(
    X: FloatArray, y: Any, likelihood: Any, model: Any = None, weights: ArrayLike | None = None
) -> Any:
    """Check data under any likelihood: `KnownSites` of one of sites, `KnownData` of any other.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    y : array_like
    likelihood : object
        Also a function from predictors to a PyMC distribution.
    model : pymc.Model, optional
        That of the random variables that such a function depends on.
    weights : array_like, shape (n,), optional
        How often each observation was made; of sites, powers.

    Raises
    ------
    TypeError, ValueError
        What is no likelihood, data that do not fit, random parameters that cannot be learnt, and
        weights under a function that gives a distribution.
    """
    if is_distribution(likelihood):
        if weights is not None:
            raise ValueError(
                "weights go with the likelihoods of pymc_skewgp.likelihoods: under a function that "
                "gives a PyMC distribution repeat the rows of X and y instead."
            )
        return _of_distribution(X, y, likelihood, model)
    known = as_likelihood(likelihood)
    of_sites = isinstance(known, factors.SiteLikelihood)
    as_derivative(known.derivative, X.shape[1])
    if of_sites and weights is not None:
        known = Weighted(known, weights)
    random, numbers = known.graphs, _with_numbers(known, y)
    data = numbers.as_data(y, X.shape[0])
    if of_sites:
        return KnownSites(X, data, numbers, random)
    for name, censored in (("lower", np.isneginf), ("upper", np.isposinf)):
        if numbers.has_data and name in random and not censored(data).any():
            sign = "-" if name == "lower" else ""
            raise ValueError(
                f"{name} of {type(known).__name__} is a random variable, so that no y can "
                f"equal it: mark values that are censored there by {sign}np.inf in y. There "
                "are none."
            )
    if isinstance(numbers, MultinomialProbit):  # a part of the data may lack a class
        numbers = replace(numbers, n_classes=numbers.n_functions(data))
    own = DataSet("", X, data, numbers)
    counts = None if weights is None else own.weighted(weights).weights
    return KnownData(X, data, numbers, random, counts)


def is_of_sites(likelihood: Any) -> bool:
    """Whether `known_of` makes `KnownSites` of data under it."""
    return isinstance(likelihood, factors.SiteLikelihood) or is_distribution(likelihood)


def is_distribution(likelihood: Any) -> bool:
    """Whether it is a function that gives a PyMC distribution."""
    return callable(likelihood) and not isinstance(likelihood, type | Likelihood)


def _of_distribution(X: FloatArray, y: Any, distribution: Any, model: Any) -> KnownSites:
    graph = distribution_graph(distribution, X.shape[0])
    random = {rv.name: rv for rv in graph.random}
    here = _initial_values(random, model)
    functions = SiteFunctions(graph, distribution)
    likelihood = DistributionSites(distribution, here, {X.shape[0]: functions})
    data = likelihood.as_data(y, X.shape[0])
    return KnownSites(X, data, likelihood, random)


def _initial_values(random: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Values of random variables where a search begins."""
    if not random:
        return {}
    model = pm.modelcontext(model).root
    unknown = [name for name, rv in random.items() if rv not in model.free_RVs]
    if unknown:
        raise ValueError(
            f"the likelihood depends on {', '.join(unknown)}, which the model of the SkewGP does "
            "not know: make both inside one ``with pm.Model():``."
        )
    point = initial_point(model, transformed=False)
    return {name: point[name] for name in random}


# Sites of a model that are those of labels, trials or counts under their canonical link, or of
# counts with more variance.
#
# .. math:: \log p(y_i \mid \eta_i) = c_i + s_i \eta_i - n_i \kappa(\eta_i - a_i), \qquad
#     \kappa(\eta) = \log(1 + e^\eta) \text{ or } e^\eta
#
# A few passes over the predictors in place of a graph's thirty to a hundred. All a are 0 but of a
# negative binomial distribution, whose n = y + alpha and a = log alpha change with alpha.

# Predictors at which the form is to hold, of a log probability that is analytic: see `analytic`.
_FARTHEST, _TRIED, _SEED = 30.0, 64, 0
_TRIED_AGAIN = 8  # at other parameters
_ROUNDS = 4  # of which each leaves some millionth of what was off
# Round-off of a graph's values, as a share of the terms.
_ROUND_OFF, _WHOLE = 1e-11, 1e-9


def _canonical_sites(
    linear: FloatArray,
    trials: FloatArray,
    constant: FloatArray,
    kappa: Callable[[FloatArray], FloatArray],
    slopes_of_kappa: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    shift: FloatArray | None = None,
) -> factors.SitesGiven:
    """Sites of that form: `linear`, `trials`, `constant` and `shift` are s, n, c and a."""

    def log_prob(eta: FloatArray) -> FloatArray:
        found = kappa(eta if shift is None else eta - shift)
        found *= -trials
        found += linear * eta
        found += constant
        return found

    def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = slopes_of_kappa(eta if shift is None else eta - shift)
        return linear - trials * first, -trials * second

    def some(rows: IntArray) -> factors.LogProb:
        own = linear[rows], trials[rows], constant[rows]
        moved = None if shift is None else shift[rows]
        return _canonical_sites(*own, kappa, slopes_of_kappa, moved).log_prob

    return factors.SitesGiven(linear.size, log_prob, slopes, log_concave=True, some=some)


_KAPPAS: Any = (softplus, logistic_with_slope), (np.exp, lambda eta: (np.exp(eta),) * 2)


class RecognisedFamily:
    """A family of sites that may be canonical for the first data."""

    def __init__(self, family: factors.SiteFamily) -> None:
        self._family = family
        self._known: tuple[Data, factors.SitesGiven | None] | None = None

    def __call__(self, y: Data, parameters: Sequence[FloatArray]) -> factors.SitesGiven:
        """See `SiteFamily`: parameters for which sites are not canonical end the search for it."""
        sites = self._family(y, parameters)
        if self._known is None:
            recognised = canonical if sites.width == 1 else softmax_sites
            self._known = np.array(y), recognised(sites)
        elif parameters and self._known[1] is not None:
            self._known = self._known[0], canonical(sites, tried=_TRIED_AGAIN)
        seen, found = self._known
        if found is None or not np.array_equal(seen, y):
            return sites
        learnt = sites.has_parameters
        return replace(found, in_parameters=sites.in_parameters, has_parameters=learnt)


def canonical(sites: factors.SitesGiven, tried: int = _TRIED) -> factors.SitesGiven | None:
    """Sites in that form, where their values have it."""
    if sites.width > 1:
        return None
    at = np.random.default_rng(_SEED).uniform(-_FARTHEST, _FARTHEST, tried)
    ends = [-_FARTHEST, 1.0 - _FARTHEST, -1.0, 0.0, 1.0, _FARTHEST - 1.0, _FARTHEST]
    eta = np.concatenate([ends, np.sort(at)])[:, None] * np.ones(sites.size)
    values = sites.log_prob(eta)
    below, here, above = values[2:5]
    if not np.isfinite(values[2:5]).all():
        return None

    def form(n: FloatArray, s: FloatArray, c: FloatArray, kind: int, *a: Any) -> Any:
        found = _canonical_sites(s, n, c, *_KAPPAS[kind], *a)
        size = 1.0 + np.abs(c) + np.abs(s * eta) + n * _KAPPAS[kind][0](eta - a[0] if a else eta)
        with np.errstate(invalid="ignore"):
            is_it = (n >= 0.0).all() & (np.abs(found.log_prob(eta) - values) <= _ROUND_OFF * size)
        return found if is_it.all() else None

    for kind, (kappa, _) in enumerate(_KAPPAS if tried == _TRIED else ()):
        k = kappa(np.array([-1.0, 0.0, 1.0]))
        n = _rounded(-(above + below - 2.0 * here) / (k[2] + k[0] - 2.0 * k[1]))
        s = _rounded(0.5 * (above - below + n * (k[2] - k[0])))
        found = form(n, s, here + n * k[1], kind)
        if found is not None:
            return found
    s, n, c, a = _by_ends(eta[[0, 1, 5, 6]], values[[0, 1, 5, 6]])
    return form(n, s, c, 0, a) if (np.abs(a) < _FARTHEST).all() else None


def _by_ends(x: FloatArray, ends: FloatArray) -> tuple[FloatArray, ...]:
    """s, n, c and a of a softplus from values at the ends of the range and one nearer to 0.

    The function is a line there, but for what is left of the softplus: taken off in rounds.
    """
    n = a = np.zeros(ends.shape[1])
    with np.errstate(all="ignore"):
        for _ in range(_ROUNDS):
            lines = ends + n * (softplus(x - a) - np.maximum(x - a, 0.0)) if n.any() else ends
            s = _rounded(lines[1] - lines[0])
            c = lines[0] - s * x[0]
            n = _rounded(s - (lines[3] - lines[2]))
            a = (lines[3] - c - (s - n) * x[3]) / n
    return s, n, c, a


def softmax_sites(sites: factors.SitesGiven) -> factors.SitesGiven | None:
    """Sites of classes, whose predictors are the logits, where their values are those of such."""
    n, k = sites.size, sites.width
    eta = np.random.default_rng(_SEED).uniform(-_FARTHEST, _FARTHEST, (_TRIED, n, k))
    # Where one class is all but certain, log p has no digits left in PyMC's graph.
    eta *= np.geomspace(0.01, 1.0, _TRIED)[:, None, None]
    values = sites.log_prob(eta.reshape(_TRIED, -1))
    each = log_softmax(eta, axis=-1)
    near = np.abs(each - values[..., None]) <= _ROUND_OFF * (1.0 + np.abs(each))
    label = near.all(axis=0)
    if (label.sum(axis=1) != 1).any():
        return None
    functions = Softmax(n_classes=k).functions(label.argmax(axis=1))

    def of_matrix(eta: FloatArray) -> FloatArray:
        return eta.reshape(*eta.shape[:-1], n, k)

    def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = functions.slopes(of_matrix(eta))
        return first.reshape(eta.shape), second

    return factors.SitesGiven(
        n, lambda eta: functions.log_prob(of_matrix(eta)), slopes, log_concave=True, width=k
    )


def _rounded(x: Any) -> FloatArray:
    whole = np.rint(x)
    return np.where(np.abs(x - whole) < _WHOLE * (1.0 + np.abs(x)), whole, x)
