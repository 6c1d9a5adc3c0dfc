"""Pseudo-points of a SkewGP with their phases and truncations: numbers, or variables of a model."""

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_skewgp._model.gp.functions import Point, compile_at
from pymc_skewgp._model.gp.process import as_input_graph, shape_now
from pymc_skewgp._observations.arguments import as_inputs, as_phase
from pymc_skewgp._validation import as_vector


class PseudoPoints(NamedTuple):
    """Where the sign of f is known, which sign it is, and how strictly.

    Attributes
    ----------
    points : (s, d) array or variable, or None
    phase, truncation : (s,) array or variable
    """

    points: Any
    phase: Any
    truncation: Any


def as_pseudo_points(points: Any, phase: Any, truncation: Any, n_columns: float) -> PseudoPoints:
    """The three arguments of `SkewGP`, checked as far as they are known."""
    if points is None:
        if phase is not None or isinstance(truncation, Variable) or np.any(truncation):
            raise ValueError("phase and truncation belong to pseudo_points: give those as well.")
        return PseudoPoints(None, as_phase(None, 0), np.zeros(0))
    points = _as_points(points, n_columns)
    s = shape_now(points)[0] or 0
    return PseudoPoints(
        points,
        _per_point("phase", phase, s) if isinstance(phase, Variable) else as_phase(phase, s),
        (_per_point if isinstance(truncation, Variable) else as_vector)(
            "truncation", truncation, s
        ),
    )


def pseudo_points_at(gp: Any, point: Point) -> dict[str, Any]:
    """Those of a SkewGP by name, with variables at their values; none where it has none."""
    if gp.pseudo_points is None:
        return {}
    values = {name: getattr(gp, name) for name in ("pseudo_points", "phase", "truncation")}
    return {
        name: compile_at([], value, point)() if isinstance(value, Variable) else value
        for name, value in values.items()
    }


def _as_points(value: Any, n_columns: float) -> Any:
    """A matrix with a known number of rows."""
    if not isinstance(value, Variable):
        value = as_inputs("pseudo_points", value)
    points = as_input_graph("pseudo_points", value, n_columns)
    s, d = shape_now(points)
    if s is None:
        raise ValueError(
            "pseudo_points must have a known number of rows: give the variable a static shape, as "
            'in pm.Normal("r", shape=(2, 1)).'
        )
    return pt.specify_shape(points, (s, d)) if isinstance(points, Variable) else points


def _per_point(name: str, value: Any, s: int) -> Any:
    """A variable as a vector with one entry for each of `s` pseudo-points."""
    if value.type.ndim == 0:
        return pt.alloc(value, s)
    if value.type.ndim == 1 and shape_now(value)[0] in (None, s):
        return pt.specify_shape(value, (s,))
    raise ValueError(
        f"{name} must be a number or have shape ({s},), one for each of pseudo_points; got "
        f"{shape_now(value)}."
    )
