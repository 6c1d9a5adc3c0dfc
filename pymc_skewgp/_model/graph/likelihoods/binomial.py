"""Binomial probit observations: y of n trials succeed, each with probability Phi(eta)."""

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor.random.basic import BinomialRV

from pymc_skewgp._errors import NotConjugateError
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


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """N probit rows a unit, y of them labels 1: the same predictor for each."""
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
    # One index for each trial: which unit it is of, and its number there.
    trials = pt.maximum(trials, 0)  # fewer are refused above; graphs are made all the same
    unit = pt.repeat(pt.arange(trials.shape[0]), trials)
    number = pt.arange(unit.shape[0]) - (pt.cumsum(trials) - trials)[unit]
    is_success = pt.lt(number, successes[unit])
    limits = label_intervals(is_success)
    one_a_trial = pt.stack([unit.shape[0]])
    mixture = None
    if link is not None:
        a, b = (spread(x, shape)[unit] for x in (link.a, link.b))
        link = LapsingLink(link.eta, a, b)
        eta, mixture = link.eta, lapses_of(rv.name, link, is_success, one_a_trial)
    predictor = pt.broadcast_to(eta, shape).ravel()[unit]
    orders = (pt.gammaln(k + 1.0) for k in (trials, successes, trials - successes))
    coefficient, of_successes, of_failures = orders
    log_constant = pt.sum(coefficient - of_successes - of_failures)
    rows = RowGraphs(predictor, one_a_trial, *limits, log_constant=log_constant)
    return rows._replace(mixture=mixture)


BINOMIAL = Likelihood(
    "binomial probit", "pm.Binomial with p=pm.math.invprobit(...)", _rows, refuse_other_than_counts
)
