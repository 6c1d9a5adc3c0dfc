"""`gp.posterior` under PyMC distributions: by quadrature, and beside other data."""

from contextlib import nullcontext

import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import assert_posterior, function_grid
from scipy import stats
from scipy.special import expit

from pymc_skewgp import DrawOverflowWarning, SkewGP, likelihoods
from pymc_skewgp._model.gp.site_functions import DistributionSites

X = np.linspace(-2.0, 2.0, 12)[:, None]
COUNTS = np.array([0, 1, 0, 2, 3, 5, 9, 7, 4, 2, 2, 0])
LABELS = np.array([0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0, 0])
POSITIVE = np.array([0.3, 0.2, 1.1, 2.0, 0.8, 3.0, 4.1, 2.2, 0.9, 1.2, 0.4, 0.6])
GP = SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=0.8))


def poisson(eta):
    return pm.Poisson.dist(pm.math.exp(eta))


# What has no likelihood of its own: distribution, y, log density by SciPy.
ALONE = {
    "beta": (
        lambda eta: pm.Beta.dist(mu=pm.math.sigmoid(eta), nu=5.0),
        np.array([0.2, 0.9]),
        lambda y, f: stats.beta.logpdf(y, 5 * expit(f), 5 * expit(-f)),
    ),
    "scale": (
        lambda eta: pm.Normal.dist(0.0, pm.math.exp(eta)),
        np.array([0.3, -2.5]),
        lambda y, f: stats.norm.logpdf(y, 0.0, np.exp(f)),
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_two_points_by_quadrature(name):
    distribution, y, log_density = ALONE[name]
    x = np.array([[0.0], [0.7]])
    cov = 2.0 * np.exp(-0.5 * (x - x.T) ** 2 / 0.8**2)
    exact = function_grid(np.zeros(2), cov, lambda f: log_density(y, f).sum(axis=1), 361, 9.0)
    posterior = GP.posterior(x, y, likelihood=distribution, n_draws=4096)
    assert posterior.log_marginal_likelihood.std_error < 0.02
    assert_posterior(posterior, exact, errors=4.5)


def test_beside_other_data_and_with_hyperparameters():
    with pm.Model():
        alpha = pm.HalfNormal("alpha")

    def counts(eta):
        return pm.NegativeBinomial.dist(mu=pm.math.exp(eta), alpha=alpha)

    seen = (X[:4], POSITIVE[:4], likelihoods.Gaussian(0.3))
    kinds = {"counts": (X, COUNTS, counts), "seen": seen}
    mixed = GP.posterior(kinds, point={"alpha": 3.0})
    known = {"counts": (X, COUNTS, likelihoods.NegativeBinomial(3.0)), "seen": seen}
    expected = GP.posterior(known).log_marginal_likelihood
    np.testing.assert_allclose(mixed.log_marginal_likelihood.value, expected.value, atol=1e-5)
    drawn = mixed.sample(draws=20, chains=2, random_seed=1)
    assert drawn["posterior_predictive"]["y_counts"].shape == (2, 20, 12)
    with pytest.raises(ValueError, match=r"alpha of a model: give values, as in point="):
        GP.posterior(kinds)


def test_errors_of_data_say_which():
    kinds = {"times": (X, POSITIVE, lambda eta: pm.Exponential.dist(eta))}
    with pytest.raises(ValueError, match="in the data 'times': the log likelihood is not finite"):
        GP.posterior({**kinds, "labels": (X, LABELS, None)})


def test_without_draws_of_y_there_are_those_of_f():
    def laplace(eta):
        return pm.CustomDist.dist(eta, logp=lambda y, eta: -abs(y - eta) - np.log(2.0))

    drawn = GP.posterior(X, POSITIVE, likelihood=laplace).sample(draws=10, chains=1, random_seed=1)
    assert "posterior_predictive" not in drawn.children
    assert drawn["log_likelihood"]["y"].shape == (1, 10, 12)


def test_update_of_a_distribution():
    first = GP.posterior(X[:6], COUNTS[:6], likelihood=poisson)
    both = first.update(X[6:], COUNTS[6:]).log_marginal_likelihood
    whole = GP.posterior(X, COUNTS, likelihood=poisson).log_marginal_likelihood
    np.testing.assert_allclose(both.value, whole.value, atol=1e-9)


# Draws of f beyond what NumPy draws at: one of them costs one, and the others are as they were.


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
    gp = SkewGP(cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=1.0))
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
    gp = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))

    def trials(eta):
        return pm.BetaBinomial.dist(alpha=pm.math.exp(eta), beta=2.0, n=10)

    posterior = gp.posterior([[0.0], [1.0]], [1, 5], likelihood=trials, random_seed=1)
    drawn = posterior.predict([[0.5]], random_seed=1)["predictions"]["y"].values
    assert set(np.unique(drawn)) <= set(range(11))
