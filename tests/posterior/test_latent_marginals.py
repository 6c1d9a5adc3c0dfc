"""Marginals of f as mixtures: SciPy's distributions, quadrature, and repetition of the draws."""

import numpy as np
import pytest
from approximation_oracles import rbf
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from pymc_skewgp import LatentMarginals, LatentPosterior, SkewGPPosterior, likelihoods

PROBS = np.array([0.001, 0.055, 0.5, 0.945, 0.999])


def mixture(seed=0, n=3, n_components=6):
    rng = np.random.default_rng(seed)
    return LatentMarginals(
        rng.normal(size=(n, n_components)),
        rng.uniform(0.1, 2.0, n),
        rng.dirichlet(np.ones(n_components)),
    )


@pytest.mark.parametrize("seed", range(3))
def test_against_scipy(seed):
    at = mixture(seed)
    means, variance, weights = at.components
    sd = np.sqrt(variance)
    values = np.random.default_rng(seed).normal(size=(2, 4, 3))
    each = norm.cdf(values[..., None], means, sd[:, None])
    np.testing.assert_allclose(at.cdf(values).value, each @ weights, atol=1e-14)
    np.testing.assert_array_equal(at.cdf(values).value, at.cdf_values(values))
    density = norm.pdf(values[..., None], means, sd[:, None]) @ weights
    np.testing.assert_allclose(at.density(values), density, rtol=1e-12)
    quantiles = at.quantile(PROBS)
    back = norm.cdf(quantiles[..., None], means, sd[:, None]) @ weights
    # Solved to 1e-10 deviations of the mixture; its density times a deviation is below 3 here.
    np.testing.assert_allclose(back, np.repeat(PROBS[:, None], 3, axis=1), atol=3e-10)
    assert at.size == 3
    error = at.cdf(quantiles).std_error / at.density(quantiles)
    np.testing.assert_allclose(at.quantile_errors(quantiles), error, rtol=1e-6)


def test_probability_and_what_stands_for_what_no_draw_has_met():
    """As documented: to S effective draws one more, a Gaussian of the mixture's moments."""
    at = mixture(4)
    direct = ndtr(at.means / np.sqrt(1.0 + at.variance)[:, None])
    mean = direct @ at.weights
    centre = at.means @ at.weights
    total = (at.means - centre[:, None]) ** 2 @ at.weights + at.variance
    other = ndtr(centre / np.sqrt(1.0 + total))
    n_effective = 1.0 / np.sum(at.weights**2)
    share = 1.0 / (1.0 + n_effective)
    value, error = at.probability()
    np.testing.assert_allclose(value, (1.0 - share) * mean + share * other, rtol=1e-13)
    plain = np.sqrt(((direct - mean[:, None]) ** 2) @ at.weights**2)
    doubt = share**2 * other * (1.0 - other)
    # S draws of that Gaussian, as far as they missed its tail, which then holds one draw's share.
    z, w = np.polynomial.hermite_e.hermegauss(80)
    spread = np.sqrt((total - at.variance) / (1.0 + at.variance))
    p = ndtr(centre / np.sqrt(1.0 + at.variance) + spread * z[:, None])
    w /= w.sum()
    variance = w @ p**2 - (w @ p) ** 2
    tail = np.minimum(other, 1.0 - other)
    missed = np.exp(-n_effective * np.minimum(tail, np.minimum(mean, 1.0 - mean)))
    missed *= np.minimum(1.0, share / tail)
    expected = plain**2 + doubt + missed * variance / n_effective
    # Owen's T and the difference leave twelve digits; 80 nodes resolve the Gaussian integral.
    np.testing.assert_allclose(error**2, expected, rtol=1e-9)


def test_standard_deviation_of_the_probability():
    at = mixture(5)
    z, w = np.polynomial.hermite_e.hermegauss(80)  # exact to 1e-9 for so smooth a function
    w /= w.sum()
    p = ndtr(at.means[:, :, None] + np.sqrt(at.variance)[:, None, None] * z)
    first, second = ((p**power @ w) @ at.weights for power in (1, 2))
    np.testing.assert_allclose(at.probability_sd(), np.sqrt(second - first**2), rtol=1e-8)


def test_more_points_and_some_functions():
    x, y = np.array([[-0.5], [0.4], [1.0]]), [0, 2, 1]
    known = {"cov_func": rbf(2.0), "likelihood": likelihoods.MultinomialProbit()}
    posterior = LatentPosterior(x, y, **known)
    both, one, other = (posterior.marginals(new) for new in ([[0.2], [1.3]], [[0.2]], [[1.3]]))
    joined, first = one.with_points(other), both.first_functions(2)
    for name in ("means", "variance", "covariance"):
        np.testing.assert_allclose(getattr(joined, name), getattr(both, name), atol=1e-10)
    np.testing.assert_array_equal(first.means, both.means[[0, 1, 3, 4]])
    np.testing.assert_array_equal(first.variance, both.variance[[0, 1, 3, 4]])
    np.testing.assert_array_equal(first.covariance, both.covariance[:, :2, :2])


def test_a_certain_label_has_no_error_from_its_tail():
    at = LatentMarginals(np.full((1, 50), 60.0), np.zeros(1), np.full(50, 0.02))
    assert at.probability() == (1.0, 0.0)


# Moments of z + .15 z^2 with standard normal z: mean, and second and third central ones.
MEAN, SECOND, THIRD = 0.15, 1.045, 0.927


@pytest.mark.parametrize("copies", [1, 5])
def test_errors_are_honest(copies):
    """400 mixtures of 1000 (or 5 times 1000 dependent) draws each, mean squares over stated ones.

    Their ratio has a relative error of sqrt(2/400) = .07, some .09 for the skewness and its heavier
    tails; .3 is over three of those: false alarms 1e-3 for a new seed.
    """
    rng = np.random.default_rng(1)
    z = np.repeat(rng.standard_normal((400, 1000)), copies, axis=1)
    draws = z + 0.15 * z**2
    replicate = np.repeat(np.arange(1000), copies) if copies > 1 else None
    n, v = draws.shape[1], 0.5
    at = LatentMarginals(draws, np.full(400, v), np.full(n, 1.0 / n), replicate)
    sd = np.sqrt(SECOND + v)
    for value, error, truth in zip(
        at.moments, at.moment_errors, (MEAN, sd, THIRD / sd**3), strict=True
    ):
        assert np.mean((value - truth) ** 2) / np.mean(error**2) == pytest.approx(1.0, abs=0.3)
    for got, curve in (
        (at.probability(), lambda f: ndtr(f / np.sqrt(1.0 + v))),
        (at.cdf(np.full(400, 0.7)), lambda f: ndtr((0.7 - f) / np.sqrt(v))),
    ):
        truth = quad(lambda z, g=curve: norm.pdf(z) * g(z + 0.15 * z**2), -10.0, 10.0)[0]
        ratio = np.mean((got.value - truth) ** 2) / np.mean(got.std_error**2)
        assert ratio == pytest.approx(1.0, abs=0.3)


class TestErrors:
    @pytest.mark.parametrize("probs", [0.0, 1.0, [0.5, 1.2], [-0.1], [0.5, np.nan]])
    def test_probabilities(self, probs):
        match = "1 NaN value" if np.isnan(probs).any() else "strictly between 0 and 1, got"
        with pytest.raises(ValueError, match=match):
            mixture().quantile(probs)

    @pytest.mark.parametrize("name", ["cdf", "cdf_values", "density"])
    @pytest.mark.parametrize("values", [0.0, np.zeros(2), np.zeros((3, 4)), np.zeros(6)])
    def test_shapes(self, name, values):
        with pytest.raises(ValueError, match="a column for each of the 3 points, got shape"):
            getattr(mixture(), name)(values)


def test_probability_of_labels_follows_the_link():
    x = np.array([[-0.5], [0.4]])
    labels, counts = np.array([0, 1]), np.array([1, 4])

    def at(y, likelihood):
        return SkewGPPosterior(x, y, cov_func=rbf(2.0), likelihood=likelihood).marginals([[0.2]])

    logit = at(labels, likelihoods.BernoulliLogit())
    f = np.linspace(-12.0, 12.0, 2001)
    wanted = np.sum(logit.density(f[:, None])[:, 0] / (1 + np.exp(-f))) * (f[1] - f[0])
    # A thousand draws, to which one is added that stands for what none has met.
    assert logit.probability().value[0] == pytest.approx(wanted, abs=5e-4)
    with pytest.raises(ValueError, match=r"probability_sd\(\) is of labels .* under logit"):
        logit.probability_sd()
    with pytest.raises(ValueError, match=r"probability\(\) is of labels .* under Poisson"):
        at(counts, likelihoods.Poisson()).probability()
