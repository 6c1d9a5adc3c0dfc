"""Nominal against actual probability of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray import DataArray, Dataset

from pymc_skewgp._plots.arguments import as_named
from pymc_skewgp._plots.axes import REFERENCE, axes_for, colours, legend_with_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NEEDED = ("coverage", "mean", "mean_se")
_MARKERS = "osD^v"
_SPREAD = (0.05, 0.95)


def plot_coverage(
    coverage: Any,
    *,
    labels: str | Sequence[str] | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Mean coverage of intervals against the probability they promise.

    A marker with its standard error is the mean over points, the pale bar behind it where nine in
    ten of the points lie. Below the diagonal intervals are too narrow, above it too wide.

    Parameters
    ----------
    coverage : Dataset, or mapping of str to Dataset
        Results of `coverage`: variables ``coverage`` (prob and dimensions of the points), ``mean``
        and ``mean_se`` (prob).
    labels : str or sequence of str, optional
        Names for the legend. Default the keys of the mapping.
    ax : matplotlib Axes, optional
        Where to draw. Default new axes.
    figsize : tuple of float, optional
        Size of new axes, in inches.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError
        For other objects.
    KeyError
        When a Dataset lacks a variable, or the coordinate ``prob``.
    ValueError
        For none at all, or labels of another number.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior(np.array([0.0, 1.0, 3.0]), [1, 1, 1])
    >>> draws = posterior.sample(draws=500, chains=2, random_seed=1)
    >>> ax = sg.plot_coverage({"draws": sg.coverage(draws, posterior)})
    >>> ax.get_xlabel()
    'nominal probability'
    """
    named = as_named("coverage", coverage, labels)
    for name, each in named.items():
        _refuse_other_than_coverage(name, each)

    ax = axes_for(ax, figsize)
    ax.plot([0.0, 1.0], [0.0, 1.0], label="_nominal", **REFERENCE)
    lowest = 1.0
    colour_of = dict(zip(named, colours(len(named)), strict=True))
    for i, (name, each) in enumerate(named.items()):
        colour = colour_of[name]
        x = each["prob"].values  # side by side, some would seem to lie off the diagonal
        low, high = _spread(each["coverage"])
        lowest = min(lowest, x.min(), low.min(), each["mean"].values.min())
        ax.vlines(x, low, high, color=colour, alpha=0.3, lw=4, label=f"_{name} spread")
        ax.errorbar(
            x,
            each["mean"].values,
            yerr=each["mean_se"].values,
            fmt=_MARKERS[i % len(_MARKERS)],
            color=colour,
            ms=5,
            lw=1.5,
            label=name or None,
        )
    limits = (max(0.0, lowest - 0.1), 1.02)
    ax.set(xlim=limits, ylim=limits, xlabel="nominal probability", ylabel="coverage")
    ax.set_aspect("equal")
    if any(named):
        legend_with_frame(ax, "upper left")
    return ax


def _spread(each: DataArray) -> tuple[np.ndarray, np.ndarray]:
    points = [dim for dim in each.dims if dim != "prob"]
    low, high = each.quantile(_SPREAD, dim=points).transpose("quantile", "prob").values
    return low, high


def _refuse_other_than_coverage(name: str, each: Any) -> None:
    which = f"coverage[{name!r}]" if name else "coverage"
    if not isinstance(each, Dataset):
        raise TypeError(
            f"{which} must be a Dataset as `coverage` returns it, got {type(each).__name__}."
        )
    missing = [variable for variable in _NEEDED if variable not in each]
    if "prob" not in each.coords:
        missing.append("prob")
    if missing:
        raise KeyError(
            f"{which} lacks {', '.join(missing)}; it has {sorted(map(str, each.variables))}: give "
            "what `coverage` returned."
        )
