"""From draws of f at the data to an `Approximation`."""

from typing import Any

import numpy as np

from pymc_skewgp._diagnostics.approximations.problem import (
    Approximation,
    Problem,
    function_tree,
    predicted_probability,
)
from pymc_skewgp._diagnostics.marginals import DrawnMarginals
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior.function_given import continue_draws
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._posterior.pseudo_points_given import with_pseudo_points
from pymc_skewgp._validation import FloatArray

_BLOCKS_A_CHAIN = 4


def from_draws(
    problem: Problem,
    f: FloatArray,
    new: FloatArray | None = None,
    *,
    attrs: dict[str, Any] | None = None,
    **known: float | None,
) -> Approximation:
    """What draws of f say, at the data and at the new points.

    Parameters
    ----------
    problem : Problem
    f : ndarray, shape (n_chains, n_draws, n)
        At the data.
    new : ndarray, shape (n_chains, n_draws, t), optional
        At the new points; default GP regression on `f`, which also averages their noise out of the
        probabilities.
    attrs : dict, optional
        Of the DataTree.
    **known
        Other fields of `Approximation`.
    """
    n_chains, n_draws, n = f.shape
    likelihood = problem.likelihood
    # Draws depend on their neighbours in a chain; stretches of it hardly do.
    stretch = np.arange(n_draws) * min(_BLOCKS_A_CHAIN, n_draws) // n_draws
    replicate = (np.arange(n_chains)[:, None] * _BLOCKS_A_CHAIN + stretch).ravel()
    if not problem.new.shape[0]:
        if isinstance(likelihood, BernoulliProbit):
            probability = DrawnMarginals(f).probability()
        elif n > problem.X.shape[0]:  # several functions, whose probabilities none is asked for
            probability = Probability(np.zeros((n, 0)), np.zeros((n, 0)))
        else:
            equal = np.full(n_chains * n_draws, 1.0 / (n_chains * n_draws))
            at = LatentMarginals(f.reshape(-1, n).T, np.zeros(n), equal, replicate)
            probability = predicted_probability(likelihood, at)
        new = np.zeros((n_chains, n_draws, 0))
    elif new is None:
        rng = np.random.default_rng([problem.seed, 1])
        flat = f.reshape(-1, n)
        with no_warnings():  # of the jitter that f at one of the data needs
            points, values = with_pseudo_points(problem.prior, problem.X, flat, rng)
            further = continue_draws(problem.prior, points, values, problem.new)
        probability = predicted_probability(likelihood, further.marginals(replicate))
        new = further.sample(rng).reshape(n_chains, n_draws, -1)
    else:
        probability = DrawnMarginals(new).probability()
    tree = function_tree(f, new, attrs or {}, likelihood)
    marginals = DrawnMarginals(np.concatenate([f, new], axis=2))
    return Approximation(marginals, probability, tree, **known)  # type: ignore[arg-type]
