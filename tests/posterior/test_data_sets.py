"""Data of several kinds on one function, by a grid over the function, and data given later."""

import numpy as np
import pytest
from approximation_oracles import rbf

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import (
    BernoulliProbit,
    Choice,
    Gaussian,
    MultinomialProbit,
    Preference,
    Ranking,
)

X1, X2 = np.array([[0.0], [1.0]]), np.array([[0.4]])
LABELS, VALUES, SIGMA = np.array([0, 1]), np.array([0.3]), 0.5


kernel = rbf(1.5)


KINDS = {"labels": (X1, LABELS, BernoulliProbit()), "values": (X2, VALUES, Gaussian(SIGMA))}


def test_names_and_order():
    posterior = sg.SkewGPPosterior(KINDS, cov_func=kernel)
    dt = posterior.sample(50, 2, random_seed=1)
    assert dict(dt["posterior"].sizes) == {
        "chain": 2,
        "draw": 50,
        "obs_id_labels": 2,
        "obs_id_values": 1,
    }
    assert set(dt["log_likelihood"].data_vars) == {"y_labels", "y_values"}
    summary = posterior.predict(X2, draws=0)["predictions_summary"]
    assert {"p_mean_labels", "p_mean_labels_se", "y_mean_values", "y_sd_values"} <= set(
        summary.data_vars
    )
    assert posterior.likelihood == tuple(kind[2] for kind in KINDS.values())


@pytest.mark.parametrize(
    ("X", "y", "likelihood", "message"),
    [
        (X1, None, None, "y is missing"),
        ([], None, None, "there are no data"),
        ([(X1, LABELS)], None, None, "must be a tuple"),
        ({"a": (X1, LABELS, None)}, None, BernoulliProbit(), "has its own"),
        ({"a": (X1, [0, 2], None)}, None, None, "in the data 'a': y must hold two classes"),
        ([(X1, LABELS, None), (np.zeros((2, 2)), LABELS, None)], None, None, "number of columns"),
    ],
)
def test_bad_input(X, y, likelihood, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sg.SkewGPPosterior(X, y, likelihood=likelihood, cov_func=kernel)


X, NEW = np.array([[0.0], [0.7], [2.0]]), np.array([[1.4], [3.0]])


@pytest.mark.parametrize(
    ("likelihood", "y", "new", "both"),
    [
        (None, [0, 1, 1], [-1, 1], [0, 1, 1, 0, 1]),
        (Gaussian(0.3), [0.1, 0.2, 0.3], [0.4, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5]),
        (MultinomialProbit(3), [0, 1, 1], [2, 0], [0, 1, 1, 2, 0]),
        (Preference(0.5), [[0, 1], [2, 1]], [[3, 0], [4, 3]], [[0, 1], [2, 1], [3, 0], [4, 3]]),
        (Preference(0.5, threshold=0.3), [[0, 1]], [[3, 0, 1]], [[0, 1, 0], [3, 0, 1]]),
        (Choice(0.5), [[0, 1]], [[3, 0, 4]], [[0, 1, -1], [3, 0, 4]]),
        (Ranking(0.5), [[0, 1, 2]], [[3, 0]], [[0, 1, 2], [3, 0, -1]]),
    ],
)
def test_more_data_are_the_same_as_all_at_once(likelihood, y, new, both):
    first = sg.SkewGPPosterior(
        X, y, likelihood=likelihood, cov_func=kernel, pseudo_points=[[1.0]], random_seed=4
    )
    before = first.log_marginal_likelihood
    second = first.update(NEW, new)
    whole = sg.SkewGPPosterior(
        np.vstack([X, NEW]),
        both,
        likelihood=likelihood,
        cov_func=kernel,
        pseudo_points=[[1.0]],
        random_seed=4,
    )
    assert second.log_marginal_likelihood == whole.log_marginal_likelihood
    np.testing.assert_array_equal(second.marginals().means, whole.marginals().means)
    assert first.log_marginal_likelihood == before
    assert first.marginals().size == len(X) * (
        3 if isinstance(likelihood, MultinomialProbit) else 1
    )


def test_more_comparisons_of_known_items():
    first = sg.SkewGPPosterior(X, [[0, 1]], likelihood=Preference(), cov_func=kernel)
    second = first.update(None, [[1, 2]])
    whole = sg.SkewGPPosterior(X, [[0, 1], [1, 2]], likelihood=Preference(), cov_func=kernel)
    assert second.log_marginal_likelihood == whole.log_marginal_likelihood


def test_more_data_of_one_of_several_kinds():
    kinds = {
        "labels": (X, [0, 1, 1], BernoulliProbit()),
        "values": (NEW, [0.1, 0.2], Gaussian(1.0)),
    }
    first = sg.SkewGPPosterior(kinds, cov_func=kernel)
    second = first.update([[5.0]], [1.0], name="values")
    kinds["values"] = (np.vstack([NEW, [[5.0]]]), [0.1, 0.2, 1.0], Gaussian(1.0))
    whole = sg.SkewGPPosterior(kinds, cov_func=kernel)
    assert second.log_marginal_likelihood == whole.log_marginal_likelihood
    with pytest.raises(ValueError, match="name must say which"):
        first.update([[5.0]], [1.0])


@pytest.mark.parametrize(
    ("likelihood", "y", "new", "message"),
    [
        (None, [0, 1, 1], [0, 2], "in the new data: y must hold two classes"),
        (Gaussian([0.1, 0.2, 0.3]), [0.0, 0.1, 0.2], [0.4, 0.5], "in the new data: sigma"),
        (Preference(), [[0, 1]], [[5, 0]], "in the new data: y names item 5"),
        (Choice(), [[0, 1]], [[0, 0]], "in the new data: a choice compares different items"),
    ],
)
def test_bad_new_data(likelihood, y, new, message):
    first = sg.SkewGPPosterior(X, y, likelihood=likelihood, cov_func=kernel)
    with pytest.raises(ValueError, match=message):
        first.update(NEW, new)
