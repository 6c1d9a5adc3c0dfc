"""EP's gradient against finite differences of EP's value."""

import numpy as np
import pytest
from oracles import finite_difference

from pymc_skewgp._gaussian.covariance import DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.ep import ep_gradient, fit_ep

TOL = 1e-11


def problem(seed):
    rng = np.random.default_rng(seed)
    noise, factor = rng.uniform(0.5, 2.0, 5), rng.normal(size=(5, 2))
    lower, upper = rng.normal(-0.5, 1.0, 5), np.full(5, np.inf)
    upper[1] = lower[1] + 0.7
    lower[2], upper[2] = -np.inf, 0.3
    lower[4] = -np.inf  # no limits at all
    return LowRankCovariance(noise, factor), lower, upper


@pytest.mark.parametrize("form", ["dense", "low rank"])
@pytest.mark.parametrize("seed", range(3))
def test_gradient(seed, form):
    low_rank, lower, upper = problem(seed)
    matrix = low_rank.dense()
    cov = low_rank if form == "low rank" else DenseCovariance(matrix)
    gradient = ep_gradient(cov, fit_ep(cov, lower, upper, tol=TOL), lower, upper)

    def value(low, high, direction=0.0):
        return fit_ep(DenseCovariance(matrix + direction), low, high, tol=TOL).log_prob

    # Fourth-order differences with h = 1e-3: h^4 times a fifth derivative of order one, 1e-12;
    # round-off 1e-16 / 1e-3 and what EP's own cancellations leave of it: 1e-9.
    for name, at in (("lower", lower), ("upper", upper)):
        for i in np.flatnonzero(np.isfinite(at)):
            step = np.zeros(5)
            step[i] = 1.0
            limits = {"lower": lower, "upper": upper}

            def along(t, name=name, step=step, limits=limits):
                moved = {**limits, name: limits[name] + t * step}
                return value(moved["lower"], moved["upper"])

            found = getattr(gradient, name)[i]
            assert found == pytest.approx(finite_difference(along, 0.0), abs=1e-8)
    assert gradient.lower[4] == gradient.upper[4] == 0.0
    rng = np.random.default_rng(seed + 100)
    for _ in range(3):
        direction = rng.normal(size=(5, 5)) * 0.1
        direction += direction.T
        slope = finite_difference(lambda t, d=direction: value(lower, upper, t * d), 0.0)
        assert np.sum(gradient.cov * direction) == pytest.approx(float(slope), abs=1e-8)
    np.testing.assert_array_equal(gradient.cov, gradient.cov.T)
