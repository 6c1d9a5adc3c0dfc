"""The oracle of likelihoods against closed forms."""

import numpy as np
import pytest
from likelihood_oracles import function_grid, one_sign
from oracles import brute_log_prob
from scipy.stats import multivariate_normal, norm

K = np.array([[1.0, 0.5, 0.2, 0.3], [0.5, 1.5, 0.6, 0.1], [0.2, 0.6, 0.8, 0.0], [0.3, 0.1, 0, 1.2]])
M = np.array([0.3, -0.2, 0.1, 0.5])


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_gaussian_likelihood(d):
    """Noise of .5 and a prior deviation of 1.2: the narrowest that the oracle is used for."""
    y, S, k, m = np.array([0.5, -0.4, 0.9, 1.0])[:d], 0.25, K[:d, :d], M[:d]
    found = function_grid(m, k, lambda f: norm.logpdf(y, f, np.sqrt(S)).sum(axis=1))
    G, tol = k + S * np.eye(d), 1e-7 if d == 4 else 1e-8
    assert found.log_evidence == pytest.approx(multivariate_normal(m, G).logpdf(y), abs=tol)
    np.testing.assert_allclose(found.mean, m + k @ np.linalg.solve(G, y - m), atol=tol)
    np.testing.assert_allclose(found.cov, k - k @ np.linalg.solve(G, k), atol=tol)
    first = found.average(norm.cdf(found.f[0]))
    mean, variance = found.mean[0], found.cov[0, 0]
    assert first == pytest.approx(norm.cdf(mean / np.sqrt(1 + variance)), abs=tol)


def test_a_sign():
    """P(f_1 > 0 and f_0 > -.3 sd) over P(f_0 > -.3 sd), with f_1 seen by a label."""
    sign = one_sign(K[1:2, 1:2], K[0, 1:2], K[0, 0], 1.0, 0.3)
    found = function_grid([0.0], K[1:2, 1:2], lambda f: norm.logcdf(f[:, 0]) + sign(f))
    cov = K[:2, :2] + np.diag([0.0, 1.0])
    both = brute_log_prob(np.array([-0.3, 0.0]), np.inf, cov)  # to 1e-12
    assert found.log_evidence == pytest.approx(both - norm.logcdf(0.3), abs=1e-9)
