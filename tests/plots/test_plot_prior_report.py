"""Markers are the forecasts of the report; probabilities where there are labels, else means."""

import numpy as np
from xarray import Dataset

from pymc_skewgp import plot_prior_report

EXACT = np.array([[0.1, 0.6, 0.9], [0.2, 0.5, 0.8]])
FOUND = EXACT + 0.01


def report(p=FOUND):
    dims = ("part", "point")
    return Dataset(
        {
            "p_exact": (dims, EXACT * p / p),
            "p": (dims, p),
            "f_mean_exact": (dims, 3.0 * EXACT),
            "f_mean": (dims, 3.0 * FOUND),
            "log_evidence_exact": ("part", [-10.0, -20.0]),
            "log_evidence": ("part", [-10.25, -19.5]),
        },
        coords={"part": ["neighbourhood", "random"]},
    )


def test_probabilities():
    ax = plot_prior_report(report())
    diagonal, *parts = ax.get_lines()
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    for i, line in enumerate(parts):
        np.testing.assert_allclose(line.get_xdata(), EXACT[i])
        np.testing.assert_allclose(line.get_ydata(), FOUND[i])
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["neighbourhood: log evidence -0.25", "random: log evidence +0.50"]


def test_means_where_there_are_no_labels():
    ax = plot_prior_report(report(np.full((2, 3), np.nan)))
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), 3.0 * FOUND[0])
    assert ax.get_ylabel() == "mean of f, approximated"
