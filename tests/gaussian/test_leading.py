"""The leading direction's density against exact moments, and what draws of it give."""

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_log_prob, equicorrelated_moments

from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._gaussian.escalation import RectangleSampler
from pymc_skewgp._gaussian.twisted import twist

LEVELS = (np.arange(20_000) + 0.5) / 20_000


def direction_of(cov, lower, upper):
    dense = DenseCovariance(cov)
    return twist(dense, fit_ep(dense, lower, upper), lower, upper, power=1.0).direction


@pytest.mark.parametrize(("variance", "n"), [(1.0, 20), (9.0, 40), (30.0, 60)])
def test_one_factor_is_known_nearly_exactly(variance, n):
    """Rows share one factor: the direction is their mean and some noise, moments by quadrature.

    The rows are not quite independent given it, a share of 1/n of the noise: 2 % of the deviation.
    """
    rho = variance / (1.0 + variance)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    cov = equicorrelated_cov(n, rho)
    direction = direction_of(cov, lower, upper)
    # By symmetry a = rho_a 1'u / sd(1'u) + (1 - rho_a^2)^.5 e.
    total = cov.sum()
    shared = 1.0 - (n / np.linalg.inv(cov)[0, 0]) / total
    exact = equicorrelated_moments(lower, upper, rho)
    mean = np.sqrt(shared / total) * exact.first.sum()
    second = shared / total * exact.second.sum() + 1.0 - shared
    sd = np.sqrt(second - mean**2)
    x = direction.density.quantile(LEVELS)
    # An eigenvector has no sign.
    a = np.sign(direction.row.sum()) * (direction.mean + np.sqrt(direction.variance) * x)
    assert abs(a.mean() - mean) < 0.02 * sd
    assert a.std() == pytest.approx(sd, rel=0.02)


def test_dependent_rows_do_not_make_a_mode_of_their_own():
    """Forty neighbours of an AR(1) in a far tail: the product counts their limits many times."""
    lag = np.abs(np.subtract.outer(np.arange(40), np.arange(40)))
    lower = np.full(40, 2.0)
    lower[::9] = 5.0
    direction = direction_of(0.9**lag, lower, np.full(40, np.inf))
    x = direction.density.quantile(LEVELS)
    # EP's own moments are good to a few hundredths: nothing may be a deviation away.
    assert abs(x.mean()) < 1.0
    assert 0.3 < x.std() < 2.0


@pytest.mark.parametrize(("rho", "n"), [(0.5, 20), (0.8, 120)])
def test_errors_of_probabilities_under_one_strong_factor(rho, n):
    """Upper limits and one factor: reported errors were up to ten times too small.

    24 seeds: errors over stated errors have Student's t with 15 degrees of freedom at most, a mean
    square of 15/13; above 2.5 with probability under 1e-3.
    """
    rng = np.random.default_rng(n)
    lower, upper = np.full(n, -np.inf), rng.normal(0.7, 0.7, n)
    exact = equicorrelated_log_prob(lower, upper, rho)
    sampler = RectangleSampler(DenseCovariance(equicorrelated_cov(n, rho)), lower, upper)
    assert sampler.first.first is not None
    ratios = []
    for seed in range(24):
        estimate = sampler.sample(1024, np.random.default_rng(seed), goal="probability").log_prob
        ratios.append((estimate.value - exact) / estimate.std_error)
        assert estimate.pareto_k < 0.7
    assert np.mean(np.square(ratios)) < 2.5


def test_mirrored_rows_have_the_mirrored_direction():
    """Rows times -1, limits and all, are the same problem.

    With half of equicorrelated rows mirrored the direction is orthogonal to a vector of ones, from
    which no search would find it. The search stops at 1e-3 of the eigenvalue, here at once.
    """
    cov, found = equicorrelated_cov(12, 0.9), []
    for side in (np.ones(12), np.tile([1.0, -1.0], 6)):
        lower, upper = np.where(side > 0, 0.3, -np.inf), np.where(side > 0, np.inf, -0.3)
        found.append(direction_of(side[:, None] * cov * side, lower, upper))
    np.testing.assert_allclose(np.abs(found[1].row), np.abs(found[0].row), rtol=1e-6)
    assert found[1].divergence == pytest.approx(found[0].divergence, rel=1e-6)
