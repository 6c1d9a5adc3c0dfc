"""Kernel, mean and data of a block of rows as functions of a point, with their gradients."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_skewgp._learn.compiled import Batch, gradient_in
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._validation import FloatArray


class Moments(NamedTuple):
    """What the prior and the noise say of a block of n rows; or weights of these numbers.

    Attributes
    ----------
    cross : ndarray, shape (n, r)
        Covariance of f at the rows with f at the inducing points.
    variance : ndarray, shape (n,)
        Of f at the rows, noise of the kernel included.
    mean : ndarray, shape (n,)
    noise : ndarray, shape (n,)
        Variance of the likelihood's noise.
    """

    cross: Any
    variance: Any
    mean: Any
    noise: Any


class Limits(NamedTuple):
    """Limits of the intervals of a block, or values of points, NaN elsewhere."""

    lower: Any
    upper: Any
    value: Any


class RowGraphs(NamedTuple):
    """Graphs behind `CompiledRows`.

    Attributes
    ----------
    inputs : sequence of variables
        The data of a block.
    points : TensorVariable, shape (r, d)
        Inducing points.
    moments : Moments
    limits : Limits
    log_constant : TensorVariable, shape ()
    between : TensorVariable, shape (r, r)
        Covariance of f at the inducing points.
    """

    inputs: Sequence[Any]
    points: Any
    moments: Moments
    limits: Limits
    log_constant: Any
    between: Any


class RowsAt(NamedTuple):
    """A block at a point."""

    moments: Moments
    limits: Limits
    log_constant: float


class CompiledRows:
    """The graphs of a block, compiled.

    Parameters
    ----------
    coordinates : Coordinates
    graphs : RowGraphs
        Of the values of the model's variables.
    """

    def __init__(self, coordinates: Coordinates, graphs: RowGraphs) -> None:
        self._coordinates = coordinates
        points, moments = graphs.points, graphs.moments
        inputs = [*coordinates.inputs, *graphs.inputs, points]
        outputs = [*moments, *graphs.limits, graphs.log_constant]
        self._forward = plain_function(inputs, outputs)
        weights = [output.type() for output in moments]
        weighted = sum((w * x).sum() for w, x in zip(weights, moments, strict=True))
        self._pull = plain_function([*inputs, *weights], gradient_in(weighted, coordinates))
        at_points = [*coordinates.inputs, points]
        self._between = plain_function(at_points, [graphs.between])
        weight = pt.matrix()
        slopes = gradient_in((weight * graphs.between).sum(), coordinates)
        self._pull_between = plain_function([*at_points, weight], slopes)

    def __call__(self, point: Point, batch: Batch, points: FloatArray) -> RowsAt:
        """The numbers of a block."""
        arguments = self._coordinates.arguments(point)
        *found, log_constant = self._forward(*arguments, *batch, points)
        arrays = [np.asarray(x, np.float64) for x in found]
        k = len(Moments._fields)
        return RowsAt(Moments(*arrays[:k]), Limits(*arrays[k:]), float(log_constant))

    def pull_back(
        self, point: Point, batch: Batch, points: FloatArray, wrt: Moments
    ) -> list[FloatArray]:
        """Gradient in the continuous variables from that in the moments of a block."""
        found: list[FloatArray] = self._pull(
            *self._coordinates.arguments(point), *batch, points, *wrt
        )
        return found

    def between(self, point: Point, points: FloatArray) -> FloatArray:
        """Covariance of f at the inducing points."""
        (found,) = self._between(*self._coordinates.arguments(point), points)
        return np.asarray(found, np.float64)

    def pull_back_between(
        self, point: Point, points: FloatArray, wrt: FloatArray
    ) -> list[FloatArray]:
        """Gradient in the continuous variables from that in this covariance."""
        found: list[FloatArray] = self._pull_between(
            *self._coordinates.arguments(point), points, wrt
        )
        return found
