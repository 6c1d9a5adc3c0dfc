"""Steps under sites leave the joint distribution alone, rows and latent variables beside them.

Theta ~ prior, f ~ SUN(theta), data given f, then steps that move f and theta: every functional
keeps its mean (paired z < 4.5, false alarms 7e-6 each, below 2e-4 a case for a new seed) and theta
its prior (Kolmogorov-Smirnov, p > 1e-5). And against quadrature for two values of f.
"""

from typing import NamedTuple

import numpy as np
import pytest
from arviz_stats.base import array_stats
from mcmc_models import NO_ROWS, Density, X, draw_prior, normal_prior, prior_at
from mixture_oracles import LOG_Z, log_density
from scipy import stats
from scipy.special import expit, gammaln, logsumexp, ndtr
from scipy.stats import kstest, multivariate_normal, nbinom, norm
from site_oracles import Logit

from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc import slices
from pymc_skewgp._mcmc.augmentation import (
    ConjugateModel,
    LaplaceNoise,
    Lapses,
    Placed,
    Rows,
    StudentTNoise,
)
from pymc_skewgp._mcmc.site_chain import ConjugateSampler, SiteChain
from pymc_skewgp._mcmc.site_target import ModeJumps, SiteTarget
from pymc_skewgp._mcmc.slices import HyperparameterMove
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.sites import Sites

# Means and standard deviations of log lengthscale, log variance, mean of f and log alpha.
CENTRE, SPREAD = np.array([0.0, 0.7, 0.2, 0.8]), np.array([0.5, 0.6, 0.7, 0.5])
# What of f the sites see, each twice but for one; and the rows.
SITES = np.array([0, 0, 1, 1, 2, 2, 3, 4, 4])
LABELS, VALUES = np.array([0, 2, 3, 5]), np.array([1, 5])
NOISE = 0.3


class Case(NamedTuple):
    """Which data there are, and latent variables of the prior."""

    counts: bool = False
    labels: bool = False
    values: bool = False
    s: int = 0
    known: bool = False  # whether sites are known for the map, rather than EP at each theta


class Data(NamedTuple):
    y: np.ndarray
    signs: np.ndarray
    values: np.ndarray


def logit_sites(y, A, a):
    def slopes(eta):
        p = expit(eta)
        return y - p, -p * (1 - p)

    return Sites(A, a, lambda eta: y * eta - np.logaddexp(0.0, eta), slopes)


def count_sites(y, A, a, alpha):
    constant = gammaln(y + alpha) - gammaln(alpha) - gammaln(y + 1.0) + alpha * np.log(alpha)

    def log_prob(eta):
        return constant + y * eta - (y + alpha) * np.logaddexp(np.log(alpha), eta)

    def slopes(eta):
        p = expit(eta - np.log(alpha))
        return y - (y + alpha) * p, -(y + alpha) * p * (1 - p)

    return Sites(A, a, log_prob, slopes)


def model_at(theta, case, data):
    design, a = np.eye(X.size)[SITES], np.full(SITES.size, 0.1)
    if case.counts:
        sites = count_sites(data.y, 0.5 * design, a, np.exp(theta[3]))
    else:
        sites = logit_sites(data.y, design, a)
    signs, values = data.signs, data.values
    size = signs.size + values.size
    where = np.concatenate([LABELS[: signs.size], VALUES[: values.size]])
    nowhere = np.full(values.size, np.nan)
    rows = Observations(
        np.eye(X.size)[where],
        np.zeros(size),
        np.concatenate([np.ones(signs.size), np.full(values.size, NOISE**2)]),
        np.concatenate([np.where(signs > 0, 0.0, -np.inf), nowhere]),
        np.concatenate([np.where(signs > 0, np.inf, 0.0), nowhere]),
        np.concatenate([np.full(signs.size, np.nan), values]),
    )
    return ConjugateModel(prior_at(np.full(X.size, theta[2]), theta, case.s), rows, sites=sites)


def draw_joint(case, rng):
    """Exact draw of theta, f and the data."""
    theta = rng.normal(CENTRE, SPREAD)
    (f,) = draw_prior(prior_at(np.full(X.size, theta[2]), theta, case.s), 1, rng)
    if case.counts:
        alpha, mean = np.exp(theta[3]), np.exp(0.5 * f[SITES] + 0.1)
        y = nbinom.rvs(alpha, alpha / (alpha + mean), random_state=rng)
    else:
        y = rng.random(SITES.size) < expit(f[SITES] + 0.1)
    signs = np.where(rng.random(LABELS.size) < ndtr(f[LABELS]), 1.0, -1.0)
    values = f[VALUES] + NOISE * rng.standard_normal(VALUES.size)
    return theta, f, Data(y.astype(float), signs[: 4 * case.labels], values[: 2 * case.values])


def functionals(theta, f, data):
    of_f = [f[0], f.max(), f @ f, (f[SITES] * data.y).mean(), np.exp(0.5 * f[1])]
    of_both = [theta[1] * (f @ f), theta[0] * (f[0] - f[1]) ** 2, theta[2] * f[0]]
    of_data = [theta[3] * data.y @ data.y / 10.0, data.signs @ f[LABELS[: data.signs.size]]]
    return np.array([*theta, *(theta**2), theta[0] * theta[1], *of_f, *of_both, *of_data])


def after_steps(case, theta, f, data, rng):
    chain, density = SiteChain(4), Density(lambda v: model_at(v, case, data), CENTRE, SPREAD)
    learnt = slices.Learnt(100, CENTRE, np.diag(SPREAD**2), 0.5)
    if case.known:  # of the data alone
        places = np.random.default_rng(1).normal(CENTRE, SPREAD, (30, CENTRE.size))
        for values in places[:3]:
            target = SiteTarget(model_at(values, case, data), np.zeros(0))
            chain._reference.learn(values, target.ep(1e-2, None))
        logs = norm.logpdf(places, CENTRE, SPREAD).sum(axis=1) + np.sin(places).sum(axis=1)
        shaped = learnt.proposal().like(np.column_stack([places, logs]))
        assert shaped.weights.size
        learnt = learnt._replace(shaped=(100, shaped))
    state = conjugate.init(f, slices.SliceState(theta, learnt))
    model = model_at(theta, case, data)
    for _ in range(2):
        state, _ = chain.step(state, model, rng, hyperparameters=HyperparameterMove(density))
        model = state.model
    np.testing.assert_array_equal(model.prior.mu, state.theta.values[2])
    return state.theta.values, state.f


def differences_of(case, n, seed):
    rng = np.random.default_rng(seed)
    before, after, ends = [], [], []
    for _ in range(n):
        theta, f, data = draw_joint(case, rng)
        before.append(functionals(theta, f, data))
        values, moved = after_steps(case, theta, f, data, rng)
        after.append(functionals(values, moved, data))
        ends.append(values)
    return np.array(after) - np.array(before), np.array(ends)


def check(differences, ends):
    error = differences.std(axis=0) / np.sqrt(len(differences))
    z = differences.mean(axis=0)[error > 0] / error[error > 0]
    assert np.abs(z).max() < 4.5, z.round(1)
    ranks = norm.cdf(ends, CENTRE, SPREAD)
    assert all(kstest(column, "uniform").pvalue > 1e-5 for column in ranks.T)
    assert np.abs(differences[:, :4]).mean(axis=0).min() > 0.2  # every hyperparameter moves


SHORT = Case(counts=True, known=True), Case(labels=True, s=1)
LONG = Case(known=True), *SHORT, Case(counts=True, labels=True, values=True, s=2)


@pytest.mark.parametrize(
    ("case", "n"),
    [(x, 15) for x in SHORT] + [pytest.param(x, 600, marks=pytest.mark.slow) for x in LONG],
)
def test_joint_distribution_is_left_alone(case, n):
    """In short, and with so many draws that errors of a twentieth of a deviation are seen."""
    check(*differences_of(case, n, 2))


def test_a_proposal_has_the_density_that_it_says():
    """One number: draws against the distribution function by sums; false alarm one in 10,000.

    Where densities do not agree on a shape it is plain.
    """
    rng = np.random.default_rng(5)
    places = rng.normal(0.0, 2.0, 40)
    logs = -0.5 * places**2 + 2.0 * np.tanh(places)
    plain = slices.Proposal(np.zeros(1), np.full((1, 1), 1.5))
    shaped = plain.like(np.column_stack([places, logs]))
    at = np.linspace(-60.0, 60.0, 24_001)
    density = np.exp([shaped.log_density(x) for x in at[:, None]])
    draws = [float(shaped.draw(rng)[0]) for _ in range(4000)]
    below = np.cumsum(density) / density.sum()
    assert kstest(np.interp(draws, at, below), "uniform").pvalue > 1e-4
    target = -0.5 * at**2 + 2.0 * np.tanh(at)
    near = target > target.max() - 4.0  # it is nearly the target, up to a constant
    assert (np.log(density) - target)[near].std() < 0.2
    noisy = plain.like(np.column_stack([places, logs + 10.0 * rng.standard_normal(40)]))
    assert not noisy.weights.size


def test_a_chain_against_quadrature():
    """Two values of f under counts, log variance and log alpha: means and variances on a grid.

    At 4.5 standard errors of the chain, by ArviZ's effective sample sizes: 7e-6 a moment.
    """
    y = np.array([3.0, 0.0])
    x = np.array([0.0, 0.7])

    def small(values):
        sites = count_sites(y, None, np.zeros(2), np.exp(values[1]))
        return ConjugateModel(prior_at(np.zeros(2), [0.0, values[0]], 0, x), NO_ROWS, sites=sites)

    rng, density = np.random.default_rng(3), Density(small, [0.5, 0.8], [0.7, 0.5])
    state = conjugate.init(np.zeros(2), slices.init(np.array([0.5, 0.8])))
    chain, model, path = SiteChain(8), density(np.array([0.5, 0.8]))[0], []
    for i in range(650):
        move = HyperparameterMove(density, tune=i < 100)
        state, info = chain.step(state, model, rng, hyperparameters=move)
        model = state.model
        path.append([*state.theta.values, *state.f])
    path = np.array(path[100:])
    # Steps of a fifth of the narrowest deviation: a smooth integrand leaves no error to be seen.
    a, b = np.linspace(-2.3, 3.3, 23), np.linspace(-1.5, 3.1, 19)
    f = np.linspace(-9.0, 9.0, 73)
    pair = np.stack(np.meshgrid(f, f, indexing="ij"), axis=-1)
    under = [
        count_sites(y, None, np.zeros(2), np.exp(x)).log_prob(pair).sum(axis=-1)
        + norm.logpdf(x, 0.8, 0.5)
        for x in b
    ]
    total, first, second = 0.0, np.zeros(4), np.zeros(4)
    for value in a:
        prior = prior_at(np.zeros(2), [0.0, value], 0, x)
        log_f = multivariate_normal.logpdf(pair, prior.mu, prior.scale)
        log_f += norm.logpdf(value, 0.5, 0.7)
        for log_alpha, log_sites in zip(b, under, strict=True):
            p = np.exp(log_f + log_sites)
            at = np.stack(np.broadcast_arrays(value, log_alpha, *np.moveaxis(pair, -1, 0)))
            total += p.sum()
            first += (at * p).sum(axis=(1, 2))
            second += (at**2 * p).sum(axis=(1, 2))
    for power, exact in ((1, first / total), (2, second / total)):
        for column, expected in zip(path.T**power, exact, strict=True):
            ess = array_stats.ess(column[None], chain_axis=0, draw_axis=1, method="mean")
            assert ess > 130, ess  # of 550
            assert abs(column.mean() - expected) < 4.5 * column.std() / np.sqrt(ess)
    assert info.stats["relative_ess"] > 0.5
    assert np.isfinite(info.stats["log_evidence"])


# Chains through indicators go from mode to mode, as often as they should.
#
# Those under factors that are not log-concave are in `test_results_without_skewgp`.


def test_a_chain_through_indicators():
    """Student-t noise is normal given a variance for each value: these alone keep f at one line."""
    x = np.concatenate([np.linspace(-1.0, 1.0, 20)] * 2)
    y = np.repeat([1.0, -1.0], 20) + 0.0 * x
    cov = 4.0 * np.exp(-0.5 * ((x[:, None] - x) / 3.0) ** 2) + 1e-6 * np.eye(40)
    prior = normal_prior(np.zeros(40), cov)
    nowhere = np.full(40, np.inf)
    data = Observations(None, np.zeros(40), np.full(40, 0.01), -nowhere, nowhere, y)
    model = ConjugateModel(prior, data, (Placed(StudentTNoise(np.full(40, 2.0)), slice(0, 40)),))
    rng, path = np.random.default_rng(4), []
    chain = ConjugateSampler(lambda target: None, 1)
    state = conjugate.init(np.ones(40))
    for _ in range(400):
        state, _ = chain.step(state, model, rng)
        path.append(state.f[0])
    above = np.array(path) > 0
    assert np.count_nonzero(np.diff(above)) > 40  # without jumps there is none
    # y -> -y maps the data to themselves. Some 80 independent draws: an error of .056; five of it.
    assert above.mean() == pytest.approx(0.5, abs=0.28)


def test_log_concave_factors_pay_nothing():
    y, known = np.array([0.0, 1.0, 1.0]), Logit()
    log_prob, slopes = (lambda eta: known.log_likelihood(y, eta), lambda eta: known.slopes(y, eta))
    sites = Sites(np.eye(2)[[0, 0, 1]], np.zeros(3), log_prob, slopes)
    model = ConjugateModel(normal_prior(np.zeros(2), np.eye(2)), NO_ROWS, sites=sites)
    target = SiteTarget(model, np.zeros(0))
    jumps, rng = ModeJumps(), np.random.default_rng(3)
    c = np.zeros(2)
    jumps.learn(c, target)
    before = rng.bit_generator.state
    assert jumps.step(c, target, 8, rng) is c
    assert rng.bit_generator.state == before


# Indicators of mixtures of rows given f, by quadrature over them.
#
# Densities of the rows are tested in `test_patterns`, chains in `test_mixture_steps`. Seeds are
# fixed; a right sampler is called wrong with probability 7e-6 for each number judged (4.5 standard
# errors), or 1e-5 (Kolmogorov-Smirnov).


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
