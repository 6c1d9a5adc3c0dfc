"""What is kept with a model is of the model as it is."""

import copy
import gc
import pickle
import weakref

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_skewgp._learn.averaging.problem import kept_with


def build():
    with pm.Model(coords={"row": [0, 1, 2]}) as model:
        x = pm.Data("x", [0.0, 1.0, 2.0], dims="row")
        pm.Normal("y", pm.Normal("slope") * x, observed=[0.5, 1.0, 1.5], dims="row")
    return model


CHANGES = {
    "data": lambda model: pm.set_data({"x": [0.0, 1.0, 3.0]}, model=model),
    "data in place": lambda model: np.put(model["x"].get_value(borrow=True), 0, 7.0),
    "more rows": lambda model: pm.set_data(
        {"x": np.arange(4.0)}, model=model, coords={"row": [0, 1, 2, 3]}
    ),
    "one more variable": lambda model: model.register_rv(pm.Normal.dist(), "another"),
    "one more potential": lambda model: pm.Potential("bound", -(model["slope"] ** 2), model=model),
    "another start": lambda model: model.rvs_to_initial_values.update({model["slope"]: 3.0}),
    "another coordinate": lambda model: model.add_coord("group", ["a", "b"]),
}


def test_made_once():
    model = build()
    first = kept_with(model, "key", object)
    assert kept_with(model, "key", object) is first
    assert kept_with(model, "other", object) is not first
    pm.draw(model["y"], mode="FAST_COMPILE")  # moves its generator, and no more
    assert kept_with(model, "key", object) is first
    assert kept_with(build(), "key", object) is not first


@pytest.mark.parametrize("change", CHANGES)
def test_made_anew_after_a_change(change):
    model = build()
    first = kept_with(model, "key", object)
    CHANGES[change](model)
    second = kept_with(model, "key", object)
    assert second is not first
    assert kept_with(model, "key", object) is second


def test_back_to_what_it_was():
    """Data are compared by their values."""
    model = build()
    first = kept_with(model, "key", object)
    pm.set_data({"x": [0.0, 1.0, 2.0]}, model=model)
    assert kept_with(model, "key", object) is first


def test_other_models_of_it():
    """What PyMC makes of it has nothing of it, nor has a pickle."""
    model = build()
    kept_with(model, "key", lambda: (x for x in ()))  # which cannot be pickled
    others = [
        pm.do(model, {"slope": 1.0}),
        pm.observe(model, {"slope": 1.0}),
        copy.copy(model),
        copy.deepcopy(model),
        pickle.loads(cloudpickle.dumps(model)),
    ]
    for other in others:
        assert kept_with(other, "key", lambda: "new") == "new"


def test_failure_is_not_kept():
    model = build()
    with pytest.raises(ZeroDivisionError):
        kept_with(model, "key", lambda: 1 / 0)
    assert kept_with(model, "key", lambda: 1) == 1


def test_gone_with_the_model():
    """Though what is kept has the model in it."""

    def kept():
        model = build()
        kept_with(model, "key", lambda: [model])
        return weakref.ref(model)

    known = kept()
    gc.collect()
    assert known() is None
