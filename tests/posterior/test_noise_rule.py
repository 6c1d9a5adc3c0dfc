"""Sites averaged over noise, where the observation is impossible at some predictors."""

import numpy as np

from pymc_skewgp._posterior.row_predictors import NoiseRule


def test_mean_of_a_site_that_is_0_somewhere():
    """N(eta; 0, 1/6) but for 0 below -5, where it is exp(-75): the closed form holds."""

    def log_prob(eta):
        return np.where(eta > -5.0, -3.0 * eta**2, -np.inf)

    variance = np.array([0.01, 0.02])
    rule = NoiseRule.of(log_prob, variance, np.zeros(2), np.array([2.0, 2.0]))
    eta = np.array([[0.0, 0.5], [1.0, -1.0]])
    scale = 1.0 + 6.0 * variance
    wanted = -3.0 * eta**2 / scale - 0.5 * np.log(scale)
    np.testing.assert_allclose(rule.log_mean(log_prob, eta), wanted, atol=1e-8)
