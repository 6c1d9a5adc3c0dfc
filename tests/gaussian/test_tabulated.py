"""Tabulated densities: normalised, invertible, log-concave; against SciPy's normals."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, truncnorm

from pymc_skewgp._gaussian.tabulated import TabulatedDensity, tabulate

PROBS = np.array([1e-9, 1e-4, 0.1, 0.5, 0.77, 0.999, 1.0 - 1e-9])
# Straight lines between nodes an eighth apart leave the square by .002 nat, and what a correction
# may leave its line by is .01: a hundredth in probability, relative, and as much in quantiles.
CLOSE = 0.02


def one_sided(x):
    """A limit at -1 through noise of deviation .01: a cliff."""
    return norm.logcdf((x + 1.0) / 0.01)


def heavy(x):
    """Half of the square taken back to the left of 0: twice the variance there."""
    return np.where(x < 0, 0.25 * x**2, 0.0)


@pytest.mark.parametrize("correction", [np.zeros_like, one_sided, heavy])
@pytest.mark.parametrize("power", [1.0, 0.64])
def test_density_and_distribution_function_belong_together(correction, power):
    """The integral of the density by quadrature, node to node; round-off of both."""
    table = tabulate(correction).flattened(power)
    stops = table.nodes[:: max(1, table.nodes.size // 12)]
    for start, stop in pairwise(stops):
        inside = (table.nodes > start) & (table.nodes < stop)
        edges = np.concatenate([[start], table.nodes[inside], [stop]])
        mass = sum(
            quad(lambda x: np.exp(table.log_pdf(np.array([x]))[0]), *cell)[0]
            for cell in pairwise(edges)
        )
        low, high = table.cdf(np.array([start, stop]))
        assert high - low == pytest.approx(mass, abs=1e-11)
    assert table.cdf(np.array([-1e3, 1e3])) == pytest.approx([0.0, 1.0], abs=1e-15)
    np.testing.assert_allclose(table.cdf(table.quantile(PROBS)), PROBS, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("correction", "exact"),
    [
        (np.zeros_like, norm()),
        (one_sided, truncnorm(-1.0, np.inf)),
        (lambda x: 0.5 * x, norm(0.5)),
        (lambda x: 0.4 * x**2, norm(0.0, 0.2**-0.5)),
    ],
    ids=["normal", "cut", "shifted", "wide"],
)
def test_quantiles(correction, exact):
    inner = PROBS[2:-1]  # the cliff of "cut" has a width of its own, .003 in probability
    found = tabulate(correction).quantile(inner)
    np.testing.assert_allclose(exact.cdf(found), inner, rtol=CLOSE)


def test_a_far_mode_is_not_believed():
    """A correction that grows faster than the square falls: a marginal here is log-concave."""
    table = tabulate(lambda x: np.where(np.abs(x) > 10.0, x**2, 0.0))
    assert (np.diff(table.slope) <= 1e-9).all()
    np.testing.assert_allclose(table.quantile(PROBS[1:-1]), norm.ppf(PROBS[1:-1]), atol=CLOSE)


def test_tails_that_do_not_fall_are_made_to():
    table = TabulatedDensity.of(np.array([0.0, 1.0, 2.0]), np.array([0.0, -1.0, 3.0]))
    assert table.slope[0] > 0 > table.slope[-1]
    assert table.cumulative[-1] == 1.0
