"""Densities against skewnorm and the normal distribution of scipy."""

import numpy as np
from scipy.stats import multivariate_normal, skewnorm

from pymc_skewgp import SUN, plot_sun_density

DELTA = 0.9
SKEW = SUN([1.0], [[4.0]], [[DELTA]], [0.0], [[1.0]])
REFERENCE = skewnorm(DELTA / np.sqrt(1 - DELTA**2), loc=1.0, scale=2.0)
COV = np.array([[1.0, 0.5], [0.5, 2.0]])
NORMAL = SUN([1.0, -1.0], COV, np.zeros((2, 1)), [0.0], [[1.0]])


def test_line_is_the_skew_normal_density():
    ax = plot_sun_density(SKEW, n_grid=60)
    line = next(line for line in ax.get_lines() if np.size(line.get_xdata()) == 60)
    x = np.asarray(line.get_xdata())
    np.testing.assert_allclose(line.get_ydata(), REFERENCE.pdf(x), rtol=1e-8, atol=1e-300)
    mean, sd = REFERENCE.mean(), REFERENCE.std()
    np.testing.assert_allclose(x[[0, -1]], [mean - 4 * sd, mean + 4 * sd])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [f"mean {mean:.3g}"]
    assert ax.get_ylim()[0] == 0.0


def test_contours_of_a_normal_distribution():
    ax = plot_sun_density(NORMAL, n_grid=21, levels=5, cmap="Greys")
    filled, mark = ax.collections
    top = multivariate_normal([1.0, -1.0], COV).pdf([1.0, -1.0])
    # The mean is a point of the grid.
    np.testing.assert_allclose(filled.levels, top * np.array([0.2, 0.4, 0.6, 0.8, 1.0]))
    assert filled.get_cmap().name == "Greys"
    # The densest band is about the mean, an ellipse that the normal density gives.
    inner = filled.get_paths()[-1]
    reached = multivariate_normal([1.0, -1.0], COV).pdf(inner.vertices)
    # Straight lines between the points of a coarse grid.
    np.testing.assert_allclose(reached, filled.levels[-2], rtol=0.1)
    np.testing.assert_allclose(mark.get_offsets()[0], [1.0, -1.0])
    labels = [other.get_ylabel() for other in ax.figure.axes if other is not ax]
    assert labels == ["density"]


def test_axes_of_the_plane_are_not_exchanged():
    ax = plot_sun_density(SUN([0.0, 10.0], np.diag([1.0, 9.0]), np.zeros((2, 1)), [0.0], [[1.0]]))
    np.testing.assert_allclose(ax.get_xlim(), [-4.0, 4.0])
    np.testing.assert_allclose(ax.get_ylim(), [-2.0, 22.0])
