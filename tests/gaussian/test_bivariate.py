"""Bivariate rectangles against closed forms, mpmath and plain tensor quadrature."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError
from pymc_skewgp._gaussian.univariate import bivariate_log_prob, bivariate_truncated_moments

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


# log P by tanh-sinh quadrature of the conditional form with 40 digits, in `_exact` below; the
# bounds reach probabilities of exp(-10776) and the correlations 1 - 1e-12.
EXTREME = [
    ([60.0, 80.0], [INF, INF], 0.5),
    ([100.0, -INF], [INF, -99.0], -0.3),
    ([37.3, 36.1], [INF, INF], 1 - 1e-12),
    ([5.0, -6.0], [INF, INF], -0.99999),
    ([5.0, -6.0], [5.1, -5.9], -0.9),
    ([0.1, 0.1], [0.1001, 0.1001], 0.3),
    ([-1e-6, 3.0], [1e-6, INF], 0.99),
    ([40.0, -INF], [40.01, 38.0], 0.9999),
    ([-1.0, -1.0], [1.0, 1.0], 1 - 1e-10),
]


def _exact(lower, upper, rho):
    """Quadrature over a window around the peak, in panels fine beside both scales."""
    with mpmath.workdps(30):
        rho = mpmath.mpf(rho)
        s = mpmath.sqrt(1 - rho**2)
        (a, c), (b, d) = map(mpmath.mpf, lower), map(mpmath.mpf, upper)

        def density(x):
            p, q = (c - rho * x) / s, (d - rho * x) / s
            p, q = (p, q) if p + q > 0 else (-q, -p)
            return mpmath.npdf(x) * (
                mpmath.erfc(p / mpmath.sqrt(2)) - mpmath.erfc(q / mpmath.sqrt(2))
            )

        left, right = max(a, mpmath.mpf(-110)), min(b, mpmath.mpf(110))
        ends = [left, right]
        for _ in range(90):
            m = [ends[0] + (ends[1] - ends[0]) * k / 3 for k in (1, 2)]
            ends[int(density(m[0]) < density(m[1])) ^ 1] = m[int(density(m[0]) >= density(m[1]))]
        mode = sum(ends) / 2
        floor = density(mode) * mpmath.exp(-40)
        for k, limit in enumerate((left, right)):
            inside, outside = mode, limit
            if density(limit) >= floor:
                inside = limit
            else:
                for _ in range(50):
                    middle = (inside + outside) / 2
                    inside, outside = (
                        (middle, outside) if density(middle) > floor else (inside, middle)
                    )
            ends[k] = inside
        points = [ends[0] + (ends[1] - ends[0]) * k / 24 for k in range(25)]
        switches = [y / rho + k * s for y in (c, d) if mpmath.isfinite(y) for k in range(-9, 10, 3)]
        points = sorted({*points, *(x for x in switches if ends[0] < x < ends[1])})
        return float(mpmath.log(mpmath.quad(density, points, method="gauss-legendre") / 2))


@pytest.mark.parametrize(("lower", "upper", "rho"), EXTREME)
def test_extremes_against_mpmath(lower, upper, rho):
    # The requirement is 1e-10; a log of -1e4 has a round-off of 2e-12 itself.
    value = bivariate_log_prob(lower, upper, _cov(rho))
    assert value == pytest.approx(_exact(lower, upper, rho), abs=1e-11)


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
    assert moments.log_prob == pytest.approx(exact[0], abs=1e-11)
    # The tensor rule is converged to round-off; central moments cancel a few digits of it.
    np.testing.assert_allclose(moments.mean, exact[1], rtol=1e-11)
    np.testing.assert_allclose(moments.cov, exact[2], atol=1e-11 * exact[2].max())
    np.testing.assert_allclose(moments.third, exact[3], atol=1e-10 * np.abs(exact[3]).max())


def test_singular_and_indefinite_covariances():
    with pytest.warns(JitterWarning):
        value = bivariate_log_prob([0, 0], None, np.ones((2, 2)))
    # The jitter of 1e-12 moves the orthant by its angle, sqrt(2e-12)/(2 pi) = 2e-7.
    assert value == pytest.approx(np.log(0.5), abs=1e-6)
    with pytest.raises(NotPositiveDefiniteError):
        bivariate_log_prob([0, 0], None, _cov(1.5))
    with pytest.raises(ValueError, match="lower must be below upper"):
        bivariate_log_prob([0, 1], [1, 1], np.eye(2))
