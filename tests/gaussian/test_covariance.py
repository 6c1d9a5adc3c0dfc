"""All forms of one covariance against each other and against plain inverses."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import equicorrelated_cov, finite_difference
from scipy import stats
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError
from pymc_skewgp._gaussian.covariance import BlockNoise, DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.log_prob_gradient import density_and_orthant
from pymc_skewgp._gaussian.univariate import bivariate_log_prob, bivariate_truncated_moments

SIZES = (1, 2, 2, 3, 1, 3)  # of blocks of noise, 12 rows
N = sum(SIZES)


def block_noise(rng):
    """Noise of blocks whose rows lie apart, as `BlockNoise` and as a matrix."""
    parts = np.split(rng.permutation(N), np.cumsum(SIZES)[:-1])
    roots = [rng.normal(size=(size, size)) for size in SIZES]
    made = [root @ root.T + 0.5 * np.eye(len(root)) for root in roots]
    order = np.concatenate(parts)
    S = np.zeros((N, N))
    S[np.ix_(order, order)] = block_diag(*made)
    chosen = [[i for i, s in enumerate(SIZES) if s == size] for size in sorted(set(SIZES))]
    rows = [np.array([parts[i] for i in of]) for of in chosen]
    return BlockNoise(rows, [np.array([made[i] for i in of]) for of in chosen]), S


def problem(seed, r=2):
    """Forms of two matrices of 12 rows, with each form its matrix."""
    rng = np.random.default_rng(seed)
    noise, factor = rng.uniform(0.3, 2.0, N), rng.normal(size=(N, r))
    matrix = np.diag(noise) + factor @ factor.T
    blocks, S = block_noise(rng)
    return [
        (DenseCovariance(matrix), matrix),
        (LowRankCovariance(noise, factor), matrix),
        (LowRankCovariance(blocks, factor), S + factor @ factor.T),
    ]


# Scales from "no site" over the weak-site branch of DenseCovariance to sites of precision 1e6.
SCALES = st.sampled_from([0.0, 1e-14, 1e-9, 1e-5, 1e-2, 1.0, 1e2, 1e6])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.lists(SCALES, min_size=N, max_size=N))
def test_sites_agree_with_the_inverse(seed, r, scales):
    rng = np.random.default_rng(seed)
    tau = np.array(scales) * rng.uniform(0.5, 2.0, N)
    nu = np.sqrt(tau) * rng.normal(size=N)
    for form, matrix in problem(seed, r):
        covariance = np.linalg.inv(np.linalg.inv(matrix) + np.diag(tau))
        mean, sd = covariance @ nu, np.sqrt(covariance.diagonal())
        log_det = np.linalg.slogdet(np.eye(N) + matrix * tau)[1]
        product = form.site_product(tau, nu)
        # Condition numbers up to 1e7 (tau 1e6): the reference itself keeps nine digits.
        np.testing.assert_allclose(product.mean / sd, mean / sd, atol=1e-7)
        np.testing.assert_allclose(product.variance, sd**2, rtol=1e-8)
        scale = np.outer(sd, sd)
        np.testing.assert_allclose(form.site_covariance(tau) / scale, covariance / scale, atol=1e-8)
        assert product.log_det == pytest.approx(log_det, abs=1e-8)
        assert product.log_constant == pytest.approx(0.5 * nu @ mean - 0.5 * log_det, abs=1e-8)
        largest = max(tau.max(), 1.0)
        weights = np.linalg.solve(matrix, mean)
        np.testing.assert_allclose(product.weights, weights, atol=1e-7 * (1.0 + tau.max()))
        # (G + T^-1)^-1 = T - T S T, entries up to the size of T; T S T cancels at strong sites.
        precision = np.diag(tau) - covariance * np.outer(tau, tau)
        np.testing.assert_allclose(form.site_precision(tau), precision, atol=1e-8 * largest)


@pytest.mark.parametrize("weak", [0.0, 1e-14])
def test_rows_without_a_site_keep_full_accuracy(weak):
    """The variance of a weak row comes from its own branch: 1 - (B^-1)_ii would be round-off."""
    tau = np.tile([weak, 2.0, weak, 0.5, 1e4, weak], 2)
    for form, matrix in problem(1):
        covariance = np.linalg.inv(np.linalg.inv(matrix) + np.diag(tau))
        variance = form.site_product(tau, np.zeros(N)).variance
        np.testing.assert_allclose(variance, covariance.diagonal(), rtol=1e-12)


@pytest.mark.parametrize("huge", [1e8, 1e12])
def test_huge_sites(huge):
    """A row with a huge site is known: S_ii -> 1/tau, and the others are conditioned on it."""
    tau = np.zeros(N)
    tau[0], tau[2] = huge, 1.0
    nu = np.zeros(N)
    nu[0] = huge * 0.7
    rest = np.arange(1, N)
    for form, matrix in problem(3):
        gain = matrix[rest, 0] / matrix[0, 0]
        left = matrix[np.ix_(rest, rest)] - np.outer(gain, matrix[0, rest])
        covariance = np.linalg.inv(np.linalg.inv(left) + np.diag(tau[1:]))
        # u_rest | u_0 = .7 is N(gain .7, left); the unit site on row 2 then shrinks it.
        mean = covariance @ np.linalg.solve(left, gain * 0.7)
        product = form.site_product(tau, nu)
        # The limit is reached up to 1/(huge * variance).
        assert product.variance[0] * huge == pytest.approx(1.0, abs=10.0 / huge + 1e-10)
        assert product.mean[0] == pytest.approx(0.7, abs=10.0 / huge + 1e-10)
        np.testing.assert_allclose(product.mean[1:], mean, atol=1e2 / huge + 1e-10)
        np.testing.assert_allclose(product.variance[1:], covariance.diagonal(), rtol=1e-6)
        assert np.isfinite(product.log_constant)


INNER = np.array([[1.0, 0.5], [0.5, 2.0]])
NOISE_FREE = {
    "rows": np.array([0.0, 1.0, 2.0, 0.0]),
    "blocks": BlockNoise(
        [np.array([[0], [3]]), np.array([[1, 2]])], [np.zeros((2, 1, 1)), INNER[None]]
    ),
}


@pytest.mark.parametrize("noise", NOISE_FREE.values(), ids=NOISE_FREE)
def test_rows_without_noise(noise):
    """Signs at pseudo-points: G is regular, its noise is not."""
    form = LowRankCovariance(noise, np.random.default_rng(0).normal(size=(4, 3)))
    dense = DenseCovariance(form.dense())
    tau, nu = np.array([3.0, 1e-14, 0.0, 2.0]), np.array([1.0, 0.0, 0.0, -2.0])
    expected, product = dense.site_product(tau, nu), form.site_product(tau, nu)
    np.testing.assert_allclose(product.mean, expected.mean, atol=1e-11)
    np.testing.assert_allclose(product.variance, expected.variance, rtol=1e-10)
    assert product.log_constant == pytest.approx(expected.log_constant, abs=1e-11)
    np.testing.assert_allclose(form.site_covariance(tau), dense.site_covariance(tau), atol=1e-11)


def test_noise_in_blocks_of_which_some_are_zero():
    noise, x = NOISE_FREE["blocks"], np.array([5.0, 1.0, -1.0, 2.0])
    inner = np.linalg.solve(INNER, x[1:3])
    np.testing.assert_allclose(noise.inverse().multiply(x), [0.0, *inner, 0.0], atol=1e-14)
    form = LowRankCovariance(noise, np.random.default_rng(0).normal(size=(4, 3)))
    np.testing.assert_allclose(form.conditional_variances(), [0.0, 0.875, 1.75, 0.0])


def test_plain_views_agree():
    x = np.random.default_rng(0).normal(size=(N, 3))
    for form, matrix in problem(5):
        assert form.size == N
        np.testing.assert_allclose(form.dense(), matrix, atol=1e-14)
        np.testing.assert_allclose(form.diagonal(), matrix.diagonal(), rtol=1e-14)
        for y in (x, x[:, 0]):
            np.testing.assert_allclose(form.multiply(y), matrix @ y, atol=1e-12)
        exact = 1.0 / np.linalg.inv(matrix).diagonal()
        if isinstance(form, DenseCovariance):
            np.testing.assert_allclose(form.conditional_variances(), exact, rtol=1e-10)
        else:  # a lower bound
            assert (form.conditional_variances() <= exact * (1 + 1e-12)).all()
    noise, S = block_noise(np.random.default_rng(1))
    np.testing.assert_allclose(noise.multiply(x), S @ x, atol=1e-12)
    np.testing.assert_allclose(noise.inverse().multiply(x), np.linalg.solve(S, x), atol=1e-12)


def test_site_covariance_of_a_nearly_singular_prior_does_not_cancel():
    """S = G - G(...)G would lose S_ii = 1e-8 G_ii to round-off; the product form does not."""
    n = 5
    matrix = 1e6 * np.ones((n, n)) + 1e-2 * np.eye(n)
    # In the eigenbasis: the common direction has prior n 1e6 + .01, all the others .01.
    common, other = 1.0 / (1.0 / (n * 1e6 + 1e-2) + 100.0), 1.0 / (1.0 / 1e-2 + 100.0)
    expected = other * np.eye(n) + (common - other) / n
    found = DenseCovariance(matrix).site_covariance(np.full(n, 100.0))
    # Cholesky of G itself carries cond(G) eps = 1e-7.
    np.testing.assert_allclose(found, expected, atol=1e-7 * common)


def test_jitter_goes_into_every_view():
    matrix = np.ones((3, 3))
    with pytest.warns(JitterWarning, match="prior"):
        form = DenseCovariance(matrix, "prior")
    assert form.jitter > 0
    np.testing.assert_array_equal(form.diagonal(), 1.0 + form.jitter)
    np.testing.assert_allclose(form.chol @ form.chol.T, form.dense(), atol=1e-15)
    assert np.array_equal(matrix, np.ones((3, 3)))
    with pytest.raises(NotPositiveDefiniteError, match=r"prior.*eigenvalue is -1"):
        DenseCovariance(np.array([[1.0, 2.0], [2.0, 1.0]]), "prior")


def test_blocks_near_to_singular_are_found():
    near = np.array([[1.0, 1.0 - 1e-8], [1.0 - 1e-8, 1.0]])
    for S, good in ((near, False), (np.ones((2, 2)), False), (near * 0.5 + np.eye(2), True)):
        assert BlockNoise([np.array([[0, 1]])], [S[None]]).well_conditioned is good


# Bivariate rectangles against closed forms, mpmath and plain tensor quadrature.


INF = np.inf


def _cov(rho):
    return np.array([[1.0, rho], [rho, 1.0]])


@pytest.mark.parametrize(
    "rho", [0.0, 1e-9, 0.5, -0.5, 0.99, -0.99, 1 - 1e-6, 1e-6 - 1, 1 - 1e-12, 1e-12 - 1]
)
def test_orthant_formula(rho):
    with mpmath.workdps(40):
        exact = mpmath.log(mpmath.mpf(1) / 4 + mpmath.asin(mpmath.mpf(rho)) / (2 * mpmath.pi))
    # Down to 2e-7 (rho = 1e-12 - 1): round-off of a log-sum of some 900 terms.
    assert bivariate_log_prob([0, 0], None, _cov(rho)) == pytest.approx(float(exact), abs=1e-13)


# log P of limits and a correlation, by mpmath with 30 digits: the density of the first coordinate
# times the conditional mass of the second, in Gauss-Legendre panels finer than all scales.
EXTREME = [
    ([60.0, 80.0], [INF, INF], 0.5, -3475.845614595558),
    ([100.0, -INF], [INF, -99.0], -0.3, -7626.400606173018),
    ([37.3, 36.1], [INF, INF], 1 - 1e-12, -700.1836493302923),
    ([5.0, -6.0], [INF, INF], -0.99999, -15.068446096529453),
    ([5.0, -6.0], [5.1, -5.9], -0.9, -23.53943359681668),
    ([0.1, 0.1], [0.1001, 0.1001], 0.3, -20.219102473460204),
    ([-1e-6, 3.0], [1e-6, INF], 0.99, -244.1502227885568),
    ([40.0, -INF], [40.01, 38.0], 0.9999, -10776.538109291176),
    ([-1.0, -1.0], [1.0, 1.0], 1 - 1e-10, -0.38171914570866483),
]


@pytest.mark.parametrize(("lower", "upper", "rho", "exact"), EXTREME)
def test_extremes_against_mpmath(lower, upper, rho, exact):
    # The requirement is 1e-10; a log of -1e4 has a round-off of 2e-12 itself.
    assert bivariate_log_prob(lower, upper, _cov(rho)) == pytest.approx(exact, abs=1e-11)


rectangles = st.tuples(
    st.floats(-20, 20), st.floats(-20, 20), st.floats(1e-6, 30), st.floats(1e-6, 30)
)
correlations = st.one_of(
    st.floats(-0.999, 0.999),
    st.tuples(st.sampled_from([-1, 1]), st.floats(1, 12)).map(lambda c: c[0] * (1 - 10 ** -c[1])),
)


@settings(max_examples=60, deadline=None)
@given(rectangle=rectangles, rho=correlations, open_end=st.booleans())
def test_symmetries(rectangle, rho, open_end):
    lower = np.array(rectangle[:2])
    upper = lower + (INF if open_end else np.array(rectangle[2:]))
    value = bivariate_log_prob(lower, upper, _cov(rho))
    # Measured 7e-13, or 7e-16 of the log where that is larger; swapping integrates over the other
    # coordinate, so this is an accuracy test as well.
    tolerance = 1e-11 + 3e-15 * abs(value)
    assert value <= 0
    assert bivariate_log_prob(lower[::-1], upper[::-1], _cov(rho)) == pytest.approx(
        value, abs=tolerance
    )
    assert bivariate_log_prob(-upper, -lower, _cov(rho)) == pytest.approx(value, abs=tolerance)
    flipped = bivariate_log_prob([-upper[0], lower[1]], [-lower[0], upper[1]], _cov(-rho))
    assert flipped == pytest.approx(value, abs=tolerance)


def _tensor_moments(lower, upper, cov, count=300):
    """Log probability and central moments by a plain two-dimensional Gauss-Legendre rule."""
    points, weights = np.polynomial.legendre.leggauss(count)
    x, w = [], []
    for low, high in zip(lower, upper, strict=True):
        x.append(0.5 * (low + high) + 0.5 * (high - low) * points)
        w.append(0.5 * (high - low) * weights)
    grid = np.stack(np.meshgrid(*x, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = np.outer(*w).ravel() * multivariate_normal([0, 0], cov).pdf(grid)
    total = mass.sum()
    mass /= total
    mean = mass @ grid
    off = grid - mean
    return (
        np.log(total),
        mean,
        (off * mass[:, None]).T @ off,
        np.einsum("n,ni,nj,nk->ijk", mass, off, off, off, optimize=True),
    )


@pytest.mark.parametrize(
    ("lower", "upper", "cov"),
    [
        ([-1.0, 0.5], [2.0, 1.5], [[1.0, 0.6], [0.6, 1.0]]),
        ([0.0, -4.0], [18.0, 12.0], [[4.0, -1.5], [-1.5, 2.0]]),
        ([3.0, 2.0], [12.0, 12.0], [[1.0, -0.9], [-0.9, 1.0]]),
    ],
)
def test_moments_against_a_tensor_rule(lower, upper, cov):
    exact = _tensor_moments(lower, upper, cov)
    moments = bivariate_truncated_moments(lower, upper, cov)
    assert bivariate_log_prob(lower, upper, cov) == pytest.approx(exact[0], abs=1e-11)
    # The tensor rule is converged to round-off; central moments cancel a few digits of it.
    np.testing.assert_allclose(moments.mean, exact[1], rtol=1e-11)
    np.testing.assert_allclose(moments.cov, exact[2], atol=1e-11 * exact[2].max())
    np.testing.assert_allclose(moments.tensor, exact[3], atol=1e-10 * np.abs(exact[3]).max())


def test_singular_and_indefinite_covariances():
    with pytest.warns(JitterWarning):
        value = bivariate_log_prob([0, 0], None, np.ones((2, 2)))
    # The jitter of 1e-12 moves the orthant by its angle, sqrt(2e-12)/(2 pi) = 2e-7.
    assert value == pytest.approx(np.log(0.5), abs=1e-6)
    with pytest.raises(NotPositiveDefiniteError):
        bivariate_log_prob([0, 0], None, _cov(1.5))
    with pytest.raises(ValueError, match="lower must be below upper"):
        bivariate_log_prob([0, 1], [1, 1], np.eye(2))


# Density and orthant against quadrature, scipy and finite differences.


NAMES = ("offset", "scale", "cross_cov", "limits", "latent_cov")


def problem_orthant(p, s, seed=0):
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


@pytest.mark.parametrize(("s", "tolerance"), [(2, 1e-7), (5, 1e-4)])
def test_gradient_is_that_of_the_value(s, tolerance):
    """Of two latent dimensions exactly; of more that of the mean weight of fixed points.

    EP stops at a residual of 1e-4 then, and the gradient's error is that times what draws leave.
    """
    inputs = problem_orthant(3, s, seed=2)
    found = density_and_orthant(*inputs)
    for k, name in enumerate(NAMES[:4]):

        def value(x, k=k):
            return density_and_orthant(*inputs[:k], x, *inputs[k + 1 :]).value

        exact = finite_difference(value, inputs[k])
        near = tolerance * np.abs(exact).max()
        np.testing.assert_allclose(getattr(found, name), exact, atol=near, err_msg=name)


INVALID = {
    "offset": [np.array([np.nan, 0.0]), np.array([np.inf, 0.0]), np.array([1e200, 1e200])],
    "scale": [np.ones((2, 2)), -np.eye(2), np.array([[1.0, np.nan], [np.nan, 1.0]])],
    "cross_cov": [np.full((2, 2), 2.0), np.full((2, 2), np.nan)],
    "limits": [np.array([np.nan, 0.0])],
    "latent_cov": [-np.eye(2), np.array([[1.0, 3.0], [3.0, 1.0]])],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in INVALID.items() for v in vs])
def test_what_is_invalid_is_impossible(name, value):
    inputs = dict(zip(NAMES, problem_orthant(2, 2), strict=True))
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
