"""Densities at one point, the mass below 0 and its number in the legend."""

import arviz as az
import numpy as np
import pytest
from scipy.stats import gaussian_kde, norm

from pymc_skewgp import plot_slice_density
from pymc_skewgp._posterior.output import LatentMarginals

# Two points; at the second a skewed mixture of two normal distributions.
MEANS = np.array([[0.0, 0.0], [-1.0, 2.0]])
WEIGHTS = np.array([0.3, 0.7])
MIXTURE = LatentMarginals(MEANS, np.array([1.0, 0.25]), WEIGHTS)
NORMAL = LatentMarginals(np.array([[0.0], [1.0]]), np.array([1.0, 4.0]), np.ones(1))


def density(values):
    return sum(w * norm.pdf(values, m, 0.5) for w, m in zip(WEIGHTS, MEANS[1], strict=True))


def curves(ax):
    return [line for line in ax.get_lines() if len(line.get_xdata()) > 2]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def area(path):
    """Area within a closed polygon."""
    x, y = path.vertices.T
    return 0.5 * abs(np.sum(x * np.roll(y, 1) - y * np.roll(x, 1)))


def test_density_and_mass_are_those_of_the_mixture():
    ax = plot_slice_density(MIXTURE, 1)
    (line,) = curves(ax)
    np.testing.assert_allclose(line.get_ydata(), density(line.get_xdata()), rtol=1e-10, atol=1e-14)
    exact = sum(w * norm.cdf(0.0, m, 0.5) for w, m in zip(WEIGHTS, MEANS[1], strict=True))
    assert legend(ax) == [f"P(f < 0) = {exact:.3f}"]
    (shade,) = ax.collections
    assert shade.get_paths()[0].vertices[:, 0].max() == 0.0
    # The polygon is a trapezoid rule on some 150 points.
    assert area(shade.get_paths()[0]) == pytest.approx(exact, abs=2e-3)


def test_the_grid_holds_nearly_all_mass():
    for index in (0, 1):
        (line,) = curves(plot_slice_density(MIXTURE, index))
        assert np.trapezoid(line.get_ydata(), line.get_xdata()) == pytest.approx(1.0, abs=2e-3)


def test_several_with_the_gaussian_of_the_first():
    ax = plot_slice_density({"exact": MIXTURE, "EP": NORMAL}, -1, gaussian=True)
    exact, other, like = curves(ax)
    assert len({line.get_color() for line in (exact, other, like)}) == 3
    assert len({line.get_linestyle() for line in (exact, other, like)}) == 3
    x = exact.get_xdata()
    np.testing.assert_allclose(other.get_ydata(), norm.pdf(x, 1.0, 2.0), rtol=1e-10)
    mean = WEIGHTS @ MEANS[1]
    sd = np.sqrt(WEIGHTS @ (MEANS[1] - mean) ** 2 + 0.25)
    np.testing.assert_allclose(like.get_ydata(), norm.pdf(x, mean, sd), rtol=1e-10)
    assert legend(ax)[1:] == [
        f"EP: P(f < 0) = {norm.cdf(-0.5):.3f}",
        f"Gaussian, same moments: P(f < 0) = {norm.cdf(-mean / sd):.3f}",
    ]
    assert legend(ax)[0].startswith("exact: P(f < 0) = 0.")
    assert len(ax.collections) == 3


@pytest.mark.parametrize(("mean", "text"), [(9.0, "< 0.001"), (-9.0, "> 0.999")])
def test_probabilities_beyond_three_digits(mean, text):
    ax = plot_slice_density(LatentMarginals(np.full((1, 1), mean), np.ones(1), np.ones(1)), 0)
    assert legend(ax) == [f"P(f < 0) {text}"]
    shades = [shade for shade in ax.collections if area(shade.get_paths()[0]) > 1e-6]
    assert len(shades) == (mean < 0)
    assert 0.0 not in np.concatenate([line.get_xdata() for line in ax.get_lines()])
    if mean < 0:  # all of it, to the end of the curve
        assert area(shades[0].get_paths()[0]) == pytest.approx(1.0, abs=1e-2)


def test_draws_are_smoothed():
    draws = np.random.default_rng(0).gamma(2.0, size=(2, 200, 3))
    ax = plot_slice_density(az.from_dict({"posterior": {"g": draws}}), 2, var="g")
    (line,) = curves(ax)
    expected = gaussian_kde(draws[..., 2].ravel())(line.get_xdata())
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-10)
    assert ax.get_xlabel() == "g at point 2"
    assert legend(ax) == ["P(g < 0) < 0.001"]


class TestThePointIsNamed:
    def label(self, marginals=MIXTURE, index=1, **options):
        return plot_slice_density(marginals, index, **options).get_xlabel()

    def test_by_its_number(self):
        assert self.label() == "f at point 1"
        assert self.label(index=-2) == "f at point 0"

    def test_by_its_inputs_and_label(self):
        X = np.array([[0.0, 1.0], [2.0, -0.51234]])
        assert self.label(X=X) == "f at x0 = 2, x1 = -0.512"
        assert self.label(X=X[:, 1], y=[0, 1]) == "f at x = -0.512, y = 1"
        assert self.label(y=[0, 1], index=0) == "f at point 0, y = 0"
        assert self.label(X=np.zeros((2, 9)), y=[1, -1]) == "f at point 1, y = 0"

    def test_by_the_data_of_a_tree(self):
        groups = {
            "posterior": {"f": np.random.default_rng(0).normal(size=(2, 50, 2))},
            "constant_data": {"X": np.array([[0.0], [2.0]])},
            "observed_data": {"y": np.array([0, 1])},
        }
        tree = az.from_dict(groups)
        assert self.label(tree) == "f at x = 2, y = 1"
        assert self.label({"exact": MIXTURE, "draws": tree}) == "f at x = 2, y = 1"
        assert self.label(tree, X=[5.0, 6.0]) == "f at x = 6, y = 1"
        # Counts are no labels, and other data than one row a point are not of the points.
        groups["observed_data"] = {"y": np.array([3, 7])}
        groups["constant_data"] = {"X": np.zeros((3, 1))}
        assert self.label(az.from_dict(groups)) == "f at point 1"
