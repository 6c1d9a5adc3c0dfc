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
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
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
        At the data; of K functions n K values, all functions at the first of the data, and so on.
    new : ndarray, shape (n_chains, n_draws, t), optional
        At the new points; default GP regression on `f`, which also averages their noise out of the
        probabilities.
    attrs : dict, optional
        Of the DataTree.
    **known
        Other fields of `Approximation`.
    """
    n_chains, n_draws, n = f.shape
    k = problem.n_functions
    likelihood = problem.likelihood
    # Draws depend on their neighbours in a chain; stretches of it hardly do.
    stretch = np.arange(n_draws) * min(_BLOCKS_A_CHAIN, n_draws) // n_draws
    replicate = (np.arange(n_chains)[:, None] * _BLOCKS_A_CHAIN + stretch).ravel()
    if not problem.new.shape[0]:
        if isinstance(likelihood, BernoulliProbit):
            probability = DrawnMarginals(f).probability()
        else:
            at = _mixture(f.reshape(-1, n).T, np.zeros(n), k, replicate)
            probability = predicted_probability(likelihood, at)
        new = np.zeros((n_chains, n_draws, 0))
    elif new is None:
        rng = np.random.default_rng([problem.seed, 1])
        each, drawn = [], []
        with no_warnings():  # of the jitter that f at one of the data needs
            for function in range(k):  # independent of each other
                own = f.reshape(-1, n)[:, function::k]
                points, values = with_pseudo_points(problem.prior, problem.X, own, rng)
                further = continue_draws(problem.prior, points, values, problem.new)
                each.append(further.marginals(replicate))
                drawn.append(further.sample(rng))
        means = np.stack([one.means for one in each], axis=1).reshape(-1, n_chains * n_draws)
        variance = np.stack([one.variance for one in each], axis=1).ravel()
        at = _mixture(means, variance, k, replicate)
        probability = predicted_probability(likelihood, at)
        new = np.stack(drawn, axis=2).reshape(n_chains, n_draws, -1)
    elif isinstance(likelihood, BernoulliProbit):
        probability = DrawnMarginals(new).probability()
    else:
        at = _mixture(new.reshape(-1, new.shape[2]).T, np.zeros(new.shape[2]), k, replicate)
        probability = predicted_probability(likelihood, at)
    tree = function_tree(problem.by_function(f), problem.by_function(new), attrs or {}, likelihood)
    marginals = DrawnMarginals(np.concatenate([f, new], axis=2))
    return Approximation(marginals, probability, tree, **known)  # type: ignore[arg-type]


def _mixture(
    means: FloatArray, variance: FloatArray, k: int, replicate: IntArray
) -> LatentMarginals:
    """Equally weighted components, (t K, S); those of one replicate may depend on each other."""
    weights = np.full(means.shape[1], 1.0 / means.shape[1])
    covariance = None
    if k > 1:
        covariance = variance.reshape(-1, k, 1) * np.eye(k)
    return LatentMarginals(means, variance, weights, replicate, covariance=covariance)
