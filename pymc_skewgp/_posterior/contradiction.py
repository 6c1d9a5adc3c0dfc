"""Constraints that hold only by their nugget: the log probability then is one of the nugget."""

import numpy as np

from pymc_skewgp._errors import ContradictoryConstraintsError, no_warnings
from pymc_skewgp._gaussian.log_prob_gradient import LARGEST_EFFECT
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import fit_ep
from pymc_skewgp._gaussian.proposals.ep_gradient import ep_gradient
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Shares of the variances, added until a log probability can be computed, which is then too large.
_COARSE = (1e-10, 1e-8, 1e-6, 1e-4)
_CONVERGED = 1e-3


def refuse_contradictory_constraints(
    sampler: RectangleSampler, rows: IntArray, nugget: FloatArray
) -> None:
    r"""Refuse a rectangle whose log probability depends on the nugget of its constraints.

    The derivative of EP's log probability in the log of the nugget's variances is next to 0 where
    the constraints can hold without it, and at least a half for each row that they cannot.

    Parameters
    ----------
    sampler : RectangleSampler
    rows : ndarray of int, shape (c,)
        Which of its rows are constraints.
    nugget : ndarray, shape (c,)
        Variances of their noise.

    Raises
    ------
    ContradictoryConstraintsError
        It says how improbable the constraints are.
    """
    with no_warnings(), np.errstate(all="ignore"):
        try:
            slope = ep_gradient(sampler.cov, sampler.ep, sampler.lower, sampler.upper).cov
            effect = float(slope.diagonal()[rows] @ nugget)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            effect = np.inf
        # Below 0 where noise fills a narrow interval; far below only where EP has not converged.
        if -sampler.size < effect <= LARGEST_EFFECT:
            return
        known = _log_prob_below(sampler)
    raise ContradictoryConstraintsError(
        "the constraints contradict each other, the data or the pseudo-points: they hold only by "
        f"their nugget. The log probability of that {known}. Drop constraints that cannot hold "
        "together, check the signs and units of their limits, or choose a kernel with a larger "
        "variance or a shorter lengthscale."
    )


def _log_prob_below(sampler: RectangleSampler) -> str:
    """Of the rows with more noise than they have, which is more probable."""
    variances = sampler.cov.diagonal()
    for share in _COARSE:
        matrix = sampler.cov.dense().copy()
        matrix[np.diag_indices_from(matrix)] += share * variances
        try:
            ep = fit_ep(DenseCovariance(matrix), sampler.lower, sampler.upper, tol=_CONVERGED)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            continue
        if ep.residual < _CONVERGED and np.isfinite(ep.log_prob):
            return f"is below about {ep.log_prob:.3g}"
    return "is beyond double precision"
