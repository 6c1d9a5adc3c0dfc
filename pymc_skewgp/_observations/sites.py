"""Observations that are no rows: sites p(y_i | eta_i), functions of one predictor each."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.observations import Design, Observations, design_of, intervals
from pymc_skewgp._validation import FloatArray


class LogProb(Protocol):
    """Log p(y_i | eta_i) of m sites, as a function of their predictors."""

    def __call__(self, eta: FloatArray) -> FloatArray:
        """Of predictors, shape (..., m): as many values; -inf where y_i is impossible."""
        ...


class Slopes(Protocol):
    """First and second derivatives of log p(y_i | eta_i) in eta_i."""

    def __call__(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of predictors, shape (..., m): both of that shape."""
        ...


class FactorFunctions(NamedTuple):
    """Log p(y_i | f_i), every constant included, and its two derivatives, for given y."""

    log_prob: LogProb
    slopes: Slopes


@dataclass(frozen=True)
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
    """

    A: Design
    a: FloatArray
    log_prob: LogProb
    slopes: Slopes

    @property
    def size(self) -> int:
        """Number m of sites."""
        return self.a.size

    def of(self, matrix: FloatArray) -> FloatArray:
        """A times an array with a row for each value of f."""
        return design_of(self.A, self.size, matrix)


class SiteLikelihood(Likelihood):
    """A likelihood of one predictor an observation that has no rows, such as that of counts.

    To add one: a class in a file of its own beside this one, its name in
    `pymc_skewgp.likelihoods`, and a test against quadrature.

    Attributes
    ----------
    has_kinks : bool
        Whether the first derivative jumps anywhere, default False.
    divisible : bool
        Whether `of_observations` knows the likelihood of some of the rows, default True.
    """

    has_kinks: ClassVar[bool] = False
    divisible: ClassVar[bool] = True

    @abstractmethod
    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i), every constant included, f of shape (..., n)."""

    @abstractmethod
    def slopes(self, y: Data, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of log p(y_i | f_i) in f_i."""

    def observations(self, y: Data, n: int) -> Observations:
        """No rows."""
        nothing = np.zeros(0)
        return intervals(nothing, nothing, nothing)

    def functions(self, y: Data) -> FactorFunctions:
        """Functions of f, shape (..., n), for checked data."""
        return FactorFunctions(
            lambda eta: self.log_likelihood(y, eta), lambda eta: self.slopes(y, eta)
        )

    def sites(self, y: Data, n: int) -> Sites:
        """One site an observation."""
        functions = self.functions(y)
        made = (_OfData(self, y, name, functions) for name in FactorFunctions._fields)
        return Sites(None, np.zeros(n), *made)


class _OfData:
    """One of the functions that a likelihood makes of data; pickled as these two."""

    def __init__(
        self, likelihood: SiteLikelihood, y: Data, name: str, functions: FactorFunctions
    ) -> None:
        self._from = likelihood, y, name
        self._function = getattr(functions, name)

    def __call__(self, eta: FloatArray) -> Any:
        return self._function(eta)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_data, self._from


def _of_data(likelihood: SiteLikelihood, y: Data, name: str) -> _OfData:
    return _OfData(likelihood, y, name, likelihood.functions(y))


class SitesOfParts:
    """Sites of several parts, each of values of f of its own; the values are stacked likewise.

    Parameters
    ----------
    parts : sequence of Sites or None
        None for a part that has no sites.
    sizes : sequence of int
        Numbers of values of f in each part.

    Attributes
    ----------
    size : int
        Of all sites.
    """

    def __init__(self, parts: Sequence[Sites | None], sizes: Sequence[int]) -> None:
        ends = np.cumsum(sizes)
        self._parts = [
            (part, slice(end - size, end))
            for part, size, end in zip(parts, sizes, ends, strict=True)
            if part is not None
        ]
        last = np.cumsum([part.size for part, _ in self._parts])
        self._own = [
            slice(end - part.size, end) for (part, _), end in zip(self._parts, last, strict=True)
        ]
        self.size = int(last[-1])

    def of(self, matrix: FloatArray) -> FloatArray:
        """A times an array with a row for each value of f."""
        return np.concatenate([part.of(matrix[values]) for part, values in self._parts])

    @property
    def a(self) -> FloatArray:
        """Offsets of the predictors, shape (size,)."""
        return np.concatenate([part.a for part, _ in self._parts])

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """Log p(y_i | eta_i) of all sites, eta of shape (..., size)."""
        if len(self._parts) == 1:
            return self._parts[0][0].log_prob(eta)
        parts = zip(self._parts, self._own, strict=True)
        return np.concatenate([part.log_prob(eta[..., own]) for (part, _), own in parts], axis=-1)

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivatives, likewise."""
        if len(self._parts) == 1:
            return self._parts[0][0].slopes(eta)
        parts = zip(self._parts, self._own, strict=True)
        found = [part.slopes(eta[..., own]) for (part, _), own in parts]
        first, second = (np.concatenate(x, axis=-1) for x in zip(*found, strict=True))
        return first, second
