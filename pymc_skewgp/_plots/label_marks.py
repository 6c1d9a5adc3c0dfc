"""Labels of a classification problem, marked on axes whose ordinate is something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._observations.arguments import as_labels
from pymc_skewgp._plots.arguments import as_plane
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

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


def mark_on_plane(ax: Axes, labels: Labels) -> None:
    """A circle for y = 0, a triangle for y = 1."""
    for value, chosen in labels.classes():
        ax.scatter(
            labels.places[chosen, 0],
            labels.places[chosen, 1],
            s=18,
            marker=MARKERS[value],
            c=_COLOUR,
            ec="w",
            lw=0.4,
            label=label_name(value),
        )
