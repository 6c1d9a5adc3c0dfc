"""What a Skew Gaussian process believes before it has seen data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_skewgp._model.gp.functions import ArrayMean, Point, as_point, compile_at
from pymc_skewgp._model.gp.process import process_at
from pymc_skewgp._model.gp.pseudo_points import pseudo_points_at
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._plots.arguments import as_line
from pymc_skewgp._plots.axes import REFERENCE, axes_for, colours, legend_on_top
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray, Seed, as_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_JITTER = 1e-6  # as `SkewGP.prior` has it
_ARROWS = {1.0: "^", -1.0: "v"}


def plot_prior_draws(
    gp: SkewGP,
    X: Any,
    *,
    draws: int = 10,
    point: Point | None = None,
    random_seed: Seed = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Draws of a SkewGP prior, its mean, and the pseudo-points with the sign at each.

    Triangles stand on the mean function and point to the side on which f is.

    Parameters
    ----------
    gp : SkewGP
        Process with one input.
    X : array_like, shape (n,) or (n, 1)
        Inputs, in any order.
    draws : int, default 10
        Number of draws.
    point : mapping, optional
        Values, by name, of the random variables among the hyperparameters.
    random_seed : int, Generator, SeedSequence or None
        Source of randomness.
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
        When `gp` is not a SkewGP, or `point` no mapping.
    ValueError
        For a process or inputs of more than one column, no draws, or when `point` lacks a value.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[1.0], phase=[-1])
    >>> ax = sg.plot_prior_draws(gp, np.linspace(-2.0, 2.0, 20), draws=5, random_seed=1)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['draws', 'mean', 'phase -1']
    """
    if not isinstance(gp, SkewGP):
        raise TypeError(f"gp must be a SkewGP, got {type(gp).__name__}.")
    values = as_point(point)
    if np.isfinite(gp.n_columns) and gp.n_columns != 1:
        raise ValueError(f"gp has {gp.n_columns} inputs, and draws can be shown along one only.")
    x, column = as_line("X", X)
    count = as_count("draws", draws)
    x = np.sort(x)
    sun = _prior_at(gp, x[:, None], values)
    drawn = sun.sample(count, random_seed)

    ax = axes_for(ax, figsize)
    first, second = colours(2)
    ax.axhline(0.0, **REFERENCE)
    lines = ax.plot(x, drawn.T, color=first, alpha=0.6, lw=1)
    lines[0].set_label("draws")
    ax.plot(x, sun.mean(), color=second, lw=2.5, label="mean")
    if gp.n_pseudo_points:
        _mark_pseudo_points(ax, gp, dict(point or {}))
    ax.set(xlabel=column, ylabel="f")
    legend_on_top(ax, ncols=2)
    return ax


def _prior_at(gp: SkewGP, X: FloatArray, point: Point) -> SUN:
    graph = process_at(gp, [X], _JITTER)
    parts = [graph.mu, graph.scale, graph.cross_cov, graph.truncation, graph.latent_cov]
    return SUN.from_cross_cov(*(compile_at([], part, point)() for part in parts))


def _mark_pseudo_points(ax: Axes, gp: SkewGP, point: Point) -> None:
    pseudo = pseudo_points_at(gp, point)
    at, phase = pseudo["pseudo_points"], pseudo["phase"]
    height = ArrayMean(gp.mean_func, point)(at)
    for sign, marker in _ARROWS.items():
        chosen = phase == sign
        if chosen.any():
            ax.scatter(
                at[chosen, 0],
                height[chosen],
                s=110,
                marker=marker,
                color="k",
                ec="w",
                lw=1.0,
                zorder=4,
                label=f"phase {sign:+.0f}",
            )
