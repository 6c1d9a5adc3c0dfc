"""What the analysis of a model's graph has to know of a likelihood."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytensor.tensor as pt
from numpy.typing import NDArray


class RowGraphs(NamedTuple):
    """Rows v = eta + e, e ~ N(0, S), as graphs of the model's random variables.

    Attributes
    ----------
    predictor : TensorVariable
        eta, of any shape that broadcasts to `shape`; raveled it has an entry for each row.
    shape : TensorVariable, shape (d,)
        What the predictor is broadcast to, d known.
    lower, upper : TensorVariable, shape (m,)
        Limits of v; what they are at points has no meaning.
    noise : TensorVariable, shape (m,) or (m, m)
        Variances of e, or S itself.
    value : TensorVariable, shape (m,), or None
        v at points, NaN at intervals; None where all rows are intervals.
    """

    predictor: Any
    shape: Any
    lower: Any
    upper: Any
    noise: Any
    value: Any = None


@dataclass(frozen=True)
class Likelihood:
    """An observed variable whose distribution given f is that of rows of f.

    Attributes
    ----------
    name : str
        What messages call it.
    variables : str
        How a user writes it, for messages.
    rows : callable
        From a random variable and the graph of its data to `RowGraphs`; None where the variable
        has another distribution.
    check : callable
        From the name of the variable and its data to nothing; raises ValueError for impossible
        data.
    """

    name: str
    variables: str
    rows: Callable[[Any, Any], RowGraphs | None]
    check: Callable[[str, NDArray[Any]], None]


def data_shape(values: Any) -> Any:
    """Shape of the data, as a vector of known length."""
    return pt.stack(list(values.shape)) if values.type.ndim else pt.zeros(0, "int64")
