"""Mixtures of rows: their densities, indicators given f, and the chain on both.

Densities are compared with scipy's, indicators with quadrature over them, the chain with quadrature
over f. Stochastic tests fix their seeds; they call a right sampler wrong with probability 7e-6 for
each number judged (4.5 standard errors), or 1e-5 (Kolmogorov-Smirnov).
"""

import numpy as np
import pytest
from mixture_oracles import LOG_Z, log_density, log_marginal
from scipy import stats
from scipy.special import log_ndtr, logsumexp, ndtr

from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc.model import (
    ConjugateModel,
    LaplaceNoise,
    Lapses,
    Placed,
    Rows,
    StudentTNoise,
    Walk,
)
from pymc_skewgp._mcmc.site_chain import ConjugateSampler
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._sun.parameters import SunParameters

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


E = [-3.0, -0.4, 0.2, 1.0, 6.0]


@pytest.mark.parametrize("nu", [0.8, 4.0, 60.0])
def test_student_t(nu):
    rows = points(E, 0.36)
    expected = stats.t.logpdf(E, nu, 0.0, 0.6)
    found = log_marginal(StudentTNoise(full(rows, nu)), rows)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("nu", [1.5, 4.0])
def test_student_t_in_intervals(nu):
    lower, upper = [-INF, -1.0, 0.5, 2.0], [-0.5, 0.3, 9.0, INF]
    rows = intervals(lower, upper, 0.36)
    law = stats.t(nu, 0.0, 0.6)
    expected = np.log(law.cdf(upper) - law.cdf(lower))
    found = log_marginal(StudentTNoise(full(rows, nu)), rows)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("kappa", [1.0, 0.4, 2.0])
def test_laplace(kappa):
    """Means 1 / (b kappa) above and kappa / b below: scipy has the same kappa."""
    b = 1.7
    above, below = 1 / (b * kappa), kappa / b
    rows = points(E, 2 * above * below)
    law = stats.laplace_asymmetric(kappa, 0, 1 / b)
    found = log_marginal(LaplaceNoise(full(rows, above - below)), rows)
    np.testing.assert_allclose(found, law.logpdf(E), rtol=1e-9)


@pytest.mark.parametrize("truth", [0.7, -0.5])
def test_lapses(truth):
    """P(y = 1) = a + b Phi(eta)."""
    a = 0.2 if truth > 0 else 0.9
    eta, label = np.array([-2.0, 0.3, 0.3, 5.0]), np.array([1, 0, 1, 0])
    rows = intervals(np.where(label, 0, -INF) - eta, np.where(label, INF, 0) - eta, 1.0)
    low, high = sorted((a, a + truth))
    mixture = Lapses(np.where(label, low, 1 - high), full(rows, truth))
    p = a + truth * ndtr(eta)
    np.testing.assert_allclose(np.exp(log_marginal(mixture, rows)), np.where(label, p, 1 - p))


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
    # A lapse gives either label with the same probability: half of the wrong ones are flips.
    flip = eps * ndtr(-eta) / (eps * ndtr(-eta) + (1 - eps) * ndtr(eta))
    flips = eps * ndtr(-eta) / (eps + (1 - 2 * eps) * ndtr(eta))
    np.testing.assert_allclose(flip, flips)


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
    prior = SunParameters(np.zeros(2), np.eye(2), np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0)))
    model = ConjugateModel(prior, observed, (mixture,))
    found = model.given([np.array([1.0, 0.0])]).observations
    np.testing.assert_array_equal(found.S, S[np.ix_([0, 1, 3], [0, 1, 3])])
    np.testing.assert_array_equal(found.lower[2:], [0.0])  # the other label, for b < 0
    np.testing.assert_array_equal(found.A, observed.A[[0, 1, 3]])
    assert model.log_indicators([np.array([1.0, 0.0])]) == pytest.approx(np.log(0.1) + np.log(0.8))
    both = model.given([np.zeros(2)]).observations
    np.testing.assert_array_equal(both.upper[2:], [INF, INF])


# Two values of f, as a GP or with one latent dimension: f is skewed then.
COV = np.array([[1.5, 0.9], [0.9, 1.2]])
MU = np.array([0.3, -0.2])


def prior_of(s):
    cross = np.array([[0.8], [0.7]])[:, :s]
    return SunParameters(MU, COV, cross, np.full(s, 0.3), np.eye(s))


def grid_moments(s, log_likelihood):
    """Mean, second moments of f, by a trapezoid rule."""
    axis = np.linspace(-7.5, 7.5, 301)
    f = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = stats.multivariate_normal(MU, COV).logpdf(f) + log_likelihood(f)
    if s:
        given = np.linalg.solve(COV, prior_of(1).cross_cov[:, 0])
        sd = np.sqrt(1 - prior_of(1).cross_cov[:, 0] @ given)
        log_p += log_ndtr((0.3 + (f - MU) @ given) / sd)
    p = np.exp(log_p - logsumexp(log_p))
    return np.column_stack([f, f**2, f[:, :1] * f[:, 1:]]).T @ p


DESIGN = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
VALUE = np.array([2.5, -1.0, 0.4])
LABEL = np.array([1, 0, 1])
LOW, HIGH = np.where(LABEL, 0.0, -INF), np.where(LABEL, INF, 0.0)
NAN = np.full(3, np.nan)


def noisy(mixture, variance, value=VALUE, lower=None, upper=None):
    nowhere = np.full(3, INF)
    lower, upper = (-nowhere if lower is None else lower), (nowhere if upper is None else upper)
    observed = Observations(DESIGN, np.zeros(3), np.full(3, variance), lower, upper, value)
    return lambda s: ConjugateModel(prior_of(s), observed, (Placed(mixture, slice(0, 3)),))


def censored_t(f):
    """The first value is at least 1.5, the others are known."""
    eta = f @ DESIGN.T
    law = stats.t(3.0, 0, 0.5)
    return law.logsf(1.5 - eta[:, 0]) + law.logpdf(VALUE[1:] - eta[:, 1:]).sum(axis=1)


def lapsing(f):
    p = 0.2 + 0.7 * ndtr(f @ DESIGN.T)
    return np.log(np.where(LABEL, p, 1 - p)).sum(axis=1)


CHAINS = {
    "t": (
        noisy(StudentTNoise(np.full(3, 2.5)), 0.25),
        lambda f: stats.t.logpdf(VALUE - f @ DESIGN.T, 2.5, 0, 0.5).sum(axis=1),
    ),
    "censored t": (
        noisy(
            StudentTNoise(np.full(3, 3.0)),
            0.25,
            np.array([np.nan, *VALUE[1:]]),
            np.array([1.5, -INF, -INF]),
        ),
        censored_t,
    ),
    "skewed Laplace": (
        noisy(LaplaceNoise(np.full(3, 0.7)), 0.5),
        lambda f: stats.laplace_asymmetric.logpdf(
            VALUE - f @ DESIGN.T, *laplace_asymmetry(0.7, 0.5)
        ).sum(axis=1),
    ),
    "lapses": (
        noisy(Lapses(np.where(LABEL, 0.2, 0.1), np.full(3, 0.7)), 1.0, NAN, LOW, HIGH),
        lapsing,
    ),
}


def laplace_asymmetry(shift, variance):
    """Kappa, location and scale of scipy: above = 1 / (b kappa), below = kappa / b."""
    above = np.sqrt(shift**2 / 4 + variance / 2) + shift / 2
    below = above - shift
    return np.sqrt(below / above), 0.0, np.sqrt(above * below)


class Stay:
    """No move of u: the chain is right without."""

    def adapt(self):
        return 1

    def walk(self, u, n, rng, *, thin):
        return Walk(np.repeat(u[None], n, axis=0), {})


@pytest.mark.parametrize(
    ("name", "s"), [("t", 0), ("t", 1), ("censored t", 1), ("skewed Laplace", 0), ("lapses", 1)]
)
def test_chain_has_the_moments_of_quadrature(name, s):
    make, log_likelihood = CHAINS[name]
    model, n = make(s), 2050
    sampler = ConjugateSampler(lambda target: Stay(), 1)
    rng = np.random.default_rng(len(name) + s)
    state, f = conjugate.init(MU), np.empty((n, 2))
    for i in range(n):
        state, _ = sampler.step(state, model, rng)
        f[i] = state.f
    found = np.column_stack([f, f**2, f[:, 0] * f[:, 1]])[100:]
    # Means of batches: 39 are nearly independent, so z is Student-t with 38 degrees of freedom,
    # beyond 6 with probability 6e-7.
    batches = found.reshape(39, -1, 5).mean(axis=1)
    z = (batches.mean(axis=0) - grid_moments(s, log_likelihood)) / stats.sem(batches)
    assert np.abs(z).max() < 6.0, z
