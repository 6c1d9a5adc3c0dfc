"""Indicators of mixtures of rows given f, by quadrature over them.

Densities of the rows are tested in `test_patterns`, chains in `test_mixture_steps`. Seeds are
fixed; a right sampler is called wrong with probability 7e-6 for each number judged (4.5 standard
errors), or 1e-5 (Kolmogorov-Smirnov).
"""

import numpy as np
import pytest
from mcmc_models import normal_prior
from mixture_oracles import LOG_Z, log_density
from scipy import stats
from scipy.special import logsumexp, ndtr

from pymc_skewgp._mcmc.augmentation import (
    ConjugateModel,
    LaplaceNoise,
    Lapses,
    Placed,
    Rows,
    StudentTNoise,
)
from pymc_skewgp._observations.observations import Observations

SIGMAS, P_VALUE = 4.5, 1e-5
INF = np.inf


def points(e, variance):
    e = np.asarray(e, float)
    nowhere = np.full(e.size, INF)
    return Rows(np.zeros(e.size), np.full(e.size, variance), -nowhere, nowhere, e)


def intervals(lower, upper, variance):
    lower, upper = (np.asarray(x, float) for x in (lower, upper))
    full = np.full(lower.size, variance)
    return Rows(np.zeros(lower.size), full, lower, upper, np.full(lower.size, np.nan))


def full(rows, value):
    return np.full(rows.offset.size, value)


def indicator_law(mixture, rows):
    """Distribution function of log z given the only row, by quadrature."""
    terms = [
        (log_density(mixture.given(rows, np.array([z]))) + mixture.log_density(np.array([z])))[0]
        for z in np.exp(LOG_Z)
    ] + LOG_Z
    cdf = np.cumsum(np.exp(terms - logsumexp(terms)))
    return lambda x: np.interp(x, LOG_Z, cdf)


CONTINUOUS = {
    "t": (lambda m: StudentTNoise(np.full(m, 3.0)), lambda m: points(np.full(m, 1.3), 0.5)),
    "t, tail": (
        lambda m: StudentTNoise(np.full(m, 3.0)),
        lambda m: intervals(np.full(m, 1.5), np.full(m, INF), 0.5),
    ),
    "t, interval": (
        lambda m: StudentTNoise(np.full(m, 1.4)),
        lambda m: intervals(np.full(m, -0.3), np.full(m, 0.8), 0.5),
    ),
    "Laplace": (lambda m: LaplaceNoise(np.zeros(m)), lambda m: points(np.full(m, -0.7), 0.9)),
    "skewed": (lambda m: LaplaceNoise(np.full(m, 1.5)), lambda m: points(np.full(m, 0.6), 0.9)),
    "at 0": (lambda m: LaplaceNoise(np.full(m, 0.3)), lambda m: points(np.zeros(m), 0.9)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_indicators_of_the_noise_given_f(name):
    make, rows = CONTINUOUS[name]
    n = 4000
    z = make(n).draw(rows(n), np.random.default_rng(1))
    law = indicator_law(make(1), rows(1))
    assert stats.kstest(np.log(z), law).pvalue > P_VALUE


def test_a_truncated_t_far_in_a_tail_that_underflows():
    n = 50
    mixture = StudentTNoise(np.full(n, 1e6))
    for limits in [(np.full(n, 60.0), np.full(n, INF)), (np.full(n, -INF), np.full(n, -60.0))]:
        z = mixture.draw(intervals(*limits, 1.0), np.random.default_rng(1))
        assert np.isfinite(z).all()
        np.testing.assert_allclose(z, 1.0, atol=0.02)  # of nu = 1e6: sd .0014, e^2 / nu = .0036


def test_lapses_given_f():
    """P(lapse | f) = c / (c + b Phi): the formula of flips with eps is that of 2 eps lapses."""
    eta, eps, n = np.array([-3.0, 0.2, 4.0]), 0.1, 40_000
    rows = intervals(-eta, np.full(3, INF), 1.0)
    mixture = Lapses(full(rows, eps), full(rows, 1 - 2 * eps))
    rng = np.random.default_rng(2)
    share = np.mean([mixture.draw(rows, rng) for _ in range(n)], axis=0)
    p = eps / (eps + (1 - 2 * eps) * ndtr(eta))
    assert (np.abs(share - p) < SIGMAS * np.sqrt(p * (1 - p) / n)).all()


def test_rates_at_their_ends():
    rows = intervals([0.0, 0.0], [INF, INF], 1.0)
    rng = np.random.default_rng(1)
    assert (Lapses(np.zeros(2), np.ones(2)).draw(rows, rng) == 0).all()
    assert (Lapses(np.ones(2), np.zeros(2)).draw(rows, rng) == 1).all()


def test_rows_given_indicators():
    """A lapsed row is left out, noise that other rows share stays as it is."""
    S = np.array([[2.0, 0.5, 0, 0], [0.5, 3.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])
    zero, minus, nan = 0.0, -INF, np.nan
    observed = Observations(
        np.arange(8.0).reshape(4, 2),
        np.zeros(4),
        S,
        np.array([minus, minus, zero, minus]),
        np.array([INF, INF, INF, zero]),
        np.array([1.0, 2.0, nan, nan]),
    )
    mixture = Placed(Lapses(np.full(2, 0.1), np.array([0.8, -0.8])), slice(2, 4))
    model = ConjugateModel(normal_prior(np.zeros(2), np.eye(2)), observed, (mixture,))
    found = model.given([np.array([1.0, 0.0])]).observations
    np.testing.assert_array_equal(found.S, S[np.ix_([0, 1, 3], [0, 1, 3])])
    np.testing.assert_array_equal(found.lower[2:], [0.0])  # the other label, for b < 0
    np.testing.assert_array_equal(found.A, observed.A[[0, 1, 3]])
    assert model.log_indicators([np.array([1.0, 0.0])]) == pytest.approx(np.log(0.1) + np.log(0.8))
    both = model.given([np.zeros(2)]).observations
    np.testing.assert_array_equal(both.upper[2:], [INF, INF])
