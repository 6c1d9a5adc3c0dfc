"""A latent function along one input: exact posterior over an approximation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._diagnostics.marginals import as_marginals
from pymc_skewgp._plots.arguments import as_line, as_names, refuse_other_size
from pymc_skewgp._plots.axes import REFERENCE, axes_for, colours, legend_on_top
from pymc_skewgp._plots.label_marks import BELOW_TICKS, labels_at, mark_on_edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_latent_band(
    X: Any,
    exact: Any,
    approximation: Any = None,
    *,
    prob: float = 0.89,
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
    prob : float, default 0.89
        Probability of the intervals.
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
    x, column = as_line("X", X)
    if not 0.0 < prob < 1.0:
        raise ValueError(f"prob must lie strictly between 0 and 1, got {prob!r}.")
    names = as_names("labels", labels, 1 if isinstance(labels, str) else 2)
    if approximation is not None and len(names) < 2:
        raise ValueError(f"labels must name both, exact and approximation; got {labels!r}.")
    marks = labels_at(y, x[:, None], X_data)
    probs = [0.5 - 0.5 * prob, 0.5, 0.5 + 0.5 * prob]
    order = np.argsort(x, kind="stable")
    sources = {"exact": exact} | ({} if approximation is None else {"approximation": approximation})
    found = []
    for name, source in sources.items():
        marginals = as_marginals(source, var=var, group=group)
        refuse_other_size(x, name, marginals.size)
        found.append(marginals.quantile(probs)[:, order])

    ax = axes_for(ax, figsize)
    first, second = colours(2)
    ax.axhline(0.0, **REFERENCE)
    low, median, high = found[0]
    ax.fill_between(x[order], low, high, color=first, alpha=0.3, lw=0)
    ax.plot(x[order], median, color=first, lw=2, label=names[0])
    for i, quantiles in enumerate(found[1] if len(found) > 1 else []):
        label = names[1] if i == 1 else None  # one entry for the three
        ax.plot(x[order], quantiles, "--", color=second, lw=2.0 if i == 1 else 1.5, label=label)
    if marks is not None:
        mark_on_edges(ax, marks)
    ax.set(xlabel=column, ylabel=f"{var}: median, {100 * prob:.3g} % interval")
    legend_on_top(ax, top=1.0 if marks is None else BELOW_TICKS)
    return ax
