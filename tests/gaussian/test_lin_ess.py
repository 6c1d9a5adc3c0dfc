"""Layers: the arcs of one ellipse, the chain's bookkeeping, the law of the draws, the inputs.

Stochastic tests: a draw of lin-ess is correlated with the one before, so Monte Carlo errors come
from the spread between 64 independent chains. Each statistic has to be within 5 standard errors;
for a Student t with 63 degrees of freedom that is a false-alarm rate of 5e-6 a statistic, below
3e-4 for the whole file, and the seeds are fixed.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pymc_skewgp._errors import StuckChainWarning
from pymc_skewgp._gaussian import lin_ess as module
from pymc_skewgp._gaussian.lin_ess import general_arcs, lin_ess

N_CHAINS, BURN = 64, 100
SIGMAS = 5.0


def assert_expectation(per_chain, exact):
    """`per_chain` (chains, ...) averages of independent chains agree with `exact`."""
    error = per_chain.std(axis=0, ddof=1) / np.sqrt(per_chain.shape[0])
    np.testing.assert_array_less(np.abs(per_chain.mean(axis=0) - exact), SIGMAS * error)


def arcs_of(value, direction, low, high):
    m = len(value)
    start, end = np.empty(2 * m + 1), np.empty(2 * m + 1)
    gaps, n_active = general_arcs(value, direction, low, high, start, end)
    return start[:gaps], end[:gaps], n_active


# --- the arcs -----------------------------------------------------------------------------------


@st.composite
def ellipses(draw):
    """A feasible value, a direction and thresholds; one-, two- and no-sided rows of all widths."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.integers(1, 60))
    width = 10.0 ** draw(st.integers(-3, 1))
    kinds = draw(st.sampled_from(["lower", "upper", "both", "mixed"]))
    value, direction = rng.normal(size=m), rng.normal(size=m)
    low = value - width * rng.exponential(size=m)
    high = value + width * rng.exponential(size=m)
    if kinds == "lower":
        high[:] = np.inf
    elif kinds == "upper":
        low[:] = -np.inf
    elif kinds == "mixed":
        low[rng.random(m) < 0.5] = -np.inf
        high[rng.random(m) < 0.5] = np.inf
    return value, direction, low, high


@settings(max_examples=300, deadline=None)
@given(ellipses())
def test_arcs_agree_with_the_constraints_on_a_grid_of_angles(ellipse):
    value, direction, low, high = ellipse
    start, end, n_active = arcs_of(*ellipse)
    assert (start < end).all()
    assert (end[:-1] <= start[1:]).all()
    inner = np.linspace(-1, 1, 201) * 10.0 ** np.arange(-4, 1)[:, None]
    angle = np.concatenate([np.linspace(-np.pi, np.pi, 2001), inner.ravel()])
    point = np.outer(np.cos(angle), value) + np.outer(np.sin(angle), direction)
    faces = np.concatenate([point - low, high - point], axis=1)
    slack = faces.min(axis=1)
    inside = ((angle[:, None] >= start) & (angle[:, None] <= end)).any(axis=1)
    # A point this close to a face may be on either side by round-off: 1e4 eps at values of size 10.
    clear = np.abs(slack) > 1e-11
    np.testing.assert_array_equal(inside[clear], slack[clear] > 0)
    # A face that the grid saw cross is active; one whose amplitude cannot reach it is not.
    radius = np.hypot(value, direction)
    assert n_active >= ((faces < -1e-11).any(axis=0)).sum()
    assert n_active <= (low > -radius).sum() + (high < radius).sum()


# --- the chain's bookkeeping --------------------------------------------------------------------


def random_factor(rng, size):
    return np.linalg.cholesky(np.eye(size) + np.cov(rng.normal(size=(size, 2 * size))))


@pytest.mark.parametrize("n_chains", [1, 3, 400])
def test_thinning_selects_from_the_same_chain(n_chains):
    # 400 chains make blocks of two steps, so the selection crosses many of them.
    rng = np.random.default_rng(1)
    factor, start = random_factor(rng, 4), np.ones((n_chains, 4))
    every = lin_ess(factor, start, 0.0, n_draws=33, random_seed=2)
    some = lin_ess(factor, start, 0.0, n_draws=11, thin=3, random_seed=2)
    for all_steps, kept in zip(every, some, strict=True):
        np.testing.assert_array_equal(kept, all_steps[:, 2::3])


# --- strict feasibility -------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1.0, 1e-4, 1e-8])
def test_every_draw_of_a_tight_rectangle_is_strictly_inside(width):
    rng = np.random.default_rng(6)
    low = 0.5 * rng.normal(size=10)
    high = low + width
    start = (low + high)[None] / 2
    result = lin_ess(random_factor(rng, 10), start, low, high, n_draws=20_000, random_seed=7)
    assert (result.draws > low).all()
    assert (result.draws < high).all()
    assert (result.arc_length > 0).all()
    # It moves over the whole rectangle, not in a corner of it: each coordinate covers 3/4.
    assert (np.ptp(result.draws[0], axis=0) > 0.75 * width).all()


def test_steps_that_cannot_move_are_counted_and_warned_of(monkeypatch):
    # Limits that no state on any ellipse meets stand in for round-off, which hardly ever does it.
    monkeypatch.setattr(module, "_check_inside", lambda *_: None)
    start = np.ones((2, 2))
    with pytest.warns(StuckChainWarning, match=r"20 of 20 lin-ess steps stayed"):
        result = module.lin_ess(np.eye(2), start, 1e6, 2e6, n_draws=10, random_seed=0)
    assert (result.draws == 1.0).all()
    assert (result.arc_length == 0.0).all()


# --- the law of the draws -----------------------------------------------------------------------


def test_two_dimensional_rectangle_has_the_moments_of_quadrature():
    low, high = np.array([-0.5, -np.inf]), np.array([1.5, 1.0])
    mean, cov = np.array([0.4, -0.2]), np.array([[1.5, -0.6], [-0.6, 0.8]])
    start = np.tile(-mean, (N_CHAINS, 1))
    result = lin_ess(
        np.linalg.cholesky(cov), start, low - mean, high - mean,
        n_draws=BURN + 2000, random_seed=11,
    )  # fmt: skip
    draws = result.draws[:, BURN:] + mean
    # Gauss-Legendre, exact to round-off for a density that is smooth inside; nine deviations down.
    node, weight = np.polynomial.legendre.leggauss(120)
    ends = np.stack([np.maximum(low, -8.0), high])
    axes = ends[0] + 0.5 * (ends[1] - ends[0]) * (node[:, None] + 1.0)
    points = np.stack(np.meshgrid(*axes.T, indexing="ij"), axis=-1)
    mass = stats.multivariate_normal(mean, cov).pdf(points) * np.outer(weight, weight)
    mass /= mass.sum()
    second = np.einsum("cdk,cdl->ckl", draws, draws) / draws.shape[1]
    assert_expectation(draws.mean(axis=1), np.einsum("ij,ijk->k", mass, points))
    assert_expectation(second, np.einsum("ij,ijk,ijl->kl", mass, points, points))
