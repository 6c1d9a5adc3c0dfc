"""Choices among alternatives, and classes with a function each: the greatest of noisy values."""

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_skewgp._model.distributions.choice_probit import ChoiceProbitRV
from pymc_skewgp._model.graph.likelihoods.block_noise import block_diagonal
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    RowGraphs,
    data_shape,
    refuse_other_than_counts,
    required,
    variances,
)


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """Rows eta_c - eta_j > 0, one for each alternative j that was not chosen.

    The noise of c is in all of a choice: its rows have the covariance sigma^2 (I + 11').
    """
    if not isinstance(rv.owner.op, ChoiceProbitRV):
        return None
    eta, sigma = rv.owner.op.dist_params(rv.owner)
    shape, k = data_shape(values), eta.shape[-1]
    chosen = pt.cast(values.ravel(), "int64")
    chosen = required(
        chosen,
        f"the observations of {rv.name} must be indices of alternatives, from 0 to their number "
        "less 1.",
        pt.ge(chosen, 0),
        pt.lt(chosen, k),
    )[:, None]
    eta = pt.broadcast_to(eta, pt.concatenate([shape, pt.stack([k])])).reshape((-1, k))
    choice, other = pt.arange(chosen.shape[0])[:, None], pt.arange(k - 1)[None, :]
    other = other + pt.ge(other, chosen)
    predictor = eta[choice, chosen] - eta[choice, other]
    variance = variances(rv, sigma, shape)
    noise = block_diagonal(variance[:, None, None] * (pt.eye(k - 1, dtype="float64") + 1.0))
    zero = pt.zeros(noise.shape[0], dtype="float64")
    rows = pt.stack([chosen.shape[0], k - 1])
    return RowGraphs(predictor, rows, zero, pt.full_like(zero, np.inf), noise)


CHOICE = Likelihood("choice", "ChoiceProbit or MultinomialProbit", _rows, refuse_other_than_counts)
