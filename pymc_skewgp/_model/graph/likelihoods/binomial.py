"""Binomial probit observations: y of n trials succeed, each with probability Phi(eta)."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.random.basic import BinomialRV

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.parameters import known_value
from pymc_skewgp._model.graph.likelihoods.lapsing_link import (
    LapsingLink,
    lapses_of,
    lapsing_link,
)
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    RowGraphs,
    data_shape,
    is_random,
    refuse_other_than_counts,
    required,
    spread,
)
from pymc_skewgp._model.graph.likelihoods.probit_link import probit_predictor
from pymc_skewgp._model.ops.skew_normal import label_intervals

_FEW = 2.0  # trials of a unit, on average


def _rows(rv: Any, values: Any) -> RowGraphs | None:
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
        rows = _lapsing(rv.name, link, shape, successes, trials)
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


def _lapsing(name: str, link: LapsingLink, shape: Any, successes: Any, trials: Any) -> RowGraphs:
    """A row for each trial, each of which may be a lapse."""
    unit, is_success = _each_trial(successes, trials)
    one_a_trial = pt.stack([unit.shape[0]])
    a, b = (spread(x, shape)[unit] for x in (link.a, link.b))
    link = LapsingLink(link.eta, a, b)
    mixture = lapses_of(name, link, is_success, one_a_trial)
    predictor = pt.broadcast_to(link.eta, shape).ravel()[unit]
    return RowGraphs(predictor, one_a_trial, *label_intervals(is_success), mixture=mixture)


BINOMIAL = Likelihood(
    "binomial probit", "pm.Binomial with p=pm.math.invprobit(...)", _rows, refuse_other_than_counts
)
