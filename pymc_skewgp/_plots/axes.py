"""Axes to draw on, colours of the style in use, legends that hide nothing."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
