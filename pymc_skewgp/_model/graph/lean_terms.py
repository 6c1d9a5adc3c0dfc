"""Terms of a block without a SkewGP, in the form that takes the least time.

Of values with noise that are of the same predictor up to an offset one is left, of their mean
weighted by precision; designs that are known and of few entries are sparse.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor import sparse
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs
from scipy.sparse import csr_matrix

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.graph.analytic import is_analytic
from pymc_skewgp._model.graph.joint_gaussian import JointGaussian
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._observations.distinct_rows import DistinctRows, distinct_rows
from pymc_skewgp._posterior.factor_terms import FactorTerms
from pymc_skewgp._validation import FloatArray

# Points in all of which rows are equal that always are, and how far these are from the first.
_POINTS, _SPREAD, _SEED = 3, 0.3, 0
# Share of a design's entries that are not zero, and entries, from which on it stays as it is.
_DENSEST, _SMALL = 0.2, 10**4


def lean_terms(model: pm.Model, terms: FactorTerms, joint: JointGaussian) -> FactorTerms:
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
    if known is not None and _is_sparse(known):
        W = sparse.as_sparse_variable(csr_matrix(known))
        offset = a + sparse.structured_dot(W, joint.mean[:, None])[:, 0]
        return terms._replace(factor=sparse.structured_dot(W, joint.factor), offset=offset)
    if known is not None:
        A = pt.as_tensor_variable(known)
    factor, scales = joint.factor, None
    if known is None and _is_known(factor):
        scales = np.asarray(factor.eval(mode=PLAIN), dtype=np.float64)
    if scales is not None and _is_diagonal(scales):
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
    used = set(graph_inputs(graphs))
    inputs = [value for value in model.value_vars if value in used]
    function = plain_function(inputs, graphs)
    start = model.initial_point() if inputs else {}
    rng, found = np.random.default_rng(_SEED), []
    # Of rows that a switch makes equal at one point nothing is known at another.
    by_points = is_analytic([terms.factor], inputs)
    for _ in range(_POINTS if inputs else 1):
        A, value = function(*(start[x.name] for x in inputs))
        found.append(np.ascontiguousarray(A, dtype=np.float64))
        start = {name: x + _SPREAD * rng.normal(size=np.shape(x)) for name, x in start.items()}
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


def _is_sparse(matrix: FloatArray) -> bool:
    return bool(matrix.size > _SMALL and np.count_nonzero(matrix) < _DENSEST * matrix.size)


def _is_diagonal(matrix: FloatArray) -> bool:
    if matrix.shape[0] != matrix.shape[1]:
        return False
    return bool(np.count_nonzero(matrix) == np.count_nonzero(matrix.diagonal()))
