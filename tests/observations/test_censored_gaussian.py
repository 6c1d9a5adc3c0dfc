"""Tobit and interval censoring: against quadrature over f, exact regression, and what users get."""

import numpy as np
import pytest
from likelihood_oracles import assert_posterior, function_grid, kernel
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import CensoredData, norm

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import CensoredGaussian, Gaussian

SIGMA = 0.6
X = np.array([[0.0], [0.7], [1.5], [2.3]])
# Below 0, at .8, above 1.5, and one that is only known to be between .2 and 1.1.
BOUNDS = np.array([[-np.inf, 0.0], [0.8, 0.8], [1.5, np.inf], [0.2, 1.1]])
# Every row an interval, one of which says nothing.
NO_POINTS = np.array([[-np.inf, 0.3], [0.5, 1.0], [-np.inf, np.inf], [-0.2, np.inf]])


def log_p(f, bounds=BOUNDS, sigma=SIGMA):
    """Log density, or log probability, of each value given f, shape (..., n)."""
    low, high = bounds.T
    seen = low == high
    with np.errstate(invalid="ignore"):
        mass = norm.cdf((high - f) / sigma) - norm.cdf((low - f) / sigma)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(seen, norm.logpdf(np.where(seen, low, 0.0), f, sigma), np.log(mass))


@pytest.mark.parametrize("bounds", [BOUNDS[:2], BOUNDS[1:], NO_POINTS[:3]])
def test_intervals_by_quadrature(bounds):
    n = len(bounds)
    grid = function_grid(
        np.zeros(n), kernel(X[:n]), lambda f: np.maximum(log_p(f, bounds), -700.0).sum(axis=1)
    )
    likelihood = CensoredGaussian(SIGMA)
    posterior = sg.SkewGPPosterior(
        X[:n], bounds, cov_func=kernel, likelihood=likelihood, n_draws=2**14
    )
    assert_posterior(posterior, grid)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.5), (None, 1.0), (-0.5, None), (None, None)])
def test_mean_and_deviation_of_a_new_value(low, high):
    """One value seen: f and y at the new point are normal, and moments of y integrals over it."""
    likelihood = CensoredGaussian(SIGMA, low, high)
    posterior = sg.SkewGPPosterior([[0.0]], [0.7], cov_func=kernel, likelihood=likelihood)
    found = posterior.predict([[0.5]], draws=0)["predictions_summary"].dataset
    k = kernel(np.zeros((1, 1)), np.full((1, 1), 0.5))[0, 0]
    mean, sd = k * 0.7 / (2.0 + SIGMA**2), np.sqrt(2.0 - k**2 / (2.0 + SIGMA**2) + SIGMA**2)

    def moment(power):
        def integrand(z):
            return np.clip(mean + sd * z, low, high) ** power * norm.pdf(z)

        kinks = [(x - mean) / sd for x in (low, high) if x is not None]
        return quad(integrand, -10, 10, points=kinks or None, epsabs=1e-12, limit=200)[0]

    assert found["y_mean"].item() == pytest.approx(moment(1), abs=1e-9)
    assert found["y_sd"].item() == pytest.approx(np.sqrt(moment(2) - moment(1) ** 2), abs=1e-9)
    assert found["y_mean_se"].item() == 0.0
    quantiles = np.clip(norm.ppf(found["quantile"].values, mean, sd), low, high)
    assert_allclose(found["y_quantile"].values[:, 0], quantiles, atol=1e-8)  # to 1e-10 sd
    assert ("p_lower" in found) == (low is not None)
    assert ("p_upper" in found) == (high is not None)


def test_narrow_intervals_are_points():
    """Log mass of a width w is log density plus log w, up to w^2."""
    width = 1e-6
    y = np.array([0.2, -0.4, 1.0, 0.3])
    bounds = np.column_stack([y - width / 2, y + width / 2])
    exact = sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=Gaussian(SIGMA))
    found = sg.SkewGPPosterior(X, bounds, cov_func=kernel, likelihood=CensoredGaussian(SIGMA))
    expected = exact.log_marginal_likelihood.value + 4 * np.log(width)
    assert found.log_marginal_likelihood.value == pytest.approx(expected, abs=1e-6)
    assert_allclose(found.marginals().moments.mean, exact.marginals().moments.mean, atol=1e-5)


def test_censored_data_of_scipy():
    """In its own order: seen, left, right, interval."""
    data = CensoredData([0.8], left=[0.0], right=[1.5], interval=[[0.2, 1.1]])
    order = [1, 0, 2, 3]
    found = sg.SkewGPPosterior(X[order], data, cov_func=kernel, likelihood=CensoredGaussian(SIGMA))
    expected = sg.SkewGPPosterior(
        X[order], BOUNDS[order], cov_func=kernel, likelihood=CensoredGaussian(SIGMA)
    )
    assert found.log_marginal_likelihood.value == expected.log_marginal_likelihood.value


def test_tree_of_bounds():
    posterior = sg.SkewGPPosterior(X, BOUNDS, cov_func=kernel, likelihood=CensoredGaussian(SIGMA))
    dt = posterior.sample(50, 2, random_seed=2)
    assert_allclose(dt["log_likelihood"]["y"], log_p(dt["posterior"]["f"].values), atol=1e-9)
    observed = dt["observed_data"].dataset
    assert_allclose(observed["y"], [np.nan, 0.8, np.nan, np.nan])
    assert_allclose(observed["y_lower"], BOUNDS[:, 0])
    assert observed["y_upper"].dims == ("obs_id",)
