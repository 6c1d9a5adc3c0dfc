"""Probit observations: y = 1 with probability Phi(eta)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV

from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbitRV
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood, RowGraphs, data_shape
from pymc_skewgp._model.graph.likelihoods.probit_link import probit_predictor
from pymc_skewgp._model.ops.skew_normal import label_intervals


def _rows(rv: Any, labels: Any) -> RowGraphs | None:
    """A label 1 is (0, inf), a label 0 is (-inf, 0), with noise of variance 1."""
    eta = _predictor(rv)
    if eta is None:
        return None
    return RowGraphs(eta, data_shape(labels), *label_intervals(labels.ravel()))


def _check(name: str, labels: NDArray[Any]) -> None:
    """Any others would pass for 0 or 1."""
    found = np.unique(labels)
    if not np.isin(found, (0, 1)).all():
        raise ValueError(f"the observations of {name} must be 0 or 1, got {found[:5]}.")


def _predictor(rv: Any) -> Variable | None:
    """Predictor eta where `rv` is Bernoulli with probability Phi(eta), else None."""
    if isinstance(rv.owner.op, BernoulliProbitRV):
        (eta,) = rv.owner.op.dist_params(rv.owner)
        return eta
    if isinstance(rv.owner.op, BernoulliRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        return probit_predictor(p)
    return None


PROBIT = Likelihood(
    "probit",
    "BernoulliProbit or pm.Bernoulli with p=pm.math.invprobit(...)",
    _rows,
    _check,
)
