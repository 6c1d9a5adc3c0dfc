"""Gradients of EP's evidence under sites against finite differences of it."""

import numpy as np
import pytest
from oracles import finite_difference
from site_oracles import Counts, Student

from pymc_skewgp._gaussian.covariance import LowRankCovariance, SemidefiniteMatrix
from pymc_skewgp._gaussian.ep import cavities, ep_cov_gradient, fit_factors
from pymc_skewgp._gaussian.tilted import SiteFactors

X = np.linspace(-1.5, 1.5, 6)
COV = 1.5 * np.exp(-0.5 * ((X[:, None] - X) / 0.7) ** 2)
CASES = {
    "counts": (Counts(), np.array([0.0, 1.0, 4.0, 9.0, 3.0, 0.0])),
    "student": (Student(0.5), np.array([0.3, -0.2, 0.4, 1.9, 0.7, 0.1])),
}
# EP at a residual of 1e-10 and quadrature to 1e-8, whose errors differences of 1e-3 divide; their
# own error is of the same size.
TOL = {"rtol": 1e-4, "atol": 2e-5}


def fitted(likelihood, y, offset, cov):
    factors = SiteFactors(
        lambda eta: likelihood.log_likelihood(y, eta), lambda eta: likelihood.slopes(y, eta), offset
    )
    return fit_factors(cov, factors, tol=1e-10), factors


@pytest.mark.parametrize("name", CASES)
def test_gradients_in_mean_and_covariance(name):
    likelihood, y = CASES[name]
    offset = np.linspace(0.2, -0.3, 6)
    dense = SemidefiniteMatrix(COV)
    ep, _ = fitted(likelihood, y, offset, dense)
    in_mean = finite_difference(lambda a: fitted(likelihood, y, a, dense)[0].log_prob, offset, 1e-3)
    np.testing.assert_allclose(ep.weights, in_mean, **TOL)
    rng = np.random.default_rng(0)
    gradient = ep_cov_gradient(dense, ep)
    for _ in range(3):
        root = rng.normal(size=(6, 2))
        change = root @ root.T

        def along(t, change=change):
            cov = SemidefiniteMatrix(COV + t[0] * change)
            return fitted(likelihood, y, offset, cov)[0].log_prob

        slope = finite_difference(along, np.zeros(1), 1e-3)
        assert (gradient * change).sum() == pytest.approx(float(slope[0]), rel=1e-4)
    factor = np.linalg.cholesky(COV + 1e-12 * np.eye(6))
    low_rank = LowRankCovariance(np.zeros(6), factor)
    np.testing.assert_allclose(ep_cov_gradient(low_rank, ep), gradient, atol=1e-6)


def test_gradient_in_a_parameter_of_the_likelihood():
    _, y = CASES["student"]
    scale, df = 0.5, 4.0
    dense = SemidefiniteMatrix(COV)
    ep, factors = fitted(Student(scale), y, np.zeros(6), dense)

    def in_scale(eta):
        square = ((y - eta) / scale) ** 2
        return (-1.0 + (df + 1.0) * square / (df + square)) / scale

    eta, weights = factors.nodes(*cavities(dense, ep))
    found = (weights * in_scale(eta)).sum()
    slope = finite_difference(
        lambda s: fitted(Student(s[0]), y, np.zeros(6), dense)[0].log_prob, np.array([scale]), 1e-3
    )
    assert found == pytest.approx(float(slope[0]), rel=1e-4)
