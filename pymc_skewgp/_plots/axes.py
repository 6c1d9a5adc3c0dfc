"""What the pictures share: axes, colours, legends, arguments, marks of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray
from xarray import Dataset, DataTree

from pymc_skewgp._observations.likelihood import as_inputs, as_labels
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

# Lines that are there to compare with: visible, and never taken for data.
REFERENCE: dict[str, Any] = {"color": "0.55", "lw": 1.0, "zorder": 0.9}
# For styles whose lines differ in something else; distinct whatever colours a reader sees.
_BLUE_AND_VERMILION = ("#0072b2", "#d55e00")
_LEAST_SHRUNK = 0.6


def axes_for(ax: Axes | None, figsize: tuple[float, float] | None) -> Axes:
    """`ax`, or the axes of a new figure of size `figsize`."""
    try:
        from matplotlib.axes import Axes
        from matplotlib.pyplot import subplots
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "plots need matplotlib: pip install matplotlib", name=error.name
        ) from error
    if ax is None:
        _, ax = subplots(figsize=figsize, layout="constrained")
        return ax
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be a matplotlib Axes, got {type(ax).__name__}.")
    if figsize is not None:
        raise ValueError("figsize is for new axes: give either ax or figsize, not both.")
    return ax


def add_colour_bar(ax: Axes, drawn: Any, label: str) -> None:
    """A colour bar beside the axes, with ticks at round numbers whatever the levels are."""
    from matplotlib.ticker import MaxNLocator

    figure = ax.get_figure(root=True)
    assert figure is not None  # axes that were removed from theirs
    figure.colorbar(drawn, ax=ax, label=label, ticks=MaxNLocator(8))


def colours(n: int) -> list[str]:
    """The first `n` colours of the style, fixed now: "C0" would follow a later change of style."""
    from matplotlib import rcParams
    from matplotlib.colors import to_hex

    styled = rcParams["axes.prop_cycle"].by_key().get("color", _BLUE_AND_VERMILION)
    return [to_hex(colour) for colour in islice(cycle(styled), n)]


def legend_on_top(ax: Axes, *, top: float = 1.0, ncols: int = 1) -> None:
    """A legend within the axes, below the share `top` of their height, and above all data.

    Within, because titles stand above; and the room for it is made, since there may be none.
    """
    legend = _legend_within(ax, loc="upper right", bbox_to_anchor=(1.0, top), ncols=ncols)
    share = 1.0 - top + 1.1 * legend.get_window_extent().height / ax.get_window_extent().height
    low, high = ax.get_ylim()
    # Axes too small for their legend keep half their height for the data.
    ax.set_ylim(low, low + (high - low) / (1.0 - min(share, 0.5)), auto=None)


def legend_with_frame(ax: Axes, loc: str = "best") -> None:
    """A legend that can be read over points and colours, in styles without frames as well."""
    _legend_within(ax, loc=loc, frameon=True, framealpha=0.8)


def _legend_within(ax: Axes, **options: Any) -> Legend:
    """A legend no wider than small axes, unless its letters would be too small to read."""
    legend = ax.legend(**options)
    texts = legend.get_texts()
    # A layout yet to come may make the axes narrower than they are now.
    fits = 0.9 * ax.get_window_extent().width / legend.get_window_extent().width
    if texts and fits < 1.0:
        size = float(texts[0].get_fontsize()) * max(fits, _LEAST_SHRUNK)
        legend = ax.legend(**options, fontsize=size)
    legend.set_in_layout(False)  # it is within; where it is not, the axes are not to make room
    return legend


# What the plots accept: inputs with their names, labels, and several objects under names.


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


def refuse_other_than(name: str, value: Any, needed: Sequence[str], maker: str) -> None:
    """Raise unless it is a Dataset with these variables, as `maker` returns it."""
    if not isinstance(value, Dataset):
        raise TypeError(
            f"{name} must be a Dataset as {maker} returns it, got {type(value).__name__}."
        )
    missing = [variable for variable in needed if variable not in value.variables]
    if missing:
        raise KeyError(
            f"{name} lacks {', '.join(missing)}; it has {sorted(map(str, value.variables))}: give "
            f"what {maker} returned."
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


# Labels of a classification problem, marked on axes whose ordinate is something else.

MARKERS = {False: "o", True: "^"}
# Where ticks of the labels stand, in shares of the height, and what is below all of them.
_HEIGHT = {False: 0.025, True: 0.975}
BELOW_TICKS = 0.95
_COLOUR = "0.35"


@dataclass(frozen=True)
class Labels:
    """Labels of two classes and where they are.

    Attributes
    ----------
    places : ndarray, shape (n, d)
    positive : ndarray of bool, shape (n,)
    """

    places: FloatArray
    positive: NDArray[np.bool_]

    def classes(self) -> list[tuple[bool, NDArray[np.bool_]]]:
        """Each class that occurs, and which labels are of it."""
        both = [(value, self.positive == value) for value in (False, True)]
        return [(value, chosen) for value, chosen in both if chosen.any()]


def labels_at(y: ArrayLike | None, X: FloatArray, X_data: Any) -> Labels | None:
    """Labels at `X_data`, or else at `X`; None without labels."""
    if y is None:
        if X_data is not None:
            raise ValueError("X_data is where the labels y are: give y as well.")
        return None
    places = X if X_data is None else as_plane("X_data", X_data, (X.shape[1],))[0]
    return Labels(places, as_labels(y, places.shape[0]) == 1)


def label_name(value: bool) -> str:
    """What a legend calls the class."""
    return f"y = {int(value)}"


def mark_on_edges(ax: Axes, labels: Labels) -> None:
    """Ticks at the bottom for y = 0, at the top for y = 1."""
    ax.margins(y=0.1)  # room for them, so that they hide no line
    for value, chosen in labels.classes():
        height, name = _HEIGHT[value], label_name(value)
        ax.plot(
            labels.places[chosen, 0],
            [height] * int(chosen.sum()),
            ls="none",
            marker="|",
            ms=8,
            color=_COLOUR,
            transform=ax.get_xaxis_transform(),
            label=f"_{name}",  # which the text beside it says, not the legend
        )
        ax.annotate(
            name,
            (1.01, height),
            xycoords="axes fraction",
            va="center",
            color=_COLOUR,
            fontsize="small",
        )


def scatter_classes(ax: Axes, labels: Labels, values: Any = None, **style: Any) -> Any:
    """A circle for y = 0, a triangle for y = 1, in one colour or in those of their values."""
    for value, chosen in labels.classes():
        x, y = labels.places[chosen].T
        colour = _COLOUR if values is None else values[chosen]
        known: dict[str, Any] = {"marker": MARKERS[value], "label": label_name(value), **style}
        drawn = ax.scatter(x, y, c=colour, **known)
    return drawn
