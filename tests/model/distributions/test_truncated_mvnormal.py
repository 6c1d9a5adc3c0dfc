"""TruncatedMvNormal against scipy, quadrature and closed forms."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import brute_log_prob, finite_difference
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from pytensor.compile.mode import Mode
from scipy import stats

from pymc_skewgp import NotPositiveDefiniteError
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.independent import independent_draws
from pymc_skewgp._model.distributions.truncated_mvnormal import (
    RectangleTransform,
    TruncatedMvNormal,
)

pytestmark = pytest.mark.usefixtures("in_python")

INF = np.inf
IN_PYTHON = Mode("py", None)
COV = np.array([[1.0, 0.5, -0.2], [0.5, 2.0, 0.3], [-0.2, 0.3, 0.7]])
MU = np.array([0.3, -0.5, 1.0])
LOWER = np.array([0.0, -INF, 0.5])
UPPER = np.array([1.5, 0.0, INF])
EXAMPLE = {"mu": MU, "cov": COV, "lower": LOWER, "upper": UPPER}


class TestRandom(BaseTestDistributionRandom):
    pymc_dist = TruncatedMvNormal
    pymc_dist_params = EXAMPLE
    expected_rv_op_params = EXAMPLE
    reference_dist_params = EXAMPLE
    sizes_to_check = (None, (4, 5), (0,))
    sizes_expected = ((3,), (4, 5, 3), (0, 3))
    checks_to_run = (
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference",
        "check_rv_size",
    )

    def reference_dist(self):
        rng = self.get_random_state()
        return lambda size, mu, cov, lower, upper: (
            mu + independent_draws(DenseCovariance(cov), lower - mu, upper - mu, size, rng)
        )


# Density


def expected_log_density(x, mu, cov, lower, upper):
    inside = ((x >= lower) & (x <= upper)).all(axis=-1)
    density = stats.multivariate_normal(mu, cov).logpdf(x)
    return np.where(inside, density - brute_log_prob(lower - mu, upper - mu, cov), -INF)


def test_three_dimensions_against_quadrature():
    rng = np.random.default_rng(0)
    x = np.vstack([rng.uniform(LOWER.clip(-3), UPPER.clip(None, 3), (4, 3)), MU, UPPER - 0.1])
    x = np.vstack([x, [0.0, 0.0, 0.5]])  # limits belong to the support
    x = np.vstack([x, [[-0.01, -1.0, 1.0], [0.5, 0.01, 1.0], [np.nan, -1.0, 1.0]]])
    expected = expected_log_density(x, **EXAMPLE)
    assert np.isinf(expected).sum() == 4  # the location is inside, infinity is not
    # 256 quasi-random draws, the same for all rows.
    np.testing.assert_allclose(
        pm.logp(TruncatedMvNormal.dist(**EXAMPLE), x).eval(), expected, atol=2e-3
    )


def test_gradient_in_value_location_covariance_and_limits():
    """Two dimensions, where the probability is exact."""
    x, mu, chol, lower, upper = pt.dvector(), pt.dvector(), pt.dmatrix(), pt.dvector(), pt.dvector()
    rv = TruncatedMvNormal.dist(mu, chol @ chol.T, lower, upper)
    inputs = [x, mu, chol, lower, upper]
    gradients = pytensor.function(inputs, pytensor.grad(pm.logp(rv, x), inputs))
    at = [
        np.array([0.4, -0.6]),
        np.array([0.1, 0.2]),
        np.linalg.cholesky(COV[:2, :2]),
        np.array([0.0, -2.0]),
        np.array([1.5, 0.0]),
    ]

    def log_density(x, mu, chol, lower, upper):
        return float(expected_log_density(x, mu, chol @ chol.T, lower, upper))

    for k, found in enumerate(gradients(*at)):
        expected = finite_difference(
            lambda v, k=k: log_density(*at[:k], v, *at[k + 1 :]), at[k], h=2e-3
        )
        if k == 2:
            expected = np.tril(expected)
            found = np.tril(found)
        # h^4 = 2e-11 times fifth derivatives of tens, and the oracle's 1e-12 over h.
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_invalid_parameters_are_impossible_and_not_nan():
    cov, lower = pt.dmatrix(), pt.dvector()
    log_p = pm.logp(TruncatedMvNormal.dist(0.0, cov, lower, 1.0), np.zeros(2))
    f = pytensor.function([cov, lower], log_p)
    good = (np.eye(2), np.array([-1.0, -1.0]))
    assert np.isfinite(f(*good))
    bad = [
        (np.array([[1.0, 2.0], [2.0, 1.0]]), good[1]),
        (np.full((2, 2), np.nan), good[1]),
        (good[0], np.array([-1.0, 1.0])),
        (good[0], np.array([-1.0, 2.0])),
        (good[0], np.array([-1.0, np.nan])),
    ]
    assert [f(*arguments) for arguments in bad] == [-INF] * len(bad)


def test_batches_of_parameters_and_values():
    rng = np.random.default_rng(1)
    mu = rng.normal(size=(4, 2))
    lower = rng.normal(-2, 0.3, size=(5, 1, 2))
    cov = COV[:2, :2] * np.array([1.0, 2.0, 0.5, 3.0])[:, None, None]
    rv = TruncatedMvNormal.dist(mu, cov, lower, 3.0)
    assert rv.type.shape == (5, 4, 2)
    draws = pm.draw(rv, random_seed=1)
    assert draws.shape == tuple(rv.shape.eval()) == (5, 4, 2)
    assert ((draws > lower) & (draws < 3.0)).all()
    found = pm.logp(rv, draws).eval()
    for i, j in np.ndindex(5, 4):
        expected = expected_log_density(draws[i, j], mu[j], cov[j], lower[i, 0], np.full(2, 3.0))
        assert found[i, j] == pytest.approx(float(expected), abs=1e-10)


# Support point


ROOM = [0.375, -np.sqrt(2.0), 0.5 + np.sqrt(0.7)]  # a quarter of the interval, or a deviation


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ROOM),
        ({"mu": -9.0}, [0.375, -9.0, ROOM[2]]),
        ({"mu": 9.0}, [1.125, ROOM[1], 9.0]),
        ({"lower": None, "upper": None}, MU),
        ({"size": (2,)}, [ROOM, ROOM]),
        ({"lower": [0.0, -5.0, 0.0], "upper": [1e-6, -4.9, 1e-6]}, [0.75e-6, -4.925, 0.75e-6]),
    ],
)
def test_support_point_is_inside(changes, expected):
    with pm.Model() as model:
        TruncatedMvNormal("x", **{**EXAMPLE, **changes})
    assert_support_point_is_expected(model, expected)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


# Draws


def test_draws_with_an_empty_rectangle_say_so():
    lower = pt.dvector()
    rv = TruncatedMvNormal.dist(0.0, np.eye(2), lower, 1.0)
    with pytest.raises(ValueError, match="lower must be below upper"):
        rv.eval({lower: [0.0, 1.0]})


# Models


def test_in_a_model_with_random_limits():
    with pm.Model(coords={"axis": ["a", "b"]}) as model:
        low = pm.Normal("low")
        x = TruncatedMvNormal("x", 0.0, COV[:2, :2], low, [5.0, INF], dims="axis")
    assert model.rvs_to_values[x].name == "x_interval__"
    point = {"low": np.array(0.2), "x_interval__": np.array([-0.5, 0.3])}
    inside = np.array([0.2 + 4.8 / (1 + np.exp(0.5)), 0.2 + np.exp(0.3)])
    jacobian = np.log(4.8) + stats.logistic.logpdf(-0.5) + 0.3
    expected = expected_log_density(
        inside, np.zeros(2), COV[:2, :2], np.full(2, 0.2), np.array([5.0, INF])
    )
    log_p = model.compile_logp()
    # Exact in two dimensions.
    total = stats.norm.logpdf(0.2) + jacobian + float(expected)
    assert log_p(point) == pytest.approx(total, abs=1e-10)
    with model:
        prior = pm.sample_prior_predictive(20, random_seed=1)["prior"]
    assert prior["x"].dims == ("chain", "draw", "axis")
    assert (prior["x"] > prior["low"]).all()


# Bad input


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        # What each is checked for is in test_unified_skew_normal.
        ({"mu": [0.0, INF, 0.0]}, ValueError, "mu holds 1 infinite"),
        ({"mu": [0.0, 0.0]}, ValueError, "mu must have length 3, got 2"),
        ({"cov": None}, ValueError, "cov is needed"),
        ({"cov": -np.eye(3)}, NotPositiveDefiniteError, "cov is not positive definite"),
        ({"lower": [0.0, np.nan, 0.0]}, ValueError, "lower holds 1 NaN"),
        ({"upper": -1.0}, ValueError, "row 0 has lower 0 and upper -1"),
        ({"lower": INF, "upper": INF}, ValueError, "lower must be below upper"),
    ],
)
def test_invalid_constants_are_refused_when_the_model_is_built(changes, error, message):
    with pytest.raises(error, match=message):
        TruncatedMvNormal.dist(**{**EXAMPLE, **changes})


# The transform of a rectangle: inverse, Jacobian and gradients for every mixture of limits.


INF = np.inf
ENDS_BELOW = np.array([-INF, 0.5, -INF, -1.0, 0.0])
ENDS_ABOVE = np.array([INF, INF, 2.0, 3.0, 1e-3])


@pytest.fixture(scope="module")
def functions():
    x, lower, upper = pt.dvector(), pt.dvector(), pt.dvector()
    transform = RectangleTransform()
    inputs = (None, None, lower, upper)  # what comes before the limits is not looked at
    y = transform.backward(x, *inputs)
    log_det = transform.log_jac_det(x, *inputs)
    log_density = -0.5 * (((y - 1.0) / 3.0) ** 2).sum() + log_det
    f = pytensor.function(
        [x, lower, upper],
        [y, log_det, transform.forward(y, *inputs), pytensor.grad(log_density, x)],
    )
    return f


@pytest.mark.parametrize("seed", range(3))
def test_forward_undoes_backward(functions, seed):
    x = np.random.default_rng(seed).normal(scale=3.0, size=5)
    y, _, again, _ = functions(x, ENDS_BELOW, ENDS_ABOVE)
    assert ((y > ENDS_BELOW) & (y < ENDS_ABOVE)).all()
    # Where y is near a limit of size one, the distance to it has lost digits: e^-9 of them.
    np.testing.assert_allclose(again, x, atol=1e-10)


def test_log_determinant(functions):
    x = np.array([0.3, -0.4, 1.2, 0.7, -2.0])
    derivative = finite_difference(lambda x: functions(x, ENDS_BELOW, ENDS_ABOVE)[0], x)
    np.testing.assert_allclose(derivative, np.diag(derivative.diagonal()), atol=1e-12)
    # Fourth-order differences, h = 1e-3: 1e-11 relative.
    exact = np.log(np.abs(derivative.diagonal())).sum()
    assert functions(x, ENDS_BELOW, ENDS_ABOVE)[1] == pytest.approx(exact, abs=1e-9)


def test_far_out_nothing_is_nan(functions):
    """Branches that are not taken overflow there: PyMC's Interval has a gradient of NaN."""
    for scale in (30.0, 1000.0):
        for sign in (1.0, -1.0):
            x = scale * sign * np.array([1.0, -1.0, -1.0, 1.0, -1.0])
            y, log_det, _, gradient = functions(x, ENDS_BELOW, ENDS_ABOVE)
            assert ((y >= ENDS_BELOW) & (y <= ENDS_ABOVE)).all()
            assert not np.isnan(log_det)
            if sign > 0:  # the other way, one-sided coordinates are at infinity
                assert np.isfinite(gradient).all()
            else:
                assert np.isfinite(gradient[[0, 3, 4]]).all()


def test_near_the_upper_limit_digits_are_kept(functions):
    y = functions(np.full(1, 50.0), np.array([-1.0]), np.array([0.0]))[0]
    # The distance to a limit at zero is e^-50, to full precision.
    np.testing.assert_allclose(y, -np.exp(-50.0), rtol=1e-14)
