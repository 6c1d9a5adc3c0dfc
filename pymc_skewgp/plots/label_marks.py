"""Labels of a classification problem on axes whose ordinate is something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from pymc_skewgp.kernels.validation import FloatArray
from pymc_skewgp.plots.arguments import as_line, as_plane, as_positive
from pymc_skewgp.plots.axes import LABEL_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = {False: "o", True: "^"}
# Where the marks stand, in shares of the height: just inside, where ticks do not reach.
_HEIGHT = {False: 0.025, True: 0.975}
BELOW_LABELS = 0.95


def mark_labels_on_edges(ax: Axes, X: FloatArray, y: ArrayLike | None, X_data: Any) -> None:
    """Ticks at the bottom for y = 0, at the top for y = 1, at `X_data` or else at `X`."""
    if y is None:
        _refuse_places_alone(X_data)
        return
    x = X if X_data is None else as_line("X_data", X_data)[0]
    positive = as_positive(y, x.size)
    ax.margins(y=0.1)  # room for the marks, so that they hide no line
    for value, height in _HEIGHT.items():
        chosen = x[positive == value]
        ax.plot(
            chosen,
            [height] * chosen.size,
            ls="none",
            marker="|",
            ms=8,
            color=LABEL_COLOUR,
            transform=ax.get_xaxis_transform(),
            label=f"_y = {int(value)}",  # which the text beside it says, not the legend
        )
        ax.annotate(
            f"y = {int(value)}",
            (1.01, height),
            xycoords="axes fraction",
            va="center",
            color=LABEL_COLOUR,
            fontsize="small",
        )


def mark_labels_on_plane(ax: Axes, X: FloatArray, y: ArrayLike | None, X_data: Any) -> None:
    """A circle for y = 0, a triangle for y = 1, at `X_data` or else at `X`."""
    if y is None:
        _refuse_places_alone(X_data)
        return
    points = X if X_data is None else as_plane("X_data", X_data, (2,))[0]
    positive = as_positive(y, points.shape[0])
    for value, marker in MARKERS.items():
        chosen = points[positive == value]
        if chosen.size:
            ax.scatter(
                chosen[:, 0],
                chosen[:, 1],
                s=18,
                marker=marker,
                c=LABEL_COLOUR,
                ec="w",
                lw=0.4,
                label=f"y = {int(value)}",
            )


def _refuse_places_alone(X_data: Any) -> None:
    if X_data is not None:
        raise ValueError("X_data is where the labels y are: give y as well.")
