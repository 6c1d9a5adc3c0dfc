"""The exact posterior of probit classification under a GP or Skew GP prior.

Everything comes from one truncated Gaussian, u ~ N(0, G) restricted to u > -g, whose rows are the
signs of the process at the pseudo-points and the signs of the noisy observations. Given u, the
process is Gaussian at the data and everywhere else.
"""

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr
from xarray import DataTree

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.truncated import (
    Seed,
    TruncatedDraws,
    draws_by,
    lin_ess_draws,
    log_orthant,
)
from pymc_skewgp._gaussian.weights import Estimate, add_estimates, systematic_resample
from pymc_skewgp._memory import FUNCTION_BUFFERS, refuse_too_many_draws
from pymc_skewgp._observations.arguments import as_inputs, as_phase, as_signs
from pymc_skewgp._posterior.datatree import as_datatree, sampling_attributes
from pymc_skewgp._posterior.latent_marginals import LatentMarginals, Probability
from pymc_skewgp._posterior.probit import CovarianceFunction, MeanFunction, Prior, ProbitProblem
from pymc_skewgp._sun.contradiction import naming_the_labels
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import (
    FloatArray,
    as_count,
    as_generator,
    as_real_array,
    as_vector,
)

Method = Literal["twisted", "lin_ess"]

# Weighted draws that a chain is resampled from, at least: one draw alone would be the proposal's.
_LEAST_WEIGHTED = 128
_ETI_89 = (0.055, 0.5, 0.945)


class _Regression(NamedTuple):
    """f at t points given u, but for the draws: f - centre = solved' u + residual."""

    centre: FloatArray  # (t,), prior mean
    variance: FloatArray  # (t,), prior variance
    row_cov: FloatArray  # (s + n, t), covariance of u with f
    solved: FloatArray  # G^-1 row_cov


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
        Kernel ``k(X, Xs=None, diag=False)`` returning arrays; what ``k(X)`` has beyond ``k(X, X)``
        is noise of each row (see Notes). `SkewGP.posterior` makes one from a ``pm.gp.cov`` object.
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
        self._X = as_inputs("X", X)
        n, d = self._X.shape
        self._sign = as_signs(y, n)
        if not callable(cov_func):
            raise TypeError(f"cov_func must be callable, got {type(cov_func).__name__}.")
        points = np.zeros((0, d))
        if pseudo_points is not None:
            points = as_inputs("pseudo_points", pseudo_points, d)
        elif phase is not None or np.any(truncation):
            raise ValueError("phase and truncation belong to pseudo_points: give those as well.")
        s = points.shape[0]
        self._prior = Prior(
            cov_func,
            mean_func or _zero_mean,
            points,
            as_phase(phase, s),
            as_vector("truncation", truncation, s),
        )
        self._n_draws = as_count("n_draws", n_draws)
        as_generator(random_seed)  # refuses what is no seed at once
        self._random_seed = random_seed
        self._points = np.vstack([points, self._X])
        refuse_too_many_draws("n_draws", self._n_draws, s + n)
        _ = self._prior.latent_cov  # refuses impossible pseudo-points at once

    def __repr__(self) -> str:
        return (
            f"SkewGPPosterior(n={self._X.shape[0]}, n_features={self._X.shape[1]}, "
            f"n_pseudo_points={self._prior.n_pseudo_points}, fitted={self._fitted})"
        )

    @property
    def _fitted(self) -> bool:
        """Whether EP and its proposal are there: what is asked next only draws from them."""
        return "_sampler" in vars(self) and self._sampler.fitted

    @property
    def prior(self) -> Prior:
        """Kernel, mean and pseudo-points, as functions and arrays."""
        return self._prior

    @cached_property
    def latent(self) -> TruncatedDraws:
        """Weighted draws of u, columns: pseudo-points first, then data."""
        return self._draw_latent(self._n_draws, "twisted", self._random_seed, 1, 1)

    @cached_property
    def log_marginal_likelihood(self) -> Estimate:
        """Log evidence, log p(y), in nats, with its standard error."""
        joint = self.latent.log_prob
        assert joint is not None  # the twisted sampler always knows it
        return self._evidence(joint)

    @cached_property
    def sun(self) -> SUN:
        """The posterior of f at the data as a `SUN` with s + n latent dimensions."""
        problem = self._problem
        prior = problem.prior_factor
        return SUN._trusted(
            problem.mean,
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
        *,
        thin: int = 1,
    ) -> DataTree:
        """Draw the latent function at the data, noise of the kernel included.

        Parameters
        ----------
        draws, chains : int
            Draws in each chain; chains.
        method : {"twisted", "lin_ess"}
            "twisted": near-independent draws (weighted ones, resampled to equal weights within each
            chain). "lin_ess": a Markov chain, kept for comparison.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness.
        thin : int, default 1
            Steps of lin-ess for each draw kept; "twisted" has no use for it.

        Returns
        -------
        DataTree
            Groups ``posterior`` (``f``: chain, draw, obs_id), ``posterior_predictive`` (``y``: new
            labels at the data), ``sample_stats`` (``log_weight`` of
            the draw before resampling; attributes ``method``, ``relative_ess``, ``pareto_k``,
            ``sampling_time`` in seconds, and for "twisted" ``log_marginal_likelihood`` with
            ``log_marginal_likelihood_se``, from these draws), ``log_likelihood``,
            ``observed_data``, ``constant_data``.
        """
        draws, chains = as_count("draws", draws), as_count("chains", chains)
        _refuse_too_many(draws, chains, self._X.shape[0])
        rng = as_generator(random_seed)
        started = time.perf_counter()
        with few_blas_threads(self._sign.size):
            latent, chosen = self._equal_draws(draws, chains, method, rng, as_count("thin", thin))
            f = self._problem.function_given(latent.draws, rng, chosen.ravel())
        elapsed = time.perf_counter() - started
        f = f.reshape(chains, draws, -1)
        log_likelihood = log_ndtr(self._sign * f)
        # An exponential variable exceeds -log p with probability p: the label is drawn again.
        again = rng.standard_exponential(f.shape, dtype=np.float32) > -log_likelihood
        return as_datatree(
            {
                "posterior": {"f": f},
                "posterior_predictive": {"y": np.where(again, self._labels, 1 - self._labels)},
                "sample_stats": {"log_weight": latent.log_weights[chosen]},
                "log_likelihood": {"y": log_likelihood},
                "observed_data": {"y": self._labels},
                "constant_data": {"X": self._X},
            },
            dims={"f": ["obs_id"], "y": ["obs_id"], "X": ["obs_id", "feature"]},
            coords={"obs_id": np.arange(f.shape[-1]), "feature": np.arange(self._X.shape[1])},
            attrs={**self._attributes(latent), "sampling_time": elapsed},
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
            New inputs. Noise of the kernel is drawn afresh for each row, also at inputs of the
            data.
        draws, chains : int
            Draws of f, p and y. ``draws=0`` leaves
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
        new = as_inputs("Xnew", Xnew, self._X.shape[1])
        probs = as_vector("quantiles", np.atleast_1d(as_real_array("quantiles", quantiles)))
        draws, chains = as_count("draws", draws, 0), as_count("chains", chains)
        _refuse_too_many(draws, chains, new.shape[0])
        rng = as_generator(random_seed)
        regression = self._regression(new)
        marginals = self._marginals(regression)
        mean, sd, skewness = marginals.moments
        errors = marginals.moment_errors
        p_mean, p_mcse = marginals.probability()

        groups: dict[str, dict[str, Any]] = {}
        quantile_group = {}
        if probs.size:
            quantile_group["f_quantile"] = marginals.quantile(probs)
        if draws:
            drawn, chosen = self._equal_draws(draws, chains, "twisted", rng, 1)
            solved = regression.solved
            residual = self._prior.covariance("Xnew", new) - regression.row_cov.T @ solved
            factor = linalg.low_rank_factor(0.5 * (residual + residual.T))
            f = regression.centre[:, None] + (drawn.draws[chosen.ravel()] @ solved).T
            f += factor @ rng.standard_normal((factor.shape[1], f.shape[1]))
            f = f.T.reshape(chains, draws, -1)
            p = ndtr(f)
            y = (rng.random(p.shape) < p).astype(np.int64)
            groups["predictions"] = {"f": f, "p": p, "y": y}
        return as_datatree(
            {
                **groups,
                "predictions_summary": {
                    "f_mean": mean,
                    "f_sd": sd,
                    "f_skewness": skewness,
                    **dict(zip(_MOMENT_ERRORS, errors, strict=True)),
                    **quantile_group,
                    "p_mean": p_mean,
                    "p_mcse": p_mcse,
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
            attrs=self._attributes(self.latent),
        )

    def probability(self, Xnew: ArrayLike) -> Probability:
        r"""Probability of a label 1 at new points, and nothing else: `predict` without its moments.

        .. math:: p(y_* = 1) = \mathrm E_u\, \Phi\{m_*(u) / \sqrt{1 + v_*}\}

        Parameters
        ----------
        Xnew : array_like, shape (t, d) or (t,)
            New inputs. For a new label at the rows of the data themselves, whose noise of the
            kernel is theirs, ask ``marginals().probability()``.

        Returns
        -------
        Probability
            ``value`` and its Monte Carlo ``std_error``, shape (t,) each.
        """
        return self.marginals(Xnew).probability()

    def marginals(self, Xnew: ArrayLike | None = None) -> LatentMarginals:
        """Marginal distribution of f at each point: moments, quantiles, distribution function.

        Parameters
        ----------
        Xnew : array_like, shape (t, d) or (t,), optional
            New inputs, also where they are those of the data. Default the data: the function that
            `sample` draws. The two differ for kernels with noise of each row.

        Returns
        -------
        LatentMarginals

        Examples
        --------
        >>> import pymc as pm
        >>> from pymc_skewgp import SkewGP
        >>> gp = SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
        >>> at = gp.posterior([[0.0], [1.0]], [1, 1]).marginals([[0.5]])
        >>> print(f"P(f(0.5) < 0) = {at.cdf([0.0]).value[0]:.2f}")
        P(f(0.5) < 0) = 0.06
        """
        new = None if Xnew is None else as_inputs("Xnew", Xnew, self._X.shape[1])
        return self._marginals(self._regression(new))

    def _regression(self, new: FloatArray | None) -> _Regression:
        """At new points; for None at the data, which are not new points at their inputs."""
        problem = self._problem  # first, so that what is wrong at the data is told of as such
        if new is None:
            variance = np.einsum("ij,ij->i", problem.prior_factor, problem.prior_factor)
            return _Regression(problem.mean, variance, *problem.regression())
        cross = self._prior.covariance("Xnew", self._points, new)
        variance = self._prior.covariance("Xnew", new, diag=True)
        return _Regression(self._prior.mean("Xnew", new), variance, *problem.regression(cross))

    def _marginals(self, regression: _Regression) -> LatentMarginals:
        latent = self.latent
        weights = np.exp(latent.log_weights - latent.log_weights.max())
        weights /= weights.sum()
        means = regression.solved.T @ latent.draws.T
        means += regression.centre[:, None]
        known = np.einsum("ij,ij->j", regression.row_cov, regression.solved)
        variance = np.maximum(regression.variance - known, 0.0)
        return LatentMarginals(means, variance, weights, latent.replicate)

    @property
    def _labels(self) -> NDArray[np.int64]:
        return (self._sign > 0).astype(np.int64)

    @cached_property
    def _problem(self) -> ProbitProblem:
        return ProbitProblem(
            self._prior.covariance("X", self._points),
            self._prior.mean("X", self._X),
            self._prior.scale,
            self._prior.truncation,
            self._sign,
        )

    @cached_property
    def _sampler(self) -> RectangleSampler:
        """Fitted once: the evidence, predictions and every call of `sample` draw from it."""
        lower = self._problem.lower
        return RectangleSampler(self._problem.cov, lower, np.full(lower.size, np.inf))

    @cached_property
    def _prior_log_prob(self) -> Estimate:
        """Log probability of the signs that the prior was told."""
        return log_orthant(self._prior.truncation, self._prior.latent_cov, self._n_draws, 0)

    def _evidence(self, joint: Estimate) -> Estimate:
        value, std_error, _, _ = add_estimates(0.0, joint, self._prior_log_prob)
        return joint._replace(value=value, std_error=std_error)

    def _attributes(self, latent: TruncatedDraws) -> dict[str, Any]:
        known = latent.log_prob
        return sampling_attributes(latent, None if known is None else self._evidence(known))

    def _draw_latent(
        self, n: int, method: str, seed: Seed, chains: int, thin: int
    ) -> TruncatedDraws:
        sampler, rng = self._sampler, as_generator(seed)
        with naming_the_labels(self._prior.n_pseudo_points):
            if method == "twisted":
                return draws_by(sampler, n, rng)
            if method == "lin_ess":
                problem = sampler.cov, sampler.lower, sampler.upper
                return lin_ess_draws(*problem, n, rng, n_chains=chains, thin=thin)
        raise ValueError(f'method must be "twisted" or "lin_ess", got {method!r}.')

    def _equal_draws(
        self, draws: int, chains: int, method: str, rng: np.random.Generator, thin: int
    ) -> tuple[TruncatedDraws, NDArray[np.intp]]:
        """Draws of u, and which of them to take, shape (chains, draws), for equal weights."""
        if method == "lin_ess":  # equal already, and the order of a chain matters
            latent = self._draw_latent(draws * chains, method, rng, chains, thin)
            return latent, np.arange(draws * chains).reshape(chains, draws)
        size = max(draws, _LEAST_WEIGHTED)
        latent = self._draw_latent(size * chains, method, rng, chains, thin)
        blocks = enumerate(latent.log_weights.reshape(chains, size))
        # Copies stay side by side, where the effective sample size of a chain sees them.
        chosen = [i * size + np.sort(systematic_resample(block, draws, rng)) for i, block in blocks]
        return latent, np.stack(chosen)


_MOMENT_ERRORS = ("f_mean_mcse", "f_sd_mcse", "f_skewness_mcse")
_PER_POINT = ("f", "p", "y", "f_mean", "f_sd", "f_skewness", *_MOMENT_ERRORS, "p_mean", "p_mcse")


def _refuse_too_many(draws: int, chains: int, n_points: int) -> None:
    name = f"draws={draws}, chains={chains}"
    refuse_too_many_draws(name, draws * chains, n_points, FUNCTION_BUFFERS)


def _zero_mean(X: FloatArray) -> FloatArray:
    return np.zeros(X.shape[0])
