"""Forecasts of an approximated prior against those of the kernel as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from xarray import Dataset

from pymc_skewgp._plots.axes import REFERENCE, axes_for, colours, legend_with_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

    ax = axes_for(ax, figsize)
    both = np.concatenate([exact.to_numpy().ravel(), found.to_numpy().ravel()])
    ends = [0.0, 1.0] if labels else [both.min(), both.max()]
    ax.plot(ends, ends, label="_equal", **REFERENCE)
    parts = report["part"].values
    for part, colour, marker in zip(parts, colours(len(parts)), _MARKERS, strict=False):
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
    legend_with_frame(ax)
    return ax
