"""The oracles against each other, against those of `oracles` and against closed forms."""

import numpy as np
import oracles
import pytest
import rectangle_oracles as ro
from scipy.special import ndtr

INF = np.inf


@pytest.mark.parametrize("r", [2, 3])
def test_factors_in_three_dimensions(r):
    rng = np.random.default_rng(r)
    loadings, sd = rng.normal(size=(3, r)), rng.uniform(0.4, 1.0, 3)
    cov = loadings @ loadings.T + np.diag(sd**2)
    upper = rng.normal(size=3) + 0.5
    lower = np.array([-INF, upper[1] - 2.0, -INF])
    # The trapezoidal rule stops at agreement to 1e-9 (1e-7 for three factors).
    found = ro.factor_log_prob(lower, upper, loadings, sd)
    assert found == pytest.approx(oracles.brute_log_prob(lower, upper, cov), abs=2e-7)


@pytest.mark.parametrize("lower", [-INF, 0.3])
def test_chain_of_three(lower):
    r = np.array([0.7, -0.5])
    cov = np.array([[1, 0.7, -0.35], [0.7, 1, -0.5], [-0.35, -0.5, 1]])
    low, upper = np.full(3, lower), np.array([0.5, 1.0, INF])
    found = ro.chain_log_prob(r, low, upper)
    assert found == pytest.approx(oracles.brute_log_prob(low, upper, cov), abs=1e-9)


def test_negative_correlations_of_three():
    c = 0.4
    cov = (1 + c) * np.eye(3) - c
    low, upper = np.array([-INF, -1.0, -0.5]), np.array([0.7, 1.0, INF])
    found = ro.negative_equicorrelated_log_prob(low, upper, c)
    assert found == pytest.approx(oracles.brute_log_prob(low, upper, cov), abs=1e-10)


def test_duplicates_of_two_pairs():
    b, d, gap = np.array([0.8, -0.5]), np.array([0.6, 0.9]), 0.3
    upper, twin = np.array([0.4, -0.2]), np.array([0.5, 0.9])
    found = ro.duplicated_factor_log_prob(upper, twin, b, d, gap)
    direct = _pairs_by_brute(b, d, gap, upper, twin)
    assert found == pytest.approx(direct, abs=1e-9)


def _pairs_by_brute(b, d, gap, upper, twin):
    """The pair given t is a bivariate normal: by quadrature over e instead of Owen's function."""
    t, w = np.polynomial.hermite_e.hermegauss(80)
    edges = np.linspace(-9.0, 9.0, 121)
    p, v = np.polynomial.legendre.leggauss(12)
    half = 0.5 * np.diff(edges)[:, None]
    product = np.ones(t.size)
    for i in range(2):
        for j, tj in enumerate(t):
            top = (upper[i] - b[i] * tj) / d[i]
            cuts = np.clip(edges, None, top)
            half = 0.5 * np.diff(cuts)[:, None]
            e = (cuts[:-1, None] + half * (1.0 + p)).ravel()
            density = np.exp(-0.5 * e**2) / np.sqrt(2 * np.pi)
            inside = ndtr((twin[i] - b[i] * tj - d[i] * e) / gap)
            product[j] *= ((half * v).ravel() * density) @ inside
    return float(np.log(w @ product / np.sqrt(2 * np.pi)))


def test_polygon_of_two_factors_with_a_hair_of_noise():
    rng = np.random.default_rng(5)
    loadings = rng.normal(size=(5, 2))
    low, upper = np.full(5, -1.5), np.array([1.0, 0.8, INF, 1.2, 2.0])
    exact = ro.plane_log_prob(low, upper, loadings)
    # Noise moves it by its variance times a few, which Richardson's extrapolation removes; what is
    # left is of the order of sd^3 = 5e-4 at the corners.
    first, second = (
        ro.factor_log_prob(low, upper, loadings, np.full(5, sd)) for sd in (0.16, 0.08)
    )
    assert 1e-4 < abs(second - exact) < 2e-2
    assert (4.0 * second - first) / 3.0 == pytest.approx(exact, abs=1e-3)
    box = ro.plane_log_prob([-1.0, 0.0], [1.0, INF], np.eye(2))
    assert box == pytest.approx(np.log(0.5 * (ndtr(1.0) - ndtr(-1.0))), abs=1e-13)


def test_narrow_boxes_around_one_factor():
    # A box so narrow that the density is constant in it: density times volume, relative error of
    # the order of the squared width, 1e-18.
    rng = np.random.default_rng(7)
    b, d = rng.normal(size=(5, 1)), np.full(5, 0.6)
    low = rng.normal(size=5)
    upper = low + 1e-9 * rng.uniform(1.0, 2.0, 5)
    cov = b @ b.T + np.diag(d**2)
    centre = low + 0.5 * (upper - low)
    exact = -0.5 * centre @ np.linalg.solve(cov, centre) - 0.5 * np.linalg.slogdet(cov)[1]
    exact += np.log(upper - low).sum() - 2.5 * np.log(2 * np.pi)
    assert ro.factor_log_prob(low, upper, b, d) == pytest.approx(exact, abs=1e-12)
