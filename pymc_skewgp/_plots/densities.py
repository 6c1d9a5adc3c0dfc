"""Densities: of a unified skew-normal distribution, and slices of a posterior."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from xarray import Dataset, DataTree

from pymc_skewgp._diagnostics.marginals import DrawnMarginals, Marginals, as_marginals
from pymc_skewgp._observations.likelihood import as_inputs, as_labels, some_values
from pymc_skewgp._plots import axes as drawing
from pymc_skewgp._posterior.output import LatentMarginals
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray, as_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 4.0  # standard deviations from the mean, on either side
_SUN_GRID = {1: 100, 2: 40}


def plot_sun_density(
    sun: SUN,
    *,
    n_grid: int | None = None,
    levels: int = 8,
    cmap: str = "Blues",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Density of a SUN with its mean: a line in one dimension, filled contours in two.

    Parameters
    ----------
    sun : SUN
        Of one or two dimensions; ``sun.marginal([i, j])`` picks two of more.
    n_grid : int, optional
        Points along each axis, default 100 for a line and 40 for contours. Each costs a normal
        probability of as many dimensions as the latent ones: for the posterior of much data
        `plot_slice_density` is faster.
    levels : int, default 8
        Contours, at equal shares of the largest density; 2 at least.
    cmap : str, default "Blues"
        Colours of the contours.
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
    ValueError
        For more than two dimensions.

    Examples
    --------
    >>> import pymc_skewgp as sg
    >>> sun = sg.SUN([0.0], [[1.0]], [[0.9]], [0.0], [[1.0]])
    >>> ax = sg.plot_sun_density(sun)
    >>> ax.get_ylabel()
    'density'
    """
    if not isinstance(sun, SUN):
        raise TypeError(f"sun must be a SUN, got {type(sun).__name__}.")
    p = sun.n_dims
    if p > 2:
        raise ValueError(
            f"sun has {p} dimensions, and 1 or 2 can be drawn: pick them with sun.marginal([0, 1])."
        )
    n = as_count("n_grid", _SUN_GRID[p] if n_grid is None else n_grid, 2)
    levels = as_count("levels", levels, 2)
    mean, sd = sun.mean(), np.sqrt(sun.cov().diagonal())
    axes = [np.linspace(m - _REACH * s, m + _REACH * s, n) for m, s in zip(mean, sd, strict=True)]
    mesh = np.stack(np.meshgrid(*axes), axis=-1)
    density = np.exp(sun.logpdf(mesh.reshape(-1, p))).reshape(mesh.shape[:-1])

    ax = drawing.axes_for(ax, figsize)
    first, second = drawing.colours(2)
    if p == 1:
        (line,) = ax.plot(axes[0], density, color=first, lw=2)
        line.sticky_edges.y.append(0.0)  # no margin below a density
        ax.axvline(mean[0], color=second, ls="--", lw=1.5, label=f"mean {mean[0]:.3g}")
        ax.set(xlabel="z", ylabel="density")
        drawing.legend_on_top(ax)
    else:
        # Equal shares of the peak, but for the lowest, which would cover all of the axes.
        edges = np.linspace(0.0, density.max(), levels + 1)[1:]
        drawn = ax.contourf(*axes, density, levels=edges, cmap=cmap, vmin=0.0)
        drawing.add_colour_bar(ax, drawn, "density")
        name = f"mean ({mean[0]:.3g}, {mean[1]:.3g})"
        ax.scatter(
            mean[0], mean[1], s=70, marker="X", color=second, ec="w", lw=0.8, zorder=3, label=name
        )
        ax.set(xlabel="z0", ylabel="z1")
        drawing.legend_with_frame(ax)
    return ax


# The density of a latent function at one point.

_N_GRID = 400
_ENDS = (0.001, 0.999)
_WIDEN = 0.15  # of the distance between these quantiles, on either side
_STYLES = ("-", "--", "-.", ":")
_MOST_COLUMNS = 3  # of inputs that an axis label has room for


def plot_slice_density(
    marginals: Any,
    index: int,
    *,
    X: Any = None,
    y: ArrayLike | None = None,
    labels: str | Sequence[str] | None = None,
    gaussian: bool = False,
    var: str = "f",
    group: str = "posterior",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Density of f at one point, with its mass below 0 shaded.

    That mass is the posterior probability that the label 0 is the likelier one there: what a
    symmetric approximation of a skewed density gets wrong. The abscissa names the point, by its
    number or by its inputs and label.

    Parameters
    ----------
    marginals : SkewGPPosterior, LatentMarginals or DataTree, or mapping of str to these
        Marginal distributions of f, all at the same points. Draws are smoothed by a Gaussian
        kernel.
    index : int
        The point among them; negative ones count from the end.
    X : array_like, shape (n, d), optional
        Inputs that the marginals are at. Default those of a DataTree of draws at its data.
    y : array_like, shape (n,), optional
        Labels there, 0 and 1. Default those of a DataTree of draws at its data.
    labels : str or sequence of str, optional
        Names for the legend. Default the keys of the mapping.
    gaussian : bool, default False
        Draw also the Gaussian with the mean and standard deviation of the first.
    var, group : str, default "f", "posterior"
        Where a DataTree has its draws.
    ax : matplotlib Axes, optional
        Where to draw. Default new axes.
    figsize : tuple of float, optional
        Size of new axes, in inches.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    IndexError
        For an index beyond the points.
    ValueError
        When the marginals have different numbers of points, or f is known exactly at the point;
        for labels, `X` or `y` of another number.
    KeyError
        When a DataTree has not the group, or the group not the variable.
    TypeError
        For objects without marginal distributions.

    Notes
    -----
    The density of an exact posterior averages Gaussians over draws of u. Where these are narrow, at
    points surrounded by data under a prior of large variance, bumps are noise: a posterior with
    more ``n_draws``, say 16384, smooths them.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> x, y = np.array([-1.0, 0.0, 1.0]), [1, 1, 1]
    >>> ax = sg.plot_slice_density({"exact": gp.posterior(x, y)}, 1, X=x, y=y, gaussian=True)
    >>> ax.get_xlabel()
    'f at x = 0, y = 1'
    >>> print(ax.get_legend().get_texts()[0].get_text())
    exact: P(f < 0) = 0.0...
    """
    sources = drawing.as_named("marginals", marginals, labels)
    named = {name: as_marginals(each, var=var, group=group) for name, each in sources.items()}
    sizes = {name: each.size for name, each in named.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"marginals must be at the same points, but have these numbers: {sizes}.")
    size = next(iter(sizes.values()))
    place = _as_place(index, size)
    known = _data_of(sources.values(), size) if group == "posterior" else (None, None)
    point = _point_name(place, size, known[0] if X is None else X, known[1] if y is None else y)
    curves = {name: _at(each, place) for name, each in named.items()}
    if gaussian:
        mean, sd, _ = next(iter(curves.values())).moments
        curves["Gaussian, same moments"] = LatentMarginals(mean[:, None], sd**2, np.ones(1))
    grid = _grid(curves)

    ax = drawing.axes_for(ax, figsize)
    below = grid[grid < 0.0]
    crosses = grid[0] < 0.0 < grid[-1]
    if crosses:
        below = np.append(below, 0.0)
    peak = 0.0
    colour_of = dict(zip(curves, drawing.colours(len(curves)), strict=True))
    for i, (name, curve) in enumerate(curves.items()):
        colour = colour_of[name]
        mass = f"P({var} < 0) {_probability(curve)}"
        density = curve.density(grid[:, None])[:, 0]
        peak = max(peak, density.max())
        (line,) = ax.plot(
            grid,
            density,
            _STYLES[i % len(_STYLES)],
            color=colour,
            lw=2,
            label=f"{name}: {mass}" if name else mass,
        )
        line.sticky_edges.y.append(0.0)  # no margin below a density
        if below.size:
            shade = curve.density(below[:, None])[:, 0]
            ax.fill_between(below, shade, color=colour, alpha=0.25, lw=0)
    if crosses:
        ax.plot([0.0, 0.0], [0.0, peak], **drawing.REFERENCE)
    ax.set(xlabel=f"{var} at {point}", ylabel="density", yticks=[])
    drawing.legend_on_top(ax)
    return ax


def _as_place(index: int, size: int) -> int:
    try:
        place = operator.index(index)
    except TypeError as error:
        raise TypeError(f"index must be an integer, got {type(index).__name__}.") from error
    if not -size <= place < size:
        raise IndexError(f"index {place} is beyond the {size} point(s) of the marginals.")
    return place % size


def _data_of(sources: Iterable[Any], size: int) -> tuple[Any, Any]:
    """Inputs and labels of a DataTree of draws at its data, each where it has them."""
    X = y = None
    for source in sources:
        if isinstance(source, DataTree):
            X = _variable(source, "constant_data", "X", size) if X is None else X
            y = _variable(source, "observed_data", "y", size) if y is None else y
    return X, y if y is not None and np.isin(y, (0, 1)).all() else None


def _variable(tree: DataTree, group: str, name: str, size: int) -> Any:
    known = tree[group].dataset if group in tree.children else Dataset()
    fits = name in known and known[name].shape[:1] == (size,)
    return known[name].to_numpy() if fits else None


def _point_name(place: int, size: int, X: Any, y: Any) -> str:
    """The point as its inputs and label say it, or its number."""
    text = f"point {place}"
    if X is not None:
        inputs = as_inputs("X", X)
        drawing.refuse_other_size(inputs, "marginals", size)
        if inputs.shape[1] <= _MOST_COLUMNS:
            _, columns = drawing.as_plane("X", X, tuple(range(1, _MOST_COLUMNS + 1)))
            values = zip(columns, inputs[place], strict=True)
            text = ", ".join(f"{column} = {value:.3g}" for column, value in values)
    if y is not None:
        text += f", {drawing.label_name(as_labels(y, size, rows='marginals')[place] == 1)}"
    return text


def _at(marginals: Marginals, index: int) -> Marginals:
    """The one point: the others would cost as much again each."""
    if isinstance(marginals, LatentMarginals):
        return some_values(marginals, [index])
    return DrawnMarginals(marginals.draws[..., [index]])


def _grid(curves: Mapping[str, Marginals]) -> FloatArray:
    for name, curve in curves.items():
        if not curve.moments.sd[0] > 0:
            raise ValueError(f"{name or 'marginals'} has no spread at this point: no density.")
    ends = np.array([curve.quantile(_ENDS)[:, 0] for curve in curves.values()])
    low, high = ends[:, 0].min(), ends[:, 1].max()
    margin = _WIDEN * (high - low)
    return np.linspace(low - margin, high + margin, _N_GRID)


def _probability(curve: Marginals) -> str:
    value = float(curve.cdf([0.0]).value[0])
    if value < 0.001:
        return "< 0.001"
    return f"= {value:.3f}" if value <= 0.999 else "> 0.999"
