"""Duels, choices and rankings against quadrature, and where they coincide."""

from functools import cache

import comparison_oracles as oracle
import numpy as np
import pytest
from approximation_oracles import rbf
from likelihood_oracles import assert_posterior, one_sign
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr
from scipy.stats import multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import BernoulliProbit, Choice, Gaussian, Preference, Ranking

X = np.array([[0.0], [0.7], [2.0], [2.4]])
SIGMA = 0.8
TIE_WIDTH = 0.5
kernel = rbf(1.5)


def duel(f, i, j):
    return ndtr((f[:, i] - f[:, j]) / (np.sqrt(2) * SIGMA))


def with_threshold(f, i, j):
    scaled = (f[:, i] - f[:, j]) / (np.sqrt(2) * SIGMA)
    limit = TIE_WIDTH / (np.sqrt(2) * SIGMA)
    return ndtr(scaled - limit), ndtr(limit - scaled) - ndtr(-limit - scaled)


def ahead(f, c, others):
    return (f[:, [c]] - f[:, list(others)]) / SIGMA


# likelihood, y, number of items, p(y | f)
CASES = {
    "duels": (
        Preference(SIGMA),
        [[0, 1], [2, 1], [0, 1]],
        3,
        lambda f: duel(f, 0, 1) ** 2 * duel(f, 2, 1),
    ),
    "ties": (
        Preference(SIGMA, threshold=TIE_WIDTH),
        [[0, 1, 1], [2, 1, 0], [1, 0, 0]],
        3,
        lambda f: (
            with_threshold(f, 0, 1)[1] * with_threshold(f, 2, 1)[0] * with_threshold(f, 1, 0)[0]
        ),
    ),
    "noise of items": (
        # Two duels of one item: both depend on its noise, like a choice.
        Preference(SIGMA, noise="item"),
        [[1, 0], [1, 2]],
        3,
        lambda f: oracle.chosen(ahead(f, 1, (0, 2))),
    ),
    "choices": (
        Choice(SIGMA),
        [[1, 0, 2], [0, 2, -1], [2, 3, 1]],
        4,
        lambda f: (
            oracle.chosen(ahead(f, 1, (0, 2))) * duel(f, 0, 2) * oracle.chosen(ahead(f, 2, (3, 1)))
        ),
    ),
    "choice of four": (
        Choice(SIGMA),
        [[3, 0, 1, 2]],
        4,
        lambda f: oracle.chosen(ahead(f, 3, (0, 1, 2))),
    ),
    "rankings": (
        Ranking(SIGMA),
        [[2, 0, 1], [1, 2, -1]],
        3,
        lambda f: (
            oracle.ranked((f[:, 2] - f[:, 0]) / SIGMA, (f[:, 0] - f[:, 1]) / SIGMA) * duel(f, 1, 2)
        ),
    ),
}


@cache
def expected(case, sign=None):
    _, _, m, probability = CASES[case]
    cov = kernel(X[:m]) + 1e-12 * np.eye(m)
    return oracle.latent_posterior(cov, probability, sign, step=0.5 if m < 4 else 0.7)


def posterior_of(case, **kwargs):
    likelihood, y, m, _ = CASES[case]
    return sg.SkewGPPosterior(X[:m], y, likelihood=likelihood, cov_func=kernel, **kwargs)


@pytest.mark.parametrize("case", CASES)
def test_evidence_and_moments(case):
    posterior = posterior_of(case, n_draws=8192)
    found = expected(case)
    assert_posterior(posterior, found, errors=4)
    f = posterior.sample(4000, 1, random_seed=3)["posterior"]["f"].values[0]
    # Covariances of 4000 draws: four standard errors of at most 1.5 (2 / 4000)^.5.
    np.testing.assert_allclose(np.cov(f.T), found.cov, atol=0.14)


@pytest.mark.parametrize("case", ["duels", "rankings"])
def test_skew_prior(case):
    m = CASES[case][2]
    point = np.array([[-1.5]])  # not so near that its sign is a step on the grid
    sign = one_sign(kernel(X[:m]), kernel(X[:m], point)[:, 0], 1.5, 1.0, 0.0)
    posterior = posterior_of(case, n_draws=8192, pseudo_points=point)
    assert_posterior(posterior, expected(case, sign), errors=4)


# With noise of items the probability of the data is no product.
@pytest.mark.parametrize("case", [case for case in CASES if case != "noise of items"])
def test_log_likelihood(case):
    likelihood, y, m, probability = CASES[case]
    f = np.random.default_rng(0).normal(size=(50, m)) * 1.2
    data = likelihood.as_data(y, m)
    found = likelihood.log_likelihood(data, f[None])
    assert found.shape == (1, 50, len(y))
    # The rule over the noise is exact to 1e-10; that of orders to 1e-5.
    np.testing.assert_allclose(found[0].sum(axis=1), np.log(probability(f)), atol=2e-6)


def test_improbable_outcomes_keep_their_digits():
    choice = Choice(1.0).log_likelihood(np.array([[0, 1, 2]]), np.array([[-20.0, 10.0, 0.0]]))
    z = np.linspace(-10.0, 60.0, 70_001)
    terms = -0.5 * z**2 + log_ndtr(-30.0 + z) + log_ndtr(-20.0 + z)
    want = logsumexp(terms) + np.log(1e-3 / np.sqrt(2 * np.pi))
    assert choice[0] == pytest.approx(want, abs=1e-6)
    ranking = Ranking(1.0).log_likelihood(np.array([[0, 1]]), np.array([[-20.0, 10.0]]))
    assert ranking[0] == pytest.approx(log_ndtr(-30.0 / np.sqrt(2)), rel=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        [0.8, -0.5, 0.3, -1.1],
        [-4.0, 1.0, 6.0],
        [0.0, 30.0, -3.0, 12.0],
        [5.0, -5.0, -1.0, 7.0, 2.0],
        [20.0, 3.0, 2.5, -1.0, 14.0, 4.0],
    ],
)
def test_improbable_rankings_keep_their_digits(f):
    """From exp(-3) to exp(-289); five and six values are less exact than four."""
    found = Ranking(1.0).log_likelihood(np.arange(len(f))[None], np.array([f]))[0]
    assert found == pytest.approx(oracle.log_ranked(f), abs=2e-6 if len(f) < 5 else 2e-5)


def test_all_orders_of_equal_values_are_as_probable():
    """One of k!."""
    for k, error in ((3, 1e-12), (4, 1e-6), (6, 1e-5), (20, 2e-4)):
        found = Ranking(1.0).log_likelihood(np.arange(k)[None], np.zeros((1, k)))[0]
        assert found == pytest.approx(-gammaln(k + 1), abs=error)


@pytest.mark.parametrize("case", ["duels", "ties"])
def test_predictions_of_duels(case):
    posterior = posterior_of(case, n_draws=8192)
    found = expected(case)
    f, w = found.f.T, found.mass
    tree = posterior.predict(X[:3], draws=2000, random_seed=1)
    new = tree["predictions_summary"]
    assert new["p_beats"].dims == ("pred_id", "pred_id_other")
    for i in range(3):
        best = w @ ((f[:, i] > np.delete(f, i, axis=1).max(axis=1)) + 0.0)
        # The grid's error in an area that is cut: some hundredths.
        assert abs(new["p_best"].values[i] - best) < 4 * new["p_best_se"].values[i] + 0.06
        for j in range(3):
            want = w @ (duel(f, i, j) if case == "duels" else with_threshold(f, i, j)[0])
            assert abs(new["p_beats"].values[i, j] - want) < (
                4 * new["p_beats_se"].values[i, j] + 1e-6
            )
    assert float(new["p_best"].sum()) == pytest.approx(1.0)
    pairs = posterior.preference_probability(X[[0, 1]], X[[1, 2]])
    np.testing.assert_allclose(pairs.value, new["p_beats"].values[[0, 1], [1, 2]], atol=1e-9)
    np.testing.assert_allclose(pairs.std_error, new["p_beats_se"].values[[0, 1], [1, 2]], rtol=1e-6)


@pytest.mark.slow(ci=True)
def test_predictions_of_choices():
    found = expected("choices")
    summary = posterior_of("choices").predict(X, draws=4000, random_seed=1)["predictions_summary"]
    for i in range(4):
        others = [j for j in range(4) if j != i]
        want = found.mass @ oracle.chosen(ahead(found.f.T, i, others))
        assert abs(summary["p_chosen"].values[i] - want) < 4 * summary["p_chosen_se"].values[i]
    assert float(summary["p_chosen"].sum()) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("case", ["ties", "choices", "rankings"])
def test_output(case):
    likelihood, y, _, _ = CASES[case]
    tree = posterior_of(case).sample(200, 2, random_seed=1)
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", likelihood.y_dim)
    assert tree["observed_data"]["y"].dims == (likelihood.y_dim, *likelihood.y_inner_dims)
    assert tree["posterior_predictive"]["y"].shape == (2, 200, *np.shape(y))


MIXED = {
    "duels": (X[:2], [[0, 1]], Preference(SIGMA)),
    "choices": (X[:3], [[1, 0, 2]], Choice(SIGMA)),
    "labels": (X[2:3], [1], BernoulliProbit()),
    "values": (X[3:], [0.4], Gaussian(0.5)),
}
GIVEN = {
    "duels": lambda f: duel(f, 0, 1),
    "choices": lambda f: oracle.chosen(ahead(f, 1, (0, 2))),
    "labels": lambda f: ndtr(f[:, 2]),
    "values": lambda f: norm.pdf(0.4, f[:, 3], 0.5),
}


@pytest.mark.parametrize("kinds", [("duels", "labels", "values"), ("choices", "values")])
def test_mixed_with_labels_and_numbers(kinds):
    """Noise that comparisons share stands beside noise that values have of their own."""
    posterior = sg.SkewGPPosterior({k: MIXED[k] for k in kinds}, cov_func=kernel, n_draws=8192)
    found = oracle.latent_posterior(kernel(X), lambda f: np.prod([GIVEN[k](f) for k in kinds], 0))
    assert posterior.log_marginal_likelihood.value == pytest.approx(found.log_evidence, abs=1e-5)
    tree = posterior.sample(50, 1, random_seed=1)
    assert f"{MIXED[kinds[0]][2].y_dim}_{kinds[0]}" in tree["observed_data"][f"y_{kinds[0]}"].dims
    assert (
        f"{'p_best' if 'duels' in kinds else 'p_chosen'}_{kinds[0]}"
        in (posterior.predict(X, random_seed=1)["predictions_summary"])
    )


# An order of items, of which one duel follows from others; the noise of items is a kernel.
@pytest.mark.parametrize(
    ("y", "likelihood", "order", "noise"),
    [
        ([[1, 0], [0, 2], [1, 2]], Preference(0.0), [1, 0, 2], 0.0),
        ([[1, 0], [0, 2], [1, 2], [3, 1], [3, 2]], Preference(SIGMA, noise="item"), [3, 1, 0, 2],
         SIGMA),
    ],
    ids=["without noise", "more duels than items"],
)  # fmt: skip
def test_duels_that_are_an_order(y, likelihood, order, noise):
    m = len(order)
    D = np.eye(m)[order][:-1] - np.eye(m)[order][1:]
    K = kernel(X[:m]) + noise**2 * np.eye(m)
    known = multivariate_normal(np.zeros(m - 1), D @ K @ D.T, abseps=1e-8, maxpts=10**6)
    posterior = sg.SkewGPPosterior(X[:m], y, likelihood=likelihood, cov_func=kernel, n_draws=4096)
    evidence = posterior.log_marginal_likelihood
    # The nugget moves limits by some 1e-4, and the log probability by as much times its slope.
    error = 4 * evidence.std_error + (1e-3 if noise else 3e-4)
    assert abs(evidence.value - np.log(known.cdf(np.zeros(m - 1)))) < error
    if not noise:
        f = posterior.sample(1000, 1, random_seed=1)["posterior"]["f"].values[0]
        assert (f @ D.T).min() > -1e-3  # some nuggets' standard deviations


def test_preference_probability_needs_comparisons():
    labels = sg.SkewGPPosterior(X, [0, 1, 0, 1], cov_func=kernel)
    with pytest.raises(TypeError, match="comparisons"):
        labels.preference_probability(X, X)
    with pytest.raises(ValueError, match="equal shapes"):
        posterior_of("duels").preference_probability(X, X[:2])
