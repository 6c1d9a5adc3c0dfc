"""Means, standard deviations and quantiles of new observations, by draws where nothing is known.

f is not drawn where one grid of nodes serves: its tails are met however rare they are.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.weights import UNRELIABLE_K, IntArray, pareto_k, weighted_error
from pymc_skewgp._observations.averaged_forecasts import parts_of
from pymc_skewgp._observations.latent_nodes import (
    STEP,
    Nodes,
    are_shared,
    shared_nodes,
)
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray

# Draws of a new observation for each point, and at each node, at least.
_DRAWS, _AT_NODE = 2**15, 2
# Draws at each end of a grid that show whether it is not too long; values of f where it is.
_AT_ENDS, _VALUES = 64, 2**12
_MATTERS = 0.01  # share of a node in an average, against the largest, for it to tell of tails
# Length of the grid in deviations s of f: squares of an exponential of f are within 8 + 2 s.
_SHORT, _LONG = 8.0, 14.0

Draw = Callable[[FloatArray, np.random.Generator], FloatArray]


class Drawn(NamedTuple):
    """New observations at nodes of some points.

    Attributes
    ----------
    rows : ndarray of int, shape (b,)
        The points.
    nodes : Nodes
    y : ndarray, shape (n, b, K)
        n draws at each node.
    """

    rows: IntArray
    nodes: Nodes
    y: FloatArray

    def mean(self, values: FloatArray, mixture: Mixture) -> tuple[FloatArray, FloatArray]:
        """Average of a function of y, values of which have the shape of it, with its error."""
        at_node = values.mean(axis=0)
        weights = self.nodes.weights
        average = (weights * at_node).sum(axis=1)
        within = values.var(axis=0, ddof=1) / values.shape[0]
        error = np.sqrt((weights**2 * within).sum(axis=1))
        of_f = np.zeros(error.size)
        if self.nodes.shares is None:  # f is drawn
            of_f = np.sqrt(((weights * (at_node - average[:, None])) ** 2).sum(axis=1))
        if not mixture.exact:
            influence = self.nodes.each(at_node) - average[:, None]
            drawn = weighted_error(influence, mixture.weights, mixture.replicate)
            of_f = np.maximum(of_f, drawn)
        return average, np.hypot(error, of_f)

    def are_heavy(self, values: FloatArray) -> FloatArray:
        """At which points the Pareto tail of what an average is made of has no known error."""
        terms = self.nodes.weights * np.abs(values)
        found = np.zeros(self.rows.size, dtype=bool)
        for i in range(found.size):
            share = terms[:, i].mean(axis=0)
            own = terms[:, i, share >= _MATTERS * share.max()]
            own = own[np.isfinite(own) & (own > 0)]
            found[i] = own.size and pareto_k(np.log(own)) > UNRELIABLE_K
        return found


def drawn_forecasts(mixture: Mixture, draw: Draw) -> dict[str, FloatArray]:
    """``y_mean`` and ``y_sd`` at each point, with their Monte Carlo errors.

    An error is infinite where the draws say that the integral may be.

    Parameters
    ----------
    mixture : Mixture
        Of t points.
    draw : callable
        Observations given values of f of any shape, and a generator.
    """
    names = ("y_mean", "y_mean_se", "y_sd", "y_sd_se")
    found = {name: np.empty(mixture.means.shape[0]) for name in names}
    for drawn in _drawn(mixture, draw):
        with np.errstate(all="ignore"):
            mean, error = drawn.mean(drawn.y, mixture)
            off = drawn.y - mean[:, None]
            variance, of_variance = drawn.mean(off**2, mixture)
            spread = np.sqrt(variance)
            sd_error = of_variance / (2.0 * np.where(spread > 0, spread, 1.0))
            error[drawn.are_heavy(off)] = np.inf
            sd_error[drawn.are_heavy(off**2)] = np.inf
        for name, x in zip(names, (mean, error, spread, sd_error), strict=True):
            found[name][drawn.rows] = x
    return found


def drawn_quantiles(mixture: Mixture, draw: Draw, probs: FloatArray) -> dict[str, FloatArray]:
    """``y_quantile``, shape (n_probs, t): the least y that has the probability below or at it.

    And its error ``y_quantile_se``, from that of the probability.
    """
    value = np.empty((probs.size, mixture.means.shape[0]))
    error = np.empty(value.shape)
    for drawn in _drawn(mixture, draw):
        y = drawn.y.transpose(1, 0, 2).reshape(drawn.rows.size, -1)
        order = np.argsort(y, axis=1)
        weights = np.tile(drawn.nodes.weights, drawn.y.shape[0]) / drawn.y.shape[0]
        below = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
        ordered = np.take_along_axis(y, order, axis=1)

        def least(p: FloatArray, below: FloatArray = below, y: FloatArray = ordered) -> FloatArray:
            place = np.minimum((below < p[:, None]).sum(axis=1), y.shape[1] - 1)
            return np.asarray(np.take_along_axis(y, place[:, None], axis=1)[:, 0])

        for i, p in enumerate(probs):
            each = np.full(drawn.rows.size, p)
            found = least(each)
            doubt = drawn.mean((drawn.y <= found[:, None]).astype(np.float64), mixture)[1]
            sides = least(each - doubt), least(each + doubt)
            value[i, drawn.rows] = found
            error[i, drawn.rows] = np.maximum(found - sides[0], sides[1] - found)
    return {"y_quantile": value, "y_quantile_se": error}


def _drawn(mixture: Mixture, draw: Draw) -> Iterator[Drawn]:
    rng = np.random.default_rng(0)  # summaries are the same for every seed of draws
    shared = are_shared(mixture)
    for is_shared in (True, False):
        left = np.flatnonzero(shared == is_shared)
        for part in parts_of(mixture, left.size, _LONG / STEP):
            rows = left[part]
            nodes = _random(mixture, rows, rng)
            if is_shared:
                reach = min(_SHORT + 2.0 * float(np.sqrt(mixture.variance[rows].max())), _LONG)
                grid = shared_nodes(mixture, rows, STEP, reach)
                nodes = grid if _can(draw, grid, rng) else nodes
            n = max(_AT_NODE, -(-_DRAWS // nodes.f.shape[1]))
            yield Drawn(rows, nodes, draw(np.broadcast_to(nodes.f, (n, *nodes.f.shape)), rng))


def _can(draw: Draw, nodes: Nodes, rng: np.random.Generator) -> bool:
    """Whether draws at the ends of a grid are accepted, where they are made by rejection."""
    ends = nodes.f[:, [0, -1]]
    try:
        draw(np.broadcast_to(ends, (_AT_ENDS, *ends.shape)), rng)
    except RuntimeError:  # as PyMC has it
        return False
    return True


def _random(mixture: Mixture, rows: IntArray, rng: np.random.Generator) -> Nodes:
    """Values of f from each component."""
    copies = -(-_VALUES // mixture.weights.size)
    centre, sd = mixture.means[rows], np.sqrt(mixture.variance[rows])
    f = np.repeat(centre, copies, axis=1)
    f += sd[:, None] * rng.standard_normal(f.shape)
    weights = np.broadcast_to(np.repeat(mixture.weights / copies, copies), f.shape)
    return Nodes(f, weights, weights, None, np.full(copies, 1.0 / copies))
