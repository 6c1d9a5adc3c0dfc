"""Means, errors and spread of coverage, each where the Dataset has it."""

import numpy as np
import pytest
from xarray import Dataset

from pymc_skewgp import plot_coverage

PROB = np.array([0.5, 0.89])
EACH = np.array([[0.4, 0.5, 0.6, 0.7], [0.8, 0.9, 0.9, 1.0]])
SE = np.array([0.01, 0.02])


def result(shift=0.0, dims=("prob", "obs_id"), values=EACH):
    mean = values.mean(axis=tuple(range(1, values.ndim))) + shift
    return Dataset(
        {"coverage": (dims, values), "mean": ("prob", mean), "mean_se": ("prob", SE)},
        coords={"prob": PROB},
    )


def markers(ax):
    return [container[0] for container in ax.containers]


def test_one_result():
    ax = plot_coverage(result())
    (line,) = markers(ax)
    np.testing.assert_allclose(line.get_xdata(), PROB)
    np.testing.assert_allclose(line.get_ydata(), EACH.mean(axis=1))
    (bars,) = ax.containers[0][2]
    ends = np.array(bars.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, EACH.mean(axis=1)[:, None] + [-1, 1] * SE[:, None])
    assert ax.get_legend() is None
    diagonal = next(line for line in ax.get_lines() if line.get_label() == "_nominal")
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())


@pytest.mark.parametrize("dims", [("obs_id",), ("row", "column")])
def test_spread_holds_nine_in_ten_points(dims):
    values = EACH if dims == ("obs_id",) else EACH.reshape(2, 2, 2)
    ax = plot_coverage(result(dims=("prob", *dims), values=values))
    (spread,) = [c for c in ax.collections if c.get_label().endswith("spread")]
    ends = np.array(spread.get_segments())
    np.testing.assert_allclose(ends[:, :, 1], np.quantile(EACH, [0.05, 0.95], axis=1).T)
    np.testing.assert_allclose(ends[:, :, 0], np.repeat(PROB[:, None], 2, axis=1))


def test_several_stand_at_the_probability_they_promise():
    ax = plot_coverage({"HSGP": result(), "ADVI": result(-0.2)})
    first, second = markers(ax)
    # Anything else would look like a distance from the diagonal.
    np.testing.assert_array_equal(first.get_xdata(), PROB)
    np.testing.assert_array_equal(second.get_xdata(), PROB)
    np.testing.assert_allclose(first.get_ydata() - second.get_ydata(), 0.2)
    assert first.get_color() != second.get_color()
    assert first.get_marker() != second.get_marker()
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["HSGP", "ADVI"]


def test_labels_replace_keys():
    ax = plot_coverage({"a": result(), "b": result()}, labels=["HSGP", "ADVI"])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["HSGP", "ADVI"]
    ax = plot_coverage(result(), labels="HSGP")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["HSGP"]
