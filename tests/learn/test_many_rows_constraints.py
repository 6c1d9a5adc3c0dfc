"""Learning with f of finite rank beside limits of f, against matrices and finite differences."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from finite_rank_cases import assert_estimates, assert_gradient

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._learn.rows.data_kinds import blocks_of, some_blocks
from pymc_skewgp.approximations import HSGP, Inducing

lk = sg.likelihoods
RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(0.0, 2.0, (24, 1)), axis=0)
Y = X[:, 0] ** 2 + 0.4 * RNG.normal(size=24)
AT = np.linspace(0.1, 1.9, 4)[:, None]
POINTS = np.linspace(-0.2, 2.2, 20)[:, None]
# A wide nugget, so that EP's steps and its differences do not end in round-off.
LIMITS = {
    "increasing": lambda: lk.Constraint.increasing(nugget=0.01),
    "bounds": lambda: lk.Constraint(lower=-0.5, upper=4.5, nugget=0.01),
    "learnt bound": lambda: lk.Constraint(lower=pm.Normal("low", -0.5, 1.0), nugget=0.01),
}


def training(limits, approximation):
    with pm.Model():
        ls, sd = pm.LogNormal("ls", 0.0, 0.5), pm.HalfNormal("sd", 3.0, initval=1.5)
        slope = pm.Normal("slope", 0.5, 1.0)
        gp = sg.SkewGP(
            cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=ls),
            mean_func=pm.gp.mean.Linear(slope),
            approximation=approximation,
        )
        kinds = {
            "values": (X, Y, lk.Gaussian(0.5)),
            "shape": (AT, None, LIMITS[limits]()),
        }
    return TrainingData(gp, kinds)


def objectives(limits):
    """In blocks, with matrices, and a point."""
    data = training(limits, Inducing(POINTS))
    found = process_objective(data, None, np.random.default_rng(0), None)
    kinds = found.rows.kinds
    few = some_blocks(kinds, 10, np.random.default_rng(0))
    assert [block.X.shape[0] for block in few] == [10, 4]  # limits stay all
    arrays = tuple(array for kind in kinds for array in kind.known.arrays)
    rows = replace(found.rows.objective.on(blocks_of(kinds), POINTS), tolerance=1e-9)
    return rows, found.objective.on([arrays]), Point(found.origin)


@pytest.mark.parametrize(
    "limits",
    [x if x == "increasing" else pytest.param(x, marks=pytest.mark.slow(ci=True)) for x in LIMITS],
)
def test_value_and_gradient(limits):
    """Twenty points carry the function: some 1e-4 of a nat are lost."""
    rows, exact, point = objectives(limits)
    found, there = rows.by_ep(point), exact.by_ep(point)
    assert found.total == pytest.approx(there.total, abs=2e-3)
    np.testing.assert_allclose(found.gradient, there.gradient, rtol=2e-2, atol=2e-2)
    rows = rows.on(rows.rows.blocks, POINTS[::4])  # features leave something
    assert_gradient(rows, point, 1e-4)


@pytest.mark.slow(ci=True)
def test_estimate_draws_limits_first():
    rows, exact, point = objectives("increasing")
    assert_estimates(rows.estimate(point, 1024, 0), exact.estimate(point, 1024, 0), 2e-3)


def test_refusals():
    with pytest.raises(sg.ApproximationError, match="HSGP has no derivatives"):
        sg.find_hyperparameters(*training("increasing", HSGP([5], 1.5))[:2])
    alone = training("increasing", Inducing(POINTS))
    with pytest.raises(sg.ApproximationError, match="constraints alone"):
        sg.find_hyperparameters(alone.model, {"shape": alone.X["shape"]})
