"""The oracle of points and intervals against closed forms."""

import numpy as np
import pytest
from observation_oracles import grid_posterior
from scipy.stats import multivariate_normal, norm

K = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, 0.6], [0.2, 0.6, 0.8]])
M = np.array([0.3, -0.2, 0.1])
NOWHERE = np.full(3, np.nan)


def test_points_are_gp_regression():
    y, S = np.array([0.5, -0.4, 0.9]), np.array([0.1, 0.2, 0.3])
    found = grid_posterior(M, K, np.eye(3), np.zeros(3), S, NOWHERE, NOWHERE, y)
    G = K + np.diag(S)
    assert found.log_evidence == pytest.approx(multivariate_normal(M, G).logpdf(y), abs=1e-9)
    np.testing.assert_allclose(found.mean, M + K @ np.linalg.solve(G, y - M), atol=1e-9)
    np.testing.assert_allclose(found.cov, K - K @ np.linalg.solve(G, K), atol=1e-9)


def test_one_interval_is_a_normal_mass():
    A = np.array([[1.0, -1.0, 0.5]])
    sd = np.sqrt(A[0] @ K @ A[0] + 0.4)
    centre = A[0] @ M + 0.2
    found = grid_posterior(M, K, A, [0.2], [0.4], [-0.3], [0.7], [np.nan])
    mass = norm.cdf(0.7, centre, sd) - norm.cdf(-0.3, centre, sd)
    assert found.log_evidence == pytest.approx(np.log(mass), abs=1e-9)


def test_a_point_and_an_interval_with_noise_in_common():
    """The pair (v_1, v_2) is normal: density of the one, mass of the other given it."""
    A, S = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), np.array([[0.5, 0.3], [0.3, 0.6]])
    G, mu = A @ K @ A.T + S, A @ M
    found = grid_posterior(M, K, A, np.zeros(2), S, [np.nan, 0.1], [np.nan, np.inf], [0.8, np.nan])
    slope = G[0, 1] / G[0, 0]
    centre, sd = mu[1] + slope * (0.8 - mu[0]), np.sqrt(G[1, 1] - slope * G[0, 1])
    expected = norm.logpdf(0.8, mu[0], np.sqrt(G[0, 0])) + norm.logsf(0.1, centre, sd)
    assert found.log_evidence == pytest.approx(expected, abs=1e-9)
