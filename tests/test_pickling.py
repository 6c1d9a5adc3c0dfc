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


def copies(thing):
    return (
        pickle.loads(pickle.dumps(thing)),
        copy.deepcopy(thing),
        cloudpickle.loads(cloudpickle.dumps(thing)),
    )


def forecasts(posterior):
    tree = posterior.predict([[0.5]], draws=3, chains=1, random_seed=2)
    return {n: v.values for g in tree.children for n, v in tree[g].data_vars.items()}


def counts(eta):
    return pm.Poisson.dist(pm.math.exp(eta))


@pytest.mark.parametrize("name", [*CASES, "a function"])
def test_posteriors(name):
    """The same numbers, but for sums in another order: arrays are contiguous after pickling."""
    case = CASES.get(name, Case(lambda: counts, {}, COUNTS))
    likelihood = case.kind(**case.arguments_of(4))
    gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    posterior = gp.posterior(X, case.data(4), likelihood=likelihood, random_seed=1, **case.options)
    before = copies(posterior)
    expected = forecasts(posterior)
    for other in (before[0], *copies(posterior)):
        found = forecasts(other)
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            assert_allclose(found[key], values, rtol=1e-8, atol=1e-9, err_msg=key)
    assert_allclose(
        before[0].log_marginal_likelihood.value, posterior.log_marginal_likelihood.value, rtol=1e-10
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
        sg.NotSitesError("a", "b"),
        sg.NotConjugateError("a", "b"),
    ):
        assert all(type(other) is type(thing) for other in copies(thing))


def test_estimators_and_results():
    labels = np.array([0, 1, 1, 0, 1, 1, 0, 0])
    inputs = np.linspace(0.0, 3.0, 8)[:, None]
    for estimator, y in (
        (sg.SkewGPClassifier(n_restarts=0), labels),
        (sg.SkewGPRegressor(n_restarts=0), labels * 1.0),
    ):
        for other in copies(estimator.fit(inputs, y))[: 3 if y is labels else 1]:
            assert_allclose(other.predict(inputs), estimator.predict(inputs))
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
    for other in copies(fitted)[:1]:
        assert_allclose(
            other.predict([[1.0]], draws=0)["predictions_summary"]["p_mean"],
            fitted.predict([[1.0]], draws=0)["predictions_summary"]["p_mean"],
        )
    for other in copies(learnt)[:1]:  # with its random variables, by their names
        again = other.posterior(inputs, labels, point={"ls": 1.3})
        assert_allclose(
            again.log_marginal_likelihood.value,
            learnt.posterior(inputs, labels, point={"ls": 1.3}).log_marginal_likelihood.value,
            atol=0.05,  # of two runs with seeds of their own, whose errors are some .002
        )


def test_a_function_with_values_of_the_user():
    """The function is pickled by value, with what it refers to: no module has to know it."""
    scale = np.array([1.0, 2.0, 3.0, 4.0])
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    posterior = gp.posterior(
        X, COUNTS, likelihood=lambda eta: pm.Poisson.dist(scale * pm.math.exp(eta)), random_seed=1
    )
    other = pickle.loads(pickle.dumps(posterior))
    assert_allclose(forecasts(other)["f_mean"], forecasts(posterior)["f_mean"], rtol=1e-10)
