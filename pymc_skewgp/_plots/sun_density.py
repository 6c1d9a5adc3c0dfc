"""The density of a unified skew-normal distribution in one dimension or two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pymc_skewgp._plots.axes import (
    add_colour_bar,
    axes_for,
    colours,
    legend_on_top,
    legend_with_frame,
)
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import as_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 4.0  # standard deviations from the mean, on either side
_N_GRID = {1: 100, 2: 40}


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
    n = as_count("n_grid", _N_GRID[p] if n_grid is None else n_grid, 2)
    levels = as_count("levels", levels, 2)
    mean, sd = sun.mean(), np.sqrt(sun.cov().diagonal())
    axes = [np.linspace(m - _REACH * s, m + _REACH * s, n) for m, s in zip(mean, sd, strict=True)]
    mesh = np.stack(np.meshgrid(*axes), axis=-1)
    density = np.exp(sun.logpdf(mesh.reshape(-1, p))).reshape(mesh.shape[:-1])

    ax = axes_for(ax, figsize)
    first, second = colours(2)
    if p == 1:
        (line,) = ax.plot(axes[0], density, color=first, lw=2)
        line.sticky_edges.y.append(0.0)  # no margin below a density
        ax.axvline(mean[0], color=second, ls="--", lw=1.5, label=f"mean {mean[0]:.3g}")
        ax.set(xlabel="z", ylabel="density")
        legend_on_top(ax)
    else:
        # Equal shares of the peak, but for the lowest, which would cover all of the axes.
        edges = np.linspace(0.0, density.max(), levels + 1)[1:]
        drawn = ax.contourf(*axes, density, levels=edges, cmap=cmap, vmin=0.0)
        add_colour_bar(ax, drawn, "density")
        name = f"mean ({mean[0]:.3g}, {mean[1]:.3g})"
        ax.scatter(
            mean[0], mean[1], s=70, marker="X", color=second, ec="w", lw=0.8, zorder=3, label=name
        )
        ax.set(xlabel="z0", ylabel="z1")
        legend_with_frame(ax)
    return ax
