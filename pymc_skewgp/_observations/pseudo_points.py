"""The sign of a process at pseudo-points, as rows of it."""

import numpy as np

from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._validation import FloatArray


def pseudo_point_rows(sd: FloatArray, phase: FloatArray, truncation: FloatArray) -> Observations:
    r"""Rows of f less its mean at the pseudo-points, in standard deviations, without noise.

    .. math:: \ell_j (f_j - m_j) / \mathrm{sd}_j + \gamma_j > 0: \qquad
        \text{above } -\gamma_j \text{ for phase } +1, \quad \text{below } \gamma_j \text{ for } -1

    Parameters
    ----------
    sd, phase, truncation : ndarray, shape (s,)
        Prior standard deviation; phase, +1 or -1; gamma.

    Returns
    -------
    Observations
    """
    positive = phase > 0
    return intervals(
        np.where(positive, -truncation, -np.inf),
        np.where(positive, np.inf, truncation),
        np.zeros(sd.size),
        A=1.0 / sd,
    )
