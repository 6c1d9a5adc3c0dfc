"""Means, standard deviations and quantiles of new observations, by draws where nothing is known."""

from collections.abc import Callable, Iterator

import numpy as np

from pymc_skewgp._gaussian.weights import IntArray, weighted_error
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray

# Draws of a new observation for each point, at least.
_DRAWS = 4096
# Nodes of Gauss and Hermite's rule for the mean within a component.
_NODES = 24
# Numbers held at once.
_BLOCK = 2**21
_NAMES = ("y_mean", "y_mean_se", "y_sd", "y_sd_se")


def drawn_forecasts(
    mixture: Mixture,
    draw: Callable[[FloatArray, np.random.Generator], FloatArray],
    mean: Callable[[FloatArray], FloatArray | None],
) -> dict[str, FloatArray]:
    """``y_mean`` and ``y_sd`` at each point, with their Monte Carlo errors.

    Parameters
    ----------
    mixture : Mixture
        Of t points.
    draw : callable
        Observations given values of f of any shape, and a generator.
    mean : callable
        Mean of an observation given f; None where it is not known in closed form: then the mean is
        that of the draws.
    """
    found = {name: np.empty(mixture.means.shape[0]) for name in _NAMES}
    for rows, y, weights, replicate in _drawn(mixture, draw):
        given = _within_components(mixture, rows, mean)
        if given is None:
            average = y @ weights
            error = weighted_error(y - average[:, None], weights, replicate)
        else:
            average = given @ mixture.weights
            off = given - average[:, None]
            error = weighted_error(off, mixture.weights, mixture.replicate)
            error = np.zeros_like(error) if mixture.exact else error
        off = y - (y @ weights)[:, None]
        variance = off**2 @ weights
        spread = np.sqrt(variance)
        of_variance = weighted_error(off**2 - variance[:, None], weights, replicate)
        found["y_mean"][rows], found["y_mean_se"][rows] = average, error
        found["y_sd"][rows] = spread
        found["y_sd_se"][rows] = of_variance / (2.0 * np.maximum(spread, np.finfo(float).tiny))
    return found


def drawn_quantiles(
    mixture: Mixture,
    draw: Callable[[FloatArray, np.random.Generator], FloatArray],
    probs: FloatArray,
) -> dict[str, FloatArray]:
    """``y_quantile``, shape (n_probs, t): the least y that has the probability below or at it."""
    found = np.empty((probs.size, mixture.means.shape[0]))
    for rows, y, weights, _ in _drawn(mixture, draw):
        order = np.argsort(y, axis=1)
        below = np.cumsum(weights[order], axis=1)
        for i, p in enumerate(probs):
            place = np.minimum((below < p).sum(axis=1), y.shape[1] - 1)
            chosen = np.take_along_axis(order, place[:, None], axis=1)
            found[i, rows] = np.take_along_axis(y, chosen, axis=1)[:, 0]
    return {"y_quantile": found}


def _drawn(
    mixture: Mixture, draw: Callable[[FloatArray, np.random.Generator], FloatArray]
) -> Iterator[tuple[slice, FloatArray, FloatArray, IntArray | None]]:
    """New observations at some points at a time, their weights, and their replicates."""
    rng = np.random.default_rng(0)  # summaries are the same for every seed of draws
    t, components = mixture.means.shape
    copies = -(-_DRAWS // components)
    weights = np.repeat(mixture.weights / copies, copies)
    replicate = None if mixture.replicate is None else np.repeat(mixture.replicate, copies)
    step = max(1, _BLOCK // (components * max(copies, _NODES)))
    for start in range(0, t, step):
        rows = slice(start, start + step)
        centre = np.repeat(mixture.means[rows], copies, axis=1)
        sd = np.sqrt(mixture.variance[rows])[:, None]
        yield rows, draw(centre + sd * rng.standard_normal(centre.shape), rng), weights, replicate


def _within_components(
    mixture: Mixture, rows: slice, mean: Callable[[FloatArray], FloatArray | None]
) -> FloatArray | None:
    """Mean of an observation in each component, shape (t, S)."""
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(_NODES)
    sd = np.sqrt(mixture.variance[rows])[:, None, None]
    given = mean(mixture.means[rows][:, :, None] + sd * nodes)
    return None if given is None else given @ (node_weights / node_weights.sum())
