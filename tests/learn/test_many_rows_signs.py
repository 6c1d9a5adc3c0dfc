"""Learning with f of finite rank and signs at pseudo-points, against matrices and differences."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from finite_rank_cases import assert_estimates, assert_gradient

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._learn.rows.data_kinds import blocks_of
from pymc_skewgp.approximations import HSGP, Inducing

N = 30
RNG = np.random.default_rng(4)
X = RNG.uniform(-1.0, 1.0, (N, 2))
NOISY = np.stack([np.sin(3.0 * X[:, 0]), X[:, 1], -X[:, 0]], axis=1) + RNG.normal(size=(N, 3))
PLACES = np.array([[0.3, 0.2], [-0.8, 0.5], [0.1, -0.7]])
CASES = {
    "labels": ((NOISY[:, 0] > 0).astype(int), None, [1.0, -1.0, 1.0]),
    "classes": (NOISY.argmax(axis=1), sg.likelihoods.MultinomialProbit(), "learnt"),
}


def training(case, approximation):
    y, likelihood, phase = CASES[case]
    with pm.Model():
        ls = pm.LogNormal("ls", 0.0, 0.5)
        places = pm.Normal("places", 0.0, 1.0, shape=(3, 2), initval=PLACES)
        gamma = pm.HalfNormal("gamma", 1.0, initval=0.3)
        if phase == "learnt":
            phase = 2 * pm.Bernoulli("positive", 0.5, shape=3) - 1
        gp = sg.SkewGP(
            cov_func=2.0**2 * pm.gp.cov.Matern52(2, ls=ls),
            mean_func=pm.gp.mean.Constant(pm.Normal("centre", 0.2, 1.0)),
            pseudo_points=places,
            phase=phase,
            truncation=gamma * np.array([1.0, 0.5, 0.0]),
            approximation=approximation,
        )
    return TrainingData(gp, X, y, likelihood)


def objectives(case, basis):
    data = training(case, Inducing(basis))
    found = process_objective(data, None, np.random.default_rng(0), None)
    rows = found.rows.objective.on(blocks_of(found.rows.kinds), basis)
    pattern = found.objective.coordinates.patterns(3)[-1]
    point = Point(found.origin, pattern)
    return found.objective.on([found.parts.arrays]), replace(rows, tolerance=1e-10), point


@pytest.mark.parametrize(
    "case", ["labels", pytest.param("classes", marks=pytest.mark.slow(ci=True))]
)
def test_value_and_gradient(case):
    everywhere = np.vstack([X, PLACES])
    exact, rows, point = objectives(case, everywhere)
    here, there = rows.by_ep(point), exact.by_ep(point)
    # EP of the exact objective stops at 1e-5 or so. It has the signs of three functions as one
    # rectangle in nine dimensions, whose 1024 draws are off by some 2e-3.
    assert here.total == pytest.approx(there.total, abs=2e-4 if case == "labels" else 6e-3)
    if case == "labels":
        assert_estimates(rows.estimate(point, 1024, 0), exact.estimate(point, 1024, 0))
    rows = rows.on(rows.rows.blocks, X[:8])  # features leave something, at the places too
    assert_gradient(rows, point, 1e-4)


def test_refusals():
    gp, *data = training("labels", HSGP([3, 3], 1.5))[:3]
    with pytest.raises(sg.ApproximationError, match="HSGP has no pseudo-points"):
        sg.find_hyperparameters(gp, *data)
    gp, *data, likelihood = training("classes", Inducing(5))[:4]
    with pytest.raises(sg.ApproximationError, match="pseudo-points, and coregion"):
        sg.find_hyperparameters(gp, *data, likelihood=likelihood, coregion=np.eye(3))
