"""Adaptive importance sampling on targets with known integrals."""

import numpy as np
import pytest
from scipy import stats

from pymc_skewgp._learn.averaging.problem import Mode
from pymc_skewgp._learn.averaging.settings import ImportanceSettings
from pymc_skewgp._learn.averaging.surrogate import AdaptiveImportance
from pymc_skewgp._learn.coordinates import Point


def run(log_density, modes, rounds, seed=0, last=None):
    def target(points):
        values = np.array([log_density(point.x, point.pattern) for point in points])
        return values, values

    sampler = AdaptiveImportance(target, modes, ImportanceSettings(), np.random.default_rng(seed))
    for _ in range(rounds - 1):
        sampler.round()
    return sampler.round(last)


def test_skewed_target():
    """Log of gamma variables: the mode's curvature is wrong for one tail."""
    shapes = np.array([1.5, 6.0])
    gammas = stats.gamma(shapes)

    def log_density(x, _):
        return 2.0 + float((gammas.logpdf(np.exp(x)) + x).sum())

    mode = Mode(Point(np.log(shapes)), np.diag(1.0 / shapes), 0.0)
    found = run(log_density, [mode], 3)
    estimate = found.estimate()
    # Four standard errors with 15 degrees of freedom: a false alarm in 1000.
    assert abs(estimate.value - 2.0) < 4 * estimate.std_error < 0.1
    assert estimate.relative_ess > 0.7
    mean = found.weights @ np.exp(found.x)
    np.testing.assert_allclose(mean, shapes, rtol=0.06)  # 400 effective draws: sd 4 % and 2 %


def test_two_modes_and_binary_values():
    """Two modes under one value of a binary variable, one under the other."""

    def log_density(x, pattern):
        if pattern == (1,):
            return float(np.log(0.2) + stats.norm(0.0, 0.5).logpdf(x).sum())
        parts = [stats.norm(-4.0, 0.7), stats.norm(4.0, 1.0)]
        return float(np.logaddexp(*(np.log(0.4) + p.logpdf(x).sum() for p in parts)))

    modes = [
        Mode(Point(np.full(2, -4.0), (0,)), 0.49 * np.eye(2), np.log(0.4)),
        Mode(Point(np.full(2, 4.0), (0,)), np.eye(2), np.log(0.4)),
        Mode(Point(np.zeros(2), (1,)), 0.25 * np.eye(2), np.log(0.2)),
    ]
    found = run(log_density, modes, 3)
    estimate = found.estimate()
    assert abs(estimate.value) < 4 * estimate.std_error < 0.1
    share = found.weights[[found.point(i).pattern == (1,) for i in range(len(found.x))]].sum()
    assert share == pytest.approx(0.2, abs=0.03)  # quasi-random: plain draws have sd .02
    assert found.weights @ (found.x[:, 0] > 0) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("rounds", "last"), [(1, None), (2, 600)])
def test_standard_errors_are_honest(rounds, last):
    """Twenty runs of a correlated heavy-tailed target: z scores within their own spread.

    Rounds of one size, and of several.
    """
    cov = np.array([[1.0, 0.9], [0.9, 1.5]])
    target = stats.multivariate_t(np.ones(2), cov, df=8)
    mode = Mode(Point(np.ones(2)), cov, 0.0)
    estimates = [
        run(lambda x, _: target.logpdf(x), [mode], rounds, seed, last).estimate()
        for seed in range(20)
    ]
    z = np.array([e.value / e.std_error for e in estimates])
    # Errors are those of quasi-random points or more: z is t(15) at the widest. The chance of a
    # sum of squares above 48, or of a |z| above 4.5: 1 in 1000.
    assert np.square(z).sum() < 48
    assert np.abs(z).max() < 4.5


def test_integral_has_no_bias():
    """Few points in five dimensions, three rounds, many runs: their mean is the integral's."""
    target = stats.multivariate_t(np.zeros(5), np.eye(5), df=3)
    settings = ImportanceSettings(n_points=32, points_per_coordinate=8)
    mode = Mode(Point(np.full(5, 0.5)), 0.5 * np.eye(5), 0.0)

    def evaluate(points):
        values = target.logpdf([point.x for point in points])
        return values, values

    ratios = []
    for seed in range(150):
        sampler = AdaptiveImportance(evaluate, [mode], settings, np.random.default_rng(seed))
        for _ in range(3):
            points = sampler.round()
        ratios.append(np.exp(points.estimate().value))
    error = np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    # Beyond four: 1 in 16000. Weights by all three mixtures: a mean of .81, 37 errors off.
    assert abs(np.mean(ratios) - 1.0) < 4.0 * error < 0.05


class _Prior:
    """Of a log scale: a half-normal scale's density, e^x times a bounded function."""

    def __init__(self, rng):
        self._rng = rng

    def draw(self, count):
        return np.log(np.abs(self._rng.normal(size=(count, 1))))

    def log_density(self, x):
        return stats.halfnorm.logpdf(np.exp(x[:, 0])) + x[:, 0]


def test_a_tail_that_curvature_does_not_know_of():
    """A mode beside a tail of e^x, as of a scale that may vanish: errors with the prior are honest.

    Without it the tail, 8 % of the integral, is adapted away: a sum of squares of 150 to 1500.
    """
    bump = stats.norm(0.0, 0.12)
    likelihood = lambda x: np.log(0.08 + bump.pdf(x) / bump.pdf(0.0))  # noqa: E731
    scales = np.log(stats.halfnorm.ppf((np.arange(200_000) + 0.5) / 200_000))
    right = np.log(np.exp(likelihood(scales)).mean())

    def target(points):
        x = np.array([point.x for point in points])
        values = _Prior.log_density(None, x) + likelihood(x[:, 0])
        return values, values

    modes = [Mode(Point(np.zeros(1)), np.array([[0.12**2]]), 0.0)]
    z = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        prior = _Prior(rng)
        sampler = AdaptiveImportance(target, modes, ImportanceSettings(), rng, lambda _, p=prior: p)
        for _ in range(3):
            points = sampler.round()
        found = points.estimate()
        z.append((found.value - right) / found.std_error)
    # As above.
    assert np.square(z).sum() < 48
    assert np.abs(z).max() < 4.5
