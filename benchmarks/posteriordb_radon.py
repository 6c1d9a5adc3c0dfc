"""The radon models of posteriordb, with `posteriordb_regressions`."""

import numpy as np
import pymc as pm
from posteriordb_regressions import translates

BOTH = ("radon_all", "radon_mn")


def effects(name, n, is_centred):
    """One for each county, about a mean, in either form."""
    mu = pm.Normal(f"mu_{name}", 0.0, 10.0)
    sigma = pm.HalfNormal(f"sigma_{name}", 1.0)
    if is_centred:
        return pm.Normal(name, mu, sigma, shape=n)
    return pm.Deterministic(name, mu + sigma * pm.Normal(f"{name}_raw", 0.0, 1.0, shape=n))


def measured(d, mean):
    pm.Normal("log_radon", mean, pm.HalfNormal("sigma_y", 1.0), observed=d["log_radon"])


def hierarchical_intercept(d, is_centred):
    X = np.column_stack([d["log_uppm"], d["floor_measure"]])
    with pm.Model() as model:
        alpha = effects("alpha", d["J"], is_centred)
        beta = pm.Normal("beta", 0.0, 10.0, shape=2)
        measured(d, alpha[d["county_idx"] - 1] + pm.math.dot(X, beta))
    return model


@translates(*BOTH)
def radon_hierarchical_intercept_centered(d):
    return hierarchical_intercept(d, True)


@translates(*BOTH)
def radon_hierarchical_intercept_noncentered(d):
    return hierarchical_intercept(d, False)


def partially_pooled(d, is_centred):
    with pm.Model() as model:
        measured(d, effects("alpha", d["J"], is_centred)[d["county_idx"] - 1])
    return model


@translates(*BOTH)
def radon_partially_pooled_centered(d):
    return partially_pooled(d, True)


@translates(*BOTH)
def radon_partially_pooled_noncentered(d):
    return partially_pooled(d, False)


def variable_intercept(d, is_centred):
    with pm.Model() as model:
        alpha = effects("alpha", d["J"], is_centred)
        beta = pm.Normal("beta", 0.0, 10.0)
        measured(d, alpha[d["county_idx"] - 1] + beta * d["floor_measure"])
    return model


@translates(*BOTH)
def radon_variable_intercept_centered(d):
    return variable_intercept(d, True)


@translates(*BOTH)
def radon_variable_intercept_noncentered(d):
    return variable_intercept(d, False)


def variable_slope(d, is_centred):
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0.0, 10.0)
        beta = effects("beta", d["J"], is_centred)
        measured(d, alpha + beta[d["county_idx"] - 1] * d["floor_measure"])
    return model


@translates(*BOTH)
def radon_variable_slope_centered(d):
    return variable_slope(d, True)


@translates(*BOTH)
def radon_variable_slope_noncentered(d):
    return variable_slope(d, False)


def variable_intercept_slope(d, is_centred):
    county = d["county_idx"] - 1
    with pm.Model() as model:
        alpha = effects("alpha", d["J"], is_centred)
        beta = effects("beta", d["J"], is_centred)
        measured(d, alpha[county] + beta[county] * d["floor_measure"])
    return model


@translates(*BOTH)
def radon_variable_intercept_slope_centered(d):
    return variable_intercept_slope(d, True)


@translates(*BOTH)
def radon_variable_intercept_slope_noncentered(d):
    return variable_intercept_slope(d, False)


@translates(*BOTH)
def radon_county_intercept(d):
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0.0, 10.0, shape=d["J"])
        beta = pm.Normal("beta", 0.0, 10.0)
        measured(d, alpha[d["county_idx"] - 1] + beta * d["floor_measure"])
    return model


@translates(*BOTH)
def radon_pooled(d):
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0.0, 10.0)
        beta = pm.Normal("beta", 0.0, 10.0)
        measured(d, alpha + beta * d["floor_measure"])
    return model


@translates("radon_mod")
def radon_county(d):
    with pm.Model() as model:
        mu = pm.Normal("mu_a", 0.0, 1.0)
        sigma_a, sigma_y = (pm.Uniform(f"sigma_{k}", 0.0, 100.0) for k in "ay")
        a = pm.Normal("a", mu, sigma_a, shape=d["J"])
        pm.Normal("y", a[d["county"] - 1], sigma_y, observed=d["y"])
    return model
