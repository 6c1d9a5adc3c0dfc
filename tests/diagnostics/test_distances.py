"""Distances of marginals, and scores of forecasts, against closed forms and repetition."""

from math import log2

import numpy as np
import pytest
from approximation_oracles import normal_marginals as gaussian
from scipy.stats import skewnorm

from pymc_skewgp import LatentMarginals
from pymc_skewgp._diagnostics.marginals import DrawnMarginals
from pymc_skewgp._diagnostics.measures import (
    brier_score,
    information_score,
    skewness_error,
    wasserstein,
)


class TestWasserstein:
    """The trapezoidal rule with steps h of 12 deviations / 200 errs where its integrand has a kink.

    There h^2 / 8 times the jump of the slope: 1e-3 for two Gaussians of one width.
    """

    @pytest.mark.parametrize("shift", [0.0, 0.05, 0.5, -3.0])
    def test_equal_deviations(self, shift):
        """|m1 - m2| over the deviation: F_a - F has one sign, so no kink; tails to 1e-9."""
        found = wasserstein(gaussian([2.0 * shift], 2.0), gaussian([0.0], 2.0))
        assert found.value == pytest.approx(abs(shift), abs=1e-8)
        assert found.std_error == 0.0


class TestErrors:
    """Over 200 sets of draws at a distance far beyond their noise: mean square of errors over that
    stated. Stated errors come from the spread of eight parts: together .1 of a relative error of
    the ratio (of squares), .4 is four of these.
    """

    def ratio(self, make, measure, truth):
        rng = np.random.default_rng(0)
        found = [measure(*make(rng)) for _ in range(200)]
        off = np.array([f.value for f in found]) - truth
        return np.mean(off**2) / np.mean([f.std_error**2 for f in found])

    def test_draws(self):
        def make(rng):
            draws = rng.normal(size=(10, 80, 3)) + 1.0
            return DrawnMarginals(draws), gaussian(np.zeros(3), 1.0)

        assert self.ratio(make, wasserstein, 1.0) == pytest.approx(1.0, abs=0.4)

    def test_draws_behind_the_exact_marginals(self):
        """In units of a deviation that is estimated from the same draws."""
        blocks = np.tile(np.arange(10), 20)

        def make(rng):  # with what the draws of one replicate share
            z = np.sqrt(0.9) * rng.normal(size=(2, 200))
            z += np.sqrt(0.1) * rng.normal(size=(2, 10))[:, blocks]
            exact = LatentMarginals(z, np.full(2, 0.5), np.full(200, 1 / 200), blocks)
            return gaussian(np.full(2, 1.5), np.sqrt(1.5)), exact

        truth = 1.5 / np.sqrt(1.5)
        # Few replicates estimate the deviation with a bias of a few hundredths.
        assert self.ratio(make, wasserstein, truth) == pytest.approx(1.0, abs=0.4)

    def test_skewness(self):
        exact_skewness = skewnorm(3.0).stats("s")

        def make(rng):
            draws = skewnorm(3.0).rvs(size=(4, 500, 2), random_state=rng)
            return DrawnMarginals(draws), gaussian(np.zeros(2), 1.0)

        assert self.ratio(make, skewness_error, exact_skewness) == pytest.approx(1.0, abs=0.4)

    def test_too_few_draws_for_parts(self):
        draws = np.random.default_rng(0).normal(size=(1, 10, 2))
        assert wasserstein(DrawnMarginals(draws), gaussian([0.0, 0.0], 1.0)).std_error == 0.0


LABELS = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
P = np.array([0.9, 0.2, 0.6, 0.3, 1.0 - 1e-9])


def entropy(share):
    return -share * log2(share) - (1.0 - share) * log2(1.0 - share)


def test_information():
    bits = [log2(p if y == 1 else 1.0 - p) for y, p in zip(LABELS, P, strict=True)]
    wanted = sum(bits) / 5 + entropy(0.7)
    assert information_score(LABELS, P, 0.7) == pytest.approx(wanted, rel=1e-12)

    # Certainties are kept 1e-12 off: 1.4e-12 bits.
    assert information_score(LABELS, LABELS, 0.6) == pytest.approx(entropy(0.6), abs=1e-11)


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
