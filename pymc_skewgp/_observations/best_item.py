"""Which of new items is best: what comparisons predict of items that are compared together."""

import numpy as np
from scipy.special import ndtr

from pymc_skewgp._gaussian.weights import mean_probability, weighted_error
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._validation import FloatArray

MOST_ITEMS = 256  # whose every pair is compared: some 30000 of them


def beats_all(f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
    """``p_best``, the share of joint draws of f, (chain, draw, t), where an item is the largest."""
    draws = f.reshape(-1, f.shape[-1])
    share = np.bincount(draws.argmax(axis=1), minlength=draws.shape[1]) / draws.shape[0]
    # A share of 0 or 1 has an error too: one more draw might have been otherwise.
    safe = (share * draws.shape[0] + 1.0) / (draws.shape[0] + 2.0)
    n_effective = effective_draws(draws.shape[0], mixture)
    return {"p_best": share, "p_best_se": np.sqrt(safe * (1.0 - safe) / n_effective)}


def effective_draws(n_draws: int, mixture: Mixture) -> float:
    """How many of equal draws count, which are weighted ones resampled: by Kish's formula."""
    weights = mixture.weights
    return n_draws / (weights.size * float(weights @ weights))


def beats_each(mixture: Mixture, noise: float, threshold: float = 0.0) -> dict[str, FloatArray]:
    r"""``p_beats`` of all pairs of t items, shape (t, t); nothing for more than 256 of them.

    .. math:: P(i \text{ beats } j) = \mathrm E_u \Phi\left\{
        \frac{m_i - m_j - d}{(v_{ii} + v_{jj} - 2 v_{ij} + s)^{1/2}} \right\}

    with s the variance of the noise of the difference and d the threshold. On the diagonal are two
    items with the same inputs.
    """
    t, joint = mixture.means.shape[0], mixture.joint
    if joint is None or t > MOST_ITEMS:
        return {}
    value, error = np.empty((t, t)), np.empty((t, t))
    variance = joint.diagonal()
    for i in range(t):
        spread = variance[i] + variance - 2.0 * joint[i]
        ahead = mixture.means[i] - mixture.means
        value[i], error[i] = difference_probability(ahead, spread, mixture, noise, threshold)
    return {"p_beats": value, "p_beats_se": error}


def pair_probability(mixture: Mixture, noise: float, threshold: float) -> Probability:
    """Probability that the first item of a pair beats the second; `mixture` has them by turns."""
    covariance = mixture.covariance
    assert covariance is not None
    ahead = mixture.means[0::2] - mixture.means[1::2]
    spread = covariance[:, 0, 0] + covariance[:, 1, 1] - 2.0 * covariance[:, 0, 1]
    return difference_probability(ahead, spread, mixture, noise, threshold)


def difference_probability(
    ahead: FloatArray, spread: FloatArray, mixture: Mixture, noise: float, threshold: float
) -> Probability:
    """P(difference + noise > threshold), for differences N(ahead, spread) given u.

    Parameters
    ----------
    ahead : ndarray, shape (t, S)
        Mean of each difference given each draw of u.
    spread : ndarray, shape (t,)
        Its variance given u.
    mixture : Mixture
        Weights of the draws.
    noise, threshold : float
        Variance of the noise of the difference; what it has to be above.
    """
    total = np.sqrt(np.maximum(spread, 0.0) + noise)
    p = ndtr((ahead - threshold) / total[:, None])
    mean = mean_probability(p, mixture.weights)
    if mixture.exact:
        return Probability(mean, np.zeros(mean.size))
    p -= mean[:, None]
    return Probability(mean, weighted_error(p, mixture.weights, mixture.replicate))
