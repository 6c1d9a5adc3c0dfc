"""Which values of latent functions observations are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray


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
    starts = np.cumsum([0, *(part.X.shape[0] for part in parts)])
    return np.concatenate(
        [
            np.repeat(np.arange(start, start + part.X.shape[0]), part.n_functions)
            for start, part in zip(starts, parts, strict=False)
        ]
    )


def function_index(parts: Sequence[Values]) -> IntArray:
    """Which function each value of the parts is of."""
    return np.concatenate([np.tile(np.arange(p.n_functions), p.X.shape[0]) for p in parts])


def derivative_groups(parts: Sequence[Values]) -> dict[Derivative | None, IntArray]:
    """Which of `stacked_inputs` belong to each derivative."""
    starts = np.cumsum([0, *(part.X.shape[0] for part in parts)])
    groups: dict[Derivative | None, list[IntArray]] = {}
    for start, part in zip(starts, parts, strict=False):
        rows = np.arange(start, start + part.X.shape[0])
        groups.setdefault(part.derivative, []).append(rows)
    return {derivative: np.concatenate(rows) for derivative, rows in groups.items()}
