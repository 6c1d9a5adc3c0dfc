"""Every plot draws, to pixels, in both styles, and shows nothing by itself."""

import inspect

import arviz as az
import numpy as np
import pymc as pm
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from xarray import Dataset

import pymc_skewgp as sg
from pymc_skewgp._posterior.output import LatentMarginals

AT = LatentMarginals(np.array([[-1.0, 2.0], [0.0, 1.0]]), np.ones(2), np.array([0.5, 0.5]))
COVERAGE = Dataset(
    {
        "coverage": (("prob", "obs_id"), [[0.4, 0.6]]),
        "mean": ("prob", [0.5]),
        "mean_se": ("prob", [0.01]),
    },
    coords={"prob": [0.5]},
)
REPORT = Dataset(
    {
        name: (("part", "point"), [[0.2, 0.5], [0.4, 0.9]])
        for name in ("p_exact", "p", "f_mean_exact", "f_mean")
    }
    | {"log_evidence": ("part", [-3.0, -4.0]), "log_evidence_exact": ("part", [-3.1, -4.2])},
    coords={"part": ["neighbourhood", "random"]},
)
NAMES = [name for name in sg.__all__ if name.startswith("plot_")]

CALLS = {
    "plot_coverage": lambda **kw: sg.plot_coverage({"a": COVERAGE, "b": COVERAGE}, **kw),
    "plot_latent_band": lambda **kw: sg.plot_latent_band([0.0, 1.0], AT, AT, y=[0, 1], **kw),
    "plot_prior_draws": lambda **kw: sg.plot_prior_draws(
        sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[0.5]), [0.0, 1.0], **kw
    ),
    "plot_prior_report": lambda **kw: sg.plot_prior_report(REPORT, **kw),
    "plot_second_order": lambda **kw: sg.plot_second_order([0.2, 0.8], [0.1, 0.1], [1, 1], **kw),
    "plot_skewness": lambda **kw: sg.plot_skewness(np.eye(2), [0.5, -0.5], y=[0, 1], **kw),
    "plot_slice_density": lambda **kw: sg.plot_slice_density(AT, 0, gaussian=True, **kw),
    "plot_sun_density": lambda **kw: sg.plot_sun_density(
        sg.SUN([0.0, 0.0], np.eye(2), [[0.5], [0.5]], [0.0], [[1.0]]), n_grid=5, **kw
    ),
}


def test_all_are_called_here():
    assert sorted(CALLS) == NAMES


# What differs between styles is room: legends and colour bars.
STYLES = [(name, "arviz-variat") for name in NAMES]
STYLES += [(name, "default") for name in ("plot_slice_density", "plot_sun_density")]


@pytest.mark.parametrize(("name", "style"), STYLES)
def test_draws_in_every_style(name, style, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("a plot was shown"))
    (plt if style == "default" else az).style.use(style)
    ax = CALLS[name](figsize=(4.0, 3.0))
    assert isinstance(ax, Axes)
    ax.figure.canvas.draw()
    pixels = np.asarray(ax.figure.canvas.buffer_rgba())
    assert pixels.shape[:2] == (300, 400)
    assert pixels[..., :3].std() > 5.0


@pytest.mark.parametrize("name", NAMES)
def test_draws_into_given_axes(name):
    _, (left, right) = plt.subplots(1, 2, layout="constrained")
    assert CALLS[name](ax=right) is right
    assert right.has_data()
    assert not left.has_data()


@pytest.mark.parametrize("name", NAMES)
def test_axes_and_size_come_last_and_by_name(name):
    parameters = inspect.signature(getattr(sg, name)).parameters
    assert list(parameters)[-2:] == ["ax", "figsize"]
    for option in ("ax", "figsize"):
        assert parameters[option].default is None
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
