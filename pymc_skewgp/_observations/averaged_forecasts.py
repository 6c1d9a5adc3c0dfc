"""Mean and standard deviation of new observations, by quadrature over f."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import IntArray, weighted_error
from pymc_skewgp._observations.latent_nodes import (
    REACH,
    STEP,
    Nodes,
    are_shared,
    own_nodes,
    shared_nodes,
)
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray

# Mean and standard deviation of an observation given f.
ConditionalMoments = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
# By how much a rule of twice the step may differ, in standard deviations; and what share the ends
# of the grid may have. Until then steps are halved and grids made longer, so often at most.
_CLOSE, _CUT_OFF, _MOST_TIMES = 1e-6, 1e-12, 6
_LONGER, _LONGEST = 6.0, 37.0
_BLOCK = 2**20  # numbers held at once
_NAMES = ("y_mean", "y_mean_se", "y_sd", "y_sd_se")


def averaged_forecasts(mixture: Mixture, moments: ConditionalMoments) -> dict[str, FloatArray]:
    r"""``y_mean`` and ``y_sd`` at each point, with their errors.

    .. math:: \mathrm E\, y = \mathrm E_f\, \mu(f), \qquad
        \mathrm{var}(y) = \mathrm E_f \{\sigma^2(f) + (\mu(f) - \mathrm E\, y)^2\}

    An error is that of the draws that the mixture is made of and that of the quadrature. What is
    infinite has none.

    Parameters
    ----------
    mixture : Mixture
        Of t points.
    moments : callable
        Mean and standard deviation of an observation given values of f, of any shape.
    """
    found = np.full((4, mixture.means.shape[0]), np.nan)
    shared = are_shared(mixture)
    for nodes_at, left in (
        (shared_nodes, np.flatnonzero(shared)),
        (own_nodes, np.flatnonzero(~shared)),
    ):
        step, reach = STEP, REACH
        for _ in range(_MOST_TIMES):
            coarse, short = np.zeros(left.size, bool), np.zeros(left.size, bool)
            for part in parts_of(mixture, left.size, reach / step):
                rows = left[part]
                nodes = nodes_at(mixture, rows, step, reach)
                found[:, rows], coarse[part], short[part] = _at(nodes, mixture, rows, moments)
            # An integral that goes on beyond the grid is at least what was found.
            found[3, left[short]] = np.inf
            left = left[coarse | (short & (reach < _LONGEST))]
            if not left.size:
                break
            step = 0.5 * step if coarse.any() else step
            reach = min(reach + _LONGER, _LONGEST) if short.any() else reach
    return dict(zip(_NAMES, found, strict=True))


def parts_of(mixture: Mixture, size: int, n_nodes: float) -> Iterator[slice]:
    """Of so many points as many at a time as their nodes fit into memory."""
    step = max(1, int(_BLOCK / (mixture.weights.size * 3.0 * n_nodes)))
    return (slice(start, start + step) for start in range(0, size, step))


def _drawn_error(each: FloatArray, whole: FloatArray, mixture: Mixture) -> FloatArray:
    """Error of averages over components; squares of these may overflow."""
    scale = np.where(whole != 0, np.abs(whole), 1.0)
    influence = (each - whole[:, None]) / scale[:, None]
    return weighted_error(influence, mixture.weights, mixture.replicate) * scale


def _at(
    nodes: Nodes, mixture: Mixture, rows: IntArray, moments: ConditionalMoments
) -> tuple[FloatArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """Moments with their errors, shape (4, b); where the rule is too coarse; and too short."""
    with np.errstate(all="ignore"):
        mean, sd = (nodes.filled(x) for x in moments(nodes.f))
        average, off = nodes.total(mean)
        away = np.hypot(sd, mean - average[:, None])
        variance, off_variance = nodes.total(away, 2)
        spread = np.sqrt(variance)
        coarse = (off > _CLOSE * spread) | (off_variance > _CLOSE * variance)
        short = nodes.cut_off(away) > _CUT_OFF
        short |= nodes.cut_off(away, 2) > _CUT_OFF
        drawn = np.zeros((2, rows.size))
        if not mixture.exact:
            parts = ((nodes.each(mean), average), (nodes.each(away, 2), variance))
            drawn = np.stack([_drawn_error(each, whole, mixture) for each, whole in parts])
        error, of_variance = np.hypot(drawn, [off, off_variance])
        of_spread = of_variance / (2.0 * np.where(spread > 0, spread, 1.0))
        error[np.isinf(average)], of_spread[np.isinf(spread)] = 0.0, 0.0
    return np.stack([average, error, spread, of_spread]), coarse, short
