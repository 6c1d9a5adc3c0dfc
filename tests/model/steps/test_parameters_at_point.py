"""The parameters of a SkewGP variable, and the rows of its observations, at a point."""

import numpy as np
import pymc as pm
import pytest
from step_models import X, Y, sun_arguments

from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.graph.analysis import analyse
from pymc_skewgp._model.steps.block_move import LatentAtPoint

pytestmark = pytest.mark.usefixtures("in_python")


def at_point(model, name="f"):
    return LatentAtPoint(model, analyse(model, model[name], only=[model[name]]))


def assert_rows_of(observed, labels):
    """Intervals of the labels, with noise of variance 1, and nothing else."""
    np.testing.assert_array_equal(observed.lower, np.where(labels, 0.0, -np.inf))
    np.testing.assert_array_equal(observed.upper, np.where(labels, np.inf, 0.0))
    np.testing.assert_array_equal(observed.S, np.ones(len(labels)))
    assert not observed.is_point.any()


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
