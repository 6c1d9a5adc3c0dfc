"""Ten ordinary forms of a latent Gaussian model, as PyMC users write them, on small simulated data.

    python benchmarks/latent_gaussian_forms.py --references DIR [--make-references]

``FORMS`` names the functions. Each takes a likelihood, "poisson", "bernoulli_logit" or
"bernoulli_probit", and returns a `pymc.Model` of 20 to 40 rows with proper priors. The data depend
on the likelihood and a seed only. `centred_effects` and `noncentred_effects` are one model with
the same data: their posteriors and evidences agree.
"""

import functools
from pathlib import Path

import numpy as np
import pymc as pm
from scipy.special import expit, ndtr

LIKELIHOODS = ("poisson", "bernoulli_logit", "bernoulli_probit")
FORMS = {}


def form(function):
    FORMS[function.__name__] = function
    return function


def simulated(eta, likelihood, seed):
    """Values at the predictors `eta`."""
    rng = np.random.default_rng((35, seed))
    if likelihood == "poisson":
        return rng.poisson(np.exp(eta))
    inverse = {"bernoulli_logit": expit, "bernoulli_probit": ndtr}[likelihood]
    return (rng.uniform(size=len(eta)) < inverse(eta)).astype(int)


def observe(eta, y, likelihood):
    """The observed variable `y` of the model that is open."""
    if likelihood == "poisson":
        pm.Poisson("y", pm.math.exp(eta), observed=y)
    elif likelihood == "bernoulli_logit":
        pm.Bernoulli("y", logit_p=eta, observed=y)
    else:
        pm.Bernoulli("y", pm.math.invprobit(eta), observed=y)


def kernel():
    ls = pm.InverseGamma("ls", 5.0, 8.0)
    scale = pm.HalfNormal("scale", 1.0)
    return scale**2 * pm.gp.cov.Matern52(1, ls=ls)


@form
def latent(likelihood):
    """A Gaussian process by `pm.gp.Latent`."""
    x = np.linspace(0.0, 10.0, 30)
    y = simulated(0.5 + np.sin(x), likelihood, 0)
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=kernel())
        observe(gp.prior("f", X=x[:, None]), y, likelihood)
    return model


@form
def hsgp(likelihood):
    """The same in twelve basis functions, with an intercept."""
    x = np.linspace(0.0, 10.0, 40)
    y = simulated(0.5 + np.sin(x), likelihood, 1)
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 1.0)
        gp = pm.gp.HSGP(m=[12], c=1.5, cov_func=kernel())
        observe(level + gp.prior("f", X=x[:, None]), y, likelihood)
    return model


@form
def gaussian_random_walk(likelihood):
    y = simulated(np.linspace(-0.5, 1.5, 30), likelihood, 2)
    with pm.Model() as model:
        step = pm.HalfNormal("step", 0.5)
        start = pm.Normal.dist(0.0, 1.0)
        walk = pm.GaussianRandomWalk("walk", sigma=step, init_dist=start, shape=30)
        observe(walk, y, likelihood)
    return model


@form
def autoregression(likelihood):
    """An autoregression of order two with an intercept, whose coefficients have uniform priors."""
    y = simulated(0.3 + np.sin(np.arange(30.0) / 2.0), likelihood, 3)
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 1.0)
        rho = pm.Uniform("rho", -0.5, 0.5, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        coefficients = pm.math.concatenate([level[None], rho])
        start = pm.Normal.dist(0.0, 1.0, shape=2)
        f = pm.AR("f", coefficients, sigma=sigma, constant=True, init_dist=start, shape=30)
        observe(f, y, likelihood)
    return model


def lattice(rows, columns):
    """Which of the areas of a lattice are neighbours; and where they are."""
    place = np.indices((rows, columns)).reshape(2, -1).T
    distance = np.abs(place[:, None] - place[None]).sum(axis=2)
    return (distance == 1).astype(float), place


@form
def car(likelihood):
    W, place = lattice(5, 5)
    y = simulated(0.5 * (place[:, 0] - 2.0), likelihood, 4)
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 1.0)
        alpha = pm.Beta("alpha", 4.0, 2.0)
        tau = pm.Gamma("tau", 4.0, 2.0)
        phi = pm.CAR("phi", mu=np.zeros(25), W=W, alpha=alpha, tau=tau)
        observe(level + phi, y, likelihood)
    return model


@form
def icar(likelihood):
    W, place = lattice(5, 5)
    y = simulated(0.5 * (place[:, 0] - 2.0), likelihood, 5)
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 1.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        phi = pm.ICAR("phi", W=W)
        observe(level + sigma * phi, y, likelihood)
    return model


@form
def mvnormal(likelihood):
    """A Gaussian vector with a covariance matrix of the user's."""
    t = np.arange(25.0)
    y = simulated(np.cos(t / 4.0), likelihood, 6)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        ls = pm.LogNormal("ls", 1.5, 0.5)
        cov = scale**2 * pm.math.exp(-np.abs(t[:, None] - t) / ls)
        f = pm.MvNormal("f", mu=np.zeros(25), cov=cov)
        observe(f, y, likelihood)
    return model


def groups(likelihood):
    """Eight groups of five: group of a row, covariate and value."""
    group = np.repeat(np.arange(8), 5)
    x = np.tile(np.linspace(-1.0, 1.0, 5), 8)
    effects = np.array([-0.8, -0.4, -0.1, 0.0, 0.3, 0.6, 0.9, 1.1])
    return group, x, simulated(effects[group] + 0.5 * x, likelihood, 7)


def grouped(likelihood, is_centred):
    """A line with levels of the groups, in either form."""
    group, x, y = groups(likelihood)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        slope = pm.Normal("slope", 0.0, 1.0)
        tau = pm.HalfNormal("tau", 1.0)
        if is_centred:
            effects = pm.Normal("effects", mu, tau, shape=8)
        else:
            z = pm.Normal("z", 0.0, 1.0, shape=8)
            effects = pm.Deterministic("effects", mu + tau * z)
        observe(effects[group] + slope * x, y, likelihood)
    return model


@form
def centred_effects(likelihood):
    return grouped(likelihood, True)


@form
def noncentred_effects(likelihood):
    return grouped(likelihood, False)


@form
def glm(likelihood):
    """Coefficients with fixed priors: a model without hyperparameters."""
    X = np.random.default_rng(8).normal(size=(40, 3))
    y = simulated(0.2 + X @ np.array([0.6, -0.4, 0.0]), likelihood, 8)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 2.5)
        beta = pm.Normal("beta", 0.0, 1.0, shape=3)
        observe(intercept + pm.math.dot(X, beta), y, likelihood)
    return model


def cases(_):
    """Each form under each likelihood; references are to be made."""
    from latent_models import Case

    return {
        f"{name}-{likelihood}": Case(functools.partial(build, likelihood))
        for name, build in FORMS.items()
        for likelihood in LIKELIHOODS
    }


if __name__ == "__main__":
    from latent_models import run

    RESULTS = Path(__file__).resolve().parent / "results" / "latent_gaussian_forms.csv"
    run(cases, __doc__, RESULTS, has_data=False)
