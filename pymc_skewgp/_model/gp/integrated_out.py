"""The latent function of a SkewGP integrated out of a model, and drawn afterwards."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike
from pytensor.tensor.variable import TensorVariable
from xarray import DataTree

from pymc_skewgp._model.gp.definition import Definition
from pymc_skewgp._model.gp.distribution_graph import Distribution
from pymc_skewgp._model.gp.marginal_variable import data_of_model, marginal_variable
from pymc_skewgp._model.gp.process import refuse_unknown_options
from pymc_skewgp._model.gp.sample_latent import Latent, sample_latent
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.posterior import DataOfOneKind
from pymc_skewgp._validation import Seed, as_generator

_JITTER = 1e-6  # as pm.gp has it


class IntegratedOut(Definition):
    """The part of a `SkewGP` that works without its latent function among the variables."""

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
        refuse_unknown_options(kwargs)
        self.refuse_approximation("marginal_likelihood")
        options = {"method": method, "n_draws": n_draws, **kwargs}
        data = data_of_model(self, X, y, likelihood, coregion)
        variable = marginal_variable(self, name, data, jitter, options)
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
        return sample_latent(
            self,
            idata,
            Latent(self._functions, self._data, Xnew, X, y, likelihood, coregion, name),
            n_candidates=n_candidates,
            rng=as_generator(random_seed),
            progressbar=progressbar,
        )
