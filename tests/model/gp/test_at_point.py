"""`pm.gp` objects at a point, against the same objects built from the numbers."""

import numpy as np
import pymc as pm
import pytest

from pymc_skewgp._model.gp.exact_posterior import CovarianceAtPoint
from pymc_skewgp._model.ops.plain_mode import PLAIN

X = np.random.default_rng(0).normal(size=(5, 2))
NEW = np.random.default_rng(1).normal(size=(3, 2))
OMEGA = np.random.default_rng(2).normal(size=(4, 2))
POINT = {"ls": np.array([0.7, 1.9]), "eta": np.array(1.3)}


def kernel(ls, eta):
    return eta**2 * pm.gp.cov.Matern52(2, ls=ls) + pm.gp.cov.WhiteNoise(0.1)


@pytest.fixture
def random_kernel():
    with pm.Model():
        ls = pm.InverseGamma("ls", 3.0, 2.0, shape=2)
        return kernel(ls, pm.HalfNormal("eta"))


def value(graph):
    return graph.eval(mode=PLAIN)  # nothing to compile


def same(found, wanted):
    """Both graphs compute the same, but for the order of operations."""
    np.testing.assert_allclose(value(found), value(wanted), rtol=1e-13)


def test_covariances(random_kernel):
    found, wanted = CovarianceAtPoint(random_kernel, POINT), kernel(**POINT)
    same(found(X), wanted(X))
    same(found(X, NEW), wanted(X, NEW))
    same(found(X, diag=True), wanted(X, diag=True))
    assert (found.input_dim, found.n_dims) == (2, 2)


def test_power_spectral_density():
    with pm.Model():
        ls = pm.InverseGamma("ls", 3.0, 2.0, shape=2)
        cov = pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(2, ls=ls)
    found = CovarianceAtPoint(cov, POINT).power_spectral_density(OMEGA)
    # of the squared exponential, 2 pi s^2 l1 l2 exp(-(l1^2 w1^2 + l2^2 w2^2) / 2)
    l1, l2 = POINT["ls"]
    square = (OMEGA**2 * POINT["ls"] ** 2).sum(axis=1)
    wanted = 2 * np.pi * POINT["eta"] ** 2 * l1 * l2 * np.exp(-0.5 * square)
    np.testing.assert_allclose(value(found), wanted, rtol=1e-12)


def test_columns_that_are_not_used():
    """The columns are chosen once, not of those already chosen."""
    with pm.Model():
        cov = pm.gp.cov.ExpQuad(2, ls=pm.HalfNormal("ls"), active_dims=[1])
    found = CovarianceAtPoint(cov, {"ls": 0.5})
    wanted = np.exp(-0.5 * ((X[:, 1:] - NEW[:, 1]) / 0.5) ** 2)
    np.testing.assert_allclose(value(found(X, NEW)), wanted, rtol=1e-12)
    assert found.n_dims == 1


@pytest.mark.parametrize("cov", [pm.gp.cov.Constant, pm.gp.cov.WhiteNoise])
def test_kernels_without_columns(cov):
    with pm.Model():
        found = CovarianceAtPoint(cov(pm.HalfNormal("c")), {"c": 2.0})
    same(found(X), cov(2.0)(X))
    same(found(X, NEW), cov(2.0)(X, NEW))
    same(found(X, diag=True), cov(2.0)(X, diag=True))
