"""Bridge sampling of integrals that are known."""

import numpy as np
from scipy import stats

from pymc_skewgp._learn.averaging.chains import bridge_estimate


def test_integral_of_a_gamma_density():
    """Independent draws of the target and of a proposal that misses it: twenty z scores."""
    target, proposal = stats.gamma(3.0), stats.lognorm(1.0, scale=3.0)
    z = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, new = target.rvs(500, random_state=rng), proposal.rvs(500, random_state=rng)
        ratios = [7.0 + target.logpdf(v) - proposal.logpdf(v) for v in (x, new)]
        value, std_error = bridge_estimate(*ratios, effective=500.0)
        assert std_error < 0.1
        z.append((value - 7.0) / std_error)
    # A sum of 20 squares above 45.3, or below 5.9: 1 in 1000 each.
    assert 5.9 < np.square(z).sum() < 45.3
