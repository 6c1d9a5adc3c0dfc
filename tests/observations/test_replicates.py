"""Replicated data against the log likelihood: their frequencies at a fixed f are its exponential.

Where the data are countable, all outcomes of a row are listed: their probabilities sum to one, and
a chi-square test compares them with the counts of replicates. Numbers are put into cells, whose
probabilities are integrals of the density. Each test is passed where its p-value is above 1e-6: a
right likelihood fails with that probability a row for a new seed, never for the seeds fixed here.
"""

from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import CensoredData, chisquare, multivariate_normal

from pymc_skewgp.likelihoods import (
    BernoulliProbit,
    CensoredGaussian,
    Choice,
    MultinomialProbit,
    Preference,
    Ranking,
    Selection,
)

N_DRAWS = 20_000
LEAST_P = 1e-6
ITEMS = 4
F = np.array([0.3, -0.5, 1.1, 0.2])
NOISE_COV = np.array([[1.0, 0.5, 0.2], [0.5, 2.0, -0.3], [0.2, -0.3, 0.7]])


class Case(NamedTuple):
    """A likelihood whose data are countable.

    Attributes
    ----------
    likelihood : Likelihood
    y : array_like
    outcomes : callable
        From a row of the data to all that it may become.
    """

    likelihood: Any
    y: Any
    outcomes: Callable[[Any], list[Any]]


def winners(row):
    return [(row[0], row[1]), (row[1], row[0])]


def winners_or_tie(row):
    """A tie has no order: the larger of the two may be either."""
    first, second = row[:2]
    return [(first, second, 0), (second, first, 0), (*sorted((first, second)), 1)]


def chosen_first(row):
    """The others keep their order."""
    there = [item for item in row if item >= 0]
    gone = [-1] * (len(row) - len(there))
    return [(c, *(j for j in there if j != c), *gone) for c in there]


def all_orders(row):
    there = [item for item in row if item >= 0]
    gone = [-1] * (len(row) - len(there))
    return [(*order, *gone) for order in permutations(there)]


def numbers_to(k):
    return lambda row: [(c,) for c in range(k)]


DUELS = [[0, 1], [2, 1], [3, 0]]
COUNTABLE = {
    "classes": Case(MultinomialProbit(3), [0, 2, 1, 1], numbers_to(3)),
    "five classes": Case(MultinomialProbit(5), [0, 4, 1, 1], numbers_to(5)),
    "classes, shared noise": Case(
        MultinomialProbit(noise_cov=NOISE_COV), [0, 2, 1, 1], numbers_to(3)
    ),
    "duels": Case(Preference(0.8), DUELS, winners),
    "duels, noise of items": Case(Preference(0.8, noise="item"), DUELS, winners),
    "duels, ties seen": Case(
        Preference(0.8, threshold=0.5), [[0, 1, 1], [2, 1, 0], [3, 0, 0]], winners_or_tie
    ),
    "duels, noise of items, ties": Case(
        Preference(0.8, noise="item", threshold=0.5), DUELS, winners_or_tie
    ),
    "choices": Case(Choice(0.8), [[1, 0, 2, 3], [0, 2, -1, -1], [3, 1, 2, -1]], chosen_first),
    "rankings": Case(Ranking(0.8), [[1, 0, 2], [2, 3, -1], [3, 1, 2]], all_orders),
    "rankings of four": Case(Ranking(0.8), [[1, 0, 2, 3], [0, 1, 2, -1]], all_orders),
}


def functions(likelihood, data):
    """One f, of shape (1, n) or (1, n, K)."""
    k = likelihood.n_functions(data)
    return F[None] if k == 1 else np.random.default_rng(4).normal(size=(1, ITEMS, k))


def replicates(likelihood, data, f, seed):
    """Draws of the data at one f."""
    many = np.broadcast_to(f, (N_DRAWS, *f.shape[1:])).copy()
    log_likelihood = likelihood.log_likelihood(data, many)
    return likelihood.replicate(data, many, log_likelihood, np.random.default_rng(seed))


@pytest.mark.parametrize("name", COUNTABLE)
def test_frequencies(name):
    likelihood, y, outcomes = COUNTABLE[name]
    data = likelihood.as_data(np.array(y), ITEMS)
    f = functions(likelihood, data)
    drawn = replicates(likelihood, data, f, 1)
    assert drawn.shape == (N_DRAWS, *data.shape)
    for i, row in enumerate(data):
        p, counts = [], []
        for outcome in outcomes(np.atleast_1d(row).tolist()):
            new = data.copy()
            new[i] = outcome if data.ndim > 1 else outcome[0]
            try:
                likelihood.as_data(new, ITEMS)
            except ValueError:  # more successes than this row has trials
                continue
            p.append(np.exp(likelihood.log_likelihood(new, f)[0, i]))
            found = drawn[:, i].reshape(N_DRAWS, -1)
            if len(outcome) == 3 and isinstance(likelihood, Preference) and outcome[2]:
                found = np.column_stack([np.sort(found[:, :2], axis=1), found[:, 2]])
            elif len(outcome) == 3 and isinstance(likelihood, Preference):
                assert set(np.unique(found[:, 2])) <= {0, 1}
            counts.append(int((found == outcome).all(axis=1).sum()))
        # The rules of integration over noise leave 1e-5 at most.
        assert sum(p) == pytest.approx(1.0, abs=1e-5)
        assert sum(counts) == N_DRAWS
        assert chisquare(counts, np.array(p) / sum(p) * N_DRAWS).pvalue > LEAST_P


def integral(density, start, stop):
    """By Gauss's rule: the cells are narrow."""
    x, w = np.polynomial.legendre.leggauss(8)
    half = 0.5 * (stop - start)
    return half * sum(wi * density(start + half * (1.0 + xi)) for xi, wi in zip(x, w, strict=True))


def assert_frequencies(counts, p):
    """Cells of few expected counts together."""
    counts, p = np.array(counts), np.array(p)
    assert counts.sum() == N_DRAWS
    assert p.sum() == pytest.approx(1.0, abs=1e-6)
    few = p * N_DRAWS < 20
    counts = np.append(counts[~few], counts[few].sum())
    expected = np.append(p[~few], p[few].sum()) * N_DRAWS
    if expected[-1] < 5:
        counts, expected = counts[:-1], expected[:-1] * counts[:-1].sum() / expected[:-1].sum()
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > LEAST_P


@pytest.mark.parametrize("form", ["bounds", "CensoredData"])
def test_frequencies_within_bounds(form):
    """Values known by bounds: the share of replicates that are within these."""
    likelihood = CensoredGaussian(0.7)
    # In the order in which SciPy keeps them.
    bounds = np.array([[-np.inf, -0.3], [0.7, np.inf], [0.0, 0.5], [-1.0, 1.0]])
    y = bounds if form == "bounds" else CensoredData.interval_censored(*bounds.T)
    data = likelihood.as_data(y, ITEMS)
    drawn = replicates(likelihood, data, F[None], 3)
    order = np.arange(ITEMS)
    p = np.exp(likelihood.log_likelihood(data, F[None])[0])
    inside = (drawn > bounds[order, 0]) & (drawn < bounds[order, 1])
    for i in range(ITEMS):
        count = int(inside[:, i].sum())
        assert_frequencies([count, N_DRAWS - count], [p[i], 1.0 - p[i]])


def test_labels_share_noise():
    noise = np.array([[1.0, 0.8, -0.2], [0.8, 1.0, 0.1], [-0.2, 0.1, 1.0]])
    f = np.tile([0.3, -0.4, 0.2], (1, 40_000, 1))
    likelihood, rng = BernoulliProbit(noise), np.random.default_rng(0)
    new = likelihood.replicate(np.zeros(3), f, np.zeros(0), rng)[0]
    both = int(((new[:, 0] == 1) & (new[:, 1] == 1)).sum())
    want = multivariate_normal(np.zeros(2), noise[:2, :2]).cdf([0.3, -0.4])
    # Four standard errors: a false alarm in 16000.
    assert abs(both / 40_000 - want) < 4 * np.sqrt(want * (1 - want) / 40_000)


def test_frequencies_of_selected_outcomes():
    likelihood = Selection(0.8, rho=0.6)
    data = likelihood.as_data(np.array([0.1, np.nan, 0.5, -1.0]), ITEMS)
    f = functions(likelihood, data)
    drawn = replicates(likelihood, data, f, 5)
    for i in range(ITEMS):

        def density(value, i=i):
            new = data.copy()
            new[i] = value
            return float(np.exp(likelihood.log_likelihood(new, f)[0, i]))

        edges = np.linspace(f[0, i, 0] - 8.0, f[0, i, 0] + 8.0, 81)
        p = [integral(density, *pair) for pair in pairwise(edges)]
        missing = np.isnan(drawn[:, i])
        counts = list(np.histogram(drawn[~missing, i], edges)[0])
        assert_frequencies([*counts, missing.sum()], [*p, density(np.nan)])
