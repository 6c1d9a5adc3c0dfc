"""Probit observations: y = 1 with probability Phi(eta), or a + b Phi(eta)."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.random.basic import BernoulliRV

from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbitRV
from pymc_skewgp._model.graph.likelihoods.lapsing_link import lapses_of, lapsing_link
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood, RowGraphs, data_shape
from pymc_skewgp._model.graph.likelihoods.probit_link import probit_predictor
from pymc_skewgp._model.ops.skew_normal import label_intervals


def _rows(rv: Any, labels: Any) -> RowGraphs | None:
    """A label 1 is (0, inf), a label 0 is (-inf, 0), with noise of variance 1."""
    if isinstance(rv.owner.op, BernoulliProbitRV):
        (eta,) = rv.owner.op.dist_params(rv.owner)
    elif isinstance(rv.owner.op, BernoulliRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        eta = probit_predictor(p)
        if eta is None:
            return _lapsing(rv, p, labels)
    else:
        return None
    return RowGraphs(eta, data_shape(labels), *label_intervals(labels.ravel()))


def _lapsing(rv: Any, p: Any, labels: Any) -> RowGraphs | None:
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
    _rows,
    _check,
)
