"""Learning with f of finite rank under other likelihoods, against matrices and differences."""

from copy import copy
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from finite_rank_cases import assert_estimates
from pymc.distributions.transforms import ordered
from scipy.special import expit

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._learn.rows import data_kinds
from pymc_skewgp._learn.rows.data_kinds import blocks_of
from pymc_skewgp.approximations import HSGP, Inducing, PivotedCholesky

lk = sg.likelihoods
N = 40
RNG = np.random.default_rng(11)
X = RNG.uniform(-1.0, 1.0, (N, 2))
F = np.sin(3.0 * X[:, 0]) + X[:, 1]
VALUES = F + 0.5 * RNG.normal(size=N)
LEVELS = np.digitize(VALUES, [-0.7, 0.6])
POISSON = RNG.poisson(np.exp(F))
COUNTS = RNG.negative_binomial(3.0, 3.0 / (3.0 + np.exp(F + 1.0)))
HEAVY = F + 0.3 * RNG.standard_t(4, size=N)
TRIALS = RNG.binomial(5, expit(F))
PAIRS = RNG.permutation(N).reshape(-1, 2)
MANY_PAIRS = np.array([RNG.choice(N, 2, replace=False) for _ in range(50)])


def half_normal(name, at):
    return pm.HalfNormal(name, 2.0, initval=at)


def cutpoints():
    return pm.Normal("cutpoints", 0.0, 5.0, shape=2, transform=ordered, initval=[-0.7, 0.6])


def duels(pairs):
    """The winner first, some ties."""
    gap = VALUES[pairs[:, 0]] - VALUES[pairs[:, 1]]
    won = np.where(gap[:, None] > 0, pairs, pairs[:, ::-1])
    return np.column_stack([won, np.abs(gap) < 0.3])


def preference():
    return lk.Preference(half_normal("sigma", 0.5), threshold=half_normal("threshold", 0.3))


def censored():
    lower = pm.Normal("lower", -0.8, initval=-0.8)
    return lk.CensoredGaussian(half_normal("sigma", 0.5), lower=lower)


def any_pymc():
    alpha = half_normal("alpha", 2.0)
    return lambda eta: pm.NegativeBinomial.dist(pm.math.exp(eta), alpha)


def any_of_rows():
    """With a constant for each row: no part of the data is known by itself."""
    exposure = np.linspace(0.5, 2.0, N)
    return lambda eta: pm.Poisson.dist(exposure * pm.math.exp(eta))


# For each: data, and the likelihood, made inside of a model.
CASES = {
    "exposures": (POISSON, lambda: lk.Poisson(np.linspace(0.5, 2.0, N))),
    "negative binomial": (COUNTS, lambda: lk.NegativeBinomial(half_normal("alpha", 2.0))),
    "not log-concave": (HEAVY, lambda: lk.StudentT(4.0, half_normal("sigma", 0.5))),
    "any": (COUNTS, any_pymc),
    "any of all rows": (POISSON, any_of_rows),
    "ordinal": (LEVELS, lambda: lk.OrderedProbit(cutpoints())),
    "censored": (np.where(VALUES < -0.6, -np.inf, VALUES), censored),
    "duels": (duels(PAIRS), preference),
    "duels that share items": (duels(MANY_PAIRS), preference),
    "trials": (TRIALS, lambda: lk.BinomialProbit(5)),
}


def training(case, approximation):
    """A SkewGP with what can be learnt of it, and data with their likelihood."""
    y, made = CASES[case]
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 1, shape=2, initval=[0.8, 1.2])
        # Not Gaussian: of a Gaussian one the exact search would integrate out what rows learn.
        sd, centre = pm.HalfNormal("sd", 2.0, initval=1.2), pm.Logistic("centre", 0.0, 0.6)
        mean = pm.gp.mean.Constant(centre)
        kernel = sd**2 * pm.gp.cov.Matern52(2, ls=ls)
        gp = sg.SkewGP(cov_func=kernel, mean_func=mean, approximation=approximation)
        return TrainingData(gp, X, y, made())


def objectives(data):
    """That of matrices of all rows, that of blocks, and where to start."""
    found = process_objective(data, None, np.random.default_rng(0), None)
    point = Point(found.origin)
    rows = found.rows.objective.on(blocks_of(found.rows.kinds), found.rows.basis(point))
    exact = None
    if found.parts is not None:
        exact = found.objective.on([found.parts.arrays])
    # EP to round-off: differences are to see the gradient alone.
    return exact, replace(rows, tolerance=1e-9), point


def agrees_with_differences(rows, point):
    """Third derivatives times the squared step of 1e-3, over values of some ten nats: 1e-5."""
    step = 1e-3 * np.random.default_rng(1).normal(size=point.x.size)
    ahead, behind = (rows.by_ep(point.at(point.x + sign * step)).total for sign in (1, -1))
    found = rows.by_ep(point).gradient
    assert found @ step == pytest.approx((ahead - behind) / 2, rel=1e-4, abs=1e-7)


def agrees_with_matrices(rows, exact, point):
    """EP of matrices stops some 1e-4 from its fixed point."""
    found, wanted = rows.by_ep(point), exact.by_ep(point)
    assert found.total == pytest.approx(wanted.total, abs=1e-3)
    np.testing.assert_allclose(found.gradient, wanted.gradient, rtol=5e-3, atol=5e-3)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Sums over several of them."""
    monkeypatch.setattr(data_kinds, "ROWS_IN_BLOCK", 15)


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient(case):
    exact, rows, point = objectives(training(case, Inducing(X[:12])))
    assert (len(rows.rows.blocks) == 1) == (case == "any of all rows")
    # With few points much of f is left to the rows ...
    agrees_with_differences(rows, point)
    # ... and with all rows as points nothing.
    rows = rows.on(rows.rows.blocks, X)
    if case == "trials":
        # All trials of a place are one site here, and one each in matrices: EP differs.
        assert_estimates(rows.estimate(point, 1024, 0), exact.estimate(point, 1024, 0), 1e-4)
    else:
        agrees_with_matrices(rows, exact, point)


def test_estimate_averages_sites_over_what_features_leave():
    """With few points that is much of f; the posterior does so with code of its own."""
    gp, _, y, likelihood, *_ = data = training("exposures", Inducing(X[:12]))
    _, rows, point = objectives(data)
    posterior = gp.posterior(X, y, likelihood=likelihood, point=rows.named(point))
    assert_estimates(rows.estimate(point, 1024, 0), posterior.log_marginal_likelihood, 1e-4)


@pytest.mark.parametrize("case", ["censored", "duels", "negative binomial"])
def test_weights_are_repeated_observations(case):
    data = training(case, Inducing(X))
    weights = np.arange(len(data.y)) % 3  # 0 leaves one out
    _, weighted, point = objectives(data._replace(weights=weights))
    agrees_with_differences(weighted, point)
    index = np.repeat(np.arange(len(data.y)), weights)
    inputs = data.X if case == "duels" else data.X[index]
    _, repeated, _ = objectives(data._replace(X=inputs, y=data.y[index]))
    repeated = repeated.on(repeated.rows.blocks, X)
    assert_estimates(weighted.estimate(point, 512, 0), repeated.estimate(point, 512, 0), 1e-4)


def test_several_kinds():
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 1, initval=0.8)
        gp = sg.SkewGP(cov_func=pm.gp.cov.Matern52(2, ls=ls), approximation=Inducing(X))
        kinds = {
            "values": (X[:15], VALUES[:15], lk.Gaussian(half_normal("sigma", 0.4))),
            "counts": (X[15:30], POISSON[15:30], lk.Poisson()),
            "labels": (X[30:], (VALUES[30:] > 0).astype(int), None),
        }
    data = TrainingData(gp, kinds)
    _, rows, point = objectives(data)
    assert len(rows.rows.blocks) == 3
    agrees_with_differences(rows, point)
    same = copy(gp)
    same.approximation = None
    found = process_objective(data._replace(model=same), None, np.random.default_rng(0), None)
    agrees_with_matrices(rows, found.objective, point)


@pytest.mark.parametrize("approximation", [PivotedCholesky(15), HSGP([6, 5])])
def test_other_approximations(approximation):
    gp, _, y, likelihood, *_ = data = training("ordinal", approximation)
    _, rows, point = objectives(data)
    agrees_with_differences(rows, point)
    posterior = gp.posterior(X, y, likelihood=likelihood, point=rows.named(point))
    assert_estimates(rows.estimate(point, 1024, 0), posterior.log_marginal_likelihood, 1e-4)


@pytest.mark.parametrize(
    "case",
    [
        "ordinal",
        pytest.param("negative binomial", marks=pytest.mark.slow),
        pytest.param("duels", marks=pytest.mark.slow),
    ],
)
def test_it_finds_what_the_exact_search_finds(case):
    def found(approximation):
        gp, _, y, likelihood, *_ = training(case, approximation)
        options = {"n_restarts": 0, "method": "ep", "random_seed": 0}
        silent = {"progressbar": False, "quiet": True}
        return sg.find_hyperparameters(gp, X, y, likelihood=likelihood, **options, **silent)

    exact, rows = found(None), found(Inducing(X))
    # Both searches end 2e-4 nats from the optimum, hundredths of a standard error.
    for name, value in exact.point.items():
        error = exact.std_error[name]
        assert (np.abs(rows.point[name] - value) < 0.05 * error).all()
        np.testing.assert_allclose(rows.std_error[name], error, rtol=0.05)
