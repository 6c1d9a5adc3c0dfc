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
    """Condition on the signs at the pseudo-points and on observations.

    Parameters
    ----------
    matrix : ndarray, shape (s + n + t, s + n + t)
        Prior covariance of f at the s pseudo-points, at the data, and at t more points where f is
        wanted but not observed.
    mean : ndarray, shape (n + t,)
        Prior mean of f, after the pseudo-points.
    phase, truncation : ndarray, shape (s,)
    observations : Observations
        Rows of f at the data.
    units : ndarray, shape (s + n + t,), optional
        See `FactoredCovariance`.

    Returns
    -------
    Conditioning
        Of s + n + t values, the first s of them less their mean. The rows of u: the pseudo-points,
        then the intervals of the data.

    Raises
    ------
    NotPositiveDefiniteError
        When `matrix` is not positive semidefinite.
    ContradictoryPseudoPointsError
        See `refuse_contradictory_points`.
    """
    s = phase.size
    cov = FactoredCovariance.of_kernel(matrix, units)
    if not s:
        return Conditioning(mean, cov, observations)
    sd = np.sqrt(matrix.diagonal()[:s])
    rows = stacked([pseudo_point_rows(sd, phase, truncation), observations])
    # The signs at pseudo-points are those of f less its mean.
    given = Conditioning(np.concatenate([np.zeros(s), mean]), cov, rows)
    scale = phase / sd
    refuse_contradictory_points(
        scale[:, None] * matrix[:s, :s] * scale, truncation, given.cov.jitter
    )
    return given
