"""Every object of the package pickles, before and after it was used, and gives the same numbers."""

import copy
import pickle

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from likelihood_cases import CASES, Case
from numpy.testing import assert_allclose

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

X = np.linspace(0.0, 3.0, 4)[:, None]
LABELS, COUNTS = [0, 1, 1, 0], [0, 1, 3, 2]


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


def copies(thing):
    return pickled(thing), copy.deepcopy(thing), cloudpickle.loads(cloudpickle.dumps(thing))


def forecasts(posterior):
    tree = posterior.predict([[0.5]], draws=3, chains=1, random_seed=2)
    return {n: v.values for g in tree.children for n, v in tree[g].data_vars.items()}


SCALE = np.array([1.0, 2.0, 3.0, 4.0])
# Pickled by value, with what it refers to: no module has to know it.
FUNCTION = Case(lambda: lambda eta: pm.Poisson.dist(SCALE * pm.math.exp(eta)), {}, COUNTS)


@pytest.mark.parametrize("name", [*CASES, "a function"])
def test_posteriors(name):
    """The same numbers, but for sums in another order: arrays are contiguous after pickling."""
    case = CASES.get(name, FUNCTION)
    likelihood = case.kind(**case.arguments_of(4))
    gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    posterior = gp.posterior(X, case.data(4), likelihood=likelihood, random_seed=1, **case.options)
    before = pickled(posterior)
    expected = forecasts(posterior)
    after = copies(posterior) if name == "BernoulliProbit" else (pickled(posterior),)
    for other in (before, *after):
        found = forecasts(other)
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            assert_allclose(found[key], values, rtol=1e-8, atol=1e-9, err_msg=key)
    assert_allclose(
        before.log_marginal_likelihood.value, posterior.log_marginal_likelihood.value, rtol=1e-10
    )


def test_what_else_there_is():
    kernel = pm.gp.cov.ExpQuad(1, ls=1.0)
    gp = sg.SkewGP(cov_func=kernel)
    probit = gp.posterior(X, LABELS, random_seed=1)
    weighted = gp.posterior(X, COUNTS, likelihood=of.Poisson(), weights=np.full(4, 2.0))
    sparse = sg.SkewGP(cov_func=kernel, approximation=sg.approximations.Inducing(4))
    many = sparse.posterior(X, COUNTS, likelihood=of.Poisson())
    for thing in (
        gp,
        probit.sun,
        probit.prior,
        probit.latent,
        probit.marginals([[0.5]]),
        probit.log_marginal_likelihood,
        probit.update([[0.2]], [1]),
        weighted,
        many,
        many.prior_report(),
        sg.truncated_mvn(np.eye(2), np.zeros(2), np.full(2, np.inf), n_draws=64, random_seed=1),
        sg.approximations.HSGP(m=[5]),
        sg.approximations.Inducing(3),
        sg.approximations.PivotedCholesky(3),
        sg.approximations.Vecchia(3),
        sg.NotSitesError("a", "b"),
        sg.NotConjugateError("a", "b"),
    ):
        assert all(type(other) is type(thing) for other in copies(thing))


def test_estimators_and_results():
    labels = np.array([0, 1, 1, 0, 1, 1, 0, 0])
    inputs = np.linspace(0.0, 3.0, 8)[:, None]
    averaged = sg.SkewGPClassifier(hyperparameters="average", n_restarts=0, random_state=1)
    other = pickle.loads(pickle.dumps(averaged.fit(inputs, labels)))
    found, expected = (x.predict_proba(inputs) for x in (other, averaged))
    assert_allclose(found, expected, rtol=1e-8)
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 3)
        learnt = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
    fit = sg.find_hyperparameters(
        learnt, inputs, labels, n_restarts=0, progressbar=False, random_seed=1
    )
    for other in copies(fit):
        assert other.point == fit.point
    fitted = learnt.posterior(inputs, labels, point=fit.point, likelihood=of.BernoulliLogit())
    assert_allclose(
        pickled(fitted).predict([[1.0]], draws=0)["predictions_summary"]["p_mean"],
        fitted.predict([[1.0]], draws=0)["predictions_summary"]["p_mean"],
    )
    # With its random variables, by their names.
    again, once = (
        gp.posterior(inputs, labels, point={"ls": 1.3}).log_marginal_likelihood.value
        for gp in (pickled(learnt), learnt)
    )
    assert again == pytest.approx(once, abs=0.05)  # seeds of their own: errors of some .002
