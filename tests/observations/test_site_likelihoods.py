"""Site likelihoods: log probabilities, slopes and new data, by SciPy, mpmath and PyMC."""

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

EXPOSURE = np.array([0.5, 2.0, 1.0, 30.0])
TRIALS = np.array([1, 5, 12, 40])
CUTS = np.array([-1.0, 0.2, 1.5])
SIGMA = np.array([0.3, 1.0, 2.0, 0.7])


def ordered(y, f):
    ends = np.concatenate([[-np.inf], CUTS, [np.inf]])
    return np.log(expit(ends[y + 1] - f) - expit(ends[y] - f))


def nbinom(y, f, alpha=1.7):
    mean = EXPOSURE * np.exp(f)
    return stats.nbinom.logpmf(y, alpha, alpha / (alpha + mean))


# The likelihood, data, and its log probability by SciPy.
CASES = {
    "bernoulli": (
        of.BernoulliLogit(),
        np.array([0, 1, 1, 0]),
        lambda y, f: stats.bernoulli.logpmf(y, expit(f)),
    ),
    "binomial": (
        of.BinomialLogit(TRIALS),
        np.array([1, 0, 7, 40]),
        lambda y, f: stats.binom.logpmf(y, TRIALS, expit(f)),
    ),
    "poisson": (
        of.Poisson(EXPOSURE),
        np.array([0, 3, 1, 80]),
        lambda y, f: stats.poisson.logpmf(y, EXPOSURE * np.exp(f)),
    ),
    "negative binomial": (of.NegativeBinomial(1.7, EXPOSURE), np.array([0, 3, 1, 80]), nbinom),
    "gamma": (
        of.Gamma(2.5),
        np.array([0.01, 0.7, 3.0, 40.0]),
        lambda y, f: stats.gamma.logpdf(y, 2.5, scale=np.exp(f) / 2.5),
    ),
    "ordered": (of.OrderedLogit(CUTS), np.array([0, 1, 2, 3]), ordered),
    "student": (
        of.StudentT(4.0, SIGMA),
        np.array([-3.0, 0.0, 0.4, 20.0]),
        lambda y, f: stats.t.logpdf(y, 4.0, loc=f, scale=SIGMA),
    ),
    "laplace": (
        of.Laplace(SIGMA),
        np.array([-3.0, 0.1, 0.4, 20.0]),
        lambda y, f: stats.laplace.logpdf(y, loc=f, scale=SIGMA),
    ),
}
F = np.random.default_rng(0).normal(0.0, 2.0, size=(3, 5, 4))


@pytest.mark.parametrize("name", CASES)
def test_log_likelihood(name):
    """Over leading axes too."""
    likelihood, y, oracle = CASES[name]
    data = likelihood.as_data(y, 4)
    assert_allclose(likelihood.log_likelihood(data, F), oracle(y, F), rtol=1e-11, atol=1e-11)
    sites = likelihood.sites(data, 4)
    assert sites.A is None
    assert_allclose(sites.a, np.zeros(4))
    assert_allclose(sites.log_prob(F[0, 0]), oracle(y, F[0, 0]), rtol=1e-11, atol=1e-11)
    assert likelihood.observations(data, 4).n_rows == 0


@pytest.mark.parametrize("name", CASES)
def test_slopes(name):
    """By central differences: their error is h^2 times third derivatives, and eps / h^2."""
    likelihood, y, _ = CASES[name]
    data, h = likelihood.as_data(y, 4), 1e-4
    low, mid, high = (likelihood.log_likelihood(data, F + shift) for shift in (-h, 0.0, h))
    first, second = likelihood.slopes(data, F)
    scale = 1.0 + np.abs(first) + np.abs(second)
    assert np.all(np.abs(first - (high - low) / (2 * h)) < 1e-6 * scale)
    assert np.all(np.abs(second - (high - 2 * mid + low) / h**2) < 1e-5 * (scale + np.abs(mid)))


def test_models_of_pymc():
    """What each docstring says is its model."""
    y, f = {name: case[1] for name, case in CASES.items()}, F[0, 0]
    models = {
        "bernoulli": pm.Bernoulli.dist(logit_p=f),
        "binomial": pm.Binomial.dist(TRIALS, logit_p=f),
        "poisson": pm.Poisson.dist(EXPOSURE * pm.math.exp(f)),
        "negative binomial": pm.NegativeBinomial.dist(mu=EXPOSURE * pm.math.exp(f), alpha=1.7),
        "gamma": pm.Gamma.dist(alpha=2.5, beta=2.5 / pm.math.exp(f)),
        "ordered": pm.OrderedLogistic.dist(eta=f, cutpoints=CUTS),
        "student": pm.StudentT.dist(nu=4.0, mu=f, sigma=SIGMA),
        "laplace": pm.Laplace.dist(mu=f, b=SIGMA),
    }
    assert set(models) == set(CASES)
    logs = [pm.logp(model, y[name]) for name, model in models.items()]
    found = pytensor.function([], logs, mode="FAST_COMPILE")()
    for name, expected in zip(models, found, strict=True):
        assert_allclose(CASES[name][0].log_likelihood(y[name], f), expected, rtol=1e-8, atol=1e-8)


LARGE = (-700.0, -50.0, -8.0, 8.0, 13.5, 50.0, 700.0)
MANY = 10**6


def by_mpmath(name, y, f):
    """Log probability and its two derivatives."""
    exp, log, gamma = mpmath.exp, mpmath.log, mpmath.loggamma
    p = 1 / (1 + exp(-f))
    if name == "bernoulli":
        value = log(p) if y else log(1 - p)
        return value, y - p, -p * (1 - p)
    if name == "binomial":
        value = log(mpmath.binomial(MANY, y)) + y * log(p) + (MANY - y) * log(1 - p)
        return value, y - MANY * p, -MANY * p * (1 - p)
    if name == "poisson":
        return y * f - exp(f) - gamma(y + 1), y - exp(f), -exp(f)
    if name == "negative binomial":
        odds = exp(f) / (2 + exp(f))
        value = gamma(y + 2) - gamma(y + 1) - gamma(2) + 2 * log(1 - odds) + y * log(odds)
        return value, y - (y + 2) * odds, -(y + 2) * odds * (1 - odds)
    rate = mpmath.mpf(3) / exp(f)
    value = 3 * log(rate) - gamma(3) + 2 * log(y) - rate * y
    return value, rate * y - 3, -rate * y


@pytest.mark.parametrize(
    ("name", "likelihood", "y"),
    [
        ("bernoulli", of.BernoulliLogit(), (0, 1)),
        ("binomial", of.BinomialLogit(MANY), (0, 3, MANY // 2, MANY)),
        ("poisson", of.Poisson(), (0, 1, MANY)),
        ("negative binomial", of.NegativeBinomial(2.0), (0, 1, MANY)),
        ("gamma", of.Gamma(3.0), (1e-6, 1.0, 1e6)),
    ],
)
def test_far_off(name, likelihood, y):
    """All digits but those that a difference of numbers of this size can have: 1e7 times eps."""
    f = np.array(LARGE)
    with mpmath.workdps(700):
        for value in y:
            data = np.full(f.size, value)
            found = (likelihood.log_likelihood(data, f), *likelihood.slopes(data, f))
            exact = [by_mpmath(name, mpmath.mpf(value), mpmath.mpf(x)) for x in LARGE]
            for order, part in enumerate(zip(*exact, strict=True)):
                expected = np.array([float(x) for x in part])
                assert_allclose(found[order], expected, rtol=1e-12, atol=2e-8 if value > 1 else 0)


def test_ordered_logit_far_off():
    """Where differences of the logistic function would be 0."""
    f, y = np.array([700.0, -700.0, 40.0]), np.array([1, 1, 2])
    with mpmath.workdps(700):
        L = lambda x: 1 / (1 + mpmath.exp(-mpmath.mpf(x)))  # noqa: E731
        pairs = zip((CUTS[0], CUTS[0], CUTS[1]), (CUTS[1], CUTS[1], CUTS[2]), f, strict=True)
        expected = [float(mpmath.log(L(b - x) - L(a - x))) for a, b, x in pairs]
    assert_allclose(of.OrderedLogit(CUTS).log_likelihood(y, f), expected, rtol=1e-13)


def test_no_count_is_impossible_by_overflow_but_for_means_beyond_floats():
    assert of.Poisson(1e6).log_likelihood(np.array([3]), np.array([705.0]))[0] == -np.inf


def test_limits_of_families():
    y, f = np.array([0, 3, 11]), np.array([0.1, 0.5, 2.0])
    large = of.NegativeBinomial(1e9).log_likelihood(y, f)
    assert_allclose(large, of.Poisson().log_likelihood(y, f), atol=1e-6)
    labels = np.array([0, 1, 1])
    logit = of.BernoulliLogit().log_likelihood(labels, f)
    assert_allclose(of.BinomialLogit(1).log_likelihood(labels, f), logit, atol=1e-14)
    assert_allclose(of.OrderedLogit([0.0]).log_likelihood(labels, f), logit, atol=1e-14)


# Of y by row, which SciPy draws.
NEW = {
    "bernoulli": lambda f: stats.bernoulli(expit(f)),
    "binomial": lambda f: stats.binom(TRIALS, expit(f)),
    "poisson": lambda f: stats.poisson(EXPOSURE * np.exp(f)),
    "negative binomial": lambda f: stats.nbinom(1.7, 1.7 / (1.7 + EXPOSURE * np.exp(f))),
    "gamma": lambda f: stats.gamma(2.5, scale=np.exp(f) / 2.5),
    "student": lambda f: stats.t(4.0, loc=f, scale=SIGMA),
    "laplace": lambda f: stats.laplace(loc=f, scale=SIGMA),
}


@pytest.mark.parametrize("name", CASES)
def test_replicates(name):
    """Of 20000 each: shares of values of at most each datum, five standard errors allowed."""
    likelihood, y, oracle = CASES[name]
    rng, f, n = np.random.default_rng(3), np.array([0.3, -0.5, 1.0, 0.2]), 20000
    many = np.broadcast_to(f, (4, n // 4, 4))
    drawn = likelihood.replicate(y, many, likelihood.log_likelihood(y, many), rng)
    assert drawn.shape == many.shape
    if name == "ordered":
        p = sum(np.exp(oracle(np.full(4, c), f)) * (c <= y) for c in range(4))
    else:
        p = NEW[name](f).cdf(y)
    share = (drawn <= y).mean(axis=(0, 1))
    assert np.all(np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-12)


class TestWeighted:
    """Powers of a site."""

    def test_powers(self):
        weights = np.array([2.0, 0.5, 0.0, 1.0])
        plain, y, _ = CASES["negative binomial"]
        weighted = of.Weighted(plain, weights)
        data = weighted.as_data(y, 4)
        assert_allclose(
            weighted.log_likelihood(data, F), weights * plain.log_likelihood(data, F), rtol=1e-14
        )
        for found, expected in zip(weighted.slopes(data, F), plain.slopes(data, F), strict=True):
            assert_allclose(found, weights * expected, rtol=1e-14)

    def test_nothing_is_impossible_without_weight(self):
        none = of.Weighted(of.Poisson(), 0.0)
        assert none.log_likelihood(np.array([3]), np.array([710.0]))[0] == 0.0

    def test_what_is_predicted_is_the_likelihoods(self):
        weighted = of.Weighted(of.OrderedLogit(CUTS, ["a", "b", "c", "d"]), 2.0)
        assert weighted.predicted_dims["p_mean"] == ("category",)
        assert weighted.coords(np.array([0]))["category"] == ["a", "b", "c", "d"]

    @pytest.mark.parametrize("other", [of.BernoulliProbit(), of.Weighted(of.Poisson(), 1.0), "x"])
    def test_other_likelihoods(self, other):
        with pytest.raises(TypeError, match="Weighted takes a likelihood of one predictor"):
            of.Weighted(other, 1.0)


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (of.BernoulliLogit(), [0, 2, 1], "y must hold two classes"),
        (of.BinomialLogit(4), [0, 5, 1], r"row 1 has 5 successes in 4 trials"),
        (of.BinomialLogit([4, 4]), [0, 1, 1], r"n must have shape \(3,\)"),
        (of.Poisson(), [0, -2, 1], r"counts of 0 and more; row 1 has -2 \(1 such row"),
        (of.Poisson(), [0, 0.5, 1], "y must hold integers, one count for each row of X; row 1"),
        (of.Poisson(), [0, np.nan, 1], "y must be finite"),
        (of.Poisson([1.0, 0.0, 2.0]), [0, 1, 2], r"exposure must be positive; row 1 has 0"),
        (of.Poisson([1.0, 2.0]), [0, 1, 2], "exposure must have length 3, got 2"),
        (of.Poisson(np.inf), [0, 1, 2], "exposure holds 3 infinite value"),
        (of.NegativeBinomial(0.0), [0, 1, 2], "alpha must be positive, got 0"),
        (of.NegativeBinomial(2.0, -1.0), [0, 1, 2], "exposure must be positive; row 0 has -1"),
        (of.Gamma(-1.0), [1.0, 1.0, 2.0], "alpha must be positive, got -1"),
        (of.Gamma(1.0), [1.0, 0.0, 2.0], "y must be positive; row 1 has 0"),
        (of.OrderedLogit(CUTS), [0, 4, 1], r"categories 0 to 3.*found \[4\] in 1 row"),
        (of.OrderedLogit([1.0, 0.0]), [0, 1, 1], "cutpoints must increase"),
        (of.OrderedLogit(CUTS, ["a"]), [0, 1, 1], "categories must be 4 names"),
        (of.OrderedLogit(CUTS, ["a", "b", "c", "d"]), ["a", "e", "b"], "found 'e' in 1 row"),
        (of.StudentT(0.0, 1.0), [0.0, 1.0, 2.0], "nu must be positive, got 0"),
        (of.StudentT(4.0, [1.0, -1.0, 1.0]), [0.0, 1.0, 2.0], "sigma must be positive; row 1"),
        (of.StudentT(4.0, 1.0), [0.0, np.inf, 2.0], "y must be finite"),
        (of.Laplace(0.0), [0.0, 1.0, 2.0], "b must be positive; row 0 has 0"),
        (
            of.Weighted(of.Poisson(), [1.0, -1.0, 0.0]),
            [0, 1, 2],
            "weights must be 0 or more; row 1",
        ),
        (of.Weighted(of.Poisson(), [1.0, 1.0]), [0, 1, 2], "weights must have length 3"),
    ],
)
def test_bad_input(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        sg.SkewGPPosterior(np.arange(3.0), y, cov_func=lambda X: np.eye(3), likelihood=likelihood)


def test_alpha_is_one_number():
    with pytest.raises(TypeError, match="alpha must be a number"):
        of.Gamma(np.ones(3)).as_data([1.0, 1.0, 1.0], 3)
    assert of.Gamma(np.array(2.0)).as_data([1.0], 1).shape == (1,)
