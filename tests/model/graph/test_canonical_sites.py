"""Which sites of models are known by a closed form, against SciPy's."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit
from scipy.stats import bernoulli, binom, poisson

from pymc_skewgp._model.graph.gaussian_terms import sites_of_data
from pymc_skewgp._model.graph.sites import sites_of

COUNTS = np.array([[0, 3], [7, 1], [40, 2]])
LABELS = np.array([0, 1, 1])
TRIALS = np.array([5, 12, 1])

CANONICAL = {
    "labels": (
        lambda f: pm.Bernoulli("y", logit_p=f[:3], observed=LABELS),
        lambda x: bernoulli(expit(x)).logpmf(LABELS),
    ),
    "trials": (
        lambda f: pm.Binomial("y", TRIALS, p=pm.math.invlogit(0.3 - f[:3]), observed=LABELS),
        lambda x: binom(TRIALS, expit(x)).logpmf(LABELS),
    ),
    "counts of two dimensions": (
        lambda f: pm.Poisson("y", 2.5 * pm.math.exp(f.reshape((3, 2))), observed=COUNTS),
        lambda x: poisson(2.5 * np.exp(x)).logpmf(COUNTS.ravel()),
    ),
}
OTHERS = {
    "a probit link": lambda f: pm.Bernoulli("y", p=pm.math.invprobit(f), observed=np.ones(6)),
    "a lapse": lambda f: pm.Bernoulli(
        "y", p=0.01 + 0.98 * pm.math.invlogit(f), observed=np.ones(6)
    ),
    "a clip": lambda f: pm.Bernoulli(
        "y", p=pm.math.clip(pm.math.invlogit(f), 1e-9, 1 - 1e-9), observed=np.ones(6)
    ),
    "a clip beyond all that is likely": lambda f: pm.Bernoulli(
        "y", logit_p=pm.math.clip(f, -40.0, 40.0), observed=np.ones(6)
    ),
    "more variance": lambda f: pm.NegativeBinomial(
        "y", mu=pm.math.exp(f), alpha=2.0, observed=np.arange(6)
    ),
    "no zeros": lambda f: pm.Truncated(
        "y", pm.Poisson.dist(pm.math.exp(f)), lower=1, observed=np.arange(1, 7)
    ),
}


def _sites(observed):
    with pm.Model() as model:
        observed(pm.Normal("f", shape=6))
    known = sites_of_data(sites_of(model, model["y"], [model["f"]])())
    return known.family.at(known.y.eval(), ())


@pytest.mark.parametrize("name", CANONICAL)
def test_canonical_sites_are_recognised(name):
    observed, log_prob = CANONICAL[name]
    sites = _sites(observed)
    assert sites.log_concave
    x = np.linspace(-20.0, 6.0, 14)[:, None] * np.ones(sites.size)
    wanted = log_prob(x)
    # Sums of terms as large as 1e4.
    np.testing.assert_allclose(sites.log_prob(x), wanted, rtol=1e-9, atol=1e-9)
    first, second = sites.slopes(x)
    h = 1e-4
    below, above = sites.log_prob(x - h), sites.log_prob(x + h)
    # Differences of two values: h^2, and round-off over h.
    np.testing.assert_allclose(first, (above - below) / (2 * h), rtol=1e-5, atol=1e-5)
    slopes = [sites.slopes(x + k * h)[0] for k in (-1, 1)]
    np.testing.assert_allclose(second, (slopes[1] - slopes[0]) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not(name):
    assert not _sites(OTHERS[name]).log_concave


def test_data_that_are_exchanged_have_sites_of_their_own():
    with pm.Model() as model:
        f = pm.Normal("f", shape=3)
        pm.Poisson("y", pm.math.exp(f), observed=pm.Data("data", np.array([0, 1, 2])))
    known = sites_of_data(sites_of(model, model["y"], [model["f"]])())
    x = np.array([[0.3, -1.0, 2.0]])
    for y in (np.array([0, 1, 2]), np.array([5, 1, 0])):
        pm.set_data({"data": y}, model=model)
        np.testing.assert_allclose(
            known.family.at(known.y.eval(), ()).log_prob(x),
            poisson(np.exp(x)).logpmf(y),
            rtol=1e-12,
        )
