"""Rows that share noise, in groups: predictors, log probabilities, what features leave of f.

What features leave of f is noise as well, which the rows of a group share. That is so as long as no
two groups are about one input; else groups would share it, and f is taken without it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import log_ndtr

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.groups import GroupLogProbs, OneFactor, one_factor
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations import observations
from pymc_skewgp._observations.probability import log_order_probability
from pymc_skewgp._posterior.features import FunctionFeatures, rest_between
from pymc_skewgp._posterior.prior import DataSet
from pymc_skewgp._validation import FloatArray

_MOST_ROWS = 64  # of a group: its covariance is a matrix


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Groups of m rows each, :math:`u = A f + a + e`, about p values of f each.

    Attributes
    ----------
    rows : ndarray of int, shape (n, m)
        Which of the rows these are.
    values : ndarray of int, shape (n, p)
        Which values of f, counted as the likelihood's rows do.
    design : ndarray, shape (n, m, p)
    offset : ndarray, shape (n, m)
    noise : ndarray, shape (n, m, m)
    lower, upper, value : ndarray, shape (n, m)
    """

    rows: IntArray
    values: IntArray
    design: FloatArray
    offset: FloatArray
    noise: FloatArray
    lower: FloatArray
    upper: FloatArray
    value: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of groups, and of rows of each."""
        return self.value.shape[0], self.value.shape[1]

    def part(self, groups: slice | IntArray) -> "RowGroups":
        """Some of the groups."""
        return RowGroups(*(getattr(self, name)[groups] for name in self.__dataclass_fields__))

    def of_all_functions(self, n_functions: int) -> "RowGroups":
        """The same rows as rows of all the functions at the one input of each group."""
        if n_functions == 1:
            return self
        inputs, function = self.values // n_functions, self.values % n_functions
        design = np.zeros((*self.shape, n_functions))
        index = np.arange(self.shape[0])
        for i in range(inputs.shape[1]):
            design[index, :, function[:, i]] += self.design[:, :, i]
        values = inputs[:, :1] * n_functions + np.arange(n_functions)
        return replace(self, values=values, design=design)

    def with_rest(self, rest: FloatArray) -> "RowGroups":
        """With covariances of what features leave of the values, shape (n, p, p), in the noise."""
        return replace(self, noise=self.noise + self.design @ rest @ self.design.swapaxes(1, 2))

    def points_first(self) -> "RowGroups":
        """With the intervals given the points: their noise is then independent of these.

        Raises
        ------
        ApproximationError
            For points that share noise.
        """
        point = ~np.isnan(self.value)
        if not point.any():
            return self
        shared = self.noise.copy()
        np.einsum("ijj->ij", shared)[:] = 0.0
        between = shared * (point[:, :, None] & point[:, None, :])
        if between.any():
            raise ApproximationError("has points that share noise")
        numbers = self.value, self.design, self.offset, self.noise
        design, offset, noise = intervals_given_points(np, *numbers)
        return replace(self, design=design, offset=offset, noise=noise)

    @property
    def is_apart(self) -> bool:
        """Whether the noise of all rows is their own."""
        off = self.noise.copy()
        np.einsum("ijj->ij", off)[:] = 0.0
        return not off.any()


def intervals_given_points(
    xp: Any, value: Any, design: Any, offset: Any, noise: Any
) -> tuple[Any, Any, Any]:
    """Design, offset and noise of groups, of their intervals given their points.

    For arrays and for graphs alike, `xp` being NumPy or ``pytensor.tensor``.
    """
    point = ~xp.isnan(value)
    on_points = point[:, None, :] & ~point[:, :, None]
    variance = xp.diagonal(noise, axis1=1, axis2=2)
    gain = xp.where(on_points, noise / variance[:, None, :], 0.0)
    left = xp.eye(value.shape[1])[None] - gain
    known = xp.where(point, value, 0.0)
    moved = xp.matmul(left, offset[:, :, None]) + xp.matmul(gain, known[:, :, None])
    own = xp.matmul(xp.matmul(left, noise), left.swapaxes(1, 2))
    between = point[:, :, None] ^ point[:, None, :]
    return xp.matmul(left, design), moved[:, :, 0], xp.where(between, 0.0, own)


def row_groups(rows: observations.Observations) -> Iterator[RowGroups]:
    """Groups of rows that share noise, those of equal size together.

    Raises
    ------
    ApproximationError
        For groups of very many rows.
    """
    if rows.S.ndim == 1:
        groups = [np.arange(rows.n_rows)[:, None]]
        noise = [rows.S[:, None, None]]
    else:
        groups = observations.rows_of_blocks(rows.S)
        most = groups[-1].shape[1]
        if most > _MOST_ROWS:
            raise ApproximationError(f"has {most} rows that share noise, more than {_MOST_ROWS}")
        whole = sparse.csr_array(rows.S)
        noise = [observations.blocks_of_noise(whole, index) for index in groups]
    design = sparse.csr_array(observations.as_matrix(rows.A, rows.n_rows))
    for index, covariance in zip(groups, noise, strict=True):
        values, own = _of_values(design, index)
        parts = (x[index] for x in (rows.lower, rows.upper, rows.value))
        yield RowGroups(index, values, own, rows.a[index], covariance, *parts)


def _of_values(design: sparse.csr_array, index: IntArray) -> tuple[IntArray, FloatArray]:
    """Values that groups of rows are about, (n, p), and their rows of them, (n, m, p)."""
    n, m = index.shape
    own = sparse.coo_array(design[index.ravel()])
    row, column = own.coords
    group = row // m
    key, place = np.unique(group * design.shape[1] + column, return_inverse=True)
    of_group = key // design.shape[1]
    first = np.searchsorted(of_group, np.arange(n))
    position = np.arange(key.size) - first[of_group]
    values = np.repeat((key[first] % design.shape[1])[:, None], position.max() + 1, axis=1)
    values[of_group, position] = key % design.shape[1]
    matrix = np.zeros((n, m, values.shape[1]))
    matrix[group, row % m, position[place]] = own.data
    return values, matrix


# Which log probability groups of rows have, by the form of the noise that they share.

SHARED_NOISE = "has noise that its rows share in more than one way"
_FEW = 64  # groups, of which all are alike
_ROUND_OFF = 1e-9


@dataclass(frozen=True, eq=False)
class InOrder:
    """That noisy values are in falling order, whose successive differences are the rows.

    Attributes
    ----------
    lower : ndarray, shape (n, m)
        Limits of the differences.
    sigma : ndarray, shape (n,)
        Standard deviation of the noise of each value.
    """

    lower: FloatArray
    sigma: FloatArray

    def __call__(self, groups: slice, eta: FloatArray) -> FloatArray:
        """See `GroupLogProbs`."""
        steps = (eta - self.lower[groups][:, :, None]) / self.sigma[groups][:, None, None]
        values = np.zeros((eta.shape[0], eta.shape[2], eta.shape[1] + 1))
        np.cumsum(-steps.swapaxes(1, 2), axis=2, out=values[:, :, 1:])
        return log_order_probability(values)


def log_probs_of(lower: FloatArray, upper: FloatArray, noise: FloatArray) -> GroupLogProbs | None:
    """Of groups of intervals with this noise, shape (n, m, m); None where none is known."""
    if (np.isfinite(lower) == np.isfinite(upper)).any():
        return None
    factor = one_factor(noise)
    if factor is not None:
        return OneFactor(lower, upper, *factor)
    m = noise.shape[1]
    steps = 2.0 * np.eye(m) - np.eye(m, k=1) - np.eye(m, k=-1)
    variance = 0.5 * noise[:, 0, 0]
    off = noise - variance[:, None, None] * steps
    if (np.abs(off) > _ROUND_OFF * variance[:, None, None]).any() or not np.isfinite(lower).all():
        return None
    return InOrder(lower, np.sqrt(variance))


def rest_is_noise(groups: Sequence[RowGroups], between: FloatArray, n_functions: int) -> bool:
    """Whether what features leave of f may be noise of the rows: of all of them, or of none.

    No two groups must be about one input, and the noise must have a known form then as well.
    """
    inputs = [np.sort(some.values // n_functions, axis=1) for some in groups]
    # Once for each group: a group's own may repeat.
    once = np.concatenate([x[np.diff(x, axis=1, prepend=-1) != 0] for x in inputs])
    if np.bincount(once, minlength=1).max() > 1:
        return False
    for some in groups:
        few = some.part(slice(0, _FEW))
        n_inputs = int(few.values.max()) // n_functions + 1
        any_rest = np.linspace(0.5, 1.5, n_inputs)[few.values // n_functions]
        shared = rest_between(between, few.values, n_functions) * any_rest[:, :, None]
        if not _is_known(few.with_rest(shared)):
            return False
    return True


def refuse_shared_noise(rows: observations.Observations) -> None:
    """Raise for rows that share noise in a way for which no log probability is known.

    Raises
    ------
    ApproximationError
        The message goes on from what the likelihood is called.
    """
    for groups in row_groups(rows):
        if not _is_known(groups.part(slice(0, _FEW))):
            raise ApproximationError(SHARED_NOISE)


def _is_known(groups: RowGroups) -> bool:
    given = groups.points_first()
    return given.is_apart or log_probs_of(given.lower, given.upper, given.noise) is not None


# What features leave of f at an observation of one value, drawn given f without it and the data.
#
# With f = g + e, g known and e ~ N(0, d): :math:`p(y \mid g + e) N(e; 0, d)` is tabulated.

# Nodes of a table; the density is linear in between, and the deviation of e so much as .2 % off.
_NODES = 81
# Deviations of e in which the density is looked for, with fewer nodes, in rounds that each keep
# what is within so many nats of the largest value.
_REACH, _FEW_NODES, _ROUNDS, _LOST = 12.0, 25, 3, 16.0
_AT_ONCE = 2**20
LogDensity = Callable[[FloatArray, slice], FloatArray]


def rows_are_apart(design: sparse.csr_array) -> bool:
    """Whether no two rows are about one value."""
    return bool(np.bincount(design.indices, minlength=1).max() <= 1)


def residual_draws(
    part: DataSet, signal: FloatArray, rest: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """One e for each of `signal`, which is g for rows of draws and columns of data, shape (N, n).

    `rest` are the variances d.
    """
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
        some = (draws.stop - start, shape[1])
        # Where a density is not negligible: data may say much of e.
        low, width = np.full(some, -_REACH), np.full(some, 2.0 * _REACH)
        share = np.linspace(0.0, 1.0, _FEW_NODES)[:, None, None]
        for _ in range(_ROUNDS):
            logs = log_density(low + width * share, draws)
            seen = logs >= logs.max(axis=0) - _LOST
            first = np.maximum(seen.argmax(axis=0) - 1, 0)
            last = np.minimum(_FEW_NODES - seen[::-1].argmax(axis=0), _FEW_NODES - 1)
            step = width / (_FEW_NODES - 1)
            low, width = low + first * step, (last - first) * step
            if (last - first > _FEW_NODES // 2).all():  # nodes are close enough
                break
        share = np.linspace(0.0, 1.0, _NODES)[:, None, None]
        found = _inverse(log_density(low + width * share, draws), rng.random(some))
        e[draws] = low + width / (_NODES - 1) * found
    return e


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


# What features leave of f at the values of groups of rows, drawn given f without it and the data.
#
# The rows of a group are :math:`u = g + t`, with t the noise and what features leave, e, together.
# u is drawn within its limits, or known; e given t is Gaussian.


def group_residuals(
    rows: observations.Observations,
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
    if not rest_is_noise(groups, features.between, k):
        return np.zeros(signal.shape)
    # At inputs that no row is about it is drawn from the prior.
    half = features.half[:k]
    e = rng.standard_normal((n_draws, n, half.shape[1])) @ half.T
    e *= np.sqrt(rest)[:, None]
    e = e.reshape(n_draws, -1)
    flat = signal.reshape(n_draws, -1)
    for some in groups:
        own = rest_between(features.between, some.values, k) * rest[some.values // k][:, :, None]
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
        # Draws of the factor of each group, whose rows have one limit each, the same for all draws.
        above = np.isposinf(high)
        a = np.where(above, -low, high) / sd
        b = np.where(above[0], 1.0, -1.0) * loading / sd

        def log_density(z: FloatArray, draws: slice) -> FloatArray:
            found = -0.5 * z**2
            for j in range(b.shape[1]):
                found = found + log_ndtr(a[draws, :, j] + b[:, j] * z)
            return found

        shared = tabulated_draws(log_density, a.shape[:2], rng)
    moved = loading * shared[:, :, None]
    interval = np.isnan(groups.value)
    low, high = ((x - moved)[:, interval] / sd[interval] for x in (low, high))
    u = draw_truncated(rng.random(low.shape), low, high)[0]
    found[:, interval] = moved[:, interval] + sd[interval] * u
    return found
