"""Markov moves on f: do they leave the joint distribution of f and data alone?

Start from f ~ SUN(theta), y ~ probit(f): an exact draw of the joint distribution. Right moves of f
lead to another. Every functional then has the mean that it had, and its distribution is that of
fresh draws. The first is tested on paired differences, z < 4.5 (false alarms 7e-6 a functional),
the second by Kolmogorov-Smirnov, p > 1e-5; seeds are fixed.
"""

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from mcmc_models import Density, X, draw_prior, labelled, normal_prior, prior_at
from oracles import ou_probit_marginals, probit_posterior_quadrature
from scipy.special import log_ndtr, ndtr
from scipy.stats import ks_2samp, kstest, multivariate_normal, norm

from pymc_skewgp._gaussian.escalation import Rung, SamplerSettings
from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc import slices
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.site_chain import ConjugateSampler, ConjugateState, IndependenceMove
from pymc_skewgp._mcmc.slices import HyperparameterMove, LinESSMove

SIGMAS = 4.5
P_VALUE = 1e-5
DESIGN = np.random.default_rng(5).normal(size=(5, X.size))


def prior(theta, s):
    return prior_at(theta[2] * X, theta, s)


def predictor(f, design):
    return f - 0.2 if design is None else f @ design.T - 0.2


def draw_labels(f, design, rng):
    return np.where(rng.random(predictor(f, design).shape) < ndtr(predictor(f, design)), 1.0, -1.0)


def parameters(theta, s, sign, design):
    offset = np.full(sign.size, -0.2)
    return labelled(prior(theta, s), design, offset, sign)


def functionals(f, sign, design):
    """Of f alone and, where the moves could go wrong most, of f with its labels."""
    margin = sign * predictor(f, design)
    of_f = [f[..., 0], f[..., -1], f.mean(axis=-1), f.max(axis=-1), (f**2).mean(axis=-1)]
    of_margin = [margin.mean(axis=-1), margin.min(axis=-1), log_ndtr(margin).sum(axis=-1)]
    return np.array([*of_f, f[..., 0] * f[..., 2], *of_margin])


MOVES = {
    "independence": partial(IndependenceMove, n_proposals=2),
    "lin_ess": partial(LinESSMove, n_steps=3),
}


def assert_same_means(before, after):
    differences = after - before
    z = differences.mean(axis=1) / (differences.std(axis=1) / np.sqrt(differences.shape[1]))
    assert np.abs(z).max() < SIGMAS, z.round(1)


def assert_same_distributions(fresh, after):
    for a, b in zip(fresh, after, strict=True):
        assert ks_2samp(a, b).pvalue > P_VALUE


@pytest.mark.parametrize(
    ("move", "s", "design"), [("independence", 1, DESIGN), ("lin_ess", 2, None)]
)
def test_moves_at_fixed_parameters(move, s, design):
    """The first step draws u from f, the later ones go on from their joint state, in blocks."""
    rng = np.random.default_rng(100 + s)
    theta, n = (0.0, np.log(3.0), 0.3), 500
    f = draw_prior(prior(theta, s), 3 * n, rng)
    sign = draw_labels(f, design, rng)
    before = functionals(f[:n], sign[:n], design)
    first, last = np.empty((2, n, X.size))
    for i in range(n):
        sampler = ConjugateSampler(MOVES[move], 2)
        model = parameters(theta, s, sign[i], design)
        state, _ = sampler.step(conjugate.init(f[i]), model, rng)
        first[i] = state.f
        for _ in range(2):
            state, _ = sampler.step(state, model, rng, most=2)
        last[i] = state.f
    for f_new in (first, last):
        after = functionals(f_new, sign[:n], design)
        assert_same_means(before, after)
        assert_same_distributions(functionals(f[n:], sign[n:], design), after)
    assert np.abs(last - f[:n]).mean() > 0.3  # they do move


def two_points():
    """A GP at two inputs: parameters, and its posterior by quadrature."""
    scale, mu, y = np.array([[2.0, 1.2], [1.2, 1.5]]), np.array([0.3, -0.4]), np.array([1, 0])
    model = labelled(normal_prior(mu, scale), None, np.zeros(2), 2.0 * y - 1.0)
    return model, probit_posterior_quadrature(scale, y, mu)


def run(sampler, model, n, seed=0, state=None):
    rng = np.random.default_rng(seed)
    state, draws, infos = conjugate.init(model.prior.mu) if state is None else state, [], []
    for _ in range(n):
        state, info = sampler.step(state, model, rng)
        draws.append(state.f)
        infos.append(info)
    return np.array(draws), infos, state


def with_offset(model, a):
    return model._replace(observations=replace(model.observations, a=a))


@pytest.mark.parametrize("move", MOVES)
def test_u_is_refreshed_when_anything_has_changed_and_only_then(move):
    model, _ = two_points()
    sampler, rng = ConjugateSampler(MOVES[move], 2), np.random.default_rng(1)
    _, infos, state = run(sampler, model, 5)
    assert [info.refreshed for info in infos] == [True, False, False, False, False]
    state, info = sampler.step(state, model, rng)
    assert not info.refreshed
    state, info = sampler.step(conjugate.init(state.f + 1.0), model, rng)
    assert info.refreshed
    state, info = sampler.step(state, model, rng)
    assert not info.refreshed
    state, info = sampler.step(state, with_offset(model, np.ones(2)), rng)
    assert info.refreshed
    sampler.forget()
    assert run(sampler, model, 1)[1][0].refreshed


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("move", MOVES)
def test_equal_seeds_and_pickling_give_equal_draws(move, fixed):
    model, _ = two_points()
    one, *_ = run(ConjugateSampler(MOVES[move], 2, fixed=fixed), model, 40)
    other, *_ = run(ConjugateSampler(MOVES[move], 2, fixed=fixed), model, 40)
    np.testing.assert_array_equal(one, other)
    sampler = ConjugateSampler(MOVES[move], 2, fixed=fixed)
    *_, state = run(sampler, model, 40)
    # Together: that the model is the same object says that nothing has changed.
    copied, same_model, same_state = pickle.loads(pickle.dumps((sampler, model, state)))
    expected, *_ = run(sampler, model, 40, 1, state)
    np.testing.assert_array_equal(run(copied, same_model, 40, 1, same_state)[0], expected)


@pytest.mark.parametrize("move", MOVES)
def test_the_state_is_all_that_a_step_depends_on(move):
    """From a state of long ago too, whatever the sampler has made in advance since."""
    model, _ = two_points()
    sampler = ConjugateSampler(MOVES[move], 2, fixed=True)
    *_, state = run(sampler, model, 3)
    first, *_ = run(sampler, model, 5, 7, state)
    run(sampler, model, 20)
    again, infos, _ = run(sampler, model, 5, 7, ConjugateState(*state))
    assert not infos[0].refreshed
    fresh = ConjugateSampler(MOVES[move], 2, fixed=True)
    afresh, *_ = run(fresh, model, 5, 7, state)
    np.testing.assert_array_equal(again, afresh)
    assert first.shape == again.shape


def test_poor_proposals_are_refused_as_often_as_they_should():
    """A third of them. Without refusals means would be .15 deviations off.

    1500 draws, of which two thirds count: root mean square z over 30 inputs, correlated, of some 8
    degrees; 1.8 has probability 1e-3.
    """
    rng = np.random.default_rng(14)
    x = rng.uniform(0.0, 6.0, 30)
    y = (rng.random(30) < ndtr(2.0 * np.sin(x))).astype(int)
    scale = 16.0 * np.exp(-np.abs(x[:, None] - x) / 3.0)
    model = labelled(normal_prior(np.zeros(30), scale), None, np.zeros(30), 2.0 * y - 1.0)
    settings = SamplerSettings(move_rungs=(Rung(0.35),))
    move = partial(IndependenceMove, n_proposals=4, settings=settings)
    draws, infos, _ = run(ConjugateSampler(move, 4), model, 1500)
    assert np.mean([info.stats["accept"] for info in infos]) < 0.8
    truth = ou_probit_marginals(x, y, 3.0, 16.0)
    z = (draws.mean(axis=0) - truth.mean) / np.sqrt(truth.variance / 1000)
    assert np.sqrt(np.mean(z**2)) < 1.8


def test_rows_that_do_not_exist():
    """No labels, no latent dimension: independent draws of the prior."""
    n = 3
    model = labelled(normal_prior(np.zeros(n), np.eye(n)), np.empty((0, n)), np.empty(0), [])
    draws, infos, _ = run(ConjugateSampler(MOVES["independence"], 2), model, 2000)
    assert infos[-1].stats == {}
    np.testing.assert_allclose(np.cov(draws.T), np.eye(n), atol=0.15)  # 4.5 errors sqrt(2/2000)


# Hyperparameters moved with f integrated out, against closed forms and grids.
#
# That the joint distribution is left alone is in `test_site_chain`.


# Means and standard deviations of log lengthscale, log variance and slope of the mean.
CENTRE, SPREAD = np.array([0.0, 0.7, 0.2]), np.array([0.5, 0.6, 0.7])
N_TUNED = 100


def parameters_slices(theta, s, sign):
    return labelled(prior_at(theta[2] * X, theta, s), None, np.full(X.size, -0.2), sign)


def density_of(s, sign):
    return Density(lambda theta: parameters_slices(theta, s, sign), CENTRE, SPREAD)


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
    for i in range(N_TUNED + 900):
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


def test_slices_against_a_grid():
    """p(theta | u) on a grid of one coordinate, the others fixed, normal density by numpy alone."""
    density, target, u, theta = start()
    along = Changed(density, lambda inner, v: inner(np.array([v[0], *theta[1:]])))
    bounded = np.where(np.isfinite(target.lower), target.lower, target.upper)
    rows = u - bounded
    path, u_end, target_end, _ = walk(along, target, u, theta[:1], 600, tune=True)
    bounded = np.where(np.isfinite(target_end.lower), target_end.lower, target_end.upper)
    np.testing.assert_allclose(u_end - bounded, rows, rtol=1e-12)
    grid = np.linspace(-2.5, 2.5, 400)
    log_p = []
    for value in grid:
        model, log_rest = density(np.array([value, *theta[1:]]))
        other = Augmentation(model)
        bounded = np.where(np.isfinite(other.lower), other.lower, other.upper)
        log_p.append(log_rest + multivariate_normal.logpdf(bounded + rows, cov=other.cov.matrix))
    p = np.exp(np.array(log_p) - max(log_p))
    cdf = np.cumsum(p) / p.sum()
    # Slices of a unimodal density leave little correlation: every fourth draw, p = 1e-5.
    uniform = np.interp(path[::4, 0], grid, cdf)
    assert kstest(uniform, "uniform").pvalue > 1e-5


def test_sweeps_of_slices_keep_an_exponential_density():
    """While widths are learnt and after: under its square, say, the mean would be a half."""

    def locate(x):
        return slices.Place(x, -x[0] if x[0] >= 0.0 else -np.inf)

    rng, state = np.random.default_rng(0), slices.init(np.ones(1))
    here = locate(state.values)
    for tune in (True, False):
        move, path = slices.SliceMove(locate, tune), []
        for _ in range(3000):
            here, state = move.sweep(here, state, rng)
            path.append(here.values[0])
        # One in ten is nearly independent of the last.
        assert kstest(path[::10], "expon").pvalue > 1e-5


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
