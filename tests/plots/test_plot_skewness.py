"""Skewness as a line or a map whose colours are centred at 0."""

import numpy as np
import pytest
from xarray import Dataset

from pymc_skewgp import plot_skewness

X = np.array([1.0, -1.0, 0.0, 2.0])
ORDER = [1, 2, 0, 3]
VALUE = np.array([0.5, -0.2, 0.1, -0.3])
ERROR = np.array([0.1, 0.02, 0.03, 0.04])
DATA = Dataset({"skewness": ("obs_id", VALUE), "skewness_se": ("obs_id", ERROR)})
PLANE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.5]])


def colour_bar(ax):
    """The axes of the colour bar beside these."""
    (bar,) = [other for other in ax.figure.axes if other is not ax]
    return bar


def test_line_with_twice_the_standard_error():
    ax = plot_skewness(X, DATA)
    (line,) = [line for line in ax.get_lines() if len(line.get_xdata()) == 4]
    np.testing.assert_array_equal(line.get_xdata(), np.sort(X))
    np.testing.assert_array_equal(line.get_ydata(), VALUE[ORDER])
    (band,) = ax.collections
    vertices = band.get_paths()[0].vertices
    for x, value, error in zip(X, VALUE, ERROR, strict=True):
        at = vertices[vertices[:, 0] == x, 1]
        assert at.min() == pytest.approx(value - 2 * error)
        assert at.max() == pytest.approx(value + 2 * error)
    assert ax.get_ylabel() == "skewness of f ± 2 SE"


def test_numbers_have_no_band():
    ax = plot_skewness(X[:, None], VALUE, y=[0, 1, 1, 0])
    assert len(ax.collections) == 0
    assert ax.get_ylabel() == "skewness of f"
    assert ax.get_legend() is None
    marks = {line.get_label(): line for line in ax.get_lines()}
    np.testing.assert_array_equal(marks["_y = 1"].get_xdata(), [-1.0, 0.0])


def test_points_of_a_map():
    ax = plot_skewness(PLANE, DATA)
    (points,) = ax.collections
    np.testing.assert_array_equal(points.get_offsets(), PLANE)
    np.testing.assert_array_equal(points.get_array(), VALUE)
    assert points.get_clim() == (-0.5, 0.5)
    assert colour_bar(ax).get_ylabel() == "skewness of f"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "x1")
    # 0 is the colour in the middle: near white, with no hue.
    red, green, blue, _ = points.to_rgba([0.0])[0]
    assert max(red, green, blue) - min(red, green, blue) < 0.02


def test_labels_are_the_markers_of_coloured_points():
    ax = plot_skewness(PLANE, VALUE, y=[0, 1, 1, 0], vmax=2.0)
    negative, positive = ax.collections
    np.testing.assert_array_equal(negative.get_offsets(), PLANE[[0, 3]])
    np.testing.assert_array_equal(positive.get_array(), VALUE[[1, 2]])
    # One scale for both, though neither has values at both of its ends.
    assert negative.get_clim() == positive.get_clim() == (-2.0, 2.0)
    assert len(negative.get_paths()[0]) != len(positive.get_paths()[0])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["y = 0", "y = 1"]


def test_labels_of_one_class():
    ax = plot_skewness(PLANE, VALUE, y=[1, 1, 1, 1])
    assert sum(len(points.get_offsets()) for points in ax.collections) == 4
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["y = 1"]


@pytest.mark.parametrize("kind", ["scatter", "contour"])
def test_labels_elsewhere_lie_over_the_map(kind):
    ax = plot_skewness(PLANE, VALUE, kind=kind, y=[0, 1, 1], X_data=[[0.5, 0.5]] * 3)
    marks = ax.collections[-2:]
    assert [len(points.get_offsets()) for points in marks] == [1, 2]
    assert all(points.get_array() is None for points in marks)


def test_contours_cover_the_values_alike_on_both_sides():
    ax = plot_skewness(PLANE, VALUE, kind="contour")
    (filled,) = ax.collections
    levels = filled.levels
    np.testing.assert_allclose(levels, -levels[::-1])
    assert (levels[0], levels[-1]) == (-0.5, 0.5)
    assert filled.get_clim() == (-0.5, 0.5)
    assert filled.extend == "neither"
    (filled,) = plot_skewness(PLANE, VALUE, kind="contour", vmax=0.2).collections
    assert filled.get_clim() == (-0.2, 0.2)
    assert filled.extend == "both"  # values beyond the last colours have these


def test_contour_where_all_is_symmetric():
    (filled,) = plot_skewness(PLANE, np.zeros(4), kind="contour").collections
    assert filled.get_clim() == (-1.0, 1.0)
