"""Mean and standard deviation of new observations, by quadrature over f and by draws."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import UNRELIABLE_K, IntArray, pareto_k
from pymc_skewgp._observations.likelihood import Mixture, average_error, n_points_of
from pymc_skewgp._validation import FloatArray

# Values of f by which functions of it are averaged, :math:`\sum_j w_j \int g(f) N(f; m_j, v) df`.
#
# A trapezoid rule: for Gaussians times smooth functions it converges faster than any power of its
# step, and the rule of every second node tells how far it is.

# Nodes of one grid for all components, up to which there is one: else f is drawn.
_MOST_SHARED = 600
# Mass of the nodes at which a function may be unknown.
_NOTHING = 1e-9
STEP, REACH = 0.25, 8.0  # of the rule at first, in standard deviations of a component


@dataclass(frozen=True)
class Nodes:
    """Nodes at b points.

    Attributes
    ----------
    f : ndarray, shape (b, K)
        Values of f; of several functions, (b, K, functions).
    weights, coarse : ndarray, shape (b, K)
        What the mixture gives them, in this rule and in that of every second node.
    shares : ndarray, shape (b, S, K), or None
        What each component gives them, over `weights`; None where K / S nodes in a row belong to
        one component.
    own : ndarray, shape (K / S,)
        Then what it gives these.
    """

    f: FloatArray
    weights: FloatArray
    coarse: FloatArray
    shares: FloatArray | None
    own: FloatArray

    def each(self, values: FloatArray, power: int = 1) -> FloatArray:
        """Averages within each component, shape (b, S), of values at the nodes to a power."""
        if self.shares is not None:
            terms = _terms(self.weights, values, power)
            return np.asarray((self.shares @ terms[:, :, None])[..., 0])
        values = values.reshape(values.shape[0], -1, self.own.size)
        return np.asarray(_terms(self.own, values, power).sum(axis=-1))

    def total(self, values: FloatArray, power: int = 1) -> tuple[FloatArray, FloatArray]:
        """Averages over the mixture, and by how much the coarse rule differs."""
        rules = (self.weights, self.coarse)
        found, coarse = (_terms(weights, values, power).sum(axis=1) for weights in rules)
        return found, np.abs(found - coarse)

    def cut_off(self, values: FloatArray, power: int = 1) -> FloatArray:
        """Share that the first and last node have in an average of positive values, shape (b,)."""
        terms = _terms(self.weights, values, power)
        return np.nan_to_num((terms[:, 0] + terms[:, -1]) / terms.sum(axis=1))

    def filled(self, values: FloatArray) -> FloatArray:
        """With the nearest number in place of what is none where f hardly ever is."""
        unknown = np.isnan(values) & (self.f.ndim == 2)
        for i in np.flatnonzero(unknown.any(axis=1)):
            own = unknown[i]
            if self.weights[i, own].sum() < _NOTHING:
                order = np.argsort(self.f[i, ~own])
                known = self.f[i, ~own][order], values[i, ~own][order]
                values[i, own] = np.interp(self.f[i, own], *known)
        return values


def _terms(weights: FloatArray, values: FloatArray, power: int) -> FloatArray:
    """Weights times powers of values, which by themselves may overflow."""
    root = weights if power == 1 else weights ** (1.0 / power)
    # Where the weight is 0 the value may be infinite.
    terms = np.multiply(root, values, where=root > 0, out=np.zeros(values.shape))
    return terms if power == 1 else terms**power


def are_shared(mixture: Mixture) -> NDArray[np.bool_]:
    """At which points one grid serves all components."""
    wide, sd = np.ptp(mixture.means, axis=1) / STEP, np.sqrt(mixture.variance)
    found: NDArray[np.bool_] = (sd > 0) & (wide <= (_MOST_SHARED - 2 * REACH / STEP) * sd)
    return found


def shared_nodes(mixture: Mixture, rows: IntArray, step: float, reach: float) -> Nodes:
    """One grid a point, evenly spaced."""
    means, sd = mixture.means[rows], np.sqrt(mixture.variance[rows])
    low, high = means.min(axis=1) - reach * sd, means.max(axis=1) + reach * sd
    n = 2 * int(np.ceil(0.5 * ((high - low) / (step * sd)).max())) + 1
    f = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, n)
    shares = (f[:, None, :] - means[:, :, None]) / sd[:, None, None]
    np.exp(-0.5 * shares**2, out=shares)
    shares *= ((high - low) / (n - 1) / (sd * np.sqrt(2.0 * np.pi)))[:, None, None]
    weights = np.asarray(mixture.weights @ shares)
    shares /= np.maximum(weights, np.finfo(float).tiny)[:, None, :]
    return Nodes(f, weights, weights * np.where(np.arange(n) % 2, 0.0, 2.0), shares, np.ones(n))


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
        Mean and standard deviation of an observation given values of f, of any shape; of K
        functions (..., K). These are drawn, and so is f where its components are narrow.
    """
    found = np.full((4, n_points_of(mixture)), np.nan)
    several = mixture.covariance is not None
    shared = np.zeros(found.shape[1], dtype=bool) if several else are_shared(mixture)
    left, rng = np.flatnonzero(~shared), np.random.default_rng(0)
    for part in parts_of(mixture, left.size, _LONG / STEP):
        rows = left[part]
        found[:, rows], *_ = _at(drawn_nodes(mixture, rows, rng), mixture, rows, moments)
    left, step, reach = np.flatnonzero(shared), STEP, REACH
    for _ in range(_MOST_TIMES):
        coarse, short = np.zeros(left.size, bool), np.zeros(left.size, bool)
        for part in parts_of(mixture, left.size, reach / step):
            rows = left[part]
            nodes = shared_nodes(mixture, rows, step, reach)
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
    return average_error(mixture, influence) * scale


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
        parts = ((nodes.each(mean), average), (nodes.each(away, 2), variance))
        drawn = np.stack([_drawn_error(each, whole, mixture) for each, whole in parts])
        error, of_variance = np.hypot(drawn, [off, off_variance])
        of_spread = of_variance / (2.0 * np.where(spread > 0, spread, 1.0))
        error[np.isinf(average)], of_spread[np.isinf(spread)] = 0.0, 0.0
    return np.stack([average, error, spread, of_spread]), coarse, short


# Means, standard deviations and quantiles of new observations, by draws where nothing is known.
#
# f is not drawn where one grid of nodes serves: its tails are met however rare they are.

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
        of_f = np.maximum(of_f, average_error(mixture, self.nodes.each(at_node) - average[:, None]))
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
        Observations given values of f of any shape, those of several functions at the end, and a
        generator.
    """
    found = np.empty((4, n_points_of(mixture)))
    for drawn in _drawn(mixture, draw):
        with np.errstate(all="ignore"):
            mean, error = drawn.mean(drawn.y, mixture)
            off = drawn.y - mean[:, None]
            variance, of_variance = drawn.mean(off**2, mixture)
            spread = np.sqrt(variance)
            sd_error = of_variance / (2.0 * np.where(spread > 0, spread, 1.0))
            error[drawn.are_heavy(off)] = np.inf
            sd_error[drawn.are_heavy(off**2)] = np.inf
        found[:, drawn.rows] = mean, error, spread, sd_error
    return dict(zip(_NAMES, found, strict=True))


def drawn_quantiles(mixture: Mixture, draw: Draw, probs: FloatArray) -> dict[str, FloatArray]:
    """``y_quantile``, shape (n_probs, t): the least y that has the probability below or at it.

    And its error ``y_quantile_se``, from that of the probability.
    """
    value = np.empty((probs.size, n_points_of(mixture)))
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


def drawn_nodes(mixture: Mixture, rows: IntArray, rng: np.random.Generator) -> Nodes:
    """Draws of the functions at some points, a few from each component in a row."""
    cov, means = mixture.covariance, mixture.means
    known = cov is not None and not cov[rows].any()
    copies = 1 if known else -(-_VALUES // mixture.weights.size)
    if cov is None:
        f = np.repeat(means[rows], copies, axis=1)
        f += np.sqrt(mixture.variance[rows])[:, None] * rng.standard_normal(f.shape)
    else:
        values, vectors = np.linalg.eigh(cov[rows])
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
        by_function = means.reshape(-1, cov.shape[1], mixture.weights.size)[rows]
        f = np.repeat(by_function.swapaxes(1, 2), copies, axis=1)
        f = f + rng.standard_normal(f.shape) @ root.swapaxes(1, 2)
    weights = np.broadcast_to(np.repeat(mixture.weights / copies, copies), f.shape[:2])
    return Nodes(f, weights, weights, None, np.full(copies, 1.0 / copies))


def _drawn(mixture: Mixture, draw: Draw) -> Iterator[Drawn]:
    rng = np.random.default_rng(0)  # summaries are the same for every seed of draws
    several = mixture.covariance is not None
    shared = np.zeros(n_points_of(mixture), dtype=bool) if several else are_shared(mixture)
    for is_shared in (True, False):
        left = np.flatnonzero(shared == is_shared)
        for part in parts_of(mixture, left.size, _LONG / STEP):
            rows = left[part]
            nodes = drawn_nodes(mixture, rows, rng)
            if is_shared:
                reach = min(_SHORT + 2.0 * float(np.sqrt(mixture.variance[rows].max())), _LONG)
                grid = shared_nodes(mixture, rows, STEP, reach)
                ends = grid.f[:, [0, -1]]
                # Where draws at the ends of the grid are refused, as PyMC refuses those that are
                # made by rejection, it is not taken.
                with suppress(RuntimeError):
                    draw(np.broadcast_to(ends, (_AT_ENDS, *ends.shape)), rng)
                    nodes = grid
            n = max(_AT_NODE, -(-_DRAWS // nodes.f.shape[1]))
            yield Drawn(rows, nodes, draw(np.broadcast_to(nodes.f, (n, *nodes.f.shape)), rng))
