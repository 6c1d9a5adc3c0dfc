"""Labels, trials and levels under a probit link: where they coincide, and noise that is shared."""

import comparison_oracles as oracle
import numpy as np
import pytest
from approximation_oracles import rbf
from likelihood_oracles import assert_posterior, function_grid, kernel
from numpy.testing import assert_allclose
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import binom, multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp._gaussian.covariance import DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.ep import fit_ep

X = np.array([[0.0], [0.6], [1.5], [2.2]])
LEVELS = np.array([0, 1, 2, 1])
XNEW = np.array([[0.3], [5.0]])


@pytest.mark.parametrize("scale", [20, 400])
def test_many_trials_by_quadrature(scale):
    """Hundreds and thousands of rows at three places, and one place of ten trials."""
    trials, y = scale * np.array([5, 3, 8]), scale * np.array([1, 2, 5])
    trials, y = np.append(trials, 10)[:3], np.append(y, 10)[:3]
    K = kernel(X[:3])
    centre = norm.ppf(y / trials)
    # The posterior is narrow: the grid is laid about where the likelihood is, by a Gaussian whose
    # density over the prior's joins the likelihood.
    spread = 4.0 * np.diag(3.0 / trials)
    prior = np.linalg.inv(K)

    def log_likelihood(f):
        off = f - centre
        quadratic = -0.5 * np.einsum("ni,ij,nj->n", f, prior, f)
        quadratic += 0.5 * (off**2 / spread.diagonal()).sum(axis=1)
        constant = -0.5 * np.linalg.slogdet(K)[1] + 0.5 * np.log(spread.diagonal()).sum()
        return binom.logpmf(y, trials, norm.cdf(f)).sum(axis=1) + quadratic + constant

    grid = function_grid(centre, spread, log_likelihood)
    posterior = sg.SkewGPPosterior(
        X[:3], y, cov_func=kernel, likelihood=of.BinomialProbit(trials), n_draws=2**12
    )
    assert_posterior(posterior, grid)


def test_names_of_categories():
    names = ["bad", "fair", "good"]
    likelihood = of.OrderedProbit([-0.5, 0.9], 0.7, categories=names)
    y = np.array(["bad", "fair", "good", "fair"])
    posterior = sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=likelihood)
    dt = posterior.sample(10, 1, random_seed=2)
    assert dt["observed_data"]["y"].values.tolist() == LEVELS.tolist()
    new = posterior.predict(XNEW, draws=10, random_seed=3)
    drawn, summary = new["predictions"].dataset, new["predictions_summary"].dataset
    assert drawn["p"].dims == ("chain", "draw", "pred_id", "category")
    assert summary["p_mean"].dims == ("pred_id", "category")
    for found in (drawn["p"], summary["p_mean"]):
        assert found["category"].values.tolist() == names
        assert_allclose(found.sum("category"), 1.0, atol=1e-12)


def test_two_kinds_of_ratings_have_categories_of_their_own():
    kinds = {
        "stars": (X, LEVELS, of.OrderedProbit([-0.5, 0.9])),
        "votes": (X, LEVELS % 2, of.OrderedProbit([0.0], categories=["no", "yes"])),
    }
    posterior = sg.SkewGPPosterior(kinds, cov_func=kernel)
    summary = posterior.predict(XNEW, draws=10)["predictions_summary"].dataset
    assert summary["p_mean_stars"].dims == ("pred_id", "category_stars")
    assert summary["category_votes"].values.tolist() == ["no", "yes"]


def test_probabilities_in_tails_are_not_zero():
    """A category that no draw reaches: its probability is not 0, and the error covers the truth."""
    likelihood = of.OrderedProbit([-0.5, 0.5, 9.0, 9.5], 0.1)
    posterior = sg.SkewGPPosterior(
        X[:1], [0], cov_func=lambda *a, **k: 4.0 * kernel(*a, **k), likelihood=likelihood
    )
    grid = function_grid([0.0], [[8.0]], lambda f: norm.logcdf((-0.5 - f[:, 0]) / 0.1))
    new = np.array([[1.0]])
    gain = kernel(X[:1], new)[0, 0] / 2.0
    sd = np.sqrt(8.0 * (1.0 - gain**2) + 0.01)
    found = posterior.predict(new, draws=0)["predictions_summary"].dataset
    exact = grid.average(
        norm.sf((9.0 - gain * grid.f[0]) / sd) - norm.sf((9.5 - gain * grid.f[0]) / sd)
    )
    value, error = found["p_mean"].values[0, 3], found["p_mean_se"].values[0, 3]
    assert value > 0
    assert abs(value - exact) < 4 * error


# Labels that share noise.

SHARING = np.array([[0.0], [0.7], [2.0]])
SHARING_NEW = np.array([[0.4], [5.0]])
NOISE = np.array([[1.0, 0.8, -0.2], [0.8, 1.0, 0.1], [-0.2, 0.1, 1.0]])


def sharing(y, likelihood, X=SHARING):
    return sg.SkewGPPosterior(X, y, likelihood=likelihood, cov_func=kernel, n_draws=8192)


def log_both(f, y, rho):
    """Log probability of two labels given f, shape (N, 2): an integral over what noise shares."""
    side = np.where(np.array(y) == 1, 1.0, -1.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    p = np.zeros(len(f))
    for z, weight in zip(np.sqrt(rho) * nodes, weights / weights.sum(), strict=True):
        p += weight * ndtr(side * (f + z) / np.sqrt(1.0 - rho)).prod(axis=1)
    return np.log(np.maximum(p, 1e-300))


def test_two_labels():
    y, rho = [1, 0], 0.7
    posterior = sharing(y, of.BernoulliProbit([[1.0, rho], [rho, 1.0]]), X=SHARING[:2])
    K = kernel(SHARING[:2])
    found = function_grid(np.zeros(2), K, lambda f: log_both(f, y, rho))
    assert_posterior(posterior, found, 1e-5, errors=4)
    # A new label has noise of its own, of variance 1.
    gain = np.linalg.solve(K, kernel(SHARING[:2], SHARING_NEW))
    left = 2.0 - (kernel(SHARING[:2], SHARING_NEW) * gain).sum(axis=0)
    want = [
        found.average(ndtr(gain[:, i] @ found.f / np.sqrt(1.0 + left[i])))
        for i in range(len(SHARING_NEW))
    ]
    p = posterior.probability(SHARING_NEW)
    assert (np.abs(p.value - want) < 4 * p.std_error + 1e-5).all()


def test_more_labels_have_noise_of_their_own():
    y = np.array([1, 0, 1])
    first = sharing(y[:2], of.BernoulliProbit(NOISE[:2, :2]), X=SHARING[:2])
    wide = np.eye(3)
    wide[:2, :2] = NOISE[:2, :2]
    whole = sharing(y, of.BernoulliProbit(wide))
    more = first.update(SHARING[2:], y[2:])
    assert more.log_marginal_likelihood.value == pytest.approx(
        whole.log_marginal_likelihood.value, abs=1e-10
    )


def test_blocks_take_the_low_rank_form():
    """Groups of two labels: the same evidence as in the dense form, to round-off."""
    n = 60
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1))
    noise = np.kron(np.eye(n // 2), [[1.0, 0.5], [0.5, 1.0]])
    posterior = sharing(rng.integers(2, size=n), of.BernoulliProbit(noise), X=x)
    given = posterior._fit.conditioning
    assert isinstance(given.cov, LowRankCovariance)
    want = fit_ep(DenseCovariance(kernel(x) + noise), given.lower, given.upper)
    assert posterior._fit.sampler.ep.log_prob == pytest.approx(want.log_prob, abs=1e-9)


# Several classes under a probit link against quadrature, and where they coincide with others.


XC = np.array([[0.0], [0.8]])
NEW = np.array([[0.5], [4.0]])
VARIANCE = 2.0
squared = rbf(VARIANCE)


def ahead(f, c):
    return f[:, [c]] - np.delete(f, c, axis=1)


def posterior_of(X, y, likelihood, **kwargs):
    return sg.SkewGPPosterior(X, y, likelihood=likelihood, cov_func=squared, n_draws=8192, **kwargs)


def assert_evidence(posterior, value):
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - value) < max(4 * evidence.std_error, 1e-5)


def assert_predictions(posterior, f, weights, probability):
    """Of one label at X[0]: f elsewhere goes on from there, each function by itself."""
    summary = posterior.predict(NEW, draws=0)["predictions_summary"]
    p, error = summary["p_mean"].values, summary["p_mean_se"].values
    for i, gain in enumerate(squared(XC[:1], NEW)[0] / VARIANCE):
        left = VARIANCE * (1 - gain**2)
        want = [
            weights @ probability(ahead(gain * f, c), np.sqrt(1 + left)) for c in range(f.shape[1])
        ]
        assert (np.abs(p[i] - want) < 4 * error[i] + 1e-4).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize(("k", "step"), [(4, 0.75)])
def test_one_label(k, step):
    posterior = posterior_of(XC[:1], [1], of.MultinomialProbit(k))
    found = oracle.latent_posterior(
        VARIANCE * np.eye(k), lambda f: oracle.chosen(ahead(f, 1)), step=step
    )
    assert found.log_evidence == pytest.approx(-np.log(k), abs=1e-8)  # classes are exchangeable
    assert_posterior(posterior, found, errors=4)
    f, w = found.f.T[found.mass > 1e-9], found.mass[found.mass > 1e-9]
    assert_predictions(posterior, f, w, lambda a, sd: oracle.chosen(a / sd))
    drawn = posterior.sample(4000, 1, random_seed=1)["posterior"]["f"].values[0, :, 0]
    np.testing.assert_allclose(np.cov(drawn.T), found.cov, atol=0.18)  # 4 x 2 (2 / 4000)^.5


def test_two_labels_of_three_classes():
    y = [0, 2]
    posterior = posterior_of(XC, y, of.MultinomialProbit(3))

    # A function common to all classes is of no matter: two differences at two places.
    def probability(d):
        f = np.stack([d[:, [0, 1]], d[:, [2, 3]]], axis=1)
        f = np.concatenate([f, np.zeros((len(d), 2, 1))], axis=2)
        return oracle.chosen(ahead(f[:, 0], 0)) * oracle.chosen(ahead(f[:, 1], 2))

    found = oracle.latent_posterior(np.kron(squared(XC), np.eye(2) + 1.0), probability, step=0.65)
    assert_evidence(posterior, found.log_evidence)
    f = posterior.sample(4000, 1, random_seed=1)["posterior"]["f"]
    assert f.dims == ("chain", "draw", "obs_id", "category")
    differences = (f.values[0, :, :, :2] - f.values[0, :, :, 2:]).reshape(4000, 4)
    np.testing.assert_allclose(differences.mean(axis=0), found.mean, atol=0.12)
    np.testing.assert_allclose(np.cov(differences.T), found.cov, atol=0.35)  # 4 x 4 (2 / 4000)^.5


@pytest.mark.parametrize("k", [2, 3])
def test_skew_prior(k):
    point = np.array([[1.6]])
    posterior = posterior_of(XC[:1], [0], of.MultinomialProbit(k), pseudo_points=point)
    gain = squared(XC[:1], point)[0, 0] / VARIANCE
    left = np.sqrt(VARIANCE * (1 - gain**2))

    def probability(f):
        return 2.0**k * ndtr(gain * f / left).prod(axis=1) * oracle.chosen(ahead(f, 0))

    found = oracle.latent_posterior(VARIANCE * np.eye(k), probability, step=0.4)
    assert_posterior(posterior, found, errors=4)


FOUR = np.array(
    [[1.0, 0.6, 0.1, 0.0], [0.6, 1.5, -0.3, 0.2], [0.1, -0.3, 0.7, 0.1], [0.0, 0.2, 0.1, 1.2]]
)


# Of three classes orthants are bivariate, and exact.
@pytest.mark.parametrize(("cov", "c", "error"), [(FOUR[:3, :3], 1, 1e-6), (FOUR, 2, 0.01)])
def test_correlated_noise(cov, c, error):
    """Against orthants of two and three dimensions by SciPy, which are good to 1e-5."""
    k, likelihood = len(cov), of.MultinomialProbit(noise_cov=cov)
    contrast = np.delete(np.eye(k)[c] - np.eye(k), c, axis=0)
    spread = contrast @ cov @ contrast.T
    total = spread + VARIANCE * contrast @ contrast.T

    def orthant(mean, cov):
        return multivariate_normal(np.zeros(k - 1), cov, seed=0).cdf(mean)

    posterior = posterior_of(XC[:1], [c], likelihood)
    assert_evidence(posterior, np.log(orthant(np.zeros(k - 1), total)))
    # Of each class given f, with more and less probable ones among them.
    f = np.random.default_rng(0).normal(scale=2.0, size=(5, 1, k))
    found = likelihood.log_likelihood(np.array([c]), f)[:, 0]
    want = np.log([orthant(contrast @ value, spread) for value in f[:, 0]])
    np.testing.assert_allclose(found, want, atol=error)  # stated in `orthant`
    p = likelihood.predictive_draws(f, np.random.default_rng(0))["p"][:, 0]
    np.testing.assert_allclose(p[:, c], np.exp(want), rtol=error)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    # Averaged over f, far from the data: p of the prior, by the same orthant.
    summary = posterior.predict([[50.0]], draws=0)["predictions_summary"]
    p, error = summary["p_mean"].values[0, c], summary["p_mean_se"].values[0, c]
    assert abs(p - orthant(np.zeros(k - 1), total)) < 4 * error + 1e-4
    drawn = posterior.predict(XC[:1], draws=4000, random_seed=1)["predictions"]["p"].values
    again = posterior.predict(XC[:1], draws=0)["predictions_summary"]["p_mean"].values[0]
    np.testing.assert_allclose(again, drawn.mean(axis=(0, 1, 2)), atol=0.02)


def test_correlated_noise_far_in_the_tail():
    """By the trapezoid rule over one of the two differences."""
    f, contrast = np.array([9.0, -9.0, 9.0]), np.array([[-1.0, 1.0, 0.0], [0.0, 1.0, -1.0]])
    likelihood = of.MultinomialProbit(noise_cov=FOUR[:3, :3])
    spread = contrast @ FOUR[:3, :3] @ contrast.T
    sd = np.sqrt(spread.diagonal())
    rho = spread[0, 1] / sd.prod()
    x = np.arange(-18.0 / sd[0] - 30.0, -18.0 / sd[0], 1e-4) + 5e-5
    inner = log_ndtr((-18.0 / sd[1] - rho * x) / np.sqrt(1 - rho**2))
    want = logsumexp(-0.5 * x**2 + inner) + np.log(1e-4 / np.sqrt(2 * np.pi))
    found = likelihood.log_likelihood(np.array([1]), f[None, None])[0, 0]
    assert found == pytest.approx(want, abs=1e-4)


def test_correlated_noise_that_only_differs_by_a_common_part():
    """Five classes, one part of the noise common to all: the integral over the winner's noise."""
    common = of.MultinomialProbit(noise_cov=np.eye(5) + 0.7)
    f = np.random.default_rng(1).normal(scale=1.5, size=(200, 3, 5))
    y = np.array([4, 0, 2])
    found, want = common.log_likelihood(y, f), of.MultinomialProbit(5).log_likelihood(y, f)
    assert np.median(np.abs(found - want)) < 2e-3
    assert np.abs(found - want).max() < 0.03  # stated in `orthant`


@pytest.mark.parametrize("k", [2, 3, 5])
def test_log_likelihood(k):
    rng = np.random.default_rng(4)
    f = rng.normal(size=(6, 2, k)) * 1.5
    y = np.array([1, 0])
    likelihood = of.MultinomialProbit(k)
    found = likelihood.log_likelihood(y, f)
    want = np.stack([oracle.chosen(ahead(f[:, i], y[i])) for i in (0, 1)], axis=1)
    np.testing.assert_allclose(found, np.log(want), atol=1e-7)


def test_mixed_with_values_of_the_first_function():
    kinds = [(XC[:1], [2], of.MultinomialProbit(3)), (XC[1:], [0.7], of.Gaussian(0.6))]
    posterior = sg.SkewGPPosterior(kinds, cov_func=squared, n_draws=8192)
    cov = VARIANCE * np.eye(4)
    cov[0, 3] = cov[3, 0] = squared(XC)[0, 1]

    def probability(f):
        normal = np.exp(-0.5 * ((0.7 - f[:, 3]) / 0.6) ** 2) / (0.6 * np.sqrt(2 * np.pi))
        return normal * oracle.chosen(ahead(f[:, :3], 2))

    found = oracle.latent_posterior(cov, probability, step=0.6)
    assert_evidence(posterior, found.log_evidence)
    summary = posterior.predict(NEW, random_seed=1)["predictions_summary"]
    assert summary["p_mean_0"].dims == ("pred_id", "category")


def test_output():
    names = ["a", "b", "c", "d"]
    posterior = posterior_of(XC, [1, 3], of.MultinomialProbit(categories=names))
    tree = posterior.sample(100, 2, random_seed=1)
    assert tree["posterior"]["category"].values.tolist() == names
    new = posterior.predict(NEW, draws=300, random_seed=1)
    assert new["predictions"]["p"].dims == ("chain", "draw", "pred_id", "category")
    assert new["predictions"]["y"].dims == ("chain", "draw", "pred_id")
    drawn = new["predictions"]["p"].mean(("chain", "draw")).values
    # 1200 draws of probabilities whose standard deviation is below .3.
    np.testing.assert_allclose(drawn, new["predictions_summary"]["p_mean"].values, atol=0.035)
    np.testing.assert_allclose(new["predictions"]["p"].sum("category"), 1.0, atol=1e-12)
