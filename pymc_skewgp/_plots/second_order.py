"""How sure a predictive probability is of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._diagnostics.marginals import as_marginals
from pymc_skewgp._observations.arguments import as_labels
from pymc_skewgp._plots.axes import REFERENCE, axes_for, colours, legend_on_top
from pymc_skewgp._validation import FloatArray, as_real_array, as_vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    ax = axes_for(ax, figsize)
    first, second = colours(2)
    ax.axvline(0.5, **REFERENCE)
    if right is None:
        ax.scatter(mean, sd, s=18, marker="o", color=first, alpha=0.7, lw=0)
    else:
        ax.scatter(
            mean[right],
            sd[right],
            s=18,
            marker="o",
            color=first,
            alpha=0.7,
            lw=0,
            label=f"right ({right.sum()})",
        )
        # Few, and what the plot is about: larger, and on top.
        ax.scatter(
            mean[~right],
            sd[~right],
            s=45,
            marker="X",
            color=second,
            ec="w",
            lw=0.6,
            zorder=3,
            label=f"wrong ({(~right).sum()})",
        )
        legend_on_top(ax)
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
