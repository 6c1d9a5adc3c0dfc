"""The exact posterior against NUTS on `pm.gp.Latent`, under likelihoods that PyMC can write.

30 points, hyperparameters fixed. Means and standard deviations of f are to agree within 4.5 joint
standard errors: a right posterior is called wrong with probability 60 times 7e-6 (for three classes
180 times) for a new seed, never for the seeds fixed here.
"""

from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
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
PAIRS = np.array([np.random.default_rng(6).choice(N, 2, replace=False) for _ in range(40)])
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


def winners_first():
    won = VALUE[PAIRS[:, 0]] > VALUE[PAIRS[:, 1]]
    return np.where(won[:, None], PAIRS, PAIRS[:, ::-1])


def observe_duels(f, y):
    ahead = (f[y[:, 0]] - f[y[:, 1]]) / (0.5 * np.sqrt(2.0))
    pm.Bernoulli("y", p=pm.math.invprobit(ahead), observed=np.ones(len(y)))


def observe_classes(f, y):
    """Integral over the noise of the winner by 24 Gauss-Hermite nodes."""
    f, rows = f.T, np.arange(N)
    others = np.array([[k for k in range(3) if k != label] for label in y])
    ahead = f[rows, y][:, None] - f[rows[:, None], others]
    each = pm.math.invprobit(ahead[:, :, None] + NODES).prod(axis=1)
    pm.Potential("y", pt.log(each @ (WEIGHTS / WEIGHTS.sum())).sum())


class Case(NamedTuple):
    """A likelihood, its data, the same in PyMC's words, and how many functions there are."""

    likelihood: Any
    y: Any
    observe: Any
    n_functions: int = 1


CASES = {
    "Normal": Case(
        sg.likelihoods.Gaussian(0.6), VALUE, lambda f, y: pm.Normal("y", f, 0.6, observed=y)
    ),
    "Censored": Case(
        sg.likelihoods.CensoredGaussian(0.6, lower=LOWER, upper=UPPER),
        np.clip(VALUE, LOWER, UPPER),
        lambda f, y: pm.Censored("y", pm.Normal.dist(f, 0.6), LOWER, UPPER, observed=y),
    ),
    "OrderedProbit": Case(
        sg.likelihoods.OrderedProbit(CUTS, sigma=0.6),
        np.searchsorted(CUTS, VALUE),
        lambda f, y: pm.OrderedProbit("y", eta=f, cutpoints=CUTS, sigma=0.6, observed=y),
    ),
    "Preference": Case(sg.likelihoods.Preference(0.5), winners_first(), observe_duels),
    "MultinomialProbit": Case(
        sg.likelihoods.MultinomialProbit(3),
        np.searchsorted([-0.7, 0.7], VALUE),
        observe_classes,
        3,
    ),
}


def by_nuts(case):
    """Mean and standard deviation of f, with their standard errors, (n,) or (n, K)."""
    with pm.Model():
        f = pm.gp.Latent(cov_func=cov_func()).prior("f", X, n_outputs=case.n_functions)
        case.observe(f, case.y)
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
    return (x.T for x in (*found, *errors))


def kind(name):
    """One of them in CI: NUTS takes half a minute for one function, and more for three."""
    return pytest.mark.slow(ci=True) if name == "Censored" else pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param(name, marks=kind(name)) for name in CASES])
def test_moments_agree(name):
    case = CASES[name]
    mean, sd, mean_se, sd_se = by_nuts(case)
    gp = sg.SkewGP(cov_func=cov_func())
    at = gp.posterior(X, case.y, likelihood=case.likelihood, n_draws=4096).marginals()
    for found, own, error, own_error in (
        (mean, at.moments.mean, mean_se, at.moment_errors.mean),
        (sd, at.moments.sd, sd_se, at.moment_errors.sd),
    ):
        z = (found.ravel() - own) / np.hypot(error.ravel(), own_error)
        assert np.abs(z).max() < SIGMAS, z.round(1)
