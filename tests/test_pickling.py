"""Every object of the package pickles, before and after it was used, and gives the same numbers."""

import copy
import pickle

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

X = np.linspace(0.0, 3.0, 4)[:, None]
LABELS, COUNTS, VALUES = [0, 1, 1, 0], [0, 1, 3, 2], [0.1, 0.9, 0.4, 1.3]
ITEMS = [[0, 1, 2], [2, 3, 0]]
SELECTED = np.array([[0.1, 1.0], [np.nan, 0.0], [0.4, 1.0], [1.3, 1.0]])
# Data for each class, by name; below it is asked that none is missing.
CASES = {
    "BernoulliLogit": (of.BernoulliLogit(), LABELS),
    "BernoulliProbit": (of.BernoulliProbit(), LABELS),
    "BinomialLogit": (of.BinomialLogit(5), COUNTS),
    "BinomialProbit": (of.BinomialProbit(5), COUNTS),
    "CensoredGaussian": (of.CensoredGaussian(0.2, lower=0.1), VALUES),
    "Choice": (of.Choice(0.3), ITEMS),
    "Constraint": (of.Constraint(lower=0.0), None),
    "Gamma": (of.Gamma(2.0), VALUES),
    "Gaussian": (of.Gaussian(0.2), VALUES),
    "Laplace": (of.Laplace(0.2), VALUES),
    "MultinomialProbit": (of.MultinomialProbit(3), [0, 1, 2, 1]),
    "NegativeBinomial": (of.NegativeBinomial(2.0), COUNTS),
    "OrderedLogit": (of.OrderedLogit([-1.0, 0.0, 1.0]), COUNTS),
    "OrderedProbit": (of.OrderedProbit([-1.0, 0.0, 1.0]), COUNTS),
    "Poisson": (of.Poisson([1.0, 2.0, 1.0, 0.5]), COUNTS),
    "Preference": (of.Preference(0.3), [[0, 1], [2, 3]]),
    "Ranking": (of.Ranking(0.3), ITEMS),
    "Selection": (of.Selection(sigma=0.3, rho=0.5), [0.1, np.nan, 0.4, 1.3]),
    "StudentT": (of.StudentT(4.0, 0.2), VALUES),
    "Weighted": (of.Weighted(of.Poisson(), [1.0, 2.0, 0.5, 1.0]), COUNTS),
    "a function": (lambda eta: pm.Poisson.dist(pm.math.exp(eta)), COUNTS),
}


def copies(thing):
    return (
        pickle.loads(pickle.dumps(thing)),
        copy.deepcopy(thing),
        cloudpickle.loads(cloudpickle.dumps(thing)),
    )


def forecasts(posterior):
    tree = posterior.predict([[0.5]], draws=3, chains=1, random_seed=2)
    return {n: v.values for g in tree.children for n, v in tree[g].data_vars.items()}


def posterior_of(name):
    likelihood, y = CASES[name]
    settings = {"likelihood": likelihood, "random_seed": 1}
    if name == "Selection":
        settings["coregion"] = np.eye(2)
    gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    return gp.posterior(X, y, **settings)


def test_no_likelihood_is_missing():
    assert set(CASES) - {"a function"} == set(of.__all__)


@pytest.mark.parametrize("name", CASES)
def test_posteriors(name):
    """The same numbers, but for sums in another order: arrays are contiguous after pickling."""
    posterior = posterior_of(name)
    before = copies(posterior)
    expected = forecasts(posterior)
    for other in (*before, *copies(posterior)):
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
        (sg.SkewGPClassifier(), labels),
        (sg.SkewGPRegressor(), labels * 1.0),
        (sg.SkewGPOrdinalClassifier(), labels),
    ):
        for other in copies(estimator.fit(inputs, y)):
            assert_allclose(other.predict(inputs), estimator.predict(inputs))
    averaged = sg.SkewGPClassifier(hyperparameters="average", random_state=1)
    for other in copies(averaged.fit(inputs, labels)):
        found, expected = (x.predict_proba(inputs) for x in (other, averaged))
        assert_allclose(found, expected, rtol=1e-8)
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 3)
        learnt = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
    fit = sg.find_hyperparameters(learnt, inputs, labels, progressbar=False, random_seed=1)
    for other in copies(fit):
        assert other.point == fit.point
    fitted = learnt.posterior(inputs, labels, point=fit.point, likelihood=of.BernoulliLogit())
    for other in copies(fitted):
        assert_allclose(
            other.predict([[1.0]], draws=0)["predictions_summary"]["p_mean"],
            fitted.predict([[1.0]], draws=0)["predictions_summary"]["p_mean"],
        )
    for other in copies(learnt):  # with its random variables, by their names
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
