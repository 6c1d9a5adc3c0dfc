"""Plots are drawn without a screen, and closed after each test."""

import matplotlib as mpl
import pytest

mpl.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures():
    from matplotlib import pyplot as plt

    with mpl.rc_context():
        yield
    plt.close("all")


@pytest.fixture
def no_figure_left():
    """A notebook would show the empty figure of a call that failed."""
    from matplotlib import pyplot as plt

    yield
    assert plt.get_fignums() == []
