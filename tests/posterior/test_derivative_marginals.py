"""Marginals of derivatives at new points: the closed form of regression, and differences of f."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import Constraint, Gaussian

ETA, LS = 1.3, 0.8
X, Y = np.array([[0.0], [0.7], [1.5]]), np.array([0.2, 0.9, -0.3])
NEW = np.array([[0.0], [0.4], [2.0]])
GP = sg.SkewGP(cov_func=ETA**2 * pm.gp.cov.ExpQuad(1, ls=LS), mean_func=pm.gp.mean.Linear(0.5, 0.1))


def k(a, b):
    return ETA**2 * np.exp(-0.5 * ((a - b.T) / LS) ** 2)


def test_regression_in_closed_form():
    """cov(f', f) = -(x - t) / ls^2 k, var(f') = eta^2 / ls^2; to round-off."""
    at = GP.posterior(X, Y, likelihood=Gaussian(0.3)).marginals(NEW, derivative=(0, 1))
    cross = -(NEW - X.T) / LS**2 * k(NEW, X)
    gain = np.linalg.solve(k(X, X) + 0.09 * np.eye(3), cross.T).T
    assert_allclose(at.moments.mean, 0.5 + gain @ (Y - 0.1 - 0.5 * X[:, 0]), atol=1e-10)
    variance = ETA**2 / LS**2 - np.einsum("ij,ij->i", gain, cross)
    assert_allclose(at.moments.sd**2, variance, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2])
def test_means_are_differences_of_means(order):
    """Given draws of u the mean is a smooth function: central differences, off by h^2 = 1e-6.

    The second difference divides round-off of 1e-13 by h^2 as well: 1e-7.
    """
    gp = sg.SkewGP(cov_func=GP.cov_func, mean_func=GP.mean_func, pseudo_points=[[1.0]])
    posterior = gp.posterior(X, [0, 1, 0])
    h = 1e-3
    below, at, above = (posterior.marginals(NEW + s * h).means for s in (-1, 0, 1))
    expected = (above - below) / (2 * h) if order == 1 else (above - 2 * at + below) / h**2
    found = posterior.marginals(NEW, derivative=(0, order)).means
    assert_allclose(found, expected, atol=5e-5)


def test_a_constraint_holds_for_the_marginal():
    data = [(X, Y, Gaussian(0.5)), (NEW, None, Constraint.increasing())]
    posterior = GP.posterior(data, n_draws=256)
    assert posterior.marginals(NEW, derivative=(0, 1)).cdf([0.0] * 3).value.max() < 0.01


@pytest.mark.parametrize(
    ("new", "derivative", "message"),
    [
        (None, (0, 1), "give Xnew"),
        (NEW, (1, 1), "feature 1, but X has 1"),
        (NEW, (0, 3), "order 1 or 2"),
        (NEW, 1, r"must be \(feature, order\)"),
    ],
)
def test_bad_input(new, derivative, message):
    posterior = GP.posterior(X, Y, likelihood=Gaussian(0.3))
    with pytest.raises((TypeError, ValueError), match=message):
        posterior.marginals(new, derivative=derivative)
