"""`TruncatedDraws`: weighted draws of a truncated normal, with what is known of their quality."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from pymc_skewgp._gaussian import weights as w
from pymc_skewgp._limits import refuse_too_many_draws
from pymc_skewgp._validation import FloatArray, Seed, as_count, as_generator


@dataclass(frozen=True)
class TruncatedDraws:
    """Draws of a truncated multivariate normal.

    Attributes
    ----------
    draws : ndarray, shape (n_draws, N)
        Draws, every one within the limits. With ``method="lin_ess"`` the chains follow one another.
    log_weights : ndarray, shape (n_draws,)
        Log importance weights up to a constant: a mean under the truncated normal is a mean of the
        draws with weights ``exp(log_weights)``. All zero for ``method="lin_ess"``.
    log_prob : Estimate or None
        Log probability of the rectangle with its error; None for ``method="lin_ess"``, which does
        not know it.
    method : str
        What was run: "twisted", "twisted (relaxed)", "tempered", "filtered" or "lin_ess".
    n_chains : int
        Markov chains behind the draws; 1 where they are independent.
    replicate : ndarray of int, shape (n_draws,), or None
        Equal numbers for draws that depend on each other: those of one set of mirrored points;
        for "tempered" and "filtered" those of one run, which share ancestors. The spread of their
        sums gives the error of a mean. None where draws are as good as independent, or of chains.
    n_modes : int
        Modes that the proposal is about: above 1 only for likelihoods that are not log-concave.
    """

    draws: FloatArray
    log_weights: FloatArray
    log_prob: w.Estimate | None
    method: str
    n_chains: int = 1
    replicate: w.IntArray | None = None
    n_modes: int = 1

    @cached_property
    def relative_ess(self) -> float:
        """Effective sample size over the number of draws, in (0, 1]; may exceed 1 for chains.

        Of the weights; for ``method="lin_ess"`` the smallest of the chains' bulk effective sample
        sizes over the coordinates, which takes a moment to find.
        """
        if self.log_prob is not None:
            return self.log_prob.relative_ess
        return w.chain_relative_ess(self.draws.reshape(self.n_chains, -1, self.draws.shape[1]))

    @property
    def pareto_k(self) -> float:
        """Tail shape of the weights; -inf where there are none."""
        return -np.inf if self.log_prob is None else self.log_prob.pareto_k

    def equally_weighted(
        self,
        n: int | None = None,
        *,
        scheme: Literal["systematic", "metropolis"] = "systematic",
        random_seed: Seed = None,
    ) -> FloatArray:
        """Draws that need no weights.

        Parameters
        ----------
        n : int, optional
            How many; default as many as there are. "metropolis" gives at most that.
        scheme : {"systematic", "metropolis"}
            "systematic" resampling: each draw is repeated in proportion to its weight, in random
            order; with a relative ESS near 1 few are repeated. "metropolis": a chain of
            independence Metropolis over the draws in their order, with runs of equal draws. Both
            are exact as the number of draws grows.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness.

        Returns
        -------
        ndarray, shape (n, N)
        """
        count = as_count("n", self.log_weights.size if n is None else n)
        refuse_too_many_draws("n", count, self.draws.shape[1], buffers=1)
        rng = as_generator(random_seed)
        return self.draws[equal_weight_indices(self.log_weights, count, scheme, rng)]


def equal_weight_indices(
    log_weights: FloatArray, n: int, scheme: str, rng: np.random.Generator
) -> w.IntArray:
    """Indices of `n` equally weighted draws by the named scheme."""
    if scheme == "systematic":
        return w.systematic_resample(log_weights, n, rng)
    if scheme == "metropolis":
        if n > log_weights.size:
            raise ValueError(
                f"n must be at most the number of draws ({log_weights.size}) for "
                f'scheme="metropolis", got {n}: use scheme="systematic" or draw more.'
            )
        return w.metropolis_resample(log_weights, rng)[:n]
    raise ValueError(f'scheme must be "systematic" or "metropolis", got {scheme!r}.')
