"""Pictures of functions: bands, prior draws, prior reports, second order, skewness, coverage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset, DataTree

from pymc_skewgp._diagnostics.marginals import as_marginals
from pymc_skewgp._model.gp.functions import ArrayMean, Point, as_point, compile_at
from pymc_skewgp._model.gp.process import process_at, pseudo_points_at
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._observations.likelihood import as_labels
from pymc_skewgp._plots import axes as drawing
from pymc_skewgp._posterior.output import as_probabilities
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray, Seed, as_count, as_real_array, as_vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.tri import Triangulation


def plot_latent_band(
    X: Any,
    exact: Any,
    approximation: Any = None,
    *,
    prob: float | None = None,
    labels: str | Sequence[str] = ("exact", "approximation"),
    y: ArrayLike | None = None,
    X_data: Any = None,
    var: str = "f",
    group: str = "posterior",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Median and central interval of a latent function against its one input.

    The exact posterior is a line in a filled band, the approximation three dashed lines over it;
    where these leave the band, it is wrong.

    Parameters
    ----------
    X : array_like, shape (t,) or (t, 1)
        Inputs, in any order.
    exact : SkewGPPosterior, LatentMarginals or DataTree
        Marginal distributions of f at `X`. A posterior stands for its data: for new points give
        ``posterior.marginals(X)``.
    approximation : SkewGPPosterior, LatentMarginals or DataTree, optional
        What to compare with it, at the same inputs.
    prob : float, optional
        Probability of the intervals. Default that of ArviZ, ``az.rcParams["stats.ci_prob"]``, .89.
    labels : sequence of str, default ("exact", "approximation")
        Names for the legend.
    y : array_like, shape (n,), optional
        Labels, 0 and 1, drawn as ticks at the bottom and at the top.
    X_data : array_like, shape (n,) or (n, 1), optional
        Inputs of the labels. Default `X`.
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
    ValueError
        For inputs of more than one column, another number of them than of points, probabilities
        outside (0, 1), labels that are not binary.
    KeyError
        When a DataTree has not the group, or the group not the variable.
    TypeError
        For objects without marginal distributions.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> X, y = np.array([-2.0, -1.0, 1.0, 2.0]), [0, 0, 0, 1]
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> grid = np.linspace(-3.0, 3.0, 20)
    >>> exact = gp.posterior(X, y).marginals(grid)
    >>> ax = sg.plot_latent_band(grid, exact, y=y, X_data=X)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x', 'f: median, 89 % interval')
    """
    x, column = drawing.as_line("X", X)
    if prob is not None and not 0.0 < prob < 1.0:
        raise ValueError(f"prob must lie strictly between 0 and 1, got {prob!r}.")
    names = drawing.as_names("labels", labels, 1 if isinstance(labels, str) else 2)
    if approximation is not None and len(names) < 2:
        raise ValueError(f"labels must name both, exact and approximation; got {labels!r}.")
    marks = drawing.labels_at(y, x[:, None], X_data)
    probs = as_probabilities(None if prob is None else [0.5 - 0.5 * prob, 0.5, 0.5 + 0.5 * prob])
    order = np.argsort(x, kind="stable")
    sources = {"exact": exact} | ({} if approximation is None else {"approximation": approximation})
    found = []
    for name, source in sources.items():
        marginals = as_marginals(source, var=var, group=group)
        drawing.refuse_other_size(x, name, marginals.size)
        found.append(marginals.quantile(probs)[:, order])

    ax = drawing.axes_for(ax, figsize)
    first, second = drawing.colours(2)
    ax.axhline(0.0, **drawing.REFERENCE)
    low, median, high = found[0]
    ax.fill_between(x[order], low, high, color=first, alpha=0.3, lw=0)
    ax.plot(x[order], median, color=first, lw=2, label=names[0])
    for i, quantiles in enumerate(found[1] if len(found) > 1 else []):
        label = names[1] if i == 1 else None  # one entry for the three
        ax.plot(x[order], quantiles, "--", color=second, lw=2.0 if i == 1 else 1.5, label=label)
    if marks is not None:
        drawing.mark_on_edges(ax, marks)
    ax.set(xlabel=column, ylabel=f"{var}: median, {100 * (probs[2] - probs[0]):.3g} % interval")
    drawing.legend_on_top(ax, top=1.0 if marks is None else drawing.BELOW_TICKS)
    return ax


# What a Skew Gaussian process believes before it has seen data.

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
    x, column = drawing.as_line("X", X)
    count = as_count("draws", draws)
    x = np.sort(x)
    graph = process_at(gp, [x[:, None]], _JITTER)
    sun = SUN.from_cross_cov(*(compile_at([], part, values)() for part in graph))
    drawn = sun.sample(count, random_seed)

    ax = drawing.axes_for(ax, figsize)
    first, second = drawing.colours(2)
    ax.axhline(0.0, **drawing.REFERENCE)
    lines = ax.plot(x, drawn.T, color=first, alpha=0.6, lw=1)
    lines[0].set_label("draws")
    ax.plot(x, sun.mean(), color=second, lw=2.5, label="mean")
    if gp.n_pseudo_points:
        _mark_pseudo_points(ax, gp, dict(point or {}))
    ax.set(xlabel=column, ylabel="f")
    drawing.legend_on_top(ax, ncols=2)
    return ax


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


# Forecasts of an approximated prior against those of the kernel as it is.

_NEEDED = ("p_exact", "p", "f_mean_exact", "f_mean", "log_evidence_exact", "log_evidence")
_MARKERS = "os"


def plot_prior_report(
    report: Any, *, ax: Axes | None = None, figsize: tuple[float, float] | None = None
) -> Axes:
    """Forecasts by the kernel as it is and by its approximation, given parts of the data.

    A marker for each row that was left out: the probability of a label 1, or, where there are no
    labels, the posterior mean of f. On the diagonal the approximation changes nothing. The legend
    has the difference of the log evidences.

    Parameters
    ----------
    report : Dataset
        Result of `SkewGPPosterior.prior_report`.
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
        For another object.
    KeyError
        For a Dataset that lacks a variable.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> kernel = 4.0 * pm.gp.cov.ExpQuad(1, ls=1.0)
    >>> gp = sg.SkewGP(cov_func=kernel, approximation=sg.approximations.Inducing(12))
    >>> X = np.linspace(0, 6, 60)
    >>> report = gp.posterior(X, np.sin(X) > 0).prior_report()
    >>> ax = sg.plot_prior_report(report)
    >>> ax.get_xlabel()
    'probability, kernel as it is'
    """
    drawing.refuse_other_than("report", report, _NEEDED, "posterior.prior_report()")
    labels = bool(np.isfinite(report["p"]).all())
    stem, what = ("p", "probability") if labels else ("f_mean", "mean of f")
    exact, found = report[f"{stem}_exact"], report[stem]

    ax = drawing.axes_for(ax, figsize)
    both = np.concatenate([exact.to_numpy().ravel(), found.to_numpy().ravel()])
    ends = [0.0, 1.0] if labels else [both.min(), both.max()]
    ax.plot(ends, ends, label="_equal", **drawing.REFERENCE)
    parts = report["part"].values
    for part, colour, marker in zip(parts, drawing.colours(len(parts)), _MARKERS, strict=False):
        own = report.sel(part=part)
        off = float(own["log_evidence"] - own["log_evidence_exact"])
        ax.plot(
            exact.sel(part=part),
            found.sel(part=part),
            marker,
            color=colour,
            ms=3.5,
            alpha=0.7,
            label=f"{part}: log evidence {off:+.2f}",
        )
    ax.set_xlabel(f"{what}, kernel as it is")
    ax.set_ylabel(f"{what}, approximated")
    drawing.legend_with_frame(ax)
    return ax


# How sure a predictive probability is of itself.


def plot_second_order(
    p_mean: Any,
    p_sd: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    var: str = "p",
    group: str = "predictions",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    r"""Mean of the predictive probability against its standard deviation, right and wrong apart.

    For a latent function f, :math:`p = \Phi(f)` is uncertain itself: second-order uncertainty. A
    model that knows what it does not know errs where p is near 1/2, or uncertain, or both [1]_.

    Parameters
    ----------
    p_mean : array_like, shape (t,), or DataTree
        Posterior means of p; or the result of ``posterior.predict``, whose draws of p give mean and
        standard deviation.
    p_sd : array_like, shape (t,), optional
        Posterior standard deviations of p; not with a DataTree.
    y : array_like, shape (t,), optional
        True labels, 0 and 1. The label 1 is predicted where the mean exceeds 1/2.
    var, group : str, default "p", "predictions"
        Where a DataTree has the draws of p.
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
        For lengths that differ, means outside [0, 1], negative standard deviations, both of a
        DataTree and `p_sd`.
    KeyError
        When the DataTree has not the group, or the group not the variable.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       doi:10.1007/s10994-020-05906-3, arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior(np.array([-1.0, 0.0, 1.0]), [0, 0, 1])
    >>> predicted = posterior.predict([-0.5, 0.9], random_seed=1)
    >>> ax = sg.plot_second_order(predicted, y=[0, 0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['right (1)', 'wrong (1)']
    """
    mean, sd = _moments(p_mean, p_sd, var, group)
    right = None if y is None else (mean > 0.5) == (as_labels(y, mean.size) == 1)
    ax = drawing.axes_for(ax, figsize)
    first, second = drawing.colours(2)
    ax.axvline(0.5, **drawing.REFERENCE)
    plain: dict[str, Any] = {"s": 18, "marker": "o", "color": first, "alpha": 0.7, "lw": 0}
    # Few, and what the plot is about: larger, and on top.
    wrong = {"s": 45, "marker": "X", "color": second, "ec": "w", "lw": 0.6, "zorder": 3}
    if right is None:
        ax.scatter(mean, sd, **plain)
    else:
        for name, chosen, style in (("right", right, plain), ("wrong", ~right, wrong)):
            ax.scatter(mean[chosen], sd[chosen], label=f"{name} ({chosen.sum()})", **style)
        drawing.legend_on_top(ax)
    ax.set(xlim=(-0.02, 1.02), xlabel=f"mean of {var}", ylabel=f"standard deviation of {var}")
    return ax


def _moments(
    p_mean: Any, p_sd: ArrayLike | None, var: str, group: str
) -> tuple[FloatArray, FloatArray]:
    if isinstance(p_mean, DataTree):
        if p_sd is not None:
            raise ValueError("p_sd comes from the DataTree's draws: leave it out, or give arrays.")
        drawn = as_marginals(p_mean, var=var, group=group).moments
        mean, sd = drawn.mean, drawn.sd
    elif p_sd is None:
        raise ValueError(
            "p_sd is missing: give the standard deviations of p, or as p_mean the DataTree that "
            "posterior.predict returns."
        )
    else:
        mean = as_vector("p_mean", p_mean)
        sd = as_vector("p_sd", np.atleast_1d(as_real_array("p_sd", p_sd)), mean.size)
    if not mean.size:
        raise ValueError("p_mean is empty: there is nothing to plot.")
    if (mean < 0).any() or (mean > 1).any() or (sd < 0).any():
        raise ValueError(
            "p_mean must lie between 0 and 1 and p_sd must not be negative, got ranges "
            f"[{mean.min():.3g}, {mean.max():.3g}] and [{sd.min():.3g}, {sd.max():.3g}]."
        )
    return mean, sd


# Where a posterior is skewed, and how well bands cover.

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
    drawing.refuse_other_than("skewness", skewness, ("skewness",), "posterior_skewness")
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

_NEEDED_OF_COVERAGE = ("coverage", "mean", "mean_se", "prob")
_COVERAGE_MARKERS = "osD^v"
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
        which = f"coverage[{name!r}]" if name else "coverage"
        drawing.refuse_other_than(which, each, _NEEDED_OF_COVERAGE, "coverage")

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
            fmt=_COVERAGE_MARKERS[i % len(_COVERAGE_MARKERS)],
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
