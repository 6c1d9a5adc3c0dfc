"""Marginals of f as mixtures: SciPy's distributions, quadrature, and repetition of the draws."""

import numpy as np
import pytest
from approximation_oracles import rbf, slope
from scipy.integrate import quad
from scipy.signal import lfilter
from scipy.special import ndtr
from scipy.stats import kstest, norm

import pymc_skewgp as sg
from pymc_skewgp import LatentMarginals, LatentPosterior, SkewGPPosterior, likelihoods
from pymc_skewgp._diagnostics.approximations import continue_draws
from pymc_skewgp._gaussian.blocks.functions import NoiseRule
from pymc_skewgp._posterior import output
from pymc_skewgp._posterior.prior import DataSet, Prior
from pymc_skewgp._posterior.row_groups import residual_draws

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


# Probabilities smaller than the draws can resolve: in size right, with an error that says so.


N_LABELS = 8


def posterior(variance, seed, n_draws=256, mean=0.0):
    """Eight labels 1 at one place (but for a millionth): f there is one number."""

    x = 1e-6 * np.arange(N_LABELS)[:, None]
    return SkewGPPosterior(
        x,
        np.ones(N_LABELS),
        cov_func=rbf(variance),
        mean_func=lambda X: np.full(len(X), mean),
        n_draws=n_draws,
        random_seed=seed,
    )


def exact(variance, mean=0.0):
    """P(y* = 0) there, by a trapezoidal rule over f: smooth, and 0 at both ends."""
    f = np.linspace(-15.0, mean + 9.0 * np.sqrt(variance), 400_001)
    density = norm.pdf((f - mean) / np.sqrt(variance)) * norm.cdf(f) ** N_LABELS
    return density @ norm.cdf(-f) / density.sum()


@pytest.mark.parametrize("variance", [1e2, 1e6])
def test_no_label_is_called_impossible(variance):
    truth = exact(variance)
    values, errors = np.transpose(
        [np.ravel(posterior(variance, seed).probability([[0.0]])) for seed in range(20)]
    )
    values = 1.0 - values
    # Of 256 draws the tail has 1 or none where its probability is below 1/256. Half a draw more,
    # a Gaussian's, keeps the estimate from 0: a hundredth of the truth would cost 6.6 bits.
    assert (values > 0.01 * truth).all()
    # Errors that say so: 20 runs within 5 of them. A tail met once in a hundred runs may lie
    # further out, above; none of these seeds' does.
    assert (np.abs(values - truth) < 5 * errors).all()


def test_draws_that_missed_a_tail_do_not_promise_to_know_it():
    """Labels that a prior N(8, 4) expects: P(y* = 0) is 7e-5, not a tenth of a draw of 1024."""
    truth = exact(4.0, mean=8.0)
    values, errors = np.transpose(
        [np.ravel(posterior(4.0, s, 1024, mean=8.0).probability([[0.0]])) for s in range(40)]
    )
    off = (1.0 - values - truth) / errors
    # The spread of the draws alone promised too much: up to 3.3 errors, 1.5 in the mean. Nor may
    # the error swallow everything: a tail that 1024 draws missed holds no more than a draw or so.
    assert np.sqrt(np.mean(off**2)) < 1.0
    assert (errors < 1 / 1024).all()


# f elsewhere given draws or observations: signs at pseudo-points, what features leave.


JITTER = 1e-6  # what pm.gp adds to the variances at the data


X = np.array([[-1.0], [0.2], [0.9], [3.0]])


@pytest.mark.parametrize("s", [1, 2])
def test_pseudo_points_against_rejection(s):
    """The same f for all draws. False alarms: 1e-4 each time."""
    kernel, size, points = rbf(4.0), 600, np.array([[-0.3], [2.0]])[:s]
    given = Prior(kernel, slope, points, np.array([1.0, -1.0])[:s], np.full(s, 0.3))
    f, rng = np.array([0.2, 0.1, 0.0, -1.0]), np.random.default_rng(1)
    found = continue_draws(given, X, np.tile(f, (size, 1)), np.vstack([points, X]), rng)
    values = found.mu
    np.testing.assert_allclose(values[:, s:], np.tile(f, (size, 1)), atol=1e-4)
    np.testing.assert_allclose(found.scale, 0.0, atol=1e-5)
    gain = np.linalg.solve(kernel(X) + JITTER * np.eye(4), kernel(X, points))
    centre = slope(points) + (f - slope(X)) @ gain
    cov = kernel(points) - kernel(points, X) @ gain
    at = np.random.default_rng(2).multivariate_normal(centre, cov, 100_000)
    keep = (given.phase * (at - slope(points)) / 2.0 + 0.3 > 0).all(axis=1)
    assert 0.1 < keep.mean() < 0.95  # the signs say something
    for i in range(s):
        assert kstest(values[:, i], at[keep, i]).pvalue > 1e-4 / 3
    if s == 2:
        ours, theirs = values[:, 0] * values[:, 1], at[keep, 0] * at[keep, 1]
        error = theirs.std() * np.hypot(size**-0.5, theirs.size**-0.5)
        assert abs(ours.mean() - theirs.mean()) < norm.isf(1e-4 / 6) * error


@pytest.mark.parametrize(("variance", "off"), [(0.01, 0.08), (0.25, 0.3), (0.5, 5.0)])
def test_residuals_under_counts_that_say_more_of_f_than_the_features(variance, off):
    """A count of 10,000 leaves f a deviation of .01; 5 is seven deviations of e away."""
    y, size = np.array([10_000, 100, 3]), 20_000
    part = DataSet("f", np.zeros((3, 1)), y, sg.likelihoods.Poisson())
    signal = np.tile(np.log(y) + off, (size, 1))
    e = residual_draws(part, signal, np.full(3, variance), np.random.default_rng(1))
    grid = np.sqrt(variance) * np.linspace(-12.0, 12.0, 400_001)[:, None]
    f = grid + signal[0]
    logs = y * f - np.exp(f) - 0.5 * grid**2 / variance
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    mean = (weights * grid).sum(axis=0)
    sd = np.sqrt((weights * (grid - mean) ** 2).sum(axis=0))
    # Five standard errors of 20,000 draws: a false alarm in 10^5 runs; of the table .002.
    assert (np.abs(e.mean(axis=0) - mean) < 5.0 * sd / np.sqrt(size)).all()
    np.testing.assert_allclose(e.std(axis=0), sd, rtol=5.0 / np.sqrt(2 * size) + 0.002)


def test_mean_over_noise_of_a_site_that_is_0_somewhere():
    """N(eta; 0, 1/6) but for 0 below -5, where it is exp(-75): the closed form holds."""

    def log_prob(eta):
        return np.where(eta > -5.0, -3.0 * eta**2, -np.inf)

    variance = np.array([0.01, 0.02])
    rule = NoiseRule.of(log_prob, variance, np.zeros(2), np.array([2.0, 2.0]))
    eta = np.array([[0.0, 0.5], [1.0, -1.0]])
    scale = 1.0 + 6.0 * variance
    wanted = -3.0 * eta**2 / scale - 0.5 * np.log(scale)
    np.testing.assert_allclose(rule.log_mean(log_prob, eta), wanted, atol=1e-8)


# Errors of averages over draws that depend on each other: as large as what they are off by.
#
# Of each kind there are 200 sets of four chains, each entry a set. A root mean square of 200
# numbers is known to 5 %; what it is compared with, the mean of claimed errors, is biased by some
# per cent. So ratios between .75 and 1.3 have false alarms below 1e-6.


SETS, CHAINS, DRAWS, RHO = 200, 4, 500, 0.6


@pytest.fixture(scope="module")
def draws():
    """Standard normal, each .6 times the one before and noise: (chain, draw, set)."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((CHAINS, DRAWS + 100, SETS)) * np.sqrt(1.0 - RHO**2)
    return lfilter([1.0], [1.0, -RHO], noise, axis=1)[:, 100:]


def ratio(value, error, exact):
    return np.sqrt(np.mean((value - exact) ** 2) / np.mean(error**2))


def test_moments_and_quantiles(draws):
    found = output.summary_of_draws("x", draws, np.array([0.1, 0.5]), skewness=True)
    exact = {"x_mean": 0.0, "x_sd": 1.0, "x_skewness": 0.0}
    exact["x_quantile"] = norm.ppf([[0.1], [0.5]])
    for name, value in exact.items():
        assert 0.75 < ratio(found[name], found[f"{name}_se"], value) < 1.3, name
    # The error of a mean has a closed form.
    n = CHAINS * DRAWS
    known = np.sqrt((1.0 + RHO) / (1.0 - RHO) / n)
    np.testing.assert_allclose(found["x_mean_se"].mean(), known, rtol=0.1)


def test_a_mixture_has_the_variance_within_and_between(draws):
    rng = np.random.default_rng(1)
    inside = rng.uniform(0.5, 1.5, draws.shape)
    found = output.deviation("y", inside, draws) | output.averages("y_mean", draws)
    exact = np.sqrt(1.0 + 1.0 + 1.0 / 12.0)  # of the means, and E s^2
    assert 0.75 < ratio(found["y_sd"], found["y_sd_se"], exact) < 1.3


def test_parts_of_chains(draws):
    batch = output.batch_numbers(CHAINS, DRAWS).ravel()
    flat = draws.reshape(-1, SETS) > 0.5
    order = np.random.default_rng(2).permutation(flat.shape[0])
    groups = [order[order % 3 == i] for i in range(3)]

    def parts():
        for group in groups:
            for b in np.unique(batch[group]):
                own = group[batch[group] == b]
                yield own, {"p": flat[own].mean(axis=0)}

    found = output.averages_by_batches(batch, parts())
    np.testing.assert_allclose(found["p"], flat.mean(axis=0), rtol=1e-12)
    # Parts of 31 draws: what they have in common with their neighbours is left out, some 5 %.
    assert 0.75 < ratio(found["p"], found["p_se"], norm.sf(0.5)) < 1.3


def test_shortest_intervals(draws):
    value, error = output.highest_density(draws, 0.8)
    # The error is rough, and rather too large than too small; it includes no bias.
    assert 0.3 < ratio(value, error, norm.ppf([[0.1], [0.9]])) < 1.5


def test_what_does_not_move_has_no_error():
    found = output.summary_of_draws("x", np.ones((2, 50, 3)), np.array([0.5]), skewness=True)
    for name in ("x_mean_se", "x_sd", "x_sd_se", "x_skewness_se", "x_quantile_se"):
        np.testing.assert_array_equal(found[name], 0.0)
