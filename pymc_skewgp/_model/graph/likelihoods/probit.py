"""Rows of labels, trials and ordered categories under a probit link."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import scalar
from pytensor.graph.basic import equal_computations
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import BernoulliRV, BinomialRV, CategoricalRV
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.probit import BernoulliProbitRV
from pymc_skewgp._model.distributions.unified_skew_normal import known_value
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    LapsingLink,
    Likelihood,
    RowGraphs,
    data_shape,
    first_above,
    is_elementwise,
    is_random,
    lapses_of,
    lapsing_link,
    probit_predictor,
    refuse_other_than_counts,
    required,
    spread,
    uncopied,
    variances,
    without_expansion,
)
from pymc_skewgp._model.ops.densities import label_intervals


def _probit_rows(rv: Any, labels: Any) -> RowGraphs | None:
    """A label 1 is (0, inf), a label 0 is (-inf, 0), with noise of variance 1."""
    if isinstance(rv.owner.op, BernoulliProbitRV):
        (eta,) = rv.owner.op.dist_params(rv.owner)
    elif isinstance(rv.owner.op, BernoulliRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        eta = probit_predictor(p)
        if eta is None:
            return _lapsing_labels(rv, p, labels)
    else:
        return None
    return RowGraphs(eta, data_shape(labels), *label_intervals(labels.ravel()))


def _lapsing_labels(rv: Any, p: Any, labels: Any) -> RowGraphs | None:
    """Labels that are flipped, or that are guesses, with a probability of their own."""
    link = lapsing_link(p)
    if link is None:
        return None
    shape, label = data_shape(labels), labels.ravel()
    mixture = lapses_of(rv.name, link, pt.gt(label, 0), shape)
    return RowGraphs(link.eta, shape, *label_intervals(label), mixture=mixture)


def _check(name: str, labels: NDArray[Any]) -> None:
    """Any others would pass for 0 or 1."""
    found = np.unique(labels)
    if not np.isin(found, (0, 1)).all():
        raise ValueError(f"the observations of {name} must be 0 or 1, got {found[:5]}.")


PROBIT = Likelihood(
    "probit",
    "BernoulliProbit or pm.Bernoulli with p=pm.math.invprobit(...)",
    _probit_rows,
    _check,
)


# Binomial probit observations: y of n trials succeed, each with probability Phi(eta).

_FEW = 2.0  # trials of a unit, on average


def _binomial_rows(rv: Any, values: Any) -> RowGraphs | None:
    """A probit row for the successes of a unit and one for its failures, each so many times."""
    if not isinstance(rv.owner.op, BinomialRV):
        return None
    n, p = rv.owner.op.dist_params(rv.owner)
    eta = probit_predictor(p)
    link = lapsing_link(p) if eta is None else None
    if eta is None and link is None:
        return None
    if is_random(n):
        raise NotConjugateError(
            f"the numbers of trials of {rv.name} are random.", "Observe them: n must be data."
        )
    shape = data_shape(values)
    successes = pt.cast(values.ravel(), "int64")
    trials = pt.cast(pt.broadcast_to(n, shape).ravel(), "int64")
    successes = required(
        successes,
        f"the observations of {rv.name} must be numbers of successes from 0 to n, the trials.",
        pt.ge(successes, 0),
        pt.le(successes, trials),
    )
    orders = (pt.gammaln(k + 1.0) for k in (trials, successes, trials - successes))
    coefficient, of_successes, of_failures = orders
    log_constant = pt.sum(coefficient - of_successes - of_failures)
    trials = pt.maximum(trials, 0)  # fewer are refused above; graphs are made all the same
    if link is not None:
        rows = _lapsing_trials(rv.name, link, shape, successes, trials)
    elif _are_few(n):
        unit, is_success = _each_trial(successes, trials)
        predictor = pt.broadcast_to(eta, shape).ravel()[unit]
        rows = RowGraphs(predictor, pt.stack([unit.shape[0]]), *label_intervals(is_success))
    else:
        unit = pt.repeat(pt.arange(trials.shape[0]), 2)
        limits = label_intervals(pt.eq(pt.arange(unit.shape[0]) % 2, 0))
        counts = pt.stack([successes, trials - successes], axis=1).ravel()
        predictor = pt.broadcast_to(eta, shape).ravel()[unit]
        rows = RowGraphs(predictor, pt.stack([unit.shape[0]]), *limits, counts=counts)
    return rows._replace(log_constant=log_constant)


def _are_few(n: Any) -> bool:
    """Whether as few rows are made one for each trial."""
    known = known_value(n)
    return known is not None and bool(np.mean(known) <= _FEW)


def _each_trial(successes: Any, trials: Any) -> tuple[Any, Any]:
    """One index for each trial: which unit it is of, and whether it is a success."""
    unit = pt.repeat(pt.arange(trials.shape[0]), trials)
    number = pt.arange(unit.shape[0]) - (pt.cumsum(trials) - trials)[unit]
    return unit, pt.lt(number, successes[unit])


def _lapsing_trials(
    name: str, link: LapsingLink, shape: Any, successes: Any, trials: Any
) -> RowGraphs:
    """A row for each trial, each of which may be a lapse."""
    unit, is_success = _each_trial(successes, trials)
    one_a_trial = pt.stack([unit.shape[0]])
    a, b = (spread(x, shape)[unit] for x in (link.a, link.b))
    link = LapsingLink(link.eta, a, b)
    mixture = lapses_of(name, link, is_success, one_a_trial)
    predictor = pt.broadcast_to(link.eta, shape).ravel()[unit]
    return RowGraphs(predictor, one_a_trial, *label_intervals(is_success), mixture=mixture)


BINOMIAL = Likelihood(
    "binomial probit",
    "pm.Binomial with p=pm.math.invprobit(...)",
    _binomial_rows,
    refuse_other_than_counts,
)


# Ordered probit observations: in which of the intervals between cut-points eta + e is.


class _Arguments(NamedTuple):
    """Of ``pm.OrderedProbit``."""

    eta: Any
    cutpoints: Any
    sigma: Any


def _ordered_rows(rv: Any, values: Any) -> RowGraphs | None:
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


ORDERED_PROBIT = Likelihood(
    "ordered probit", "pm.OrderedProbit", _ordered_rows, refuse_other_than_counts
)
