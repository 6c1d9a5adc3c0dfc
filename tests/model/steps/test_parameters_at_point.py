"""The parameters of a SkewGP variable, and the rows of its observations, at a point."""

import numpy as np
import pymc as pm
import pytest
from step_models import X, Y, by_invprobit, prior, probit_model, sun_arguments

from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.graph.analysis import analyse
from pymc_skewgp._model.steps.block_move import LatentAtPoint

pytestmark = pytest.mark.usefixtures("in_python")

MATRIX = np.random.default_rng(0).normal(size=(4, 6))


def at_point(model, name="f"):
    return LatentAtPoint(model, analyse(model, model[name], only=[model[name]]))


def assert_rows_of(observed, labels):
    """Intervals of the labels, with noise of variance 1, and nothing else."""
    np.testing.assert_array_equal(observed.lower, np.where(labels, 0.0, -np.inf))
    np.testing.assert_array_equal(observed.upper, np.where(labels, np.inf, 0.0))
    np.testing.assert_array_equal(observed.S, np.ones(len(labels)))
    assert not observed.is_point.any()


def evaluate(model, rv_name="f", **values):
    point = {**model.initial_point(), **values}
    return at_point(model, rv_name).model(point)


@pytest.mark.parametrize("observe", [BernoulliProbit, by_invprobit])
@pytest.mark.parametrize("s", [0, 2])
def test_parameters_of_a_plain_model(observe, s):
    found = evaluate(probit_model(s=s, observe=observe))
    given = sun_arguments(X[:6], s)
    for name in ("mu", "scale", "truncation", "latent_cov"):
        np.testing.assert_array_equal(getattr(found.prior, name), given[name])
    sd = np.sqrt(given["scale"].diagonal())
    np.testing.assert_allclose(found.prior.cross_cov, sd[:, None] * given["skewness"], rtol=1e-15)
    assert found.observations.A is None
    np.testing.assert_array_equal(found.observations.a, np.zeros(6))
    assert_rows_of(found.observations, Y[:6])


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
    value = np.eye(6) if found.observations.A is None else found.observations.A
    np.testing.assert_allclose(value, design, atol=1e-14)
    np.testing.assert_allclose(found.observations.a, offset(0.7), atol=1e-14)
    assert (found.observations.A is None) == (name == "offset")


def test_rearranged_probabilities():
    """Indexing, reshaping and naming after the link."""
    with pm.Model() as model:
        p = pm.Deterministic("p", pm.math.invprobit(prior()))
        pm.Bernoulli("y", p=p[np.array([4, 0])].reshape((2, 1)), observed=[[1], [0]])
    found = evaluate(model)
    np.testing.assert_allclose(found.observations.A, np.eye(6)[[4, 0]], atol=1e-14)
    assert_rows_of(found.observations, np.array([1, 0]))


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
        found.observations.A.toarray(),
        np.vstack([np.eye(6), np.eye(6)[2:], np.eye(6), np.eye(6)]),
        atol=1e-14,
    )
    np.testing.assert_array_equal(found.observations.a, np.repeat([1.0, 0.0], [6, 16]))
    labels = np.concatenate([Y[:6], Y[2:6], data.ravel()])
    assert_rows_of(found.observations, labels)


def test_one_entry_observed_many_times():
    with pm.Model() as model:
        BernoulliProbit("y", prior(X[:1]), observed=Y[:5])
    found = evaluate(model)
    np.testing.assert_array_equal(found.observations.A, np.ones((5, 1)))
    assert found.observations.a.shape == (5,)


def test_a_sum_of_two_functions():
    """Each is conjugate given the other."""
    with pm.Model() as model:
        f = prior()
        g = UnifiedSkewNormal("g", **sun_arguments(X[:6], 1))
        BernoulliProbit("y", 2.0 * f + g, observed=Y[:6])
    value = np.arange(6.0)
    found = evaluate(model, "f", g=value)
    np.testing.assert_allclose(found.observations.A, 2.0 * np.eye(6))
    np.testing.assert_array_equal(found.observations.a, value)
    np.testing.assert_array_equal(evaluate(model, "g", f=value).observations.a, 2.0 * value)


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
    latent = at_point(model)
    point = model.initial_point()
    first = latent.model(point)
    point["idle"], point["f"] = np.array(3.0), point["f"] + 1.0
    assert latent.model(point) is first
    storage = {name: np.array(value) for name, value in point.items()}
    assert latent.model(storage) is first
    storage["variance_log__"][...] += np.log(2.0)  # in place, as parallel chains do
    second = latent.model(storage)
    assert second is not first
    np.testing.assert_allclose(second.prior.scale, 2.0 * first.prior.scale)
    np.testing.assert_allclose(second.prior.cross_cov, np.sqrt(2.0) * first.prior.cross_cov)


def test_data_are_read_after_forgetting():
    model = random_hyperparameters()
    latent = at_point(model)
    point = model.initial_point()
    before = latent.model(point)
    with model:
        pm.set_data({"data": 1 - Y[:6]})
    assert latent.model(point) is before
    latent.forget()
    assert_rows_of(latent.model(point).observations, 1 - Y[:6])


def test_labels_other_than_0_and_1_are_refused():
    model = random_hyperparameters()
    with model:
        pm.set_data({"data": 2 * Y[:6]})
    with pytest.raises(ValueError, match=r"observations of y must be 0 or 1, got \[2.\]"):
        evaluate(model)


def test_no_observations_at_all():
    with pm.Model() as model:
        BernoulliProbit("y", prior()[:0], observed=np.empty(0, dtype=int))
    found = evaluate(model)
    assert found.observations.n_rows == 0
    assert found.observations.A.shape == (0, 6)
