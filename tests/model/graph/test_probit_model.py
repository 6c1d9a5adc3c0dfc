"""Which models are recognised, and what is read from them at a point."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import ImputationWarning
from step_models import X, Y, by_invprobit, prior, probit_model, sun_arguments

from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.graph.probit_model import (
    NotConjugateError,
    ProbitModel,
    probit_observations,
)

MATRIX = np.random.default_rng(0).normal(size=(4, 6))


def evaluate(model, rv_name="f", **values):
    point = {**model.initial_point(), **values}
    return ProbitModel(model, model[rv_name]).parameters(point)


@pytest.mark.parametrize("observe", [BernoulliProbit, by_invprobit])
@pytest.mark.parametrize("s", [0, 2])
def test_parameters_of_a_plain_model(observe, s):
    found = evaluate(probit_model(s=s, observe=observe))
    given = sun_arguments(X[:6], s)
    for name in ("mu", "scale", "truncation", "latent_cov"):
        np.testing.assert_array_equal(getattr(found, name), given[name])
    sd = np.sqrt(given["scale"].diagonal())
    np.testing.assert_allclose(found.cross_cov, sd[:, None] * given["skewness"], rtol=1e-15)
    assert found.design is None
    np.testing.assert_array_equal(found.offset, np.zeros(6))
    np.testing.assert_array_equal(found.sign, 2.0 * Y[:6] - 1.0)


ETAS = {
    "offset": (lambda f, b: f + b * X[:6], np.eye(6), lambda b: b * X[:6]),
    "minus": (lambda f, b: 1.0 - f, -np.eye(6), lambda b: np.ones(6)),
    "scaled": (lambda f, b: b * f, None, lambda b: np.zeros(6)),
    "index": (lambda f, b: f[[3, 1, 1, 0]], np.eye(6)[[3, 1, 1, 0]], lambda b: np.zeros(4)),
    "slice": (lambda f, b: f[:4] - b, np.eye(6)[:4], lambda b: np.full(4, -b)),
    "matrix": (lambda f, b: pm.math.dot(MATRIX, f) + b, MATRIX, lambda b: np.full(4, b)),
}


@pytest.mark.parametrize("observe", [BernoulliProbit, by_invprobit])
@pytest.mark.parametrize("name", ETAS)
def test_affine_predictors(name, observe):
    make, design, offset = ETAS[name]
    with pm.Model() as model:
        b = pm.Normal("b")
        eta = make(prior(), b)
        observe("y", pm.Deterministic("eta", eta), observed=Y[: offset(0.0).size])
    found = evaluate(model, b=np.array(0.7))
    if name == "scaled":
        design = 0.7 * np.eye(6)
    value = np.eye(6) if found.design is None else found.design
    np.testing.assert_allclose(value, design, atol=1e-14)
    np.testing.assert_allclose(found.offset, offset(0.7), atol=1e-14)
    assert (found.design is None) == (name == "offset")


def test_rearranged_probabilities():
    """Indexing, reshaping and naming after the link."""
    with pm.Model() as model:
        p = pm.Deterministic("p", pm.math.invprobit(prior()))
        pm.Bernoulli("y", p=p[np.array([4, 0])].reshape((2, 1)), observed=[[1], [0]])
    found = evaluate(model)
    np.testing.assert_allclose(found.design, np.eye(6)[[4, 0]], atol=1e-14)
    np.testing.assert_array_equal(found.sign, [1.0, -1.0])


def test_several_children_and_repeated_observations():
    """Rows of one observed variable follow those of the other; (2, 6) data repeat f."""
    data = np.array([Y[:6], 1 - Y[:6]])
    with pm.Model() as model:
        f = prior()
        BernoulliProbit("y", f + 1.0, observed=Y[:6])
        by_invprobit("z", f[2:], observed=Y[2:6])
        BernoulliProbit("repeated", f, observed=data)
    found = evaluate(model)
    np.testing.assert_allclose(
        found.design, np.vstack([np.eye(6), np.eye(6)[2:], np.eye(6), np.eye(6)]), atol=1e-14
    )
    np.testing.assert_array_equal(found.offset, np.repeat([1.0, 0.0], [6, 16]))
    labels = np.concatenate([Y[:6], Y[2:6], data.ravel()])
    np.testing.assert_array_equal(found.sign, 2.0 * labels - 1.0)


def test_one_entry_observed_many_times():
    with pm.Model() as model:
        BernoulliProbit("y", prior(X[:1]), observed=Y[:5])
    found = evaluate(model)
    np.testing.assert_array_equal(found.design, np.ones((5, 1)))
    assert found.offset.shape == (5,)


def test_a_sum_of_two_functions():
    """Each is conjugate given the other."""
    with pm.Model() as model:
        f = prior()
        g = UnifiedSkewNormal("g", **sun_arguments(X[:6], 1))
        BernoulliProbit("y", 2.0 * f + g, observed=Y[:6])
    value = np.arange(6.0)
    found = evaluate(model, "f", g=value)
    np.testing.assert_allclose(found.design, 2.0 * np.eye(6))
    np.testing.assert_array_equal(found.offset, value)
    np.testing.assert_array_equal(evaluate(model, "g", f=value).offset, 2.0 * value)


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


REFUSED = {
    "no child": (lambda f: None, "f has no observations"),
    "logit": (
        lambda f: pm.Bernoulli("y", logit_p=f, observed=Y[:6]),
        "y, which depends on f, is ne",
    ),
    "probability": (lambda f: pm.Bernoulli("y", p=pm.math.sigmoid(f), observed=Y[:6]), "neither"),
    "constant times": (
        lambda f: pm.Bernoulli("y", p=0.4 * pt.erfc(f), observed=Y[:6]),
        "neither a BernoulliProbit",
    ),
    "Poisson": (lambda f: pm.Poisson("y", pt.exp(f), observed=Y[:6]), "neither"),
    "two children": (two_children, "z, which depends on f, is neither"),
    "unobserved": (unobserved, "y, which depends on f, is not observed"),
    "hidden child": (hidden_child, "z, which depends on f, is not observed"),
    "missing values": (imputed, "y_unobserved, which depends on f, is not observed"),
    "potential": (potential, "the potential barrier depends on f"),
    "square": (lambda f: BernoulliProbit("y", f**2, observed=Y[:6]), "affine in f: Pow"),
    "product": (lambda f: BernoulliProbit("y", f * f[::-1], observed=Y[:6]), "affine in f: Mul"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_models(name):
    build, message = REFUSED[name]
    with pm.Model() as model:
        f = prior()
        build(f)
    with pytest.raises(NotConjugateError, match=message):
        probit_observations(model, f)


def test_other_variables_are_refused():
    with pm.Model() as model:
        f = prior()
        g = pm.MvNormal("g", np.zeros(6), np.eye(6))
        batch = UnifiedSkewNormal("batch", **sun_arguments(X[:6]), shape=(2, 6))
        BernoulliProbit("y", f + g + batch[0], observed=Y[:6])
    with pytest.raises(NotConjugateError, match="g is not a UnifiedSkewNormal"):
        probit_observations(model, g)
    with pytest.raises(NotConjugateError, match="batch has batch dimensions"):
        probit_observations(model, batch)
    with pytest.raises(NotConjugateError, match="f is not a free random variable"):
        probit_observations(pm.Model(), f)
    assert [y.name for y in probit_observations(model, f)] == ["y"]


def test_deterministics_and_shapes_are_no_children():
    with pm.Model() as model:
        f = prior()
        pm.Deterministic("square", f**2)
        pm.Normal("b", shape=f.shape[0])
        BernoulliProbit("y", f, observed=Y[:6])
    assert len(probit_observations(model, f)) == 1


def random_hyperparameters():
    with pm.Model() as model:
        variance = pm.HalfNormal("variance")
        level = pm.Normal("level")
        pm.Normal("idle")
        arguments = sun_arguments(X[:6], 1)
        arguments["scale"] = variance * arguments["scale"]
        f = UnifiedSkewNormal("f", **arguments)
        y = pm.Data("data", Y[:6])
        BernoulliProbit("y", f + level, observed=y)
    return model


def test_nothing_is_evaluated_anew_while_nothing_changes():
    """The same object while the inputs that matter keep their values, wherever they are stored."""
    model = random_hyperparameters()
    probit = ProbitModel(model, model["f"])
    point = model.initial_point()
    first = probit.parameters(point)
    point["idle"], point["f"] = np.array(3.0), point["f"] + 1.0
    assert probit.parameters(point) is first
    storage = {name: np.array(value) for name, value in point.items()}
    assert probit.parameters(storage) is first
    storage["variance_log__"][...] += np.log(2.0)  # in place, as parallel chains do
    second = probit.parameters(storage)
    assert second is not first
    np.testing.assert_allclose(second.scale, 2.0 * first.scale)
    np.testing.assert_allclose(second.cross_cov, np.sqrt(2.0) * first.cross_cov)


def test_data_are_read_after_forgetting():
    model = random_hyperparameters()
    probit = ProbitModel(model, model["f"])
    point = model.initial_point()
    before = probit.parameters(point)
    with model:
        pm.set_data({"data": 1 - Y[:6]})
    assert probit.parameters(point) is before
    probit.forget()
    np.testing.assert_array_equal(probit.parameters(point).sign, -before.sign)


def test_labels_other_than_0_and_1_are_refused():
    model = random_hyperparameters()
    with model:
        pm.set_data({"data": 2 * Y[:6]})
    with pytest.raises(ValueError, match=r"observations of y must be 0 or 1, got \[0. 2.\]"):
        evaluate(model)


def test_no_observations_at_all():
    with pm.Model() as model:
        BernoulliProbit("y", prior()[:0], observed=np.empty(0, dtype=int))
    found = evaluate(model)
    assert found.sign.shape == (0,)
    assert found.design.shape == (0, 6)
