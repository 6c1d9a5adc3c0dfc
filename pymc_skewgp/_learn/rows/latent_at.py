"""What data are of: functions of finite rank, at a point of their hyperparameters."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.functions_at import Functions, FunctionsAt, FunctionsGradient
from pymc_skewgp._learn.rows.prior_at import PriorAt, PriorFamily, RowsGradient
from pymc_skewgp._validation import FloatArray


class LatentGradient(NamedTuple):
    """Part of a gradient, from some blocks of data.

    Attributes
    ----------
    rows : RowsGradient
        Through one function with the kernel as it is.
    functions : FunctionsGradient
        Through how several are made of such ones.
    """

    rows: RowsGradient
    functions: FunctionsGradient


@dataclass(frozen=True, eq=False)
class Latent:
    """Functions of finite rank as functions of a point.

    Attributes
    ----------
    process : PriorFamily
    functions : Functions
    basis : object
        Inducing points, or the box of a spectral basis: the same at every point of the search.
    """

    process: PriorFamily
    functions: Functions
    basis: Any

    def at(self, point: Point) -> "LatentAt | None":
        """At a point; None where double precision ends."""
        prior, functions = self.process.at(point, self.basis), self.functions.at(point)
        if prior is None or functions is None:
            return None
        return LatentAt(self, point, prior, functions)


class LatentAt(NamedTuple):
    """A `Latent` at a point."""

    latent: Latent
    point: Point
    prior: PriorAt
    functions: FunctionsAt

    def pull_back(self, found: LatentGradient) -> tuple[FloatArray, ...]:
        """The whole gradient in the continuous variables from the sum over all blocks."""
        slopes = plus(found.rows.slopes, self.prior.pull_back_common(found.rows.common))
        functions = self.latent.functions
        own = functions.pull_back(self.point, self.functions, found.functions)
        return slopes if own is None else plus(slopes, own)


def added_gradients(parts: Iterable[LatentGradient]) -> LatentGradient:
    """Their sum, of at least one."""
    return reduce(_both, parts)


def _both(one: LatentGradient, other: LatentGradient) -> LatentGradient:
    functions = FunctionsGradient(*plus(one.functions, other.functions))
    return LatentGradient(added_rows([one.rows, other.rows]), functions)


def added_rows(parts: Iterable[RowsGradient]) -> RowsGradient:
    """The same of rows of one function."""
    return reduce(lambda a, b: RowsGradient(plus(a.slopes, b.slopes), a.common + b.common), parts)


def plus(one: Sequence[FloatArray], other: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Sums of arrays."""
    return tuple(x + y for x, y in zip(one, other, strict=True))
