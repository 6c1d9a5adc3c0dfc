"""EP and Laplace under sites against dense implementations of their own."""

import numpy as np
import pytest
from approximation_oracles import continued, rbf
from oracles import finite_difference
from scipy.optimize import minimize
from site_oracles import Counts, Logit, Student

from pymc_skewgp._posterior.gaussian_posterior import ep_posterior, laplace_posterior
from pymc_skewgp._posterior.prior import Prior

X = np.array([[-2.0], [-1.1], [0.0], [0.4], [1.7]])
NEW = np.array([[-0.5], [3.0]])
KERNEL = rbf(2.0, 0.8)
CASES = {
    "logit": (Logit(), np.array([1.0, 0.0, 1.0, 1.0, 0.0])),
    "counts": (Counts(), np.array([0.0, 2.0, 7.0, 4.0, 0.0])),
    "student": (Student(0.5), np.array([0.3, -0.9, 0.4, 0.8, 1.6])),
}


def slope(X):
    return 0.4 - 0.3 * X[:, 0]


def prior():
    return Prior(KERNEL, slope, np.zeros((0, 1)), np.zeros(0), np.zeros(0))


def moments(log_prob, mean, var):
    """Log mass, mean and variance of N(mean, var) times a factor, by a fine trapezoid rule."""
    z = np.linspace(-12.0, 12.0, 4001)
    f = mean + np.sqrt(var) * z
    p = np.exp(log_prob(f) - 0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2 * np.pi)
    total = p.sum()
    first = f @ p / total
    return np.log(total), first, (f - first) ** 2 @ p / total


def sequential_ep(likelihood, y, m, K, sweeps=60):
    """One site after the other; evidence by the definition of the sites' scales."""
    n, precision = y.size, np.linalg.inv(K)
    tau, nu = np.zeros(n), np.zeros(n)
    scales = np.zeros(n)
    for _ in range(sweeps):
        for i in range(n):
            S = np.linalg.inv(precision + np.diag(tau))
            mean = S @ (precision @ m + nu)
            v = 1.0 / (1.0 / S[i, i] - tau[i])
            c = v * (mean[i] / S[i, i] - nu[i])
            one = lambda f, i=i: likelihood.log_likelihood(y[i], f)  # noqa: E731
            log_mass, first, second = moments(one, c, v)
            tau[i], nu[i] = 1.0 / second - 1.0 / v, first / second - c / v
            own = 1.0 / v + tau[i]
            gaussian = -0.5 * np.log(v * own) + 0.5 * (c / v + nu[i]) ** 2 / own - 0.5 * c**2 / v
            scales[i] = log_mass - gaussian
    S = np.linalg.inv(precision + np.diag(tau))
    mean = S @ (precision @ m + nu)
    constant = 0.5 * (precision @ m + nu) @ mean - 0.5 * m @ precision @ m
    constant += 0.5 * np.linalg.slogdet(S)[1] - 0.5 * np.linalg.slogdet(K)[1]
    return mean, S, scales.sum() + constant


@pytest.mark.parametrize("name", CASES)
def test_ep_agrees_with_one_site_after_the_other(name):
    likelihood, y = CASES[name]
    everywhere = np.vstack([X, NEW])
    K, m = KERNEL(everywhere), slope(everywhere)
    mean, cov, log_evidence = sequential_ep(likelihood, y, m[:5], K[:5, :5])
    wanted = continued(_Gaussian(mean, cov, log_evidence), m, K, 5)
    found = ep_posterior(prior(), X, y, NEW, likelihood)
    # EP stops at a residual of 1e-6, and its quadrature is exact to 1e-8.
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-5)
    np.testing.assert_allclose(found.cov, wanted.cov, atol=1e-5)
    assert found.log_evidence == pytest.approx(log_evidence, abs=1e-6)


class _Gaussian:
    def __init__(self, mean, cov, log_evidence):
        self.mean, self.cov, self.log_evidence = mean, cov, log_evidence


@pytest.mark.parametrize("name", CASES)
def test_laplace_agrees_with_a_general_optimiser(name):
    likelihood, y = CASES[name]
    everywhere = np.vstack([X, NEW])
    K, m = KERNEL(everywhere), slope(everywhere)
    chol = np.linalg.cholesky(K[:5, :5])

    def negative(e):
        return 0.5 * e @ e - likelihood.log_likelihood(y, m[:5] + chol @ e).sum()

    def gradient(e):
        return finite_difference(negative, e, 1e-4)

    mode = minimize(negative, np.zeros(5), method="BFGS", options={"gtol": 1e-9}).x
    hessian = finite_difference(gradient, mode, 1e-3)
    cov = chol @ np.linalg.inv(hessian) @ chol.T
    log_evidence = -negative(mode) - 0.5 * np.linalg.slogdet(hessian)[1]
    wanted = continued(_Gaussian(m[:5] + chol @ mode, cov, log_evidence), m, K, 5)
    found = laplace_posterior(prior(), X, y, NEW, likelihood)
    # Differences of differences have some six digits.
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-4)
    np.testing.assert_allclose(found.cov, wanted.cov, atol=1e-4)
    assert found.log_evidence == pytest.approx(log_evidence, abs=1e-4)
