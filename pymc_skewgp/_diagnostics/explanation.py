"""What `explain` returns: a table of the variables of a model, and what `integrate` will do."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = ("name", "distribution", "role", "size", "note")
_WIDEST_NOTE = 70


class ExplainedVariable(NamedTuple):
    """One variable, or potential, of a model.

    Attributes
    ----------
    name : str
    distribution : str
        What PyMC calls it.
    role : str
        ``"block 1"`` for what is integrated out, and drawn, together; ``"hyperparameter"``; of
        observations of blocks ``"points"`` (known values), ``"intervals"`` or ``"factors"`` (any
        other log density of a predictor); ``"prediction"``; ``"potential"``; ``"observed"`` for
        what no block is in; ``"in the way"``.
    size : int
        Entries, or rows.
    note : str
        Why, or what about it.
    """

    name: str
    distribution: str
    role: str
    size: int
    note: str = ""


@dataclass(frozen=True, repr=False)
class Explanation:
    """Result of `explain`: ``print`` and notebooks show a table.

    Attributes
    ----------
    variables : list of ExplainedVariable
        Blocks with their observations first, then hyperparameters and the rest.
    obstacle : str or None
        Why `integrate` refuses the model, in its own words; None where it takes it.
    cost : str
        What `integrate` will take, by the engine that would run; empty where it refuses.
    seconds : float
        The same in numbers; NaN where it refuses.
    """

    variables: list[ExplainedVariable]
    obstacle: str | None
    cost: str
    seconds: float

    @property
    def is_taken(self) -> bool:
        """Whether `integrate` takes the model."""
        return self.obstacle is None

    def to_dataframe(self) -> DataFrame:
        """The table, indexed by name: distribution, role, size and note."""
        import pandas as pd

        return pd.DataFrame(self.variables, columns=list(_COLUMNS)).set_index("name")

    def with_role(self, role: str) -> list[str]:
        """Names of the variables whose role begins with `role`."""
        return [x.name for x in self.variables if x.role.startswith(role)]

    def __repr__(self) -> str:
        rows = [_COLUMNS, *((*x[:3], str(x.size), _short(x.note)) for x in self.variables)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, "", self._last_line])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
            for row in self.variables
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{escape(self._last_line)}</p>"
        )

    @property
    def _last_line(self) -> str:
        if self.obstacle is not None:
            return f"integrate refuses this model: {self.obstacle}"
        return f"integrate takes this model: {self.cost}"


def _short(note: str) -> str:
    return note if len(note) <= _WIDEST_NOTE else note[: _WIDEST_NOTE - 3] + "..."
