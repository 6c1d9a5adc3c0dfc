"""Learning with f of finite rank from rows that share noise or are about several functions.

The judges are matrices of all rows, and finite differences.
"""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from finite_rank_cases import assert_estimates, assert_gradient

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._learn.rows import data_kinds
from pymc_skewgp._learn.rows.data_kinds import blocks_of, some_blocks
from pymc_skewgp.approximations import Inducing

lk = sg.likelihoods
N = 36
RNG = np.random.default_rng(5)
X = RNG.uniform(-1.0, 1.0, (N, 2))
F = np.stack([np.sin(3.0 * X[:, 0]), X[:, 1], -X[:, 0]], axis=1)
NOISY = F + RNG.normal(size=F.shape)
CLASSES = NOISY.argmax(axis=1)
SELECTED = np.where(NOISY[:, 1] > 0, F[:, 0] + 0.4 * NOISY[:, 2], np.nan)
APART = RNG.permutation(N).reshape(-1, 3)
SHARED = np.array([RNG.choice(N, 3, replace=False) for _ in range(14)])
OF_FOUR = RNG.permutation(N).reshape(-1, 4)


def half_normal(name, at):
    return pm.HalfNormal(name, 2.0, initval=at)


def ranked(items):
    """The best first."""
    order = np.argsort(-NOISY[items, 0], axis=1)
    return np.take_along_axis(items, order, axis=1)


def unequal(choices):
    """Sets of two items among those of three."""
    y = ranked(choices)
    y[::3, 2] = -1
    return y


def selection():
    rho = pm.Uniform("rho", -1.0, 1.0, initval=0.3)
    return lk.Selection(half_normal("sigma", 0.5), rho)


def learnt_coregion():
    a = half_normal("a", 1.2)
    return pm.math.stack([pm.math.stack([a**2 + 0.3, 0.4 * a]), pm.math.stack([0.4 * a, 1.0])])


def none():
    return None


THREE = [[1.0, 0.3, 0.2], [0.3, 1.5, -0.2], [0.2, -0.2, 0.8]]
# For each: data, the likelihood and the covariance of functions, made inside of a model.
CASES = {
    "classes": (CLASSES, lk.MultinomialProbit, none),
    "classes of one noise": (CLASSES, lambda: lk.MultinomialProbit(noise_cov=THREE), none),
    "two classes": ((CLASSES > 0).astype(int), lk.MultinomialProbit, none),
    "dependent classes": (CLASSES, lk.MultinomialProbit, lambda: THREE),
    "selection": (SELECTED, selection, learnt_coregion),
    "choices": (unequal(APART), lambda: lk.Choice(half_normal("sigma", 0.7)), none),
    "choices that share items": (ranked(SHARED), lambda: lk.Choice(0.7), none),
    "rankings": (ranked(OF_FOUR), lambda: lk.Ranking(half_normal("sigma", 0.7)), none),
}


def objectives(case, basis):
    """With matrices, in blocks, and a point."""
    y, make, between = CASES[case]
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 1, shape=2, initval=[0.8, 1.2])
        sd, centre = half_normal("sd", 1.5), pm.Normal("centre", 0.3, 1.0)
        gp = sg.SkewGP(
            cov_func=sd**2 * pm.gp.cov.Matern52(2, ls=ls),
            mean_func=pm.gp.mean.Constant(centre),
            approximation=Inducing(basis),
        )
        data = TrainingData(gp, X, y, make(), between())
    found = process_objective(data, None, np.random.default_rng(0), None)
    assert found.rows is not None
    blocks = blocks_of(found.rows.kinds)
    assert len(blocks) > 2
    # EP to round-off: differences are to see the gradient alone.
    rows = replace(found.rows.objective.on(blocks, basis), tolerance=1e-10)
    return found.objective.on([found.parts.arrays]), rows, Point(found.origin)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Of 12 rows."""
    monkeypatch.setattr(data_kinds, "ROWS_IN_BLOCK", 12)


# Groups about one input, with points, and about several inputs; the others take longer.
QUICK = ("classes", "selection", "rankings")


@pytest.mark.parametrize(
    "case",
    [x if x in QUICK else pytest.param(x, marks=pytest.mark.slow(ci=True)) for x in CASES],
)
def test_value_and_gradient(case):
    exact, rows, point = objectives(case, X)
    here, there = rows.by_ep(point), exact.by_ep(point)
    # EP of the exact objective stops at 1e-5 or so.
    assert here.total == pytest.approx(there.total, abs=1e-4)
    np.testing.assert_allclose(here.gradient, there.gradient, rtol=2e-3, atol=2e-3)
    rows = rows.on(rows.rows.blocks, X[:12])  # features leave something
    assert_gradient(rows, point, 1e-5)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("case", ["classes", "selection"])
def test_estimate_is_exact(case):
    exact, rows, point = objectives(case, X)
    assert_estimates(rows.estimate(point, 1024, 0), exact.estimate(point, 1024, 0))


def evidence(training, basis=X):
    """In blocks, at the point where a search would start."""
    found = process_objective(training, None, np.random.default_rng(0), None)
    rows = replace(found.rows.objective.on(blocks_of(found.rows.kinds), basis), tolerance=1e-10)
    return rows.by_ep(Point(found.origin)), found


def scaled(approximation):
    with pm.Model():
        kernel = half_normal("sd", 1.5) ** 2 * pm.gp.cov.ExpQuad(2, ls=0.8)
        return sg.SkewGP(cov_func=kernel, approximation=approximation)


def test_several_kinds():
    """Labels of the first of the functions of classes."""
    labels = (NOISY[:, 0] > 0).astype(int)
    kinds = [(X, CLASSES, lk.MultinomialProbit()), (X[::2], labels[::2], lk.BernoulliProbit())]
    own, found = evidence(TrainingData(scaled(Inducing(X)), kinds, coregion=THREE))
    arrays = tuple(array for kind in found.rows.kinds for array in kind.known.arrays)
    exact = found.objective.on([arrays]).by_ep(Point(found.origin))
    assert own.total == pytest.approx(exact.total, abs=1e-4)
    np.testing.assert_allclose(own.gradient, exact.gradient, rtol=2e-3, atol=2e-3)
    some = some_blocks(found.rows.kinds, 18, np.random.default_rng(0))
    assert sum(block.X.shape[0] for block in some) == 18


@pytest.mark.slow(ci=True)
def test_weights_are_repeated_observations():
    weights = RNG.integers(0, 3, len(APART))
    once = TrainingData(scaled(Inducing(X)), X, ranked(APART), lk.Choice(0.7), weights=weights)
    often = once._replace(y=np.repeat(ranked(APART), weights, axis=0), weights=None)
    here, there = evidence(once)[0], evidence(often)[0]
    assert here.total == pytest.approx(there.total, abs=1e-9)
    np.testing.assert_allclose(here.gradient, there.gradient, rtol=1e-6)
