"""`SkewGP`: a Gaussian process that knows its sign at a few points, used like ``pm.gp.Latent``."""

from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable
from xarray import DataTree

from pymc_skewgp._gaussian.truncated import Seed
from pymc_skewgp._model.distributions.marginal_probit import MarginalProbit
from pymc_skewgp._model.distributions.truncated_mvnormal import TruncatedMvNormal
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.gp.functions import ArrayCovariance, ArrayMean, Point, as_point, compile_at
from pymc_skewgp._model.gp.latent_draws import draw_latent
from pymc_skewgp._model.gp.process import (
    as_input_graph,
    as_label_graph,
    as_pseudo_points,
    per_point,
    process_at,
    refuse_other_than_gp_objects,
    refuse_unknown_options,
    shape_now,
)
from pymc_skewgp._model.ops.skew_normal import sun_from_white, sun_given
from pymc_skewgp._observations.arguments import as_inputs, as_phase, as_signs
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import as_generator, as_vector

_JITTER = 1e-6  # as pm.gp has it


class SkewGP:
    r"""Skew Gaussian process.

    A Gaussian process :math:`f \sim GP(m, k)` conditioned on

    .. math:: \ell_j \{f(r_j) - m(r_j)\} / \mathrm{sd}(r_j) + \gamma_j > 0, \qquad j = 1, \ldots, s,

    that is, told its sign (less the mean) at the pseudo-points :math:`r_j`. Its finite marginals
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
    ) -> None:
        mean_func = pm.gp.mean.Zero() if mean_func is None else mean_func
        refuse_other_than_gp_objects(cov_func, mean_func)
        self.mean_func = mean_func
        self.cov_func = cov_func
        self.pseudo_points: Any = None
        if pseudo_points is None:
            told = isinstance(truncation, Variable) or np.any(truncation)
            if phase is not None or told:
                raise ValueError(
                    "phase and truncation belong to pseudo_points: give those as well."
                )
            self.phase, self.truncation = as_phase(None, 0), np.zeros(0)
        else:
            self.pseudo_points = as_pseudo_points(pseudo_points, self.n_columns)
            s = self.n_pseudo_points
            random = isinstance(phase, Variable)
            self.phase = per_point("phase", phase, s) if random else as_phase(phase, s)
            random = isinstance(truncation, Variable)
            self.truncation = (per_point if random else as_vector)("truncation", truncation, s)
        # Where `find_hyperparameters` looks for the priors of what the kernel depends on.
        self.model = pm.Model.get_context(error_if_none=False)
        self._given: tuple[Any, Any] | None = None
        self._labelled: tuple[Any, Any] | None = None

    @property
    def n_columns(self) -> float:
        """Columns that inputs must have: infinity where the kernel takes any number."""
        return getattr(self.cov_func, "input_dim", np.inf)  # a constant has none

    @property
    def n_pseudo_points(self) -> int:
        """Number s of pseudo-points."""
        return 0 if self.pseudo_points is None else shape_now(self.pseudo_points)[0] or 0

    def __repr__(self) -> str:
        return (
            f"SkewGP(cov_func={type(self.cov_func).__name__}, "
            f"mean_func={type(self.mean_func).__name__}, n_pseudo_points={self.n_pseudo_points})"
        )

    def __add__(self, other: object) -> NoReturn:
        """Raise: a sum of SkewGPs does not know the sign of itself anywhere."""
        raise TypeError(
            "SkewGPs are not additive: add the covariance functions, as in "
            "SkewGP(cov_func=cov1 + cov2, pseudo_points=...), whose pseudo-points then tell the "
            "sign of the sum."
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
        X = as_input_graph("X", X, self.n_columns)
        sun = process_at(self, [X], jitter)
        if not reparameterize:
            f = UnifiedSkewNormal(
                name,
                mu=sun.mu,
                scale=sun.scale,
                cross_cov=sun.cross_cov,
                truncation=sun.truncation,
                latent_cov=sun.latent_cov,
                **kwargs,
            )
        else:
            dims = kwargs.pop("dims", None)
            shape = {} if dims is not None else {"shape": pt.as_tensor_variable(X).shape[0]}
            white = pm.Normal(f"{name}_rotated_", dims=dims, **shape, **kwargs)
            latent = None
            if self.n_pseudo_points:
                latent = TruncatedMvNormal(
                    f"{name}_latent_",
                    mu=np.zeros(self.n_pseudo_points),
                    cov=sun.latent_cov,
                    lower=-sun.truncation,
                    upper=None,
                )
            f = pm.Deterministic(name, sun_from_white(sun, latent, white), dims=dims)
        self._given = (X, f)
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
            ``{"X": ..., "f": ...}`` in place of those of `prior`.
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
            Without `prior` before it and without `given`; for keys other than X and f.
        """
        refuse_unknown_options(kwargs)
        X, f = self._given_values(given)
        Xnew = as_input_graph("Xnew", Xnew, self.n_columns)
        joint = process_at(self, [X, Xnew], jitter)
        sun = sun_given(joint, pt.specify_shape(f, pt.as_tensor_variable(X).shape[:1]))
        return UnifiedSkewNormal(
            name,
            mu=sun.mu,
            scale=sun.scale,
            cross_cov=sun.cross_cov,
            truncation=sun.truncation,
            latent_cov=sun.latent_cov,
            **kwargs,
        )

    def _given_values(self, given: Mapping[str, Any] | None) -> tuple[Any, Any]:
        if given is not None:
            unknown = sorted(set(given) - {"X", "f"})
            if unknown or set(given) != {"X", "f"}:
                raise ValueError(
                    f"given must have the keys 'X' and 'f', got {sorted(given)}: SkewGPs are not "
                    "additive, so there is no 'gp' to name."
                )
            X = as_input_graph("given['X']", given["X"], self.n_columns)
            f = pt.as_tensor_variable(given["f"])
            n, found = shape_now(X)[0], f.type.shape
            if len(found) != 1 or (None not in (n, found[0]) and found[0] != n):
                raise ValueError(
                    f"given['f'] must have shape ({n},), one value for each row of given['X']; "
                    f"got {found}."
                )
            return X, f
        if self._given is None:
            raise ValueError(
                "conditional needs the latent function: call prior(name, X) first or pass "
                "given={'X': ..., 'f': ...}. After marginal_likelihood, whose latent function is "
                "integrated out, use sample_latent(idata, Xnew=...)."
            )
        return self._given

    def marginal_likelihood(
        self,
        name: str,
        X: Any,
        y: Any,
        *,
        method: Literal["twisted", "ep"] = "twisted",
        n_draws: int = 256,
        jitter: float = _JITTER,
        **kwargs: Any,
    ) -> TensorVariable:
        r"""Labels with the latent function integrated out, as an observed variable.

        .. math:: p(y) = \Phi_{s+n}(\tilde\gamma; \tilde\Gamma) / \Phi_s(\gamma; \Gamma)

        What is left for NUTS are the hyperparameters; `sample_latent` then draws f for each of
        its draws.

        Parameters
        ----------
        name : str
            Name of the variable.
        X : array_like or tensor, shape (n, d)
            Inputs.
        y : array_like or ``pm.Data``, shape (n,)
            Labels, 0 and 1.
        method : {"twisted", "ep"}, default "twisted"
            "twisted": unbiased but for Monte Carlo error, from `n_draws` fixed quasi-random
            points, so that the density is a deterministic function. "ep": expectation
            propagation, with fewer operations, off by hundredths of a nat, more in steep cases.
        n_draws : int, default 256
            Points for "twisted". The error falls faster than their square root.
        jitter : float, default 1e-6
            Added to the variances.
        **kwargs
            Passed on to the variable: ``dims``, ...

        Returns
        -------
        TensorVariable

        Raises
        ------
        ValueError
            Labels other than 0 and 1, `X` and `y` of different length.
        """
        refuse_unknown_options(kwargs)
        y = as_label_graph(y, X if isinstance(X, Variable) else as_inputs("X", X))
        X = as_input_graph("X", X, self.n_columns)
        sun = process_at(self, [X], jitter)
        self._labelled = (X, y)
        return MarginalProbit(
            name,
            mu=sun.mu,
            scale=sun.scale,
            cross_cov=sun.cross_cov,
            truncation=sun.truncation,
            latent_cov=sun.latent_cov,
            method=method,
            n_draws=n_draws,
            observed=y,
            **kwargs,
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
        TypeError
            When `point` is no mapping.
        """
        values = as_point(point)
        inputs = as_input_graph("X", as_inputs("X", X), self.n_columns)
        told: dict[str, Any] = {}
        if self.n_pseudo_points:
            for name in ("pseudo_points", "phase", "truncation"):
                value = getattr(self, name)
                if isinstance(value, Variable):
                    value = compile_at([], value, values)()
                told[name] = value
        return SkewGPPosterior(
            inputs,
            y,
            cov_func=ArrayCovariance(self.cov_func, values),
            mean_func=ArrayMean(self.mean_func, values),
            n_draws=n_draws,
            random_seed=random_seed,
            **told,
        )

    def sample_latent(
        self,
        idata: DataTree,
        *,
        Xnew: ArrayLike | None = None,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        name: str = "f",
        n_candidates: int = 64,
        random_seed: Seed = None,
        progressbar: bool = True,
    ) -> DataTree:
        """Latent function for each hyperparameter draw of a trace, from its exact posterior.

        Each is drawn given one of `n_candidates` weighted draws of u, picked by weight: off by the
        weights' relative variance (a few hundredths as a rule) over `n_candidates`.

        Parameters
        ----------
        idata : DataTree
            Result of ``pm.sample`` on a model with `marginal_likelihood`.
        Xnew : array_like, shape (t, d), optional
            New inputs to predict at, with white noise of their own, also where they equal `X`.
        X, y : array_like, optional
            Data, default those of `marginal_likelihood`.
        name : str, default "f"
            Name of the latent function.
        n_candidates : int, default 64
            Weighted draws that the one kept is picked from, by weight.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness.
        progressbar : bool, default True
            Show progress.

        Returns
        -------
        DataTree
            ``posterior``: the variables of ``idata.posterior`` and `name` (chain, draw, obs_id).
            ``sample_stats``: ``relative_ess`` of the candidates. ``log_likelihood`` of each label
            given f, ``observed_data``, ``constant_data``. With `Xnew`: ``predictions`` with
            `name`, ``p`` and ``y`` (chain, draw, pred_id), and ``predictions_constant_data``.

        Raises
        ------
        ValueError
            Without data, or when ``idata.posterior`` lacks a hyperparameter.

        Warns
        -----
        LowEffectiveSampleWarning
            When candidates of some draws were worth less than a tenth of their number.
        """
        if (X is None) != (y is None):
            raise ValueError("give both X and y, or neither (those of marginal_likelihood).")
        if X is None or y is None:
            if self._labelled is None:
                raise ValueError(
                    "sample_latent needs data: call marginal_likelihood(name, X, y) first, or pass "
                    "X and y."
                )
            X, y = (v.eval() if isinstance(v, Variable) else v for v in self._labelled)
        inputs = as_input_graph("X", as_inputs("X", X), self.n_columns)
        new = None
        if Xnew is not None:
            new = as_input_graph("Xnew", as_inputs("Xnew", Xnew), self.n_columns)
        return draw_latent(
            self,
            idata,
            inputs,
            as_signs(y, inputs.shape[0]),
            new,
            name=name,
            n_candidates=n_candidates,
            rng=as_generator(random_seed),
            progressbar=progressbar,
        )
