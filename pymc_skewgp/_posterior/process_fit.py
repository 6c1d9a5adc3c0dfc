"""A process conditioned on data, its sampler fitted once: what every answer is computed from."""

from functools import cached_property

import numpy as np

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.rectangle import log_prob_rectangle
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate, IntArray, add_estimates
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._posterior.conditioning import Conditioning, Regression
from pymc_skewgp._posterior.latent import draw_latent, equal_draws
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.process import process_given
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, Seed


class ProcessFit:
    """f at the pseudo-points, at the data and at new points, given the data.

    Parameters
    ----------
    prior : Prior
    X : ndarray, shape (n, d)
        Inputs of the data.
    observations : Observations
        Rows of f there.
    """

    def __init__(self, prior: Prior, X: FloatArray, observations: Observations) -> None:
        self._prior, self._X, self._observations = prior, X, observations
        self._points = np.vstack([prior.pseudo_points, X])

    @cached_property
    def conditioning(self) -> Conditioning:
        """Of f at the pseudo-points and at the data."""
        prior = self._prior
        return process_given(
            prior.covariance("X", self._points),
            prior.mean("X", self._X),
            prior.phase,
            prior.truncation,
            self._observations,
        )

    @cached_property
    def sampler(self) -> RectangleSampler:
        """EP and proposals, which the evidence and all draws share."""
        given = self.conditioning
        return RectangleSampler(given.cov, given.lower, given.upper)

    @property
    def fitted(self) -> bool:
        """Whether EP and its proposal are there: what is asked next only draws from them."""
        return "sampler" in vars(self) and self.sampler.fitted

    def evidence(self, joint: Estimate, signs: Estimate) -> Estimate:
        """Log evidence, from the probability of the rectangle and that of the prior's signs."""
        value, std_error, _, _ = add_estimates(self.conditioning.log_density, joint, signs)
        return joint._replace(value=value, std_error=std_error)

    def prior_log_prob(self, n_draws: int) -> Estimate:
        """Log probability of the signs at the pseudo-points, before any data."""
        prior = self._prior
        return log_prob_rectangle(prior.latent_cov, -np.inf, prior.truncation, n_draws, None, 0)

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Weighted draws of u."""
        count = n_draws if self.sampler.size else 1  # without u there is nothing to draw
        s = self._prior.n_pseudo_points
        return draw_latent(self.sampler, count, "twisted", random_seed, n_pseudo_points=s)

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, IntArray]:
        """Draws of u, and which of them to take, `shape` being (chains, draws)."""
        s = self._prior.n_pseudo_points
        return equal_draws(self.sampler, shape, method, rng, n_pseudo_points=s, thin=thin)

    def draw(
        self, latent: TruncatedDraws, chosen: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        """Draws of f at the data, shape (chains, draws, n)."""
        s = self._prior.n_pseudo_points
        f = self.conditioning.draw(latent.draws, rng, chosen.ravel(), skip=s)
        return f.reshape(*chosen.shape, -1)

    def regression(self, new: FloatArray | None, *, joint: bool = False) -> Regression:
        """At new points; for None at the data, which are not new points at their inputs."""
        given, prior = self.conditioning, self._prior  # first: what is wrong at the data is named
        if new is None:
            return given.regression(skip=prior.n_pseudo_points, joint=joint)
        cross = prior.covariance("Xnew", self._points, new)
        variance = prior.covariance("Xnew", new, diag=True)
        return given.regression_at(prior.mean("Xnew", new), variance, cross, joint=joint)

    def draw_at(
        self,
        new: FloatArray,
        regression: Regression,
        shape: tuple[int, int],
        rng: np.random.Generator,
    ) -> FloatArray:
        """Joint draws of f at new points, shape (chains, draws, t)."""
        latent, chosen = self.equal_draws(shape, "twisted", rng)
        assert regression.taken is not None
        residual = self._prior.covariance("Xnew", new) - regression.taken
        factor = linalg.low_rank_factor(linalg.symmetric(residual))
        f = regression.centre[:, None] + (latent.draws[chosen.ravel()] @ regression.solved).T
        f += factor @ rng.standard_normal((factor.shape[1], f.shape[1]))
        return f.T.reshape(*shape, -1)

    def sun(self) -> SunParameters:
        """Of f at the data, one latent dimension for each row of u.

        Raises
        ------
        ValueError
            For observations with two finite limits.
        """
        given, s = self.conditioning, self._prior.n_pseudo_points
        above = np.isposinf(given.upper)
        if not (above | np.isneginf(given.lower)).all():
            raise ValueError(
                "a SUN has one-sided latent limits, and some observations have two: use sample, "
                "predict or marginals."
            )
        side = np.where(above, 1.0, -1.0)
        factor, row_factor = given.factor[s:], side[:, None] * given.row_factor
        return SunParameters(
            given.mean[s:],
            factor @ factor.T,
            factor @ row_factor.T,
            np.where(above, -given.lower, given.upper),
            side[:, None] * given.cov.dense() * side,
        )
