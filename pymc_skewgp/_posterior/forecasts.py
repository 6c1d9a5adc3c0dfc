"""What a posterior says of new points: the part of `SkewGPPosterior` that forecasts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import normalized_weights
from pymc_skewgp._memory import FUNCTION_BUFFERS, refuse_too_many_draws
from pymc_skewgp._observations.arguments import as_derivative, as_inputs
from pymc_skewgp._observations.bernoulli_logit import BernoulliLogit
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._observations.best_item import pair_probability
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._observations.weighted import Weighted
from pymc_skewgp._posterior.conditioning import Regression
from pymc_skewgp._posterior.data_sets import DataSet, link_of
from pymc_skewgp._posterior.function_fit import FunctionFit
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._posterior.output import predictions_tree
from pymc_skewgp._validation import (
    FloatArray,
    Seed,
    as_count,
    as_generator,
    as_real_array,
    as_vector,
)

_ETI_89 = (0.055, 0.5, 0.945)
_NUMBERS_AT_ONCE = 2**24  # draws times new points, of which an array is made


class Forecasts(ABC):
    """Forecasts by the mixture over draws of u, from data sets and what was computed of them."""

    _sets: tuple[DataSet, ...]
    _fit: FunctionFit

    @property
    @abstractmethod
    def latent(self) -> TruncatedDraws:
        """Weighted draws of u."""

    @property
    @abstractmethod
    def likelihood(self) -> Likelihood | tuple[Likelihood, ...]:
        """Of the data."""

    @abstractmethod
    def _attributes(self, latent: TruncatedDraws) -> dict[str, Any]:
        """How draws were made."""

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
        quantiles : sequence of float, default (0.055, 0.5, 0.945)
            Probabilities for ``f_quantile``; the default is the median and the 89 % interval. Empty
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
        new = as_inputs("Xnew", Xnew, self._sets[0].X.shape[1])
        probs = as_vector("quantiles", np.atleast_1d(as_real_array("quantiles", quantiles)))
        draws, chains = as_count("draws", draws, 0), as_count("chains", chains)
        refuse_large(draws, chains, new.shape[0] * self._fit.n_functions)
        rng = as_generator(random_seed)
        regression = self._fit.regression(new, joint=draws > 0)
        joint = self._fit.covariance_at(new, regression) if draws else None
        f = None
        if draws:
            f = self._fit.draw_at(regression, joint, (chains, draws), rng)
        marginals = self._marginals(regression, joint)
        return predictions_tree(
            self._sets, new, marginals, f, probs, rng, self._attributes(self.latent)
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
        new = as_inputs("Xnew", Xnew, self._sets[0].X.shape[1])
        size = max(1, _NUMBERS_AT_ONCE // max(self.latent.log_weights.size, 1))
        parts = [new[i : i + size] for i in range(0, new.shape[0], size)]
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
        d = self._sets[0].X.shape[1]
        a, b = as_inputs("Xa", Xa, d), as_inputs("Xb", Xb, d)
        if a.shape != b.shape:
            raise ValueError(f"Xa and Xb must have equal shapes, got {a.shape} and {b.shape}.")
        regression = self._fit.pair_regression(a, b)
        noise, threshold = kinds[0].duel
        return pair_probability(self._marginals(regression), noise, threshold)

    def marginals(
        self, Xnew: ArrayLike | None = None, *, derivative: tuple[int, int] | None = None
    ) -> LatentMarginals:
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
        d = self._sets[0].X.shape[1]
        new, slope = None if Xnew is None else as_inputs("Xnew", Xnew, d), None
        if derivative is not None:
            slope = as_derivative(derivative, d)
            if new is None:
                raise ValueError("marginals of a derivative are at new points: give Xnew.")
        return self._marginals(self._fit.regression(new, derivative=slope))

    def _marginals(
        self, regression: Regression, joint: FloatArray | None = None
    ) -> LatentMarginals:
        latent = self.latent
        if joint is not None:
            joint = self._fit.averaged_joint(regression, joint)
        regression = self._fit.averaged(regression)
        means = regression.solved.T @ latent.draws.T
        means += regression.centre[:, None]
        weights = normalized_weights(latent.log_weights)
        exact = not latent.draws.shape[1]
        return LatentMarginals(
            means,
            regression.variance,
            weights,
            latent.replicate,
            exact,
            regression.covariance,
            joint,
            link_of(self._sets),
        )


def refuse_large(draws: int, chains: int, n_points: int) -> None:
    """Refuse draws that do not fit into memory."""
    name = f"draws={draws}, chains={chains}"
    refuse_too_many_draws(name, draws * chains, n_points, FUNCTION_BUFFERS)
