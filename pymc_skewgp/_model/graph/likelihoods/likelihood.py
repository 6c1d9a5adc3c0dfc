"""What the analysis of a model's graph has to know of a likelihood."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray
from pytensor.graph.basic import Variable


class Intervals(NamedTuple):
    """Rows lower < eta + e < upper with independent normal noise e, as graphs of length m."""

    lower: Any
    upper: Any
    noise: Any


@dataclass(frozen=True)
class Likelihood:
    """An observed variable whose distribution given its predictor eta is that of interval rows.

    Attributes
    ----------
    name : str
        What messages call it.
    variables : str
        How a user writes it, for messages.
    predictor : callable
        From a random variable to the graph of eta, of the shape of the variable; None where the
        variable has another distribution.
    rows : callable
        From the graph of the data, raveled, to `Intervals`.
    check : callable
        From the name of the variable and its data to nothing; raises ValueError for impossible
        data.
    """

    name: str
    variables: str
    predictor: Callable[[Any], Variable | None]
    rows: Callable[[Any], Intervals]
    check: Callable[[str, NDArray[Any]], None]
