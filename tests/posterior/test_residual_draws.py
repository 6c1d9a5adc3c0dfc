"""What features leave of f, drawn given an observation: against quadrature."""

import numpy as np
import pytest

import pymc_skewgp as sg
from pymc_skewgp._posterior.prior import DataSet
from pymc_skewgp._posterior.row_groups import residual_draws

_DRAWS = 20_000


@pytest.mark.parametrize(("variance", "off"), [(0.01, 0.08), (0.25, 0.3), (0.5, 5.0)])
def test_moments_under_counts_that_say_more_of_f_than_the_features(
    variance: float, off: float
) -> None:
    """A count of 10,000 leaves f a deviation of .01; 5 is seven deviations of e away."""
    y = np.array([10_000, 100, 3])
    part = DataSet("f", np.zeros((3, 1)), y, sg.likelihoods.Poisson())
    signal = np.tile(np.log(y) + off, (_DRAWS, 1))
    e = residual_draws(part, signal, np.full(3, variance), np.random.default_rng(1))
    grid = np.sqrt(variance) * np.linspace(-12.0, 12.0, 400_001)[:, None]
    f = grid + signal[0]
    logs = y * f - np.exp(f) - 0.5 * grid**2 / variance
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    mean = (weights * grid).sum(axis=0)
    sd = np.sqrt((weights * (grid - mean) ** 2).sum(axis=0))
    # Five standard errors of 20,000 draws: a false alarm in 10^5 runs; of the table .002.
    assert (np.abs(e.mean(axis=0) - mean) < 5.0 * sd / np.sqrt(_DRAWS)).all()
    np.testing.assert_allclose(e.std(axis=0), sd, rtol=5.0 / np.sqrt(2 * _DRAWS) + 0.002)
