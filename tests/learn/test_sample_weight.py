"""Weights of the estimators are repeated rows."""

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg
from pymc_skewgp._learn.optimizers import OptimizerSettings, SearchSettings

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 1))
F = 2.0 * np.sin(2.0 * X[:, 0]) + 0.5 * RNG.normal(size=16)
W = RNG.integers(0, 4, size=16)
NEW = np.array([[-1.0], [0.2], [1.1]])

QUICK = SearchSettings(
    n_draws=64,
    hessian=False,
    max_noise=np.inf,
    optimizer=OptimizerSettings(max_iterations=2, newton_gain=np.inf),
)
CASES = {
    "two classes": (sg.SkewGPClassifier, {}, (F > 0).astype(int), "predict_proba"),
    "exact": (
        sg.SkewGPClassifier,
        {"multi_class": "exact"},
        np.digitize(F, [-1.0, 1.0]),
        "predict_proba",
    ),
    "levels": (sg.SkewGPOrdinalClassifier, {}, np.digitize(F, [-1.0, 1.0]), "predict_proba"),
    "values": (sg.SkewGPRegressor, {}, F, "predict"),
    "bounds": (sg.SkewGPRegressor, {}, np.column_stack([F - 0.3, F + 0.3]), "predict"),
}


def kernel(d):
    """Nothing to learn: what is learnt is judged elsewhere."""
    return 2.0 * pm.gp.cov.ExpQuad(d, ls=0.7)


def fitted(name, X, y, **kwargs):
    make, options, _, _ = CASES[name]
    model = make(kernel, **options, n_restarts=0, random_state=0)
    model._search = QUICK
    return model.fit(X, y, **kwargs)


@pytest.mark.parametrize("name", CASES)
def test_weights_are_repeats(name):
    """The same rows in the same order: nothing may differ."""
    _, _, y, method = CASES[name]
    weighted = fitted(name, X, y, sample_weight=W)
    repeated = fitted(name, np.repeat(X, W, axis=0), np.repeat(y, W, axis=0))
    assert weighted.log_marginal_likelihood_ == repeated.log_marginal_likelihood_
    found, want = (getattr(model, method)(NEW) for model in (weighted, repeated))
    np.testing.assert_array_equal(found, want)


def test_classes_of_weight_zero_are_not_there():
    y = np.digitize(F, [-1.0, 1.0])
    weights = np.where(y == 1, 0, 1)
    model = fitted("two classes", X, y, sample_weight=weights)
    np.testing.assert_array_equal(model.classes_, [0, 2])


@pytest.mark.parametrize("name", ["two classes", "levels", "values"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(16, 0.5), "sample_weight must be whole numbers.*number 0 is 0.5"),
        (np.zeros(16), "all zero"),
        (-np.ones(16), "negative"),
        (np.ones(3), r"shape \(16,\)"),
    ],
)
def test_bad_weights(name, weights, message):
    with pytest.raises(ValueError, match=message):
        fitted(name, X, CASES[name][2], sample_weight=weights)
