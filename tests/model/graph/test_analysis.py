"""Which models are recognised, and what messages say of the others."""

import pickle
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import ImputationWarning
from step_models import X, Y, prior, sun_arguments

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.graph.analysis import analyse, find_observed


def unobserved(f):
    BernoulliProbit("y", f)


def imputed(f):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        BernoulliProbit("y", f, observed=np.ma.masked_array(Y[:6], np.arange(6) == 2))


def two_children(f):
    BernoulliProbit("y", f, observed=Y[:6])
    pm.Poisson("z", pt.exp(f), observed=Y[:6])


def hidden_child(f):
    BernoulliProbit("y", f, observed=Y[:6])
    pm.Normal("z", f[0] + 1.0)


def potential(f):
    BernoulliProbit("y", f, observed=Y[:6])
    pm.Potential("barrier", pt.switch(f[0] > 0, 0.0, -np.inf))


KNOWN = "the exact step is for predictors affine in f under one of these: BernoulliProbit or "
OTHERWISE = "Make f with SkewGP.prior(..., reparameterize=True), which NUTS samples well."
# What is built, the reason given, and the remedy.
REFUSED = {
    "no child": (lambda f: None, "f has no observations.", "pm.sample_prior_predictive"),
    "logit": (
        lambda f: pm.Bernoulli("y", logit_p=f, observed=Y[:6]),
        f"y, which depends on f, is Bernoulli without the probit link; {KNOWN}",
        f"For labels 0 and 1 use BernoulliProbit. For other data: {OTHERWISE}",
    ),
    "probability": (
        lambda f: pm.Bernoulli("y", p=pm.math.sigmoid(f), observed=Y[:6]),
        "y, which depends on f, is Bernoulli without the probit link",
        OTHERWISE,
    ),
    "constant times": (
        lambda f: pm.Bernoulli("y", p=0.4 * pt.erfc(f), observed=Y[:6]),
        "without the probit link",
        OTHERWISE,
    ),
    "Poisson": (
        lambda f: pm.Poisson("y", pt.exp(f), observed=Y[:6]),
        f"y, which depends on f, is Poisson; {KNOWN}",
        OTHERWISE,
    ),
    "two children": (two_children, "z, which depends on f, is Poisson", OTHERWISE),
    "unobserved": (
        unobserved,
        "y, which depends on f, is not observed.",
        "Where it is a prediction, add it to the model after pm.sample",
    ),
    "hidden child": (hidden_child, "z, which depends on f, is not observed.", OTHERWISE),
    "missing values": (
        imputed,
        "y, which depends on f, has masked values, sampled as y_unobserved.",
        "Leave them out, as in BernoulliProbit('y', f[seen], observed=y[seen])",
    ),
    "potential": (potential, "the potential barrier depends on f.", OTHERWISE),
    "square": (
        lambda f: BernoulliProbit("y", f**2, observed=Y[:6]),
        "the probit predictor of y is not known to be affine in f: Pow",
        OTHERWISE,
    ),
    "product": (
        lambda f: BernoulliProbit("y", f * f[::-1], observed=Y[:6]),
        "affine in f: Mul",
        OTHERWISE,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_models(name):
    build, reason, remedy = REFUSED[name]
    with pm.Model() as model:
        f = prior()
        build(f)
    with pytest.raises(NotConjugateError) as caught:
        find_observed(model, f)
    error = caught.value
    assert reason in error.reason
    assert remedy in error.remedy
    assert str(error) == f"{error.reason} {error.remedy}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_other_variables_are_refused():
    with pm.Model() as model:
        f = prior()
        g = pm.MvNormal("g", np.zeros(6), np.eye(6))
        z = pm.ZeroSumNormal("z", shape=6)
        batch = UnifiedSkewNormal("batch", **sun_arguments(X[:6]), shape=(2, 6))
        BernoulliProbit("y", f + g + z + batch[0], observed=Y[:6])
    for other, name in ((g, "g is a MultivariateNormal"), (z, "z is a ZeroSumNormal")):
        message = f"{name} variable; ConjugateStep and LinESS sample latent functions made by"
        with pytest.raises(NotConjugateError, match=message):
            find_observed(model, other)
    with pytest.raises(NotConjugateError, match="batch has batch dimensions"):
        find_observed(model, batch)
    with pytest.raises(NotConjugateError, match="f is not a free random variable"):
        find_observed(pm.Model(), f)
    assert [y.name for y in find_observed(model, f)] == ["y"]


def test_deterministics_and_shapes_are_no_children():
    with pm.Model() as model:
        f = prior()
        pm.Deterministic("square", f**2)
        pm.Normal("b", shape=f.shape[0])
        BernoulliProbit("y", f, observed=Y[:6])
    assert len(find_observed(model, f)) == 1


def test_all_that_is_said_of_a_function():
    with pm.Model() as model:
        eta = pm.HalfNormal("eta")
        arguments = sun_arguments(X[:6], 2)
        arguments["scale"] = eta * arguments["scale"]
        f = UnifiedSkewNormal("f", **arguments)
        BernoulliProbit("y", f + pm.Normal("b"), observed=Y[:6])
        pm.Normal("other", eta, observed=1.0)
        barrier = pm.Potential("barrier", -eta)
    found = analyse(model, f)
    assert (found.name, found.n_latent) == ("f", 2)
    assert [y.name for y in found.observed] == ["y"]
    assert [y.likelihood.name for y in found.observed] == ["probit"]
    assert found.hyperparameters == [model.rvs_to_values[eta]]
    assert {x.name for x in found.rest} == {"eta", "b", "other", "barrier"}
    assert barrier in found.rest
