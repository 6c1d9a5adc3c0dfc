"""Exact GP regression: against PyMC, 50 digits, and with a Skew GP prior by its orthants."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import Gaussian

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 25))[:, None]
Y = np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(25)
XNEW = np.array([[0.5], [2.2], [9.0]])
# Two independent implementations of one Cholesky solve: 1e-8 is what double precision leaves.
EXACT = 1e-8


def kernel(smooth=True):
    cov = pm.gp.cov.ExpQuad if smooth else pm.gp.cov.Matern12
    return 1.3**2 * cov(1, ls=0.8)


def summary(posterior, new=XNEW):
    return posterior.predict(new, draws=0)["predictions_summary"].dataset


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize("smooth", [True, False], ids=["low rank", "dense"])
def test_is_that_of_pymc(smooth):
    sigma, mean = 0.3, pm.gp.mean.Constant(0.4)
    posterior = sg.SkewGP(cov_func=kernel(smooth), mean_func=mean).posterior(
        X, Y, likelihood=Gaussian(sigma)
    )
    with pm.Model() as model:
        gp = pm.gp.Marginal(cov_func=kernel(smooth), mean_func=mean)
        # PyMC adds a jitter of 1e-6 to the variances unless it is asked not to.
        gp.marginal_likelihood("y", X, Y, sigma=sigma, jitter=0.0)
        log_evidence = model.compile_logp(mode="FAST_COMPILE")({})
        given = {"X": X, "y": Y, "sigma": sigma}
        expected, variance = gp.predict(XNEW, diag=True, given=given, jitter=0.0)
        _, cov = gp.predict(XNEW, given=given, jitter=0.0)
    estimate = posterior.log_marginal_likelihood
    assert estimate.value == pytest.approx(log_evidence, abs=EXACT)
    assert estimate.std_error == 0.0
    found = summary(posterior)
    assert_allclose(found["f_mean"], expected, atol=EXACT)
    assert_allclose(found["f_sd"] ** 2, variance, atol=EXACT)
    assert_allclose(found["f_skewness"], 0.0, atol=EXACT)
    assert_allclose(found["f_mean_se"], 0.0, atol=EXACT)
    quantiles = norm.ppf(found["quantile"].values[:, None], expected, np.sqrt(variance))
    assert_allclose(found["f_quantile"], quantiles, atol=1e-7)  # by Newton's method, to 1e-10 sd
    noisy = np.sqrt(variance + sigma**2)
    quantiles = norm.ppf(found["quantile"].values[:, None], expected, noisy)
    assert_allclose(found["y_quantile"], quantiles, atol=1e-7)
    # 4000 independent draws: an entry is off by 1.4 variances / sqrt(4000), 5 of them allowed.
    drawn = posterior.predict(XNEW, random_seed=1)["predictions"].dataset
    f, sd = drawn["f"].values.reshape(-1, 3), np.sqrt(variance)
    assert np.all(np.abs(f.mean(axis=0) - expected) < 5 * sd / np.sqrt(4000))
    assert np.all(np.abs(np.cov(f.T) - cov) < 5 * 1.4 * np.outer(sd, sd) / np.sqrt(4000))
    noise = drawn["y"].values.reshape(-1, 3) - f
    assert np.all(np.abs(noise.std(axis=0) - sigma) < 5 * sigma / np.sqrt(8000))


@pytest.mark.parametrize(("eta", "sigma"), [(1.0, 1e-4), (100.0, 0.1)])
def test_little_noise(eta, sigma):
    """A smooth kernel of rank 15 or so on 50 rows: dense Cholesky in 50 digits.

    Data and new points are the same function here. Relative errors of double precision grow like
    the condition number, (eta / sigma)^2 n, times eps: 1e-16 * 1e6 * 50 = 5e-9 at sigma = 0.1
    (1e-6 at sigma = 1e-4, where the matrix itself is known no better).
    """
    import mpmath

    x = np.linspace(0, 6, 50)[:, None]
    y = eta * np.sin(x[:, 0])
    posterior = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0)).posterior(
        x, y, likelihood=Gaussian(sigma)
    )
    found = summary(posterior, x[[3, 30]])
    with mpmath.workdps(50):
        K = mpmath.matrix(
            [[eta**2 * mpmath.exp(-(mpmath.mpf(a - b) ** 2) / 2) for b in x[:, 0]] for a in x[:, 0]]
        )
        G = K + mpmath.mpf(sigma) ** 2 * mpmath.eye(50)
        for i, row in enumerate((3, 30)):
            solved = mpmath.cholesky_solve(G, K[:, row])
            exact = mpmath.sqrt(K[row, row] - (K[row, :] * solved)[0])
            tolerance = 1e-3 if sigma < 1e-3 else 1e-5
            assert float(found["f_sd"][i]) == pytest.approx(float(exact), rel=tolerance)
    at = posterior.marginals().moments.sd[[3, 30]]
    assert_allclose(found["f_sd"], at, rtol=1e-3 if sigma < 1e-3 else 1e-5)


def test_forecasts_of_labels_from_exact_marginals_have_no_error():
    at = sg.SkewGP(cov_func=kernel()).posterior(X, Y, likelihood=Gaussian(0.3)).marginals(XNEW)
    found = at.probability()
    expected = norm.cdf(at.moments.mean / np.sqrt(1.0 + at.moments.sd**2))
    assert_allclose(found.value, expected, atol=1e-12)
    assert_allclose(found.std_error, 0.0)


def test_skew_gp_evidence_is_two_probabilities():
    """p(y) P(signs | y) / P(signs): a density by PyMC, and orthants of two dimensions by SciPy."""
    from scipy.stats import multivariate_normal

    r, sigma = np.array([[1.0], [4.0]]), 0.3
    gp = sg.SkewGP(cov_func=kernel(), pseudo_points=r, phase=[1, -1])
    posterior = gp.posterior(X, Y, likelihood=Gaussian(sigma))
    K = kernel()(np.vstack([r, X])).eval(mode="FAST_COMPILE")
    G = K[2:, 2:] + sigma**2 * np.eye(25)
    mean = K[:2, 2:] @ np.linalg.solve(G, Y)
    cov = K[:2, :2] - K[:2, 2:] @ np.linalg.solve(G, K[2:, :2])
    side = np.array([1.0, -1.0])
    given = multivariate_normal(side * mean, side[:, None] * cov * side)
    # P(side * f > 0) by symmetry: of the mirrored vector below 0.
    signs_given = multivariate_normal(-given.mean, given.cov).cdf(np.zeros(2))
    signs = multivariate_normal(np.zeros(2), side[:, None] * K[:2, :2] * side).cdf(np.zeros(2))
    expected = multivariate_normal(np.zeros(25), G).logpdf(Y) + np.log(signs_given / signs)
    # SciPy's bivariate probabilities are good to 1e-5 or so of themselves.
    assert posterior.log_marginal_likelihood.value == pytest.approx(expected, abs=1e-4)
    sun = posterior.sun
    assert sun.n_latent == 2
    assert_allclose(sun.mean(), posterior.marginals().moments.mean, atol=0.02)
