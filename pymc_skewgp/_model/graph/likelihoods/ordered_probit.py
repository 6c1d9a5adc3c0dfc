"""Ordered probit observations: in which of the intervals between cut-points eta + e is."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor import scalar
from pytensor.graph.basic import equal_computations
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    RowGraphs,
    data_shape,
    is_random,
    refuse_other_than_counts,
    required,
    variances,
)
from pymc_skewgp._model.graph.likelihoods.probit_link import (
    first_above,
    is_elementwise,
    uncopied,
    without_expansion,
)


class _Arguments(NamedTuple):
    """Of ``pm.OrderedProbit``."""

    eta: Any
    cutpoints: Any
    sigma: Any


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """Category c is the interval from cut-point c - 1 to cut-point c."""
    if not isinstance(rv.owner.op, CategoricalRV):
        return None
    (p,) = rv.owner.op.dist_params(rv.owner)
    found = _chosen_arguments(_without_leading(p))
    if found is None:
        return None
    eta, cutpoints, sigma = found
    shape = data_shape(values)
    category = pt.cast(values.ravel(), "int64")
    category = required(
        category,
        f"the observations of {rv.name} must be categories from 0 to the number of cut-points.",
        pt.ge(category, 0),
        pt.le(category, cutpoints.shape[-1]),
    )
    rising = pt.lt(cutpoints[..., :-1], cutpoints[..., 1:])
    if not is_random(cutpoints):  # of others intervals without inside have probability 0
        cutpoints = required(cutpoints, f"the cut-points of {rv.name} must increase.", rising)
    lower, upper = _limits(cutpoints, category, shape)
    return RowGraphs(eta, shape, lower, upper, variances(rv, sigma, shape))


def _without_leading(p: Any) -> Any:
    """Probabilities before dimensions were added in front: of one predictor for many data."""
    p = uncopied(p)
    while p.owner and isinstance(p.owner.op, DimShuffle) and p.owner.op.is_left_expand_dims:
        p = uncopied(p.owner.inputs[0])
    return p


def _limits(cutpoints: Any, category: Any, shape: Any) -> tuple[Any, Any]:
    """Cut-points on each side of a category, infinite ones at the ends."""
    if cutpoints.type.ndim == 1:  # one set for all rows: fewer operations
        edges = _with_ends(pt.cast(cutpoints, "float64"))
        return edges[category], edges[category + 1]
    n_cuts = cutpoints.shape[-1]
    cuts = pt.broadcast_to(cutpoints, pt.concatenate([shape, pt.stack([n_cuts])]))
    edges = _with_ends(pt.cast(cuts.reshape((-1, n_cuts)), "float64"))
    row = pt.arange(category.shape[0])
    return edges[row, category], edges[row, category + 1]


def _with_ends(cuts: Any) -> Any:
    end = pt.full_like(cuts[..., :1], np.inf)
    return pt.concatenate([-end, cuts, end], axis=-1)


def _chosen_arguments(p: Any) -> _Arguments | None:
    """Arguments of all probabilities, or of chosen ones where some are masked."""
    if not (p.owner and isinstance(p.owner.op, AdvancedSubtensor)):
        return _arguments(p)
    whole, *index = p.owner.inputs
    found = _arguments(uncopied(whole))
    if found is None or len(index) != 1 or index[0].type.dtype != "bool":
        return None
    (mask,) = index
    if mask.type.ndim != whole.type.ndim - 1:
        return None
    shape = list(mask.shape)
    cutpoints = found.cutpoints
    if cutpoints.type.ndim > 1:
        cutpoints = pt.broadcast_to(cutpoints, [*shape, cutpoints.shape[-1]])[mask]
    eta = pt.broadcast_to(found.eta, shape)[mask]
    sigma = found.sigma if found.sigma.type.ndim == 0 else pt.broadcast_to(found.sigma, shape)[mask]
    return _Arguments(eta, cutpoints, sigma)


def _arguments(p: Any) -> _Arguments | None:
    """What ``pm.OrderedProbit`` made the probabilities `p` of; None where it did not.

    They are a page of operations: what is looked for is the place of the three arguments in it,
    and then whether PyMC makes the same of them.
    """
    node = p.owner
    if node is None or not is_elementwise(node, scalar.Exp):
        return None
    if not isinstance(getattr(node.inputs[0].owner, "op", None), Join):
        return None
    difference = first_above(p, _is_difference)
    standardised = first_above(p, _is_standardised)
    if difference is None or standardised is None:
        return None
    eta = difference.inputs[0].owner.inputs[0]
    for cutpoints in without_expansion(difference.inputs[1]):
        for sigma in without_expansion(standardised.inputs[1]):
            if cutpoints.type.ndim and _is_made_of(p, eta, cutpoints, sigma):
                return _Arguments(eta, cutpoints, sigma)
    return None


def _is_made_of(p: Any, eta: Any, cutpoints: Any, sigma: Any) -> bool:
    try:
        rebuilt = pm.OrderedProbit.compute_p(eta, cutpoints, sigma)
    except (ValueError, TypeError, IndexError):  # dimensions that do not fit
        return False
    return bool(equal_computations([p], [rebuilt]))


def _is_difference(node: Any) -> bool:
    """Whether a node is eta, with a dimension added at its end, less the cut-points."""
    if not is_elementwise(node, scalar.Sub):
        return False
    left = node.inputs[0].owner
    return left is not None and isinstance(left.op, DimShuffle)


def _is_standardised(node: Any) -> bool:
    """Whether a node is a difference over sigma."""
    if not is_elementwise(node, scalar.TrueDiv):
        return False
    above = node.inputs[0].owner
    return above is not None and is_elementwise(above, scalar.Sub)


ORDERED_PROBIT = Likelihood("ordered probit", "pm.OrderedProbit", _rows, refuse_other_than_counts)
