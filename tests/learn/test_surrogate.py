"""The surrogate of the log evidence, draws from it, and their weights."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import expit, log_expit

from pymc_skewgp._learn.averaging import surrogate as module
from pymc_skewgp._learn.averaging.problem import Mode
from pymc_skewgp._learn.averaging.settings import (
    AnnealingSettings,
    StudentMixture,
    SurrogateSettings,
    annealed,
)
from pymc_skewgp._learn.averaging.surrogate import (
    Kernel,
    KernelChoice,
    Known,
    SmoothTarget,
    Surrogate,
    Warp,
    points_by_surrogate,
)
from pymc_skewgp._learn.coordinates import Point, Value, coordinates_of
from pymc_skewgp._learn.objective import CompiledLogPrior

RNG = np.random.default_rng(3)
PRIOR_SD = 1.5


class CutOff:
    """Coordinates like log lengthscales of inputs that do not matter: cut off below only.

    log evidence = sum_j log expit(4 (x_j + c_j)), prior N(0, 1.5^2).
    """

    def __init__(self, d, rng):
        self.c = rng.uniform(-1.0, 1.0, d)
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


def covariance_of_observations(kernel, x, step=1e-4):
    """Of values and slopes, by differences of the kernel alone."""

    def k(a, b):
        p, q = (kernel.warp(z)[0] / kernel.length for z in (a, b))
        return np.exp(-0.5 * np.square(p[:, None] - q[None]).sum(axis=2))

    shifts = step * np.eye(x.shape[1])
    sides = [[x + s, x - s] for s in shifts]
    rows = [[k(x, x), *((k(x, u) - k(x, v)) / (2 * step) for u, v in sides)]]
    for a, b in sides:
        first = (k(a, x) - k(b, x)) / (2 * step)
        rest = [(k(a, u) - k(a, v) - k(b, u) + k(b, v)) / (4 * step**2) for u, v in sides]
        rows.append([first, *rest])
    return np.block(rows)


@pytest.mark.parametrize("bend", [0.3, np.inf])
def test_surrogate_goes_through_values_and_slopes(bend, monkeypatch):
    """Against the dense system by differences of the kernel, solved to the end."""
    monkeypatch.setattr(module, "_TOLERANCE", 1e-9)
    kernel = Kernel(Warp(np.full(2, bend), np.ones(2)), np.zeros(2), 1.5)
    x = RNG.normal(size=(6, 2))
    value, gradient = -np.square(x - 0.5).sum(axis=1), -2.0 * (x - 0.5)
    surrogate = Surrogate(Known(x, value, gradient), kernel)
    new = RNG.normal(size=(5, 2))
    found, slope = surrogate(new)
    every = np.concatenate([x, new])
    full = covariance_of_observations(kernel, every)
    values, d, n = np.arange(6), 2, len(every)
    known = np.concatenate([values + k * n for k in range(d + 1)])
    level = np.quantile(value, 0.1)
    # The noise is that of the module: a ten thousandth, of slopes in units as well.
    p_slope = kernel.warp(x)[1] / kernel.length
    noise = 1e-4 * np.concatenate([np.ones(6), *(1.0 + p_slope.T**2)])
    noise *= np.tile(1.0 + ((value.max() - value) / 15.0) ** 2, 3)
    data = np.concatenate([value - level, *gradient.T])
    weights = np.linalg.solve(full[np.ix_(known, known)] + np.diag(noise), data)
    expected = level + full[6:n, known] @ weights
    # Differences with steps of 1e-4 are good to 1e-8, over the noise of 1e-4.
    np.testing.assert_allclose(found, expected, atol=1e-3)
    for j in range(2):
        up, down = (surrogate(new + s * 1e-5 * np.eye(2)[j])[0] for s in (1, -1))
        np.testing.assert_allclose(slope[:, j], (up - down) / 2e-5, rtol=1e-5, atol=1e-6)


def test_choice_of_the_kernel_is_that_of_the_marginal_likelihood():
    """Of all candidates, with the scale at its maximum, by the dense covariance."""
    x = RNG.normal(size=(8, 2))
    value, gradient = np.sin(x).sum(axis=1), np.cos(x)
    choice = KernelChoice(Known(x, value, gradient), [(np.arange(2), True)])
    level = np.quantile(value, 0.1)
    data = np.concatenate([value - level, *gradient.T])

    def fit(kernel):
        slope = kernel.warp(x)[1] / kernel.length
        noise = 1e-4 * np.concatenate([np.ones(8), *(1.0 + slope.T**2)])
        cov = covariance_of_observations(kernel, x) + np.diag(noise)
        squared = data @ np.linalg.solve(cov, data) / data.size
        return -0.5 * (data.size * np.log(squared) + np.linalg.slogdet(cov)[1])

    expected = np.array([fit(kernel) for kernel in choice._kernels])
    np.testing.assert_allclose(choice._totals, expected, rtol=1e-3, atol=0.05)


def test_slope_of_a_mixture():
    chols = np.array([[[1.0, 0.0], [0.5, 0.8]], np.diag([0.3, 2.0])])
    mixture = StudentMixture(np.array([0.3, 0.7]), RNG.normal(size=(2, 2)), chols, 5.0)
    x = RNG.normal(size=(7, 2))
    value, slope = mixture.slope(x)
    np.testing.assert_allclose(value, mixture.log_density(x), rtol=1e-12)
    for j in range(2):
        step = 1e-6 * np.eye(2)[j]
        difference = (mixture.log_density(x + step) - mixture.log_density(x - step)) / 2e-6
        np.testing.assert_allclose(slope[:, j], difference, rtol=1e-6, atol=1e-8)


def test_annealed_draws():
    """Integral and means by quadrature, from a mixture that lies elsewhere."""
    cut = CutOff(6, np.random.default_rng(0))
    proposal = StudentMixture(np.ones(1), np.full((1, 6), -1.0), np.eye(6)[None], 6.0)
    rng = np.random.default_rng(1)
    found = annealed(cut.both, proposal, 16, 64, AnnealingSettings(), rng)
    ratio = np.exp(found.log_integral - cut.log_integral)
    error = ratio.std(ddof=1) / 4.0
    # Four standard errors with 15 degrees of freedom: a false alarm in 1000.
    assert abs(ratio.mean() - 1.0) < 4.0 * error < 0.4
    # The groups are independent: six coordinates, four errors each, an alarm in 150.
    means = found.x.mean(axis=1)
    errors = means.std(axis=0, ddof=1) / 4.0
    assert (np.abs(means.mean(axis=0) - cut.mean) < 4.0 * errors).all()
    np.testing.assert_allclose(found.log_density.ravel(), cut.both(found.x.reshape(-1, 6))[0])


def test_many_coordinates():
    """18 that a mixture has no chance with: relative ESS, integral and means."""
    cut = CutOff(18, np.random.default_rng(2))
    found = points_by_surrogate(
        cut.target(),
        [cut.mode()],
        100,
        SurrogateSettings(),
        np.random.default_rng(3),
        lambda *_: None,
    ).points
    estimate = found.estimate()
    assert estimate.relative_ess > 0.25
    assert not estimate.heavy_tailed
    # As above.
    assert abs(estimate.value - cut.log_integral) < 4.0 * estimate.std_error < 0.5
    # 100 effective draws of deviations near 1.2: four errors are .48.
    np.testing.assert_allclose(found.weights @ found.x, cut.mean, atol=0.48)


def test_points_without_any_weight():
    """The evidence is known at the points of the surrogate, and nowhere else: no estimate."""
    cut = CutOff(3, np.random.default_rng(2))
    target = cut.target()._replace(
        values=lambda points: (np.full(len(points), -np.inf), np.full(len(points), -np.inf))
    )
    settings = SurrogateSettings(most_points=1, cloud=8, final_cloud=8)
    rng = np.random.default_rng(3)
    found = points_by_surrogate(target, [cut.mode()], 10, settings, rng, lambda *_: None).points
    estimate = found.estimate()
    assert estimate.value == -np.inf
    assert estimate.std_error == np.inf
    assert estimate.relative_ess == 0.0
    assert estimate.heavy_tailed


def test_slopes_that_are_not_finite_are_left_out():
    """One in three points has a value and no slope: the integral is as right as without them."""
    cut = CutOff(3, np.random.default_rng(2))
    target = cut.target()
    count = 0

    def function(point):
        nonlocal count
        count += 1
        found = target.function(point)
        return (
            found._replace(gradient=np.full_like(found.gradient, np.inf))
            if count % 3 == 2
            else found
        )

    found = points_by_surrogate(
        target._replace(function=function),
        [cut.mode()],
        100,
        SurrogateSettings(most_points=1),
        np.random.default_rng(3),
        lambda *_: None,
    ).points
    estimate = found.estimate()
    assert estimate.relative_ess > 0.5
    # Four standard errors with 15 degrees of freedom: a false alarm in 1000, the seed is fixed.
    assert abs(estimate.value - cut.log_integral) < 4.0 * estimate.std_error < 0.5


def test_log_prior_of_rows_where_a_parameter_is_impossible():
    """A scale that is 0 in double precision at one row: the others keep their values."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        pm.Normal("x", 0.0, scale, shape=2)
    log_prior = model.logp(sum=True)
    coordinates, _ = coordinates_of(model, [log_prior])
    prior = CompiledLogPrior(coordinates, log_prior)
    x = np.array([[0.3, 0.1, -0.4], [-900.0, 0.2, 0.1], [-0.5, 1.0, 0.0]])
    value, gradient = prior.at_rows(x, ())
    np.testing.assert_array_equal(prior.values_at_rows(x, ()), value)
    assert value[1] == -np.inf
    s, f = np.exp(x[[0, 2], 0]), x[[0, 2], 1:]
    of_f = stats.norm(0, s[:, None]).logpdf(f).sum(axis=1)
    expected = stats.halfnorm.logpdf(s) + np.log(s) + of_f
    np.testing.assert_allclose(value[[0, 2]], expected, rtol=1e-10)
    in_f = -f / s[:, None] ** 2
    in_log_s = 1.0 - s**2 - 2.0 + (f**2).sum(axis=1) / s**2
    np.testing.assert_allclose(gradient[[0, 2]], np.column_stack([in_log_s, in_f]), rtol=1e-10)


def test_evidence_that_is_constant():
    """Nothing is learnt: the integral is that of the prior."""
    cut = CutOff(6, np.random.default_rng(4))
    cut.log_evidence = lambda x: (np.full(len(x), -3.0), np.zeros_like(x))
    prior = Mode(Point(np.zeros(6)), PRIOR_SD**2 * np.eye(6), -3.0)
    rng = np.random.default_rng(5)
    found = points_by_surrogate(
        cut.target(), [prior], 64, SurrogateSettings(), rng, lambda *_: None
    ).points.estimate()
    # Four standard errors with 15 degrees of freedom: a false alarm in 1000.
    assert abs(found.value + 3.0) < 4.0 * found.std_error < 0.2
    assert found.relative_ess > 0.9
