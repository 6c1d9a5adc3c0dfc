"""Estimators with more rows than exact algebra is for; here some hundred of them are many."""

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg
from pymc_skewgp._learn import estimator
from pymc_skewgp._learn.rows import rows_objective as rows_graphs
from pymc_skewgp._posterior import automatic

N = 420


@pytest.fixture(autouse=True)
def many(monkeypatch):
    """More than 400 rows are many, and sixty points do."""
    for module in (estimator, rows_graphs, automatic):
        monkeypatch.setattr(module, "MANY_ROWS", 400)
    monkeypatch.setattr(automatic, "_MOST_POINTS", 60)
    monkeypatch.setattr(automatic, "_LEAST_POINTS", 60)


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N, 2))
    return X, 2.0 * np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=N)


def test_classifier():
    X, values = data()
    model = sg.SkewGPClassifier(n_restarts=0, random_state=0).fit(X, values > 0)
    assert repr(model.posterior_.prior.approximation) == "Inducing(60)"
    assert set(model.hyperparameters_.runs["method"].values) <= {"ep", "ep, part of the data"}
    assert model.hyperparameters_.kind == "evidence"
    assert model.hyperparameters_.converged
    # The labels' own error, of noise .5, is some .09.
    assert model.score(X, values > 0) > 0.87
    # The same kernel as it is: 60 points carry a smooth function in two columns.
    exact = sg.SkewGPClassifier(n_restarts=0, random_state=0, n_pseudo_points=0)
    with pytest.MonkeyPatch.context() as patch:
        for module in (estimator, rows_graphs, automatic):
            patch.setattr(module, "MANY_ROWS", 10**6)
        exact.fit(X, values > 0)
    for name, value in exact.hyperparameters_.point.items():
        np.testing.assert_allclose(model.hyperparameters_.point[name], value, rtol=0.05)
    np.testing.assert_allclose(model.predict_proba(X[:50]), exact.predict_proba(X[:50]), atol=0.01)


def test_regressor():
    X, values = data()
    model = sg.SkewGPRegressor(n_restarts=0, random_state=0).fit(X, values)
    assert repr(model.posterior_.prior.approximation) == "Inducing(60)"
    # A standard deviation of 420 values of noise .5 is off by .017: four of these.
    assert model.hyperparameters_.point["sigma"] == pytest.approx(0.5, abs=0.07)


def test_ordinal_classifier():
    X, values = data()
    levels = np.digitize(values, [-1.0, 0.5, 2.0])
    model = sg.SkewGPOrdinalClassifier(n_restarts=0, random_state=0).fit(X, levels)
    assert repr(model.posterior_.prior.approximation) == "Inducing(60)"
    assert model.hyperparameters_.kind == "evidence"
    assert model.hyperparameters_.converged
    # In units of the noise of .5: cut-points of the truth, errors of some .3 from 420 rows.
    assert np.abs(np.diff(model.cutpoints_) - [3.0, 3.0]).max() < 1.0
    assert set(model.hyperparameters_.std_error) >= {"cutpoints", "eta", "ls"}
    assert model.score(X, levels) > 0.7


def test_preference():
    X, values = data()
    pairs = np.random.default_rng(1).permutation(N).reshape(-1, 2)
    pairs = np.concatenate([pairs, np.roll(pairs, 1, axis=1)[::-1]])
    first = values[pairs[:, 0]] > values[pairs[:, 1]]
    won = np.where(first[:, None], pairs, pairs[:, ::-1])
    model = sg.SkewGPPreference(n_restarts=0, random_state=0).fit(X, won)
    assert repr(model.posterior_.prior.approximation) == "Inducing(60)"
    assert model.hyperparameters_.converged
    assert set(model.hyperparameters_.runs["method"].values) == {"ep"}
    truth = 2.0 * np.sin(3.0 * X[:, 0]) + X[:, 1]
    assert np.corrcoef(model.predict(X), truth)[0, 1] > 0.95


def test_with_pseudo_points_in_batches():
    X, values = data()
    model = sg.SkewGPClassifier(n_restarts=0, n_pseudo_points=1, batch_size=140, random_state=0)
    model.fit(X, values > 0)
    assert model.hyperparameters_.kind == "composite"
    assert repr(model.posterior_.prior.approximation) == "Inducing(60)"


def test_average():
    X, values = data()
    average = sg.SkewGPClassifier(hyperparameters="average", random_state=0).fit(X, values > 0)
    repr_of = {repr(p.prior.approximation) for p in average.posterior_.posteriors}
    assert repr_of == {"Inducing(60)"}
    drawn = average.hyperparameters_["posterior"]
    assert drawn.attrs["method"] == "importance sampling"
    assert drawn.attrs["relative_ess"] > 0.3
    # Among all points of the importance sampling, not the few posteriors.
    assert np.unique(drawn["ls"]).size > 2 * len(average.posterior_.posteriors)
    assert average.score(X, values > 0) > 0.87


def test_a_rough_kernel_is_warned_of_and_the_fit_is_kept(monkeypatch):
    monkeypatch.setattr(automatic, "_ROWS_OF_VALUES", 0)
    X, values = data()

    def learnt(d):
        return pm.HalfNormal("eta", 2.0) ** 2 * pm.gp.cov.Matern12(d, ls=0.3)

    def known(d):
        return 4.0 * pm.gp.cov.Matern12(d, ls=0.3)

    labels = (values > 0).astype(int)
    fits = [
        (sg.SkewGPClassifier(kernel=known, random_state=0), labels),
        (sg.SkewGPRegressor(kernel=learnt, n_restarts=0, random_state=0), values),
    ]
    for model, y in fits:
        with pytest.warns(sg.PriorApproximationWarning, match="log evidence by") as caught:
            model.fit(X, y)
        assert len(caught) == 1
        # A posterior of this process would stop; the best that was tried is kept.
        assert "Inducing" in repr(model.posterior_.prior.approximation)
        assert model.posterior_.approximation_loss.largest > 0.1
        assert model.score(X, y) > 0.8
