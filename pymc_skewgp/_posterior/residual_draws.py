r"""What features leave of f at a row of the data, drawn given the predictor and the observation.

With f = g + e, g known and e ~ N(0, d): under an interval v = A f + a + noise the row's v is a
truncated normal, and e given v is Gaussian; of another likelihood e has the density
:math:`p(y \mid g + e) N(e; 0, d)`, which is tabulated.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._validation import FloatArray

# Nodes of a table; the density is linear in between, and the deviation of e so much as .2 % off.
_NODES = 81
# Deviations of e in which the density is looked for, with fewer nodes, in rounds that each keep
# what is within so many nats of the largest value.
_REACH, _FEW_NODES, _ROUNDS, _LOST = 12.0, 25, 3, 16.0
_AT_ONCE = 2**20
LogDensity = Callable[[FloatArray, slice], FloatArray]


def residual_draws(
    part: DataSet, signal: FloatArray, rest: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """One e for each of `signal`, which is g for rows of draws and columns of data, shape (N, n).

    `rest` are the variances d.
    """
    if not isinstance(part.likelihood, SiteLikelihood):
        rows = part.rows()
        design = sparse.csr_array(as_matrix(rows.A, rows.n_rows))
        if rows_are_apart(design):
            return _given_rows(rows, design, signal, rest, rng)
    return _tabulated(part, signal, rest, rng)


def rows_are_apart(design: sparse.csr_array) -> bool:
    """Whether no two rows are about one value."""
    return bool(np.bincount(design.indices, minlength=1).max() <= 1)


def _given_rows(
    rows: Observations,
    design: sparse.csr_array,
    signal: FloatArray,
    rest: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """At most one row for each value of f, which may be about several of them."""
    if design.shape[1] < signal.shape[1]:
        design = sparse.csr_array(
            (design.data, design.indices, design.indptr), shape=(rows.n_rows, signal.shape[1])
        )
    e = np.sqrt(rest) * rng.standard_normal(signal.shape)
    total = rows.S + design.power(2) @ rest
    sd = np.sqrt(total)
    centre = (design @ signal.T).T + rows.a
    point = rows.is_point
    v = np.broadcast_to(rows.value, centre.shape).copy()
    low, high = ((x - centre)[:, ~point] / sd[~point] for x in (rows.lower, rows.upper))
    uniform = rng.random(low.shape)
    v[:, ~point] = centre[:, ~point] + sd[~point] * draw_truncated(uniform, low, high)[0]
    # The prior's e, moved by what its row lacks to v (Matheron's rule).
    noise = np.sqrt(rows.S) * rng.standard_normal(centre.shape)
    gap = v - centre - (design @ e.T).T - noise
    moved: FloatArray = e + rest * (design.T @ (gap / total).T).T
    return moved


def _tabulated(
    part: DataSet, signal: FloatArray, rest: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Of e given the observation of its row."""
    sd = np.sqrt(rest)
    weights = 1.0 if part.weights is None else part.weights

    def log_density(z: FloatArray, draws: slice) -> FloatArray:
        """Of e / sd, up to a constant, at nodes (k, N, n)."""
        with np.errstate(over="ignore"):
            logs = weights * part.likelihood.log_likelihood(part.y, signal[draws] + z * sd)
        return np.asarray(logs - 0.5 * z**2)

    return tabulated_draws(log_density, signal.shape, rng) * sd


def tabulated_draws(
    log_density: LogDensity, shape: tuple[int, int], rng: np.random.Generator
) -> FloatArray:
    """By the inverse of a piecewise quadratic distribution function: one draw of each, (N, n).

    `log_density`, up to a constant, is that of values within 12 of 0, at nodes of shape (k, N, n)
    for a slice of the N draws.
    """
    e = np.empty(shape)
    size = max(1, _AT_ONCE // (_NODES * shape[1]))
    for start in range(0, shape[0], size):
        draws = slice(start, min(start + size, shape[0]))

        def of_some(z: FloatArray, draws: slice = draws) -> FloatArray:
            return log_density(z, draws)

        some = (draws.stop - start, shape[1])
        low, width = _support(of_some, some)
        share = np.linspace(0.0, 1.0, _NODES)[:, None, None]
        found = _inverse(of_some(low + width * share), rng.random(some))
        e[draws] = low + width / (_NODES - 1) * found
    return e


def _support(
    log_density: Callable[[FloatArray], FloatArray], shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Lower end and width of where a density is not negligible; data may say much of e."""
    low, width = np.full(shape, -_REACH), np.full(shape, 2.0 * _REACH)
    share = np.linspace(0.0, 1.0, _FEW_NODES)[:, None, None]
    for _ in range(_ROUNDS):
        logs = log_density(low + width * share)
        seen = logs >= logs.max(axis=0) - _LOST
        first = np.maximum(seen.argmax(axis=0) - 1, 0)
        last = np.minimum(_FEW_NODES - seen[::-1].argmax(axis=0), _FEW_NODES - 1)
        step = width / (_FEW_NODES - 1)
        low, width = low + first * step, (last - first) * step
        if (last - first > _FEW_NODES // 2).all():  # nodes are close enough
            break
    return low, width


def _inverse(logs: FloatArray, uniform: FloatArray) -> FloatArray:
    """Quantiles, in steps from the first node, of densities that are linear between nodes."""
    density = np.exp(logs - logs.max(axis=0))
    mass = np.cumsum(0.5 * (density[1:] + density[:-1]), axis=0)
    wanted = uniform * mass[-1]
    cell = (mass < wanted).sum(axis=0)
    below = np.take_along_axis(np.concatenate([np.zeros((1, *wanted.shape)), mass]), cell[None], 0)
    left = np.take_along_axis(density, cell[None], axis=0)[0]
    rise = np.take_along_axis(density, cell[None] + 1, axis=0)[0] - left
    area = wanted - below[0]
    # The root of left t + rise t^2 / 2 = area, without cancellation.
    root = np.sqrt(np.maximum(left**2 + 2.0 * rise * area, 0.0))
    return np.asarray(cell + 2.0 * area / (left + root))
