"""Graphs at values of their inputs, where these are many at many in one call."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from pymc.logprob.utils import ParameterValueError

from pymc_skewgp._model.ops.plain_mode import many_at_once, plain_function, simplified
from pymc_skewgp._validation import FloatArray

# Numbers that a call for many points gives, which then are a small part of its time; fewer points
# go one by one, as another function takes some tenths of a second to make.
_NUMBERS_AT_ONCE, _POINTS_AT_ONCE, FEWEST = 2**18, 64, 32


class GraphsAtPoints:
    """Graphs at values of their inputs, where they are small at many in one call."""

    def __init__(self, inputs: Sequence[Any], graphs: Sequence[Any]) -> None:
        self.graphs, self._inputs = simplified(inputs, graphs), inputs
        self._function = plain_function(inputs, self.graphs)
        self._size = 0  # of the numbers at the last point
        self._is_single = False

    def __call__(self, *values: Any) -> list[FloatArray]:
        """At one point."""
        found = [np.asarray(x, np.float64) for x in self._function(*values)]
        self._size = sum(x.size for x in found)
        return found

    def each(self, values: Sequence[Sequence[Any]]) -> Iterator[list[FloatArray] | None]:
        """At one after the other; None beyond a parameter's range, or double precision."""
        start, few = 0, len(values) < FEWEST and "_together" not in vars(self)
        while start < len(values):
            most = _NUMBERS_AT_ONCE // max(self._size, 1) if self._size else 1
            size = 1 if few or self._is_single else max(1, min(most, _POINTS_AT_ONCE))
            yield from self._some(values[start : start + size])
            start += size

    def _some(self, values: Sequence[Sequence[Any]]) -> list[list[FloatArray] | None]:
        try:
            if len(values) == 1:
                return [self(*values[0])]
            function, fixed = self._together
            found = function(*(np.stack(x) for x in zip(*values, strict=True)))
        except (ParameterValueError, np.linalg.LinAlgError):
            if len(values) == 1:
                return [None]
            half = len(values) // 2
            return [*self._some(values[:half]), *self._some(values[half:])]
        except (NotImplementedError, TypeError, ValueError):  # sparse arrays, ranks that differ
            if len(values) == 1:
                raise
            self._is_single = True
            return [own for one in values for own in self._some([one])]
        each = zip(found, fixed, strict=True)
        arrays = [np.broadcast_to(x, (len(values), *np.shape(x))) if f else x for x, f in each]
        return [list(own) for own in zip(*(np.asarray(x, float) for x in arrays), strict=True)]

    @cached_property
    def _together(self) -> tuple[Any, list[bool]]:
        return many_at_once(self._inputs, self.graphs)
