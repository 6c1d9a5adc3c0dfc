"""Steps under sites leave the joint distribution alone, rows and latent variables beside them.

Theta ~ prior, f ~ SUN(theta), data given f, then steps that move f and theta: every functional
keeps its mean (paired z < 4.5, false alarms 7e-6 each, below 2e-4 a case for a new seed) and theta
its prior (Kolmogorov-Smirnov, p > 1e-5). And against quadrature for two values of f.
"""

from typing import NamedTuple

import numpy as np
import pytest
from arviz_stats.base import array_stats
from mcmc_models import NO_ROWS, Density, X, draw_prior, prior_at
from scipy.special import expit, gammaln, ndtr
from scipy.stats import kstest, multivariate_normal, nbinom, norm

from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc import slices
from pymc_skewgp._mcmc.augmentation import ConjugateModel
from pymc_skewgp._mcmc.site_chain import SiteChain
from pymc_skewgp._mcmc.site_target import SiteTarget
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
    if case.known:  # of the data alone
        target = SiteTarget(model_at(CENTRE, case, data), np.zeros(0))
        chain._reference.learn(target.ep(1e-2, None))
    learnt = slices.Learnt(100, CENTRE, np.diag(SPREAD**2), 0.5)
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
    for i in range(900):
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
            assert ess > 200, ess
            assert abs(column.mean() - expected) < 4.5 * column.std() / np.sqrt(ess)
    assert info.stats["relative_ess"] > 0.5
    assert np.isfinite(info.stats["log_evidence"])
