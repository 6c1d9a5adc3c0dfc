"""The integral of a density of which there are draws: bridge sampling.

References
----------
.. [1] X.-L. Meng & W. H. Wong (1996), Simulating ratios of normalizing constants via a simple
   identity, Statistica Sinica 6.
.. [2] S. Fruehwirth-Schnatter (2004), Estimating marginal likelihoods for mixture and Markov
   switching models using bridge sampling techniques, doi:10.1111/j.1368-423X.2004.00125.x.
"""

import numpy as np
from scipy.special import logsumexp

from pymc_skewgp._gaussian.weights import log_mean_exp
from pymc_skewgp._validation import FloatArray

_ITERATIONS, _TOLERANCE = 1000, 1e-8


def bridge_estimate(
    log_ratio_target: FloatArray, log_ratio_proposal: FloatArray, effective: float
) -> tuple[float, float]:
    r"""Log integral of an unnormalised density p, and its standard error.

    With q the density of a proposal, and :math:`s_1, s_2` the shares of the draws of p and of q,
    the fixed point of

    .. math:: r = \frac{\mathrm E_q \, p / (s_1 p + s_2 r q)}{\mathrm E_p \, q / (s_1 p + s_2 r q)}

    Parameters
    ----------
    log_ratio_target, log_ratio_proposal : ndarray
        log p - log q at draws of p, and at draws of q.
    effective : float
        Effective number of the draws of p.
    """
    n_q = log_ratio_proposal.size
    log_s = np.log(np.array([effective, n_q]) / (effective + n_q))
    value = float(np.median(log_ratio_target))
    for _ in range(_ITERATIONS):
        above = log_ratio_proposal - _log_sum(log_s, log_ratio_proposal, value)
        below = -_log_sum(log_s, log_ratio_target, value)
        found = log_mean_exp(above) - log_mean_exp(below)
        change, value = abs(found - value), found
        if change < _TOLERANCE:
            break
    above = np.exp(log_ratio_proposal - _log_sum(log_s, log_ratio_proposal, value))
    below = np.exp(value - _log_sum(log_s, log_ratio_target, value))
    squared = above.var() / above.mean() ** 2 / n_q + below.var() / below.mean() ** 2 / effective
    return value, float(np.sqrt(squared))


def _log_sum(log_s: FloatArray, log_ratio: FloatArray, value: float) -> FloatArray:
    found: FloatArray = logsumexp(
        np.stack([log_s[0] + log_ratio, np.full(log_ratio.size, log_s[1] + value)]), axis=0
    )
    return found
