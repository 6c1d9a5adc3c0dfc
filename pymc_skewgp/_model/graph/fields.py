r"""Blocks whose precision is sparse: where its entries are, and they as graphs of hyperparameters.

The log density of a block is quadratic in its vector z, and predictors are affine in it. So the
gradient :math:`b - Q z` and the predictors :math:`a + A z` say all of Q and A at some z: at ones
and at ranks of a part of the entries, where of each row one at most is met, which one it is; then,
at z that are 1 in entries no row has two of, the values (Curtis, Powell & Reid 1974,
doi:10.1093/imamat/13.1.117). No matrix of d x d numbers is ever made, and no kind of variable needs
code of its own: random walks, autoregressions, areas and effects are all the same.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.multivariate import ICARRV
from pytensor.graph.replace import clone_replace, vectorize_graph

from pymc_skewgp._gaussian.sparse import FieldPattern
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.graph import affine
from pymc_skewgp._model.graph import members as kinds
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.data import NoisyRows, row_terms
from pymc_skewgp._model.graph.initial_point import initial_point, inputs_at_start
from pymc_skewgp._model.graph.sites import ObservedSites
from pymc_skewgp._model.ops.plain_mode import in_double, plain_function
from pymc_skewgp._posterior.site_evidence import FieldTerms
from pymc_skewgp._validation import FloatArray

# Entries of a block from which on it is looked at, and those of a member that are met one by one.
LEAST, _FEW = 300, 32
# Entries up to which a block goes by dense algebra where there may be several modes: these are
# looked for there alone. Predictors between which a log probability is to be concave.
_MOST_DENSE, _LOOKED = 1500, np.linspace(-8.0, 8.0, 17)
# Operations of dense algebra in the time of one on sparse columns.
_SLOWER = 20
# Parts of the entries at first, times that they are dealt anew to twice as many, and what round-off
# may leave.
_PARTS, _TIMES, _ROUND_OFF = 64, 8, 1e-7
# Share of rows alone in their part, below which they have too many entries: with 13 it is .3.
_CLEAR = 0.2
_SPREADS, _SEED = (0.3, 0.03, 0.003, 0.0), 0

# From z of shape (k, d) what is linear in it, shape (k, m).
Linear = Callable[[FloatArray], FloatArray]


class Field(NamedTuple):
    """A vector z whose own coordinates are drawn, its precision being sparse.

    Attributes
    ----------
    log_constant : TensorVariable, shape ()
        What of the evidence's constant is the prior's.
    """

    log_constant: Any

    @property
    def flat(self) -> FloatArray:
        """None has a flat prior."""
        return np.zeros((0, 0))

    def of_white(self, c: FloatArray) -> FloatArray:
        """The draws as they are."""
        return c

    def white(self, z: FloatArray) -> FloatArray:
        """The same."""
        return z


def field_terms(
    model: pm.Model, block: BlockGraph, potentials: Sequence[Any], rows: Sequence[NoisyRows]
) -> tuple[FieldTerms, Field] | None:
    """Terms of a block by its sparse precision; None where that saves no time.

    Parameters
    ----------
    model : pymc.Model
    block : BlockGraph
        Without a SkewGP.
    potentials : sequence of TensorVariable
        That are quadratic in it.
    rows : sequence of NoisyRows
        Its observed rows.
    """
    point = initial_point(model)
    shapes = [np.shape(point[x.value.name]) for x in block.members]
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes]
    d = sum(sizes)
    if d < LEAST or not _may_be_sparse(model, block, rows):
        return None
    if d <= _MOST_DENSE and any(_may_bend(model, y) for y in block.sites):
        return None
    z = pt.vector("z", dtype="float64", shape=(d,))
    ends = np.cumsum([0, *sizes])
    pieces = {
        x.value: pt.cast(z[i:j].reshape(shape), x.value.dtype)
        for x, i, j, shape in zip(block.members, ends[:-1], ends[1:], shapes, strict=True)
    }
    densities, ties = _densities(model, block, ends)
    densities = in_double([*densities, *model.replace_rvs_by_values(list(potentials))])
    log_prior = sum(x.sum() for x in densities)
    seen = [y.predictor for y in block.observed]
    seen += [pt.broadcast_to(y.predictor, y.shape).ravel() for y in block.sites]
    eta = pt.concatenate(seen)
    log_prior, eta = clone_replace([log_prior, eta], pieces)
    slope = pt.grad(log_prior, z)
    singles = np.concatenate([np.full(n, n <= _FEW) for n in sizes])
    # Entries that are 0 at hyperparameters, as before a change point, are to be so everywhere.
    entries = [
        pt.grad((pt.vector() * x).sum(), z, disconnected_inputs="ignore") for x in (eta, slope)
    ]
    same = affine.is_analytic(entries, model.value_vars)
    found = _pattern(model, z, eta, slope, singles) if same else None
    if found is None or not _pays(*found, d):
        return None
    of_design, of_precision = found
    zero = pt.zeros(d, dtype="float64")
    at_zero = clone_replace([eta, slope, log_prior], {z: zero})
    color = _colors(of_design, of_precision, singles)
    seeds = np.zeros((color.max() + 1, color.size))
    seeds[color, np.arange(color.size)] = 1.0
    known = _at_seeds(eta, z, seeds) - at_zero[0], at_zero[1] - _at_seeds(slope, z, seeds)
    i, j = of_precision
    row, column = np.where(singles[i] & ~singles[j], [j, i], [i, j])  # a full row of its own
    log_constant = at_zero[2] + kinds.HALF_LOG_2PI * d
    lower, upper, value, noise, counts, of_rows = row_terms(rows)
    terms = FieldTerms(
        known[0][pt.constant(color[of_design[1]]), pt.constant(of_design[0])],
        pt.constant(of_design.astype(np.float64)),
        known[1][pt.constant(color[column]), pt.constant(row)],
        pt.constant(of_precision.astype(np.float64)),
        at_zero[1],
        ties,
        at_zero[0],
        lower,
        upper,
        value,
        noise,
        counts,
        log_constant + of_rows,
    )
    return terms, Field(log_constant)


def _densities(model: pm.Model, block: BlockGraph, ends: IntArray) -> tuple[list[Any], Any]:
    """Log densities of the members, and U of what holds sums of their values at 0."""
    found, ties = [], [pt.zeros((0, int(ends[-1])), dtype="float64")]
    for x, start in zip(block.members, ends[:-1], strict=True):
        rv = model[x.name]
        parts = _icar_parts(model, rv) if isinstance(rv.owner.op, ICARRV) else None
        if parts is None:
            found.append(kinds.log_density_of(model, rv))
            continue
        found.append(parts[0])
        rest = ends[-1] - start - parts[1].type.shape[1]
        ties.append(pt.cast(pt.pad(parts[1], ((0, 0), (start, rest))), "float64"))
    return found, pt.concatenate(ties)


def _icar_parts(model: pm.Model, rv: Any) -> tuple[Any, Any] | None:
    """The log density of `pm.ICAR` but for its sum's, and what times z is white in the latter.

    None for batches of fields.
    """
    value = model.rvs_to_values[rv]
    W, sigma, deviation = model.replace_rvs_by_values(rv.owner.op.dist_params(rv.owner))
    if value.type.ndim != 1:
        return None
    W = plain_function([], W)()
    first, second = map(pt.constant, np.nonzero(np.tril(W) == 1))
    apart = ((value[first] - value[second]) ** 2).sum() / sigma.squeeze() ** 2
    tie = pt.ones((1, len(W))) / (len(W) * deviation.squeeze())
    log_density = pt.log(tie[0, 0]) - kinds.HALF_LOG_2PI - 0.5 * apart
    return check_parameters(log_density, pt.gt(sigma.squeeze(), 0.0), msg="sigma > 0"), tie


def _may_be_sparse(model: pm.Model, block: BlockGraph, rows: Sequence[NoisyRows]) -> bool:
    """Whether all have densities on their own scale, and noise and predictors are each row's."""
    plain = all(model.rvs_to_transforms[model[x.name]] is None for x in block.members)
    proper = not any(x.is_flat or x.own_potential is not None for x in block.members)
    alone = all(row.S.type.ndim == 1 for row in rows)
    one = all(y.width == 1 for y in block.sites)
    return plain and proper and alone and one


def _may_bend(model: pm.Model, y: ObservedSites) -> bool:
    """Whether log probabilities are seen not to be concave."""
    inputs, start = inputs_at_start(model, [y.log_prob, y.a])
    size = plain_function(inputs, y.a)(*start).size
    function = plain_function([*inputs, y.eta], y.log_prob)
    with np.errstate(all="ignore"):
        logs = np.stack([function(*start, np.full(size, x)) for x in _LOOKED])
        bend = np.diff(logs, n=2, axis=0)
        scale = np.abs(logs[:-2]) + np.abs(logs[1:-1]) + np.abs(logs[2:])
    return bool((bend > 1e-12 * scale).any())


def _at_seeds(graph: Any, z: Any, seeds: FloatArray) -> Any:
    """A vector graph at many z, a row each."""
    try:
        return vectorize_graph(graph, {z: pt.constant(seeds)})
    except (NotImplementedError, TypeError):  # of sparse matrices
        return pt.stack([clone_replace(graph, {z: pt.constant(seed)}) for seed in seeds])


def _pattern(
    model: pm.Model, z: Any, eta: Any, slope: Any, singles: Any
) -> tuple[IntArray, IntArray] | None:
    """Places of the entries of A and of Q; None where some rows have many."""
    inputs, at = inputs_at_start(model, [eta, slope])
    rng = np.random.default_rng(_SEED)
    functions = [plain_function([*inputs, z], graph) for graph in (eta, slope)]
    for spread in _SPREADS:
        given = [x + spread * rng.normal(size=x.shape) for x in at]
        try:
            origins = [function(*given, np.zeros(singles.size)) for function in functions]
            break
        except ValueError:  # of parameters out of their range
            continue
    else:
        return None
    found = []
    for function, origin, alike in zip(functions, origins, (False, True), strict=True):
        linear = partial(_less_origin, partial(function, *given), origin)
        size = None if alike else origin.size
        with np.errstate(all="ignore"):
            places = _places(linear, singles, size, rng) if np.isfinite(origin).all() else None
        if places is None:
            return None
        found.append(places)
    design, precision = found
    d = singles.size
    both = np.hstack([precision, precision[::-1]])
    precision = np.stack(np.divmod(np.unique(both[0] * d + both[1]), d))
    return design[:, np.lexsort(design[::-1])], precision


def _less_origin(function: Any, origin: FloatArray, many: FloatArray) -> FloatArray:
    return np.stack([function(z) - origin for z in many])


def _places(
    linear: Linear, singles: Any, size: int | None, rng: np.random.Generator
) -> IntArray | None:
    """Rows and columns of the entries of a matrix of `size` rows.

    None for a symmetric one: entries are given in one of their two places at least, and none in the
    rows of `singles`. Of a row that is left, what it has in columns of other rows is known by them.
    """
    d = singles.size
    found = [np.zeros((2, 0))]
    for column in np.flatnonzero(singles):
        own = np.flatnonzero(linear(np.eye(1, d, column))[0])
        found.append(np.stack([own, np.full(own.size, column)]))
    others = np.flatnonzero(~singles)
    left = ~singles if size is None else np.ones(size, dtype=bool)
    rank, check = 1.0 + np.arange(d), rng.normal(size=d)
    for turn in range(_TIMES if others.size else 0):
        parts = _PARTS if size is None else _PARTS << turn
        part = rng.permutation(others.size) % min(parts, others.size)
        new, clear = [], left.copy()
        for k in range(part.max() + 1):
            own = np.zeros(d)
            own[others[part == k]] = 1.0
            one, ranked, checked = linear(np.stack([own, own * rank, own * check]))
            met = left & ((one != 0.0) | (ranked != 0.0) | (checked != 0.0))
            met_rows = np.flatnonzero(met)
            column = np.nan_to_num(ranked[met_rows] / one[met_rows] - 1.0, posinf=-1.0)
            nearest = np.clip(np.round(column), 0, d - 1).astype(np.intp)
            off = np.abs(checked[met_rows] - one[met_rows] * check[nearest])
            alone = (np.abs(column - nearest) < 0.1) & (own[nearest] > 0.0)
            alone &= off <= _ROUND_OFF * np.abs(one[met_rows])
            clear[met_rows[~alone]] = False
            if np.count_nonzero(clear) < _CLEAR * np.count_nonzero(left):
                return None  # most rows have many entries
            new.append(np.stack([met_rows[alone], nearest[alone]]))
        pairs = np.hstack(new)
        found.append(pairs[:, clear[pairs[0]]])
        left &= ~clear
        if not left.any():
            break
        others = np.flatnonzero(left) if size is None else others
    else:
        if others.size:
            return None
    return np.hstack(found).astype(np.intp)


def _colors(of_design: IntArray, of_precision: IntArray, singles: Any) -> IntArray:
    """A number for each column; of columns with the same number no row has two.

    Rows of Q of single columns do not count: their entries are known as those of the columns.
    """
    d = singles.size
    i, j = of_precision
    kept = ~singles[i] & ~singles[j]
    own = ~singles[of_design[1]]
    rows = np.concatenate([of_design[0][own], of_design[0].max(initial=0) + 1 + i[kept]])
    columns = np.concatenate([of_design[1][own], j[kept]])
    order = np.argsort(rows, kind="stable")
    rows, columns = rows[order], columns[order]
    starts = np.searchsorted(rows, np.arange(rows.max(initial=0) + 2))
    by_column = np.argsort(columns, kind="stable")
    row_of = rows[by_column]
    ends = np.searchsorted(columns[by_column], np.arange(d + 1))
    color = np.full(d, -1)
    color[singles] = np.arange(np.count_nonzero(singles))
    first = np.count_nonzero(singles)
    for column in np.flatnonzero(~singles):
        near = [columns[starts[r] : starts[r + 1]] for r in row_of[ends[column] : ends[column + 1]]]
        taken = set(color[np.concatenate(near)]) if near else set()
        color[column] = next(k for k in range(first, d + 1) if k not in taken)
    return color


def _pays(of_design: IntArray, of_precision: IntArray, d: int) -> bool:
    """Whether a factor of the precision is so sparse that it takes less time than a dense one."""
    shape = int(of_design[0].max(initial=0)) + 1, d
    operations = FieldPattern(of_design, of_precision, shape).n_operations()
    return _SLOWER * operations < float(d) ** 3
