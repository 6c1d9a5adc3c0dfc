"""Hyperparameters moved with f integrated out, against closed forms and grids.

That the joint distribution is left alone is in `test_site_chain`.
"""

from dataclasses import replace

import numpy as np
from mcmc_models import Density, X, draw_prior, labelled, prior_at
from scipy.special import ndtr
from scipy.stats import kstest, norm

from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc import slices
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.site_chain import ConjugateSampler, IndependenceMove
from pymc_skewgp._mcmc.slices import HyperparameterMove

# Means and standard deviations of log lengthscale, log variance and slope of the mean.
CENTRE, SPREAD = np.array([0.0, 0.7, 0.2]), np.array([0.5, 0.6, 0.7])
N_TUNED = 100


def parameters(theta, s, sign):
    return labelled(prior_at(theta[2] * X, theta, s), None, np.full(X.size, -0.2), sign)


def density_of(s, sign):
    return Density(lambda theta: parameters(theta, s, sign), CENTRE, SPREAD)


class Changed:
    """Another density made from one by a function of theta and of what it has there."""

    def __init__(self, density, change):
        self.density, self.change = density, change

    def __call__(self, values):
        return self.change(self.density, values)


def draw_joint(s, rng):
    """Exact draw of theta, f and the signs of the labels."""
    theta = rng.normal(CENTRE, SPREAD)
    (f,) = draw_prior(prior_at(theta[2] * X, theta, s), 1, rng)
    return theta, f, np.where(rng.random(X.size) < ndtr(f - 0.2), 1.0, -1.0)


def test_tuned_chain_against_a_posterior_in_closed_form():
    """P(signs of three values) is 1/8 and the angles of their correlations over 4 pi (Sheppard)."""
    x, sign, centre, spread = X[[1, 3, 4]], np.array([1.0, -1.0, 1.0]), [0.5, 1.0], [1.0, 1.5]
    zero = np.zeros(3)
    density = Density(
        lambda v: labelled(prior_at(zero, v, 0, x), None, zero, sign), np.array(centre), spread
    )
    sampler = ConjugateSampler(lambda target: IndependenceMove(target, 4), 2)
    rng = np.random.default_rng(5)
    state, path = conjugate.init(zero, slices.init(np.array(centre))), []
    model = density(state.theta.values)[0]
    for i in range(N_TUNED + 1400):
        move = HyperparameterMove(density, i < N_TUNED)
        state, _ = sampler.step(state, model, rng, hyperparameters=move)
        model = state.model
        path.append(state.theta.values)
    grid = np.linspace(-5.0, 5.0, 201)
    pairs = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1) * spread + centre
    p = norm.pdf(grid)[:, None] * norm.pdf(grid)
    angles = 0.0
    for i, j in ((0, 1), (0, 2), (1, 2)):
        variance = np.exp(pairs[..., 1])
        cov = variance * np.exp(-0.5 * ((x[i] - x[j]) * np.exp(-pairs[..., 0])) ** 2)
        angles += np.arcsin(sign[i] * sign[j] * cov / (variance + 1.0 + 1e-4))
    p *= 0.125 + angles / (4.0 * np.pi)
    # Every fifth draw is nearly independent of the last; the grid is right to 1e-3 of its cells.
    for k in (0, 1):
        cdf = np.cumsum(p.sum(axis=1 - k))
        cdf = (cdf - 0.5 * p.sum(axis=1 - k)) / cdf[-1]
        drawn = (np.array(path)[N_TUNED::5, k] - centre[k]) / spread[k]
        assert kstest(np.interp(drawn, grid, cdf), "uniform").pvalue > 1e-5
        # It says something that the prior does not.
        assert np.abs(cdf - norm.cdf(grid)).max() > 0.05
    assert state.theta.learnt.n_sweeps == N_TUNED  # and nothing more after tuning


def walk(density, target, u, values, n, tune, seed=0):
    rng, path = np.random.default_rng(seed), []
    state, move = slices.init(values), HyperparameterMove(density, tune)
    for _ in range(n):
        state, at = move.sweep(state, u, target, rng)
        u, target = at.u, at.target
        path.append(state.values)
    return np.array(path), u, target, state


def start(s=1, seed=3):
    rng = np.random.default_rng(seed)
    theta, f, sign = draw_joint(s, rng)
    density = density_of(s, sign)
    target = Augmentation(density(theta)[0])
    return density, target, target.rows_given(f, rng)[0], theta


def test_axes_are_learnt_while_tuning_only():
    density, target, u, theta = start()
    *_, state = walk(density, target, u, theta, 30, tune=False)
    assert not state.learnt.is_known
    path, *_, state = walk(density, target, u, theta, 30, tune=True)
    np.testing.assert_allclose(state.learnt.mean, np.average(path, axis=0, weights=range(1, 31)))
    assert state.learnt.is_known


def test_of_many_hyperparameters_a_few_move_at_a_time():
    density, target, u, theta = start()

    def with_idle(inner, v):
        model, log_rest = inner(v[:3])
        return model, log_rest - 0.5 * float(v[3:] @ v[3:])

    values = np.concatenate([theta, np.zeros(20)])
    path, *_ = walk(Changed(density, with_idle), target, u, values, 1, tune=False)
    assert (path[0] != values).sum() == 8


def test_no_move_from_or_to_where_the_model_does_not_live():
    density, target, u, theta = start()
    nowhere = Changed(density, lambda inner, v: (inner(v)[0], -np.inf))
    state = slices.init(theta)
    same, at = HyperparameterMove(nowhere).sweep(state, u, target, np.random.default_rng(0))
    assert same is state
    assert at.u is u
    assert at.target is target

    def bounded(inner, v):  # no covariance above a variance of e
        model, log_rest = inner(v)
        prior = model.prior
        if v[1] > 1.0:
            prior = prior._replace(scale=-prior.scale)
        return model._replace(prior=prior), log_rest

    theta = np.array([0.0, 0.9, 0.0])
    moved = Augmentation(density(theta)[0])
    rows = u + target.mean
    path, *_ = walk(Changed(density, bounded), moved, rows - moved.mean, theta, 50, tune=False)
    assert path[:, 1].max() <= 1.0
    assert np.ptp(path[:, 1]) > 0.1


def test_limits_that_become_infinite_are_no_place_to_go():
    density, target, u, theta = start(s=0)

    def vanishing(inner, v):
        model, log_rest = inner(theta)
        if v[0] > 1.0:
            free = np.full(X.size, np.inf)
            model = model._replace(
                observations=replace(model.observations, lower=-free, upper=free)
            )
        return model, log_rest

    path, *_ = walk(Changed(density, vanishing), target, u, np.array([0.0]), 50, tune=True)
    assert path.max() <= 1.0
