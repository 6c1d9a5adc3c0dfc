"""Markov moves on f: do they leave the joint distribution of parameters, f and data alone?

Start from theta ~ grid prior, f ~ SUN(theta), y ~ probit(f): an exact draw of the joint
distribution. Right moves of f, and Gibbs draws of theta given f in between, lead to another. Every
functional then has the mean that it had, and its distribution is that of fresh draws. The first is
tested on paired differences, z < 4.5 (false alarms 7e-6 a functional), the second by
Kolmogorov-Smirnov, p > 1e-5; seeds are fixed.
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from mcmc_models import labelled
from oracles import probit_posterior_quadrature
from scipy.special import log_ndtr, ndtr
from scipy.stats import chisquare, ks_2samp

from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.site_chain import ConjugateSampler, ConjugateState, IndependenceMove
from pymc_skewgp._mcmc.slices import LinESSMove
from pymc_skewgp._sun.sun import SUN

SIGMAS = 4.5
P_VALUE = 1e-5
X = np.array([-1.6, -0.7, -0.1, 0.4, 1.1, 1.9])
KNOTS = np.array([-1.0, 0.8])
PHASE = np.array([1.0, -1.0])
TRUNCATION = np.array([0.2, 0.6])
# (lengthscale, variance, slope of the mean): equally likely a priori.
GRID = [(0.7, 1.5, -1.0), (0.7, 3.0, 0.0), (0.7, 1.5, 1.0)]
GRID += [(1.2, 3.0, -1.0), (1.2, 1.5, 0.0), (1.2, 3.0, 1.0)]
DESIGN = np.random.default_rng(5).normal(size=(5, X.size))


def rbf(a, b, theta):
    return theta[1] * np.exp(-0.5 * ((a[:, None] - b) / theta[0]) ** 2)


def prior(theta, s):
    """mu, Omega, C, gamma, Gamma of a SkewGP at X."""
    scale = rbf(X, X, theta) + 1e-6 * np.eye(X.size)
    to_unit = PHASE[:s] / np.sqrt(theta[1])
    latent_cov = to_unit[:, None] * rbf(KNOTS[:s], KNOTS[:s], theta) * to_unit
    return theta[2] * X, scale, rbf(X, KNOTS[:s], theta) * to_unit, TRUNCATION[:s], latent_cov


def draw_prior(theta, s, n, rng):
    """Draws of f by rejection: Gaussian pairs (x0, f), kept where x0 > -gamma."""
    mu, scale, cross, gamma, latent_cov = prior(theta, s)
    joint = np.block([[latent_cov, cross.T], [cross, scale]])
    root = np.linalg.cholesky(joint + 1e-12 * np.eye(len(joint)))
    pairs = rng.standard_normal((30 * n + 100, len(joint))) @ root.T
    return mu + pairs[(pairs[:, :s] > -gamma).all(axis=1), s:][:n]


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
    return np.array(
        [
            f[..., 0],
            f[..., -1],
            f.mean(axis=-1),
            f.max(axis=-1),
            (f**2).mean(axis=-1),
            f[..., 0] * f[..., 2],
            margin.mean(axis=-1),
            margin.min(axis=-1),
            log_ndtr(margin).sum(axis=-1),
        ]
    )


def independence(target):
    return IndependenceMove(target, 2)


def linear_slices(target):
    return LinESSMove(target, 3)


MOVES = {"independence": independence, "lin_ess": linear_slices}


class Stale(ConjugateSampler):
    """Wrong on purpose: the old u goes on under the new parameters."""

    def step(self, state, model, rng):
        if state.u is None:
            return super().step(state, model, rng)
        target = Augmentation(model)
        u = np.clip(state.u, target.lower + 1e-6, target.upper - 1e-6)
        u = self._make_move(target).walk(u, 1, rng, thin=self._n_steps).u[0]
        f = target.function_given(u[None], rng)[0]
        return ConjugateState(f, u, model), None


def assert_same_means(before, after):
    differences = after - before
    z = differences.mean(axis=1) / (differences.std(axis=1) / np.sqrt(differences.shape[1]))
    assert np.abs(z).max() < SIGMAS, z.round(1)


def assert_same_distributions(fresh, after):
    for a, b in zip(fresh, after, strict=True):
        assert ks_2samp(a, b).pvalue > P_VALUE


@pytest.mark.parametrize(("s", "design"), [(0, None), (1, None), (2, None), (1, DESIGN)])
@pytest.mark.parametrize("move", MOVES)
def test_moves_at_fixed_parameters(move, s, design):
    """The first step draws u from f, the later ones go on from their joint state, in blocks."""
    rng = np.random.default_rng(100 + s)
    theta, n = (1.0, 3.0, 0.3), 700
    f = draw_prior(theta, s, 3 * n, rng)
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


def gibbs(sampler_of, s, n, sweeps, seed):
    """Exact joint draws, and where `sweeps` of theta | f and f | theta, y lead them."""
    rng = np.random.default_rng(seed)
    densities = [SUN.from_cross_cov(*prior(theta, s)) for theta in GRID]
    pool = [draw_prior(theta, s, n, rng) for theta in GRID]
    start = rng.integers(len(GRID), size=n)
    f = np.array([pool[k][i] for i, k in enumerate(start)])
    sign = draw_labels(f, None, rng)
    models = [[parameters(theta, s, row, None) for theta in GRID] for row in sign]
    end, moved = start.copy(), f.copy()
    for i in range(n):
        sampler, state = sampler_of(), conjugate.init(f[i])
        for _ in range(sweeps):
            state, _ = sampler.step(state, models[i][end[i]], rng)
            log_p = np.array([d.logpdf(state.f) for d in densities])
            p = np.exp(log_p - log_p.max())
            end[i] = rng.choice(len(GRID), p=p / p.sum())
        moved[i] = state.f
    before, after = functionals(f, sign, None), functionals(moved, sign, None)
    return start, end, before, after


@pytest.mark.parametrize("s", [0, pytest.param(2, marks=pytest.mark.slow(ci=True))])
@pytest.mark.parametrize("move", MOVES)
def test_hyperparameters_that_move(move, s):
    """Ranks of theta stay uniform: chi-square at p = 1e-5; f given theta and y stays right."""
    make = lambda: ConjugateSampler(MOVES[move], 2)  # noqa: E731
    start, end, before, after = gibbs(make, s, 800 if s == 0 else 300, 3, seed=s)
    assert chisquare(np.bincount(end, minlength=len(GRID))).pvalue > P_VALUE
    assert_same_means(before, after)
    assert_same_distributions(before, after)
    # Functionals of theta with f: paired too.
    large, changed = np.array([theta[1] > 1 for theta in GRID]), start != end
    assert_same_means(before * large[start], after * large[end])
    assert 0.05 < changed.mean() < 0.95


@pytest.mark.slow(ci=True)
def test_a_stale_u_is_seen_by_the_same_test():
    """Keeping u across a change of hyperparameters is wrong, and these functionals show it."""
    *_, before, after = gibbs(lambda: Stale(linear_slices, 1), 0, 2000, 3, seed=1)
    with pytest.raises(AssertionError):
        assert_same_means(before, after)


def two_points():
    """A GP at two inputs: parameters, and its posterior by quadrature."""
    scale, mu, y = np.array([[2.0, 1.2], [1.2, 1.5]]), np.array([0.3, -0.4]), np.array([1, 0])
    none = np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0))
    model = labelled((mu, scale, *none), None, np.zeros(2), 2.0 * y - 1.0)
    return model, probit_posterior_quadrature(scale, y, mu)


@pytest.mark.parametrize("move", MOVES)
def test_long_run_moments_against_quadrature(move):
    """4.5 standard errors by 50 batch means of 400 draws each, long against the autocorrelation."""
    model, exact = two_points()
    sampler, rng = ConjugateSampler(MOVES[move], 2), np.random.default_rng(0)
    state, draws = conjugate.init(model.prior.mu), np.empty((20_000, 2))
    for i in range(len(draws)):
        state, _ = sampler.step(state, model, rng)
        draws[i] = state.f
    off = draws - exact.mean
    statistics = np.column_stack([off, off**2, off.prod(axis=1), off**3])
    third = exact.skewness * exact.cov.diagonal() ** 1.5
    expected = np.concatenate([[0.0, 0.0], exact.cov.diagonal(), [exact.cov[0, 1]], third])
    batches = statistics.reshape(50, 400, -1).mean(axis=1)
    z = (batches.mean(axis=0) - expected) / (batches.std(axis=0, ddof=1) / np.sqrt(50))
    assert np.abs(z).max() < SIGMAS, z.round(1)


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


def test_a_new_chain_of_equal_parameters_keeps_what_they_decide(monkeypatch):
    model, _ = two_points()
    sampler, made = ConjugateSampler(independence, 2, fixed=True), []
    run(sampler, model, 3)
    original = Augmentation.__init__
    monkeypatch.setattr(
        Augmentation, "__init__", lambda self, m: (made.append(m), original(self, m))[1]
    )
    sampler.forget()
    run(sampler, with_offset(model, np.zeros(2)), 3)
    assert not made
    sampler.forget()
    run(sampler, with_offset(model, np.ones(2)), 3)
    assert len(made) == 1


def test_what_a_step_reports():
    model, _ = two_points()
    _, infos, _ = run(ConjugateSampler(independence, 2), model, 10)
    assert infos[0].stats.keys() == {"accept", "log_weight", "relative_ess"}
    assert 0.9 < np.mean([info.stats["accept"] for info in infos]) <= 1.0
    _, infos, _ = run(ConjugateSampler(linear_slices, 3), model, 10)
    assert infos[0].stats.keys() == {"arc_length", "n_active"}
    assert all(0 < info.stats["arc_length"] <= 2 * np.pi for info in infos)


def test_no_more_states_than_calls_to_come(monkeypatch):
    """The last block of a chain is no longer than what is left of it."""
    model, _ = two_points()
    sampler, rng, asked = ConjugateSampler(independence, 2), np.random.default_rng(0), []
    original = Augmentation.function_given
    monkeypatch.setattr(
        Augmentation,
        "function_given",
        lambda self, u, rng: (asked.append(len(u)), original(self, u, rng))[1],
    )
    state = conjugate.init(model.prior.mu)
    for left in range(100, 0, -1):
        state, _ = sampler.step(state, model, rng, most=left)
    assert asked == [1, 4, 64, 31]


def test_several_sweeps_a_step():
    """Each draws u from f: with no move of u at all, the plain data augmentation."""
    model, exact = two_points()
    draws, *_ = run(ConjugateSampler(linear_slices, 1, n_sweeps=3), model, 3000)
    np.testing.assert_allclose(draws.mean(axis=0), exact.mean, atol=0.15)


def test_hard_weights_ask_for_more_proposals_and_stay_right():
    """A steep case, where EP's Gaussian is far off: n = 12, variance 400, one class but one."""
    n = 12
    scale = 400.0 * np.exp(-0.5 * (np.arange(n)[:, None] - np.arange(n)) ** 2 / 9) + np.eye(n)
    none = np.zeros((n, 0)), np.zeros(0), np.zeros((0, 0))
    sign = np.where(np.arange(n) == 5, -1.0, 1.0)
    model = labelled((np.zeros(n), scale, *none), None, np.zeros(n), sign)
    move = IndependenceMove(Augmentation(model), 16)
    assert 1 < move.adapt() <= 16


def test_rows_that_do_not_exist():
    """No labels, no latent dimension: independent draws of the prior."""
    n = 3
    none = np.zeros((n, 0)), np.zeros(0), np.zeros((0, 0))
    model = labelled((np.zeros(n), np.eye(n), *none), np.empty((0, n)), np.empty(0), [])
    draws, infos, _ = run(ConjugateSampler(independence, 2), model, 2000)
    assert infos[-1].stats == {}
    np.testing.assert_allclose(np.cov(draws.T), np.eye(n), atol=0.15)  # 4.5 errors sqrt(2/2000)
