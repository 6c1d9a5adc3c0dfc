"""What the analysis of a model's graph has to know of a likelihood."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.random.op import RNGConsumerOp


class MixtureGraphs(NamedTuple):
    """Rows that are such given indicators only.

    Attributes
    ----------
    kind : type
        A `Mixture`.
    parameters : tuple of TensorVariable, shape (m,)
        Its arguments.
    """

    kind: type[Any]
    parameters: tuple[Any, ...]


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
    log_constant : TensorVariable, shape (), or None
        Log p(y | f) less the log density of the rows given f, a function of the data alone: a
        binomial coefficient, say. None for 0.
    mixture : MixtureGraphs, or None
        What makes rows of these. None where they are rows as they stand.
    counts : TensorVariable, shape (m,), or None
        How many intervals each row stands for, 0 or more, each with noise of its own. None for one.
    """

    predictor: Any
    shape: Any
    lower: Any
    upper: Any
    noise: Any
    value: Any = None
    log_constant: Any = None
    mixture: MixtureGraphs | None = None
    counts: Any = None

    @property
    def graphs(self) -> list[Any]:
        """All of them."""
        own = [x for x in self if x is not None and x is not self.mixture]
        return [*own, *self.parameters]

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Those of the mixture."""
        return () if self.mixture is None else self.mixture.parameters

    def replaced(self, by: dict[Any, Any]) -> "RowGraphs":
        """Other graphs in the place of these."""
        mixture = self.mixture
        if mixture is not None:
            mixture = mixture._replace(parameters=tuple(by[x] for x in mixture.parameters))
        fields = {
            name: x if x is None else by[x]
            for name, x in self._asdict().items()
            if name != "mixture"
        }
        return RowGraphs(**fields, mixture=mixture)


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


def point_rows(predictor: Any, shape: Any, noise: Any, values: Any) -> RowGraphs:
    """Rows that are all points, one for each of the data `values`."""
    value = pt.cast(values.ravel(), "float64")
    nowhere = pt.full_like(value, np.inf)
    return RowGraphs(predictor, shape, -nowhere, nowhere, noise, value)


def spread(x: Any, shape: Any) -> Any:
    """`x`, broadcast to `shape` and raveled, in double precision."""
    return pt.cast(pt.broadcast_to(x, shape).ravel(), "float64")


def required(x: Any, message: str, *conditions: Any) -> Any:
    """`x`; ValueError with `message`, when it is evaluated, unless all `conditions` hold."""
    # As one condition: PyTensor cannot vectorise several, which the design of rows may need.
    together = pt.all(pt.stack([pt.all(c) for c in conditions]))
    return CheckAndRaise(ValueError, message)(x, together)


def required_of(name: str, x: Any, what: str, *conditions: Any) -> Any:
    """`x`, a parameter of the variable `name`, where `conditions` hold.

    Elsewhere an error says `what` it must be, where `x` is data; NaN, which is nowhere, for values
    of random variables.
    """
    if not is_random(x):
        return required(x, f"{what.format(name)}.", *conditions)
    holds = pt.all(pt.stack([pt.all(c) for c in conditions]))
    return pt.switch(holds, x, pt.constant(float("nan"), dtype="float64"))


def variances(rv: Any, sigma: Any, shape: Any) -> Any:
    """Of noise of standard deviation `sigma`, which must be positive, for each of the data."""
    sd = spread(sigma, shape)
    return pt.sqr(required_of(rv.name, sd, "the noise of {} must be positive", pt.gt(sd, 0.0)))


def is_random(*graphs: Any) -> bool:
    """Whether anything random is in the graphs: a variable of the model, or one without a name."""
    return any(isinstance(getattr(v.owner, "op", None), RNGConsumerOp) for v in ancestors(graphs))


def refuse_non_finite(name: str, data: NDArray[Any]) -> None:
    """Refuse data that are NaN or infinite."""
    if not np.isfinite(data).all():
        count = int((~np.isfinite(data)).sum())
        raise ValueError(
            f"the observations of {name} must be finite, found {count} NaN or infinite value(s): "
            "leave them out."
        )


def refuse_nan(name: str, data: NDArray[Any]) -> None:
    """Refuse data that are NaN."""
    if np.isnan(data).any():
        count = int(np.isnan(data).sum())
        raise ValueError(f"the observations of {name} hold {count} NaN value(s): leave them out.")


def refuse_other_than_counts(name: str, data: NDArray[Any]) -> None:
    """Refuse data that are not whole numbers from 0."""
    wrong = data[(data < 0) | (data != np.floor(data))]
    if wrong.size or np.isnan(data).any():
        raise ValueError(
            f"the observations of {name} must be whole numbers from 0, got "
            f"{np.unique(wrong)[:5] if wrong.size else 'NaN'}."
        )


def data_shape(values: Any) -> Any:
    """Shape of the data, as a vector of known length."""
    return pt.stack(list(values.shape)) if values.type.ndim else pt.zeros(0, "int64")
