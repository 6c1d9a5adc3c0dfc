"""Chains begun in several modes: integrals and shares that are known."""

import numpy as np
import pytest
from scipy import stats

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._learn.averaging.chains import Chains, draws_of_regions, points_by_chains
from pymc_skewgp._learn.averaging.problem import Mode
from pymc_skewgp._learn.averaging.settings import ChainSettings
from pymc_skewgp._learn.coordinates import Point, Value

# Two modes of unequal width, with three tenths of the mass in the second; the integral is e^7.
PARTS = [
    (0.7, stats.multivariate_t([-3.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], df=9)),
    (0.3, stats.multivariate_normal([9.0, 1.0], 0.25 * np.eye(2))),
]


def log_density(x):
    return 7.0 + np.logaddexp(*(np.log(p) + part.logpdf(x) for p, part in PARTS))


def drawn(size, which, rng):
    x = np.where(
        which[:, None],
        PARTS[1][1].rvs(size, random_state=rng),
        PARTS[0][1].rvs(size, random_state=rng),
    )
    x = x.reshape(2, -1, 2)
    return Chains(x, log_density(x.reshape(-1, 2)).reshape(2, -1), float(size))


@pytest.mark.parametrize("crossing", [False, True])
def test_integral_and_shares(crossing):
    """Independent draws: as many in each mode, or in proportion, of both groups."""
    z, shares = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        size, nothing = 400, np.zeros(400, dtype=bool)
        which = [rng.random(size) < 0.3 for _ in range(2)] if crossing else [nothing, ~nothing]
        found = draws_of_regions([drawn(size, w, rng) for w in which], log_density, 0.01, rng)
        assert found.complete
        assert found.std_error < (0.2 if crossing else 0.1)
        z.append((found.log_integral - 7.0) / found.std_error)
        weights = np.exp(found.log_weights - found.log_integral)
        assert weights.sum() == pytest.approx(1.0)
        shares.append(weights[found.x[:, 0] > 1.5].sum())
    # A sum of 20 squares above 45.3: 1 in 1000.
    assert np.square(z).sum() < 45.3
    # Each is right to a fiftieth or so, their mean to a hundredth and less.
    assert np.mean(shares) == pytest.approx(0.3, abs=0.02)


def test_a_region_without_draws():
    """The chains of one mode have all gone to the other: its share is known, and it is missed."""
    rng = np.random.default_rng(0)
    one = drawn(400, np.zeros(400, dtype=bool), rng)
    x = one.x.copy()
    x[:, :200] = PARTS[1][1].rvs(400, random_state=rng).reshape(2, 200, 2)[:, :200]
    # First halves in the second mode, second halves in the first: too few for a bridge.
    other = Chains(x, log_density(x.reshape(-1, 2)).reshape(2, -1), 400.0)
    found = draws_of_regions([one, other], log_density, 0.01, rng)
    assert found.log_integral == pytest.approx(7.0, abs=5.0 * found.std_error)


def test_a_region_that_no_new_point_meets():
    """Its share is not known: no NaN, and not complete."""
    rng = np.random.default_rng(0)
    nothing = np.zeros(400, dtype=bool)
    groups = [drawn(400, nothing, rng), drawn(400, ~nothing, rng)]

    def first_alone(x):
        return np.where(x[:, 0] > 3.0, -np.inf, log_density(x))

    found = draws_of_regions(groups, first_alone, 0.01, rng)
    assert not found.complete
    assert not np.isnan(found.log_weights).any()
    # Of the first alone; its t distribution has a thousandth or so beyond the border.
    error = 5.0 * found.std_error
    assert found.log_integral == pytest.approx(7.0 + np.log(0.7), abs=error + 1e-3)
    with pytest.raises(DoublePrecisionError, match="no value at any"):
        draws_of_regions(groups, lambda x: np.full(len(x), -np.inf), 0.01, rng)


def test_chains_from_every_mode():
    """PyMC's NUTS on two modes twelve standard deviations apart, and a value of a binary one."""

    def function(point):
        x, step = point.x, 1e-5
        if point.pattern == (1,):
            value = 7.0 + np.log(0.5) + stats.multivariate_normal(np.zeros(2)).logpdf(x)
            return Value(value, value - 1.0, -x)
        value = log_density(x)
        slope = [(log_density(x + e) - log_density(x - e)) / (2 * step) for e in step * np.eye(2)]
        return Value(value, value - 1.0, np.array(slope))

    modes = [
        Mode(Point(np.array([-3.0, 0.0]), (0,)), np.array([[1.0, 0.5], [0.5, 1.0]]), 6.6),
        Mode(Point(np.array([9.0, 1.0]), (0,)), 0.25 * np.eye(2), 5.8),
        Mode(Point(np.zeros(2), (1,)), np.eye(2), 6.3),
    ]
    settings = ChainSettings(chains=2, tune=150, draws=300, largest_r_hat=1.1, least_ess=30)
    rng = np.random.default_rng(3)
    found = points_by_chains(function, lambda _: 1.0, modes, settings, rng)
    assert found.converged
    assert abs(found.log_integral.value - 7.0 - np.log(1.5)) < 4.0 * found.log_integral.std_error
    assert found.log_integral.std_error < 0.15
    points = found.points
    assert np.exp(points.log_weights).mean() == pytest.approx(np.exp(found.log_integral.value))
    second = points.weights[(points.pattern == 0) & (points.x[:, 0] > 1.5)].sum()
    assert second == pytest.approx(0.2, abs=0.04)
    np.testing.assert_allclose(points.log_evidence, points.log_target - 1.0)
