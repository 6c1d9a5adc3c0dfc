"""Axes that are given or made, colours, and arguments that all plots share."""

import sys

import arviz as az
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from xarray import Dataset, DataTree

from pymc_skewgp._plots import axes


def test_axes_of_another_kind_are_refused():
    figure, ax = plt.subplots()
    with pytest.raises(TypeError, match="ax must be a matplotlib Axes, got Figure"):
        axes.axes_for(figure, None)
    with pytest.raises(ValueError, match="either ax or figsize"):
        axes.axes_for(ax, (3.0, 2.0))


def test_missing_matplotlib_is_reported_with_what_to_do(monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib.axes")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        axes.axes_for(None, None)


def test_colours_follow_the_style_and_repeat():
    mpl.rcParams["axes.prop_cycle"] = cycler(color=["r", "#00ff00"])
    assert axes.colours(3) == [to_hex("r"), "#00ff00", to_hex("r")]


def test_inputs_are_named_after_their_columns():
    frame = pd.DataFrame({"age": [1.0, 2.0], "dose": [0.0, 1.0]})
    matrix, names = axes.as_plane("X", frame, (1, 2))
    np.testing.assert_array_equal(matrix, frame.to_numpy())
    assert names == ["age", "dose"]
    vector, name = axes.as_line("X", frame[["dose"]])
    assert (vector.tolist(), name) == ([0.0, 1.0], "dose")
    assert axes.as_plane("X", np.zeros((3, 2)), (2,))[1] == ["x0", "x1"]
    assert axes.as_line("X", [1.0])[1] == "x"
    assert axes.as_line("X", pd.Series([1.0, 2.0], name="age"))[1] == "age"


def test_trees_and_data_sets_are_one_object_each():
    for one in (Dataset({"a": 1}), DataTree(Dataset({"a": 1}))):
        assert list(axes.as_named("coverage", one, None).values()) == [one]
        assert list(axes.as_named("coverage", {"a": one, "b": one}, None)) == ["a", "b"]
        assert list(axes.as_named("coverage", {"a": one, "b": one}, ["c", "d"])) == ["c", "d"]
        assert list(axes.as_named("coverage", one, "exact")) == ["exact"]


@pytest.mark.parametrize("top", [1.0, 0.8])
@pytest.mark.parametrize("style", ["default", "arviz-variat"])
def test_legend_on_top_hides_no_data(style, top):
    if style != "default":
        az.style.use(style)
    ax = axes.axes_for(None, None)
    ax.plot([0.0, 1.0], [3.0, 7.0], label="f")
    ax.plot([0.0, 1.0], [7.0, 3.0], label="g")
    axes.legend_on_top(ax, top=top)
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    high = ax.transData.transform((0.0, 7.0))[1]
    assert high < box.y0
    frame = ax.get_window_extent()
    assert box.y1 < frame.y0 + top * frame.height
    # No more room than needed, and what comes later is not cut off.
    assert high > box.y0 - 0.15 * frame.height
    ax.plot([0.0, 1.0], [-30.0, 30.0])
    assert ax.get_ylim()[0] < -30.0
    assert ax.get_ylim()[1] > 30.0


def test_wide_legends_shrink_a_little_and_leave_the_axes_alone():
    figure, panels = plt.subplots(1, 4, figsize=(8.0, 3.0), layout="constrained")
    for ax in panels:
        ax.plot([0.0, 1.0], label="thirty letters, more or less it")
        axes.legend_on_top(ax)
    figure.canvas.draw()
    legend = panels[0].get_legend()
    size = legend.get_texts()[0].get_fontsize()
    assert 0.6 * 10.0 <= size < 10.0
    widths = [ax.get_window_extent().width for ax in panels]
    assert min(widths) > 0.15 * 800
    assert legend.get_window_extent().width < widths[0]
