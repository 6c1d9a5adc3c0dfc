"""The exact posterior of probit classification under a GP or Skew GP prior.

Everything comes from one truncated Gaussian, u ~ N(0, G) restricted to u > -g, whose rows are the
signs of the process at the pseudo-points and the signs of the noisy observations. Given u, the
process is Gaussian at the data and everywhere else.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve
from scipy.special import log_ndtr, ndtr
from xarray import DataTree

from pymc_skewgp.kernels import linalg
from pymc_skewgp.kernels.covariance import Covariance, DenseCovariance, LowRankCovariance
from pymc_skewgp.kernels.errors import NotPositiveDefiniteError
from pymc_skewgp.kernels.mixture import (
    mixture_moment_errors,
    mixture_moments,
    mixture_quantiles,
)
from pymc_skewgp.kernels.truncated import (
    Seed,
    TruncatedDraws,
    lin_ess_draws,
    log_prob_rectangle,
    twisted_draws,
)
from pymc_skewgp.kernels.validation import FloatArray, as_count, as_matrix, as_vector
from pymc_skewgp.kernels.weights import Estimate, systematic_resample
from pymc_skewgp.sun import SUN

Method = Literal["twisted", "lin_ess"]

# Correlation at which two pseudo-points are one: beyond it their difference is round-off.
_COINCIDENT = 1.0 - 1e-9
# Weighted draws that a chain is resampled from, at least: one draw alone would be the proposal's.
_LEAST_WEIGHTED = 128
_ETI_89 = (0.055, 0.5, 0.945)


class CovarianceFunction(Protocol):
    """A kernel on arrays: ``k(X, Xs)`` of shape (n, m), ``k(X, diag=True)`` of shape (n,)."""

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Evaluate the kernel."""
        ...


MeanFunction = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class _Problem:
    """The truncated Gaussian behind a posterior; rows: pseudo-points first, then data."""

    prior_factor: FloatArray  # (n, r): f - mu = prior_factor a, a ~ N(0, I)
    row_factor: FloatArray  # (s + n, r): rows of u = row_factor a + noise
    noise: FloatArray  # (s + n,)
    cov: Covariance
    lower: FloatArray  # -gamma~


class SkewGPPosterior:
    r"""Exact posterior of a latent function given binary labels, probit likelihood.

    Prior: f is a Gaussian process with mean m and kernel k, told the sign of itself at s
    pseudo-points r: :math:`\ell_j f(r_j) / \mathrm{sd}(r_j) + \gamma_j > 0` (f less its mean).
    With s = 0 it is the ordinary GP. Labels: :math:`P(y_i = 1) = \Phi(f(x_i))`. With
    :math:`w_i = 2 y_i - 1`, everything follows from

    .. math::

        u \sim N(0, \tilde\Gamma) \;\text{ given }\; u > -\tilde\gamma, \qquad
        \tilde\Gamma = \begin{pmatrix} \Gamma & C^\top W \\ W C & W K W + I \end{pmatrix}, \qquad
        \tilde\gamma = \begin{pmatrix} \gamma \\ W m \end{pmatrix};

    the evidence is :math:`P(u > -\tilde\gamma) / P(u_{1:s} > -\gamma)` and f given u is Gaussian.

    Parameters
    ----------
    X : array_like, shape (n, d) or (n,)
        Inputs.
    y : array_like, shape (n,)
        Labels, 0 and 1, or -1 and 1, or booleans.
    cov_func : callable
        Kernel ``k(X, Xs=None, diag=False)`` returning arrays. `SkewGP.posterior` makes one from a
        ``pm.gp.cov`` object.
    mean_func : callable, optional
        ``m(X)`` of shape (n,). Default zero.
    pseudo_points : array_like, shape (s, d) or (s,), optional
        Where the prior knows the sign of f. Default none: a GP.
    phase : array_like, shape (s,), optional
        That sign, +1 or -1. Default all +1.
    truncation : float or array_like, shape (s,), default 0
        :math:`\gamma`: 0 asks for the sign, large positive values ask for nothing.
    n_draws : int, default 1024
        Weighted draws of u behind the evidence and the predictions.
    random_seed : int, Generator, SeedSequence or None, default 0
        Their seed.

    Raises
    ------
    ValueError
        Labels of other than two classes, empty data, shapes that do not fit, NaN or infinities,
        pseudo-points that coincide, phases other than +-1.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       doi:10.1007/s10994-020-05906-3, arXiv:2005.12987.

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
        X: ArrayLike,
        y: ArrayLike,
        *,
        cov_func: CovarianceFunction,
        mean_func: MeanFunction | None = None,
        pseudo_points: ArrayLike | None = None,
        phase: ArrayLike | None = None,
        truncation: ArrayLike = 0.0,
        n_draws: int = 1024,
        random_seed: Seed = 0,
    ) -> None:
        self._X = _as_inputs("X", X)
        n, d = self._X.shape
        self._sign = _as_signs(y, n)
        self._cov_func = cov_func
        self._mean_func = mean_func or _zero_mean
        empty = np.zeros((0, d))
        self._R = empty if pseudo_points is None else _as_inputs("pseudo_points", pseudo_points, d)
        s = self._R.shape[0]
        self._phase = _as_phase(phase, s)
        self._truncation = as_vector("truncation", truncation, s)
        self._n_draws = as_count("n_draws", n_draws)
        self._random_seed = random_seed
        if s:
            _refuse_coincident(
                self._kernel("pseudo_points", self._R), self._phase, self._truncation
            )

    def __repr__(self) -> str:
        return (
            f"SkewGPPosterior(n={self._X.shape[0]}, n_features={self._X.shape[1]}, "
            f"n_pseudo_points={self._R.shape[0]})"
        )

    @cached_property
    def latent(self) -> TruncatedDraws:
        """Weighted draws of u, columns: pseudo-points first, then data."""
        return self._draw_latent(self._n_draws, "twisted", self._random_seed, 1)

    @cached_property
    def log_marginal_likelihood(self) -> Estimate:
        """Log evidence, log p(y), in nats, with its standard error."""
        joint = self.latent.log_prob
        assert joint is not None  # the twisted sampler always knows it
        s = self._R.shape[0]
        if s == 0:
            return joint
        prior = log_prob_rectangle(
            self._latent_prior,
            -self._truncation,
            np.full(s, np.inf),
            self._n_draws,
            None,
            np.random.default_rng(0),
        )
        error = float(np.hypot(joint.std_error, prior.std_error))
        return joint._replace(value=joint.value - prior.value, std_error=error)

    @cached_property
    def sun(self) -> SUN:
        """The posterior of f at the data as a `SUN` with s + n latent dimensions."""
        problem = self._problem
        prior = problem.prior_factor
        return SUN._trusted(
            self._mean("X", self._X),
            prior @ prior.T,
            prior @ problem.row_factor.T,
            -problem.lower,
            problem.cov.dense(),
        )

    def sample(
        self,
        draws: int = 1000,
        chains: int = 4,
        method: Method = "twisted",
        random_seed: Seed = None,
    ) -> DataTree:
        """Draw the latent function at the data.

        Parameters
        ----------
        draws, chains : int
            Draws in each chain; chains.
        method : {"twisted", "lin_ess"}
            "twisted": near-independent draws (weighted ones, resampled to equal weights within each
            chain). "lin_ess": a Markov chain, kept for comparison.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness.

        Returns
        -------
        DataTree
            Groups ``posterior`` (``f``: chain, draw, obs_id), ``sample_stats`` (``log_weight`` of
            the draw before resampling; attributes ``method``, ``ess_fraction``, ``pareto_k``,
            ``sampling_time`` in seconds), ``log_likelihood``, ``observed_data``, ``constant_data``.
        """
        draws, chains = as_count("draws", draws), as_count("chains", chains)
        rng = np.random.default_rng(random_seed)
        started = time.perf_counter()
        weighted = draws if method == "lin_ess" else max(draws, _LEAST_WEIGHTED)
        latent = self._draw_latent(weighted * chains, method, rng, chains)
        chosen = _resampled(latent, chains, draws, rng)
        f = self._function_given(latent.draws[chosen.ravel()], rng)
        elapsed = time.perf_counter() - started
        f = f.reshape(chains, draws, -1)
        return _as_datatree(
            {
                "posterior": {"f": f},
                "sample_stats": _sample_stats(latent, chosen),
                "log_likelihood": {"y": log_ndtr(self._sign * f)},
                "observed_data": {"y": self._labels},
                "constant_data": {"X": self._X},
            },
            dims={"f": ["obs_id"], "y": ["obs_id"], "X": ["obs_id", "feature"]},
            coords={"obs_id": np.arange(f.shape[-1]), "feature": np.arange(self._X.shape[1])},
            attrs=_attributes(latent, elapsed),
        )

    def predict(
        self,
        Xnew: ArrayLike,
        *,
        draws: int = 1000,
        chains: int = 4,
        quantiles: Sequence[float] = _ETI_89,
        random_seed: Seed = None,
    ) -> DataTree:
        r"""Predict at new points by the mixture over u.

        Given u, :math:`f_* \sim N(m_*(u), v_*)`; so
        :math:`p(y_* = 1) = E_u\, \Phi\{m_*(u) / \sqrt{1 + v_*}\}`, and moments and quantiles are
        those of a Gaussian mixture, without noise from drawing f.

        Parameters
        ----------
        Xnew : array_like, shape (t, d) or (t,)
            New inputs.
        draws, chains : int
            Draws of f, p and y; resampled from the posterior's own draws of u. ``draws=0`` leaves
            out the group ``predictions``, whose joint draws need the covariance of all new points.
        quantiles : sequence of float, default (0.055, 0.5, 0.945)
            Probabilities for ``f_quantile``; the default is the median and the 89 % interval. Empty
            leaves it out, which saves most of the time for thousands of points.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness of the draws; the summaries do not use it.

        Returns
        -------
        DataTree
            Group ``predictions``: draws ``f``, ``p`` = Phi(f) and ``y`` with dims (chain, draw,
            pred_id), jointly over the new points. Group ``predictions_summary``: ``f_mean``,
            ``f_sd``, ``f_skewness``, ``f_quantile`` (quantile, pred_id) and ``p_mean``, with Monte
            Carlo standard errors ``f_mean_mcse``, ``f_sd_mcse``, ``f_skewness_mcse`` and
            ``p_mcse``. Group ``predictions_constant_data``: ``X``.
        """
        new = _as_inputs("Xnew", Xnew, self._X.shape[1])
        probs = as_vector("quantiles", np.atleast_1d(np.asarray(quantiles, dtype=float)))
        if (probs <= 0).any() or (probs >= 1).any():
            raise ValueError(f"quantiles must lie strictly between 0 and 1, got {quantiles}.")
        draws, chains = as_count("draws", draws, 0), as_count("chains", chains)
        latent = self.latent
        weights = np.exp(latent.log_weights - latent.log_weights.max())
        weights /= weights.sum()
        row_cov, solved = self._new_rows(new)
        centre = self._mean("Xnew", new)
        means = centre[:, None] + (latent.draws @ solved).T
        prior_var = self._kernel("Xnew", new, diag=True)
        variance = np.maximum(prior_var - np.einsum("ij,ij->j", row_cov, solved), 0.0)
        mean, sd, skewness = mixture_moments(means, variance, weights)
        errors = mixture_moment_errors(means, variance, weights)
        conditional_p = ndtr(means / np.sqrt(1.0 + variance)[:, None])
        p_mean = conditional_p @ weights

        groups: dict[str, dict[str, Any]] = {}
        quantile_group = {}
        if probs.size:
            quantile_group["f_quantile"] = mixture_quantiles(means, variance, weights, probs)
        if draws:
            rng = np.random.default_rng(random_seed)
            chosen = systematic_resample(latent.log_weights, draws * chains, rng)
            residual = self._kernel("Xnew", new) - row_cov.T @ solved
            factor = linalg.low_rank_factor(0.5 * (residual + residual.T))
            f = means[:, chosen] + factor @ rng.standard_normal((factor.shape[1], chosen.size))
            f = f.T.reshape(chains, draws, -1)
            p = ndtr(f)
            y = (rng.random(p.shape) < p).astype(np.int64)
            groups["predictions"] = {"f": f, "p": p, "y": y}
        return _as_datatree(
            {
                **groups,
                "predictions_summary": {
                    "f_mean": mean,
                    "f_sd": sd,
                    "f_skewness": skewness,
                    **dict(zip(_MOMENT_ERRORS, errors, strict=True)),
                    **quantile_group,
                    "p_mean": p_mean,
                    "p_mcse": _ratio_error(conditional_p, weights, p_mean),
                },
                "predictions_constant_data": {"X": new},
            },
            dims={
                **{name: ["pred_id"] for name in _PER_POINT},
                "f_quantile": ["quantile", "pred_id"],
                "X": ["pred_id", "feature"],
            },
            coords={
                "pred_id": np.arange(new.shape[0]),
                "quantile": probs,
                "feature": np.arange(new.shape[1]),
            },
            attrs=_attributes(latent, None),
        )

    @property
    def _labels(self) -> NDArray[np.int64]:
        return (self._sign > 0).astype(np.int64)

    @cached_property
    def _latent_prior(self) -> FloatArray:
        """Gamma: correlations of f at the pseudo-points, with the phases."""
        cov = self._kernel("pseudo_points", self._R)
        scale = self._phase / np.sqrt(cov.diagonal())
        return scale[:, None] * cov * scale

    @cached_property
    def _problem(self) -> _Problem:
        n, s = self._X.shape[0], self._R.shape[0]
        points = np.vstack([self._R, self._X])
        prior = self._kernel("X", points)
        prior = 0.5 * (prior + prior.T)
        scale = np.concatenate([self._phase / np.sqrt(prior.diagonal()[:s]), self._sign])
        factor = linalg.low_rank_factor(prior)
        _refuse_indefinite(prior, factor)
        rows = scale[:, None] * factor
        noise = np.concatenate([np.zeros(s), np.ones(n)])
        cov: Covariance
        if factor.shape[1] < 0.5 * (s + n):
            cov = LowRankCovariance(noise, rows)
        else:
            matrix = scale[:, None] * prior * scale
            matrix[np.diag_indices_from(matrix)] += noise
            cov = DenseCovariance(matrix, "the covariance of the observations")
        shift = np.concatenate([self._truncation, self._sign * self._mean("X", self._X)])
        return _Problem(factor[s:], rows, noise, cov, -shift)

    @cached_property
    def _row_chol(self) -> FloatArray:
        cov = self._problem.cov
        if isinstance(cov, DenseCovariance):
            return cov.chol
        return linalg.cholesky("the covariance of the observations", cov.dense())[0]

    def _draw_latent(self, n: int, method: str, seed: Seed, chains: int) -> TruncatedDraws:
        problem = self._problem
        upper = np.full(problem.lower.size, np.inf)
        rng = np.random.default_rng(seed)
        if method == "twisted":
            return twisted_draws(problem.cov, problem.lower, upper, n, rng)
        if method == "lin_ess":
            return lin_ess_draws(problem.cov, problem.lower, upper, n, rng, n_chains=chains)
        raise ValueError(f'method must be "twisted" or "lin_ess", got {method!r}.')

    def _function_given(self, u: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draws of f at the data given draws of u: a prior draw, corrected (Matheron's rule)."""
        problem = self._problem
        n_draws = u.shape[0]
        coordinates = rng.standard_normal((problem.row_factor.shape[1], n_draws))
        gap = u.T - problem.row_factor @ coordinates
        gap -= np.sqrt(problem.noise)[:, None] * rng.standard_normal(gap.shape)
        solved = cho_solve((self._row_chol, True), gap, overwrite_b=True)
        coordinates += problem.row_factor.T @ solved
        return self._mean("X", self._X) + (problem.prior_factor @ coordinates).T

    def _new_rows(self, new: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Covariance of u with f at new points, shape (s + n, t), and G^-1 times it."""
        s = self._R.shape[0]
        points = np.vstack([self._R, self._X])
        prior_var = self._kernel("pseudo_points", self._R, diag=True) if s else np.zeros(0)
        scale = np.concatenate([self._phase / np.sqrt(prior_var), self._sign])
        row_cov = scale[:, None] * self._kernel("Xnew", points, new)
        return row_cov, cho_solve((self._row_chol, True), row_cov)

    def _mean(self, name: str, points: FloatArray) -> FloatArray:
        value = np.asarray(self._mean_func(points), dtype=np.float64)
        if value.shape != points.shape[:1]:
            raise ValueError(
                f"mean_func gave shape {value.shape} at {name}, expected {points.shape[:1]}."
            )
        if not np.isfinite(value).all():
            raise ValueError(f"mean_func gave NaN or infinite values at {name}.")
        return value

    def _kernel(
        self, name: str, a: FloatArray, b: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        value = np.asarray(self._cov_func(a, b, diag), dtype=np.float64)
        wanted = (a.shape[0],) if diag else (a.shape[0], (a if b is None else b).shape[0])
        if value.shape != wanted:
            raise ValueError(f"cov_func gave shape {value.shape} at {name}, expected {wanted}.")
        if not np.isfinite(value).all():
            raise ValueError(
                f"cov_func gave NaN or infinite covariances at {name}: check its hyperparameters "
                "and the scale of the inputs."
            )
        return value


_MOMENT_ERRORS = ("f_mean_mcse", "f_sd_mcse", "f_skewness_mcse")
_PER_POINT = ("f", "p", "y", "f_mean", "f_sd", "f_skewness", *_MOMENT_ERRORS, "p_mean", "p_mcse")


def _zero_mean(X: FloatArray) -> FloatArray:
    return np.zeros(X.shape[0])


def _as_inputs(name: str, value: ArrayLike, n_features: int | None = None) -> FloatArray:
    array = np.asarray(value)
    if array.ndim == 1:
        array = array[:, None]
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}): at least one point is needed.")
    # A copy: what is computed later must not follow the caller's array.
    return as_matrix(name, array, (None, n_features)).copy()


def _as_signs(y: ArrayLike, n: int) -> FloatArray:
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.size != n:
        raise ValueError(
            f"y must have shape ({n},), one label for each row of X; got {labels.shape}."
        )
    try:
        found = np.unique(labels)
    except TypeError as error:  # None among numbers, say
        raise TypeError(f"y must hold numbers or booleans: {error}.") from error
    for negative in (0, -1):
        if np.isin(found, (negative, 1)).all():
            return np.where(labels == 1, 1.0, -1.0)
    shown = ", ".join(map(str, found[:5])) + (", ..." if found.size > 5 else "")
    raise ValueError(
        f"y must hold two classes coded 0 and 1 (or -1 and 1); found {found.size} value(s): "
        f"{shown}. For other codes use (y == positive_class)."
    )


def _as_phase(phase: ArrayLike | None, s: int) -> FloatArray:
    signs = as_vector("phase", 1.0 if phase is None else phase, s)
    if not np.isin(signs, (-1.0, 1.0)).all():
        raise ValueError(f"phase must hold +1 and -1 only, got {signs}.")
    return signs


def _refuse_indefinite(prior: FloatArray, factor: FloatArray) -> None:
    gap = np.abs(prior - factor @ factor.T).max()
    scale = prior.diagonal().max()
    if gap > 1e-8 * scale:
        raise NotPositiveDefiniteError(
            "cov_func is not positive semidefinite at X and the pseudo-points: what is left of its "
            f"matrix beyond the positive part has entries up to {gap:.3g} (largest variance "
            f"{scale:.3g})."
        )


def _refuse_coincident(cov: FloatArray, phase: FloatArray, truncation: FloatArray) -> None:
    sd = np.sqrt(cov.diagonal())
    if not (sd > 0).all():
        raise ValueError("cov_func has no variance at some of pseudo_points: move them.")
    correlation = np.abs(np.triu(cov / sd / sd[:, None], 1))
    i, j = np.unravel_index(int(np.argmax(correlation)), correlation.shape)
    if correlation[i, j] < _COINCIDENT:
        return
    if phase[i] * phase[j] * cov[i, j] < 0 and truncation[i] + truncation[j] <= 0:
        raise ValueError(
            f"pseudo_points {i} and {j} coincide with opposite phases: the prior asks f to be "
            "positive and negative at one point, which has probability 0. Move one, or flip its "
            "phase."
        )
    raise ValueError(
        f"pseudo_points {i} and {j} coincide (correlation 1 within 1e-9), so their latent "
        "covariance is singular: remove one of them."
    )


def _resampled(
    latent: TruncatedDraws, chains: int, draws: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Indices of equally weighted draws, shape (chains, draws): resampled within each chain."""
    blocks = latent.log_weights.reshape(chains, -1)
    size = blocks.shape[1]
    if latent.method == "lin_ess":  # equal already, and the order of a chain matters
        return np.arange(latent.log_weights.size).reshape(chains, -1)
    return np.stack(
        [i * size + systematic_resample(block, draws, rng) for i, block in enumerate(blocks)]
    )


def _ratio_error(values: FloatArray, weights: FloatArray, mean: FloatArray) -> FloatArray:
    """Standard error of a weighted mean: independent draws, weights normalised by their sum."""
    return np.sqrt((values - mean[:, None]) ** 2 @ weights**2)


def _sample_stats(latent: TruncatedDraws, chosen: NDArray[np.intp]) -> dict[str, FloatArray]:
    return {"log_weight": latent.log_weights[chosen]}


def _attributes(latent: TruncatedDraws, elapsed: float | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "method": latent.method,
        "ess_fraction": latent.ess_fraction,
        "pareto_k": latent.pareto_k,
    }
    if elapsed is not None:
        attributes["sampling_time"] = elapsed
    return attributes


def _as_datatree(
    groups: dict[str, dict[str, Any]],
    *,
    dims: dict[str, list[str]],
    coords: dict[str, Any],
    attrs: dict[str, Any],
) -> DataTree:
    from arviz_base import from_dict  # heavy to import, and only needed with draws in hand

    summaries = {name: group for name, group in groups.items() if name.endswith("_summary")}
    draws = {name: group for name, group in groups.items() if name not in summaries}
    described = {name: attrs for name in ("posterior", "sample_stats", "predictions")}
    tree = from_dict(
        draws,
        dims=dims,
        coords=coords,
        pred_dims=dims,
        pred_coords=coords,
        check_conventions=False,  # more inputs or chains than draws are nothing to warn of
        attrs={name: value for name, value in described.items() if name in draws},
    )
    if summaries:
        extra = from_dict(
            summaries,
            pred_dims=dims,
            pred_coords=coords,
            sample_dims=[],
            check_conventions=False,
            attrs={name: attrs for name in summaries},
        )
        for name in summaries:
            tree[name] = extra[name]
    return tree
