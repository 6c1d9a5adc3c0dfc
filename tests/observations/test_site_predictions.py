"""What site likelihoods predict: probabilities, moments, quantiles, draws; by quadrature."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit

from pymc_skewgp import likelihoods as of
from pymc_skewgp._observations.binary import LOGISTIC_NOISE
from pymc_skewgp._posterior.output import LatentMarginals

CUTS = np.array([-1.0, 0.2, 1.5])
# A mixture of three components at two points, all there is: no Monte Carlo.
MEANS = np.array([[-1.0, 0.3, 2.0], [0.5, 0.9, -0.2]])
VARIANCE, WEIGHTS = np.array([0.6, 2.0]), np.array([0.2, 0.5, 0.3])
MIXTURE = LatentMarginals(MEANS, VARIANCE, WEIGHTS, exact=True)


def average(values, mixture=MIXTURE):
    """E values(f) by the trapezoid rule.

    Its error is far below 1e-12 for smooth functions, and below 1e-5 for mixtures of hundreds.
    """
    z = np.linspace(-11.0, 11.0, 4001 if mixture.weights.size < 10 else 101)
    w = np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2 * np.pi)
    f = mixture.means[..., None] + np.sqrt(mixture.variance)[:, None, None] * z
    return np.einsum("tsq,q,s->t", values(f), w, mixture.weights)


def test_logistic_noise():
    """As a mixture of normals, and its variance pi^2 / 3."""
    x = np.linspace(-60.0, 60.0, 2401)
    p = LOGISTIC_NOISE.shares @ stats.norm.cdf(x / np.sqrt(LOGISTIC_NOISE.variances)[:, None])
    assert np.abs(p - expit(x)).max() < 1e-9
    assert LOGISTIC_NOISE.shares @ LOGISTIC_NOISE.variances == pytest.approx(np.pi**2 / 3, rel=1e-8)


@pytest.mark.parametrize("likelihood", [of.BernoulliLogit(), of.BinomialLogit(7)])
def test_probability_of_a_label(likelihood):
    found = likelihood.predictive_summary(MIXTURE)
    assert_allclose(found["p_mean"], average(expit), atol=1e-9)
    assert_allclose(found["p_mean_se"], 0.0)


def test_probabilities_of_categories():
    found = of.OrderedLogit(CUTS).predictive_summary(MIXTURE)["p_mean"]
    ends = np.concatenate([[-np.inf], CUTS, [np.inf]])
    for c in range(4):
        p = average(lambda f, c=c: expit(ends[c + 1] - f) - expit(ends[c] - f))
        assert_allclose(found[:, c], p, atol=2e-9)
    assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "mean", "variance"),
    [
        (of.Poisson(3.0), lambda f: 3 * np.exp(f), lambda f: 3 * np.exp(f)),
        (of.Poisson([0.5, 2.0]), np.exp, np.exp),
        (
            of.NegativeBinomial(1.7, 3.0),
            lambda f: 3 * np.exp(f),
            lambda f: 3 * np.exp(f) + 9 * np.exp(2 * f) / 1.7,
        ),
        (of.Gamma(2.5), np.exp, lambda f: np.exp(2 * f) / 2.5),
        (of.StudentT(4.0, 0.7), lambda f: f, lambda f: np.full(f.shape, 0.49 * 2)),
        (of.Laplace(0.7), lambda f: f, lambda f: np.full(f.shape, 0.98)),
    ],
)
def test_moments_of_new_values(likelihood, mean, variance):
    found = likelihood.predictive_summary(MIXTURE)
    first = average(mean)
    assert_allclose(found["y_mean"], first, rtol=1e-11)
    total = average(variance) + average(lambda f: mean(f) ** 2) - first**2
    assert_allclose(found["y_sd"], np.sqrt(total), rtol=1e-11)
    assert_allclose(found["y_mean_se"], 0.0)
    assert_allclose(found["y_sd_se"], 0.0)


def drawn_mixture(rng, size=400):
    """Components whose means are themselves drawn, with weights."""
    weights = rng.gamma(4.0, size=size)
    means = np.stack([rng.normal(-0.5, 0.8, size), rng.normal(1.0, 0.4, size)])
    return LatentMarginals(means, np.array([0.3, 0.1]), weights / weights.sum())


@pytest.mark.parametrize(
    "likelihood",
    [
        of.BernoulliLogit(),
        of.OrderedLogit(CUTS),
        of.Poisson(2.0),
        of.NegativeBinomial(1.7),
        of.Gamma(2.5),
        of.StudentT(4.0, 0.3),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_standard_errors(likelihood):
    """Against the spread of 400 repetitions, known to 3.5 percent: between 0.8 and 1.25 times it.

    In that of probabilities there is a bound of what draws may have missed. It counts where a
    category is central, so that its probability hardly depends on f: up to twice the spread.
    """
    rng = np.random.default_rng(5)
    runs = [likelihood.predictive_summary(drawn_mixture(rng)) for _ in range(400)]
    for name in [name for name in runs[0] if not name.endswith("_se")]:
        spread = np.std([run[name] for run in runs], axis=0)
        ratio = np.mean([run[f"{name}_se"] for run in runs], axis=0) / spread
        assert np.all((ratio > 0.8) & (ratio < (2.0 if name == "p_mean" else 1.25))), (name, ratio)


def test_draws_at_new_points_have_these_moments():
    """200000 draws of f, then of y: five standard errors."""
    rng, n = np.random.default_rng(7), 200_000
    component = rng.choice(3, size=n, p=WEIGHTS)
    f = MEANS[:, component].T + np.sqrt(VARIANCE) * rng.standard_normal((n, 2))
    for likelihood in (
        of.BernoulliLogit(),
        of.BinomialLogit(7),
        of.Poisson(3.0),
        of.NegativeBinomial(1.7, 3.0),
        of.Gamma(2.5),
        of.Laplace(0.7),
    ):
        summary = likelihood.predictive_summary(MIXTURE)
        y = likelihood.predictive_draws(f, rng)["y"]
        trials = 7 if isinstance(likelihood, of.BinomialLogit) else 1
        mean = summary["y_mean"] if "y_mean" in summary else trials * summary["p_mean"]
        assert np.all(np.abs(y.mean(axis=0) - mean) < 5 * y.std(axis=0) / np.sqrt(n))
    drawn = of.OrderedLogit(CUTS).predictive_draws(f, rng)
    p = of.OrderedLogit(CUTS).predictive_summary(MIXTURE)["p_mean"]
    share = (drawn["y"][..., None] == np.arange(4)).mean(axis=0)
    assert np.all(np.abs(share - p) < 5 * 0.5 / np.sqrt(n))
    assert np.all(np.abs(drawn["p"].mean(axis=0) - p) < 5 * 0.5 / np.sqrt(n))


def test_what_is_not_known_of_new_points():
    f, rng = np.zeros((2, 3)), np.random.default_rng(0)
    assert "y" not in of.BinomialLogit([1, 2]).predictive_draws(f, rng)
    for likelihood in (of.StudentT(4.0, [0.1, 0.2]), of.Laplace([0.1, 0.2])):
        assert likelihood.predictive_draws(f, rng) == {}
        assert likelihood.predictive_summary(MIXTURE) == {}
        assert likelihood.predictive_quantiles(MIXTURE, PROBS) == {}
    assert of.BinomialLogit([1, 2]).predictive_quantiles(MIXTURE, PROBS) == {}
    assert of.StudentT(1.0, 0.1).predictive_summary(MIXTURE) == {}
    assert np.all(np.isinf(of.StudentT(2.0, 0.1).predictive_summary(MIXTURE)["y_sd"]))


# With the distribution function given f, and y in the middle of it.
QUANTILES = {
    "poisson": (of.Poisson(3.0), lambda y, f: stats.poisson.cdf(y, 3 * np.exp(f))),
    "many": (of.Poisson(3e5), lambda y, f: stats.poisson.cdf(y, 3e5 * np.exp(f))),
    "binomial": (of.BinomialLogit(7), lambda y, f: stats.binom.cdf(y, 7, expit(f))),
    "negative binomial": (
        of.NegativeBinomial(1.7, 3.0),
        lambda y, f: stats.nbinom.cdf(y, 1.7, 1.7 / (1.7 + 3 * np.exp(f))),
    ),
    "gamma": (of.Gamma(2.5), lambda y, f: stats.gamma.cdf(y, 2.5, scale=np.exp(f) / 2.5)),
    "student": (of.StudentT(1.5, 0.7), lambda y, f: stats.t.cdf(y, 1.5, f, 0.7)),
    "little noise": (of.StudentT(4.0, 1e-3), lambda y, f: stats.t.cdf(y, 4.0, f, 1e-3)),
    "laplace": (of.Laplace(0.7), lambda y, f: stats.laplace.cdf(y, f, 0.7)),
}
PROBS = np.array([0.001, 0.055, 0.5, 0.945])


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("name", QUANTILES)
def test_quantiles_of_new_values(name, narrow):
    """The distribution function at them, by SciPy over a grid of f.

    Lines between tabulated values have errors of up to 6e-4. Of 400 components that are nearly
    points the distribution function has steps, which the lines even out; what is allowed there is
    less than half of the Monte Carlo error of 400 draws, 0.025.
    """
    likelihood, cdf = QUANTILES[name]
    mixture, atol = LatentMarginals(MEANS, VARIANCE, WEIGHTS), 1e-3
    if narrow:
        points = np.random.default_rng(2).gamma(3.0, 0.5, size=(2, 400)) - 1.0
        mixture, atol = LatentMarginals(points, np.array([1e-6, 0.0]), np.full(400, 1 / 400)), 1e-2

    def below(values):
        each = [average(lambda f, y=y: cdf(y, f), mixture) for y in values]
        return np.diagonal(each)

    found = likelihood.predictive_quantiles(mixture, PROBS)["y_quantile"]
    assert found.shape == (4, 2)
    whole = np.all(found == np.floor(found))
    assert whole == (name in ("poisson", "many", "binomial", "negative binomial"))
    for prob, values in zip(PROBS, found, strict=True):
        assert np.all(below(values) > prob - atol)
        assert np.all(below(values - 1 if whole else values) < prob + atol)


def test_quantiles_of_huge_counts_and_of_known_rates():
    known = LatentMarginals(np.array([[90.0], [np.log(4.0)]]), np.array([1e-3, 0.0]), np.ones(1))
    found = of.Poisson().predictive_quantiles(known, np.array([0.5]))["y_quantile"]
    assert_allclose(found, [[2.0**62, stats.poisson.ppf(0.5, 4.0)]])


def test_counts_of_means_beyond_integers():
    """Draws of f far from the data may be large; the largest 64-bit counts stand for them."""
    drawn = of.Poisson().predictive_draws(np.full(2, 100.0), np.random.default_rng(0))["y"]
    assert np.all(drawn > 2**61)


@pytest.mark.parametrize("weight", [0.5, 0.3, 0.975])
@pytest.mark.parametrize(
    ("distance", "variance", "scale"),
    [(10.0, 0.01, 0.1), (10.0, 1e-4, 0.02), (3.0, 0.01, 0.05), (10.0, 0.01, 5.0), (8.0, 0.0, 0.3)],
)
def test_quantiles_of_narrow_modes_far_apart(distance, variance, scale, weight):
    """The probability below each quantile, two modes of f with Student noise: by quadrature.

    The plain point beside it, the first, has the quantiles that it has alone.
    """
    means = np.array([[0.0, 0.5], [0.0, distance]])
    weights = np.array([weight, 1.0 - weight])
    mixture = LatentMarginals(means, np.array([1.0, variance]), weights, exact=True)
    plain = LatentMarginals(means[:1], np.ones(1), weights, exact=True)
    probs = np.array([0.05, 0.2, 0.35, 0.75, 0.95])
    likelihood = of.StudentT(4.0, scale)
    found = likelihood.predictive_quantiles(mixture, probs)["y_quantile"]
    alone = likelihood.predictive_quantiles(plain, probs)["y_quantile"]
    # False positions end when all points have converged.
    assert_allclose(found[:, 0], alone[:, 0], atol=1e-7)
    # Noise of y and f together by Gauss and Hermite in f.
    z, w = np.polynomial.hermite_e.hermegauss(60)
    off = found[:, 1, None, None] - means[1][:, None] - np.sqrt(variance) * z
    below = stats.t.cdf(off / scale, 4.0) @ (w / w.sum()) @ weights
    # A trapezoid rule of 257 nodes and more; before up to .05 off.
    assert_allclose(below, probs, atol=2e-4)
