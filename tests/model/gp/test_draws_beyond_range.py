"""Draws of f beyond what NumPy draws at: one of them costs one, and the others are as they were."""

from contextlib import nullcontext

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_skewgp as sg
from pymc_skewgp import DrawOverflowWarning
from pymc_skewgp._model.gp.site_functions import DistributionSites

FAR = np.array([-1.0, 0.5, 2.0])  # f that anything can be drawn at
BEYOND = {
    "Poisson": (lambda e: pm.Poisson.dist(pm.math.exp(e)), 60.0, True),
    "Beta": (lambda e: pm.Beta.dist(mu=pm.math.invlogit(e), nu=5.0), 60.0, False),
}


@pytest.mark.parametrize("name", BEYOND)
def test_one_draw_costs_one_draw(name):
    """The others have the distribution that they have alone: means of 20000 by 5 of their errors.

    Three numbers each of two kinds: false alarm 3e-6.
    """
    distribution, far, warned = BEYOND[name]
    likelihood, rng = DistributionSites(distribution, {}), np.random.default_rng(1)
    f = np.tile(np.append(FAR, far), (20_000, 1))
    if warned:
        with pytest.warns(DrawOverflowWarning, match=f"20000 of .* {name}"):
            drawn = likelihood.predictive_draws(f, rng)["y"]
    else:
        drawn = likelihood.predictive_draws(f, rng)["y"]
    alone = likelihood.predictive_draws(f[:, :3], np.random.default_rng(2))["y"]
    error = np.hypot(drawn[:, :3].std(axis=0), alone.std(axis=0)) / np.sqrt(20_000)
    assert np.all(np.abs(drawn[:, :3].mean(axis=0) - alone.mean(axis=0)) < 5 * error)
    last = drawn[:, 3]
    assert np.all(np.isfinite(last))
    # Counts are as large as they can be; of Beta the mean is 1 but for round-off.
    assert np.median(last) > 1e17 if warned else np.all(last > 1 - 1e-6)


@pytest.mark.parametrize(("sd", "name"), [(15.0, "Poisson"), (12.0, "Beta")])
def test_forecasts_far_from_the_data(sd, name):
    """`predict` and `sample` of a wide prior: moments of f, and y in its support."""
    distribution, _, warned = BEYOND[name]
    gp = sg.SkewGP(cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=1.0))
    y = [0.2, 0.5] if name == "Beta" else [1, 5]
    posterior = gp.posterior([[0.0], [1.0]], y, likelihood=distribution, random_seed=1)
    with pytest.warns(DrawOverflowWarning) if warned else nullcontext():
        tree = posterior.predict([[50.0]], random_seed=1)
    assert tree["predictions_summary"]["f_sd"].item() == pytest.approx(sd, rel=1e-6)
    drawn = tree["predictions"]["y"].values
    assert np.all(drawn >= 0)
    assert np.all(np.isfinite(drawn))
    assert posterior.sample(20, random_seed=1)["posterior_predictive"]["y"].shape[-1] == 2


def test_one_new_point_of_a_variable_that_scipy_draws():
    """Constants of PyTensor are read-only, which SciPy does not take."""
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))

    def trials(eta):
        return pm.BetaBinomial.dist(alpha=pm.math.exp(eta), beta=2.0, n=10)

    posterior = gp.posterior([[0.0], [1.0]], [1, 5], likelihood=trials, random_seed=1)
    drawn = posterior.predict([[0.5]], random_seed=1)["predictions"]["y"].values
    assert set(np.unique(drawn)) <= set(range(11))


def test_a_gradient_that_pytensor_lacks():
    """Of Rice: slopes by differences, here against those of SciPy's density."""
    likelihood = DistributionSites(lambda e: pm.Rice.dist(nu=pm.math.exp(e), sigma=1.0), {})
    y, f = np.array([1.0, 2.5]), np.array([0.3, -0.4])
    likelihood.as_data(y, 2)
    first, second = likelihood.slopes(y, f)
    h = 1e-3
    low, here, high = (stats.rice.logpdf(y, np.exp(f + k * h)) for k in (-1, 0, 1))
    np.testing.assert_allclose(first, (high - low) / (2 * h), atol=1e-5)  # h squared
    np.testing.assert_allclose(second, (high - 2 * here + low) / h**2, atol=1e-4)
