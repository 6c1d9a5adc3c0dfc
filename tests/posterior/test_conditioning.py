"""Draws of a Gaussian vector given rows that share noise in blocks, in the low-rank form.

Evidences and moments, in either form, are compared with quadrature and with blocks of rows in
`tests/observations` and `test_rows_in_blocks`.
"""

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.covariance import FactoredCovariance, LowRankCovariance
from pymc_skewgp._observations.observations import intervals
from pymc_skewgp._posterior import conditioning
from pymc_skewgp._posterior.conditioning import Conditioning

K = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, 0.6], [0.2, 0.6, 0.8]])
M = np.array([0.3, -0.2, 0.1])


class Fixed:
    """A generator whose normal numbers are given."""

    def __init__(self, numbers):
        self.numbers = numbers

    def standard_normal(self, shape):
        assert self.numbers.shape == shape
        return self.numbers


def test_rows_that_share_noise_in_blocks(monkeypatch):
    """Draws of z given u: mean and covariance by Gaussian conditioning, to round-off."""
    monkeypatch.setattr(conditioning, "LOW_RANK_SHARE", 100.0)
    monkeypatch.setattr(conditioning, "LARGEST_BLOCK", 1.0)
    A = np.array([[0.0, 0.0, 1.0], [1.0, -1.0, 0.0], [1.0, 0.0, -1.0], [0.0, 2.0, 0.0]])
    S = np.array([[0, 0, 0, 0], [0, 2, 0, 1], [0, 0, 0.5, 0], [0, 1, 0, 2.0]])
    rows = intervals(np.zeros(4), np.full(4, np.inf), sparse.csr_array(S), A=A)
    given = Conditioning(M, FactoredCovariance.of_kernel(K), rows)
    assert isinstance(given.cov, LowRankCovariance)
    np.testing.assert_allclose(given.cov.dense(), A @ K @ A.T + S, atol=1e-13)
    u = np.array([[0.4, -0.3, 1.2, 0.7]])
    gain = np.linalg.solve(A @ K @ A.T + S, A @ K)
    mean, cov = M + u[0] @ gain, K - (A @ K).T @ gain
    r = given.factor.shape[1]
    np.testing.assert_allclose(given.draw(u, Fixed(np.zeros((r, 1))))[0], mean, atol=1e-12)
    off = given.draw(u, Fixed(np.eye(r)), np.zeros(r, dtype=int)) - mean
    np.testing.assert_allclose(off.T @ off, cov, atol=1e-12)
