"""`SkewGPPosterior`: the exact posterior of a latent function under a GP or Skew GP prior.

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

from pymc_skewgp import _validation as check
from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.truncated import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate, IntArray, normalized_weights
from pymc_skewgp._limits import (
    FUNCTION_BUFFERS,
    few_blas_threads,
    progress_of,
    refuse_too_many_draws,
)
from pymc_skewgp._observations.binary import BernoulliLogit, BernoulliProbit
from pymc_skewgp._observations.comparisons import pair_probability
from pymc_skewgp._observations.likelihood import Likelihood, as_derivative, as_inputs, as_phase
from pymc_skewgp._observations.new_rows import as_new_rows
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._observations.weighted import Weighted
from pymc_skewgp._posterior import automatic, conditioning, fits, output
from pymc_skewgp._posterior import prior as priors
from pymc_skewgp._posterior.features import EveryInput, finite_rank_prior
from pymc_skewgp._posterior.finite_rank_fit import finite_rank_fit
from pymc_skewgp._posterior.prior import DataSet, Prior
from pymc_skewgp._posterior.vecchia import VecchiaFeatures
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray, Seed

_NUMBERS_AT_ONCE = 2**24  # draws times new points, of which an array is made


def as_row_numbers(rows: ArrayLike, n: int) -> IntArray:
    """Numbers of some of n rows, checked."""
    index = np.atleast_1d(check.as_real_array("rows", rows))
    whole = index.astype(np.intp)
    inside = ((whole >= 0) & (whole < n)).all()
    if index.ndim != 1 or not index.size or (whole != index).any() or not inside:
        raise ValueError(f"rows must be whole numbers from 0 to {n - 1}, at least one of them.")
    return whole


def refuse_large(draws: int, chains: int, n_points: int) -> None:
    """Refuse draws that do not fit into memory."""
    name = f"draws={draws}, chains={chains}"
    refuse_too_many_draws(name, draws * chains, n_points, FUNCTION_BUFFERS)


# Which fit data are answered by: the latent vector that is drawn for them.

# Rows a coordinate from which on pairs of coordinates are better than draws of all rows, and rows
# up to which the latter take moments.
_ROWS_A_COORDINATE = 5
MOST_DENSE_ROWS = 5000


def fit_of(prior: Prior, sets: tuple[DataSet, ...]) -> fits.FunctionFit:
    """Rows, or sites, under the prior as it is; many rows under an approximated one in blocks."""
    several = any(
        isinstance(x.likelihood, SiteLikelihood) and x.values.n_functions > 1 for x in sets
    )
    if several and prior.approximation is None:
        prior = replace(prior, approximation=EveryInput())
    if prior.approximation is not None:
        prior, features = finite_rank_prior(prior, np.vstack([data.X for data in sets]))
        n = sum(data.values.size for data in sets)
        rank = features.rank * priors.n_functions(sets)
        if isinstance(features, VecchiaFeatures):
            return finite_rank_fit(prior, features, sets)
        if several or n > min(_ROWS_A_COORDINATE * rank, MOST_DENSE_ROWS):
            try:
                return finite_rank_fit(prior, features, sets)
            except ApproximationError:
                if several or n > MOST_DENSE_ROWS:
                    raise
    parts, sites = [data.values for data in sets], priors.sites_of(sets)
    rows, constrained = priors.rows_of(sets, prior)
    return fits.FunctionFit(prior, parts, rows, constrained[~rows.is_point], sites)


# X, y, likelihood
DataOfOneKind = tuple[ArrayLike, ArrayLike, Likelihood]


class SkewGPPosterior(automatic.ReportsPrior):
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
    progressbar : bool, default True
        Show progress of what takes more than two seconds.

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
        cov_func: priors.CovarianceFunction,
        mean_func: priors.MeanFunction | None = None,
        likelihood: Likelihood | None = None,
        pseudo_points: ArrayLike | None = None,
        phase: ArrayLike | None = None,
        truncation: ArrayLike = 0.0,
        coregion: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        approximation: automatic.Asked = None,
        n_draws: int = 1024,
        random_seed: Seed = 0,
        progressbar: bool = True,
    ) -> None:
        sets = priors.as_data_sets(X, y, likelihood, weights)
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
            check.as_vector("truncation", truncation, s),
            priors.as_coregion(coregion, priors.n_functions(sets)),
        )
        self._n_draws = check.as_count("n_draws", n_draws)
        check.as_generator(random_seed)  # refuses what is no seed at once
        self._random_seed, self._progressbar = random_seed, progressbar
        _ = prior.latent_cov  # refuses impossible pseudo-points at once
        self._observe(prior, sets, automatic.as_approximation(approximation))

    def _observe(self, prior: Prior, sets: tuple[DataSet, ...], asked: automatic.Asked) -> None:
        """Take data, of which nothing is computed yet but what the choice of a prior took."""
        n = sum(data.values.size for data in sets)
        with progress_of(n, "Prior for", self._progressbar):
            choice = automatic.chosen(asked, sets, prior)
            self._prior, self._asked = replace(prior, approximation=choice.approximation), asked
            self._sets, self._size = sets, n
            vars(self).update(choice.computed)
            if self._prior.approximation is None:
                refuse_too_many_draws("n_draws", self._n_draws, self._prior.n_pseudo_points + n)
                _ = self._fit_of_rows  # refuses data that are none at once

    @cached_property
    def _fit_of_rows(self) -> fits.FunctionFit:
        """With a latent value for each interval, also where intervals repeat."""
        return fit_of(self._prior, self._sets)

    @cached_property
    def _fit(self) -> fits.FunctionFit:
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
        with progress_of(self._size, "Posterior of", self._progressbar):
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
        return SUN._of(self._fit_of_rows.sun())

    def sample(
        self,
        draws: int = 1000,
        chains: int = 4,
        method: fits.Method = "twisted",
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
        draws, chains = check.as_count("draws", draws), check.as_count("chains", chains)
        index, sets = (None, self._sets) if rows is None else self._chosen(rows)
        kept = self._fit.n_kept if index is None else None
        size = self._size if index is None else index.size
        refuse_large(draws, chains, kept or size)
        rng, thin = check.as_generator(random_seed), check.as_count("thin", thin)
        started = time.perf_counter()
        bar = progress_of(self._size, "Draws given", self._progressbar)
        with few_blas_threads(self._size), bar:
            fit = self._fit_of_rows if method == "lin_ess" else self._fit
            latent, chosen = fit.equal_draws((chains, draws), method, rng, thin)
            f = fit.draw(latent, chosen, rng, index) if kept is None else None
        elapsed = time.perf_counter() - started
        attributes = {**self._attributes(latent), "sampling_time": elapsed}
        log_weight = latent.log_weights[chosen]
        if f is None:
            return self._kept(latent.draws[chosen], log_weight, attributes)
        return output.sample_tree(sets, f, log_weight, rng, attributes, index)

    def _kept(
        self, coordinates: FloatArray, log_weight: FloatArray, attributes: dict[str, Any]
    ) -> DataTree:
        found = output.DataGroups.of(self._sets)
        found.groups["posterior"]["coordinates"] = coordinates
        found.groups["sample_stats"]["log_weight"] = log_weight
        found.dims["coordinates"] = ["coordinate"]
        found.coords["coordinate"] = np.arange(coordinates.shape[-1])
        return found.tree(attributes)

    def at_rows(self, draws: DataTree, rows: ArrayLike, *, random_seed: Seed = None) -> DataTree:
        """F, new data and log likelihoods at some rows of the data, given drawn coordinates.

        Parameters
        ----------
        draws : DataTree
            What `sample` gave for more than 10,000 rows under an approximated prior.
        rows : array_like of int
            Rows of `X`, counted from 0.
        random_seed : int, Generator, SeedSequence or None
            Of the new data ``y``, and of what features leave of f.

        Returns
        -------
        DataTree
            As of `sample`, for these rows; the coordinate ``obs_id`` has their numbers.

        Raises
        ------
        ValueError
            For draws without coordinates, or of another posterior; for rows that there are not.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> from pymc_skewgp import SkewGPPosterior
        >>> from pymc_skewgp.approximations import Inducing
        >>> def rbf(X, Xs=None, diag=False):
        ...     if diag:
        ...         return np.ones(len(X))
        ...     return np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)
        >>> x = np.linspace(-3.0, 3.0, 12_000)
        >>> points, quiet = Inducing(x[::1500]), {"progressbar": False}
        >>> posterior = SkewGPPosterior(x, x > 0, cov_func=rbf, approximation=points, **quiet)
        >>> draws = posterior.sample(20, 2, random_seed=1)
        >>> draws["posterior"]["coordinates"].sizes["coordinate"]
        8
        >>> posterior.at_rows(draws, [0, 11_999], random_seed=2)["posterior"]["f"].shape
        (2, 20, 2)
        """
        if "coordinates" not in draws["posterior"]:
            raise ValueError(
                "these draws have no coordinates: sample() keeps them for more than 10,000 rows "
                "under an approximated prior, and else has f at all rows itself."
            )
        (index, sets), rng = self._chosen(rows), check.as_generator(random_seed)
        coordinates = np.asarray(draws["posterior"]["coordinates"].values)
        chains, n_draws, rank = coordinates.shape
        refuse_large(n_draws, chains, index.size)
        log_weight = np.asarray(draws["sample_stats"]["log_weight"].values)
        attributes = dict(draws["posterior"].attrs)
        with progress_of(index.size, "Draws at", self._progressbar):
            f = self._fit.given_coordinates(coordinates.reshape(-1, rank), rng, index)
            f = f.reshape(chains, n_draws, -1)
            return output.sample_tree(sets, f, log_weight, rng, attributes, index)

    def _chosen(self, rows: ArrayLike) -> tuple[IntArray, tuple[DataSet, ...]]:
        """Numbers of rows, checked, and the data there."""
        if len(self._sets) > 1:
            raise ValueError(
                f"rows= is for data of one kind, and these are of {len(self._sets)}: leave it out."
            )
        (data,) = self._sets
        index = as_row_numbers(rows, data.X.shape[0])
        return index, (data.part(index),)

    def predict(
        self,
        Xnew: ArrayLike,
        *,
        draws: int = 1000,
        chains: int = 4,
        quantiles: Sequence[float] | None = None,
        random_seed: Seed = None,
        **of_rows: ArrayLike,
    ) -> DataTree:
        r"""Predict at new points by the mixture over u.

        Given u, :math:`f_* \sim N(m_*(u), v_*)`; so moments and quantiles are those of a Gaussian
        mixture, without noise from drawing f, and the probability of a label is
        :math:`p(y_* = 1) = E_u\, \Phi\{m_*(u) / \sqrt{1 + v_*}\}`.

        Parameters
        ----------
        Xnew : array_like, shape (t, d) or (t,)
            New inputs. Noise of the kernel is drawn afresh for each row, also at inputs of the
            data.
        draws, chains : int
            Draws of f and of what the likelihood predicts. ``draws=0`` leaves
            out the group ``predictions``, whose joint draws need the covariance of all new points.
        quantiles : sequence of float, optional
            Probabilities for ``f_quantile``; the default is the median and the ends of ArviZ's
            interval, with as much on either side: ``az.rcParams["stats.ci_prob"]``, .89. Empty
            leaves it out, which saves most of the time for thousands of points.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness of the draws; the summaries do not use it, but for those of joint
            draws, such as which item is best.

        Returns
        -------
        DataTree
            Group ``predictions``: draws ``f`` and, under a probit likelihood, ``p`` = Phi(f) and
            labels ``y``, under a Gaussian one values ``y``, with dims (chain, draw, pred_id),
            jointly over the new points. Group ``predictions_summary``: ``f_mean``, ``f_sd``,
            ``f_skewness`` with Monte Carlo standard errors ``f_mean_se``, ``f_sd_se``,
            ``f_skewness_se``; ``f_quantile`` (quantile, pred_id) with ``f_quantile_se``, under
            some likelihoods ``y_quantile`` of a new y too; and ``p_mean`` with ``p_mean_se``, or
            ``y_mean`` and ``y_sd``, or what else the likelihood predicts: its page says what.
            Where it is about several functions, f has a dimension more. Group
            ``predictions_constant_data``: ``X``.
        """
        kinds, k = [data.likelihood for data in self._sets], priors.n_functions(self._sets)
        new = as_new_rows(self._sets[0].as_inputs("Xnew", Xnew), kinds, k, of_rows)
        probs = output.as_probabilities(quantiles)
        draws, chains = check.as_count("draws", draws, 0), check.as_count("chains", chains)
        refuse_large(draws, chains, new.size * self._fit.n_functions)
        rng, latent = check.as_generator(random_seed), self.latent
        with progress_of(new.size, "Predictions at", self._progressbar):
            regression = self._fit.regression(new.X, joint=draws > 0)
            joint, f = None, None
            if draws:
                joint = self._fit.covariance_at(new.X, regression)
                f = self._fit.draw_at(regression, joint, (chains, draws), rng)
            marginals = self._marginals(regression, joint)
            return output.predictions_tree(
                self._sets, new, marginals, f, probs, rng, self._attributes(latent)
            )

    def probability(self, Xnew: ArrayLike) -> Probability:
        r"""Probability of a label 1 at new points, and nothing else: `predict` without its moments.

        .. math:: p(y_* = 1) = \mathrm E_u\, \Phi\{m_*(u) / \sqrt{1 + v_*}\}

        Under a logit link it is the average of the logistic function.

        Parameters
        ----------
        Xnew : array_like, shape (t, d) or (t,)
            New inputs. For a new label at the rows of the data themselves, whose noise of the
            kernel is theirs, ask ``marginals().probability()``.

        Returns
        -------
        Probability
            ``value`` and its Monte Carlo ``std_error``, shape (t,) each.

        Raises
        ------
        TypeError
            Under a likelihood that has no labels.
        """
        likelihood = self.likelihood
        plain = likelihood.likelihood if isinstance(likelihood, Weighted) else likelihood
        if not isinstance(plain, BernoulliProbit | BernoulliLogit):
            raise TypeError(
                f"probability is of a label 1; under {likelihood!r} use predict or marginals."
            )
        new = self._sets[0].as_inputs("Xnew", Xnew)
        size = max(1, _NUMBERS_AT_ONCE // max(self.latent.log_weights.size, 1))
        parts = [new[i : i + size] for i in range(0, new.shape[0], size)]
        with progress_of(new.shape[0], "Probabilities at", self._progressbar):
            found = [plain.predictive_summary(self.marginals(part)) for part in parts]
        value, error = (
            np.concatenate([part[name] for part in found]) for name in ("p_mean", "p_mean_se")
        )
        return Probability(value, error)

    def preference_probability(self, Xa: ArrayLike, Xb: ArrayLike) -> Probability:
        r"""Probability that an item with inputs `Xa` wins against one with inputs `Xb`, row by row.

        .. math:: P = \mathrm E_u\, \Phi\left\{\frac{m_a(u) - m_b(u) - d}
            {(v_{aa} + v_{bb} - 2 v_{ab} + 2 \sigma^2)^{1/2}}\right\}

        with the noise and the threshold d of the likelihood.

        Parameters
        ----------
        Xa, Xb : array_like, shape (t, d) or (t,)
            Inputs of the two items of each pair.

        Returns
        -------
        Probability
            ``value`` and its Monte Carlo ``std_error``, shape (t,) each.

        Raises
        ------
        TypeError
            Where the data have no comparisons, or comparisons of several kinds.
        ValueError
            For numbers of rows that differ.

        Examples
        --------
        >>> import pymc as pm
        >>> import pymc_skewgp as sg
        >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        >>> duels = sg.likelihoods.Preference(0.3)
        >>> posterior = gp.posterior([[0.0], [1.0]], [[1, 0]], likelihood=duels)
        >>> print(f"{posterior.preference_probability([1.0], [0.0]).value[0]:.2f}")
        0.80
        """
        kinds = [data.likelihood for data in self._sets if hasattr(data.likelihood, "duel")]
        if len(kinds) != 1:
            raise TypeError(
                "preference_probability is of data that have comparisons, of one kind; found "
                f"{len(kinds)} kinds of comparisons in {self.likelihood!r}."
            )
        a, b = self._sets[0].as_inputs("Xa", Xa), self._sets[0].as_inputs("Xb", Xb)
        if a.shape != b.shape:
            raise ValueError(f"Xa and Xb must have equal shapes, got {a.shape} and {b.shape}.")
        noise, threshold = kinds[0].duel
        with progress_of(a.shape[0], "Probabilities of", self._progressbar):
            regression = self._fit.pair_regression(a, b)
            return pair_probability(self._marginals(regression), noise, threshold)

    def marginals(
        self, Xnew: ArrayLike | None = None, *, derivative: tuple[int, int] | None = None
    ) -> output.LatentMarginals:
        """Marginal distribution of f at each point: moments, quantiles, distribution function.

        Parameters
        ----------
        Xnew : array_like, shape (t, d) or (t,), optional
            New inputs, also where they are those of the data. Default the data: the function that
            `sample` draws. The two differ for kernels with noise of each row.
        derivative : tuple of two int, optional
            (feature, order): not of f, but of its first or second derivative in that column of
            `Xnew`, which then is needed. Default None.

        Returns
        -------
        LatentMarginals

        Raises
        ------
        NotDifferentiableError
            For derivatives that functions of the kernel do not have.

        Examples
        --------
        >>> import pymc as pm
        >>> from pymc_skewgp import SkewGP
        >>> gp = SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
        >>> at = gp.posterior([[0.0], [1.0]], [1, 1]).marginals([[0.5]])
        >>> print(f"P(f(0.5) < 0) = {at.cdf([0.0]).value[0]:.2f}")
        P(f(0.5) < 0) = 0.06
        """
        new, slope = None if Xnew is None else self._sets[0].as_inputs("Xnew", Xnew), None
        if derivative is not None:
            slope = as_derivative(derivative, self._sets[0].X.shape[1])
            if new is None:
                raise ValueError("marginals of a derivative are at new points: give Xnew.")
        size = self._size if new is None else new.shape[0]
        with progress_of(size, "Marginals at", self._progressbar):
            return self._marginals(self._fit.regression(new, derivative=slope))

    def _marginals(
        self, regression: conditioning.Regression, joint: FloatArray | None = None
    ) -> output.LatentMarginals:
        latent = self.latent
        regression, joint = self._fit.averaged(regression, joint)
        means = regression.solved.T @ latent.draws.T
        means += regression.centre[:, None]
        weights = normalized_weights(latent.log_weights)
        exact = not latent.draws.shape[1]
        return output.LatentMarginals(
            means,
            regression.variance,
            weights,
            latent.replicate,
            exact,
            regression.covariance,
            joint,
            priors.link_of(self._sets),
        )

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
        return self._given(
            self._prior, priors.updated_sets(self._sets, Xnew, ynew, name), self._asked
        )

    def _given(
        self, prior: Prior, sets: tuple[DataSet, ...], asked: automatic.Asked = None
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
        """How draws were made, under what, and what that loses where it is known."""
        found: dict[str, Any] = {
            "method": latent.method,
            "relative_ess": latent.relative_ess,
            "pareto_k": latent.pareto_k,
            "n_modes": latent.n_modes,
        }
        if latent.log_prob is not None:
            value, error, *_ = self._fit.evidence(latent.log_prob, self._prior_log_prob)
            found |= {"log_marginal_likelihood": value, "log_marginal_likelihood_se": error}
        if self._prior.approximation is not None:
            found["approximation"] = repr(self._prior.approximation)
            loss = vars(self).get("approximation_loss")
            if loss is not None:
                known = {"approximation_loss": loss.value, "approximation_loss_se": loss.std_error}
                found |= known
        return found


# The class is the same for every prior and likelihood; this name says so.
LatentPosterior = SkewGPPosterior


def _zero_mean(X: FloatArray) -> FloatArray:
    return np.zeros(X.shape[0])


# Draws of f at the data and at new points, of one posterior.


def draws_here_and_there(
    posterior: SkewGPPosterior,
    Xnew: FloatArray | None,
    at_data: bool,
    count: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draws with equal weights, shape (count, n + t); the data are left out if not `at_data`.

    Those at the data are jointly drawn, and those at the new points; not all of them together.
    """
    fit = posterior._fit
    parts = []
    if at_data:
        latent, chosen = fit.equal_draws((1, count), "twisted", rng)
        parts.append(fit.draw(latent, chosen, rng)[0])
    if Xnew is not None:
        there = fit.regression(Xnew, joint=True)
        parts.append(fit.draw_at(there, fit.covariance_at(Xnew, there), (1, count), rng)[0])
    return np.concatenate(parts, axis=1) if parts else np.zeros((count, 0))
