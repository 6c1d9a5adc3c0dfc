"""The prior covariance of several functions from the factor of one."""

import numpy as np
import pytest

from pymc_skewgp._observations.likelihood import Values
from pymc_skewgp._posterior.prior import Prior, covariance_of, factored_covariance_of

B = np.array([[1.0, 0.4, 0.0], [0.4, 2.0, 0.3], [0.0, 0.3, 0.5]])


def kernel(X, Xs=None, diag=False):
    if diag:
        return np.full(len(X), 1.5)
    Xs = X if Xs is None else Xs
    return 1.5 * np.exp(-0.5 * (X - Xs.T) ** 2)


def prior_of(coregion):
    nothing = np.zeros(0)
    return Prior(kernel, lambda X: np.zeros(len(X)), np.zeros((0, 1)), nothing, nothing, coregion)


@pytest.mark.parametrize("coregion", [None, B])
@pytest.mark.parametrize("sizes", [(1,), (3,), (3, 1), (2, 3)])
def test_factor_and_matrix(coregion, sizes):
    rng = np.random.default_rng(0)
    parts = [Values(rng.uniform(-2, 2, size=(4, 1)), k) for k in sizes]
    prior = prior_of(coregion)
    found = factored_covariance_of(prior, "X", parts)
    want = covariance_of(prior, "X", parts)
    np.testing.assert_allclose(found.dense(), want, atol=1e-15)
    np.testing.assert_allclose(found.factor @ found.factor.T, want, atol=1e-12)


def test_a_smooth_kernel_stays_of_low_rank():
    X = np.linspace(0, 1, 100)[:, None]
    one = factored_covariance_of(prior_of(None), "X", [Values(X)])
    three = factored_covariance_of(prior_of(None), "X", [Values(X, 3)])
    assert three.rank == 3 * one.rank < 60
