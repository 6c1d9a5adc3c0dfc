"""Density and orthant against quadrature, scipy and finite differences."""

import numpy as np
import pytest
from oracles import equicorrelated_cov, finite_difference
from scipy import stats

from pymc_skewgp._gaussian.log_prob_gradient import density_and_orthant

NAMES = ("offset", "scale", "cross_cov", "limits", "latent_cov")


def problem(p, s, seed=0):
    """Inputs from a random joint covariance, far enough from singular."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(p + s, 2 * (p + s)))
    joint = factor @ factor.T / (p + s) + 0.2 * np.eye(p + s)
    return (
        rng.normal(size=p),
        joint[s:, s:].copy(),
        joint[s:, :s].copy(),
        rng.normal(size=s),
        joint[:s, :s].copy(),
    )


def test_gradient_in_many_latent_dimensions_points_along_the_value():
    """The Monte Carlo gradient is Fisher's, not the derivative of the Monte Carlo value."""
    inputs = problem(3, 5, seed=2)
    few = density_and_orthant(*inputs)
    many = density_and_orthant(*inputs, n_draws=2**14)
    for name, at in zip(NAMES[:4], inputs[:4], strict=True):
        k = NAMES.index(name)

        def value(x, k=k):
            found = density_and_orthant(*inputs[:k], x, *inputs[k + 1 :], n_draws=2**12)
            return found.value

        exact = finite_difference(value, at, h=0.02)
        # Errors of quasi-random points: up to a per cent of the largest entry at 256 draws.
        scale = np.abs(exact).max()
        np.testing.assert_allclose(getattr(few, name), exact, atol=0.03 * scale, err_msg=name)
        np.testing.assert_allclose(getattr(many, name), exact, atol=0.003 * scale, err_msg=name)


INVALID = {
    "offset": [np.array([np.nan, 0.0]), np.array([np.inf, 0.0]), np.array([1e200, 1e200])],
    "scale": [np.ones((2, 2)), -np.eye(2), np.array([[1.0, np.nan], [np.nan, 1.0]])],
    "cross_cov": [np.full((2, 2), 2.0), np.full((2, 2), np.nan)],
    "limits": [np.array([np.nan, 0.0])],
    "latent_cov": [-np.eye(2), np.array([[1.0, 3.0], [3.0, 1.0]])],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in INVALID.items() for v in vs])
def test_what_is_invalid_is_impossible(name, value):
    inputs = dict(zip(NAMES, problem(2, 2), strict=True))
    result = density_and_orthant(*{**inputs, name: value}.values())
    assert result.value == -np.inf
    for key in NAMES:
        gradient = getattr(result, key)
        assert gradient.shape == inputs[key].shape
        assert not gradient.any()


def test_a_latent_row_that_is_nearly_a_function_of_the_variable():
    """Phi of a steep slope: halves keep the digits of the tiny variance that is left."""
    scale = equicorrelated_cov(30, 0.999)
    cross = scale[:, :1].copy()
    latent = scale[:1, :1] + 1e-8
    offset = np.linalg.cholesky(scale) @ np.random.default_rng(0).normal(size=30)
    found = density_and_orthant(offset, scale, cross, np.zeros(1), latent).value
    # x_0 given x_1 is offset[0] with variance 1e-8.
    expected = stats.multivariate_normal(np.zeros(30), scale).logpdf(offset)
    expected += stats.norm.logcdf(offset[0] / 1e-4)
    # Condition number 3e4: 1e-11 of the log density; the mass is 0 or a steep tail.
    assert found == pytest.approx(expected, rel=1e-6)
