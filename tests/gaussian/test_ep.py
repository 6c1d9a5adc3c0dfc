"""Expectation propagation: exact where it must be, at its fixed point, close to the truth.

In many factorisations, and in few (`dense_ep`), with the evidence's gradient.
"""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from oracles import brute_log_prob, equicorrelated_cov, finite_difference
from scipy.special import expit, gammaln

from pymc_skewgp._errors import EPConvergenceWarning
from pymc_skewgp._gaussian.covariance import DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.ep import ep_gradient, fit_ep, fit_factors, sequential_sites
from pymc_skewgp._gaussian.ep_dense import dense_ep, ep_with_gradient
from pymc_skewgp._gaussian.linalg import AndersonMixing
from pymc_skewgp._gaussian.tilted import Intervals, SiteFactors
from pymc_skewgp._gaussian.univariate import truncated_moments


def random_problem(seed, n=5):
    """Rows in turn: one limit, two, an upper one, one so far away that its site is weak, none."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n, n))
    cov = factor @ factor.T / n + 0.3 * np.eye(n)
    lower, upper = rng.normal(-0.5, 1.0, n), np.full(n, np.inf)
    upper[1::5] = lower[1::5] + 0.7
    lower[2::5], upper[2::5] = -np.inf, 0.3
    lower[3::5] = -7.0
    lower[4::5] = -np.inf
    return cov, np.array([lower, upper])


def cavities(result):
    """Mean and standard deviation of the Gaussian without each site."""
    variance = 1.0 / (1.0 / result.variance - result.tau)
    return variance * (result.mean / result.variance - result.nu), np.sqrt(variance)


@pytest.mark.parametrize("seed", range(4))
def test_fixed_point(seed):
    """Tilted moments equal the Gaussian's marginals: the definition of the fixed point."""
    cov, (lower, upper) = random_problem(seed)
    result = fit_ep(DenseCovariance(cov), lower, upper, tol=1e-10)
    assert result.residual < 1e-10
    centre, sd = cavities(result)
    _, shift, spread = truncated_moments((lower - centre) / sd, (upper - centre) / sd)
    # Cavities are recovered with a condition number of about tau / cavity precision < 1e4 here.
    np.testing.assert_allclose(centre + sd * shift, result.mean, atol=1e-8)
    np.testing.assert_allclose(sd**2 * spread, result.variance, rtol=1e-7)
    # The Gaussian is the one that the sites make.
    product = DenseCovariance(cov).site_product(result.tau, result.nu)
    np.testing.assert_allclose(product.mean, result.mean, atol=1e-12)


@pytest.mark.parametrize("scale", [30.0, 1000.0])
def test_acceleration_leaves_the_fixed_point_and_half_the_sweeps(scale, monkeypatch):
    """Against the damped iteration alone, where classes are separable."""
    matrix, limits = smooth_problem(120, scale, "separable")
    cov, positive = DenseCovariance(matrix), Intervals(*limits)
    fast = fit_factors(cov, positive, tol=1e-6)
    monkeypatch.setattr(AndersonMixing, "__call__", lambda self, point, value, scale: value)
    plain = fit_factors(cov, positive, tol=1e-6)
    assert fast.residual < 1e-6
    assert plain.residual < 1e-6
    assert fast.n_sweeps <= 0.55 * plain.n_sweeps
    # Either is within 1e-6 / (1 - its rate of .9) of the fixed point; the evidence by its square.
    np.testing.assert_allclose(fast.mean, plain.mean, rtol=1e-4)
    assert fast.log_prob == pytest.approx(plain.log_prob, abs=1e-8)


def alternating_signs(spacing):
    """Of a smooth function at three points, and its covariance there with these signs."""
    x, sign = spacing * np.arange(3), np.array([1.0, -1.0, 1.0])
    return sign * np.exp(-0.5 * (x - x[:, None]) ** 2) * sign[:, None]


def log_prob_of_alternating_signs(spacing):
    """1/8 + (sum of asin rho) / (4 pi), with 60 digits: nearly all of them cancel."""
    with mpmath.workdps(60):
        near, far = (mpmath.exp(-0.5 * (k * mpmath.mpf(spacing)) ** 2) for k in (1, 2))
        angles = -2 * mpmath.asin(near) + mpmath.asin(far)
        return float(mpmath.log(mpmath.mpf(1) / 8 + angles / (4 * mpmath.pi)))


@pytest.mark.parametrize("low_rank", [False, True])
@pytest.mark.parametrize("spacing", [0.1, 0.01, 0.001])
def test_signs_that_hardly_occur_together(spacing, low_rank):
    """All sites at once took 25 to 200 sweeps, as round-off would have it, or did not converge."""
    matrix = alternating_signs(spacing)
    cov = DenseCovariance(matrix)
    if low_rank:  # with rows of another kind, as pseudo-points stand before labels
        factor = np.vstack([np.linalg.cholesky(matrix), np.full((9, 3), 0.1)])
        cov = LowRankCovariance(np.append(np.zeros(3), np.ones(9)), factor)
    limits = np.zeros(cov.size), np.full(cov.size, np.inf)
    result = fit_ep(cov, *limits)
    assert result.residual < 1e-3
    assert result.n_sweeps <= 60
    if not low_rank:
        # EP's own error is .005 nat at each spacing; round-off may change the last by .2.
        assert result.log_prob == pytest.approx(log_prob_of_alternating_signs(spacing), abs=0.02)


def test_one_by_one_is_the_same_fixed_point():
    """Of problems that all sites at once solve, unbounded rows and two-sided limits among them."""
    for seed in range(3):
        cov, limits = random_problem(seed, n=75)
        found = sequential_sites(DenseCovariance(cov), *limits, 1e-9)
        at_once = fit_factors(DenseCovariance(cov), Intervals(*limits), tol=1e-11)
        # Either is within its residual over 1 less the rate of its iteration, at most .9.
        np.testing.assert_allclose(found.tau, at_once.tau, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.nu, at_once.nu, rtol=1e-7, atol=1e-9)
        assert not found.tau[4::5].any()
        assert not found.nu[4::5].any()


def test_too_few_sweeps_are_reported():
    cov, limits = smooth_problem(60, 1000.0, "noisy")
    with pytest.warns(EPConvergenceWarning, match="1 sweeps with residual"):
        result = fit_ep(DenseCovariance(cov), *limits, max_sweeps=1)
    assert result.n_sweeps == 1
    assert result.residual > 1e-3
    assert np.isfinite(result.log_prob)


def test_sites_of_a_similar_problem_shorten_the_way():
    cov, limits = random_problem(1, n=30)
    cold = fit_ep(DenseCovariance(cov), *limits, tol=1e-8)
    near = fit_ep(DenseCovariance(1.1 * cov), *limits, tol=1e-8)
    warm = fit_ep(DenseCovariance(cov), *limits, tol=1e-8, start=near)
    assert warm.n_sweeps < cold.n_sweeps
    # One fixed point, each side of it within its residual of 1e-8.
    np.testing.assert_allclose(warm.mean, cold.mean, atol=1e-7)
    assert warm.log_prob == pytest.approx(cold.log_prob, abs=1e-10)
    same = fit_ep(DenseCovariance(cov), *limits, tol=1e-7, start=cold)
    assert same.n_sweeps == 1


def test_one_by_one_gives_up_where_round_off_leaves_nothing():
    """Slabs that alternate, of a smooth function: a factorisation fails, or moments overflow."""
    x = 0.1 * np.arange(4)
    cov = DenseCovariance(np.exp(-0.5 * ((x - x[:, None]) / 3.0) ** 2) + 1e-8 * np.eye(4))
    lower = np.where(np.arange(4) % 2, -0.1, 0.1)
    assert sequential_sites(cov, lower, lower + 1e-3, 0.1) is None
    with np.errstate(all="ignore"), pytest.warns(EPConvergenceWarning, match="after 200 sweeps"):
        fit_ep(cov, lower, lower + 1e-3)


def test_rows_that_repeat_move_together():
    """One by one they would be the fixed point of another problem, with a row of each kind."""
    rng = np.random.default_rng(10192)
    noise, factor = np.ones(12), 1e3 * rng.normal(size=(12, 4))
    cov = LowRankCovariance(noise, factor, rng.integers(10, 10**5, 12).astype(float))
    lower, upper = np.where(rng.random(12) < 0.5, 0.0, -np.inf), np.full(12, np.inf)
    upper[lower < 0] = 0.0
    options = {"tol": 1e-6, "max_sweeps": 1000, "count": cov.count}
    result = fit_ep(cov, lower, upper, **options)
    assert result.residual < 1e-6
    assert result.log_prob == pytest.approx(
        fit_factors(cov, Intervals(lower, upper), **options).log_prob, abs=1e-9
    )


def smooth_problem(n, variance, kind, seed=0):
    """Rows under an RBF kernel: labels with noise, separable ones, or ordered categories."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    f = x[:, 0] + np.sin(2.0 * x[:, 1])
    cov = variance * np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(-1)) + np.eye(n)
    if kind == "ordered":
        edges = np.array([-np.inf, -1.0, 0.0, 1.0, np.inf]) * 0.5 * np.sqrt(variance)
        category = np.digitize(f + 0.5 * rng.normal(size=n), [-1.0, 0.0, 1.0])
        return cov, np.array([edges[category], edges[category + 1]])
    positive = f + (0.0 if kind == "separable" else 0.5) * rng.normal(size=n) > 0
    return cov, np.array([np.where(positive, 0.0, -np.inf), np.where(positive, np.inf, 0.0)])


def assert_same(found, cov, limits, tol):
    expected = fit_ep(DenseCovariance(cov), *limits, tol=tol, max_sweeps=1000)
    assert found.residual < tol
    assert found.log_prob == pytest.approx(expected.log_prob, rel=1e-9, abs=1e-8)
    # Both are off by their residual over 1 less the rate of the iteration, at most .95 here.
    sd = np.sqrt(expected.variance)
    np.testing.assert_allclose(found.mean / sd, expected.mean / sd, atol=20.0 * tol)
    np.testing.assert_allclose(found.variance / sd**2, 1.0, atol=20.0 * tol)
    share = np.sqrt(cov.diagonal())
    np.testing.assert_allclose(found.weights * share, expected.weights * share, atol=1e-5)


@pytest.mark.parametrize("variance", [4.0, 1000.0])
@pytest.mark.parametrize("kind", ["noisy", "separable", "ordered"])
def test_the_fixed_point_in_fewer_sweeps(kind, variance):
    cov, limits = smooth_problem(90, variance, kind)
    found = dense_ep(cov, limits, tol=1e-8).ep
    assert_same(found, cov, limits, 1e-8)
    plain = fit_factors(DenseCovariance(cov), Intervals(*limits), tol=1e-8)
    assert found.n_sweeps <= 0.6 * plain.n_sweeps


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_every_kind(seed):
    cov, limits = random_problem(seed)
    found = dense_ep(cov, limits, tol=1e-10).ep
    assert_same(found, cov, limits, 1e-10)
    assert found.tau[4] == found.nu[4] == 0.0
    part = slice(1, 4)
    found = dense_ep(cov[part, part], limits[:, part], tol=1e-10).ep
    # EP is off by hundredths of a nat, here by less than .01.
    truth = brute_log_prob(*limits[:, part], cov[part, part])
    assert found.log_prob == pytest.approx(truth, abs=0.02)


def dense_gradient(cov, limits):
    return dense_ep(cov, limits, tol=1e-11).gradient(limits)


def plain_gradient(cov, limits):
    made = DenseCovariance(cov)
    return ep_gradient(made, fit_ep(made, *limits, tol=1e-11), *limits)


def low_rank_gradient(cov, limits):
    values, vectors = np.linalg.eigh(cov)
    least = 0.5 * values[0]
    made = LowRankCovariance(np.full(len(cov), least), vectors * np.sqrt(values - least))
    return ep_gradient(made, fit_ep(made, *limits, tol=1e-11), *limits)


@pytest.mark.parametrize("gradient_of", [dense_gradient, plain_gradient, low_rank_gradient])
@pytest.mark.parametrize("seed", range(2))
def test_gradient_is_that_of_the_value(seed, gradient_of):
    cov, limits = random_problem(seed)
    gradient = gradient_of(cov, limits)

    def value(direction, step):
        return dense_ep(cov + direction, limits + step, tol=1e-11).ep.log_prob

    # Fourth-order differences with h = 1e-3: 1e-12, and EP's own round-off, 1e-12, over h.
    rng = np.random.default_rng(seed + 100)
    for _ in range(3):
        direction = 0.1 * rng.normal(size=cov.shape)
        direction += direction.T
        slope = finite_difference(lambda t, d=direction: value(t * d, 0.0), 0.0)
        assert np.sum(gradient.cov * direction) == pytest.approx(float(slope), abs=1e-8)
        step = rng.normal(size=limits.shape)
        slope = finite_difference(lambda t, s=step: value(0.0, t * s), 0.0)
        by_limits = np.sum(gradient.lower * step[0] + gradient.upper * step[1])
        assert by_limits == pytest.approx(float(slope), abs=1e-8)
    np.testing.assert_array_equal(gradient.cov, gradient.cov.T)
    assert gradient.lower[4] == gradient.upper[4] == 0.0


def test_results_do_not_share_memory():
    cov, limits = smooth_problem(30, 4.0, "noisy")
    ep, gradient = ep_with_gradient(DenseCovariance(cov), *limits, tol=1e-6)
    results = *gradient, ep.mean, ep.tau, dense_ep(cov, limits, tol=1e-6).covariance
    kept = [x.copy() for x in results]
    dense_ep(2.0 * cov, limits, tol=1e-6)
    for x, y in zip(kept, results, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rows_that_make_the_plain_iteration_oscillate(sign):
    """Without damping the parallel form does so for ever on 70 rows of correlation .8."""
    cov, limits = equicorrelated_cov(70, 0.8), np.array([np.full(70, sign), np.full(70, np.inf)])
    assert_same(dense_ep(cov, limits, tol=1e-6).ep, cov, limits, 1e-6)
    assert fit_ep(DenseCovariance(cov), *limits).n_sweeps < 60


def test_nothing_where_it_makes_no_progress():
    cov, limits = smooth_problem(30, 4.0, "noisy")
    assert dense_ep(cov, limits, tol=1e-8, max_sweeps=2) is None
    assert dense_ep(cov, limits, tol=-1.0) is None
    assert dense_ep(np.where(np.eye(30) > 0, cov, np.nan), limits, tol=1e-6) is None
    indefinite = cov - 40.0 * np.outer(np.ones(30), np.ones(30))
    np.fill_diagonal(indefinite, 1.0)
    assert dense_ep(indefinite, limits, tol=1e-6) is None


# Moments of a Gaussian times p(y | eta): a trapezoid rule against composite rules.


# Mean and deviation of the Gaussian.
GAUSSIANS = [(0.0, 1.0), (1.5, 3.0), (-4.0, 0.3), (2.0, 12.0), (0.3, 0.01)]


def logit(y):
    """Labels, 0 or 1, with P(1) = 1 / (1 + exp(-eta))."""
    return (
        lambda x: -np.logaddexp(0.0, (1.0 - 2.0 * y) * x),
        lambda x: (y - expit(x), -expit(x) * expit(-x)),
    )


def poisson(y):
    """Counts, with mean exp(eta)."""
    return (lambda x: y * x - np.exp(x) - gammaln(y + 1.0), lambda x: (y - np.exp(x), -np.exp(x)))


def student(y, scale, df=4.0):
    """A value with noise of heavy tails, without the constant."""

    def slopes(x):
        off = (y - x) / scale
        below = df + off**2
        second = (df + 1.0) * (off**2 - df) / below**2 / scale**2
        return (df + 1.0) * off / below / scale, second

    return (lambda x: -0.5 * (df + 1.0) * np.log1p(((y - x) / scale) ** 2 / df), slopes)


SITES = {
    "logit": logit(1.0),
    "no counts": poisson(0.0),
    "few counts": poisson(3.0),
    "many counts": poisson(1e4),
    "student": student(0.7, 0.3),
    "an outlier": student(9.0, 0.5),
    "little noise": student(1.0, 1e-3),
}


def exact(log_prob, mean, sd, peak):
    """Log mass, mean and variance by Gauss-Legendre rules on panels graded around the peak."""
    widths = 1e-4 * 2.0 ** np.arange(30)
    ends = np.concatenate(
        [mean + sd * np.linspace(-12, 12, 49), [peak], peak - widths, peak + widths]
    )
    ends = np.unique(ends[np.abs(ends - mean) <= 12 * sd])
    x, w = np.polynomial.legendre.leggauss(30)
    half = 0.5 * np.diff(ends)[:, None]
    at, mass = (ends[:-1, None] + half * (1.0 + x)).ravel(), (half * w).ravel()
    logs = log_prob(at) - 0.5 * ((at - mean) / sd) ** 2
    mass = mass * np.exp(logs - logs.max()) / sd
    total = mass.sum()
    first = (at - mean) @ mass / total
    second = (at - mean - first) ** 2 @ mass / total
    return np.log(total / np.sqrt(2 * np.pi)) + logs.max(), first / sd, second / sd**2


PEAKS = {"few counts": np.log(3.0), "many counts": np.log(1e4), "student": 0.7, "an outlier": 9.0}


@pytest.mark.parametrize("name", SITES)
def test_moments_agree_with_a_composite_rule(name):
    log_prob, slopes = SITES[name]
    means, sds = np.array(GAUSSIANS).T
    if name == "many counts":  # the oracle looks within twelve deviations
        means, sds = np.array([[9.0, 0.3], [8.0, 3.0], [0.0, 3.0]]).T
    factors = SiteFactors(log_prob, slopes, np.zeros(means.size))
    found = factors.tilted(means, sds)
    peak = PEAKS.get(name, 1.0)
    wanted = np.array([exact(log_prob, *g, peak) for g in zip(means, sds, strict=True)]).T
    # The rule ends where halving its step changed the moments by 1e-4, whose square is the error
    # that is left; ten times that for the variance under heavy tails.
    np.testing.assert_allclose(found.log_mass, wanted[0], atol=1e-8)
    np.testing.assert_allclose(found.shift, wanted[1], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.spread, np.minimum(wanted[2], 1.0), rtol=1e-7)


@pytest.mark.parametrize("name", SITES)
def test_moments_by_the_nodes_of_the_last_question(name):
    log_prob, slopes = SITES[name]
    asked = []

    def counted(x):
        asked.append(x.shape)
        return log_prob(x)

    factors = SiteFactors(counted, slopes, np.zeros(1))
    ends = [(8.0, 3.0), (9.0, 0.3)] if name == "many counts" else GAUSSIANS[:4]
    silent = 0
    for (m, s), (to_m, to_s) in pairwise(ends):
        for t in np.linspace(0.0, 1.0, 13):
            mean, sd = m + t * (to_m - m), s * (to_s / s) ** t
            before = len(asked)
            if t == 0.5:  # by what was known of others
                known, factors = factors.known, SiteFactors(counted, slopes, np.zeros(1))
                factors.known = known
            found = factors.tilted(np.array([mean]), np.array([sd]))
            silent += len(asked) == before
            log_mass, shift, spread = exact(log_prob, mean, sd, PEAKS.get(name, 1.0))
            # Ten times the square of the change that ends the rule, a hundred for the variance of
            # heavy tails; nodes of another Gaussian are as good as new ones.
            np.testing.assert_allclose(found.log_mass, log_mass, atol=1e-7)
            np.testing.assert_allclose(found.shift, shift, rtol=1e-7, atol=1e-7)
            np.testing.assert_allclose(found.spread, np.minimum(spread, 1.0), rtol=1e-6)
    assert silent >= 7


def test_a_site_that_says_nothing_leaves_the_gaussian_as_it_is():
    zero = np.zeros_like
    factors = SiteFactors(zero, lambda x: (zero(x), zero(x)), np.array([1.0, -2.0]))
    found = factors.tilted(np.array([0.5, 1e3]), np.array([2.0, 1e-3]))
    np.testing.assert_allclose(found.log_mass, 0.0, atol=1e-8)
    np.testing.assert_allclose(found.shift, 0.0, atol=1e-8)
    np.testing.assert_allclose(found.spread, 1.0, rtol=1e-7)
