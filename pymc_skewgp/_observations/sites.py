"""Observations that are no rows: factors log p(y_i | eta_i), with derivatives."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
from scipy import sparse

from pymc_skewgp._errors import NotSitesError
from pymc_skewgp._gaussian.blocks.rows import RowSites
from pymc_skewgp._gaussian.coordinates import RowFactors
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations import observations as row
from pymc_skewgp._observations.likelihood import Data, Likelihood, Mixture
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._validation import FloatArray

# Log p(y_i | eta_i) of m sites, of predictors of shape (..., m), -inf where y_i is impossible; and
# its first and second derivatives.
LogProb = Callable[[FloatArray], FloatArray]
Slopes = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


class FactorFunctions(NamedTuple):
    """Log p(y_i | f_i), every constant included, and its two derivatives, for given y."""

    log_prob: LogProb
    slopes: Slopes


@dataclass(frozen=True, eq=False)
class Sites:
    r"""Observations :math:`p(y_i \mid \eta_i)` with :math:`\eta = A f + a`, given f independent.

    Attributes
    ----------
    A : ndarray or sparse array, shape (m, p); ndarray, shape (m,); or None
        Design, as that of `Observations`.
    a : ndarray, shape (m,)
        Offset.
    log_prob : LogProb
        Every constant included.
    slopes : Slopes
        Its derivatives.
    width : int
        Number K of predictors of each observation: see `SitesGiven`.
    gaussian_in : int or None
        Likewise.
    """

    A: row.Design
    a: FloatArray
    log_prob: LogProb
    slopes: Slopes
    width: int = 1
    gaussian_in: int | None = None

    @property
    def size(self) -> int:
        """Number of predictors."""
        return self.a.size

    @property
    def known(self) -> "SitesGiven":
        """The same without design and offset."""
        own = self.size // self.width, self.log_prob, self.slopes
        return SitesGiven(*own, width=self.width, gaussian_in=self.gaussian_in)

    def of(self, matrix: FloatArray) -> FloatArray:
        """A times an array with a row for each value of f."""
        return row.design_of(self.A, self.size, matrix)


class SiteLikelihood(Likelihood):
    """A likelihood without rows, such as that of counts, of K functions at one input each.

    Attributes
    ----------
    divisible : bool
        Whether `of_observations` knows the likelihood of some of the rows, default True.
    """

    divisible: ClassVar[bool] = True

    @abstractmethod
    def slopes(self, y: Data, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of log p(y_i | f_i) in f_i.

        Of K functions the gradient, (..., n, K), and the matrix, (..., n, K, K).
        """

    def gaussian_in(self, y: Data) -> int | None:
        """Of K functions the one that log p(y | f) is quadratic in, given the others."""
        return None

    def observations(self, y: Data, n: int) -> row.Observations:
        """No rows."""
        nothing = np.zeros(0)
        return row.intervals(nothing, nothing, nothing)

    def functions(self, y: Data) -> FactorFunctions:
        """Functions of f, shape (..., n), for checked data."""
        return FactorFunctions(
            lambda eta: self.log_likelihood(y, eta), lambda eta: self.slopes(y, eta)
        )

    def sites_at(
        self, names: Sequence[str], y: Data, parameters: Sequence[FloatArray]
    ) -> "SitesGiven":
        """Sites with these values of parameters that are to be learnt; see `SiteFamily`.

        Derivatives in parameters are differences.
        """
        values = [np.asarray(x, np.float64) for x in parameters]

        def at(numbers: Sequence[FloatArray]) -> Sites:
            by_name = {name: x[()] for name, x in zip(names, numbers, strict=True)}
            known = cast("SiteLikelihood", self.with_parameters(by_name))
            known.as_data(y, y.shape[0])  # which checks the parameters
            return known.sites(y, y.shape[0])

        sites = at(values)
        return replace(
            sites.known,
            in_parameters=lambda eta, weights: parameter_differences(
                lambda moved: at(moved).log_prob(eta), values, weights
            ),
            has_parameters=bool(values),
        )

    def sites(self, y: Data, n: int) -> Sites:
        """One site an observation."""
        functions, k = self.functions(y), self.n_functions(y)
        log_prob, slopes = (_OfData(self, y, name, functions) for name in FactorFunctions._fields)
        place = self.gaussian_in(y) if k > 1 else None
        return Sites(None, np.zeros(n * k), log_prob, slopes, k, place)


class _OfData:
    """One of the functions that a likelihood makes of data; pickled as these two."""

    def __init__(
        self, likelihood: SiteLikelihood, y: Data, name: str, functions: Any = None
    ) -> None:
        self._from = likelihood, y, name
        self._function = getattr(functions or likelihood.functions(y), name)
        self._width = likelihood.n_functions(y)

    def __call__(self, eta: FloatArray) -> Any:
        if self._width == 1:
            return self._function(eta)
        found = self._function(eta.reshape(*eta.shape[:-1], -1, self._width))
        return (found[0].reshape(eta.shape), found[1]) if isinstance(found, tuple) else found

    def __reduce__(self) -> tuple[Any, ...]:
        return _OfData, self._from


class _Parts:
    """Sites of several parts, one part after the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts
        ends = np.cumsum([part.size for part in parts])
        self.size = int(ends[-1])
        self._own = [slice(end - p.size, end) for p, end in zip(parts, ends, strict=True)]

    def with_own(self, eta: FloatArray) -> Iterator[tuple[Any, FloatArray]]:
        """Each part with what is its own of an array of shape (..., size)."""
        for part, own in zip(self.parts, self._own, strict=True):
            yield part, eta if len(self.parts) == 1 else eta[..., own]

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """Log p(y_i | eta_i) of all sites, eta of shape (..., size)."""
        found = [part.log_prob(own) for part, own in self.with_own(eta)]
        return found[0] if len(found) == 1 else np.concatenate(found, axis=-1)

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivatives, likewise."""
        found = [part.slopes(own) for part, own in self.with_own(eta)]
        if len(found) == 1:
            return found[0]
        first, second = (np.concatenate(x, axis=-1) for x in zip(*found, strict=True))
        return first, second


class _Repeated(_Parts):
    """The same sites several times, all in one call."""

    def _flat(self, eta: FloatArray) -> FloatArray:
        return eta.reshape(*eta.shape[:-1], len(self.parts), -1)

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """See `_Parts`."""
        return np.asarray(self.parts[0].log_prob(self._flat(eta))).reshape(eta.shape)

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `_Parts`."""
        first, second = self.parts[0].slopes(self._flat(eta))
        return first.reshape(eta.shape), second.reshape(eta.shape)


def stacked_sites(data: Iterable[tuple[Likelihood, Data, int, int]]) -> Sites | None:
    """Sites of several sets of data, each of values of f of its own, which are stacked likewise.

    Parameters
    ----------
    data : iterable of tuple
        Likelihood, y, number of inputs, number of values of f.

    Returns
    -------
    Sites or None
        None where all data are rows.
    """
    parts, there = [], []
    for likelihood, y, n, size in data:
        there.append(np.full(size, isinstance(likelihood, SiteLikelihood)))
        if isinstance(likelihood, SiteLikelihood):
            parts.append(likelihood.sites(y, n))
    if len(there) == 1 or not parts:
        return parts[0] if parts else None
    if any(part.width > 1 for part in parts):
        raise NotSitesError(
            "a likelihood of several functions does not stand beside other data here.",
            "Write a model: f and g each by gp.prior or pm.gp.Latent, and the data as variables.",
        )
    kept, joined = np.concatenate(there), _Parts(parts)
    A = None if kept.all() else sparse.eye_array(kept.size, format="csr")[kept]
    return Sites(A, np.concatenate([x.a for x in parts]), joined.log_prob, joined.slopes)


# Sites as functions of their predictors, and of parameters that are to be learnt.

_STEP = 1e-5  # of differences in a parameter, as a share of it
_LEAST_SHARE = 1e-3  # of the largest entry of a parameter, below which a step is no share of one


def _no_parameters(eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
    return []


def _nothing_alone(rows: IntArray) -> None:
    return None


@dataclass(frozen=True, eq=False)
class SitesGiven:
    """Log p(y_i | eta_i) of m sites, with numbers for all of their parameters.

    Attributes
    ----------
    size : int
        Number m.
    log_prob : callable
        Of predictors, shape (..., m): as many values; -inf where y_i is impossible.
    slopes : callable
        First and second derivative in eta_i, likewise.
    in_parameters : callable
        Derivatives of the sum of weights times `log_prob`, shape (k, m), in each parameter.
    has_parameters : bool
        Whether any are to be learnt.
    log_concave : bool
        Whether all are known to be, wherever the predictors are.
    width : int
        Number K of predictors of each, those of one after those of another: arrays of predictors
        have the shape (..., m K), and second derivatives (..., m, K, K).
    gaussian_in : int or None
        Which of them log p is quadratic in, given the others.
    first : callable, optional
        The first derivatives alone, where these take less time.
    some : callable, optional
        `log_prob` of some sites alone, by their numbers; None where only all are known.
    several : tuple of SitesGiven
        More, of several predictors each, which come after these.
    """

    size: int
    log_prob: LogProb
    slopes: Slopes
    in_parameters: Callable[[FloatArray, FloatArray], list[FloatArray]] = _no_parameters
    has_parameters: bool = False
    log_concave: bool = False
    width: int = 1
    gaussian_in: int | None = None
    first: LogProb | None = None
    some: Callable[[IntArray], LogProb | None] = _nothing_alone
    several: "tuple[SitesGiven, ...]" = ()

    def gradient(self, eta: FloatArray) -> FloatArray:
        """First derivatives."""
        return self.slopes(eta)[0] if self.first is None else self.first(eta)


_NOTHING = SitesGiven(0, lambda eta: eta, lambda eta: (eta, eta), log_concave=True)


# Sites for any data and any values of their parameters; ValueError for values that are impossible.
type SiteFamily = Callable[[Data, Sequence[FloatArray]], SitesGiven]


def joined_sites(parts: Sequence[SitesGiven]) -> SitesGiven:
    """Sites of several kinds, one kind after the other; of one kind these themselves."""
    several = tuple(part for part in parts if part.width > 1)
    if several:
        single = [part for part in parts if part.width == 1]
        return replace(joined_sites(single) if single else _NOTHING, several=several)
    if len(parts) == 1:
        return parts[0]
    joined = _Repeated(parts) if all(x is parts[0] for x in parts) else _Parts(parts)

    def in_parameters(eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        pairs = zip(joined.with_own(eta), joined.with_own(weights), strict=True)
        return [x for (p, own), (_, share) in pairs for x in p.in_parameters(own, share)]

    return SitesGiven(
        joined.size,
        joined.log_prob,
        joined.slopes,
        in_parameters,
        has_parameters=any(part.has_parameters for part in parts),
        log_concave=all(part.log_concave for part in parts),
    )


def parameter_differences(
    log_prob: Callable[[Sequence[FloatArray]], FloatArray],
    parameters: Sequence[FloatArray],
    weights: FloatArray,
) -> list[FloatArray]:
    """Derivatives of the sum of weights times a function of parameters, in each of these."""
    found = []
    for i, value in enumerate(parameters):
        slopes = np.zeros(value.shape)
        least = _LEAST_SHARE * float(np.abs(value).max(initial=0.0))
        for index in np.ndindex(value.shape):
            step = _STEP * (max(abs(float(value[index])), least) or 1.0)
            moved = []
            for sign in (1.0, -1.0):
                other = value.copy()
                other[index] += sign * step
                moved.append(log_prob([*parameters[:i], other, *parameters[i + 1 :]]))
            # Predictors without weight may be where nothing is possible.
            with np.errstate(invalid="ignore"):
                slope = np.where(weights != 0.0, (moved[0] - moved[1]) / (2.0 * step), 0.0)
            slopes[index] = (weights * slope).sum()
        found.append(slopes)
    return found


# Sites whose log probability is a closed form: written once, with what y alone decides kept.


class ClosedFormSites(SiteLikelihood):
    """Factors log p(y | f) by `functions`, which are called many times for the same data.

    Examples
    --------
    Waiting times with mean exp(f):

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from pymc_skewgp._observations.forecasts import averaged_forecasts
    >>> from pymc_skewgp._observations.likelihood import as_values, refuse_rows
    >>> from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions
    >>> @dataclass(frozen=True, eq=False)
    ... class Exponential(ClosedFormSites):  # parameters would be fields
    ...     def as_data(self, y, n):  # checks data and parameters, and says what is wrong
    ...         values = as_values(y, n)
    ...         refuse_rows("y", values, ~(values > 0), "be positive")
    ...         return values
    ...
    ...     def functions(self, y):  # log p(y | f), and its first and second derivatives in f
    ...         log_p = lambda f: -f - y * np.exp(-f)
    ...         return FactorFunctions(log_p, lambda f: (y * np.exp(-f) - 1, -y * np.exp(-f)))
    ...
    ...     def draw(self, f, rng):  # replicated data, and new ones; None if it is left out
    ...         return rng.exponential(np.exp(f))
    ...
    ...     def predictive_summary(self, mixture):  # from mean and deviation given f
    ...         return averaged_forecasts(mixture, lambda f: (np.exp(f), np.exp(f)))
    ...
    ...     new_values = "positive"
    ...
    ...     def cdf(self, log_y, f):  # P(a new y is at most this | f), for its quantiles
    ...         return -np.expm1(-np.exp(log_y - f))
    ...
    ...     def in_pymc(self, f, exp):  # for `compare_approximations`
    ...         return "Exponential", {"lam": exp(-f)}
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior([0.0, 1.0], [0.5, 2.0], likelihood=Exponential())
    >>> summary = posterior.predict([0.5])["predictions_summary"]
    >>> bool(summary["y_mean"].item() > summary["y_quantile"].values[1, 0])
    True
    """

    # What new values are, where they have quantiles: real numbers, positive or whole ones.
    new_values: ClassVar[Literal["real", "positive", "whole"] | None] = None

    @abstractmethod
    def functions(self, y: Data) -> FactorFunctions:
        """Functions of f, shape (..., n), for checked data."""

    def cdf(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """P(a new value is at most y | f); of positive values y are logarithms."""
        raise NotImplementedError

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` of a new value, with its error."""
        if self.new_values is None or not self.predicts:
            return {}
        new = NewValues(mixture, self.cdf)
        if self.new_values == "whole":
            return new.whole_quantiles(probs).named()
        return new.real_quantiles(probs).named(None if self.new_values == "real" else np.exp)

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i)."""
        return self.functions(y).log_prob(f)

    def slopes(self, y: Data, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of log p(y_i | f_i) in f_i."""
        return self.functions(y).slopes(f)


# Intervals that repeat as factors of their predictors: see `row_factors`.


def factors_of(
    rows: row.Observations, counts: FloatArray, unit: IntArray, first: IntArray
) -> Sites:
    """Intervals of equal predictors as one factor of each, that of the `first` row of the unit."""
    table = np.column_stack([unit, rows.lower, rows.upper, rows.S])
    kinds, index = np.unique(table, axis=0, return_inverse=True)
    low, high, variance = np.ascontiguousarray(kinds[:, 1:].T)
    known = RowSites(low, high, np.full(low.size, np.nan), variance)
    number = np.bincount(index.ravel(), counts)
    of_kind = kinds[:, 0].astype(np.intp)
    found = RowFactors(of_kind, known, number, first.size)
    A = row.as_matrix(rows.A, rows.n_rows)[first]
    return Sites(A, rows.a[first], found.log_prob, found.slopes)
