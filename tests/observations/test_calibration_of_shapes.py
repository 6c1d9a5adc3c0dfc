"""Simulation-based calibration under constraints and selection: 300 simulated data sets each.

The rank of a true value among 31 draws of its posterior is uniform (Talts et al. 2018,
arXiv:1804.06788). A chi-square test of eight groups, at 1e-5: wrong by chance once in 100 000 runs
for each of the five tests.
"""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import chisquare

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import Constraint, Gaussian, Selection

pytestmark = pytest.mark.slow
N_SIMULATIONS, N_DRAWS, LS = 300, 31, 0.7
X = np.linspace(0, 3, 20)[:, None]
KERNEL = pm.gp.cov.ExpQuad(1, ls=LS)


def k(a, b):
    return np.exp(-0.5 * ((a[:, None] - b) / LS) ** 2)


def ranks_are_uniform(ranks):
    counts = np.bincount(np.asarray(ranks) * 8 // (N_DRAWS + 1), minlength=8)
    return chisquare(counts).pvalue > 1e-5


def test_selection():
    rng = np.random.default_rng(0)
    B, sigma, rho = np.array([[2.0, 0.9], [0.9, 1.2]]), 0.7, -0.6
    chol = np.linalg.cholesky(np.kron(k(X[:, 0], X[:, 0]), B) + 1e-10 * np.eye(40))
    noise = np.linalg.cholesky([[sigma**2, rho * sigma], [rho * sigma, 1.0]])
    gp = sg.SkewGP(cov_func=KERNEL)
    ranks = []
    for seed in range(N_SIMULATIONS):
        f = (chol @ rng.standard_normal(40)).reshape(20, 2)
        y, v = (f + rng.standard_normal((20, 2)) @ noise.T).T
        posterior = gp.posterior(
            X, np.where(v > 0, y, np.nan), likelihood=Selection(sigma, rho), coregion=B
        )
        drawn = posterior.sample(N_DRAWS, 1, random_seed=seed)["posterior"]["f"].values[0]
        ranks.append([(drawn[:, 7, i] < f[7, i]).sum() for i in (0, 1)])
    for of_one in np.transpose(ranks):
        assert ranks_are_uniform(of_one)


def test_constraints():
    """F increases at three points and is below 1.5 at a fourth: by rejection from the prior."""
    rng = np.random.default_rng(1)
    sigma, t = 0.5, np.array([0.5, 1.5, 2.5])
    x = np.concatenate([X[:, 0], [2.0]])
    slope = (x[:, None] - t) / LS**2 * k(x, t)
    curve = (1 / LS**2 - ((t[:, None] - t) / LS**2) ** 2) * k(t, t)
    cov = np.block([[k(x, x), slope], [slope.T, curve]])
    chol = np.linalg.cholesky(cov + 1e-10 * np.eye(24))
    gp = sg.SkewGP(cov_func=KERNEL)
    ranks = []
    while len(ranks) < N_SIMULATIONS:
        z = chol @ rng.standard_normal(24)
        if (z[21:] < 0).any() or z[20] > 1.5:
            continue
        data = {
            "y": (X, z[:20] + sigma * rng.standard_normal(20), Gaussian(sigma)),
            "up": (t[:, None], None, Constraint.increasing()),
            "below": (np.array([[2.0]]), None, Constraint.bounds(upper=1.5)),
        }
        found = gp.posterior(data).sample(N_DRAWS, 1, random_seed=len(ranks))["posterior"]
        ranks.append(
            [
                (found["f_y"].values[0, :, 7] < z[7]).sum(),
                (found["f_up"].values[0, :, 1] < z[22]).sum(),
                (found["f_below"].values[0, :, 0] < z[20]).sum(),
            ]
        )
    for of_one in np.transpose(ranks):
        assert ranks_are_uniform(of_one)
