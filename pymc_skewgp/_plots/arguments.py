"""What the plots accept: inputs with their names, labels, and several objects under names."""

from collections.abc import Mapping, Sequence
from typing import Any

from xarray import Dataset, DataTree

from pymc_skewgp._observations.arguments import as_inputs
from pymc_skewgp._validation import FloatArray


def as_plane(name: str, X: Any, allowed: tuple[int, ...]) -> tuple[FloatArray, list[str]]:
    """Inputs of so many columns as a matrix, with the names of the columns."""
    inputs = as_inputs(name, X)
    d = inputs.shape[1]
    if d not in allowed:
        raise ValueError(
            f"{name} must have {' or '.join(map(str, allowed))} column(s), got {d}: choose among "
            f"them, as in {name}[:, {list(range(allowed[-1]))}]."
        )
    known = getattr(X, "columns", None)  # of a data frame
    if known is None and d == 1:
        own = getattr(X, "name", None)  # of a series
        known = ["x" if own is None else own]
    return inputs, [f"x{i}" for i in range(d)] if known is None else [str(each) for each in known]


def as_line(name: str, X: Any) -> tuple[FloatArray, str]:
    """Inputs of one column as a vector, with the column's name."""
    inputs, (column,) = as_plane(name, X, (1,))
    return inputs[:, 0], column


def refuse_other_size(X: FloatArray, name: str, size: int) -> None:
    """Raise unless there is one input for each of the points that `name` has."""
    if X.shape[0] != size:
        raise ValueError(
            f"X has {X.shape[0]} row(s), but {name} has {size} point(s): give the inputs that it "
            "is at, in the same order."
        )


def as_named(name: str, value: Any, labels: str | Sequence[str] | None) -> dict[str, Any]:
    """One object, or a mapping of them, by the names to show."""
    # Data sets and trees are mappings themselves.
    several = isinstance(value, Mapping) and not isinstance(value, Dataset | DataTree)
    objects = list(value.values()) if several else [value]
    if not objects:
        raise ValueError(f"{name} is empty: there is nothing to plot.")
    if labels is None:
        return {str(key): each for key, each in value.items()} if several else {"": value}
    return dict(zip(as_names("labels", labels, len(objects)), objects, strict=True))


def as_names(argument: str, labels: Any, n: int) -> list[str]:
    """`n` different names; one may be a plain string."""
    names = [labels] if isinstance(labels, str) else labels
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{argument} must be a string, or a list of them; got {labels!r}.")
    if len(names) != n or len(set(names)) != n:
        raise ValueError(f"{argument} must be {n} different name(s), got {list(names)}.")
    return list(names)
