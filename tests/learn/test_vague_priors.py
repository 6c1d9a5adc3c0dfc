"""Priors so vague that draws of them are beyond double precision: searches and integrals begin."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import gamma, invgamma, norm

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging.problem import prior_draws
from pymc_skewgp._learn.coordinates import coordinates_of

Y = np.array([2.1, -0.4, 1.3, -2.2, 0.7, 3.0])


def hierarchy(prior):
    """Values with noise 0.5 about effects, whose variance has a prior on many orders."""
    with pm.Model() as model:
        if prior == "precision":
            tau = pm.Gamma("tau", 1e-3, 1e-3)
            sd = 1.0 / pm.math.sqrt(tau)
        else:
            sd = pm.math.sqrt(pm.InverseGamma("variance", 1e-3, 1e-3))
        pm.Normal("y", pm.Normal("u", 0.0, sd, shape=Y.size), 0.5, observed=Y)
    return model


def true_log_evidence(prior):
    """On a grid of the logarithm, with as much of the tails as counts."""
    x, step = np.linspace(-60.0, 60.0, 40_001, retstep=True)
    known = gamma(1e-3, scale=1e3) if prior == "precision" else invgamma(1e-3, scale=1e-3)
    variance = np.exp(-x) if prior == "precision" else np.exp(x)
    likelihood = norm(0.0, np.sqrt(variance + 0.25)[:, None]).logpdf(Y).sum(axis=1)
    return logsumexp(likelihood + known.logpdf(np.exp(x)) + x) + np.log(step)


@pytest.mark.parametrize("prior", ["precision", "variance"])
def test_integrate_under_a_vague_prior_is_its_quadrature(prior):
    found = sg.integrate(
        hierarchy(prior), draws=200, chains=2, random_seed=0, progressbar=False
    )  # fmt: skip
    attrs = found["posterior"].attrs
    # Five standard errors: a false alarm in 2e6 seeds.
    assert abs(attrs["log_evidence"] - true_log_evidence(prior)) < 5 * attrs["log_evidence_se"]


def test_the_search_begins_under_a_vague_prior():
    model = hierarchy("variance")
    found = sg.find_hyperparameters(model, start={"variance": 1.0}, progressbar=False)
    x = np.linspace(-5.0, 5.0, 10_001)
    values = norm(0.0, np.sqrt(np.exp(x) + 0.25)[:, None]).logpdf(Y).sum(axis=1)
    # No Jacobian: the density is the prior's, on its own scale.
    highest = x[np.argmax(values + invgamma(1e-3, scale=1e-3).logpdf(np.exp(x)))]
    # The grid's step is .001; an optimum is found within .01 where the curvature is about one.
    assert np.log(float(found.point["variance"])) == pytest.approx(highest, abs=0.02)


def test_draws_of_a_prior_that_underflows_now_and_then_are_all_finite():
    # A draw of gamma(.005) is below the smallest number with probability .024: some of 2000 are
    # drawn again. The first 32 are all finite for every second generator or so.
    with pm.Model() as model:
        pm.Normal("y", 0.0, pm.math.sqrt(pm.InverseGamma("v", 0.005, 1.0)), observed=Y)
    coordinates, _ = coordinates_of(model, [model.logp()])
    rng = np.random.default_rng(1)
    found = next(
        drawn for _ in range(20) if (drawn := prior_draws(coordinates, (), rng)) is not None
    )
    drawn = found.draw(2000)
    assert drawn.shape == (2000, 1)
    assert np.isfinite(found.log_density(drawn)).all()


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_are_many_factors_away_from_the_start(scale):
    # The start of sigma is one of its prior, whatever the data are; the evidence moves by the
    # logarithm of the unit for each value, and the prior by it once.
    found = []
    for unit in (1.0, scale):
        with pm.Model() as model:
            sigma = pm.LogNormal("sigma", 0.0, 1e3)
            effect = pm.Normal("effect", 0.0, 1e3 * unit)
            pm.Normal("y", effect, sigma, observed=unit * Y)
        attrs = sg.integrate(model, draws=100, chains=2, random_seed=0, progressbar=False)
        found.append(attrs["posterior"].attrs)
    here, there = (a["log_evidence"] for a in found)
    error = np.hypot(*(a["log_evidence_se"] for a in found))
    # Five standard errors, a false alarm in 2e6 seeds; and the slope of the prior.
    assert abs(there + Y.size * np.log(scale) - here) < 5 * error + 1e-3
