"""Data and parameters that no likelihood can have: errors that say so, and data untouched."""

import copy
from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any, NamedTuple

import numpy as np
import pytest
from likelihood_cases import CASES
from likelihood_oracles import kernel
from scipy.stats import CensoredData, chisquare, multivariate_normal

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp._errors import NotPositiveDefiniteError

NAN, INF = np.nan, np.inf
LABELS, VALUES, TRIALS = [0, 1, 1, 0], [0.0, 0.8, 1.5, 0.4], [5, 3, 8, 0]
BOUNDS = np.array([[-INF, 0.0], [0.8, 0.8], [1.5, INF], [0.2, 1.1]])
DUELS = [[0, 1], [1, 2]]
CIRCLE = [[0, 1], [1, 2], [2, 0]]
UNEQUAL = np.full((4, 4), -0.9) + 1.9 * np.eye(4)


def levels(*cuts, **more):
    return of.OrderedProbit(list(cuts) or [-1, 1], **more)


def tobit(sigma=0.5, lower=None, upper=None):
    return of.CensoredGaussian(sigma, lower, upper)


# A likelihood, data at four inputs, and what the message says.
IMPOSSIBLE = [
    (of.BernoulliProbit(), [0, 1, 2, 0], "two classes coded 0 and 1"),
    (of.BernoulliProbit(), [0, 1, NAN, 0], "y must be finite"),
    (of.BernoulliProbit(np.eye(2)), LABELS, "a row for each of the 4 labels, got 2"),
    (levels(), [0, 1, 3, 0], r"categories 0 to 2.*row 2 has 3 \(1 such row"),
    (levels(), [0, 1, 0.5, 0], "one category for each row of X; row 2 has 0.5"),
    (levels(), [0, 1], r"y must have shape \(4,\)"),
    (levels(), [0, NAN, 1, 2], "y must be finite, found 1 NaN"),
    (levels(0.5, 0.5), LABELS, "must increase: cut-point 0 is 0.5 and cut-point 1 is 0.5"),
    (levels(0.5, INF), LABELS, "cutpoints holds 1 infinite value"),
    (of.OrderedProbit([]), LABELS, "cutpoints is empty"),
    (levels(sigma=0.0), LABELS, "sigma must be positive"),
    (levels(categories=["a", "b"]), LABELS, "must be 3 names.*got 2"),
    (levels(categories=["a", "b", "a"]), LABELS, "must differ from each other"),
    (levels(categories=list("abc")), list("abcx"), r"found 'x' in 1 row"),
    (levels(categories=[1, 2, 3]), [1, 2, 3, 0], r"found 0 in 1 row"),
    (tobit(lower=0.0), [0, 1, -1.0, 0], "within the limits.*row 2 has -1"),
    (tobit(lower=2.0, upper=1.0), VALUES, "lower must be below upper; row 0 has 2"),
    (tobit(lower=[0.0, 1.0]), VALUES, "lower must have length 4, got 2"),
    (tobit(lower=NAN), VALUES, "lower holds"),
    (tobit(), [*VALUES[:3], NAN], "y must be finite, found 1 NaN"),
    (tobit(), BOUNDS[:, ::-1], "lower bounds in y must not exceed upper ones; row 0 has 0.*swap"),
    (tobit(), BOUNDS[:3], r"shape \(4,\) or \(4, 2\).*got \(3, 2\)"),
    (tobit(lower=0.0), BOUNDS, "lower and upper are not used: leave them out"),
    (tobit(), np.full((4, 2), INF), "values in y that were seen must be finite"),
    (tobit(), np.full((4, 2), NAN), "8 NaN bound.*use infinities"),
    (tobit([1.0, -1.0, 1.0, 1.0]), VALUES, "sigma must be positive"),
    (of.Gaussian([1, 1, -1, 1]), VALUES, "sigma must be positive"),
    (of.Gaussian([1, 1, 1]), VALUES, "sigma must have length 4"),
    (of.Gaussian(1.0), VALUES[:3], r"y must have shape \(4,\), one value for each row of X"),
    (of.Gaussian(1.0), list("abcd"), "y must"),
    (of.BinomialProbit(3), [0, -1, 1, 0], "counts of 0 and more; row 1 has -1"),
    (of.BinomialProbit(4), [0.5, 0, 0, 0], "y must hold integers, one number of successes"),
    (of.BinomialProbit(2.5), LABELS, "n must hold integers, one number of trials"),
    (of.BinomialProbit(TRIALS[:3]), LABELS, r"n must have shape \(4,\)"),
    (of.BinomialProbit([*TRIALS[:3], -1]), LABELS, "n must hold .*, 0 or more; row 3 has -1"),
    (of.BinomialProbit(NAN), LABELS, "n must be finite"),
    (of.Preference(), [[0, -2], [1, 2]], "y names item -2 in row 0"),
    (of.Preference(), [[0, -1]], "needs at least 2 items"),
    (of.Preference(), [0, 1], "must have shape"),
    (of.Preference(), [[0, 1, 2, 3]], "winner and loser"),
    (of.Preference(), [[0, NAN]], "whole numbers"),
    (of.Preference(), [["a", "b"]], "numeric"),
    (of.Preference(threshold=1.0), [[0, 1, 2]], "1 for a tie"),
    (of.Preference(0.0), CIRCLE, "items 0, 1, 2 win against each other in a circle"),
    (of.Preference(noise="item"), [[0, 1], [1, 0]], "items 0, 1 win .* in a circle"),
    (of.Preference(-1.0), DUELS, "sigma must not be negative"),
    (of.Preference(threshold=-1.0), DUELS, "threshold must not be negative"),
    (of.Choice(), [[0, -1], [1, 2]], "a choice needs at least 2 items"),
    (of.Choice(), [[0, -1, 1]], "fill up the end"),
    (of.Choice(), [[0, 1, 1], [1, 2, 0]], "row 0 of y repeats one"),
    (of.Choice(), [[0, 1], [0]], "rows of one length"),
    (of.Choice(0.0), DUELS, "sigma must be positive"),
    (
        of.Ranking(),
        [[0, 1, 0], [1, 2, 0]],
        "a ranking compares different items; row 0 of y repeats",
    ),
    (of.Ranking(), [[0, -1, 1], [1, 2, 0]], "row 0 goes on after it"),
    (of.Ranking(0.0), DUELS, "sigma must be positive"),
    (of.MultinomialProbit(), [0, 2, 2, 0], "a class never occurs.*say how many there are"),
    (of.MultinomialProbit(), [0, 0, 0, 0], "two classes or more"),
    (of.MultinomialProbit(3), [0, 3, 2, 0], "y must be from 0 to 2"),
    (of.MultinomialProbit(3), [0.5, 1, 2, 0], "hold integers, one class, 0 for the first"),
    (of.MultinomialProbit(3), list("abca"), "numeric"),
    (of.MultinomialProbit(3), [0], "must have shape"),
    (of.Selection(1.0, 0.5), [0.0], r"y must have shape \(4,\)"),
    (of.Selection(1.0, 0.5), [0, INF, NAN, 0], "1 infinite value"),
    (of.Selection(1.0, 0.5), [1.0, "a", "b", "c"], "numeric"),
    (of.Selection(0.0, 0.5), [0, 1, NAN, 0], "sigma must be positive"),
    (of.Selection(1.0, 1.0), [0, 1, NAN, 0], "strictly between -1 and 1"),
    (of.Selection(1.0, [0.1, 0.2]), [0, 1, NAN, 0], "one number"),
    (of.Constraint(), None, "no limit at 4 of 4"),
    (of.Constraint(1.0, 0.0), None, "lower must be below upper in every row"),
    (of.Constraint(0.0, 1e-7), None, "closer together than its nugget in 4 row"),
    (of.Constraint(lower=[0.0, 0.0, 0.0]), None, "lower must have length 4"),
    (of.Constraint(lower=NAN), None, "NaN"),
    (of.Constraint(lower=0.0), VALUES, "has no y"),
    (of.Constraint.increasing(1), None, r"feature 1, but X has 1 column"),
]
REFUSED = [(4, *row) for row in IMPOSSIBLE] + [
    (3, case.kind(**case.arguments | changes), y, message)
    for case in CASES.values()
    for changes, y, message in case.refused
]


@pytest.mark.parametrize(("n", "likelihood", "y", "message"), REFUSED)
def test_message(n, likelihood, y, message):
    ragged = isinstance(y, list) and len({np.size(row) for row in y}) > 1
    data = y if y is None or ragged else np.array(y)
    before = copy.deepcopy(data)
    X = np.linspace(-1.0, 1.0, n)
    with pytest.raises((TypeError, ValueError), match=message):
        sg.SkewGPPosterior(X[:, None], data, likelihood=likelihood, cov_func=kernel)
    if data is not None and not ragged:
        np.testing.assert_array_equal(data, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: of.BernoulliProbit(2.0 * np.eye(3)), "1 on its diagonal.*entry 0 is 2"),
        (lambda: of.BernoulliProbit(UNEQUAL), "noise_cov"),
        (lambda: of.BernoulliProbit(np.ones((2, 3))), "square"),
        (lambda: of.MultinomialProbit(1), "at least 2"),
        (lambda: of.MultinomialProbit(3, categories=["a", "b"]), "must be one"),
        (lambda: of.MultinomialProbit(noise_cov=UNEQUAL), "noise_cov"),
        (lambda: of.MultinomialProbit(noise_cov=-np.eye(2)), "positive definite"),
        (lambda: of.Preference(noise="other"), "fresh"),
        (lambda: of.Constraint(lower=0.0, nugget=0.0), "nugget must be positive"),
        (lambda: of.Constraint(lower=0.0, derivative=1), r"must be \(feature, order\)"),
        (lambda: of.Constraint(lower=0.0, derivative=(0, 3)), "order 1 or 2, got 3"),
        (lambda: of.Constraint(lower=0.0, derivative=(0, 0)), "at least 1"),
        (lambda: of.Constraint(lower=0.0, derivative=(-1, 1)), "feature of derivative"),
    ],
)
def test_parameters(make, message):
    """When the likelihood is made, or used."""
    with pytest.raises((TypeError, ValueError, NotPositiveDefiniteError), match=message):
        sg.SkewGPPosterior(np.zeros((3, 1)), [0, 1, 0], likelihood=make(), cov_func=kernel)


@pytest.mark.parametrize("likelihood", [of.Gaussian, "gaussian", 0.3])
def test_what_is_no_likelihood_is_refused(likelihood):
    with pytest.raises(TypeError, match=r"must be an object of pymc_skewgp\.likelihoods"):
        sg.SkewGPPosterior(np.zeros((2, 1)), [0, 1], likelihood=likelihood, cov_func=kernel)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (of.OrderedProbit([-0.5, 0.5]), [0, 2, 0, 2]),
        (of.MultinomialProbit(3), [0, 2, 2, 0]),
        (of.BinomialProbit([0, 0, 1, 1]), [0, 0, 1, 0]),
    ],
    ids=["level", "class", "trials"],
)
def test_what_never_occurs_is_possible(likelihood, y):
    """Where it is known to be there: a level, a class; and places without a trial."""
    X = np.linspace(-1.0, 1.0, 4)[:, None]
    posterior = sg.SkewGPPosterior(X, np.array(y), likelihood=likelihood, cov_func=kernel)
    assert np.isfinite(posterior.log_marginal_likelihood.value)


# Replicated data against the log likelihood: their frequencies at a fixed f are its exponential.
#
# Where the data are countable, all outcomes of a row are listed: their probabilities sum to one,
# and a chi-square test compares them with the counts of replicates. Numbers are put into cells,
# whose probabilities are integrals of the density. Each test is passed where its p-value is above
# 1e-6: a right likelihood fails with that probability a row for a new seed, never for the seeds
# fixed here.


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


PAIRS = [[0, 1], [2, 1], [3, 0]]
COUNTABLE = {
    "classes": Case(of.MultinomialProbit(3), [0, 2, 1, 1], numbers_to(3)),
    "five classes": Case(of.MultinomialProbit(5), [0, 4, 1, 1], numbers_to(5)),
    "classes, shared noise": Case(
        of.MultinomialProbit(noise_cov=NOISE_COV), [0, 2, 1, 1], numbers_to(3)
    ),
    "duels": Case(of.Preference(0.8), PAIRS, winners),
    "duels, noise of items": Case(of.Preference(0.8, noise="item"), PAIRS, winners),
    "duels, ties seen": Case(
        of.Preference(0.8, threshold=0.5), [[0, 1, 1], [2, 1, 0], [3, 0, 0]], winners_or_tie
    ),
    "duels, noise of items, ties": Case(
        of.Preference(0.8, noise="item", threshold=0.5), PAIRS, winners_or_tie
    ),
    "choices": Case(of.Choice(0.8), [[1, 0, 2, 3], [0, 2, -1, -1], [3, 1, 2, -1]], chosen_first),
    "rankings": Case(of.Ranking(0.8), [[1, 0, 2], [2, 3, -1], [3, 1, 2]], all_orders),
    "rankings of four": Case(of.Ranking(0.8), [[1, 0, 2, 3], [0, 1, 2, -1]], all_orders),
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
            if len(outcome) == 3 and isinstance(likelihood, of.Preference) and outcome[2]:
                found = np.column_stack([np.sort(found[:, :2], axis=1), found[:, 2]])
            elif len(outcome) == 3 and isinstance(likelihood, of.Preference):
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
    likelihood = of.CensoredGaussian(0.7)
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
    likelihood, rng = of.BernoulliProbit(noise), np.random.default_rng(0)
    new = likelihood.replicate(np.zeros(3), f, np.zeros(0), rng)[0]
    both = int(((new[:, 0] == 1) & (new[:, 1] == 1)).sum())
    want = multivariate_normal(np.zeros(2), noise[:2, :2]).cdf([0.3, -0.4])
    # Four standard errors: a false alarm in 16000.
    assert abs(both / 40_000 - want) < 4 * np.sqrt(want * (1 - want) / 40_000)


def test_frequencies_of_selected_outcomes():
    likelihood = of.Selection(0.8, rho=0.6)
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
