"""`SkewGP`: a Gaussian process whose sign is known at a few points, used like ``pm.gp.Latent``."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._deprecation import formerly_positional
from pymc_skewgp._model.gp.distribution_graph import Distribution
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._model.gp.functions import Point, as_point
from pymc_skewgp._model.gp.integrated_out import IntegratedOut
from pymc_skewgp._model.gp.process import (
    as_input_graph,
    process_at,
    refuse_unknown_options,
)
from pymc_skewgp._model.gp.variables import (
    FunctionAt,
    as_function_at,
    function_here,
    process_given,
    skew_normal,
    skew_normal_from_white,
)
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.posterior import DataOfOneKind, SkewGPPosterior
from pymc_skewgp._validation import Seed

_JITTER = 1e-6  # as pm.gp has it


class SkewGP(IntegratedOut):
    r"""Skew Gaussian process.

    A Gaussian process :math:`f \sim GP(m, k)` conditioned on

    .. math:: \ell_j \{f(r_j) - m(r_j)\} / \mathrm{sd}(r_j) + \gamma_j > 0, \qquad j = 1, \ldots, s,

    that is, given its sign (less the mean) at the pseudo-points :math:`r_j`. Its finite marginals
    are unified skew-normal. Without pseudo-points it is the Gaussian process itself.

    Parameters
    ----------
    mean_func : pymc.gp.mean.Mean, optional
        Mean function. Default zero.
    cov_func : pymc.gp.cov.Covariance
        Covariance function.
    pseudo_points : array_like or tensor, shape (s, d), optional
        Inputs at which the sign is known. Default none.
    phase : array_like or tensor, shape (s,), optional
        +1 or -1 for each. Default all +1.
    truncation : float, array_like or tensor, shape (s,), default 0
        :math:`\gamma`, in prior standard deviations: 0 fixes the sign, large values fix nothing.
    approximation : "auto", None or one of ``pymc_skewgp.approximations``, default "auto"
        By which f has finite rank in `posterior` and `find_hyperparameters`, so that nothing is
        n x n: ``Inducing(300)``, ``PivotedCholesky(300)``, ``HSGP(20)``. None is the kernel as it
        is. "auto" is that up to 5000 rows, or different rows. Above it is ``Inducing(300)``, or of
        600 or 1200 points, where that changes the log evidence by .1 nats at most, which is
        estimated; else for up to 8000 values with Gaussian noise the kernel as it is; else
        `posterior` stops, with the figures and the choices. What learns hyperparameters goes on
        with 300 points, and warns with `PriorApproximationWarning`.
        Variables of a model (`prior`, `conditional`, `marginal_likelihood`, `sample_latent`) have
        the kernel as it is and refuse approximations that were asked for.

    Notes
    -----
    All three may be random variables of the model, to be sampled or optimised with the kernel's; a
    phase is ``2 * pm.Bernoulli("positive", 0.5, shape=s) - 1``.

    ``pm.gp.cov.WhiteNoise`` in the kernel is noise of f that each row has for itself, as PyMC has
    it: a row of the data, a new point and a pseudo-point share none, even at equal inputs.

    Raises
    ------
    TypeError
        When `cov_func` is not a ``pm.gp.cov`` object, or `mean_func` not a ``pm.gp.mean`` one.
    ApproximationError
        When `approximation` is none; from the methods that make variables of a model, when one was
        asked for; from `posterior` where "auto" finds none that is near enough to the kernel.

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

    def prior(
        self,
        name: str,
        X: Any,
        *,
        reparameterize: bool = False,
        jitter: float = _JITTER,
        **kwargs: Any,
    ) -> TensorVariable:
        r"""Latent function at `X`, as a variable of the model in context.

        .. math:: f \sim \mathrm{SUN}(m(X), K(X, X), \Delta, \gamma, \Gamma), \quad
            \Gamma = L \bar K(R, R) L, \quad C = D\Delta = K(X, R) \mathrm{sd}(R)^{-1} L

        Parameters
        ----------
        name : str
            Name of the variable.
        X : array_like or tensor, shape (n, d)
            Inputs; ``pm.Data`` is allowed.
        reparameterize : bool, default False
            False: one `UnifiedSkewNormal` variable. When all that depends on it are probit
            observations, ``pm.sample`` draws it exactly (`ConjugateStep`). True: a function of
            white noise ``{name}_rotated_`` and, with pseudo-points, of a truncated Gaussian
            ``{name}_latent_``, which NUTS samples well under any other likelihood.
            (``pm.gp.Latent`` has True as its default.)
        jitter : float, default 1e-6
            Added to the variances, for a Cholesky factorisation to succeed.
        **kwargs
            Passed on to the variable: ``dims``, ...

        Returns
        -------
        TensorVariable

        Raises
        ------
        ValueError
            When `X` has not the number of columns that `cov_func` was built for.
        ApproximationError
            For a SkewGP with an approximation.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> from pymc_skewgp import SkewGP
        >>> X = np.linspace(-2, 2, 5)[:, None]
        >>> with pm.Model():
        ...     gp = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[[0.5]])
        ...     f = gp.prior("f", X)
        >>> pm.draw(f, random_seed=1).shape
        (5,)
        """
        refuse_unknown_options(kwargs)
        self.refuse_approximation("prior")
        X = as_input_graph("X", X, self.n_columns)
        sun = process_at(self, [X], jitter)
        variable = skew_normal_from_white if reparameterize else skew_normal
        f = variable(name, sun, **kwargs)
        self._functions[f.name] = FunctionAt(X, f, jitter)
        return f

    def conditional(
        self,
        name: str,
        Xnew: Any,
        given: Mapping[str, Any] | None = None,
        *,
        jitter: float = _JITTER,
        **kwargs: Any,
    ) -> TensorVariable:
        r"""Latent function at new inputs given f at those of `prior`: again unified skew-normal.

        Parameters
        ----------
        name : str
            Name of the variable.
        Xnew : array_like or tensor, shape (t, d)
            New inputs, with white noise of their own, also where they equal those of `prior`.
        given : mapping, optional
            ``{"X": ..., "f": ...}`` in place of those of `prior`; needed where that was called
            more than once in the model.
        jitter : float, default 1e-6
            Added to the variances at both sets of inputs; the same as in `prior`.
        **kwargs
            Passed on to the variable: ``dims``, ...

        Returns
        -------
        TensorVariable

        Raises
        ------
        ValueError
            Without `prior` before it, or after several, and without `given`; for keys other than X
            and f.
        ApproximationError
            For a SkewGP with an approximation.
        """
        refuse_unknown_options(kwargs)
        self.refuse_approximation("conditional")
        known = function_here(self._functions) if given is None else None
        if given is not None:
            known = as_function_at(given, self.n_columns, jitter)
        if known is None:
            raise ValueError(
                "conditional needs the latent function: call prior(name, X) first or pass "
                "given={'X': ..., 'f': ...}. After marginal_likelihood, whose latent function is "
                "integrated out, use sample_latent(idata, Xnew=...)."
            )
        Xnew = as_input_graph("Xnew", Xnew, self.n_columns)
        return skew_normal(name, process_given(self, known, known.f, Xnew, jitter), **kwargs)

    @formerly_positional("point")
    def posterior(
        self,
        X: ArrayLike | Sequence[DataOfOneKind] | Mapping[str, DataOfOneKind],
        y: ArrayLike | None = None,
        *,
        likelihood: Likelihood | Distribution | None = None,
        point: Point | None = None,
        coregion: Any = None,
        weights: ArrayLike | None = None,
        n_draws: int = 1024,
        random_seed: Seed = 0,
    ) -> SkewGPPosterior:
        """Exact posterior given data, by default binary labels under a probit likelihood.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Inputs. For data of several kinds on the same function: a list of tuples (X, y,
            likelihood), or a dict of them by name, without `y` and `likelihood`.
        y : array_like, shape (n,)
            Labels, 0 and 1 (or -1 and 1), or what `likelihood` asks for.
        point : mapping, optional
            Values, by name, of the random variables among the hyperparameters. Gaussian
            coefficients of a mean that is affine in them may be left out: they are integrated out,
            as a part of the kernel (without pseudo-points, and for data of one function).
        likelihood : optional
            Of ``pymc_skewgp.likelihoods``, default ``BernoulliProbit()``. Its parameters may be
            random variables, whose values `point` has. Or a function from a vector of predictors
            to an unnamed PyMC distribution of as many independent values, such as
            ``lambda eta: pm.Poisson.dist(pm.math.exp(eta))``; it may use constants, one for all
            rows of X or one for each.
        coregion : array_like or tensor, shape (K, K), optional
            B, for a likelihood of K functions: the covariance of functions k and l is B_kl times
            the kernel. Default the identity.
        weights : array_like of int, shape (n,), optional
            How often each observation was made: whole numbers, 0 to leave one out.
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
        ApproximationError
            For more rows than the kernel as it is takes by itself, where no approximated prior that
            is tried is near enough to it.
        TypeError
            When `point` is no mapping, or `likelihood` returns no PyMC distribution.
        NotSitesError
            When the distribution of `likelihood` does not factorise over the predictors, or has no
            log probability in PyMC.
        """
        options = {"coregion": coregion, "weights": weights}
        options |= {"n_draws": n_draws, "random_seed": random_seed}
        return posterior_of(self, X, y, likelihood, as_point(point), **options)
