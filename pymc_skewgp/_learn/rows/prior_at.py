"""A process of finite rank at a point of its hyperparameters: what the blocks of data ask of it."""

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from pymc_skewgp._learn.point import Point
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._validation import FloatArray

ValuesOf = Derivative | Literal["pseudo-points"] | None


class PriorRows(NamedTuple):
    """Of f = mean + phi c + e at n inputs; or derivatives in these numbers.

    Attributes
    ----------
    phi : ndarray, shape (n, r)
    mean : ndarray, shape (n,)
    rest : ndarray, shape (n,)
        Variance of e.
    """

    phi: FloatArray
    mean: FloatArray
    rest: FloatArray

    @property
    def finite(self) -> bool:
        """Whether all of them are."""
        return all(bool(np.isfinite(x).all()) for x in self)


class RowsGradient(NamedTuple):
    """Part of a gradient, from some rows.

    Attributes
    ----------
    slopes : tuple of ndarray
        In the continuous variables.
    common : ndarray
        In what all rows have in common, r x r numbers at most; see `PriorAt.pull_back_common`.
    """

    slopes: tuple[FloatArray, ...]
    common: FloatArray


class PriorAt(Protocol):
    """The process at a point, and the derivatives carried back to it."""

    def rows(self, X: FloatArray, of: ValuesOf = None) -> PriorRows:
        """At a block of inputs.

        Of f; or of a derivative of phi' c, of which nothing is left; or of f less its mean at the
        pseudo-points, whatever inputs are given.
        """
        ...

    def pull_back(
        self,
        X: FloatArray,
        known: PriorRows,
        wrt: PriorRows,
        of: ValuesOf = None,
    ) -> RowsGradient:
        """Part of the gradient from these rows; `wrt` is overwritten."""
        ...

    def pull_back_common(self, common: FloatArray) -> list[FloatArray]:
        """The rest of the gradient, from the sum of `RowsGradient.common` over all rows."""
        ...


class PriorFamily(Protocol):
    """A process of finite rank whose kernel and mean are functions of a point."""

    def at(self, point: Point, basis: Any) -> PriorAt | None:
        """With a basis that stays as it is while points move; None where double precision ends."""
        ...
