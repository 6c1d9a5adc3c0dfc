"""The exact posterior of a latent function under a GP or Skew GP prior.

Everything comes from one truncated Gaussian, u ~ N(0, G) within limits, whose rows are the signs of
the process at the pseudo-points and what was observed of it. Given u, the process is Gaussian at
the data and everywhere else.
"""

import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._memory import refuse_too_many_draws
from pymc_skewgp._observations.arguments import as_inputs, as_phase
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.approximations.automatic import Asked, as_approximation, chosen
from pymc_skewgp._posterior.data_sets import DataSet, as_data_sets, n_functions, updated_sets
from pymc_skewgp._posterior.datatree import sampling_attributes
from pymc_skewgp._posterior.fit import fit_of
from pymc_skewgp._posterior.forecasts import Forecasts, refuse_large
from pymc_skewgp._posterior.function_fit import FunctionFit
from pymc_skewgp._posterior.kept_coordinates import KeptCoordinates
from pymc_skewgp._posterior.latent import Method
from pymc_skewgp._posterior.output import coordinates_tree, sample_tree
from pymc_skewgp._posterior.prior import CovarianceFunction, MeanFunction, Prior, as_coregion
from pymc_skewgp._posterior.prior_report import ReportsPrior
from pymc_skewgp._posterior.row_predictors import as_rows, part_of
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray, Seed, as_count, as_generator, as_vector

# X, y, likelihood
DataOfOneKind = tuple[ArrayLike, ArrayLike, Likelihood]


class SkewGPPosterior(Forecasts, KeptCoordinates, ReportsPrior):
    r"""Exact posterior of a latent function given data.

    Prior: f is a Gaussian process with mean m and kernel k, conditioned on its sign at s
    pseudo-points r: :math:`\ell_j f(r_j) / \mathrm{sd}(r_j) + \gamma_j > 0` (f less its mean).
    With s = 0 it is the ordinary GP. The likelihood makes of the data rows

    .. math:: v = A f + a + e, \qquad e \sim N(0, S),

    some of them points, v = y, and some of them intervals, l < v < h: a label 1 under a probit link
    is the interval :math:`(0, \infty)`, with S = 1. Points are conditioned on as in GP regression.
    Of the intervals, and of the signs at the pseudo-points, a rectangle is left:

    .. math::

        u \sim N(0, G) \;\text{ given }\; l - \mu < u < h - \mu, \qquad
        G = A K A^\top + S, \quad \mu = A m + a,

    with m and K the moments of f given the points. The marginal likelihood is the density of the
    points times the probability of the rectangle, over that of the signs at the pseudo-points
    alone; f given u is Gaussian.

    Likelihoods such as `likelihoods.Poisson` make no rows but sites, :math:`p(y_i \mid \eta_i)`.
    Then f is drawn in mirrored pairs from expectation propagation's Gaussian, each draw with its
    exact weight, so that the marginal likelihood is known with its error there as well.

    Parameters
    ----------
    X : array_like, shape (n, d) or (n,)
        Inputs. For data of several kinds on the same function: a list of tuples (X, y,
        likelihood), or a dict of them by name, without `y` and `likelihood`.
    y : array_like, shape (n,)
        Data: labels (0 and 1, or -1 and 1, or booleans), or what `likelihood` asks for.
    cov_func : callable
        Kernel ``k(X, Xs=None, diag=False)`` returning arrays; what ``k(X)`` has beyond ``k(X, X)``
        is noise of each row (see Notes). `SkewGP.posterior` makes one from a ``pm.gp.cov`` object.
    mean_func : callable, optional
        ``m(X)`` of shape (n,). Default zero.
    likelihood : optional
        Of ``pymc_skewgp.likelihoods``. Default ``BernoulliProbit()``.
    pseudo_points : array_like, shape (s, d) or (s,), optional
        Where the prior is conditioned on the sign of f. Default none: a GP.
    phase : array_like, shape (s,), optional
        That sign, +1 or -1. Default all +1.
    truncation : float or array_like, shape (s,), default 0
        :math:`\gamma`: 0 asks for the sign, large positive values ask for nothing.
    weights : array_like of int, shape (n,), optional
        How often each observation was made, a whole number for each of `y`; 0 leaves it out.
        Default once. Two observations are two independent ones of the same :math:`f(x_i)`, noise
        of the kernel included; their ``log_likelihood`` is that of both. Likelihoods that
        ``likelihoods.Weighted`` takes may have weights that are not whole.
    coregion : array_like, shape (K, K), optional
        B, for a likelihood of K functions: :math:`\mathrm{cov}\{f_k(x), f_l(x')\} = B_{kl}\, k(x,
        x')`. Default the identity.
    approximation : "auto" or one of ``pymc_skewgp.approximations``, optional
        The prior has finite rank then, and many rows are met in blocks. "auto": see `SkewGP`.
        Default none: the kernel as it is.
    n_draws : int, default 1024
        Weighted draws of u behind the evidence and the predictions.
    random_seed : int, Generator, SeedSequence or None, default 0
        Their seed.

    Raises
    ------
    ValueError
        Data that the likelihood does not know, empty data, shapes that do not fit, NaN or
        infinities, pseudo-points that coincide, phases other than +-1; weights that are no whole
        numbers, whose power of a likelihood of rows has no rows.
    ContradictoryPseudoPointsError
        Signs at the pseudo-points so improbable that their probability is lost in round-off.

    Notes
    -----
    Some kernels tell the data from new points: ``pm.gp.cov.WhiteNoise`` is in ``k(X)``, and in no
    ``k(X, Xs)``, even where Xs equals X. Each row then has noise of its own. f at *the data* (what
    a method gives without ``Xnew``) has that of their rows. f at *new points* (``Xnew``, also one
    that equals ``X``) and at pseudo-points has another, independent of it. For other kernels f at
    new points with the inputs of the data is f at the data.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       doi:10.1007/s10994-020-05906-3, arXiv:2005.12987.
    .. [2] C. E. Rasmussen & C. K. I. Williams (2006), Gaussian Processes for Machine Learning.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import SkewGPPosterior
    >>> def rbf(X, Xs=None, diag=False):
    ...     if diag:
    ...         return np.full(len(X), 2.0)
    ...     Xs = X if Xs is None else Xs
    ...     return 2.0 * np.exp(-0.5 * (X - Xs.T) ** 2)
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> posterior = SkewGPPosterior(x, [0, 0, 1, 1], cov_func=rbf)
    >>> dt = posterior.predict([-1.5, 1.5])
    >>> dt["predictions_summary"]["p_mean"].values.round(2)
    array([0.18, 0.82])
    """

    def __init__(
        self,
        X: ArrayLike | Sequence[DataOfOneKind] | Mapping[str, DataOfOneKind],
        y: ArrayLike | None = None,
        *,
        cov_func: CovarianceFunction,
        mean_func: MeanFunction | None = None,
        likelihood: Likelihood | None = None,
        pseudo_points: ArrayLike | None = None,
        phase: ArrayLike | None = None,
        truncation: ArrayLike = 0.0,
        coregion: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        approximation: Asked = None,
        n_draws: int = 1024,
        random_seed: Seed = 0,
    ) -> None:
        sets = as_data_sets(X, y, likelihood, weights)
        d = sets[0].X.shape[1]
        if not callable(cov_func):
            raise TypeError(f"cov_func must be callable, got {type(cov_func).__name__}.")
        points = np.zeros((0, d))
        if pseudo_points is not None:
            points = as_inputs("pseudo_points", pseudo_points, d)
        elif phase is not None or np.any(truncation):
            raise ValueError("phase and truncation belong to pseudo_points: give those as well.")
        s = points.shape[0]
        prior = Prior(
            cov_func,
            mean_func or _zero_mean,
            points,
            as_phase(phase, s),
            as_vector("truncation", truncation, s),
            as_coregion(coregion, n_functions(sets)),
        )
        self._n_draws = as_count("n_draws", n_draws)
        as_generator(random_seed)  # refuses what is no seed at once
        self._random_seed = random_seed
        _ = prior.latent_cov  # refuses impossible pseudo-points at once
        self._observe(prior, sets, as_approximation(approximation))

    def _observe(self, prior: Prior, sets: tuple[DataSet, ...], asked: Asked) -> None:
        """Take data, of which nothing is computed yet but what the choice of a prior took."""
        n = sum(data.values.size for data in sets)
        choice = chosen(asked, sets, prior)
        self._prior, self._asked = replace(prior, approximation=choice.approximation), asked
        self._sets, self._size = sets, n
        vars(self).update(choice.computed)
        if self._prior.approximation is None:
            refuse_too_many_draws("n_draws", self._n_draws, self._prior.n_pseudo_points + n)
            _ = self._fit_of_rows  # refuses data that are none at once

    @cached_property
    def _fit_of_rows(self) -> FunctionFit:
        return fit_of(self._prior, self._sets)

    @cached_property
    def _fit(self) -> FunctionFit:  # type: ignore[override]
        return self._fit_of_rows.by_factors()

    def __repr__(self) -> str:
        n = [data.X.shape[0] for data in self._sets]
        kinds = [data.likelihood for data in self._sets]
        approximation = self._prior.approximation
        fitted = "_fit" in vars(self) and self._fit.fitted
        loss = vars(self).get("approximation_loss")
        return (
            f"SkewGPPosterior(n={n if len(n) > 1 else n[0]}, "
            f"n_features={self._sets[0].X.shape[1]}, "
            f"likelihood={kinds if len(kinds) > 1 else kinds[0]!r}, "
            f"n_pseudo_points={self._prior.n_pseudo_points}, fitted={fitted}"
            + ("" if approximation is None else f", approximation={approximation}")
            + ("" if approximation is None or loss is None else f", approximation_loss={loss}")
            + ")"
        )

    @property
    def prior(self) -> Prior:
        """Kernel, mean and pseudo-points, as functions and arrays."""
        return self._prior

    @property
    def likelihood(self) -> Likelihood | tuple[Likelihood, ...]:
        """The likelihood, of ``pymc_skewgp.likelihoods``; a tuple for data of several kinds."""
        kinds = tuple(data.likelihood for data in self._sets)
        return kinds if len(kinds) > 1 else kinds[0]

    @cached_property
    def latent(self) -> TruncatedDraws:
        """Weighted draws of u, columns: pseudo-points first, then the intervals of the data.

        Under sites, and where many intervals are of nearly one value of f, such as trials: of
        standard normal coordinates of f at the data, in `n_draws` mirrored pairs.
        """
        return self._fit.latent(self._n_draws, self._random_seed)

    @cached_property
    def log_marginal_likelihood(self) -> Estimate:
        """Log evidence, log p(y), in nats, with its standard error.

        Under an approximated prior both are of the evidence under that prior: what it differs by
        from the kernel's own is `approximation_loss`.
        """
        joint = self.latent.log_prob
        assert joint is not None  # the twisted sampler always knows it
        return self._fit.evidence(joint, self._prior_log_prob)

    @cached_property
    def sun(self) -> SUN:
        """The posterior of f at the data as a `SUN`, one latent dimension for each row of u.

        Raises
        ------
        ValueError
            For observations with two finite limits, which no SUN can express.
        """
        return SUN._of(self._fit.sun())

    def sample(
        self,
        draws: int = 1000,
        chains: int = 4,
        method: Method = "twisted",
        random_seed: Seed = None,
        *,
        thin: int = 1,
        rows: ArrayLike | None = None,
    ) -> DataTree:
        """Draw the latent function at the data, noise of the kernel included.

        Parameters
        ----------
        draws, chains : int
            Draws in each chain; chains.
        method : {"twisted", "lin_ess"}
            "twisted": near-independent draws (weighted ones, resampled to equal weights within each
            chain). "lin_ess": a Markov chain, kept for comparison. Under a Gaussian likelihood and
            a GP prior draws are independent, by either. Under sites there is "twisted" only.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness.
        thin : int, default 1
            Steps of lin-ess for each draw kept; "twisted" has no use for it.
        rows : array_like of int, optional
            Rows of `X` to draw f at, where observations are of one row each. Default all; of more
            than 10,000 rows under an approximated prior none, see below.

        Returns
        -------
        DataTree
            Groups ``posterior`` (``f``: chain, draw, obs_id), ``posterior_predictive`` (``y``: new
            data at the same inputs), ``sample_stats`` (``log_weight`` of
            the draw before resampling; attributes ``method``, ``relative_ess``, ``pareto_k``,
            ``n_modes`` (above 1 only under likelihoods that are not log-concave),
            ``sampling_time`` in seconds, and for "twisted" ``log_marginal_likelihood`` with
            ``log_marginal_likelihood_se``, from these draws), ``log_likelihood``,
            ``observed_data``, ``constant_data``. Of more than 10,000 rows under an approximated
            prior ``posterior`` has ``coordinates`` (chain, draw, coordinate) in place of f:
            `at_rows` makes f, y and their log likelihood of them, for the rows that are wanted.
        """
        draws, chains = as_count("draws", draws), as_count("chains", chains)
        index = None if rows is None else self._rows_to_draw(rows)
        keeps = index is None and self._fit.keeps_coordinates
        size = self._size if index is None else index.size
        refuse_large(draws, chains, self._fit.n_coordinates if keeps else size)
        rng, thin = as_generator(random_seed), as_count("thin", thin)
        started = time.perf_counter()
        with few_blas_threads(self._size):
            fit = self._fit.of_single_rows if method == "lin_ess" else self._fit
            latent, chosen = fit.equal_draws((chains, draws), method, rng, thin)
            f = None if keeps else fit.draw(latent, chosen, rng, index)
        elapsed = time.perf_counter() - started
        attributes = {**self._attributes(latent), "sampling_time": elapsed}
        log_weight = latent.log_weights[chosen]
        if f is None:
            return self._kept(latent.draws[chosen], log_weight, attributes)
        if index is None:
            return sample_tree(self._sets, f, log_weight, rng, attributes)
        part = (part_of(self._sets[0], index),)
        return sample_tree(part, f, log_weight, rng, attributes, index)

    def _rows_to_draw(self, rows: ArrayLike) -> IntArray:
        return as_rows(rows, self._sets)

    def _kept(
        self, coordinates: FloatArray, log_weight: FloatArray, attributes: dict[str, Any]
    ) -> DataTree:
        return coordinates_tree(self._sets, coordinates, log_weight, attributes)

    def update(
        self, Xnew: ArrayLike | None, ynew: ArrayLike, *, name: str | None = None
    ) -> "SkewGPPosterior":
        """The posterior given more data, as a new object; this one stays as it is.

        It is computed anew from all data, by the same likelihood. New data have the weight 1.

        Parameters
        ----------
        Xnew : array_like, shape (n_new, d) or (n_new,), or None
            Inputs of the new data. None: no new rows, only comparisons of items that are known.
        ynew : array_like
            The new data, as the likelihood takes them. Comparisons number the items through: the
            old ones first, then the rows of `Xnew`.
        name : str, optional
            Which data they belong to, where there are several kinds.

        Returns
        -------
        SkewGPPosterior

        Raises
        ------
        ValueError, TypeError
            As for the first data; a likelihood with a number for each row does not know those of
            new ones.

        Examples
        --------
        >>> import pymc as pm
        >>> from pymc_skewgp import SkewGP
        >>> gp = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        >>> posterior = gp.posterior([0.0, 1.0], [0, 1])
        >>> posterior.update([2.0], [1]).sun.n_dims
        3
        """
        return self._given(self._prior, updated_sets(self._sets, Xnew, ynew, name), self._asked)

    def _given(
        self, prior: Prior, sets: tuple[DataSet, ...], asked: Asked = None
    ) -> "SkewGPPosterior":
        """The same of another prior, or other data; by default with the prior's approximation."""
        other = copy(self)
        for computed in [name for name in vars(other) if hasattr(type(other), name)]:
            del vars(other)[computed]  # by a `cached_property`
        asked = prior.approximation if asked is None else asked
        other._observe(replace(prior, approximation=None), sets, asked)
        return other

    @cached_property
    def _prior_log_prob(self) -> Estimate:
        """Log probability of the signs at the pseudo-points."""
        return self._fit.prior_log_prob(self._n_draws)

    def _attributes(self, latent: TruncatedDraws) -> dict[str, Any]:
        known = latent.log_prob
        evidence = None if known is None else self._fit.evidence(known, self._prior_log_prob)
        return sampling_attributes(latent, evidence) | self._approximation_attributes()


# The class is the same for every prior and likelihood; this name says so.
LatentPosterior = SkewGPPosterior


def _zero_mean(X: FloatArray) -> FloatArray:
    return np.zeros(X.shape[0])
