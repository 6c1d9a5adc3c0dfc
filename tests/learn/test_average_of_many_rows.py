"""Averages over hyperparameters with f of finite rank, against matrices of all rows."""

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging.average_process import AveragedPosterior
from pymc_skewgp._learn.averaging.importance import IntegrationSettings
from pymc_skewgp._learn.averaging.problem import ManyRowsProblem, integration_problem
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._posterior import finite_rank_fit
from pymc_skewgp.approximations import HSGP, Inducing

N = 40
NEW = np.array([[-0.5], [0.3], [1.5]])


def data(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 1))
    return X, (np.sin(4.0 * X[:, 0]) + 0.5 * rng.normal(size=n) > 0).astype(int)


def process(approximation):
    with pm.Model():
        ls = pm.LogNormal("ls", -0.7, 0.5)
        sd = pm.HalfNormal("sd", 2.0, initval=1.0)
        kernel = sd**2 * pm.gp.cov.ExpQuad(1, ls=ls)
        return sg.SkewGP(cov_func=kernel, approximation=approximation)


@pytest.fixture(scope="module")
def dense():
    """Matrices of all rows: what was here before, and is tested by quadrature."""
    X, y = data()
    return sg.integrate(process(None), X, y, Xnew=NEW, random_seed=0, progressbar=False)


def test_integral_is_that_of_all_matrices(dense):
    X, y = data()
    gp = process(Inducing(X))  # nothing is left of f: the same prior
    found = sg.integrate(
        gp, X, y, Xnew=NEW, n_evidences=32, draws=200, random_seed=1, progressbar=False
    )
    own, other = found["posterior"].attrs, dense["posterior"].attrs
    error = np.hypot(own["log_evidence_se"], other["log_evidence_se"])
    assert error < 0.1
    # Four joint standard errors: a false alarm in ten thousand seeds.
    assert abs(own["log_evidence"] - other["log_evidence"]) < 4 * error
    assert own["relative_ess"] > 0.5
    assert own["relative_ess_exact"] > 0.9
    for name in ("ls", "sd"):
        x, z = (np.log(tree["posterior"][name].values) for tree in (found, dense))
        # 32 points, spread evenly over the posterior: half the error of independent ones.
        assert abs(x.mean() - z.mean()) < 0.5 * z.std()
        assert 0.6 < x.std() / z.std() < 1.4
    for group in ("posterior", "predictions"):
        f, g = (tree[group]["f"] for tree in (found, dense))
        difference = (f.mean(("chain", "draw")) - g.mean(("chain", "draw"))).values
        # f spreads by its hyperparameters too: at most a third of its variance here.
        assert (np.abs(difference) < 4 * g.std(("chain", "draw")).values * 0.1).all()
    assert set(found.children) == set(dense.children)
    assert found["log_likelihood"]["y"].shape == (4, 200, N)


def test_many_rows_have_no_draws_at_the_data(monkeypatch):
    from pymc_skewgp._learn.averaging import problem

    monkeypatch.setattr(problem, "_MOST_DRAWN", 30)
    X, y = data()
    options = {"n_evidences": 4, "draws": 20, "random_seed": 1, "progressbar": False}
    found = sg.integrate(process(HSGP(12, c=2.0)), X, y, Xnew=NEW, **options)
    assert set(found["posterior"].data_vars) == {"ls", "sd"}
    assert dict(found["predictions"]["p"].sizes) == {"chain": 4, "draw": 20, "pred_id": 3}
    assert "log_likelihood" not in found.children
    np.testing.assert_array_equal(found["observed_data"]["y"], y)


def test_draws_of_a_mixture_at_some_rows(monkeypatch):
    monkeypatch.setattr(finite_rank_fit, "_MOST_KEPT", 30)
    X, y = data()
    points = {"ls": 0.4, "sd": 1.0}, {"ls": 0.8, "sd": 2.0}
    gp = process(Inducing(X[::7]))  # six points: many rows for each
    posteriors = [gp.posterior(X, y, point=point) for point in points]
    evidence = posteriors[0].log_marginal_likelihood  # of no matter here
    found = AveragedPosterior(posteriors, np.array([0.3, 0.7]), evidence)
    drawn = found.sample(500, 2, random_seed=0)
    assert drawn["posterior"]["coordinates"].shape == (2, 500, 6)
    p = found.weights @ [x.probability(X[[3, 7]]).value for x in found.posteriors]
    np.testing.assert_allclose(found.probability(X[[3, 7]]).value, p, rtol=1e-8)
    part = found.at_rows(drawn, [3, 7], random_seed=0)
    f = part["posterior"]["f"]
    assert f.shape == (2, 500, 2)
    marginals = [x.marginals(X[[3, 7]]) for x in found.posteriors]
    mean = found.weights @ [x.moments[0] for x in marginals]
    assert (drawn["posterior"]["point"].values == np.repeat([0, 1], [150, 350])).all()
    # 1000 near-independent draws; four standard errors.
    assert (np.abs(f.mean(("chain", "draw")) - mean) < 4 * f.std(("chain", "draw")) / 30).all()


def test_many_rows_by_themselves(monkeypatch):
    monkeypatch.setattr("pymc_skewgp._learn.rows.rows_objective.MANY_ROWS", N - 1)
    X, y = data()
    problem = integration_problem(TrainingData(process("auto"), X, y), None, None)
    assert isinstance(problem, ManyRowsProblem)
    assert IntegrationSettings().for_many_rows().n_evidences == 32
