"""Estimators that average over hyperparameters: closed forms, quadrature, and the interface."""

from itertools import permutations

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from oracles import orthant
from scipy import stats

import pymc_skewgp as sg

X2, NEW = np.array([[-0.4], [0.5]]), np.array([[0.1], [1.5]])


def kernel(d):
    return 9.0 * pm.gp.cov.ExpQuad(d, ls=pm.LogNormal("ls", 0.0, 0.7))


@pytest.mark.slow(ci=True)
def test_binary_classes():
    """Two labels and one lengthscale, by quadrature of orthants."""
    nodes, w = np.polynomial.legendre.leggauss(60)
    log_ls, w = 4.0 * nodes, 4.0 * w
    prior = stats.norm(0.0, 0.7).pdf(log_ls) * w

    def signed(x, signs, ls):
        G = 9.0 * np.exp(-0.5 * ((x - x.T) / ls) ** 2) + np.eye(len(x))
        return signs[:, None] * G * signs

    two = prior @ [orthant(signed(X2, np.array([1, -1.0]), a)) for a in np.exp(log_ls)]
    p = [
        prior
        @ [orthant(signed(np.vstack([X2, x]), np.array([1, -1.0, 1]), a)) for a in np.exp(log_ls)]
        / two
        for x in NEW
    ]
    model = sg.SkewGPClassifier(
        kernel, hyperparameters="average", fit_intercept=False, random_state=0
    )
    model.fit(X2, [1, 0])
    evidence = model.log_marginal_likelihood_
    assert abs(evidence.value - np.log(two)) < 4 * evidence.std_error
    assert evidence.std_error < 0.1
    found = model.posterior_.probability(NEW)
    assert (np.abs(found.value - p) < 4 * found.std_error).all()
    assert (found.std_error < 0.05).all()
    np.testing.assert_array_equal(model.predict_proba(NEW)[:, 1], found.value)
    drawn = model.hyperparameters_["posterior"]["ls"]
    assert drawn.shape == (1, 1000)
    # As many effective draws as points, 32, and no more: an estimate with an error of a third.
    assert 8.0 < float(az.ess(drawn)) < 80.0
    summary = model.posterior_.predict(NEW, draws=0)["predictions_summary"]
    np.testing.assert_allclose(summary["p_mean"], found.value, rtol=1e-10)
    np.testing.assert_allclose(summary["p_mean_se"], found.std_error, rtol=1e-6)
    drawn = model.sample_latent(NEW, draws=200, chains=2, random_state=1)["predictions"]
    assert dict(drawn["p"].sizes) == {"chain": 2, "draw": 200, "pred_id": 2}
    # 400 draws of standard deviation of at most a half, and the points' own error.
    assert (np.abs(drawn["p"].mean(("chain", "draw")) - p) < 0.1 + 4 * found.std_error).all()
    # f has the variance of the mixture: that of its draws.
    sd = drawn["f"].std(("chain", "draw"))
    np.testing.assert_allclose(summary["f_sd"], sd, rtol=0.25)  # four standard errors of 400 draws
    at_data = model.to_datatree(draws=100, chains=2, random_state=1)
    assert dict(at_data["posterior"]["f"].sizes) == {"chain": 2, "draw": 100, "obs_id": 2}


def test_regression_spreads_with_the_noise():
    """Mean and variance of y are those of the mixture: by the parts themselves, point by point."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 5, 12)[:, None]
    y = np.sin(x[:, 0]) + 0.2 * rng.normal(size=12)
    model = sg.SkewGPRegressor(hyperparameters="average", random_state=0).fit(x, y)
    mean, sd = model.predict([[2.2], [7.0]], return_std=True)
    parts = [
        p.predict([[2.2], [7.0]], draws=0)["predictions_summary"]
        for p in model.posterior_.posteriors
    ]
    w = model.posterior_.weights
    means, sds = (np.array([p[name].values for p in parts]) for name in ("y_mean", "y_sd"))
    np.testing.assert_allclose(mean, w @ means, rtol=1e-10)
    np.testing.assert_allclose(sd**2, w @ (sds**2 + means**2) - (w @ means) ** 2, rtol=1e-8)
    # The level is integrated out with f, and is no hyperparameter.
    assert set(model.hyperparameters_["posterior"].data_vars) == {"sigma", "eta", "ls"}


# SkewGPSurvival: against a posterior by hand, quadrature and a count of pairs.


RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, (40, 1))
TIME, END = np.exp(np.sin(2.0 * X[:, 0])) * RNG.weibull(2.0, 40), RNG.exponential(3.0, 40)
Y = np.empty(40, dtype=[("event", bool), ("time", float)])
Y["event"], Y["time"] = TIME < END, np.minimum(TIME, END)
LATER = np.array([[-0.8], [0.0], [0.8]])


def flat(d):
    """A process of no variance: f is the level."""
    return 1e-12 * pm.gp.cov.ExpQuad(d, ls=1.0)


@pytest.fixture(scope="module")
def fitted():
    return sg.SkewGPSurvival(n_restarts=0, random_state=0).fit(X, Y)


def test_median_and_survival_function(fitted):
    median = fitted.predict(LATER)
    later = fitted.predict_survival_function(LATER, median)
    np.testing.assert_allclose(np.diag(later), 0.5, atol=1e-6)
    # The truth: 40 rows know it to a third.
    truth = np.exp(np.sin(2.0 * LATER[:, 0])) * np.log(2.0) ** 0.5
    np.testing.assert_allclose(median, truth, rtol=0.5)
    quantile = fitted.posterior_.predict(LATER, draws=0)["predictions_summary"]["y_quantile"]
    np.testing.assert_allclose(median, quantile.values[1], rtol=1e-4)
    with pytest.raises(ValueError, match="times must be positive; row 1 has 0"):
        fitted.predict_survival_function(LATER, [1.0, 0.0])


def test_columns_are_fields():
    """Of a DataFrame, whatever their order."""
    frame = pd.DataFrame({"months": Y["time"], "entry": 0.5 * Y["time"], "dead": Y["event"]})
    found = sg.likelihoods.Weibull(1.0).as_data(frame, 40)
    high = np.where(Y["event"], Y["time"], np.inf)
    np.testing.assert_array_equal(found, np.column_stack([Y["time"], high, 0.5 * Y["time"]]))


def test_concordance(fitted):
    median, known, right = fitted.predict(X), 0, 0
    for i, j in permutations(range(40), 2):
        if Y["event"][i] and Y["time"][i] < Y["time"][j]:
            known, right = known + 1, right + (median[i] < median[j])
    assert fitted.score(X, Y) == pytest.approx(right / known, abs=1e-12)
    with pytest.raises(ValueError, match="no pair of times has a known order"):
        fitted.score(X[:2], [[1.0, np.inf], [2.0, np.inf]])


@pytest.mark.parametrize("distribution", ["exponential", "weibull", "lognormal", "loglogistic"])
def test_a_level_alone_by_quadrature(distribution):
    """Of 12 rows with all kinds of limits, and entries; a grid over the level at the sigma found.

    Within 1 %: the posterior is by draws with errors of some thousandths.
    """
    low = np.r_[Y["time"][:6], Y["time"][6:9], np.zeros(3)]
    high = np.r_[Y["time"][:6], np.full(3, np.inf), Y["time"][9:12]]
    entry = np.where(np.arange(12) % 4 == 0, 0.5 * np.where(low > 0, low, high), 0.0)
    model = sg.SkewGPSurvival(flat, distribution=distribution, n_restarts=0, random_state=0)
    model.fit(X[:12], np.column_stack([low, high, entry]))
    sigma = 1.0 if distribution == "exponential" else float(model.hyperparameters_.point["sigma"])
    logs = np.where(low > 0, np.log(np.maximum(low, 1e-9)), 0.0)
    ends = np.where(np.isfinite(high), np.log(high), logs), np.where(low > 0, logs, np.log(high))
    middle = 0.5 * (ends[0] + ends[1])
    level = np.linspace(-12.0, 12.0, 4001)[:, None]
    given = {
        "lognormal": lambda: stats.lognorm(sigma, scale=np.exp(level)),
        "loglogistic": lambda: stats.fisk(1.0 / sigma, scale=np.exp(level)),
    }.get(distribution, lambda: stats.weibull_min(1.0 / sigma, scale=np.exp(level)))()
    start = np.maximum(low, entry)
    with np.errstate(divide="ignore"):
        mass = np.where(
            low == high,
            given.logpdf(np.where(low > 0, low, 1.0)),
            np.log(np.maximum(given.sf(start) - given.sf(high), 1e-300)),
        )
        log_p = (mass - given.logsf(entry)).sum(axis=1)
    log_p += stats.norm(middle.mean(), middle.std()).logpdf(level[:, 0])
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    times = [0.3, 1.0, 2.5]
    expected = [weights @ given.sf(t)[:, 0] for t in times]
    found = model.predict_survival_function(LATER[:1], times)[0]
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_averages_and_fractional_weights():
    weights, few = np.where(Y["event"], 0.5, 1.5), slice(15)
    one = sg.SkewGPSurvival(
        lambda d: pm.HalfNormal("eta", 1.0) ** 2 * pm.gp.cov.ExpQuad(d, ls=1.0),
        distribution="lognormal",
        hyperparameters="average",
        random_state=0,
    ).fit(X[few], Y[few], sample_weight=weights[few])
    median = one.predict(LATER)
    np.testing.assert_allclose(
        np.diag(one.predict_survival_function(LATER, median)), 0.5, atol=1e-6
    )
    plain = sg.SkewGPSurvival(flat, distribution="exponential", random_state=0).fit(X, Y)
    heavy = sg.SkewGPSurvival(flat, distribution="exponential", random_state=0)
    # Weight on those that were censored: later.
    assert heavy.fit(X, Y, sample_weight=weights).predict(LATER)[0] > plain.predict(LATER)[0]
