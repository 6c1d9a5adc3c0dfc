"""Draws of the prior, checked by its moments, and the signs given."""

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg
from pymc_skewgp import plot_prior_draws

GRID = np.array([2.0, -1.0, 0.0, 1.0])
SD = 1.5


def process(**options):
    return sg.SkewGP(cov_func=SD**2 * pm.gp.cov.ExpQuad(1, ls=1.0), **options)


def draws_of(ax):
    colour = next(line for line in ax.get_lines() if line.get_label() == "draws").get_color()
    return np.array([ln.get_ydata() for ln in ax.get_lines() if ln.get_color() == colour])


def mean_of(ax):
    return next(line for line in ax.get_lines() if line.get_label() == "mean")


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_mean_is_that_of_half_a_normal_distribution_nearby():
    """E f(x) = k(x, r) / sd * sqrt(2 / pi) for one pseudo-point r."""
    ax = plot_prior_draws(process(pseudo_points=[1.0], phase=[-1]), GRID, draws=3, random_seed=1)
    line = mean_of(ax)
    np.testing.assert_array_equal(line.get_xdata(), np.sort(GRID))
    expected = -SD * np.exp(-0.5 * (np.sort(GRID) - 1.0) ** 2) * np.sqrt(2 / np.pi)
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-5, atol=1e-8)  # jitter


def test_as_many_draws_as_asked_for_all_with_the_sign():
    ax = plot_prior_draws(process(pseudo_points=[1.0]), GRID, draws=300, random_seed=1)
    found = draws_of(ax)
    assert found.shape == (300, 4)
    assert process().n_columns == 1
    assert (found[:, 2] > -0.01).all()  # at the pseudo-point, but for the jitter
    # |f| there is half normal; a standard error is .05.
    assert found[:, 2].mean() == pytest.approx(SD * np.sqrt(2 / np.pi), abs=0.2)
    assert legend(ax) == ["draws", "mean", "phase +1"]


def test_triangles_stand_on_the_mean_function():
    gp = process(
        mean_func=pm.gp.mean.Linear(coeffs=[2.0], intercept=1.0),
        pseudo_points=[[0.0], [2.0], [5.0]],
        phase=[1, -1, 1],
    )
    ax = plot_prior_draws(gp, GRID, draws=1, random_seed=1)
    up, down = ax.collections
    np.testing.assert_allclose(up.get_offsets(), [[0.0, 1.0], [5.0, 11.0]])
    np.testing.assert_allclose(down.get_offsets(), [[2.0, 5.0]])
    assert up.get_paths()[0].vertices[:, 1].argmax() == 0  # its tip is above
    assert legend(ax)[2:] == ["phase +1", "phase -1"]


def test_hyperparameters_come_from_the_point():
    with pm.Model():
        scale = pm.HalfNormal("scale")
        place = pm.Normal("place", shape=(1, 1))
        gp = sg.SkewGP(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=place)
        gp.prior("f", GRID[:, None])
    given = gp._functions["f"]
    ax = plot_prior_draws(gp, GRID, draws=1, point={"scale": 3.0, "place": [[0.0]]}, random_seed=1)
    assert mean_of(ax).get_ydata()[1] == pytest.approx(3.0 * np.sqrt(2 / np.pi), rel=1e-5)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), [[0.0, 0.0]])
    assert gp._functions["f"] is given  # the process is as it was
    with pytest.raises(ValueError, match="scale"):
        plot_prior_draws(gp, GRID, point={"place": [[0.0]]})
