"""Scores of forecasts against their definitions, label by label."""

from math import log2

import numpy as np
import pytest

from pymc_skewgp._diagnostics.measures import brier_score, information_score

LABELS = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
P = np.array([0.9, 0.2, 0.6, 0.3, 1.0 - 1e-9])


def entropy(share):
    return -share * log2(share) - (1.0 - share) * log2(1.0 - share)


def test_information_label_by_label():
    bits = [log2(p if y == 1 else 1.0 - p) for y, p in zip(LABELS, P, strict=True)]
    wanted = sum(bits) / 5 + entropy(0.7)
    assert information_score(LABELS, P, 0.7) == pytest.approx(wanted, rel=1e-12)


def test_the_base_rate_and_perfection():
    """The share of 1 among the labels themselves gives 0, certainty all of the entropy."""
    assert information_score(LABELS, np.full(5, 0.6), 0.6) == pytest.approx(0.0, abs=1e-15)
    # Certainties are kept 1e-12 off: 1.4e-12 bits.
    assert information_score(LABELS, LABELS, 0.6) == pytest.approx(entropy(0.6), abs=1e-11)
    assert information_score(LABELS, np.full(5, 0.5), 0.5) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("base_rate", [0.0, 1.0])
def test_labels_of_one_class_tell_nothing(base_rate):
    """Their entropy is 0."""
    value = information_score(np.ones(2), np.full(2, 0.5), base_rate)
    assert value == pytest.approx(-1.0, rel=1e-12)


def test_a_certain_miss_costs_a_finite_number_of_bits():
    value = information_score(np.ones(1), np.zeros(1), 0.5)
    assert value == pytest.approx(log2(1e-12) + 1.0, rel=1e-12)
    value = information_score(np.zeros(1), np.ones(1), 0.5)
    # 1 - (1 - 1e-12) has 4 digits.
    assert value == pytest.approx(log2(1e-12) + 1.0, abs=1e-3)


def test_brier():
    wanted = sum((y - p) ** 2 for y, p in zip(LABELS, P, strict=True)) / 5
    assert brier_score(LABELS, P) == pytest.approx(wanted, rel=1e-14)
    assert brier_score(LABELS, np.full(5, 0.5)) == 0.25
    assert brier_score(LABELS, LABELS) == 0.0
