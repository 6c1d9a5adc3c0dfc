"""Which models are recognised, and what messages say of the others."""

import pickle
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.exceptions import ImputationWarning
from pytensor.graph.traversal import ancestors
from scipy.linalg import block_diag
from step_models import X, Y, analyse, prior, sun_arguments

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.graph.analysis import find_observed
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._sun.parameters import SunParameters


def unobserved(f):
    BernoulliProbit("y", f)


def imputed(f):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        data = np.ma.masked_array(Y[:6].astype(float), np.arange(6) == 2)
        pm.MvNormal("y", f, cov=np.eye(6), observed=data)


def two_children(f):
    BernoulliProbit("y", f, observed=Y[:6])
    pm.Poisson("z", pt.exp(f), observed=Y[:6])


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
    "two children": (two_children, "z, which depends on f, is Poisson", OTHERWISE),
    "unobserved": (
        unobserved,
        "y, which depends on f, is not observed.",
        "Where it is a prediction, add it to the model after pm.sample",
    ),
    "missing values": (
        imputed,
        "y_observed, which depends on f, is MultivariateNormal with masked entries",
        "Leave them out: the mean and the covariance of those seen.",
    ),
    "square": (
        lambda f: BernoulliProbit("y", f**2, observed=Y[:6]),
        "the probit predictor of y is not known to be affine in f: Pow",
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


def evaluated(model, found):
    """Prior and rows at the initial point, by NumPy."""
    rows = [x for y in found.observed for x in (y.A, y.a)]
    graphs = [*found.prior, *rows]
    used = set(ancestors(graphs))
    assert not set(found.values) & used
    inputs = [value for value in model.value_vars if value in used]
    point = model.initial_point()
    results = pytensor.function(inputs, graphs, mode=PLAIN)(*(point[x.name] for x in inputs))
    return SunParameters(*results[:5]), results[5:]


GROUP = np.array([0, 1, 2, 0, 1, 2])


def test_a_block_is_all_that_is_jointly_gaussian():
    """Two functions, effects of three kinds and a slope: columns in the order of the model."""
    with pm.Model(coords={"group": list("abc")}) as model:
        tau = pm.HalfNormal("tau")
        f = prior(s=2)
        b = pm.Normal("b", 0.5, tau, dims="group")
        g = UnifiedSkewNormal("g", **sun_arguments(X[:6], 1))
        v = pm.MvNormal("v", np.zeros(2), 2.0 * np.eye(2), shape=(2, 2))
        z = pm.ZeroSumNormal("z", 1.5, dims="group")
        slope = pm.Normal("slope")
        BernoulliProbit("y", f + g + b[GROUP] + z[GROUP] + slope * X[:6], observed=Y[:6])
        BernoulliProbit("w", v.ravel() + 1.0 - slope, observed=Y[:4])
    found = analyse(model, f)
    assert found.names == ["f", "b", "g", "v", "z", "slope"]
    assert analyse(model, b).names == analyse(model, v).names == found.names
    assert (found.n_latent, len(found.normalisers)) == (3, 2)
    assert found.hyperparameters == [model.rvs_to_values[tau]]
    assert [x.name for x in found.rest] == ["tau"]
    joint, (A, a, B, b) = evaluated(model, found)
    one, other = sun_arguments(X[:6], 2), sun_arguments(X[:6], 1)
    effects = [np.eye(3), other["scale"], 2.0 * np.eye(4), 2.25 * np.eye(2), np.eye(1)]
    np.testing.assert_allclose(joint.scale, block_diag(one["scale"], *effects))
    np.testing.assert_allclose(joint.mu, np.repeat([0.0, 0.5, 0.0], [6, 3, 13]))
    np.testing.assert_allclose(joint.latent_cov, block_diag(one["latent_cov"], other["latent_cov"]))
    assert joint.cross_cov.shape == (22, 3)
    assert (joint.cross_cov[:6, :2] != 0).all()
    assert (joint.cross_cov[9:15, 2] != 0).all()
    assert np.count_nonzero(joint.cross_cov) == 18
    # Columns of z: the effects that a point of the plane stands for.
    plane = np.linalg.svd(np.ones((1, 3)))[2][1:]
    effect = A[:, 19:21]
    np.testing.assert_allclose(effect @ effect.T, (plane.T @ plane)[np.ix_(GROUP, GROUP)])
    np.testing.assert_allclose(
        A[:, [0, 6, 9, 21]], np.column_stack([np.eye(6)[0], GROUP == 0, np.eye(6)[0], X[:6]])
    )
    assert not A[:, 15:19].any()
    np.testing.assert_allclose(
        B, np.hstack([np.zeros((4, 15)), np.eye(4), np.zeros((4, 2)), -np.ones((4, 1))])
    )
    np.testing.assert_array_equal(a, np.zeros(6))
    np.testing.assert_array_equal(b, np.ones(4))


def test_means_that_depend_on_other_members():
    """A centred hierarchy, and a function whose mean has a random slope: by the law of all."""
    with pm.Model() as model:
        level, slope = pm.Normal("level", 1.0, 2.0), pm.Normal("slope", 0.0, 3.0)
        b = pm.Normal("b", 2.0 * level, 0.5, shape=3)
        arguments = {**sun_arguments(X[:6], 2), "mu": slope * X[:6] + level}
        f = UnifiedSkewNormal("f", **arguments)
        BernoulliProbit("y", f + b[GROUP], observed=Y[:6])
    found = analyse(model, level)
    assert found.names == ["level", "slope", "b", "f"]
    joint, _ = evaluated(model, found)
    # From independent level, slope, deviations of b and of f.
    T = np.eye(11)
    T[2:5, 0], T[5:, 0], T[5:, 1] = 2.0, 1.0, X[:6]
    own = block_diag([[4.0]], [[9.0]], 0.25 * np.eye(3), arguments["scale"])
    np.testing.assert_allclose(joint.scale, T @ own @ T.T, atol=1e-12)
    np.testing.assert_allclose(joint.mu, T @ np.array([1.0] + [0.0] * 10), atol=1e-12)
    assert not joint.cross_cov[:5].any()
    alone, _ = evaluated(model, analyse(model, f, only=[f]))
    np.testing.assert_allclose(joint.cross_cov[5:], alone.cross_cov)
    with pytest.raises(NotConjugateError, match="the mean of b depends on level"):
        analyse(model, level, only=[level, f])


def with_b(sigma=1.0, eta=lambda f, b: f + b, more=lambda f, b: None):
    with pm.Model() as model:
        f, b = prior(), pm.Normal("b", 0.0, sigma)
        BernoulliProbit("y", eta(f, b), observed=Y[:6])
        more(f, b)
    return model


@pytest.mark.parametrize(
    "model",
    [
        with_b(eta=lambda f, b: f * b),
        with_b(eta=lambda f, b: f + b**2),
        with_b(more=lambda f, b: pm.Potential("p", -(b**4))),
        with_b(more=lambda f, b: pm.Poisson("n", pt.exp(b), observed=3)),
        with_b(more=lambda f, b: pm.Normal("below", 0.0, pt.exp(b), observed=1.0)),
        with_b(eta=lambda f, b: f),
    ],
    ids=["product", "square", "potential", "Poisson", "scale", "apart"],
)
def test_gaussian_variables_that_stay_outside(model):
    assert analyse(model, model["f"]).names == ["f"]
    with pytest.raises(NotConjugateError):
        analyse(model, model["b"])


def test_shapes_that_data_decide():
    """Inputs, groups and effects in `pm.Data`: sizes are those of the data at the time."""
    with pm.Model(coords={"group": list("abc")}) as model:
        x, group = pm.Data("x", X[:6]), pm.Data("g", GROUP)
        n = x.shape[0]
        cov = pt.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-6 * pt.eye(n)
        f = UnifiedSkewNormal("f", 0.0, cov, pt.zeros((n, 0)), np.zeros(0), np.zeros((0, 0)))
        b, z = pm.Normal("b", dims="group"), pm.ZeroSumNormal("z", dims="group")
        BernoulliProbit("y", f + b[group] + z[group], observed=pm.Data("labels", Y[:6]))
    found = analyse(model, f)
    joint, (A, _) = evaluated(model, found)
    assert joint.scale.shape == (11, 11)
    assert A.shape == (6, 11)
    with model:
        pm.set_data({"x": X[:4], "g": GROUP[:4], "labels": Y[:4]})
    joint, (A, _) = evaluated(model, found)
    assert joint.scale.shape == (9, 9)
    assert A.shape == (4, 9)
