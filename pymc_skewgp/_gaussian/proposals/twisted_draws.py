r"""Draws of the twisted sampler, and what they say of its steps: the reverse of their recursion.

Step k of the sampler is a function of the conditional mean :math:`c_k = C_{k,<k} e_{<k}` and of
:math:`C_{kk}`: its noise :math:`e_k` and its term of the log weight. Backwards from the last step,
the adjoint of :math:`e_k` collects :math:`C_{jk} \bar c_j` from the later steps j and gives
:math:`\bar c_k`.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from pymc_skewgp._gaussian.compiled import one_sided as c
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal
from pymc_skewgp._gaussian.univariate import BoolArray, edge_densities
from pymc_skewgp._validation import FloatArray

_BLOCK = 64  # rows between two matrix products


class StepSums(NamedTuple):
    """Sums over weighted draws, for each step; `_bar` is the derivative in what stands before it.

    Attributes
    ----------
    centre, square : ndarray, shape (n,)
        Means of c and of its square.
    cavity_bar, cavity_product : ndarray, shape (n,)
        In the cavity's mean, and that times this mean.
    sd_bar : ndarray, shape (n,)
        In the cavity's deviation.
    lower_bar, upper_bar : ndarray, shape (n,)
        In the limits.
    chol_bar : ndarray, shape (n, n)
        In C as far as the conditional means have it, and on the diagonal the adjoint of e times e.
    """

    centre: FloatArray
    square: FloatArray
    cavity_bar: FloatArray
    cavity_product: FloatArray
    sd_bar: FloatArray
    lower_bar: FloatArray
    upper_bar: FloatArray
    chol_bar: FloatArray


class TwistedDraws(Protocol):
    """Draws by a proposal without a leading direction."""

    @property
    def log_weights(self) -> FloatArray:
        """Log of target density over proposal density, shape (n_draws,)."""
        ...

    def sums(self, weights: FloatArray) -> StepSums:
        """Of draws with these weights, which sum to one."""
        ...


def twisted_draws(proposal: TwistedProposal, points: FloatArray, compiled: bool) -> TwistedDraws:
    """Draws at `points`, by compiled loops where those are asked for and know the limits."""
    if compiled:
        one_sided = np.isfinite(proposal.lower) ^ np.isfinite(proposal.upper)
        if one_sided.all():
            found = CompiledDraws(proposal, points)
            if found.complete:
                return found
    return NumpyDraws(proposal, points)


class NumpyDraws:
    """By `TwistedProposal.draw`, for limits of any kind."""

    def __init__(self, proposal: TwistedProposal, points: FloatArray) -> None:
        self._proposal, self._points = proposal, points
        self._u, self.log_weights = proposal.draw(points)

    def sums(self, weights: FloatArray) -> StepSums:
        """See `TwistedDraws`."""
        proposal = self._proposal
        chol, mean, tau, nu = proposal.chol, proposal.mean, proposal.tau, proposal.nu
        scale = chol.diagonal()
        var = scale**2
        left = 1.0 - tau * var
        sd = scale / np.sqrt(left)
        value = self._u[proposal.order] - mean[:, None]
        noise = solve_triangular(chol, value, lower=True, check_finite=False)
        centre = value - scale[:, None] * noise
        cavity = (centre - (nu * var)[:, None]) / left[:, None]
        z = (value - cavity) / sd[:, None]
        lower, upper = proposal.lower - mean, proposal.upper - mean
        sides = _sides(lower, upper, cavity, sd, z, self._points)

        followed, pushed = np.zeros_like(value), np.zeros_like(value)
        for side in sides:
            followed[side.rows] += side.follows
            pushed[side.rows] += side.density
        pushed *= weights / sd[:, None]
        slope = ((1.0 - followed) / left[:, None] - 1.0) / scale[:, None]
        own = ((tau[:, None] * centre - nu[:, None]) * weights - pushed) / left[:, None]
        noise_bar, centre_bar = _reverse(chol, slope, own)

        cavity_bar = noise_bar * ((1.0 - followed) / scale[:, None]) - pushed
        sd_bar = _dots(noise_bar, z) / scale
        limits_bar = np.zeros((2, mean.size))
        for side in sides:
            rows = side.rows
            follows = noise_bar[rows] * side.follows
            ratio = 1.0 / scale[rows]
            limits_bar[side.which, rows] = (
                follows.sum(axis=1) * ratio + side.density @ weights / sd[rows]
            )
            sd_bar[rows] -= _dots(follows, side.limit) * ratio
            sd_bar[rows] -= _dots(side.density, side.limit * weights) / sd[rows]
        return StepSums(
            centre @ weights,
            _dots(centre, centre * weights),
            cavity_bar.sum(axis=1),
            _dots(cavity_bar, cavity),
            sd_bar,
            limits_bar[0],
            limits_bar[1],
            _chol_bar(centre_bar, noise, _dots(noise_bar, noise)),
        )


class CompiledDraws:
    """By `compiled.one_sided`, for rows with one limit each.

    Attributes
    ----------
    complete : bool
        Whether all limits are where its formulas hold; else there are no draws.
    """

    def __init__(self, proposal: TwistedProposal, points: FloatArray) -> None:
        self._proposal = proposal
        steps = proposal.steps
        self._below = below = np.isfinite(proposal.lower)
        self._of_steps = np.empty((c.N_STEPS, points.shape[0]))
        for row, values in (
            (c.SCALE, steps.scale),
            (c.SD, steps.sd),
            (c.SHIFT, steps.shift),
            (c.SLOPE, steps.slope),
            (c.LIMIT, np.where(below, steps.low, steps.high)),
            (c.SQUARE, steps.square),
            (c.LINEAR, steps.linear),
            (c.SIGN, np.where(below, 1.0, -1.0)),
        ):
            self._of_steps[row] = values
        self._kept = np.empty((c.N_KEPT, *points.shape))
        self.log_weights = np.full(points.shape[1], proposal.log_constant + steps.log_scale.sum())
        self.complete = c.draw_one_sided(
            points, proposal.chol, self._of_steps, self._kept, self.log_weights
        )

    def sums(self, weights: FloatArray) -> StepSums:
        """See `TwistedDraws`."""
        proposal, kept = self._proposal, self._kept
        columns = np.ascontiguousarray(proposal.chol.T)
        centre_bar, sums = np.empty(kept.shape[1:]), np.empty((c.N_SUMS, kept.shape[1]))
        given = columns, self._of_steps, proposal.tau, proposal.nu, weights, kept
        c.sum_one_sided(*given, centre_bar, sums)
        return StepSums(
            sums[c.FIRST],
            sums[c.SECOND],
            sums[c.CAVITY_BAR],
            sums[c.CAVITY_PRODUCT],
            sums[c.SD_BAR],
            np.where(self._below, sums[c.LIMIT_BAR], 0.0),
            np.where(self._below, 0.0, sums[c.LIMIT_BAR]),
            _chol_bar(centre_bar, kept[c.NOISE], sums[c.NOISE_PRODUCT]),
        )


def _chol_bar(centre_bar: FloatArray, noise: FloatArray, own: FloatArray) -> FloatArray:
    found = np.tril(centre_bar @ noise.T, -1)
    found[np.diag_indices_from(found)] = own
    return found


class _Side(NamedTuple):
    """Finite limits on one side, standardised by the step's cavity, and what they do to the step.

    `density`: derivative of its log normaliser in the limit. `follows`: that of the draw at a fixed
    point, 0 to 1.
    """

    which: int  # 0 for lower, 1 for upper
    rows: slice | BoolArray
    limit: FloatArray
    density: FloatArray
    follows: FloatArray


def _sides(
    lower: FloatArray,
    upper: FloatArray,
    cavity: FloatArray,
    sd: FloatArray,
    z: FloatArray,
    points: FloatArray,
) -> list[_Side]:
    a, b = (lower[:, None] - cavity) / sd[:, None], (upper[:, None] - cavity) / sd[:, None]
    at_a, at_b = edge_densities(a, b)
    sides = []
    for which, limits, x, density in ((0, lower, a, -at_a), (1, upper, b, at_b)):
        finite = np.isfinite(limits)
        if finite.any():
            rows = slice(None) if finite.all() else finite
            x, draw = x[rows], z[rows]
            share = points[rows] if which else 1.0 - points[rows]
            follows = share * np.exp(0.5 * (draw - x) * (draw + x))
            sides.append(_Side(which, rows, x, density[rows], follows))
    return sides


def _dots(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.einsum("ij,ij->i", x, y)


def _reverse(chol: FloatArray, slope: FloatArray, own: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Adjoints of e and c: c_bar = slope e_bar + own, e_bar_k = sum over j > k of C_jk c_bar_j."""
    noise_bar = np.zeros_like(own)
    centre_bar = np.empty_like(own)
    n = own.shape[0]
    for start in range((n - 1) // _BLOCK * _BLOCK, -1, -_BLOCK):
        stop = min(start + _BLOCK, n)
        for k in range(stop - 1, start - 1, -1):
            if k + 1 < stop:
                noise_bar[k] += chol[k + 1 : stop, k] @ centre_bar[k + 1 : stop]
            centre_bar[k] = slope[k] * noise_bar[k] + own[k]
        if start:
            noise_bar[:start] += chol[start:stop, :start].T @ centre_bar[start:stop]
    return noise_bar, centre_bar
