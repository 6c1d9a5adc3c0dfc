r"""What features leave of f at the values of groups of rows, drawn given f without it and the data.

The rows of a group are :math:`u = g + t`, with t the noise and what features leave, e, together.
u is drawn within its limits, or known; e given t is Gaussian.
"""

import numpy as np
from scipy.special import log_ndtr

from pymc_skewgp._gaussian.blocks.group_sites import one_factor
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._posterior.approximations.several_functions import FunctionFeatures
from pymc_skewgp._posterior.group_log_probs import rest_is_noise
from pymc_skewgp._posterior.residual_draws import tabulated_draws
from pymc_skewgp._posterior.row_groups import RowGroups, row_groups
from pymc_skewgp._validation import FloatArray


def group_residuals(
    rows: Observations,
    features: FunctionFeatures,
    signal: FloatArray,
    rest: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """One e for each of `signal`, f without it, for draws, inputs and functions: (N, n, K).

    `rest` are the variances d at the inputs. Zeros where f is taken without e.
    """
    n_draws, n, k = signal.shape
    groups = [some.of_all_functions(k) for some in row_groups(rows)]
    if not rest_is_noise(groups, features, k):
        return np.zeros(signal.shape)
    # At inputs that no row is about it is drawn from the prior.
    half = features.half[:k]
    e = rng.standard_normal((n_draws, n, half.shape[1])) @ half.T
    e *= np.sqrt(rest)[:, None]
    e = e.reshape(n_draws, -1)
    flat = signal.reshape(n_draws, -1)
    for some in groups:
        own = features.of_rest(some.values, rest[some.values // k], k)
        noisy = some.with_rest(own).points_first()
        of_values = flat[:, noisy.values]
        centre = np.einsum("Nnp,nmp->Nnm", of_values, noisy.design) + noisy.offset
        t = _drawn(noisy, centre, rng)
        shared = own @ noisy.design.swapaxes(1, 2)
        gain = shared @ np.linalg.inv(noisy.noise)
        left = own - gain @ shared.swapaxes(1, 2)
        value, vector = np.linalg.eigh(0.5 * (left + left.swapaxes(1, 2)))
        factor = vector * np.sqrt(np.maximum(value, 0.0))[:, None, :]
        given = np.einsum("npm,Nnm->Nnp", gain, t)
        given += np.einsum("npq,Nnq->Nnp", factor, rng.standard_normal(given.shape))
        e[:, noisy.values] = given
    return e.reshape(signal.shape)


def _drawn(groups: RowGroups, centre: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Noise of the rows given that u is what it is, shape (N, n, m)."""
    low, high = groups.lower - centre, groups.upper - centre
    found = groups.value - centre
    loading = np.zeros(groups.value.shape)
    sd = np.sqrt(np.einsum("ijj->ij", groups.noise))
    shared = np.zeros(centre.shape[:2])
    if not groups.is_apart:
        factor = one_factor(groups.noise)
        assert factor is not None
        loading, sd = factor
        shared = _of_factor(low, high, loading, sd, rng)
    moved = loading * shared[:, :, None]
    interval = np.isnan(groups.value)
    low, high = ((x - moved)[:, interval] / sd[interval] for x in (low, high))
    u = draw_truncated(rng.random(low.shape), low, high)[0]
    found[:, interval] = moved[:, interval] + sd[interval] * u
    return found


def _of_factor(
    low: FloatArray,
    high: FloatArray,
    loading: FloatArray,
    sd: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Draws of the factor of each group, whose rows have one limit each, shape (N, n)."""
    above = np.isposinf(high)
    a = np.where(above, -low, high) / sd
    b = np.where(above[0], 1.0, -1.0) * loading / sd  # the same sides for all draws

    def log_density(z: FloatArray, draws: slice) -> FloatArray:
        found = -0.5 * z**2
        for j in range(b.shape[1]):
            found = found + log_ndtr(a[draws, :, j] + b[:, j] * z)
        return found

    return tabulated_draws(log_density, a.shape[:2], rng)
