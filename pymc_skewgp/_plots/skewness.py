"""Where a posterior is skewed, and how well bands cover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset

from pymc_skewgp._plots import axes as drawing
from pymc_skewgp._validation import FloatArray, as_vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.tri import Triangulation

_N_LEVELS = 15  # odd: 0 is within one of the bands, which is white


def plot_skewness(
    X: Any,
    skewness: Any,
    *,
    kind: Literal["scatter", "contour"] = "scatter",
    y: ArrayLike | None = None,
    X_data: Any = None,
    cmap: str = "PuOr_r",
    vmax: float | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Skewness of a latent function against its inputs: a line for one, a map for two.

    A Gaussian approximation has skewness 0 everywhere: the zero line, or the colour in the middle.

    Parameters
    ----------
    X : array_like, shape (t,), (t, 1) or (t, 2)
        Inputs, in any order.
    skewness : Dataset or array_like, shape (t,)
        Result of `posterior_skewness`, with ``skewness`` and its Monte Carlo standard error
        ``skewness_se``, drawn as a band; or numbers.
    kind : {"scatter", "contour"}, default "scatter"
        For two columns: coloured points, or filled contours by triangulation.
    y : array_like, shape (n,), optional
        Labels, 0 and 1: ticks at the bottom and at the top, or circles and triangles.
    X_data : array_like, shape (n,), (n, 1) or (n, 2), optional
        Inputs of the labels. Default `X`.
    cmap : str, default "PuOr_r"
        Diverging colours, which colour-blind readers can distinguish.
    vmax : float, optional
        Skewness of the last colour, and minus that of the first. Default the largest there is.
    ax : matplotlib Axes, optional
        Where to draw. Default new axes.
    figsize : tuple of float, optional
        Size of new axes, in inches.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        For more than two columns, another number of inputs than of values, an unknown kind.
    KeyError
        When the Dataset has no variable ``skewness``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> X = np.array([-1.0, 0.0, 1.0])
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> skewness = sg.posterior_skewness(gp.posterior(X, [1, 1, 1]))
    >>> ax = sg.plot_skewness(X, skewness, y=[1, 1, 1])
    >>> ax.get_ylabel()
    'skewness of f ± 2 SE'
    """
    inputs, columns = drawing.as_plane("X", X, (1, 2))
    value, error = _with_error(skewness)
    drawing.refuse_other_size(inputs, "skewness", value.size)
    if kind not in ("scatter", "contour"):
        raise ValueError(f'kind must be "scatter" or "contour", got {kind!r}.')
    labels = drawing.labels_at(y, inputs, X_data)
    if len(columns) == 1:
        if kind == "contour" or vmax is not None:
            raise ValueError("kind and vmax are for inputs of two columns, and X has one.")
        ax = drawing.axes_for(ax, figsize)
        _draw_line(ax, inputs[:, 0], value, error)
        if labels is not None:
            drawing.mark_on_edges(ax, labels)
        known = "" if error is None else " ± 2 SE"
        ax.set(xlabel=columns[0], ylabel=f"skewness of f{known}")
        return ax
    limit = _limit(value, vmax)
    triangles = _triangles(inputs) if kind == "contour" else None
    ax = drawing.axes_for(ax, figsize)
    scale: dict[str, Any] = {"cmap": cmap, "vmin": -limit, "vmax": limit}
    points = {"s": 30, "ec": "0.4", "lw": 0.4, **scale}
    drawn: Any
    if triangles is not None:
        levels = np.linspace(-limit, limit, _N_LEVELS + 1)
        extend = "both" if np.abs(value).max() > limit else "neither"
        drawn = ax.tricontourf(triangles, value, levels=levels, extend=extend, **scale)
    elif labels is not None and X_data is None:
        # The labels of the very points that are coloured are their markers.
        drawn = drawing.scatter_classes(ax, labels, value, **points)
    else:
        marker = drawing.MARKERS[False]
        drawn = ax.scatter(inputs[:, 0], inputs[:, 1], c=value, marker=marker, **points)
    if labels is not None:
        if triangles is not None or X_data is not None:
            drawing.scatter_classes(ax, labels, s=18, ec="w", lw=0.4)
        drawing.legend_with_frame(ax)
    drawing.add_colour_bar(ax, drawn, "skewness of f")
    ax.set(xlabel=columns[0], ylabel=columns[1])
    return ax


def _with_error(skewness: Any) -> tuple[FloatArray, FloatArray | None]:
    if not isinstance(skewness, Dataset):
        return as_vector("skewness", skewness), None
    if "skewness" not in skewness:
        raise KeyError(
            "the Dataset has no variable 'skewness', as that of posterior_skewness has; it has "
            f"{sorted(map(str, skewness.data_vars))}."
        )
    value = as_vector("skewness", skewness["skewness"].values)
    return value, skewness["skewness_se"].values if "skewness_se" in skewness else None


def _limit(value: FloatArray, vmax: float | None) -> float:
    """Where the colours end, on either side of 0."""
    if vmax is None:
        return float(np.abs(value).max()) or 1.0  # all 0: any will do
    if not 0.0 < vmax < np.inf:
        raise ValueError(f"vmax must be positive and finite, got {vmax!r}.")
    return float(vmax)


def _draw_line(ax: Axes, x: FloatArray, value: FloatArray, error: FloatArray | None) -> None:
    order = np.argsort(x, kind="stable")
    x, value = x[order], value[order]
    colour = drawing.colours(1)[0]
    ax.axhline(0.0, **drawing.REFERENCE)
    if error is not None:
        error = 2.0 * error[order]
        ax.fill_between(x, value - error, value + error, color=colour, alpha=0.3, lw=0)
    ax.plot(x, value, color=colour, lw=2)


def _triangles(X: FloatArray) -> Triangulation:
    from matplotlib.tri import Triangulation

    try:
        return Triangulation(X[:, 0], X[:, 1])
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"contours need at least 3 points that are not on one line, got {len(X)}: use "
            f'kind="scatter". ({error})'
        ) from error


# Nominal against actual probability of intervals.

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
    named = drawing.as_named("coverage", coverage, labels)
    for name, each in named.items():
        _refuse_other_than_coverage(name, each)

    ax = drawing.axes_for(ax, figsize)
    ax.plot([0.0, 1.0], [0.0, 1.0], label="_nominal", **drawing.REFERENCE)
    lowest = 1.0
    colour_of = dict(zip(named, drawing.colours(len(named)), strict=True))
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
        drawing.legend_with_frame(ax, "upper left")
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
