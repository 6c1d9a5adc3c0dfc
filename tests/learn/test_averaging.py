"""The rungs of an average over hyperparameters, on targets whose integrals are known.

Adaptive importance sampling, the surrogate with many coordinates, chains from several modes, and
the correction of EP's evidence by exact ones at points. Of twenty z scores a sum of squares above
48 (t with 15 degrees of freedom, as errors of 16 replicates have), or one beyond 4.5: 1 in 1000.
"""

import warnings
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit, log_expit, ndtri

import pymc_skewgp as sg
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.averaging.average_process import warn_of
from pymc_skewgp._learn.averaging.chains import Chains, draws_of_regions, misses, points_by_chains
from pymc_skewgp._learn.averaging.importance import (
    AdaptiveImportance,
    IntegrationSettings,
    StudentMixture,
)
from pymc_skewgp._learn.averaging.integration import IMPORTANCE, Integral, Ladder
from pymc_skewgp._learn.averaging.modes import Mode, by_pattern
from pymc_skewgp._learn.averaging.points import ExactPoints, WeightedPoints, joined
from pymc_skewgp._learn.averaging.surrogate import SmoothTarget, SurrogateSampler, mass_beyond
from pymc_skewgp._learn.coordinates import Point, Value, coordinates_of
from pymc_skewgp._learn.objective import CompiledLogPrior
from pymc_skewgp._posterior.draws_with_evidence import DrawsWithEvidence

TWO = np.eye(2)


def run(log_density, modes, rounds, seed=0, last=0, settings=None):
    """Adaptive importance sampling, in so many rounds; the density is that of rows."""

    def target(points):
        values = log_density(np.array([point.x for point in points]), points[0].pattern)
        return values, values

    settings, rng = settings or IntegrationSettings(), np.random.default_rng(seed)
    parts = []
    for own in by_pattern(modes):
        sampler = AdaptiveImportance(target, own, settings, rng)
        for _ in range(rounds - 1):
            sampler.round()
        parts.append(sampler.round(last))
    return joined(parts)


def test_two_modes_and_binary_values():
    """Two modes under one value of a binary variable, one under the other."""

    def log_density(x, pattern):
        if pattern == (1,):
            return np.log(0.2) + stats.norm.logpdf(x, 0.0, 0.5).sum(axis=1)
        parts = stats.norm.logpdf(x, -4.0, 0.7), stats.norm.logpdf(x, 4.0, 1.0)
        return np.log(0.4) + np.logaddexp(*(part.sum(axis=1) for part in parts))

    modes = [
        Mode(Point(np.full(2, -4.0), (0,)), 0.49 * TWO, np.log(0.4)),
        Mode(Point(np.full(2, 4.0), (0,)), TWO, np.log(0.4)),
        Mode(Point(np.zeros(2), (1,)), 0.25 * TWO, np.log(0.2)),
    ]
    found = run(log_density, modes, 3, seed=1, last=512)  # by seed errors of .017 and .018
    estimate = found.estimate()
    assert abs(estimate.value) < 4 * estimate.std_error < 0.1
    share = found.weights[[found.point(i).pattern == (1,) for i in range(len(found.x))]].sum()
    assert share == pytest.approx(0.2, abs=0.03)  # quasi-random: plain draws have sd .02
    assert found.weights @ (found.x[:, 0] > 0) == pytest.approx(0.5, abs=0.05)


def mixture(d):
    chols = np.stack([np.linalg.cholesky(np.full((d, d), r) + np.eye(d)) for r in (0.5, 2.0, 0.1)])
    return StudentMixture(np.array([0.5, 0.3, 0.2]), np.arange(3.0 * d).reshape(3, d), chols)


def test_draws_of_a_mixture_are_its_quantiles():
    """By SciPy's distribution function, and by quadrature along a second coordinate."""
    u = np.random.default_rng(0).uniform(size=(2, 40))
    u[0, :2] = 1e-6, 1.0 - 1e-6
    one, two = mixture(1), mixture(2)
    known = stats.t(one.df, one.means[:, 0], one.chols[:, 0, 0])
    below = known.cdf(one.draw(u[:1])) @ one.weights
    np.testing.assert_allclose(below, u[0], atol=1e-9)  # as near as they are asked for
    x = two.draw(u)
    for row, level in zip(x[:4], u[1], strict=False):

        def density(v, first=row[0]):
            return np.exp(two.log_density(np.array([[first, v]]))[0])

        whole, part = (quad(density, -np.inf, end)[0] for end in (np.inf, row[1]))
        assert part / whole == pytest.approx(level, abs=1e-6)  # `quad`'s own error


def test_integral_has_no_bias():
    """Few points in five dimensions, three rounds, many runs: their mean is the integral's."""
    target = stats.multivariate_t(np.zeros(5), np.eye(5), df=3)
    settings = IntegrationSettings(n_points=32, points_per_coordinate=8)
    mode = Mode(Point(np.full(5, 0.5)), 0.5 * np.eye(5), 0.0)
    ratios = [
        np.exp(run(lambda x, _: target.logpdf(x), [mode], 3, s, 0, settings).estimate().value)
        for s in range(150)
    ]
    error = np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    # Beyond four: 1 in 16000. Weights by all three mixtures: a mean of .81, 37 errors off.
    assert abs(np.mean(ratios) - 1.0) < 4.0 * error < 0.05


def test_the_mode_with_the_mass():
    """Begun in a minor mode: twelve nats below, as narrow, four standard deviations away."""
    minor, major = np.zeros(3), np.array([4.0, 0.0, 0.0])

    class TwoModes:
        count = 0

        def __call__(self, point):
            distances = np.array([point.x - minor, point.x - major])
            logs = -0.5 * (distances**2).sum(axis=1) + [0.0, 12.0] - 1.5 * np.log(2.0 * np.pi)
            total = np.logaddexp(*logs)
            return Value(total, total, -np.exp(logs - total) @ distances)

        def values(self, points):
            found = np.array([self(point).total for point in points])
            return found, found

    bounds = SimpleNamespace(bounds=lambda x: [(-20.0, 20.0)] * x.size)
    flat = SimpleNamespace(values_at_rows=lambda x, _: np.zeros(len(x)))
    objective = SimpleNamespace(coordinates=bounds, log_prior=flat)
    problem = SimpleNamespace(
        objective=objective, prior_draws=lambda pattern, rng: None, is_slow=False
    )
    # Its own height, and Laplace's integral of it.
    height = stats.multivariate_normal(np.zeros(3)).logpdf(minor)
    settings = IntegrationSettings(n_points=96, enough=64)
    ladder = Ladder(problem, TwoModes(), settings, np.random.default_rng(0))
    found, modes = ladder.at(IMPORTANCE, [Mode(Point(minor), np.eye(3), 0.0, height)])
    assert found.accepted
    # The ascent stops within a hundredth of a nat of the mode.
    np.testing.assert_allclose(modes[0].point.x, major, atol=0.2)
    assert modes[0].log_mass == pytest.approx(12.0, abs=0.05)
    # Beyond five: 6 in 10 million.
    error = found.log_integral.std_error
    assert error < 0.1
    assert abs(found.log_integral.value - np.log(1.0 + np.exp(12.0))) < 5.0 * error


PRIOR_SD = 1.5


class CutOff:
    """Coordinates like log lengthscales of inputs that do not matter: cut off below only.

    log evidence = sum_j log expit(4 (x_j + c_j)), prior N(0, 1.5^2).
    """

    def __init__(self, d, seed):
        self.c = np.random.default_rng(seed).uniform(-1.0, 1.0, d)
        grid = np.linspace(-14.0, 14.0, 40001)
        density = stats.norm(0.0, PRIOR_SD).pdf(grid) * expit(4.0 * (grid + self.c[:, None]))
        mass = np.trapezoid(density, grid)
        self.log_integral = float(np.log(mass).sum())
        self.mean = np.trapezoid(density * grid, grid) / mass

    def log_prior(self, x, _=()):
        return stats.norm(0.0, PRIOR_SD).logpdf(x).sum(axis=1), -x / PRIOR_SD**2

    def log_evidence(self, x):
        u = 4.0 * (x + self.c)
        return log_expit(u).sum(axis=1), 4.0 * expit(-u)

    def both(self, x):
        (a, da), (b, db) = self.log_prior(x), self.log_evidence(x)
        return a + b, da + db

    def target(self):
        def function(point):
            total, gradient = self.both(point.x[None])
            return Value(total[0], self.log_evidence(point.x[None])[0][0], gradient[0])

        def values(points):
            x = np.array([point.x for point in points])
            return self.both(x)[0], self.log_evidence(x)[0]

        groups = [(np.arange(self.c.size), True)]
        return SmoothTarget(function, values, self.log_prior, groups)

    def mode(self):
        x = np.zeros(self.c.size)
        for _ in range(200):
            x += 0.2 * self.both(x[None])[1][0]
        slope = expit(-4.0 * (x + self.c))
        curvature = 1.0 / PRIOR_SD**2 + 16.0 * slope * (1.0 - slope)
        total = float(self.both(x[None])[0][0])
        log_mass = total + 0.5 * float(np.log(2.0 * np.pi / curvature).sum())
        return Mode(Point(x), np.diag(1.0 / curvature), log_mass, total)

    def points(self, size=100, mode=None, seed=3, changed=None, **settings):
        target = self.target()._replace(**changed or {})
        mode, rng = mode or self.mode(), np.random.default_rng(seed)
        settings = IntegrationSettings(**settings)
        sampler = SurrogateSampler(target, [mode], settings, rng)
        sampler.learn(size)
        return sampler.draws(size)


def test_many_coordinates():
    """18 that a mixture has no chance with: relative ESS, integral and means."""
    cut = CutOff(18, 2)
    found = cut.points()
    estimate = found.estimate()
    assert estimate.relative_ess > 0.25
    assert not estimate.heavy_tailed
    assert abs(estimate.value - cut.log_integral) < 4.0 * estimate.std_error < 0.5
    # 100 effective draws of deviations near 1.2: four errors are .48.
    np.testing.assert_allclose(found.weights @ found.x, cut.mean, atol=0.48)


class HeavyTails(CutOff):
    """Under a Student t prior of all coordinates together: normal, given a common precision."""

    DF = 4.0

    def __init__(self, d, seed):
        super().__init__(d, seed)
        log_g = np.linspace(-12.0, 4.0, 400)
        g, z = np.exp(log_g), np.linspace(-10.0, 10.0, 2001)
        x = PRIOR_SD * z / np.sqrt(g)[:, None]
        each = [
            np.trapezoid(stats.norm.pdf(z) * expit(4.0 * (x + own)), z, axis=1) for own in self.c
        ]
        of_g = stats.gamma(self.DF / 2.0, scale=2.0 / self.DF).pdf(g) * g
        self.log_integral = float(np.log(np.trapezoid(of_g * np.prod(each, axis=0), log_g)))

    def log_prior(self, x, _=()):
        d = x.shape[1]
        prior = stats.multivariate_t(np.zeros(d), PRIOR_SD**2 * np.eye(d), self.DF)
        size = self.DF * PRIOR_SD**2 + np.square(x).sum(axis=1)
        return prior.logpdf(x), -(self.DF + d) * x / size[:, None]


def test_a_surrogate_learns_where_its_weights_are_large():
    """Begun with 48 points beside the first; heavy tails of the prior are not in the proposals."""
    cut = HeavyTails(12, 2)
    estimates = [cut.points(seed=seed, learnt=1).estimate() for seed in range(5)]
    # Without it the weights of one of the five are heavy-tailed.
    assert not any(found.heavy_tailed for found in estimates)
    assert min(found.relative_ess for found in estimates) > 0.15
    # Errors of .05 to .1 each, and up to a tenth of the mass is further out than any draw.
    assert np.mean([x.value for x in estimates]) == pytest.approx(cut.log_integral, abs=0.2)


@pytest.mark.parametrize(("df", "d"), [(1.5, 4), (2.0, 16), (4.0, 30)])
def test_mass_in_tails_that_draws_do_not_reach(df, d):
    """Independent priors, about which data say nothing: what is beyond eight deviations."""
    prior = stats.t(df)
    rng = np.random.default_rng(1)
    x = prior.rvs((20000, d), random_state=rng)

    def share(prior, x):
        def values(rows):
            return (np.array([prior.logpdf(row.x).sum() for row in rows]),) * 2

        arrays = [np.zeros(len(x)) for _ in range(4)]
        return mass_beyond(values, WeightedPoints.of((), x, *arrays), ())

    beyond = 2.0 * d * prior.sf(8.0 * prior.ppf(0.75) / stats.norm.ppf(0.75))
    # Half as much again: the peak is not a normal's, and quartiles are of draws.
    assert beyond / 1.5 < share(prior, x) < 1.5 * beyond
    assert share(stats.norm(), rng.normal(size=x.shape)) == 0.0
    assert share(stats.t(8.0), stats.t(8.0).rvs(x.shape, random_state=rng)) == 0.0
    # Of logarithms tails are exponential.
    assert share(stats.logistic(), stats.logistic.rvs(size=x.shape, random_state=rng)) == 0.0


def test_points_without_any_weight():
    """The evidence is known at the points of the surrogate, and nowhere else: no estimate."""
    nowhere = {"values": lambda points: (np.full(len(points), -np.inf),) * 2}
    found = CutOff(3, 2).points(10, changed=nowhere, learnt=1)
    estimate = found.estimate()
    assert (estimate.value, estimate.std_error, estimate.relative_ess) == (-np.inf, np.inf, 0.0)
    assert estimate.heavy_tailed


def test_slopes_that_are_not_finite_are_left_out():
    """One in three points has a value and no slope: the integral is as right as without them."""
    cut, count = CutOff(3, 2), 0

    def function(point):
        nonlocal count
        count += 1
        found = cut.target().function(point)
        none = np.full_like(found.gradient, np.inf)
        return found._replace(gradient=none) if count % 3 == 2 else found

    estimate = cut.points(changed={"function": function}, learnt=1).estimate()
    assert estimate.relative_ess > 0.5
    assert abs(estimate.value - cut.log_integral) < 4.0 * estimate.std_error < 0.5


def test_log_prior_of_rows_where_a_parameter_is_impossible():
    """A scale that is 0 in double precision at one row: the others keep their values."""
    with pm.Model() as model:
        pm.Normal("x", 0.0, pm.HalfNormal("scale"), shape=2)
    log_prior = model.logp(sum=True)
    prior = CompiledLogPrior(coordinates_of(model, [log_prior])[0], log_prior)
    x = np.array([[0.3, 0.1, -0.4], [-900.0, 0.2, 0.1], [-0.5, 1.0, 0.0]])
    value, gradient = prior.at_rows(x, ())
    np.testing.assert_array_equal(prior.values_at_rows(x, ()), value)
    assert value[1] == -np.inf
    s, f = np.exp(x[[0, 2], 0]), x[[0, 2], 1:]
    of_f = stats.norm(0, s[:, None]).logpdf(f).sum(axis=1)
    expected = stats.halfnorm.logpdf(s) + np.log(s) + of_f
    np.testing.assert_allclose(value[[0, 2]], expected, rtol=1e-10)
    in_log_s = 1.0 - s**2 - 2.0 + (f**2).sum(axis=1) / s**2
    wanted = np.column_stack([in_log_s, -f / s[:, None] ** 2])
    np.testing.assert_allclose(gradient[[0, 2]], wanted, rtol=1e-10)


# Two modes of unequal width, with three tenths of the mass in the second; the integral is e^7.
PARTS = [
    (0.7, stats.multivariate_t([-3.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], df=9)),
    (0.3, stats.multivariate_normal([9.0, 1.0], 0.25 * TWO)),
]
AT = np.array([[-3.0, 0.0], [9.0, 1.0]])


def log_density(x):
    return 7.0 + np.logaddexp(*(np.log(p) + part.logpdf(x) for p, part in PARTS))


def drawn(which, rng):
    """400 draws in two chains, of the second part where `which` says so."""
    x = np.where(which[:, None], *(p.rvs(400, random_state=rng) for _, p in PARTS[::-1]))
    return Chains(x.reshape(2, 200, 2), log_density(x).reshape(2, 200), 400.0)


@pytest.mark.parametrize("crossing", [False, True])
def test_integral_and_shares_of_chains(crossing):
    """Independent draws: as many in each mode, or in proportion, of both groups."""
    z, shares = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        first = np.zeros(400, dtype=bool)
        which = [rng.random(400) < 0.3 for _ in range(2)] if crossing else [first, ~first]
        found = draws_of_regions([drawn(w, rng) for w in which], log_density, 0.01, rng)
        assert found.complete
        assert found.std_error < (0.2 if crossing else 0.1)
        z.append((found.log_integral - 7.0) / found.std_error)
        weights = np.exp(found.log_weights - found.log_integral) / found.log_weights.size
        assert weights.sum() == pytest.approx(1.0)
        shares.append(weights[found.x[:, 0] > 1.5].sum())
    # A sum of 20 squares above 45.3: 1 in 1000.
    assert np.square(z).sum() < 45.3
    # Each is right to a fiftieth or so, their mean to a hundredth and less.
    assert np.mean(shares) == pytest.approx(0.3, abs=0.02)


def test_a_region_that_no_new_point_meets():
    """Its share is not known: no NaN, and not complete."""
    rng, first = np.random.default_rng(0), np.zeros(400, dtype=bool)
    groups = [drawn(first, rng), drawn(~first, rng)]

    def first_alone(x):
        return np.where(x[:, 0] > 3.0, -np.inf, log_density(x))

    found = draws_of_regions(groups, first_alone, 0.01, rng)
    assert not found.complete
    assert not np.isnan(found.log_weights).any()
    # Of the first alone; its t distribution has a thousandth or so beyond the border.
    error = 5.0 * found.std_error
    assert found.log_integral == pytest.approx(7.0 + np.log(0.7), abs=error + 1e-3)
    with pytest.raises(sg.DoublePrecisionError, match="no value at any"):
        draws_of_regions(groups, lambda x: np.full(len(x), -np.inf), 0.01, rng)


def test_chains_from_every_mode():
    """PyMC's NUTS on two modes twelve standard deviations apart, and a value of a binary one."""
    precision = np.linalg.inv([[1.0, 0.5], [0.5, 1.0]])
    heights = [np.log(p) + part.logpdf(at) for (p, part), at in zip(PARTS, AT, strict=True)]

    def function(point):
        """Thousands of times: SciPy would take most of the test."""
        x = point.x
        if point.pattern == (1,):
            value = 7.0 + np.log(0.5) - np.log(2.0 * np.pi) - 0.5 * x @ x
            return Value(value, value - 1.0, -x)
        one, other = x - AT
        square = one @ precision @ one
        logs = np.subtract(heights, [5.5 * np.log1p(square / 9.0), 2.0 * other @ other])
        value = np.logaddexp(*logs)
        slopes = np.array([-11.0 / (9.0 + square) * precision @ one, -4.0 * other])
        return Value(7.0 + value, 6.0 + value, np.exp(logs - value) @ slopes)

    modes = [
        Mode(Point(AT[0], (0,)), np.array([[1.0, 0.5], [0.5, 1.0]]), 6.6),
        Mode(Point(AT[1], (0,)), 0.25 * TWO, 5.8),
        Mode(Point(np.zeros(2), (1,)), TWO, 6.3),
    ]
    judged = {"largest_r_hat": 1.1, "least_effective": 30}
    settings = IntegrationSettings(chains=2, tune=150, draws=300, **judged)
    rng = np.random.default_rng(3)
    points, found, converged = points_by_chains(function, lambda _: 1.0, modes, settings, rng)
    assert converged
    assert abs(found.value - 7.0 - np.log(1.5)) < 4.0 * found.std_error
    assert found.std_error < 0.15
    assert np.exp(points.log_weights).mean() == pytest.approx(np.exp(found.value))
    second = points.weights[(points.pattern == 0) & (points.x[:, 0] > 1.5)].sum()
    assert second == pytest.approx(0.2, abs=0.04)
    np.testing.assert_allclose(points.log_evidence, points.log_target - 1.0)


def test_a_mode_without_draws_near_it_is_missed():
    """Twelve standard deviations away, with and without a share of the mass."""
    x = np.random.default_rng(0).standard_normal((400, 2))
    near, far = Mode(Point(np.zeros(2)), TWO, 0.0), Mode(Point(np.full(2, 9.0)), TWO, -1.0)
    few, more = (
        WeightedPoints.of((), z, *[z[:, 0]] * 4) for z in (x, np.concatenate([x, x + 9.0]))
    )
    assert not misses([near], few)
    assert misses([near, far], few)
    assert not misses([near, far._replace(log_mass=-6.0)], few)
    assert not misses([near, far], more)


def exact_points(ratios, entries=None, own=0.0, f=None):
    """Points with these log ratios of exact evidences to EP's, as often as `entries` says."""
    n = len(ratios)
    f = np.zeros((n, 1, 1)) if f is None else f
    points = [Point(np.array([float(u)])) for u in range(n)]
    found = [DrawsWithEvidence(0.0, own, 1.0, draws) for draws in f]
    return ExactPoints(np.arange(n) if entries is None else entries, points, ratios, found)


def corrections(copies, sd, own):
    """400 runs of points as often as `copies` says, with log-normal ratios of mean one."""
    rng, entries = np.random.default_rng(0), np.repeat(np.arange(len(copies)), copies)
    ratios = sd * rng.standard_normal((400, len(copies))) - 0.5 * sd**2
    made = [exact_points(ratio, entries, own).correction() for ratio in ratios]
    return np.array([[c.value, c.std_error] for c in made]).T


@pytest.mark.parametrize("copies", [[1] * 256, [16] * 16, [64] * 4, [100] + [4] * 39])
def test_copies_of_a_point_share_one_error(copies):
    """The root mean square of the standard errors is the standard deviation over 400 runs."""
    values, errors = corrections(copies, 0.3, 0.0)
    # The standard deviation of 400 runs has a relative error of 4 %, the errors one of 3 % at four
    # points: five of these together. The error that counts copies is wrong by a factor of four.
    assert np.sqrt(np.mean(errors**2)) / values.std() == pytest.approx(1.0, abs=0.25)


def test_no_error_is_less_than_that_of_the_single_points():
    """Two points whose ratios agree by chance."""
    values, errors = corrections([8, 8], 0.1, 0.1)
    assert errors.min() > 0.97 * 0.1 / np.sqrt(2.0)
    assert values.std() == pytest.approx(0.1 / np.sqrt(2.0), rel=0.15)


def test_each_draw_has_f_of_its_own():
    """A point that takes nearly all draws: those that lack are made there."""
    f = 10.0 * np.arange(4)[:, None, None] + [[0.0], [1e-3]]
    exact, asked = exact_points(np.array([0.0, 5.0, 0.0, 0.0]), f=f), {}

    def more(points, counts):
        asked.update({int(p.x[0]): n for p, n in zip(points, counts, strict=True)})
        return [10.0 * u + 1.0 + np.arange(n)[:, None] / n for u, n in asked.items()]

    equal = exact.equal_draws(2, 50, more, np.random.default_rng(0))
    assert np.unique(equal.f).size == 100
    np.testing.assert_array_equal(equal.f[..., 0] // 10, equal.point)
    wanted = np.bincount(equal.point.ravel(), minlength=4)
    assert asked == {u: n - 2 for u, n in enumerate(wanted) if n > 2}


def test_chains_of_few_points_look_alike_and_count_them():
    """R-hat is that of independent draws, and the error of a mean that of the different points."""
    means, errors, r_hats = [], [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.standard_normal(256))
        exact = exact_points(np.zeros(256), f=np.zeros((256, 16, 1)))
        found = x[exact.equal_draws(4, 1000, lambda points, counts: [], rng).point]
        r_hats.append(float(array_stats.rhat(found, chain_axis=0, draw_axis=1)))
        errors.append(float(array_stats.mcse(found, chain_axis=0, draw_axis=1, method="mean")))
        means.append(found.mean())
    # Chains by chance alone: 1.015 to 1.05.
    assert max(r_hats) < 1.01
    # A relative error of 5 % of the deviation of 200 means, and errors that vary by 10 %.
    assert np.sqrt(np.mean(np.square(errors))) / np.std(means) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(("sd", "said"), [(0.3, False), (1.3, True)])
def test_exact_evidences_that_are_poor_are_said_to_be(sd, said):
    """Log-normal ratios have a relative ESS of exp(-sd^2): .91, and .18 with a warning."""
    exact = exact_points(sd * ndtri((np.arange(400) + 0.5) / 400))
    # The weights by EP's evidence are good.
    known = Estimate(0.0, 0.01, 0.9, 0.1)
    equal = WeightedPoints(np.zeros((1, 1)), *[np.zeros(1, int), [()], *[np.zeros(1)] * 3, [0]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of(Integral(equal, known, IMPORTANCE, True, 1), exact, stacklevel=1)
    assert [x.category for x in caught] == [sg.IntegrationWarning] * said
    assert all("far from the exact one" in str(x.message) for x in caught)


@pytest.mark.parametrize(("error", "said"), [(0.11, False), (1.9, True)])
def test_draws_of_a_point_are_warned_of_by_the_share_that_their_law_is_off(error, said):
    """Resampled from N weighted ones draws are off by Var(w) / N, the squared error.

    .11 nats are those of 1,000 people with ten labels each, whose scale is right to .002 of the
    mean; 1.9 of the 1,921 areas of New York, by 128 draws a point.
    """
    each = Estimate(0.0, error, 0.1, 0.5)
    exact = SimpleNamespace(
        points=[None] * 64, found=[each] * 64, correction=lambda: Estimate(0.0, 0.02, 0.9, 0.1)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of(SimpleNamespace(accepted=True), exact, 1)
    assert any("very unequal" in str(x.message) for x in caught) == said
