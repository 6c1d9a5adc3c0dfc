"""Hyperparameters moved with f integrated out: the joint distribution is left alone.

theta ~ prior, f ~ SUN(theta), y ~ probit(f), then steps that move f and theta: every functional
keeps its mean (paired z < 4.5, false alarms 7e-6) and theta its prior (Kolmogorov-Smirnov,
p > 1e-5).
"""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kstest, multivariate_normal, norm

from pymc_skewgp._mcmc.augmentation import Augmentation, ProbitSUN
from pymc_skewgp._mcmc.collapsed_slices import CollapsedSlices
from pymc_skewgp._mcmc.conjugate_moves import ConjugateSampler, IndependenceMove, LinESSMove

X = np.array([-1.6, -0.7, -0.1, 0.4, 1.1, 1.9])
KNOTS, PHASE, TRUNCATION = np.array([-0.5, 0.6]), np.array([1.0, -1.0]), np.array([0.2, 0.6])
# Means and standard deviations of log lengthscale, log variance and slope of the mean.
CENTRE, SPREAD = np.array([0.0, 0.7, 0.2]), np.array([0.5, 0.6, 0.7])


def rbf(a, b, theta):
    return np.exp(theta[1] - 0.5 * ((a[:, None] - b) * np.exp(-theta[0])) ** 2)


def parameters(theta, s, sign):
    to_unit = PHASE[:s] * np.exp(-0.5 * theta[1])
    return ProbitSUN(
        mu=theta[2] * X,
        scale=rbf(X, X, theta) + 1e-4 * np.eye(X.size),
        cross_cov=rbf(X, KNOTS[:s], theta) * to_unit,
        truncation=TRUNCATION[:s],
        latent_cov=to_unit[:, None] * rbf(KNOTS[:s], KNOTS[:s], theta) * to_unit,
        design=None,
        offset=np.full(X.size, -0.2),
        sign=sign,
    )


def log_latent(model):
    """log Phi_s by scipy."""
    if model.truncation.size < 2:
        return float(norm.logcdf(model.truncation).sum())
    return float(multivariate_normal.logcdf(model.truncation, cov=model.latent_cov))


def evaluator(s, sign):
    def evaluate(theta):
        model = parameters(theta, s, sign)
        return model, float(norm.logpdf(theta, CENTRE, SPREAD).sum()) - log_latent(model)

    return evaluate


def draw_joint(s, rng):
    """Exact draw of theta, f and the signs of the labels, x0 by rejection."""
    theta = rng.normal(CENTRE, SPREAD)
    model = parameters(theta, s, np.ones(X.size))
    joint = np.block([[model.latent_cov, model.cross_cov.T], [model.cross_cov, model.scale]])
    root = np.linalg.cholesky(joint + 1e-12 * np.eye(len(joint)))
    while True:
        pair = root @ rng.standard_normal(len(joint))
        if (pair[:s] > -model.truncation).all():
            break
    f = model.mu + pair[s:]
    return theta, f, np.where(rng.random(X.size) < ndtr(f - 0.2), 1.0, -1.0)


def functionals(theta, f, sign):
    margin = sign * f
    of_f = [f[0], f.max(), f @ f, margin.min(), margin.mean()]
    of_both = [theta[1] * (f @ f), theta[0] * (f[0] - f[1]) ** 2, theta[2] * f[0]]
    return np.array([*theta, *(theta**2), theta[0] * theta[1], *of_f, *of_both])


@pytest.mark.parametrize("s", [0, 2])
@pytest.mark.parametrize("kind", [IndependenceMove, LinESSMove])
def test_joint_distribution_is_left_alone(kind, s):
    rng = np.random.default_rng(10 + s)
    n = 400 if s else 800
    before, after, ends = [], [], []
    for _ in range(n):
        theta, f, sign = draw_joint(s, rng)
        before.append(functionals(theta, f, sign))
        evaluate = evaluator(s, sign)
        slices = CollapsedSlices(3)
        sampler = ConjugateSampler(lambda target: kind(target, 2), 2)
        values, model = theta, evaluate(theta)[0]
        for _ in range(2):

            def between(u, target):
                nonlocal values
                values, u, target = slices.move(evaluate, values, u, target, rng, tune=False)  # noqa: B023
                return u, target

            f, info = sampler.step(f, model, rng, between=between)
            model = sampler.state[0]
            assert info.refreshed
        after.append(functionals(values, f, sign))
        ends.append(values)
        np.testing.assert_allclose(model.mu, values[2] * X)
    differences = np.array(after) - np.array(before)
    z = differences.mean(axis=0) / (differences.std(axis=0) / np.sqrt(n))
    assert np.abs(z).max() < 4.5, z.round(1)
    ranks = norm.cdf(np.array(ends), CENTRE, SPREAD)
    assert all(kstest(column, "uniform").pvalue > 1e-5 for column in ranks.T)
    assert np.abs(differences[:, :3]).mean(axis=0).min() > 0.3  # every hyperparameter moves


def walk(slices, evaluate, target, u, values, n, tune, seed=0):
    rng, path = np.random.default_rng(seed), []
    for _ in range(n):
        values, u, target = slices.move(evaluate, values, u, target, rng, tune=tune)
        path.append(values)
    return np.array(path), u, target


def start(s=1, seed=3):
    rng = np.random.default_rng(seed)
    theta, f, sign = draw_joint(s, rng)
    evaluate = evaluator(s, sign)
    target = Augmentation(evaluate(theta)[0])
    return evaluate, target, target.rows_given(f, rng)[0], theta


def test_slices_against_a_grid():
    """p(theta | u) on a grid of one coordinate, the others fixed, normal density by numpy alone."""
    evaluate, target, u, theta = start()
    excess = u - target.lower

    def along(v):
        return evaluate(np.array([v[0], *theta[1:]]))

    path, u_end, target_end = walk(CollapsedSlices(1), along, target, u, theta[:1], 3000, tune=True)
    np.testing.assert_allclose(u_end - target_end.lower, excess, rtol=1e-12)
    grid = np.linspace(-2.5, 2.5, 400)
    log_p = []
    for value in grid:
        model, log_rest = evaluate(np.array([value, *theta[1:]]))
        other = Augmentation(model)
        log_p.append(
            log_rest + multivariate_normal.logpdf(other.lower + excess, cov=other.cov.matrix)
        )
    p = np.exp(np.array(log_p) - max(log_p))
    cdf = np.cumsum(p) / p.sum()
    # Slices of a unimodal density leave little correlation: every fifth draw, p = 1e-5.
    uniform = np.interp(path[::5, 0], grid, cdf)
    assert kstest(uniform, "uniform").pvalue > 1e-5


def test_widths_are_learnt_while_tuning_only():
    evaluate, target, u, theta = start()
    slices = CollapsedSlices(3)
    walk(slices, evaluate, target, u, theta, 20, tune=False)
    np.testing.assert_array_equal(slices.widths, np.ones(3))
    walk(slices, evaluate, target, u, theta, 20, tune=True)
    assert (slices.widths != 1.0).all()


def test_of_many_hyperparameters_a_few_move_at_a_time():
    evaluate, target, u, theta = start()
    idle = np.zeros(20)

    def with_idle(v):
        model, log_rest = evaluate(v[:3])
        return model, log_rest - 0.5 * float(v[3:] @ v[3:])

    values = np.concatenate([theta, idle])
    path, *_ = walk(CollapsedSlices(23), with_idle, target, u, values, 1, tune=False)
    assert (path[0] != np.concatenate([theta, idle])).sum() == 8


def test_no_move_from_or_to_where_the_model_does_not_live():
    evaluate, target, u, theta = start()

    def nowhere(v):
        return evaluate(v)[0], -np.inf

    values, u_new, target_new = CollapsedSlices(3).move(
        nowhere, theta, u, target, np.random.default_rng(0), tune=False
    )
    assert values is theta
    assert u_new is u
    assert target_new is target

    def bounded(v):  # no covariance above a variance of e
        model, log_rest = evaluate(v)
        return (model._replace(scale=-model.scale) if v[1] > 1.0 else model), log_rest

    theta = np.array([0.0, 0.9, 0.0])
    target = Augmentation(evaluate(theta)[0])
    path, *_ = walk(CollapsedSlices(3), bounded, target, u - target.lower, theta, 50, tune=False)
    assert path[:, 1].max() <= 1.0
    assert np.ptp(path[:, 1]) > 0.1
