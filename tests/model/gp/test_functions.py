"""`pm.gp` objects as functions of arrays: equal to their own evaluation, at the point asked for."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pymc_skewgp import SkewGP
from pymc_skewgp._model.gp.exact_posterior import CovarianceAtPoint
from pymc_skewgp._model.gp.functions import ArrayCovariance, ArrayMean

cov = pm.gp.cov
X = np.random.default_rng(0).normal(size=(7, 2))
XS = np.random.default_rng(1).normal(size=(4, 2))


def value(graph):
    """The graph as it stands, without rewrites or compilation."""
    return graph.eval(mode=Mode(linker="py", optimizer=None))


class Laplacian(cov.Covariance):
    """As a user writes it for one column, broadcasting a column along a row."""

    def diag(self, X):
        return pt.ones(X.shape[0])

    def full(self, X, Xs=None):
        X, Xs = self._slice(X, Xs)
        return pt.exp(-pt.abs(X - (X if Xs is None else Xs).T))


def test_a_kernel_may_broadcast_along_the_only_column():
    kernel = Laplacian(1)
    x, new = X[:, :1], XS[:, :1]
    function = ArrayCovariance(kernel)
    np.testing.assert_allclose(function(x), np.exp(-np.abs(x - x.T)), rtol=1e-14)
    np.testing.assert_allclose(function(x, new), np.exp(-np.abs(x - new.T)), rtol=1e-14)
    y = (x[:, 0] > 0).astype(int)
    found = SkewGP(cov_func=kernel).posterior(x, y).log_marginal_likelihood
    expected = SkewGP(cov_func=cov.Exponential(1, ls=0.5)).posterior(x, y).log_marginal_likelihood
    # PyMC's Exponential is exp(-d / (2 ls)), with distances too long by 1e-6 at zero.
    assert found.value == pytest.approx(expected.value, abs=1e-5)


@pytest.mark.parametrize(("coefficients", "n"), [(2.0, 1), ([2.0], 5)])
def test_linear_mean_of_one_column(coefficients, n):
    x = np.arange(float(n))[:, None]
    value = ArrayMean(pm.gp.mean.Linear(coefficients, 1.0))(x)
    np.testing.assert_allclose(value, 2.0 * x[:, 0] + 1.0, rtol=1e-12)


PRIORS = {
    "Gamma": lambda name: pm.Gamma(name, 2, 1),
    # Symbolic: not one random Op but a graph of them, and as random as any.
    "Truncated": lambda name: pm.Truncated(name, pm.Normal.dist(1, 1), lower=0.1),
    "CustomDist": lambda name: pm.CustomDist(name, 1.0, dist=lambda s, size: pm.HalfNormal.dist(s)),
}


@pytest.mark.parametrize("name", PRIORS)
class TestRandomHyperparameters:
    def test_value_is_used(self, name):
        with pm.Model():
            ls = PRIORS[name]("ls")
        found = ArrayCovariance(cov.Matern32(2, ls=ls), {"ls": 0.7})
        expected = value(cov.Matern32(2, ls=0.7)(X))
        np.testing.assert_allclose(found(X), expected, rtol=1e-12)
        np.testing.assert_allclose(found(X, XS), value(cov.Matern32(2, ls=0.7)(X, XS)), rtol=1e-12)

    def test_missing_value_is_named(self, name):
        with pm.Model():
            ls = PRIORS[name]("ls")
        for point in (None, {}, {"other": 1.0}, {"ls_log__": 0.0}):
            with pytest.raises(ValueError, match=r"depends on ls: give their values in point"):
                ArrayCovariance(cov.Matern32(2, ls=ls), point)
            with pytest.raises(ValueError, match=r"depends on ls: give their values in point"):
                ArrayMean(pm.gp.mean.Constant(ls), point)


def test_mean_takes_the_value():
    with pm.Model():
        c, b = pm.Normal("c"), pm.Normal("b", shape=2)
    mean = pm.gp.mean.Linear(b, c)
    value = ArrayMean(mean, {"c": 1.0, "b": [2.0, 3.0]})(X)
    np.testing.assert_allclose(value, X @ [2.0, 3.0] + 1.0, rtol=1e-12)
    with pytest.raises(ValueError, match="depends on b: "):
        ArrayMean(mean, {"c": 1.0})
    with pytest.raises(ValueError, match="depends on b, c: "):
        ArrayMean(mean)


def test_what_lies_above_a_given_variable_does_not_matter():
    with pm.Model():
        a = pm.Exponential("a", 1.0)
        ls = pm.Gamma("ls", a, 1.0)
        twice = pm.Deterministic("twice", 2.0 * ls)
    expected = value(cov.ExpQuad(2, ls=0.7)(X))
    for kernel, point in (
        (cov.ExpQuad(2, ls=ls), {"ls": 0.7}),
        (cov.ExpQuad(2, ls=ls), {"ls": 0.7, "a": 2.0, "twice": 99.0}),
        (cov.ExpQuad(2, ls=twice), {"twice": 0.7}),
        (cov.ExpQuad(2, ls=twice), {"ls": 0.35}),
    ):
        np.testing.assert_allclose(ArrayCovariance(kernel, point)(X), expected, rtol=1e-12)
    # Only the nearest missing variable is asked for.
    with pytest.raises(ValueError, match="depends on ls: "):
        ArrayCovariance(cov.ExpQuad(2, ls=ls), {"a": 2.0})
    with pytest.raises(ValueError, match="depends on ls: "):
        ArrayCovariance(cov.ExpQuad(2, ls=twice), {})


def test_named_model_and_data():
    with pm.Model(name="m"):
        ls = pm.Gamma("ls", 2, 1)
        scale = pm.Data("scale", 3.0)
    function = ArrayCovariance(scale * cov.ExpQuad(2, ls=ls), {"m::ls": 0.7})
    np.testing.assert_allclose(function(X), 3.0 * value(cov.ExpQuad(2, ls=0.7)(X)), rtol=1e-12)


@pytest.mark.parametrize("value", [[1.0, 2.0, 3.0], 1.0, "wide", [1.0, [2.0]]], ids=str)
def test_value_of_another_shape_or_that_is_no_number_is_refused(value):
    with pm.Model():
        ls = pm.Gamma("ls", 2, 1, shape=2)
    with pytest.raises(ValueError, match=r"point\['ls'\] must"):
        ArrayCovariance(cov.ExpQuad(2, ls=ls), {"ls": value})


def test_unnamed_variable_is_reported():
    with pytest.raises(ValueError, match="depends on <unnamed>"):
        ArrayCovariance(cov.ExpQuad(2, ls=pm.Gamma.dist(2, 1)), {"ls": 1.0})


class TestCovarianceAtPoint:
    """A kernel again, for what PyMC asks of kernels."""

    point = {"ls": np.array([0.7, 1.9]), "eta": np.array(1.3)}  # noqa: RUF012

    @pytest.fixture
    def variables(self):
        with pm.Model():
            return {"ls": pm.HalfNormal("ls", shape=2), "eta": pm.HalfNormal("eta")}

    @pytest.mark.parametrize(
        ("kernel", "n_dims"),
        [
            (lambda ls, eta: eta**2 * cov.Matern52(2, ls=ls) + cov.WhiteNoise(eta), 2),
            # The columns are chosen once, not of those already chosen.
            (lambda ls, eta: cov.ExpQuad(2, ls=eta, active_dims=[1]), 1),
            (lambda ls, eta: cov.Constant(eta), None),
        ],
    )
    def test_covariances(self, variables, kernel, n_dims):
        found, wanted = CovarianceAtPoint(kernel(**variables), self.point), kernel(**self.point)
        for arguments in ({}, {"Xs": XS}, {"diag": True}):
            matrices = (value(k(X, **arguments)) for k in (found, wanted))
            np.testing.assert_allclose(*matrices, rtol=1e-13)  # the order of operations
        assert n_dims is None or (found.input_dim, found.n_dims) == (2, n_dims)

    def test_power_spectral_density(self, variables):
        """2 pi s^2 l1 l2 exp(-(l1^2 w1^2 + l2^2 w2^2) / 2) of the squared exponential."""
        kernel = variables["eta"] ** 2 * cov.ExpQuad(2, ls=variables["ls"])
        found = value(CovarianceAtPoint(kernel, self.point).power_spectral_density(XS))
        ls, eta = self.point["ls"], self.point["eta"]
        square = (XS**2 * ls**2).sum(axis=1)
        wanted = 2 * np.pi * eta**2 * ls.prod() * np.exp(-0.5 * square)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
