"""Chains that leave a posterior mode out say so."""

import numpy as np

from pymc_skewgp._learn.averaging.chains import _misses
from pymc_skewgp._learn.averaging.problem import Mode
from pymc_skewgp._learn.coordinates import Point


def test_a_mode_without_draws_near_it():
    """Twelve standard deviations away, with and without a share of the mass."""
    x = np.random.default_rng(0).standard_normal((400, 2))
    near = Mode(Point(np.zeros(2)), np.eye(2), 0.0)
    far = Mode(Point(np.full(2, 9.0)), np.eye(2), -1.0)
    assert not _misses([near], {(): x})
    assert _misses([near, far], {(): x})
    assert not _misses([near, far._replace(log_mass=-6.0)], {(): x})
    assert not _misses([near, far], {(): np.concatenate([x, x + 9.0])})
