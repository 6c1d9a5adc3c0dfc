"""A Gaussian or Skew Gaussian process at its rows, given observations there."""

import numpy as np

from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._observations.observations import Observations, stacked
from pymc_skewgp._observations.pseudo_points import pseudo_point_rows
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._sun.contradiction import refuse_contradictory_points
from pymc_skewgp._validation import FloatArray


def process_given(
    matrix: FloatArray,
    mean: FloatArray,
    phase: FloatArray,
    truncation: FloatArray,
    observations: Observations,
    units: FloatArray | None = None,
) -> Conditioning:
    """`factored_process_given` from the prior covariance as a matrix.

    `units` are those of each value, where they differ: see `FactoredCovariance`.
    """
    cov = FactoredCovariance.of_kernel(matrix, units)
    return factored_process_given(cov, mean, phase, truncation, observations)


def factored_process_given(
    cov: FactoredCovariance,
    mean: FloatArray,
    phase: FloatArray,
    truncation: FloatArray,
    observations: Observations,
) -> Conditioning:
    """Condition on the signs at the pseudo-points and on observations.

    Parameters
    ----------
    cov : FactoredCovariance
        Prior covariance of f at the s pseudo-points, at the n data, and at t more points where f is
        wanted but not observed.
    mean : ndarray, shape (n + t,)
        Prior mean of f, after the pseudo-points.
    phase, truncation : ndarray, shape (s,)
    observations : Observations
        Rows of f at the data.

    Returns
    -------
    Conditioning
        Of s + n + t values, the first s of them less their mean. The rows of u: the pseudo-points,
        then the intervals of the data.

    Raises
    ------
    ContradictoryPseudoPointsError
        See `refuse_contradictory_points`.
    """
    s = phase.size
    if not s:
        return Conditioning(mean, cov, observations)
    own = cov.leading(s)
    sd = np.sqrt(own.diagonal())
    rows = stacked([pseudo_point_rows(sd, phase, truncation), observations])
    # The signs at pseudo-points are those of f less its mean.
    given = Conditioning(np.concatenate([np.zeros(s), mean]), cov, rows)
    scale = phase / sd
    refuse_contradictory_points(scale[:, None] * own * scale, truncation, given.cov.jitter)
    return given
