"""Pictures of functions: a band along one input, prior draws, prior reports, second order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from xarray import Dataset, DataTree

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
    if not isinstance(report, Dataset):
        raise TypeError(
            f"report must be a Dataset from posterior.prior_report(), got {type(report).__name__}."
        )
    missing = [name for name in _NEEDED if name not in report]
    if missing:
        raise KeyError(f"report lacks {', '.join(missing)}: make it with posterior.prior_report().")
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
    ax.set(
        xlim=(-0.02, 1.02),
        xlabel=f"mean of {var}",
        ylabel=f"standard deviation of {var}",
    )
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
