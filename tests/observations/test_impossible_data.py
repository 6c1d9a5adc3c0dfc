"""Data and parameters that no likelihood can have: errors that say so, and data untouched."""

import numpy as np
import pytest

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import (
    BernoulliProbit,
    BinomialProbit,
    CensoredGaussian,
    Choice,
    Constraint,
    Gaussian,
    MultinomialProbit,
    OrderedProbit,
    Preference,
    Ranking,
    Selection,
)

X = np.linspace(-1.0, 1.0, 4)[:, None]
NAN, INF = np.nan, np.inf


def kernel(X, Xs=None, diag=False):
    if diag:
        return np.ones(len(X))
    return np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)


# A likelihood, data, and what the message says.
IMPOSSIBLE = {
    "labels": (BernoulliProbit, [0, 1, 2, 0], "two classes coded 0 and 1"),
    "a missing label": (BernoulliProbit, [0, 1, NAN, 0], "y must be finite"),
    "a level too high": (lambda: OrderedProbit([-1, 1]), [0, 1, 3, 0], "categories 0 to 2"),
    "a level below 0": (lambda: OrderedProbit([-1, 1]), [0, 1, -1, 0], "categories 0 to 2"),
    "a broken level": (lambda: OrderedProbit([-1, 1]), [0, 1, 0.5, 0], "row 2 has 0.5"),
    "cut-points that fall": (lambda: OrderedProbit([1, -1]), [0, 1, 1, 0], "must increase"),
    "equal cut-points": (lambda: OrderedProbit([1, 1]), [0, 1, 1, 0], "must increase"),
    "levels without noise": (
        lambda: OrderedProbit([-1, 1], sigma=0.0),
        [0, 1, 1, 0],
        "sigma must be positive",
    ),
    "below a limit": (
        lambda: CensoredGaussian(0.5, lower=0.0),
        [0, 1, -1.0, 0],
        "row 2 has -1, limits 0 and inf",
    ),
    "above a limit": (
        lambda: CensoredGaussian(0.5, upper=1.0),
        [0, 1, 2.0, 0],
        "row 2 has 2, limits -inf and 1",
    ),
    "limits in the wrong order": (
        lambda: CensoredGaussian(0.5, lower=1.0, upper=0.0),
        [0, 1, 0.5, 0],
        "lower must be below upper",
    ),
    "bounds in the wrong order": (
        lambda: CensoredGaussian(0.5),
        [[0, 1], [1, 0], [0, 0], [0, 2]],
        "row 1 of y has the lower bound 1 and the upper bound 0",
    ),
    "bounds that are NaN": (
        lambda: CensoredGaussian(0.5),
        [[0, 1], [NAN, 0], [0, 0], [0, 2]],
        "y holds 1 NaN bound",
    ),
    "censored without noise": (
        lambda: CensoredGaussian(-1.0, lower=0.0),
        [0, 1, 0.5, 0],
        "sigma must be positive",
    ),
    "no noise": (lambda: Gaussian(0.0), [0, 1, 0.5, 0], "sigma must be positive"),
    "negative noise": (lambda: Gaussian([1, 1, -1, 1]), [0, 1, 0.5, 0], "sigma must be positive"),
    "noise of three": (lambda: Gaussian([1, 1, 1]), [0, 1, 0.5, 0], "sigma must have length 4"),
    "a missing value": (lambda: Gaussian(1.0), [0, 1, NAN, 0], "y must be finite"),
    "masked": (
        lambda: Gaussian(1.0),
        np.ma.masked_array([0.0, 1, 2, 3], mask=[0, 0, 1, 0]),
        "y has masked values",
    ),
    "more successes than trials": (
        lambda: BinomialProbit(3),
        [0, 4, 1, 0],
        "row 1 has 4 successes in 3 trials",
    ),
    "negative successes": (lambda: BinomialProbit(3), [0, -1, 1, 0], "row 1 has -1"),
    "broken trials": (lambda: BinomialProbit(2.5), [0, 1, 1, 0], "n must hold integers"),
    "negative trials": (lambda: BinomialProbit(-2), [0, 0, 0, 0], "n must hold numbers of trials"),
    "an item against itself": (Preference, [[0, 0], [1, 2]], "row 0 of y repeats one"),
    "an unknown item": (Preference, [[0, 4], [1, 2]], "y names item 4 in row 0"),
    "a negative item": (Preference, [[0, -2], [1, 2]], "y names item -2 in row 0"),
    "ties without a threshold": (
        Preference,
        [[0, 1, 1], [1, 2, 0]],
        "unless threshold is > 0",
    ),
    "negative noise of duels": (
        lambda: Preference(-1.0),
        [[0, 1], [1, 2]],
        "sigma must not be negative",
    ),
    "a negative threshold": (
        lambda: Preference(threshold=-1.0),
        [[0, 1], [1, 2]],
        "threshold must not be negative",
    ),
    "a circle without noise": (
        lambda: Preference(0.0),
        [[0, 1], [1, 2], [2, 0]],
        "win against each other in a circle",
    ),
    "a choice of one": (Choice, [[0, -1], [1, 2]], "a choice needs at least 2 items"),
    "a choice with a repeat": (Choice, [[0, 1, 1], [1, 2, 0]], "row 0 of y repeats one"),
    "a choice of unknown items": (Choice, [[0, 1, 7], [1, 2, 0]], "y names item 7 in row 0"),
    "choices without noise": (lambda: Choice(0.0), [[0, 1], [1, 2]], "sigma must be positive"),
    "a ranking with a repeat": (Ranking, [[0, 1, 0], [1, 2, 0]], "row 0 of y repeats one"),
    "a ranking of unknown items": (Ranking, [[0, 1, 9], [1, 2, 0]], "y names item 9 in row 0"),
    "a ranking of one": (Ranking, [[0, -1], [1, 2]], "a ranking needs at least 2 items"),
    "a ranking with a gap": (Ranking, [[0, -1, 1], [1, 2, 0]], "row 0 goes on after it"),
    "rankings without noise": (lambda: Ranking(0.0), [[0, 1], [1, 2]], "sigma must be positive"),
    "a class that never occurs": (MultinomialProbit, [0, 2, 2, 0], "say how many there are"),
    "a class too high": (lambda: MultinomialProbit(3), [0, 3, 2, 0], "y must be from 0 to 2"),
    "one class": (MultinomialProbit, [0, 0, 0, 0], "two classes or more"),
    "an infinite outcome": (lambda: Selection(1.0, 0.5), [0, INF, NAN, 0], "1 infinite value"),
    "outcomes without noise": (lambda: Selection(0.0, 0.5), [0, 1, NAN, 0], "sigma must be pos"),
    "one noise for two": (lambda: Selection(1.0, 1.0), [0, 1, NAN, 0], "between -1 and 1"),
    "a constraint in the wrong order": (
        lambda: Constraint(1.0, 0.0),
        None,
        "lower must be below upper in every row",
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_message(name):
    make, y, message = IMPOSSIBLE[name]
    data = None if y is None else (y if isinstance(y, np.ma.MaskedArray) else np.array(y))
    before = None if data is None else data.copy()
    with pytest.raises(ValueError, match=message):
        sg.SkewGPPosterior(X, data, likelihood=make(), cov_func=kernel)
    if data is not None:
        np.testing.assert_array_equal(data, before)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (OrderedProbit([-0.5, 0.5]), [0, 2, 0, 2]),
        (MultinomialProbit(3), [0, 2, 2, 0]),
        (BinomialProbit([0, 0, 1, 1]), [0, 0, 1, 0]),
    ],
    ids=["level", "class", "trials"],
)
def test_what_never_occurs_is_possible(likelihood, y):
    """Where it is known to be there: a level, a class; and places without a trial."""
    posterior = sg.SkewGPPosterior(X, np.array(y), likelihood=likelihood, cov_func=kernel)
    assert np.isfinite(posterior.log_marginal_likelihood.value)
