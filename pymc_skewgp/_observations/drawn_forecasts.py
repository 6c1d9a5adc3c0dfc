"""Mean and standard deviation of new observations, by quadrature where it can be, or by draws."""

from collections.abc import Callable

import numpy as np

from pymc_skewgp._gaussian.weights import weighted_error
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray

# Draws of a new observation for each point, at least.
_DRAWS = 4096
# Nodes of Gauss and Hermite's rule for the mean within a component.
_NODES = 24
# Numbers held at once.
_BLOCK = 2**21


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
    rng = np.random.default_rng(0)  # summaries are the same for every seed of draws
    t, components = mixture.means.shape
    copies = -(-_DRAWS // components)
    weights = np.repeat(mixture.weights / copies, copies)
    replicate = None if mixture.replicate is None else np.repeat(mixture.replicate, copies)
    found = {name: np.empty(t) for name in ("y_mean", "y_mean_se", "y_sd", "y_sd_se")}
    step = max(1, _BLOCK // (components * max(copies, _NODES)))
    for start in range(0, t, step):
        rows = slice(start, start + step)
        centre = np.repeat(mixture.means[rows], copies, axis=1)
        sd = np.sqrt(mixture.variance[rows])[:, None]
        y = np.asarray(draw(centre + sd * rng.standard_normal(centre.shape), rng), dtype=float)
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


def _within_components(
    mixture: Mixture, rows: slice, mean: Callable[[FloatArray], FloatArray | None]
) -> FloatArray | None:
    """Mean of an observation in each component, shape (t, S)."""
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(_NODES)
    sd = np.sqrt(mixture.variance[rows])[:, None, None]
    given = mean(mixture.means[rows][:, :, None] + sd * nodes)
    return None if given is None else given @ (node_weights / node_weights.sum())
