"""The truncated standard normal against 50 digits of mpmath."""

import mpmath
import numpy as np
import pytest

from pymc_skewgp._gaussian.univariate import (
    draw_truncated,
    log_ndtr_interval,
    truncated_moments,
    truncated_shape,
    truncated_third_moment,
)

INF = np.inf
NEAR = [-9.0, -3.0, -1.0, -0.1, 0.0, 0.5, 1.0, 1.5, 2.9, 3.0, 5.0, 10.0, 37.0, 100.0, 1e4]
WIDTHS = [1e-14, 1e-7, 1e-3, 0.1, 0.9, 1.1, 3.0, 8.0, 20.0, INF]


def _intervals():
    pairs = [(p, p + w if p + w > p else np.nextafter(p, INF)) for p in NEAR for w in WIDTHS]
    # Around the seams between the rules: widths in scale lengths 1/p of a tail.
    pairs += [(p, p + d / p) for p in NEAR if p > 0 for d in (0.9, 1.1, 7.0, 9.0, 30.0, 44.0, 46.0)]
    mirrored = [(-b, -a) for a, b in pairs]
    return np.array([*pairs, *mirrored, (-INF, INF)])


def _survival(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def _exact(a, b):
    """Log mass, mean, and central moments 2 to 4."""
    # The closed forms cancel up to width^-5 at relative width 1e-14, and p^8 far out: 120 digits.
    with mpmath.workdps(120):
        a, b = mpmath.mpf(a), mpmath.mpf(b)
        mass = _survival(a) - _survival(b) if a + b > 0 else _survival(-b) - _survival(-a)
        powers = [
            [0 if mpmath.isinf(x) else x**k * mpmath.npdf(x) / mass for k in range(4)]
            for x in (a, b)
        ]
        d = [powers[0][k] - powers[1][k] for k in range(4)]
        first, second = d[0], 1 + d[1]
        third = 2 * first + d[2]
        fourth = 3 * second + d[3]
        return (
            mpmath.log(mass),
            first,
            second - first**2,
            third - 3 * first * second + 2 * first**3,
            fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4,
        )


@pytest.fixture(scope="module")
def reference():
    pairs = _intervals()
    return pairs[:, 0], pairs[:, 1], [_exact(a, b) for a, b in pairs]


def test_log_mass(reference):
    a, b, exact = reference
    expected = np.array([float(e[0]) for e in exact])
    # Rounding x / sqrt(2) costs erfc x^2 eps; at the mass nearest to 1 (x = 9) that is 2e-14.
    np.testing.assert_allclose(log_ndtr_interval(a, b), expected, rtol=5e-14, atol=0)


def test_moments(reference):
    a, b, exact = reference
    log_mass, mean, variance = truncated_moments(a, b)
    np.testing.assert_array_equal(log_mass, log_ndtr_interval(a, b))
    sd = np.sqrt(np.array([float(e[2]) for e in exact]))
    off = np.array([float(m - e[1]) for m, e in zip(mean, exact, strict=True)])
    # An error of the mean in standard deviations, beside the spacing of floats at the mean.
    assert (np.abs(off) <= 1e-13 * sd + 2 * np.spacing(np.abs(mean))).all()
    # p^4 eps is lost under p = 3, where the continued fraction takes over.
    np.testing.assert_allclose(variance, sd**2, rtol=1e-13)
    third = np.array([float(e[3]) for e in exact])
    # In units of sd^3, the scale on which a skewness is read; p^6 eps is lost at p = 3.
    np.testing.assert_array_less(np.abs(truncated_third_moment(a, b) - third) / sd**3, 1e-12)
    assert ((variance > 0) & (variance <= 1)).all()


def test_skewness_and_kurtosis(reference):
    a, b, exact = reference
    *_, skewness, excess_kurtosis = truncated_shape(a, b)
    with mpmath.workdps(120):
        expected = [(e[3] / e[2] ** 1.5, e[4] / e[2] ** 2 - 3) for e in exact]
    expected = np.array(expected, dtype=float)
    # Where a closed form hands over, at p = 3, the fourth moment has lost p^8 eps.
    np.testing.assert_allclose(skewness, expected[:, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(excess_kurtosis, expected[:, 1], rtol=0, atol=1e-11)


def test_whole_line_and_shapes():
    log_mass, mean, variance = truncated_moments(np.full((2, 1), -INF), np.full(3, INF))
    assert log_mass.shape == mean.shape == variance.shape == (2, 3)
    np.testing.assert_array_equal(log_mass, 0.0)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_array_equal(variance, 1.0)
    assert log_ndtr_interval(np.zeros((2, 1)), INF).shape == (2, 1)
    assert log_ndtr_interval(-INF, np.zeros((2, 1))).shape == (2, 1)
    for result in (*truncated_moments(0.5, 1.0), truncated_third_moment(0.5, 1.0)):
        assert np.ndim(result) == 0


UNIFORMS = np.array([1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 2.0**-40])


def test_draws_invert_the_distribution_function(reference):
    for a, b, exact in zip(*reference, strict=True):
        if np.nextafter(np.nextafter(a, INF), INF) >= b:
            continue
        z, _ = draw_truncated(UNIFORMS, a, b)
        assert ((z > a) & (z < b)).all()
        with mpmath.workdps(50):
            mass, low, high = mpmath.exp(exact[0]), mpmath.mpf(a), mpmath.mpf(b)
            for u, x in zip(UNIFORMS, map(mpmath.mpf, z), strict=True):
                if low + high > 0:
                    below = (_survival(low) - _survival(x)) / mass
                else:
                    below = (_survival(-x) - _survival(-low)) / mass
                gap = float(abs(below - mpmath.mpf(u)))
                spacing = np.spacing(max(abs(float(x)), abs(a) if np.isfinite(a) else 0.0))
                representable = float(mpmath.npdf(x) / mass) * spacing
                # Either the nearest floats to the quantile, or a shift of u by 1e-12.
                assert gap <= max(1e-12, 4 * representable)


@pytest.mark.parametrize("u", [0.0, 1.0])
@pytest.mark.parametrize("bounds", [(0.3, INF), (-INF, 0.3), (-INF, INF), (15.0, INF), (1.0, 2.0)])
def test_uniforms_at_the_ends_give_finite_draws(u, bounds):
    # Scrambled Sobol points of 30 bits do hit 0.
    z, _ = draw_truncated(np.array([u]), *bounds)
    assert np.isfinite(z).all()
    assert ((z > bounds[0]) & (z < bounds[1])).all()


def test_draw_log_mass_and_shapes():
    a = np.array([-30.0, -1.0, 5.0, 9.9, 10.1, 200.0])
    u = np.full((4, 6), 0.4)
    for low, high in ((a, INF), (-INF, -a), (a, a + 1.0), (a, np.full(6, INF))):
        z, log_mass = draw_truncated(u, low, high)
        assert z.shape == (4, 6)
        assert log_mass.shape == (6,)
        # An absolute 1e-14 where the mass is near 1, relative elsewhere.
        np.testing.assert_allclose(log_mass, log_ndtr_interval(low, high), rtol=1e-14, atol=1e-14)
    z, log_mass = draw_truncated(0.4, 1.0, INF)
    assert np.shape(z) == np.shape(log_mass) == ()
    # A mixture of sides in one call agrees with the one-sided calls.
    low, high = np.array([-INF, 2.0, 11.0, 0.5]), np.array([1.0, INF, INF, 0.6])
    mixed, _ = draw_truncated(np.full(4, 0.3), low, high)
    single = [float(draw_truncated(0.3, *pair)[0]) for pair in zip(low, high, strict=True)]
    np.testing.assert_allclose(mixed, single, rtol=1e-14)


@pytest.mark.parametrize("huge", [1e10, 1e155, 1e300])
def test_huge_bounds_are_as_good_as_infinite(huge):
    a, b = np.array([-huge, 1.0, -huge]), np.array([1.0, huge, huge])
    open_a, open_b = np.array([-INF, 1.0, -INF]), np.array([1.0, INF, INF])
    for one, other in zip(truncated_moments(a, b), truncated_moments(open_a, open_b), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(draw_truncated(0.3, a, b)[0], draw_truncated(0.3, open_a, open_b)[0])


def test_limits_that_are_neither_near_nor_far():
    """Draws by a difference of tails: its log mass to 1e-14, and draws that invert it.

    A distribution function at a draw is off by the round-off of the draw, 2e-16 |z| times the
    density at most, next to the mass of the limits.
    """
    rng = np.random.default_rng(0)
    a = rng.uniform(-5.0, 4.9, 2000)
    b = a + 0.051 + rng.exponential(1.0, 2000)
    u = rng.random(2000)
    for low, high, share in ((a, b, u), (-b, -a, 1.0 - u)):
        z, log_mass = draw_truncated(share, low, high)
        np.testing.assert_allclose(log_mass, log_ndtr_interval(low, high), atol=1e-14, rtol=1e-14)
        assert np.all((z > low) & (z < high))
        below = np.exp(log_ndtr_interval(low, z) - log_mass)
        np.testing.assert_allclose(below, share, atol=1e-12)
