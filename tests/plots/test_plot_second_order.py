"""Right and wrong predictions, distinguished and counted."""

import arviz as az
import numpy as np
from scipy.stats import norm

from pymc_skewgp import plot_second_order

MEAN = np.array([0.9, 0.6, 0.2, 0.1, 0.5])
SD = np.array([0.1, 0.2, 0.15, 0.05, 0.3])
LABELS = np.array([1, 0, 0, 1, 0])
RIGHT = [0, 2, 4]  # one half is no prediction of 1


def points(ax):
    return [np.asarray(collection.get_offsets()) for collection in ax.collections]


def test_right_and_wrong():
    ax = plot_second_order(MEAN, SD, LABELS)
    right, wrong = points(ax)
    np.testing.assert_array_equal(right, np.column_stack([MEAN, SD])[RIGHT])
    np.testing.assert_array_equal(wrong, np.column_stack([MEAN, SD])[[1, 3]])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["right (3)", "wrong (2)"]
    first, second = ax.collections
    assert not np.array_equal(first.get_facecolor()[0, :3], second.get_facecolor()[0, :3])
    assert len(first.get_paths()[0]) != len(second.get_paths()[0])


def test_without_labels():
    ax = plot_second_order(MEAN, SD)
    (found,) = points(ax)
    np.testing.assert_array_equal(found, np.column_stack([MEAN, SD]))
    assert ax.get_legend() is None
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("mean of p", "standard deviation of p")


def test_draws_of_a_tree():
    p = norm.cdf(np.random.default_rng(0).normal(size=(2, 50, 3)))
    tree = az.from_dict({"predictions": {"p": p}})
    (found,) = points(plot_second_order(tree))
    flat = p.reshape(-1, 3)
    np.testing.assert_allclose(found, np.column_stack([flat.mean(axis=0), flat.std(axis=0)]))
