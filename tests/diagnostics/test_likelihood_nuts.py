"""The exact posterior against NUTS on `pm.gp.Latent`, under likelihoods that PyMC has.

30 points, hyperparameters fixed. Means and standard deviations of f are to agree within 4.5 joint
standard errors: a right posterior is called wrong with probability 60 times 7e-6 for a new seed,
never for the seeds fixed here.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg

SIGMAS = 4.5
N = 30
X = np.sort(np.random.default_rng(4).uniform(-3.0, 3.0, N))[:, None]
CUTS = np.array([-0.9, 0.3, 1.2])
LOWER, UPPER = -0.5, 1.3


def cov_func():
    return 2.25 * pm.gp.cov.Matern52(1, ls=1.2)


def noisy_function():
    """A function that is not a draw of the prior, with noise of standard deviation .6."""
    rng = np.random.default_rng(5)
    return 1.5 * np.sin(1.3 * X[:, 0]) + 0.4 * X[:, 0] + 0.6 * rng.standard_normal(N)


VALUE = noisy_function()
CASES = {
    "Normal": (
        sg.likelihoods.Gaussian(0.6),
        VALUE,
        lambda f, y: pm.Normal("y", f, 0.6, observed=y),
    ),
    "Censored": (
        sg.likelihoods.CensoredGaussian(0.6, lower=LOWER, upper=UPPER),
        np.clip(VALUE, LOWER, UPPER),
        lambda f, y: pm.Censored("y", pm.Normal.dist(f, 0.6), LOWER, UPPER, observed=y),
    ),
    "OrderedProbit": (
        sg.likelihoods.OrderedProbit(CUTS, sigma=0.6),
        np.searchsorted(CUTS, VALUE),
        lambda f, y: pm.OrderedProbit("y", eta=f, cutpoints=CUTS, sigma=0.6, observed=y),
    ),
}


def by_nuts(observe, y):
    """Mean and standard deviation of f, with their standard errors."""
    with pm.Model():
        f = pm.gp.Latent(cov_func=cov_func()).prior("f", X)
        observe(f, y)
        tree = pm.sample(
            draws=800,
            tune=400,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    draws = tree["posterior"]["f"]
    assert az.rhat(draws).max() < 1.02
    found = draws.mean(("chain", "draw")).values, draws.std(("chain", "draw")).values
    errors = (az.mcse(draws, method=name).values for name in ("mean", "sd"))
    return *found, *errors


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", CASES)
def test_moments_agree(name):
    likelihood, y, observe = CASES[name]
    mean, sd, mean_se, sd_se = by_nuts(observe, y)
    posterior = sg.SkewGP(cov_func=cov_func()).posterior(X, y, likelihood=likelihood, n_draws=4096)
    at = posterior.marginals()
    for found, own, error, own_error in (
        (mean, at.moments.mean, mean_se, at.moment_errors.mean),
        (sd, at.moments.sd, sd_se, at.moment_errors.sd),
    ):
        z = (found - own) / np.hypot(error, own_error)
        assert np.abs(z).max() < SIGMAS, z.round(1)
