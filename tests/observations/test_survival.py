"""Times to an event: censored, between limits, entered late, against SciPy and quadrature."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import pymc_skewgp as sg

of = sg.likelihoods
SIGMA = 0.7
NOISES = {
    of.Weibull: lambda f: stats.weibull_min(1.0 / SIGMA, scale=np.exp(f)),
    of.LogNormal: lambda f: stats.lognorm(SIGMA, scale=np.exp(f)),
    of.LogLogistic: lambda f: stats.fisk(1.0 / SIGMA, scale=np.exp(f)),
}
# Lower and upper limit, entry: seen, right, left and interval censored; each entered late too.
LOWER = [1.3, 2.0, 0.0, 0.5, 1.3, 2.0, 0.0, 0.7, 0.0]
UPPER = [1.3, np.inf, 0.8, 1.5, 1.3, np.inf, 0.8, 1.5, np.inf]
Y = np.column_stack([LOWER, UPPER, np.repeat([0.0, 0.6], [4, 5])])
F = np.array([-1.5, -0.3, 0.2, 1.9])
GP = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
every = pytest.mark.parametrize("kind", NOISES)


def probability(given, low, high, entry):
    """Density or probability of one observation, given that it had not ended before the entry."""
    alive = given.logsf(entry)
    if low == high:
        return np.exp(given.logpdf(low) - alive)
    return np.exp(given.logsf(max(low, entry)) - alive) - np.exp(given.logsf(high) - alive)


@every
def test_log_probabilities(kind):
    likelihood, f = kind(SIGMA), np.repeat(F[:, None], len(Y), axis=1)
    y = likelihood.as_data(Y, len(Y))
    expected = np.log([[probability(NOISES[kind](x), *row) for row in Y] for x in F])
    # Differences of survival functions: a few hundred units of round-off.
    assert_allclose(likelihood.log_likelihood(y, f), expected, rtol=1e-11, atol=1e-12)


@every
def test_slopes(kind):
    """By central differences of fourth order: an error of 1e-9 and round-off of 1e-12 / step."""
    likelihood, f = kind(SIGMA), np.repeat(F[:, None], len(Y), axis=1)
    y, step = likelihood.as_data(Y, len(Y)), 1e-3

    def difference(function):
        one, two = (function(f + k * step) - function(f - k * step) for k in (1, 2))
        return (8.0 * one - two) / (12.0 * step)

    first, second = likelihood.slopes(y, f)
    assert_allclose(first, difference(lambda x: likelihood.log_likelihood(y, x)), atol=1e-8)
    assert_allclose(second, difference(lambda x: likelihood.slopes(y, x)[0]), atol=1e-8)


@every
def test_far_out(kind):
    """Where probabilities have no digits left in double precision, slopes have."""
    likelihood = kind(SIGMA)
    y = likelihood.as_data([[1.0, np.inf], [0.0, 1.0], [1.0, 1.1]], 3)
    f = np.array([[-30.0, 30.0, 30.0], [30.0, -30.0, -4.0]])
    value, (first, second) = likelihood.log_likelihood(y, f), likelihood.slopes(y, f)
    for found in (value, first, second):
        assert np.isfinite(found).all()
    step = 1e-4
    ahead, behind = (likelihood.log_likelihood(y, f + x) for x in (step, -step))
    # Relative: values are of size 1e18.
    assert_allclose(first, (ahead - behind) / (2.0 * step), rtol=1e-5, atol=1e-9)


@every
def test_evidence_and_forecast_by_quadrature(kind):
    """One place, nine observations of it, trapezoid rule.

    Within four standard errors, and a thousandth for the quantile; the seed is fixed.
    """
    f = np.linspace(-10.0, 10.0, 8001)  # seven deviations of the prior
    mass = stats.norm(0.0, np.sqrt(2.0)).pdf(f) * (f[1] - f[0])
    with np.errstate(divide="ignore"):  # far out
        log_p = np.sum([np.log(probability(NOISES[kind](f), *row)) for row in Y], axis=0)
    found = GP.posterior(np.zeros((9, 1)), Y, likelihood=kind(SIGMA), random_seed=1)
    evidence = found.log_marginal_likelihood
    assert abs(evidence.value - np.log(mass @ np.exp(log_p))) < 4 * evidence.std_error + 1e-9
    weights = mass * np.exp(log_p)
    median = found.predict([[0.0]], draws=0)["predictions_summary"]["y_quantile"].values[1, 0]
    below = (weights @ NOISES[kind](f).cdf(median)) / weights.sum()
    assert below == pytest.approx(0.5, abs=5e-3)
    observed = found.sample(draws=5, chains=2, random_seed=1)["observed_data"]["y"]
    assert_allclose(observed, np.where(Y[:, 0] == Y[:, 1], Y[:, 0], np.nan))


def test_structured_times():
    y = np.array([(True, 1.3), (False, 2.0)], dtype=[("dead", bool), ("days", float)])
    found = of.Weibull(SIGMA).as_data(y, 2)
    assert_allclose(found, [[1.3, 1.3, 0.0], [2.0, np.inf, 0.0]])
    late = np.array([(1.0, True, 1.3)], dtype=[("entry", float), ("dead", bool), ("days", float)])
    assert_allclose(of.Weibull(SIGMA).as_data(late, 1), [[1.3, 1.3, 1.0]])
