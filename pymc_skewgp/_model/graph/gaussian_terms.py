"""Blocks without a SkewGP as terms of an evidence, by few operations."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import sparse
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from scipy.sparse import csr_matrix

from pymc_skewgp._errors import ImproperPriorError, NotSitesError, listed
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.gp.distribution_graph import DistributionGraph
from pymc_skewgp._model.gp.site_functions import SiteFunctions
from pymc_skewgp._model.graph import affine, fields, likelihoods, members
from pymc_skewgp._model.graph import data as of_data
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.initial_point import initial_point, inputs_at_start
from pymc_skewgp._model.graph.sites import Observed, ObservedSites
from pymc_skewgp._model.ops.plain_mode import PLAIN, plain_function
from pymc_skewgp._observations.observations import DistinctRows, distinct_rows
from pymc_skewgp._posterior.site_evidence import FactorTerms, FieldTerms
from pymc_skewgp._validation import FloatArray

# Terms of a block without a SkewGP, in the form that takes the least time.
#
# Of values with noise that are of the same predictor up to an offset one is left, of their mean
# weighted by precision; designs that are known and of few entries are sparse.

# Points in all of which rows are equal that always are, and how far these are from the first.
_POINTS, _SPREAD, _SEED = 3, 0.3, 0
# Share of a design's entries that are not zero, and entries, from which on it stays as it is.
_DENSEST, _SMALL = 0.2, 10**4


def lean_terms(model: pm.Model, terms: FactorTerms, joint: members.JointGaussian) -> FactorTerms:
    """Terms of white coordinates, by few operations.

    Parameters
    ----------
    model : pymc.Model
    terms : FactorTerms
        Of the vector z of a block: predictors A z + a.
    joint : JointGaussian
        z = m + F c.
    """
    known, found = _looked_at(model, terms)
    A, a = terms.factor, terms.offset
    if found is not None:
        k, one = found.kind.size, found.first
        terms = _merged(terms, found)
        a = pt.concatenate([pt.zeros(one.size), a[k:]])
        A = A[pt.concatenate([one, pt.arange(k, A.shape[0])])]
        known = None if known is None else np.concatenate([known[one], known[k:]])
    n_entries = 0 if known is None else np.count_nonzero(known)
    if known is not None and known.size > _SMALL and n_entries < _DENSEST * known.size:
        W = sparse.as_sparse_variable(csr_matrix(known))
        offset = a + sparse.structured_dot(W, joint.mean[:, None])[:, 0]
        return terms._replace(factor=sparse.structured_dot(W, joint.factor), offset=offset)
    if known is not None:
        A = pt.as_tensor_variable(known)
    factor, scales = joint.factor, None
    if known is None and _is_known(factor):
        scales = np.asarray(factor.eval(mode=PLAIN), dtype=np.float64)
    if scales is not None and np.array_equal(scales, np.diag(np.diagonal(scales))):
        return terms._replace(factor=A * scales.diagonal(), offset=a + A @ joint.mean)
    return terms._replace(factor=A @ factor, offset=a + A @ joint.mean)


def _merged(terms: FactorTerms, found: DistinctRows) -> FactorTerms:
    """One value for each kind, less what its predictors have beside A z."""
    kind, one = found.kind, found.first
    precision = terms.counts / terms.noise
    value = terms.value - terms.offset[: kind.size]
    total = _sums(precision, kind, one.size)
    mean = _sums(precision * value, kind, one.size) / total
    off = value - mean[kind]
    log_lost = 0.5 * (pt.log(2.0 * np.pi / total).sum() - (precision * off**2).sum())
    log_lost -= 0.5 * (terms.counts * pt.log(2.0 * np.pi * terms.noise)).sum()
    return terms._replace(
        lower=terms.lower[one],
        upper=terms.upper[one],
        value=mean,
        noise=1.0 / total,
        counts=pt.as_tensor_variable(np.float64(1.0)),
        log_constant=terms.log_constant + log_lost,
    )


def _looked_at(
    model: pm.Model, terms: FactorTerms
) -> tuple[FloatArray | None, DistinctRows | None]:
    """A where it is known, and kinds of its equal rows where all of these are points."""
    graphs = [terms.factor, terms.value]
    inputs, start = inputs_at_start(model, graphs)
    function = plain_function(inputs, graphs)
    rng, found = np.random.default_rng(_SEED), []
    # Of rows that a switch makes equal at one point nothing is known at another.
    by_points = affine.is_analytic([terms.factor], inputs)
    for _ in range(_POINTS if inputs else 1):
        A, value = function(*start)
        found.append(np.ascontiguousarray(A, dtype=np.float64))
        start = [x + _SPREAD * rng.normal(size=x.shape) for x in start]
        finite = np.isfinite(value).all() and np.isfinite(A).all()
        if any(x.type.dtype != "float64" for x in inputs) or not (finite and by_points):
            value = value[:0]
            break
    kinds = distinct_rows([A[: value.size] for A in found])
    return found[0] if _is_known(terms.factor) else None, kinds


def _sums(x: Any, kind: IntArray, n_kinds: int) -> Any:
    return pt.zeros(n_kinds)[kind].inc(x + pt.zeros(kind.size))


def _is_known(matrix: Any) -> bool:
    """Whether no variables are in it."""
    inputs = graph_inputs([matrix])
    return all(isinstance(x, Constant) or hasattr(x, "get_value") for x in inputs)


# Sites found in a model as what evidences and steps need: of the whole vector of a block.


def sites_of_data(
    y: ObservedSites, compile_kwargs: Mapping[str, Any] | None = None
) -> of_data.SitesOfData:
    """Compiled functions of data, predictors and parameters; see `SiteFunctions`."""
    values = y.values.ravel()
    # Numbers are passed as 64 bits: whole ones, of binary variables, are made whole again inside.
    numbers = {x: pt.tensor(x.name, dtype="float64", shape=x.type.shape) for x in y.parameters}
    whole = {x: pt.cast(number, x.dtype) for x, number in numbers.items()}
    log_prob = clone_replace(y.log_prob, whole) if whole else y.log_prob
    parameters = tuple(numbers.values())
    known = DistributionGraph(
        y.eta, values.type(), None, log_prob, None, (), parameters, y.width, y.gaussian_in
    )
    functions = SiteFunctions(known, compile_kwargs=compile_kwargs)
    given = tuple(pt.cast(x, "float64") for x in y.parameters)
    by_values = not y.is_coupled and affine.is_analytic([log_prob], [y.eta])
    family = of_data.RecognisedFamily(functions.at) if by_values else functions.at
    return of_data.SitesOfData(family, values, given)


# Deviations of the Gaussian in place of a flat prior, beside what the data can say.
_FLAT = 1e6
# Of their square times a potential's precision the last digits are beside 1.
_ROUND_OFF = 1e11
# Least length of a direction of the design, relative to the longest one.
_COLLINEAR = 1e-10


class SiteDesign(NamedTuple):
    """Predictors A z + a, z the vector of a block: graphs.

    Attributes
    ----------
    A : TensorVariable, shape (m, q)
    a : TensorVariable, shape (m,)
    """

    A: Any
    a: Any


def predictors_of(observed: Sequence[Any]) -> SiteDesign:
    """Of rows, or sites, of a block."""
    return SiteDesign(
        pt.concatenate([y.A for y in observed]), pt.concatenate([y.a for y in observed])
    )


def gaussian_terms(
    model: pm.Model, block: BlockGraph, potentials: Sequence[Any]
) -> tuple[FactorTerms | FieldTerms, members.JointGaussian | fields.Field]:
    """Terms of a block without a SkewGP, and its vector of white coordinates, or itself.

    Raises
    ------
    ImproperPriorError
        For flat priors of coefficients that no data bound.
    NotSitesError
        For intervals whose noise is shared.
    """
    rows = [noisy_rows(y) for y in block.observed]
    field = fields.field_terms(model, block, potentials, rows)
    if field is not None:
        return field
    A, a = predictors_of(block.all_observed)
    prior = members.joint_prior_of(block.members)
    potential = members.potentials_of(model, block.members, potentials)
    spread = np.zeros((0, 0))
    if any(member.is_flat for member in block.members):
        stiff = None if potential is None else prior.picked @ potential.precision @ prior.picked.T
        spread = _flat_spread(model, block, A @ prior.loose, stiff)
    joint = members.joint_gaussian(prior, spread, potential)
    parts = [_whitened(y, row) for y, row in zip(block.observed, rows, strict=True)]
    if any(turn is not None for turn, _ in parts):
        rows = [row for _, row in parts]
        turns = [pt.eye(row.value.shape[0]) if turn is None else turn for turn, row in parts]
        turns += [pt.eye(y.a.shape[0]) for y in block.sites]
        whole = of_data.block_diagonal(turns)
        A, a = whole @ A, whole @ a
    lower, upper, value, S, counts, log_constant = of_data.row_terms(rows)
    log_constant = joint.log_constant + log_constant
    terms = FactorTerms(A, a, lower, upper, value, S, counts, log_constant)
    return lean_terms(model, terms, joint), joint


def _whitened(y: Observed, rows: of_data.NoisyRows) -> tuple[Any, of_data.NoisyRows]:
    """Values whose noise is shared as values with noise of their own, and what turns predictors.

    With S = L L' these are :math:`L^{-1} v`, of noise 1.
    """
    if rows.S.type.ndim == 1:
        return None, rows
    if y.rows.value is None:
        raise NotSitesError(
            f"{y.name} is intervals whose noise is shared, which a model without a SkewGP cannot "
            "have.",
            "Make the shared part of the noise a variable of its own, such as pm.Normal.",
        )
    chol = pt.linalg.cholesky(rows.S)
    turn = pt.linalg.solve_triangular(chol, pt.eye(chol.shape[0]), lower=True)
    one = pt.ones_like(rows.value)
    log_constant = rows.log_constant - pt.log(pt.diagonal(chol)).sum()
    white = turn @ rows.value
    return turn, rows._replace(
        S=one, lower=white, upper=white, value=white, log_constant=log_constant
    )


def _flat_spread(model: pm.Model, block: BlockGraph, design: Any, stiff: Any) -> FloatArray:
    """Factor of the Gaussian in place of density 1: the same in all that the data can tell.

    `design`, (m, p): of coefficients with flat priors. Predictors change by `_FLAT` times the
    largest value along each direction, so that collinear columns do no harm. `stiff`, (p, p), or
    None: their precision under potentials, beside which round-off allows for less.
    """
    found = [design, *(y.rows.value for y in block.observed if y.rows.value is not None)]
    found = [pt.zeros((1, 1)) if stiff is None else stiff, *found]
    inputs, start = inputs_at_start(model, found)
    precision, columns, *data = plain_function(inputs, found)(*start)
    if not np.isfinite(columns).all():
        names = " and ".join(x.name for x in block.members if x.is_flat)
        raise ValueError(
            f"a predictor that {names} enters is not finite: look for missing values (NaN) and "
            "infinities in what it is computed from, such as a covariate, and leave these rows out "
            "or fill them in."
        )
    size = max((np.nanmax(np.abs(x), initial=1.0) for x in data), default=1.0)
    length = np.sqrt(np.mean(np.asarray(columns) ** 2, axis=0))
    length = np.where(length > 0.0, length, 1.0)
    _, sizes, turned = np.linalg.svd(columns / length / np.sqrt(len(columns)))
    sizes = np.append(sizes, np.zeros(len(turned) - len(sizes)))
    bounded = sizes > _COLLINEAR * sizes[0]
    is_constant = set(model.value_vars).isdisjoint(graph_inputs([design]))
    if is_constant and not bounded.all() and stiff is None:
        loose = (np.abs(turned[~bounded]) > np.sqrt(_COLLINEAR)).any(axis=0)
        _refuse_unbounded(model, block, loose, int(bounded.sum()))
    stiffness = np.abs(precision / np.outer(length, length)).max() * size**2
    flat = min(_FLAT, np.sqrt(_ROUND_OFF / max(stiffness, 1e-300)))
    spread: FloatArray = (turned.T / np.where(bounded, sizes, 1.0)) * flat * size
    return spread / length[:, None]


def _refuse_unbounded(
    model: pm.Model, block: BlockGraph, loose: NDArray[np.bool_], rank: int
) -> None:
    point = initial_point(model)
    flat = [(x.name, np.shape(point[x.value.name])) for x in block.members if x.is_flat]
    labels = [label for name, shape in flat for label in members.labels_of(name, shape)]
    names = listed([label for label, own in zip(labels, loose, strict=True) if own])
    raise ImproperPriorError(
        f"the data do not bound {names}, which have flat priors, so that the posterior is "
        f"improper: of the {len(labels)} columns of the design of coefficients with flat priors "
        f"only {rank} are linearly independent. Leave out columns that are collinear, such as "
        "one that is constant beside an intercept, or give them a proper prior, such as "
        "pm.Normal."
    )


def noisy_rows(y: Observed) -> of_data.NoisyRows:
    """Rows of the vector of a block, the data checked."""
    checked(y.name, y.values, y.likelihood)
    _, _, lower, upper, noise, value, log_constant, _, counts = y.rows
    value = of_data.nowhere(lower) if value is None else value
    rows = of_data.NoisyRows(noise, lower, upper, value, counts=counts)
    known = log_constant is not None
    return rows._replace(log_constant=pt.cast(log_constant, "float64")) if known else rows


def checked(name: str, values: Any, likelihood: likelihoods.Likelihood) -> Any:
    """The data, where they are what a likelihood asks for."""
    likelihood.check(name, values.eval(mode=PLAIN))
    return values
