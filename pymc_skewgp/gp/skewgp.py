"""`SkewGP`: a Gaussian process that knows its sign at a few points, used like ``pm.gp.Latent``."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_skewgp.gp.functions import ArrayCovariance, ArrayMean, Point
from pymc_skewgp.inference.arguments import as_inputs, as_phase
from pymc_skewgp.kernels.truncated import Seed
from pymc_skewgp.kernels.validation import as_vector
from pymc_skewgp.posterior import SkewGPPosterior


class SkewGP:
    r"""Skew Gaussian process.

    A Gaussian process :math:`f \sim GP(m, k)` conditioned on

    .. math:: \ell_j \{f(r_j) - m(r_j)\} / \mathrm{sd}(r_j) + \gamma_j > 0, \qquad j = 1, \ldots, s,

    for independent, equally distributed f at the pseudo-points :math:`r_j`: its finite marginals
    are unified skew-normal. Without pseudo-points it is the Gaussian process itself.

    Parameters
    ----------
    mean_func : pymc.gp.mean.Mean, optional
        Mean function. Default zero.
    cov_func : pymc.gp.cov.Covariance
        Covariance function.
    pseudo_points : array_like, shape (s, d), optional
        Inputs at which the sign is known. Default none.
    phase : array_like, shape (s,), optional
        +1 or -1 for each. Default all +1.
    truncation : float or array_like, shape (s,), default 0
        :math:`\gamma`, in prior standard deviations: 0 fixes the sign, large values fix nothing.

    Raises
    ------
    TypeError
        When `cov_func` is not a ``pm.gp.cov`` object, or `mean_func` not a ``pm.gp.mean`` one.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       doi:10.1007/s10994-020-05906-3, arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp import SkewGP
    >>> gp = SkewGP(cov_func=2.0**2 * pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[[3.0]])
    >>> posterior = gp.posterior(np.array([[-2.0], [-1.0], [1.0]]), [0, 0, 1])
    >>> print(f"log evidence {posterior.log_marginal_likelihood.value:.2f}")
    log evidence -1.78
    """

    def __init__(
        self,
        *,
        mean_func: Any = None,
        cov_func: Any,
        pseudo_points: ArrayLike | None = None,
        phase: ArrayLike | None = None,
        truncation: ArrayLike = 0.0,
    ) -> None:
        if not isinstance(cov_func, pm.gp.cov.BaseCovariance):
            raise TypeError(
                f"cov_func must be a pm.gp.cov object, got {type(cov_func).__name__}; a function "
                "of arrays goes to SkewGPPosterior."
            )
        if mean_func is not None and not isinstance(mean_func, pm.gp.mean.Mean):
            raise TypeError(
                f"mean_func must be a pm.gp.mean object, got {type(mean_func).__name__}; for a "
                "number use pm.gp.mean.Constant."
            )
        if pseudo_points is not None:
            points = as_inputs("pseudo_points", pseudo_points)
            as_phase(phase, points.shape[0])
            as_vector("truncation", truncation, points.shape[0])
        elif phase is not None or np.any(truncation):
            raise ValueError("phase and truncation belong to pseudo_points: give those as well.")
        self.mean_func = pm.gp.mean.Zero() if mean_func is None else mean_func
        self.cov_func = cov_func
        self.pseudo_points = pseudo_points
        self.phase = phase
        self.truncation = truncation

    def __repr__(self) -> str:
        known = 0 if self.pseudo_points is None else len(as_inputs("", self.pseudo_points))
        return (
            f"SkewGP(cov_func={type(self.cov_func).__name__}, "
            f"mean_func={type(self.mean_func).__name__}, n_pseudo_points={known})"
        )

    def posterior(
        self,
        X: ArrayLike,
        y: ArrayLike,
        point: Point | None = None,
        *,
        n_draws: int = 1024,
        random_seed: Seed = 0,
    ) -> SkewGPPosterior:
        """Exact posterior given binary labels under a probit likelihood.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Inputs.
        y : array_like, shape (n,)
            Labels, 0 and 1 (or -1 and 1).
        point : mapping, optional
            Values, by name, of the random variables among the hyperparameters.
        n_draws : int, default 1024
            Weighted draws behind the evidence and the predictions.
        random_seed : int, Generator, SeedSequence or None, default 0
            Their seed.

        Returns
        -------
        SkewGPPosterior

        Raises
        ------
        ValueError
            When `X` has not the number of columns that `cov_func` was built for, when `point`
            lacks a value, and as `SkewGPPosterior`.
        """
        if point is not None and not isinstance(point, Mapping):
            raise TypeError(f"point must map names to values, got {type(point).__name__}.")
        inputs = as_inputs("X", X)
        wanted = getattr(self.cov_func, "input_dim", np.inf)  # a constant has none
        if np.isfinite(wanted) and inputs.shape[1] != wanted:
            raise ValueError(
                f"X has {inputs.shape[1]} column(s), but cov_func was built with "
                f"input_dim={wanted:g}: give that many, and choose among them with active_dims."
            )
        return SkewGPPosterior(
            inputs,
            y,
            cov_func=ArrayCovariance(self.cov_func, point),
            mean_func=ArrayMean(self.mean_func, point),
            pseudo_points=self.pseudo_points,
            phase=self.phase,
            truncation=self.truncation,
            n_draws=n_draws,
            random_seed=random_seed,
        )
