"""Densities by a table, limits against an EP site, the least Gaussian direction, unseen tails.

Draws, distribution function and normalising constant are closed, and it may be as far from a
Gaussian as it likes: cut on one side, heavy on the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.special import ndtr, ndtri

from pymc_skewgp._gaussian.covariance import Covariance
from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pymc_skewgp._gaussian.twisted import TwistedProposal

# Points at which a density is first looked at, in its units, either side of 0: it may be as wide as
# a prior that no limit restricts.
_FIRST_LOOK = np.array([0.0, 1.0, 2.0, 3.5, 6.0, 12.0, 24.0, 48.0])
_CUT = 60.0  # nats below the peak at which a table ends
_MATTERS = 25.0  # nats below the peak down to which cells are halved
_FLAT = 0.01  # nats by which the middle of a cell may leave the straight line
_ROUNDS, _MOST_NODES = 14, 300
_FLOOR = 1e12  # nats
_STEP = 0.125  # of the grid on which -x^2 / 2 is a polygon: off by .002 nat


@dataclass(frozen=True)
class TabulatedDensity:
    """A density whose logarithm is linear between nodes, and beyond them.

    Attributes
    ----------
    nodes : ndarray, shape (k,)
        Increasing.
    log_density : ndarray, shape (k,)
        At the nodes, normalised.
    slope : ndarray, shape (k + 1,)
        Of the log density left of the first node, in the k - 1 cells, right of the last.
    cumulative : ndarray, shape (k + 2,)
        Probability left of each cell, the two tails among them; from 0 to 1.
    """

    nodes: FloatArray
    log_density: FloatArray
    slope: FloatArray
    cumulative: FloatArray

    @classmethod
    def of(cls, nodes: FloatArray, log_values: FloatArray) -> "TabulatedDensity":
        """Normalised; the tails go on with the slopes of the outermost cells."""
        gaps = np.diff(nodes)
        inner = np.diff(log_values) / gaps
        # A tail has to fall: where the table ends on a rise, it falls at once.
        slope = np.concatenate([[max(inner[0], 1.0)], inner, [min(inner[-1], -1.0)]])
        peak = log_values.max()
        height = np.exp(log_values - peak)
        mass = np.empty(nodes.size + 1)
        mass[0], mass[-1] = height[0] / slope[0], -height[-1] / slope[-1]
        mass[1:-1] = height[:-1] * gaps * _relative_expm1(inner * gaps)
        total = mass.sum()
        cumulative = np.append(0.0, np.minimum(np.cumsum(mass / total), 1.0))
        cumulative[-1] = 1.0
        return cls(nodes, log_values - peak - np.log(total), slope, cumulative)

    def flattened(self, power: float) -> "TabulatedDensity":
        """The density to a power below 1, normalised: heavier in both tails."""
        return TabulatedDensity.of(self.nodes, power * self.log_density)

    def quantile(self, probs: FloatArray) -> FloatArray:
        """Inverse of the distribution function at probabilities in (0, 1)."""
        cell = np.searchsorted(self.cumulative, probs, side="right") - 1
        cell = np.clip(cell, 0, self.nodes.size)
        anchor = np.maximum(cell - 1, 0)  # the left node of a cell, the first one for the left tail
        base = np.where(cell == 0, self.cumulative[1], self.cumulative[cell])
        run = (probs - base) / np.exp(self.log_density[anchor])
        slope = self.slope[cell]
        steep = np.abs(slope * run) > 1e-12
        safe = np.where(steep, slope, 1.0)
        step = np.log1p(np.maximum(safe * run, -1.0 + 1e-16)) / safe
        return self.nodes[anchor] + np.where(steep, step, run)

    def log_pdf(self, x: FloatArray) -> FloatArray:
        """Log density."""
        cell, anchor = self._cells(x)
        result: FloatArray = self.log_density[anchor] + self.slope[cell] * (x - self.nodes[anchor])
        return result

    def cdf(self, x: FloatArray) -> FloatArray:
        """Distribution function."""
        cell, anchor = self._cells(x)
        run, slope = x - self.nodes[anchor], self.slope[cell]
        base = np.where(cell == 0, self.cumulative[1], self.cumulative[cell])
        inside = np.exp(self.log_density[anchor]) * run * _relative_expm1(slope * run)
        result: FloatArray = np.clip(base + inside, 0.0, 1.0)
        return result

    def _cells(self, x: FloatArray) -> tuple[IntArray, IntArray]:
        cell = np.searchsorted(self.nodes, x, side="right")
        return cell, np.maximum(cell - 1, 0)


def tabulate(correction: Callable[[FloatArray], FloatArray]) -> TabulatedDensity:
    """The table of exp{correction(x) - x^2 / 2}, up to a constant, made log-concave.

    The correction takes nearly all of the time: it is known at the nodes where it is not straight,
    and the square is added on a finer grid.
    """
    x = np.concatenate([-_FIRST_LOOK[:0:-1], _FIRST_LOOK])
    extra = _bounded(correction(x))
    unknown = np.ones(x.size - 1, dtype=bool)  # cells whose middle has not been looked at
    for _ in range(_ROUNDS):
        values = _log_concave(x, extra - 0.5 * x**2)
        top = np.maximum(values[:-1], values[1:])
        cells = np.flatnonzero(unknown & (top > values.max() - _MATTERS))
        if not cells.size or x.size > _MOST_NODES:
            break
        middle = 0.5 * (x[cells] + x[cells + 1])
        found = _bounded(correction(middle))
        curved = np.abs(found - 0.5 * (extra[cells] + extra[cells + 1])) > _FLAT
        unknown[cells] = curved
        where = cells + 1
        x, extra = np.insert(x, where, middle), np.insert(extra, where, found)
        unknown = np.insert(unknown, where, curved)
    values = _log_concave(x, extra - 0.5 * x**2)
    peak = values.max()
    high = np.flatnonzero(values > peak - _CUT)
    ends = slice(max(high[0] - 1, 0), high[-1] + 2)
    first, last = x[ends][[0, -1]]
    nodes = np.union1d(x[ends], np.linspace(first, last, max(2, int((last - first) / _STEP))))
    # The square between nodes, where the correction is straight there; elsewhere a straight line.
    resolved = np.append(np.maximum(values[:-1], values[1:]) > peak - _MATTERS, False)
    fine = np.interp(nodes, x, values + 0.5 * x**2) - 0.5 * nodes**2
    inside = resolved[np.searchsorted(x, nodes, side="right") - 1]
    table = np.where(inside, fine, np.interp(nodes, x, values))
    return TabulatedDensity.of(nodes, np.maximum(table, peak - 2.0 * _CUT))


def _bounded(values: FloatArray) -> FloatArray:
    """Finite: what overflows, or is no number, is as good as impossible."""
    return np.clip(np.nan_to_num(values, nan=-_FLOOR), -_FLOOR, _FLOOR)


def _log_concave(x: FloatArray, values: FloatArray) -> FloatArray:
    """`values` with slopes that only fall, outwards from the mode nearest to 0.

    Where they would rise the last slope goes on.
    """
    gaps, slope = np.diff(x), np.diff(values) / np.diff(x)
    start = int(np.argmin(np.abs(x)))
    up = start
    while up < slope.size and slope[up] > 0.0:
        up += 1
    while up == start and start > 0 and slope[start - 1] < 0.0:
        start -= 1
        up = start
    right = np.minimum.accumulate(slope[up:])
    left = np.maximum.accumulate(slope[:up][::-1])[::-1]
    rises = np.concatenate([left, right]) * gaps
    whole = np.append(0.0, np.cumsum(rises))
    result: FloatArray = whole - whole[up] + values[up]
    return result


def _relative_expm1(x: FloatArray) -> FloatArray:
    """(exp(x) - 1) / x."""
    small = np.abs(x) < 1e-8
    safe = np.where(small, 1.0, x)
    return np.where(small, 1.0 + 0.5 * x, np.expm1(safe) / safe)


# What a row's own limits hold against its EP site: the normaliser of a step.

_LEAST_KEPT = 1e-12  # of a row's precision without its own site, where round-off leaves none


def log_site_ratio(
    centre: FloatArray,
    variance: FloatArray,
    tau: FloatArray,
    nu: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> FloatArray:
    r"""Log of the mean of limits over site under a Gaussian that has the site in it.

    .. math:: \log \int N(w; c, v)\, 1(l < w < h)\, e^{\tau w^2 / 2 - \nu w}\, \mathrm dw

    Parameters
    ----------
    centre, variance : ndarray
        c and v, with :math:`\tau v < 1`.
    tau, nu : ndarray
        The site is :math:`\exp(-\tau w^2 / 2 + \nu w)`.
    lower, upper : ndarray
        Limits of w, infinities allowed. All arguments broadcast together.

    Returns
    -------
    ndarray
    """
    kept = np.maximum(1.0 - tau * variance, _LEAST_KEPT)
    sd = np.sqrt(variance / kept)
    cavity = (centre - nu * variance) / kept
    low, high = (lower - cavity) / sd, (upper - cavity) / sd
    ratio = log_ndtr_interval(low, high, (upper - lower) / sd) - 0.5 * np.log(kept)
    ratio += 0.5 * ((tau * centre - 2.0 * nu) * centre + nu**2 * variance) / kept
    return ratio


# The direction in which a truncated Gaussian is least Gaussian, and its density along it.
#
# EP's Gaussian q is symmetric. Where many limits share one factor, the target is not: along that
# factor its density falls off like the prior on the side that no limit restricts, and is cut on the
# other. What EP's fixed point knows of this is read off row by row: with q(u_i | a) the Gaussian of
# row i given the direction's value a,
#
# .. math:: p(a) \propto q(a) \prod_i \int q(u_i \mid a)
#     \frac{1(l_i < u_i < h_i)}{t_i(u_i)}\, \mathrm du_i,
#
# exact where the rows are independent given a, and a first-order correction elsewhere (Cseke &
# Heskes 2011). It costs n evaluations a node of a table; the table is what draws are made from, so
# that importance weights stay exact whatever the table gets wrong.
#
# References
# ----------
# B. Cseke & T. Heskes (2011), Approximate marginals in latent Gaussian models, JMLR 12, 417-454.

# Rows whose correlation with the direction is below this say nothing about it.
_LEAST_CORRELATION = 1e-3
_MOST_OWN = 0.5  # share of the direction's prior variance that may be private to its rows
# Quantiles of either density at which the two are compared.
_LEVELS = (np.arange(256) + 0.5) / 256


class SiteGaussian(NamedTuple):
    """N(0, G) times Gaussian sites, rows in the order in which they are drawn.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        The caller's rows.
    mean, covariance : ndarray, shapes (n,) and (n, n)
    tau, nu : ndarray, shape (n,)
        Sites exp(-tau w^2/2 + nu w) in w = u - mean.
    lower, upper : ndarray, shape (n,)
        Limits of u.
    """

    order: IntArray
    mean: FloatArray
    covariance: FloatArray
    tau: FloatArray
    nu: FloatArray
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class LeadingDirection:
    """A scalar a, jointly Gaussian with u under q, and its density under the target.

    Attributes
    ----------
    row : ndarray, shape (n,)
        Covariance of a with u.
    mean, variance : float
        Of a under q.
    density : TabulatedDensity
        Of (a - mean) / sd under the target, to first order.
    """

    row: FloatArray
    mean: float
    variance: float
    density: TabulatedDensity

    @cached_property
    def divergence(self) -> float:
        r"""Triangular discrimination :math:`\int (p - q)^2 / (p + q)` from the normal, 0 to 2."""
        x = np.concatenate([self.density.quantile(_LEVELS), ndtri(_LEVELS)])
        ratio = self.density.log_pdf(x) + 0.5 * x**2 + 0.5 * np.log(2.0 * np.pi)
        return 2.0 * float(np.mean(np.tanh(0.5 * ratio) ** 2))

    def unseen(self, n_draws: int) -> float:
        """Share of the target that so many draws of q meet too seldom, or too often, to weigh."""
        reach = ndtri(1.0 / n_draws)
        below, above = self.density.cdf(np.array([reach, -reach]))
        return float(abs(below - ndtr(reach)) + abs(1.0 - above - ndtr(reach)))


def leading_direction(cov: Covariance, gaussian: SiteGaussian) -> LeadingDirection | None:
    """The direction a = rho w'u / sd(w'u) + (1 - rho^2)^.5 e that moves most sites at once.

    w is the leading eigenvector of T^.5 S T^.5 scaled by T^.5. The independent part e keeps what
    the coordinates do not share, without which u given a would be degenerate. None where no row is
    restricted, or where most of it would be the rows' own: each row is drawn exactly by itself.
    """
    order, tau, posterior = gaussian.order, gaussian.tau, gaussian.covariance
    if not tau.any():
        return None
    root = np.sqrt(tau)
    scaled = posterior * root * root[:, None]
    if root.size < 3:
        vector = np.linalg.eigh(scaled)[1][:, -1:]
    else:
        _, vector = eigsh(scaled, k=1, v0=_toward_limits(gaussian), tol=1e-3)
    w = root * vector[:, 0]
    unordered = np.empty_like(w)
    unordered[order] = w
    prior = float(unordered @ cov.multiply(unordered))
    own = float(unordered**2 @ cov.conditional_variances()) / prior
    if own > _MOST_OWN:
        return None
    shared = 1.0 - max(own, 1e-6)
    row = np.sqrt(shared / prior) * (posterior @ w)
    variance = shared / prior * float(w @ posterior @ w) + 1.0 - shared
    centre = float(np.sqrt(shared / prior) * (w @ gaussian.mean))
    density = tabulate(_correction(gaussian, row / np.sqrt(variance)))
    return LeadingDirection(row, centre, variance, density)


def _toward_limits(gaussian: SiteGaussian) -> FloatArray:
    """Where the search for the direction starts: every row moved to the side it has to be on.

    So that rows times -1, limits and all, are the same problem.
    """
    below = np.isneginf(gaussian.lower) & np.isfinite(gaussian.upper)
    side = np.where(below, -1.0, 1.0)
    return side * side[0]


def _correction(gaussian: SiteGaussian, loading: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Sum over rows of the log mean of limits over site, given the direction's value.

    `loading` is the covariance of the standardised direction with each row. Marginals of a Gaussian
    within limits are log-concave, and so is the table: far out the product may rise again, where it
    counts what dependent rows share more than once.
    """
    variance = gaussian.covariance.diagonal()
    rows = np.abs(loading) > _LEAST_CORRELATION * np.sqrt(variance)
    direction, total, tau, nu = (
        x[rows, None] for x in (loading, variance, gaussian.tau, gaussian.nu)
    )
    left = np.maximum(total - direction**2, 1e-14 * total)
    low, high = ((x - gaussian.mean)[rows, None] for x in (gaussian.lower, gaussian.upper))

    def correction(x: FloatArray) -> FloatArray:
        return np.asarray(log_site_ratio(direction * x, left, tau, nu, low, high).sum(axis=0))

    return correction


# What the draws of a proposal leave out: regions that a run of this size does not meet.
#
# Replicates that all miss a region agree with each other, and their spread says nothing of it. What
# is known without draws is what each coordinate alone would add: its conditional centre is Gaussian
# under the proposal, and where that Gaussian's tail of probability 1 / n_draws begins, the weight
# is a known function of it.

# Gauss-Legendre rule for a tail, over so many deviations: beyond them nothing is left of it.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_LENGTH = 5.0
HERMITE_NODES, _HERMITE_MASS = np.polynomial.hermite_e.hermegauss(64)
_HERMITE_MASS /= _HERMITE_MASS.sum()
_LARGEST = 20.0  # nats: larger log weights are clipped, and the error is large all the same
# A row whose deviation given the earlier ones is below this share of its own has a hard edge: it is
# met or not, and a corner that two such edges cut off may hold as much as a draw does.
_HARD, _CORNER = 0.02, 0.5
_IDLE = 0.05  # share of its variance that the site of a limit takes, below which it hardly matters


def unseen_share(proposal: "TwistedProposal", n_draws: int) -> float:
    r"""Relative error of the probability from tails that `n_draws` draws hardly meet.

    For each coordinate, with the weight :math:`w(c)` of its own step as a function of its centre
    :math:`c \sim N(0, V)`,

    .. math:: \int_{|c| > c_n} \left\{\frac{w(c)}{\mathrm E\, w} - 1\right\} N(c; 0, V)\, dc,
        \qquad P(c > c_n) = 1 / n,

    given a leading direction at its mean; and the same for a direction that is known but not
    drawn. Rows whose limits hardly matter all miss mass, and their shares are summed; those of the
    others have either sign, and their squares are. Rows that the earlier ones nearly determine add
    half a draw, 1 / (2 n).

    Parameters
    ----------
    proposal : TwistedProposal
    n_draws : int
        Draws of the run.

    Returns
    -------
    float
    """
    n_latent = proposal.n_dims - proposal.order.size
    chol = proposal.chol[n_latent:, n_latent:]
    var = chol.diagonal() ** 2
    earlier = np.maximum(np.einsum("ij,ij->i", chol, chol) - var, 0.0)
    start = -float(ndtri(1.0 / n_draws))
    z = start + 0.5 * _LENGTH * (1.0 + _NODES)
    mass = 0.5 * _LENGTH * _WEIGHTS * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    centre = np.sqrt(earlier)[:, None] * np.concatenate([-z, z])
    sites = proposal.tau[n_latent:, None], proposal.nu[n_latent:, None]
    limits = [(x - proposal.mean)[n_latent:, None] for x in (proposal.lower, proposal.upper)]
    total = log_site_ratio(np.zeros((var.size, 1)), (var + earlier)[:, None], *sites, *limits)
    ratio = log_site_ratio(centre, var[:, None], *sites, *limits) - total
    missing = np.expm1(np.minimum(ratio, _LARGEST)) @ np.tile(mass, 2)
    known = proposal.direction if proposal.first is None else None
    shared = 0.0 if known is None else known.unseen(n_draws)
    hard = (var < _HARD**2 * earlier).any()
    corner = _CORNER / n_draws if hard else 0.0
    idle = proposal.tau[n_latent:] * (var + earlier) < _IDLE
    together, apart = missing[idle].sum(), missing[~idle]
    return float(np.sqrt(together**2 + apart @ apart + shared**2 + corner**2))


def missing_of_functions(
    log_ratio: FloatArray, n_draws: int, power: int = 0, beyond: FloatArray | float = 0.0
) -> FloatArray:
    """What draws of one Gaussian each leave out of the means of functions of it.

    Parameters
    ----------
    log_ratio : ndarray, shape (k, `HERMITE_NODES`)
        Log of each function at the nodes, in deviations of its Gaussian.
    n_draws : int
    power : int, default 0
        Of a moment about the Gaussian's mean, in its deviations, that the function is to weigh.
    beyond : ndarray, shape (k, `HERMITE_NODES`), default 0
        Share of draws of another distribution that are farther out than each node.

    Returns
    -------
    ndarray, shape (k,)
        Relative to the mean: what the nodes that no draw of so many reaches add to it, or to the
        moment; of a moment the sum of both sides' sizes.
    """
    # Where the draws end: what is beyond is in the rule of the whole line, and lost.
    seen = (np.abs(HERMITE_NODES) < -float(ndtri(1.0 / n_draws))) | (
        n_draws * np.asarray(beyond) > 1.0
    )
    ratio = np.exp(log_ratio - log_ratio.max(axis=1, keepdims=True))
    ratio /= (ratio @ _HERMITE_MASS)[:, None]
    lost = np.where(seen, 0.0, (ratio - 1.0) * _HERMITE_MASS)
    if power:
        lost = np.abs(lost * HERMITE_NODES**power)
    missing: FloatArray = lost.sum(axis=1)
    return missing
