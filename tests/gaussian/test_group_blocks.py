"""Groups of rows that share noise, in blocks: probabilities, predictors, and EP as of all rows.

Some 3 CPU seconds, the compilation of one loop among them.
"""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from pymc_skewgp._gaussian.blocks.groups import GroupSites, OneFactor, one_factor

RNG = np.random.default_rng(3)
ALL = slice(None)


def winner_sites(n, m, variances=1.0):
    noise = np.tile(np.diag(np.full(m, variances)) + 1.0, (n, 1, 1))
    lower, upper = np.zeros((n, m)), np.full((n, m), np.inf)
    return GroupSites(lower, upper, noise, OneFactor(lower, upper, *one_factor(noise)))


@pytest.mark.parametrize("m", [2, 3, 6])
def test_probability_of_a_winner_by_quadrature(m):
    eta = RNG.normal(0.0, 2.0, (4, m, 3))
    eta[0, 0, 0], eta[1, :, 1] = -35.0, 12.0  # far out as well
    found = winner_sites(4, m).log_probs(ALL, eta)
    for i, k in np.ndindex(4, 3):
        if (i, k) == (0, 0):
            continue

        def density(z, d=eta[i, :, k]):
            return norm.pdf(z) * np.prod(ndtr(d + z))

        wanted = quad(density, -12.0, 12.0, epsabs=1e-14, epsrel=1e-10, limit=200)[0]
        assert found[i, k] == pytest.approx(np.log(wanted), abs=1e-7)
    if m == 2:
        # Of the loser 35 behind: hardly less than of the duel with it alone.
        assert found[0, 0] == pytest.approx(norm.logcdf(-35.0 / np.sqrt(2.0)), abs=2.0)
        assert found[0, 0] < norm.logcdf(-35.0 / np.sqrt(2.0))


@pytest.mark.parametrize("far", [1e4, 1e9, 1e200])
def test_a_loser_very_far_behind(far):
    """From 0 it would be so many nodes to the integrand."""
    x = far * np.array([1.0, 0.9])
    found = winner_sites(1, 2).log_probs(ALL, -x[None, :, None])[0, 0]
    if far > 1e150:
        assert found == -np.inf
        return
    # The quadratic form, of which logarithms of x are no more than 1e-6.
    wanted = -0.5 * x @ np.linalg.solve(np.eye(2) + 1.0, x)
    assert found == pytest.approx(wanted, rel=1e-6)


def test_limits_of_any_side_and_noise_of_two_rows():
    noise = np.array([[[1.0, -0.6], [-0.6, 0.7]]])
    lower, upper = np.array([[0.4, -np.inf]]), np.array([[np.inf, 0.9]])
    found = OneFactor(lower, upper, *one_factor(noise))(ALL, np.array([[[0.2], [1.5]]]))
    # P(e1 > .4 - .2, e2 < .9 - 1.5)
    wanted = multivariate_normal([0, 0], [[1.0, 0.6], [0.6, 0.7]]).cdf([-0.2, -0.6])
    assert np.exp(found[0, 0]) == pytest.approx(wanted, abs=1e-8)
