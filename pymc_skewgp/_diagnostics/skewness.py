"""How skewed the posterior of a latent function is, point by point."""

from typing import Any

from xarray import Dataset, DataTree

from pymc_skewgp._deprecation import formerly_positional
from pymc_skewgp._diagnostics.marginals import labelled_marginals


@formerly_positional("var")
def posterior_skewness(source: Any, *, var: str = "f", group: str = "posterior") -> Dataset:
    r"""Skewness of a latent function at each point, with its Monte Carlo standard error.

    .. math:: \mathrm{SS}(x) = \frac{\mathrm E[(f(x) - \mathrm E f(x))^3]}
        {\mathrm E[(f(x) - \mathrm E f(x))^2]^{3/2}}

    0 for every Gaussian approximation; the sign says which tail is the longer one. From a
    posterior it is that of the exact mixture of Gaussians over the draws of u, less noisy than the
    sample skewness of as many draws of f.

    Parameters
    ----------
    source : DataTree, SkewGPPosterior or LatentMarginals
        Draws, as ``pm.sample`` or ``posterior.sample`` return them; a posterior, at its data (noise
        of the kernel included); or ``posterior.marginals(Xnew)``, at new points.
    var : str, default "f"
        The latent variable of a DataTree.
    group : str, default "posterior"
        Its group; "predictions" for new points.

    Returns
    -------
    Dataset
        ``skewness`` and its Monte Carlo standard error ``skewness_se`` over the dimensions of the
        variable, with its coordinates; for one more release also ``mcse``, the old name of that.

    Raises
    ------
    KeyError
        When the DataTree has not the group, or the group not the variable.
    ValueError
        Without draws, or for draws that are not finite.
    TypeError
        For other objects.

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
    >>> posterior = gp.posterior(np.array([[0.0], [1.0], [3.0]]), [1, 1, 1])
    >>> found = sg.posterior_skewness(posterior)
    >>> bool((found["skewness"] > 5 * found["skewness_se"]).all())
    True
    """
    points = labelled_marginals(source, var=var, group=group)
    if group != "posterior" and not isinstance(source, DataTree):
        raise ValueError(
            f"group={group!r} names a group of a DataTree, got a {type(source).__name__}: for new "
            "points give posterior.marginals(Xnew)."
        )
    marginals = points.marginals
    error = marginals.moment_errors.skewness
    return points.dataset(skewness=marginals.moments.skewness, skewness_se=error, mcse=error)
