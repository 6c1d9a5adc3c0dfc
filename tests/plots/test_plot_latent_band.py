"""The band shows the quantiles themselves, against sorted inputs."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.stats import norm

import pymc_skewgp as sg
from pymc_skewgp import plot_latent_band
from pymc_skewgp._posterior.output import LatentMarginals

X = np.array([2.0, -1.0, 0.5, 3.0])
MEAN = np.array([0.3, -1.0, 0.0, 2.0])
SD = np.array([1.0, 0.5, 2.0, 0.1])
ORDER = [1, 2, 0, 3]
# Normal marginals: their quantiles are known in closed form.
NORMAL = LatentMarginals(MEAN[:, None], SD**2, np.ones(1))
OTHER = LatentMarginals(MEAN[:, None] + 1.0, SD**2, np.ones(1))


def lines(ax):
    """Lines over the inputs, by colour and style."""
    return [line for line in ax.get_lines() if np.size(line.get_xdata()) == X.size]


def test_line_and_band_are_exact_quantiles():
    ax = plot_latent_band(X[:, None], NORMAL, prob=0.8)
    (median,) = lines(ax)
    np.testing.assert_array_equal(median.get_xdata(), np.sort(X))
    # The quantile search stops within 1e-8 sd or so.
    np.testing.assert_allclose(median.get_ydata(), MEAN[ORDER], atol=1e-6)
    (band,) = ax.collections
    vertices = band.get_paths()[0].vertices
    low, high = (norm.ppf(p, MEAN, SD)[ORDER] for p in (0.1, 0.9))
    for i, x in enumerate(np.sort(X)):
        at = vertices[vertices[:, 0] == x, 1]
        assert at.min() == pytest.approx(low[i], abs=1e-6)
        assert at.max() == pytest.approx(high[i], abs=1e-6)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["exact"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "f: median, 80 % interval")


def test_the_interval_is_that_of_arviz():
    with az.rc_context({"stats.ci_prob": 0.8}):
        ax = plot_latent_band(X, NORMAL)
    vertices = ax.collections[0].get_paths()[0].vertices
    assert vertices[:, 1].min() == pytest.approx(norm.ppf(0.1, MEAN, SD).min(), abs=1e-6)
    assert ax.get_ylabel() == "f: median, 80 % interval"


def test_approximation_is_dashed_in_another_colour():
    ax = plot_latent_band(X, NORMAL, OTHER, prob=0.5, labels=["SUN", "Laplace"])
    exact, *dashed = lines(ax)
    assert exact.get_linestyle() == "-"
    assert {line.get_linestyle() for line in dashed} == {"--"}
    assert {line.get_color() for line in dashed} != {exact.get_color()}
    for line, p in zip(dashed, (0.25, 0.5, 0.75), strict=True):
        np.testing.assert_allclose(line.get_ydata(), norm.ppf(p, MEAN + 1, SD)[ORDER], atol=1e-6)
    assert len(ax.collections) == 1  # one band: that of the exact posterior
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    assert texts == ["SUN", "Laplace"]


def test_labels_stand_on_the_edges():
    ax = plot_latent_band(X, NORMAL, y=[1, 0, 0, 1])
    marks = {line.get_label(): line for line in ax.get_lines() if "y =" in line.get_label()}
    np.testing.assert_array_equal(marks["_y = 0"].get_xdata(), [-1.0, 0.5])
    np.testing.assert_array_equal(marks["_y = 1"].get_xdata(), [2.0, 3.0])
    # Heights are shares of the axes', whatever the limits of f become.
    assert (marks["_y = 0"].get_ydata() < 0.1).all()
    assert (marks["_y = 1"].get_ydata() > 0.9).all()
    low, high = ax.get_ylim()
    assert low < norm.ppf(0.055, MEAN, SD).min()
    assert high > norm.ppf(0.945, MEAN, SD).max()
    assert len(ax.get_legend().get_texts()) == 1


def test_draws_of_a_tree_and_a_posterior():
    gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    posterior = gp.posterior(X, [0, 0, 1, 1])
    dt = posterior.predict(X, draws=50, chains=2, random_seed=1)
    ax = plot_latent_band(X, posterior, dt, group="predictions")
    exact, low, *_ = lines(ax)
    quantiles = posterior.marginals().quantile([0.5])[0]
    np.testing.assert_allclose(exact.get_ydata(), quantiles[ORDER], atol=1e-9)
    flat = dt["predictions"]["f"].values.reshape(-1, 4)
    np.testing.assert_allclose(
        low.get_ydata(), np.quantile(flat, 0.055, axis=0, method="weibull")[ORDER]
    )
