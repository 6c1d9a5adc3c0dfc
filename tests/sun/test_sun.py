"""The unified skew-normal against R's `sn`, SciPy's special cases and brute quadrature."""

import numpy as np
import pytest
from oracles import (
    SUN_EXAMPLE_COV,
    SUN_EXAMPLE_LOGPDF,
    SUN_EXAMPLE_MEAN,
    SUN_EXAMPLE_PARAMETERS,
    SUN_EXAMPLE_POINT,
    brute_log_prob,
)
from scipy import stats
from scipy.special import log_ndtr, ndtr

from pymc_skewgp import SUN, NotPositiveDefiniteError
from pymc_skewgp._sun.parameters import sun_draws

nan, inf = np.nan, np.inf


def example():
    return SUN(**SUN_EXAMPLE_PARAMETERS)


def random_sun(p, s, seed, spread=1.0):
    """A SUN whose scale is far from a correlation matrix: variances from .3 to 5 or so."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p + s, p + s))
    joint = root @ root.T / (p + s) + 0.15 * np.eye(p + s)
    units = np.concatenate([rng.uniform(0.7, 1.4, s), spread * rng.uniform(0.6, 2.0, p)])
    joint *= np.outer(units, units)
    return SUN.from_cross_cov(
        rng.normal(size=p), joint[s:, s:], joint[s:, :s], rng.normal(size=s), joint[:s, :s]
    )


def grid(centre, reach, n_nodes=60):
    """Tensor Gauss-Legendre rule of two panels a side on centre +- reach, in len(centre) <= 2 d."""
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    nodes = np.concatenate([(nodes - 1) / 2, (nodes + 1) / 2])
    weights = np.concatenate([weights, weights]) / 2
    axes = [c + r * nodes for c, r in zip(centre, reach, strict=True)]
    scales = [r * weights for r in reach]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    w = np.stack(np.meshgrid(*scales, indexing="ij"), -1).reshape(-1, len(axes)).prod(axis=1)
    return points, w


def reach_of(sun, deviations=9.0):
    """The density is below that of N(mu, scale) over Phi_s(gamma): nothing is left beyond."""
    return deviations * np.sqrt(np.diag(sun.scale))


def pdf(sun, points):
    """Density for s <= 1 without the class: the formula, vectorised (quadrature needs 1e4 points).

    Checked against `SUN.logpdf` in `test_logpdf_by_the_formula`.
    """
    off = points - sun.mu
    solved = np.linalg.solve(sun.scale, off.T).T
    log_normal = np.atleast_1d(stats.multivariate_normal(sun.mu, sun.scale).logpdf(points))
    if sun.n_latent == 0:
        return np.exp(log_normal)
    c, g = sun.cross_cov[:, 0], sun.latent_cov[0, 0]
    left = g - c @ np.linalg.solve(sun.scale, c)
    inside = log_ndtr((sun.truncation[0] + solved @ c) / np.sqrt(left))
    return np.exp(log_normal + inside - log_ndtr(sun.truncation[0] / np.sqrt(g)))


# --- golden values and special cases ------------------------------------------------------------


def test_log_density_of_r_sn():
    assert example().logpdf(SUN_EXAMPLE_POINT) == pytest.approx(SUN_EXAMPLE_LOGPDF, abs=1e-11)
    estimate = example().logpdf_estimate(SUN_EXAMPLE_POINT)
    assert estimate.std_error == 0.0


def test_moments_of_r_sn():
    np.testing.assert_allclose(example().mean(), SUN_EXAMPLE_MEAN, atol=1e-9)
    np.testing.assert_allclose(example().cov(), SUN_EXAMPLE_COV, atol=1e-9)


def test_no_latent_dimension_is_the_normal():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    mu, scale = rng.normal(size=3), root @ root.T + 0.2 * np.eye(3)
    sun = SUN(mu, scale, np.zeros((3, 0)), [], np.zeros((0, 0)))
    normal = stats.multivariate_normal(mu, scale)
    points = rng.normal(size=(5, 3))
    np.testing.assert_allclose(sun.logpdf(points), normal.logpdf(points), atol=1e-12)
    np.testing.assert_array_equal(sun.mean(), mu)
    np.testing.assert_array_equal(sun.cov(), scale)
    np.testing.assert_array_equal(sun.skew(), np.zeros(3))
    low = np.full(3, -inf)
    got = sun.logcdf(points[0])
    exact = brute_log_prob(low, points[0] - mu, scale)
    assert abs(got.value - exact) < 4 * got.std_error + 1e-4
    given = sun.conditional([0], [0.3])
    gain = scale[1:, 0] / scale[0, 0]
    np.testing.assert_allclose(given.mean(), mu[1:] + gain * (0.3 - mu[0]), atol=1e-12)
    assert given.n_latent == 0
    draws = sun.sample(4000, random_seed=1)
    assert np.abs(stats.zscore(draws, axis=0)).max() < 6
    assert (np.abs(draws.mean(0) - mu) < 5 * np.sqrt(np.diag(scale) / 4000)).all()


@pytest.mark.parametrize("shape", [-5.0, -0.7, 0.0, 2.0, 30.0])
@pytest.mark.parametrize("variance", [1.0, 4.0])
def test_one_and_one_is_the_skew_normal(shape, variance):
    sd = np.sqrt(variance)
    delta = shape / np.sqrt(1.0 + shape**2)
    # The latent scale is arbitrary: its square root multiplies C.
    for latent in (1.0, 2.5):
        sun = SUN([0.4], [[variance]], [[delta * np.sqrt(latent)]], [0.0], [[latent]])
        exact = stats.skewnorm(shape, loc=0.4, scale=sd)
        z = np.linspace(-3, 4, 9)
        np.testing.assert_allclose(sun.logpdf(z[:, None]), exact.logpdf(z), rtol=1e-9, atol=1e-11)
        mean, variance_, skew = exact.stats(moments="mvs")
        assert sun.mean()[0] == pytest.approx(mean, abs=1e-12)
        assert sun.cov()[0, 0] == pytest.approx(variance_, abs=1e-12)
        assert sun.skew()[0] == pytest.approx(skew, abs=1e-9)
        # scipy's distribution function is a quadrature good to 1e-8 or so.
        assert np.exp(sun.logcdf([1.0]).value) == pytest.approx(exact.cdf(1.0), abs=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_logpdf_by_the_formula(seed):
    sun = random_sun(2, 1, seed)
    points = np.random.default_rng(seed).normal(size=(6, 2))
    np.testing.assert_allclose(sun.logpdf(points), np.log(pdf(sun, points)), atol=1e-11)


@pytest.mark.parametrize("s", [2, 3])
def test_logpdf_with_more_latent_dimensions(s):
    """Both orthant probabilities by brute quadrature."""
    sun = random_sun(2, s, 10 + s)
    z = np.array([0.2, -0.5])
    solved = np.linalg.solve(sun.scale, sun.cross_cov)
    low = np.full(s, -inf)
    above = brute_log_prob(
        low, sun.truncation + solved.T @ (z - sun.mu), sun.latent_cov - sun.cross_cov.T @ solved
    )
    below = brute_log_prob(low, sun.truncation, sun.latent_cov)
    exact = stats.multivariate_normal(sun.mu, sun.scale).logpdf(z) + above - below
    estimate = sun.logpdf_estimate(z, n_draws=4096)
    # Exact for s = 2; 4 standard errors (and what replicates hide) for s = 3.
    tolerance = 1e-10 if s == 2 else 4 * estimate.std_error + 1e-4
    assert abs(estimate.value - exact) < tolerance
    assert (estimate.std_error == 0.0) == (s == 2)


# --- integrals ----------------------------------------------------------------------------------
# 120 x 120 Gauss-Legendre nodes on +-9 deviations of an analytic density whose sharpest feature is
# some .4 wide: 1e-10 is reached; 1e-8 is asked.


@pytest.mark.parametrize("seed", range(4))
def test_density_integrates_to_one_and_gives_the_moments(seed):
    sun = random_sun(2, 1, seed)
    points, w = grid(sun.mu, reach_of(sun))
    w = w * pdf(sun, points)
    assert w.sum() == pytest.approx(1.0, abs=1e-8)
    mean = w @ points
    off = points - mean
    cov = (off * w[:, None]).T @ off
    np.testing.assert_allclose(sun.mean(), mean, atol=1e-7)
    np.testing.assert_allclose(sun.cov(), cov, atol=1e-7)
    np.testing.assert_allclose(sun.skew(), (w @ off**3) / np.diag(cov) ** 1.5, atol=1e-6)


def test_skewness_with_two_latent_dimensions():
    """One coordinate, density by `logpdf` (exact at s = 2) on 120 nodes."""
    sun = example().marginal([2])
    points, w = grid(sun.mu, reach_of(sun))
    w = w * np.exp(sun.logpdf(points))
    assert w.sum() == pytest.approx(1.0, abs=1e-9)
    off = points[:, 0] - w @ points[:, 0]
    assert sun.skew()[0] == pytest.approx(w @ off**3 / (w @ off**2) ** 1.5, abs=1e-7)
    assert sun.mean()[0] == pytest.approx(SUN_EXAMPLE_MEAN[2], abs=1e-9)


def latent_moments(cov, lower):
    """E[u], cov[u], third central moments of N(0, cov) above `lower`, 3 dimensions, 60^3 nodes."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    sd = np.sqrt(np.diag(cov))
    top = np.maximum(lower, 0.0) + 8.0 * sd
    axes = [lower[i] + (top[i] - lower[i]) * (nodes + 1) / 2 for i in range(3)]
    scales = [(top[i] - lower[i]) * weights / 2 for i in range(3)]
    u = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    w = np.stack(np.meshgrid(*scales, indexing="ij"), -1).reshape(-1, 3).prod(1)
    w = w * np.exp(-0.5 * np.einsum("ij,ji->i", u, np.linalg.solve(cov, u.T)))
    w /= w.sum()
    mean = w @ u
    off = u - mean
    return mean, (off * w[:, None]).T @ off, np.einsum("n,ni,nj,nk->ijk", w, off, off, off)


def test_three_latent_dimensions_against_quadrature():
    """Moments come from 16384 quasi-random draws: errors near 1/16384 of a deviation for the mean;
    the tolerances are 10 times what independent draws would need 1e5 of, .003 to .03."""
    sun = random_sun(2, 3, 0)
    mean, cov, third = latent_moments(sun.latent_cov, -sun.truncation)
    B = np.linalg.solve(sun.latent_cov, sun.cross_cov.T)
    sd = np.sqrt(np.diag(sun.cov()))
    exact_cov = sun.scale - B.T @ (sun.latent_cov - cov) @ B
    np.testing.assert_allclose(sun.mean() / sd, (sun.mu + B.T @ mean) / sd, atol=0.003)
    np.testing.assert_allclose(
        sun.cov() / np.outer(sd, sd), exact_cov / np.outer(sd, sd), atol=0.005
    )
    exact_skew = np.einsum("ijk,ip,jp,kp->p", third, B, B, B) / np.diag(exact_cov) ** 1.5
    np.testing.assert_allclose(sun.skew(), exact_skew, atol=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_marginal_is_the_integral_of_the_joint(seed):
    sun = random_sun(2, 1, seed)
    kept = sun.marginal([1])
    for z in (-0.5, 0.8):
        points, w = grid(sun.mu[:1], reach_of(sun)[:1])
        joint = np.column_stack([points[:, 0], np.full(len(w), z)])
        assert w @ pdf(sun, joint) == pytest.approx(np.exp(kept.logpdf([z])), rel=1e-9)


@pytest.mark.parametrize("idx", [1, [1], slice(1, 2), np.array([False, True, False]), [-2]])
def test_marginal_takes_every_kind_of_index(idx):
    kept = example().marginal(idx)
    assert kept.mu.tolist() == [0.0]
    assert kept.scale.tolist() == [[3.0]]
    np.testing.assert_allclose(kept.skewness, [[0.51, 0.42]])


def test_marginal_keeps_the_order_asked_for():
    swapped = example().marginal([2, 0])
    np.testing.assert_allclose(swapped.mean(), SUN_EXAMPLE_MEAN[[2, 0]], atol=1e-9)
    np.testing.assert_allclose(swapped.cov(), SUN_EXAMPLE_COV[np.ix_([2, 0], [2, 0])], atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("given", [0, 1])
def test_conditional_is_joint_over_marginal(seed, given):
    """On a grid, with the marginal itself by quadrature: no formula of SUN is trusted.

    Nor is the paper's: section 2.1 of arXiv:2005.12987 lacks a factor, and is off by .01 and more.
    """
    sun = random_sun(2, 1, seed, spread=2.0)
    value = sun.mu[given] + 0.7
    rest = 1 - given
    points, w = grid(sun.mu[[rest]], reach_of(sun)[[rest]])
    joint = np.empty((len(w), 2))
    joint[:, given], joint[:, rest] = value, points[:, 0]
    density = pdf(sun, joint)
    conditional = sun.conditional([given], [value])
    got = np.exp(conditional.logpdf(points))
    np.testing.assert_allclose(got, density / (w @ density), atol=1e-9)


def test_conditional_with_two_given_and_two_latent():
    sun = example()
    given = sun.conditional([0, 2], [1.5, 0.5])
    for z in (-1.0, 0.5, 3.0):
        joint = sun.logpdf([1.5, z, 0.5]) - sun.marginal([0, 2]).logpdf([1.5, 0.5])
        assert given.logpdf([z]) == pytest.approx(joint, abs=1e-10)
    # A boolean mask and the order of idx with its values.
    for other in (
        sun.conditional(np.array([True, False, True]), [1.5, 0.5]),
        sun.conditional([2, 0], [0.5, 1.5]),
    ):
        np.testing.assert_allclose(other.mean(), given.mean(), atol=1e-12)
    np.testing.assert_allclose(sun.conditional(0, 1.5).mean().shape, (2,))


@pytest.mark.parametrize("seed", range(3))
def test_affine_by_change_of_variables(seed):
    sun = random_sun(2, 1, seed)
    A, b = np.array([[1.0, -0.5], [0.3, 2.0]]), np.array([0.5, -1.0])
    moved = sun.affine(A, b)
    points = np.random.default_rng(seed).normal(size=(5, 2))
    expected = sun.logpdf(points) - np.log(abs(np.linalg.det(A)))
    np.testing.assert_allclose(moved.logpdf(points @ A.T + b), expected, atol=1e-10)


def test_affine_to_one_dimension():
    """The density of a sum by convolution along a line."""
    sun = random_sun(2, 1, 7)
    total = sun.affine([[1.0, 1.0]], 0.25)
    points, w = grid(sun.mu[:1], 1.3 * reach_of(sun)[:1])
    for t in (-1.0, 1.0):
        joint = np.column_stack([points[:, 0], t - 0.25 - points[:, 0]])
        assert w @ pdf(sun, joint) == pytest.approx(np.exp(total.logpdf([t])), rel=1e-8)


# --- the conjugate update -----------------------------------------------------------------------

W1, Z1, S1 = np.array([[1.0, 0.0]]), np.array([0.3]), np.array([[1.0]])
W2 = np.array([[0.0, -1.0], [0.7, 0.4]])
Z2, S2 = np.array([-0.2, 0.1]), np.array([[1.0, 0.0], [0.0, 2.0]])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("s", [0, 1])
def test_condition_is_prior_times_likelihood(seed, s):
    """One probit row: prior density times Phi, normalised by quadrature; the evidence with it."""
    sun = random_sun(2, s, seed)
    points, w = grid(sun.mu, reach_of(sun))
    noise = np.array([[0.5]])
    likelihood = ndtr((Z1[0] + points @ W1[0]) / np.sqrt(0.5))
    weight = w * pdf(sun, points) * likelihood
    evidence = weight.sum()
    posterior = sun.condition(W1, Z1, noise)
    change = posterior.log_normalizer.value - sun.log_normalizer.value
    assert change == pytest.approx(np.log(evidence), abs=1e-8)
    np.testing.assert_allclose(posterior.mean(), weight @ points / evidence, atol=1e-7)
    off = points - posterior.mean()
    np.testing.assert_allclose(
        posterior.cov(), (off * weight[:, None]).T @ off / evidence, atol=1e-7
    )
    z = np.array([0.4, -0.3])
    expected = np.log(pdf(sun, z[None])[0] * ndtr((Z1[0] + W1[0] @ z) / np.sqrt(0.5)) / evidence)
    assert posterior.logpdf(z) == pytest.approx(expected, abs=1e-8)


def test_condition_with_correlated_noise():
    """Two rows with S not diagonal: Phi_2 of the likelihood by brute quadrature at each node."""
    sun = random_sun(1, 0, 3)
    W, Z = np.array([[1.0], [-0.5]]), np.array([0.2, 0.4])
    S = np.array([[1.0, 0.6], [0.6, 2.0]])
    points, w = grid(sun.mu, reach_of(sun), n_nodes=30)
    low = np.full(2, -inf)
    likelihood = np.exp([brute_log_prob(low, Z + W @ f, S) for f in points])
    weight = w * pdf(sun, points) * likelihood
    posterior = sun.condition(W, Z, S)
    assert posterior.log_normalizer.value == pytest.approx(np.log(weight.sum()), abs=1e-8)
    assert posterior.mean()[0] == pytest.approx(weight @ points[:, 0] / weight.sum(), abs=1e-7)


@pytest.mark.parametrize("s", [0, 2])
def test_conditioning_twice_is_conditioning_once(s):
    sun = random_sun(2, s, 5)
    twice = sun.condition(W1, Z1, S1).condition(W2, Z2, S2)
    noise = np.zeros((3, 3))
    noise[:1, :1], noise[1:, 1:] = S1, S2
    once = sun.condition(np.vstack([W1, W2]), np.concatenate([Z1, Z2]), noise)
    for name in ("mu", "scale", "cross_cov", "truncation", "latent_cov"):
        np.testing.assert_allclose(getattr(twice, name), getattr(once, name), atol=1e-12)


# --- distribution function, draws ---------------------------------------------------------------


@pytest.mark.parametrize(("p", "seed"), [(2, 0), (2, 1), (1, 4)])
def test_logcdf_is_the_integral_of_the_density(p, seed):
    sun = random_sun(p, 1, seed)
    z, lowest = sun.mean() + (0.3 if p == 2 else 0.0), sun.mu - reach_of(sun, 15.0 - 3.0 * p)
    points, w = grid((z + lowest) / 2, (z - lowest) / 2)
    estimate = sun.logcdf(z, n_draws=8192)
    # Three rows: Monte Carlo, 4 standard errors and what replicates hide. Two rows: exact.
    tolerance = 4 * estimate.std_error + 1e-4 if p == 2 else 1e-9
    assert abs(estimate.value - np.log(w @ pdf(sun, points))) < tolerance
    assert (estimate.std_error == 0.0) == (p == 1)


def test_logcdf_at_infinity():
    sun = random_sun(2, 1, 5)
    assert sun.logcdf([inf, inf]).value == pytest.approx(0.0, abs=1e-12)
    assert sun.logcdf([0.0, -inf]).value == -inf
    a, b = sun.logcdf([0.3, inf]), sun.marginal([0]).logcdf([0.3])
    assert a.value == pytest.approx(b.value, abs=1e-9)


DRAWS = {
    "weighted": lambda sun, n, seed: sun.sample(n, random_seed=seed),
    "independent": lambda sun, n, seed: sun_draws(sun.parameters, n, np.random.default_rng(seed)),
}


@pytest.mark.parametrize("how", DRAWS)
@pytest.mark.parametrize(
    ("p", "s", "seed"), [(2, 0, 4), (2, 1, 0), (3, 2, 1), (2, 4, 2), (1, 1, 3)]
)
def test_draws_have_the_moments(p, s, seed, how):
    """20000 draws; mean and covariance to 5 standard errors (6e-7 each), with the error of a
    covariance from its own fourth moments; the skewness to 5 x sqrt(6/20000) x 1.5 = .13, where the
    1.5 allows for tails heavier than the normal's."""
    n, sun = 20000, random_sun(p, s, seed)
    draws = DRAWS[how](sun, n, seed)
    assert draws.shape == (n, p)
    mean, cov = sun.mean(), sun.cov()
    sd = np.sqrt(np.diag(cov))
    assert (np.abs(draws.mean(0) - mean) < 5 * sd / np.sqrt(n)).all()
    off = (draws - mean) / sd
    products = off[:, :, None] * off[:, None, :]
    error = products.std(axis=0) / np.sqrt(n)
    assert (np.abs(products.mean(0) - cov / np.outer(sd, sd)) < 5 * error + 1e-3).all()
    np.testing.assert_allclose((off**3).mean(0), sun.skew(), atol=0.13)


def test_independent_draws_are_independent_of_each_other():
    sun, k = random_sun(2, 2, 1), 4
    rng = np.random.default_rng(2)
    draws = [sun_draws(sun.parameters, k, rng).mean(axis=0) for _ in range(800)]
    exact = sun.cov().diagonal() / k
    # The relative standard error of a variance of 800 is .05: 4.5 of them, 7e-6 each.
    ratio = np.array(draws).var(axis=0, ddof=1) / exact
    assert (np.abs(ratio - 1.0) < 4.5 * 0.05 * 1.05).all()


def test_draws_are_seeded():
    sun = example()
    assert np.array_equal(sun.sample(5, random_seed=1), sun.sample(5, random_seed=1))
    assert not np.array_equal(sun.sample(5, random_seed=1), sun.sample(5, random_seed=2))
    assert sun.sample(1, random_seed=0).shape == (1, 3)


def test_a_nearly_degenerate_variable():
    """Noise-free rows of a posterior: Omega - C Gamma^-1 C' is nearly 0, and draws stay finite."""
    sun = SUN([0.0], [[1.0]], [[1.0 - 1e-9]], [0.0], [[1.0]])
    draws = sun.sample(1000, random_seed=0)
    assert draws.min() > -1e-3  # the half-normal
    assert sun.mean()[0] == pytest.approx(np.sqrt(2 / np.pi), abs=1e-7)
    assert np.isfinite(sun.logpdf([0.5]))


# --- the object ---------------------------------------------------------------------------------


def test_it_cannot_be_changed():
    arrays = {key: value.copy() for key, value in SUN_EXAMPLE_PARAMETERS.items()}
    sun = SUN(**arrays)
    before = sun.logpdf(SUN_EXAMPLE_POINT)
    for array in arrays.values():
        array *= 2.0  # the caller's arrays are not the object's
    assert sun.logpdf(SUN_EXAMPLE_POINT) == before
    for made in (sun, sun.marginal([0, 1]), sun.conditional([0], [1.0]), sun.affine(np.eye(3))):
        for name in ("mu", "scale", "cross_cov", "truncation", "latent_cov"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(made, name)[...] = 0.0
            with pytest.raises(AttributeError):
                setattr(made, name, None)


def test_skewness_and_cross_covariance_are_two_names_of_one_thing():
    sun = example()
    d = np.sqrt(np.diag(sun.scale))
    np.testing.assert_allclose(sun.cross_cov, d[:, None] * SUN_EXAMPLE_PARAMETERS["skewness"])
    np.testing.assert_allclose(sun.skewness, SUN_EXAMPLE_PARAMETERS["skewness"], rtol=1e-15)
    again = SUN.from_cross_cov(*sun.parameters)
    assert again.logpdf(SUN_EXAMPLE_POINT) == pytest.approx(SUN_EXAMPLE_LOGPDF, abs=1e-11)
    assert repr(sun) == f"SUN(n_dims={sun.n_dims}, n_latent={sun.n_latent})"
    assert (sun.n_dims, sun.n_latent) == (3, 2)


def build(**changes):
    return lambda: SUN(**(SUN_EXAMPLE_PARAMETERS | changes))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (build(mu=[0.0, 1.0]), ValueError, "mu must have length 3, got 2"),
        (build(scale=np.diag([1.0, 1.0, -1.0])), NotPositiveDefiniteError, "scale .* entry 2"),
        (build(scale=3.0 * np.ones((3, 3)) - 2.5 * np.eye(3)), NotPositiveDefiniteError, "scale"),
        (build(skewness=np.zeros((2, 2))), ValueError, "skewness must have shape"),
        (build(truncation=[0.0]), ValueError, "truncation must have length 2, got 1"),
        (build(latent_cov=np.eye(3)), ValueError, r"latent_cov must have shape \(2, 2\)"),
        (build(latent_cov=[[1.0, 2.0], [2.0, 1.0]]), NotPositiveDefiniteError, "latent_cov is not"),
        (
            build(skewness=np.full((3, 2), 0.99)),
            NotPositiveDefiniteError,
            r"\[\[latent_cov, C'\], \[C, scale\]\] \(C from skewness\) is not positive definite",
        ),
        (lambda: example().logpdf([0.0, 1.0]), ValueError, "z must have length 3"),
        (lambda: example().logcdf([0.0, 1.0]), ValueError, "z must have length 3"),
        (lambda: example().logpdf(np.zeros((2, 2))), ValueError, "z must have shape"),
        (lambda: example().logpdf(np.zeros(3), n_draws=0), ValueError, "n_draws must be at least"),
        (lambda: example().sample(0), ValueError, "n must be at least 1"),
        (lambda: example().marginal([0, 0]), ValueError, "idx .* each once"),
        (lambda: example().marginal([]), (ValueError, IndexError), "idx"),
        (lambda: example().marginal(3), IndexError, "idx does not fit 3 coordinates"),
        (lambda: example().marginal([0, -3]), ValueError, "idx .* each once"),
        (lambda: example().conditional([0, 1, 2], np.zeros(3)), ValueError, "idx names all 3"),
        (lambda: example().conditional([5], [0.0]), IndexError, "idx does not fit"),
        (lambda: example().conditional([0], [0.0, 1.0]), ValueError, "value must have length 1"),
        (lambda: example().affine(np.ones((2, 2))), ValueError, "A must have shape"),
        (lambda: example().affine(np.eye(3), [1.0]), ValueError, "b must have length 3"),
        (lambda: example().condition(np.ones((1, 2)), [0.0], [[1.0]]), ValueError, "W must have"),
        (lambda: example().condition(np.ones((1, 3)), [0, 1], [[1.0]]), ValueError, "Z must have"),
        (lambda: example().condition(np.ones((1, 3)), [0.0], np.eye(2)), ValueError, "S must have"),
        (lambda: example().condition(np.ones((1, 3)), [0.0], [[-1.0]]), ValueError, "S is not pos"),
    ],
)
def test_bad_input_is_refused_by_name(call, error, match):
    with pytest.raises(error, match=match):
        call()
