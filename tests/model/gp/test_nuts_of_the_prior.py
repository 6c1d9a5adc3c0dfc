"""A SkewGP prior under likelihoods that are not conjugate, sampled by NUTS.

Compared with importance sampling from the Gaussian process itself, in NumPy: draws of f at the
pseudo-point and the data together, those kept whose sign at the pseudo-point is right, weighted by
the likelihood. No unified skew-normal formula has a part in it.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_skewgp import SkewGP

X = np.array([-1.2, -0.3, 0.5, 1.4])
KNOT, ETA, LS = 0.2, 1.2, 0.8
COUNTS = np.array([0, 2, 1, 0])
VALUES = np.array([-0.8, 0.3, 1.9, 0.2])


LIKELIHOODS = {
    "Poisson": (
        lambda f: pm.Poisson("y", mu=pm.math.exp(f), observed=COUNTS),
        lambda f: stats.poisson.logpmf(COUNTS, np.exp(f)),
    ),
    "Student-t": (
        lambda f: pm.StudentT("y", nu=4, mu=f, sigma=0.7, observed=VALUES),
        lambda f: stats.t.logpdf(VALUES, 4, loc=f, scale=0.7),
    ),
}


def by_importance_sampling(log_likelihood, n=400_000):
    """Mean, standard deviation, and the standard error of the mean."""
    points = np.concatenate([[KNOT], X])
    cov = ETA**2 * np.exp(-0.5 * ((points[:, None] - points) / LS) ** 2) + 1e-6 * np.eye(5)
    draws = np.random.default_rng(0).standard_normal((n, 5)) @ np.linalg.cholesky(cov).T
    f = draws[draws[:, 0] > 0, 1:]
    log_weights = log_likelihood(f).sum(axis=1)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ f
    sd = np.sqrt(weights @ (f - mean) ** 2)
    return mean, sd, np.sqrt(weights**2 @ (f - mean) ** 2)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_nuts_finds_the_posterior_without_divergences(name):
    observe, log_likelihood = LIKELIHOODS[name]
    with pm.Model():
        gp = SkewGP(
            cov_func=ETA**2 * pm.gp.cov.ExpQuad(1, ls=LS), pseudo_points=[[KNOT]], phase=[1.0]
        )
        observe(gp.prior("f", X[:, None], reparameterize=True))
        trace = pm.sample(
            500, tune=500, chains=2, cores=1, random_seed=1, target_accept=0.95, quiet=True,
            progressbar=False, nuts_sampler="pymc", compute_convergence_checks=False,
        )  # fmt: skip
    assert int(trace["sample_stats"]["diverging"].sum()) == 0
    f = trace["posterior"]["f"]
    mean, sd, error = by_importance_sampling(log_likelihood)
    size = az.ess(f).to_numpy()
    assert size.min() > 300
    # Five errors of both, four coordinates: a false alarm in 2e-6 of all seeds.
    draws = f.to_numpy().reshape(-1, X.size)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * np.hypot(sd / np.sqrt(size), error)).all()
    assert (np.abs(draws.std(axis=0) / sd - 1) < 5 / np.sqrt(2 * size) + 0.02).all()
