"""`SkewGP`: a Gaussian process whose sign is known at a few points, used like ``pm.gp.Latent``."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Literal, NoReturn, Self

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.tensor.variable import TensorVariable
from xarray import DataTree

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._limits import progress
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.gp import latent_draws, process, variables
from pymc_skewgp._model.gp.distribution_graph import Distribution
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._model.gp.functions import Point, as_point
from pymc_skewgp._model.ops.densities import sun_given
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.automatic import as_approximation
from pymc_skewgp._posterior.posterior import DataOfOneKind, SkewGPPosterior
from pymc_skewgp._validation import Seed, as_generator

_JITTER = 1e-6  # as pm.gp has it


class SkewGP:
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
        n x n: ``Inducing(300)``, ``PivotedCholesky(300)``, ``HSGP(20)``; or by which its
        precision is sparse: ``Vecchia(20)``. None is the kernel as it is. "auto" is
        that up to 5000 rows, or different rows. Above it is ``Inducing(300)``, or of
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

    def __init__(
        self,
        *,
        mean_func: Any = None,
        cov_func: Any,
        pseudo_points: Any = None,
        phase: Any = None,
        truncation: Any = 0.0,
        approximation: Any = "auto",
    ) -> None:
        mean_func = pm.gp.mean.Zero() if mean_func is None else mean_func
        if not isinstance(cov_func, pm.gp.cov.BaseCovariance):
            raise TypeError(
                f"cov_func must be a pm.gp.cov object, got {type(cov_func).__name__}; a function "
                "of arrays goes to SkewGPPosterior."
            )
        if not isinstance(mean_func, pm.gp.mean.Mean):
            raise TypeError(
                f"mean_func must be a pm.gp.mean object, got {type(mean_func).__name__}; for a "
                "number use pm.gp.mean.Constant."
            )
        self.mean_func = mean_func
        self.cov_func = cov_func
        self.pseudo_points, self.phase, self.truncation = process.as_pseudo_points(
            pseudo_points, phase, truncation, self.n_columns
        )
        self.approximation = as_approximation(approximation)
        # By name: latent functions that `prior` made, and data of `marginal_likelihood`.
        self._functions: dict[str, Any] = {}
        self._data: dict[str, Any] = {}
        # Where `find_hyperparameters` looks for the priors of what the kernel depends on.
        self.model = pm.Model.get_context(error_if_none=False)

    def __getstate__(self) -> bytes:
        # PyMC's random variables, of which a kernel may be made, are not for pickle alone.
        state: bytes = cloudpickle.dumps(self.__dict__)
        return state

    def __setstate__(self, state: bytes) -> None:
        self.__dict__.update(cloudpickle.loads(state))

    def __copy__(self) -> Self:  # with the variables themselves
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        return found

    @property
    def n_columns(self) -> float:
        """Columns that inputs must have: infinity where the kernel takes any number."""
        return getattr(self.cov_func, "input_dim", np.inf)  # a constant has none

    @property
    def n_pseudo_points(self) -> int:
        """Number s of pseudo-points."""
        return 0 if self.pseudo_points is None else process.shape_now(self.pseudo_points)[0] or 0

    def __repr__(self) -> str:
        shown = "" if self.approximation == "auto" else f", approximation={self.approximation!r}"
        return (
            f"SkewGP(cov_func={type(self.cov_func).__name__}, "
            f"mean_func={type(self.mean_func).__name__}, n_pseudo_points={self.n_pseudo_points}"
            f"{shown})"
        )

    def approximated_by(self, approximation: Any) -> Self:
        """The same with another approximation."""
        found = copy(self)
        found.approximation = as_approximation(approximation)
        return found

    def refuse_approximation(self, method: str) -> None:
        """Raise where a method knows no approximations and one was asked for.

        Raises
        ------
        ApproximationError
        """
        if self.approximation not in (None, "auto"):
            raise ApproximationError(
                f"{method} takes the kernel as it is, and this SkewGP has "
                f"approximation={self.approximation!r}: use posterior or "
                "find_hyperparameters(gp, X, y), leave the approximation out, or take pm.gp.HSGP "
                "for a model."
            )

    def __add__(self, other: object) -> NoReturn:
        """Raise: of a sum of SkewGPs the sign is known nowhere."""
        raise TypeError(
            "SkewGPs are not additive: add the covariance functions, as in "
            "SkewGP(cov_func=cov1 + cov2, pseudo_points=...), whose pseudo-points then are about "
            "the sum."
        )

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
        process.refuse_unknown_options(kwargs)
        self.refuse_approximation("prior")
        X = process.as_input_graph("X", X, self.n_columns)
        sun = process.process_at(self, [X], jitter)
        if reparameterize:
            f = variables.skew_normal_from_white(name, sun, **kwargs)
        else:
            f = UnifiedSkewNormal(name, **sun._asdict(), **kwargs)
        self._functions[f.name] = variables.FunctionAt(X, f, jitter)
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
        process.refuse_unknown_options(kwargs)
        self.refuse_approximation("conditional")
        known = variables.function_here(self._functions) if given is None else None
        if given is not None:
            known = variables.as_function_at(given, self.n_columns, jitter)
        if known is None:
            raise ValueError(
                "conditional needs the latent function: call prior(name, X) first or pass "
                "given={'X': ..., 'f': ...}. After marginal_likelihood, whose latent function is "
                "integrated out, use sg.predict(idata, Xnew, gp=gp)."
            )
        Xnew = process.as_input_graph("Xnew", Xnew, self.n_columns)
        joint = process.process_at(self, [known.X, Xnew], jitter)
        f = pt.specify_shape(known.f, pt.as_tensor_variable(known.X).shape[:1])
        return UnifiedSkewNormal(name, **sun_given(joint, f)._asdict(), **kwargs)

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
        progressbar: bool = True,
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
        progressbar : bool, default True
            Show progress of what takes more than two seconds.

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
        options |= {"n_draws": n_draws, "random_seed": random_seed, "progressbar": progressbar}
        return posterior_of(self, X, y, likelihood, as_point(point), **options)

    def marginal_likelihood(
        self,
        name: str,
        X: Any,
        y: Any = None,
        *,
        likelihood: Likelihood | Distribution | None = None,
        coregion: Any = None,
        method: Literal["twisted", "ep"] = "twisted",
        n_draws: int = 256,
        jitter: float = _JITTER,
        **kwargs: Any,
    ) -> TensorVariable:
        r"""Data with the latent functions integrated out, as an observed variable.

        .. math:: p(y) = N(y_P; m_P, G_{PP}) \, P(l < u < h \mid y_P) / P(\text{signs})

        P are rows where a value was seen, u the rows of which limits are known, and the signs are
        those at pseudo-points; of labels it is :math:`\Phi_{s+n}(\tilde\gamma; \tilde\Gamma) /
        \Phi_s(\gamma; \Gamma)`. What is left for NUTS are the hyperparameters, with those of the
        likelihood; `sample_latent` then draws f for each of its draws. Coefficients of the mean are
        among them; `find_hyperparameters` integrates them out, and `prior` lets ``pm.sample`` draw
        them exactly, together with f.

        Parameters
        ----------
        name : str
            Name of the variable.
        X : array_like or ``pm.Data``, shape (n, d)
            Inputs. For data of several kinds on the same functions: a list of tuples (X, y,
            likelihood), or a dict of them by name, without `y` and `likelihood`. The variable then
            is a vector of all their numbers, points and intervals before others.
        y : array_like, shape (n,)
            Labels, 0 and 1, which may be ``pm.Data``; or what `likelihood` asks for.
        likelihood : optional
            Of ``pymc_skewgp.likelihoods``; default ``BernoulliProbit()``. Its ``sigma``,
            ``cutpoints``, ``threshold``, ``rho``, ``lower`` and ``upper``, and those of likelihoods
            such as ``NegativeBinomial`` or ``StudentT``, may be random variables. Or a function
            from predictors to a PyMC distribution, which may depend on random variables.
        coregion : array_like or tensor, shape (K, K), optional
            B, for a likelihood of K functions: the covariance of functions k and l is B_kl times
            the kernel. It may be random. Default the identity.
        method : {"twisted", "ep"}, default "twisted"
            "twisted": unbiased but for Monte Carlo error, from `n_draws` fixed quasi-random
            points, so that the density is a deterministic function; for data that are no rows
            (points, intervals), such as counts, by mirrored pairs from EP's Gaussian. "ep":
            expectation propagation, with fewer operations, off by hundredths of a nat, more in
            steep cases. For up to 400 intervals of a process without pseudo-points numba compiles
            all of it: at 100 rows some twenty times faster, and chains of nutpie do not wait for
            one another.
        n_draws : int, default 256
            Points for "twisted". The error falls faster than their square root.
        jitter : float, default 1e-6
            Added to the variances, but for those that a ``Constraint`` limits.
        **kwargs
            Passed on to the variable: ``dims``, ...

        Returns
        -------
        TensorVariable

        Raises
        ------
        ValueError, TypeError
            Data that do not fit, in X or y, as `SkewGP.posterior`; y as ``pm.Data`` under another
            likelihood than the default.
        ApproximationError
            For a SkewGP with an approximation: a model has the kernel as it is.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> import pymc_skewgp as sg
        >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 0.4, 0.9])
        >>> with pm.Model() as model:
        ...     gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1)))
        ...     tobit = sg.likelihoods.CensoredGaussian(pm.HalfNormal("sigma"), lower=0.0)
        ...     seen = gp.marginal_likelihood("y", X, y, likelihood=tobit)
        >>> [rv.name for rv in model.free_RVs]
        ['ls', 'sigma']
        """
        process.refuse_unknown_options(kwargs)
        self.refuse_approximation("marginal_likelihood")
        options = {"method": method, "n_draws": n_draws, **kwargs}
        data = variables.data_of_model(self, X, y, likelihood, coregion)
        variable = variables.marginal_variable(self, name, data, jitter, options)
        self._data[variable.name] = data._replace(variable=variable)
        return variable

    def sample_latent(
        self,
        idata: DataTree,
        *,
        Xnew: ArrayLike | None = None,
        X: ArrayLike | Sequence[DataOfOneKind] | Mapping[str, DataOfOneKind] | None = None,
        y: ArrayLike | None = None,
        likelihood: Likelihood | Distribution | None = None,
        coregion: Any = None,
        name: str | None = None,
        n_candidates: int = 64,
        random_seed: Seed = None,
        progressbar: bool = True,
    ) -> DataTree:
        """Latent function for each draw of a trace.

        After `prior`, under any likelihood, ``idata.posterior`` has f at the inputs of `prior`: f*
        at `Xnew` is drawn from the process given it, with the hyperparameters of the same draw, as
        ``pm.sample_posterior_predictive`` would draw a variable made by `conditional`. The same
        holds for the result of ``integrate(gp, X, y)``, whose inputs are in its constant data.

        After `marginal_likelihood`, or with `X` and `y`, f is drawn from its exact posterior given
        the data, with one of `n_candidates` weighted draws of u, picked by weight: off by the
        weights' relative variance (a few hundredths as a rule) over `n_candidates`.

        `predict` has what follows at new points with summaries and errors, for results of every
        kind; this method also f at the data, and what follows there.

        Data made by ``pm.Data`` are those in ``idata.constant_data``, whatever ``pm.set_data`` has
        changed since.

        Parameters
        ----------
        idata : DataTree
            Result of ``pm.sample``, or a part of it.
        Xnew : array_like, shape (t, d), optional
            New inputs to predict at, with white noise of their own, also where they equal `X`.
            After `prior` they are needed.
        X, y, likelihood, coregion : optional
            Data, as in `marginal_likelihood`; default those that it was given.
        name : str, optional
            Of several variables that `prior` or `marginal_likelihood` made in the model, which one
            is meant. Otherwise the name of the latent function in the result, by default that of
            `prior`, or "f".
        n_candidates : int, default 64
            Weighted draws that the one kept is picked from, by weight. Not used after `prior`.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness.
        progressbar : bool, default True
            Show progress.

        Returns
        -------
        DataTree
            ``posterior``: the variables of ``idata.posterior``; ``predictions``: `name` (chain,
            draw, pred_id) at `Xnew`; ``predictions_constant_data``. After `prior` no more: how
            labels follow from f is for your model to say (probit: ``scipy.special.ndtr`` of f).

            Given data also `name` (chain, draw, obs_id) in ``posterior``, replicated data in
            ``posterior_predictive``, ``relative_ess`` of the candidates in ``sample_stats``,
            ``log_likelihood`` of each observation given f, ``observed_data``, ``constant_data``;
            and in ``predictions`` what the likelihood predicts of new points, as ``p`` and ``y`` of
            labels. Several functions have a dimension of their own; with data of several kinds
            names and dimensions end in that of the kind.

        Raises
        ------
        ValueError
            Without a latent function or data, of several without `name`, or when
            ``idata.posterior`` lacks a variable that f depends on.
        ApproximationError
            For a SkewGP with an approximation.

        Warns
        -----
        LowEffectiveSampleWarning
            When candidates of some draws had a relative ESS below a tenth.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> from pymc_skewgp import SkewGP
        >>> X = np.linspace(0, 3, 6)[:, None]
        >>> with pm.Model():
        ...     gp = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        ...     f = gp.prior("f", X)
        ...     counts = pm.Poisson("counts", pm.math.exp(f), observed=[1, 0, 2, 4, 2, 1])
        ...     idata = pm.sample_prior_predictive(draws=20, random_seed=1)
        >>> idata["posterior"] = idata["prior"]  # in place of a long run of pm.sample
        >>> new = gp.sample_latent(idata, Xnew=[[3.5], [4.0]], progressbar=False)
        >>> dict(new["predictions"]["f"].sizes)
        {'chain': 1, 'draw': 20, 'pred_id': 2}
        """
        self.refuse_approximation("sample_latent")
        data = variables.given_data(self, X, y, likelihood, coregion)
        rng = as_generator(random_seed)
        wanted = latent_draws.Wanted(name, None, None, True, n_candidates, rng)
        with progress(progressbar):
            return latent_draws.latent_of(self, idata, Xnew, data, wanted, {})
