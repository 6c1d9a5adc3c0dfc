"""SkewGPRegressor: scikit-learn's regressor as a peer, censored values, its errors."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import CensoredData
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import pymc_skewgp as sg
from pymc_skewgp import SkewGPRegressor

RNG = np.random.default_rng(2)
X = np.sort(RNG.uniform(0.0, 6.0, (40, 1)), axis=0)
F = 3.0 * np.sin(X[:, 0]) + 10.0
Y = F + 0.5 * RNG.normal(size=40)
NEW = np.linspace(-0.5, 6.5, 15)[:, None]


def fast(**options):
    return SkewGPRegressor(**{"n_restarts": 0, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return fast().fit(X, Y)


class TestValues:
    def peer(self, point):
        """scikit-learn's regressor at the same hyperparameters, the level a constant kernel."""
        kernel = ConstantKernel(point["eta"] ** 2) * RBF(point["ls"])
        kernel += ConstantKernel(Y.var()) + WhiteKernel(point["sigma"] ** 2)
        return GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)

    def test_forecasts_are_those_of_scikit_learn(self, fitted):
        point = fitted.hyperparameters_.point
        peer = self.peer(point).fit(X, Y - Y.mean())
        mean, sd = peer.predict(NEW, return_std=True)
        found, found_sd = fitted.predict(NEW, return_std=True)
        # Two Cholesky factorisations of one matrix, numbers of about 10.
        np.testing.assert_allclose(found, mean + Y.mean(), atol=1e-8)
        np.testing.assert_allclose(found_sd, sd, atol=1e-8)
        evidence = fitted.log_marginal_likelihood_
        assert evidence.std_error == 0.0
        assert evidence.value == pytest.approx(peer.log_marginal_likelihood_value_, abs=1e-8)

    def test_the_search_finds_what_scikit_learn_finds(self, fitted):
        """Weak priors move the maximum by less than its standard error."""
        kernel = ConstantKernel(9.0) * RBF(1.0) + WhiteKernel(0.25)
        kernel += ConstantKernel(Y.var(), "fixed")
        peer = GaussianProcessRegressor(kernel, alpha=0.0).fit(X, Y - Y.mean())
        fit = fitted.hyperparameters_
        assert fit.converged
        best = np.exp(0.5 * peer.kernel_.theta)[[0, 2]], np.exp(peer.kernel_.theta)[1]
        assert abs(fit.point["eta"] - best[0][0]) < fit.std_error["eta"]
        assert abs(fit.point["sigma"] - best[0][1]) < fit.std_error["sigma"]
        assert abs(fit.point["ls"] - best[1]) < fit.std_error["ls"]
        assert fitted.log_marginal_likelihood_.value > peer.log_marginal_likelihood_value_ - 1.0

    def test_units_do_not_matter(self, fitted):
        other = fast().fit(100.0 * X, 1e4 * Y)
        # The search ends at a gain of 2e-4 nats.
        np.testing.assert_allclose(other.predict(100.0 * NEW), 1e4 * fitted.predict(NEW), rtol=1e-2)


LIMIT = 9.0


@pytest.fixture(scope="module")
def tobit():
    return fast(censoring=(LIMIT, None)).fit(X, np.maximum(Y, LIMIT))


class TestCensored:
    def test_bounds_and_censored_data(self, tobit):
        censored = LIMIT >= Y
        bounds = np.column_stack([np.where(censored, -np.inf, Y), np.maximum(Y, LIMIT)])
        order = np.argsort(censored, kind="stable")  # values that were seen first
        data = CensoredData(Y[~censored], left=np.full(censored.sum(), LIMIT))
        first, second = fast().fit(X[order], bounds[order]), fast().fit(X[order], data)
        np.testing.assert_array_equal(first.predict(NEW), second.predict(NEW))
        # The same likelihood, from other starts; forecasts are not censored.
        evidences = [m.log_marginal_likelihood_.value for m in (first, tobit)]
        assert evidences[0] == pytest.approx(evidences[1], abs=0.1)
        assert first.predict(NEW).min() < LIMIT


class TestVaryingNoise:
    x = np.linspace(-3.0, 3.0, 60)[:, None]
    sd = 10.0 * np.exp(-1.2 + 0.4 * x[:, 0])
    y = 100.0 + 10.0 * np.sin(x[:, 0]) + sd * np.random.default_rng(0).normal(size=60)

    def test_forecasts_are_those_of_the_posterior_by_hand(self):
        model = SkewGPRegressor(noise="varying", n_restarts=0, random_state=0).fit(self.x, self.y)
        mean, sd = model.predict([[-2.5], [2.5]], return_std=True)
        # The truth, of which 60 rows know the mean to a fifth of the noise, and noise to a third.
        np.testing.assert_allclose(mean, 100.0 + 10.0 * np.sin([-2.5, 2.5]), atol=2.5)
        np.testing.assert_allclose(sd, 10.0 * np.exp([-2.2, -0.2]), rtol=0.35)
        point = {name: float(value) for name, value in model.hyperparameters_.point.items()}
        kernel = point["eta"] ** 2 * pm.gp.cov.ExpQuad(1, ls=point["ls"])
        ratio = (point["log_sigma_sd"] / point["eta"]) ** 2
        hand = sg.SkewGP(cov_func=kernel).posterior(
            self.x,
            self.y - self.y.mean(),
            likelihood=sg.likelihoods.HeteroscedasticGaussian(point["log_sigma"]),
            coregion=np.diag([1.0, ratio]),
            random_seed=7,
        )
        found = hand.predict([[-2.5], [2.5]], draws=0)["predictions_summary"]
        # Two sets of draws: errors of a hundredth of the deviations.
        np.testing.assert_allclose(mean - self.y.mean(), found["y_mean"], atol=0.1)
        np.testing.assert_allclose(sd, found["y_sd"], rtol=0.05)
        one, other = model.log_marginal_likelihood_, hand.log_marginal_likelihood
        error = np.hypot(one.std_error, other.std_error)
        assert abs(one.value - other.value) < 4 * error + 1e-6
