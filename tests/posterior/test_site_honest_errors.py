"""Stated errors under sites against quadrature: random small problems.

Errors over stated errors have Student's t with 15 degrees of freedom: 6.4 % beyond 2, .12 % beyond
4. Of the 30 evidences of a likelihood more than 7 are then beyond 2 with probability 5e-4, and more
than 2 beyond 4 with 1e-5: one false alarm in 600 sets of problems. Moments, 60 of a likelihood, are
allowed 12 and 2; means and deviations of f have the same tail, so they err together. Problems and
seeds are fixed.
"""

import numpy as np
import pytest
from site_oracles import Counts, Logit, Student, site_posterior

from pymc_skewgp import SkewGPPosterior

PROBLEMS = 30


def draw_problem(kind, index):
    """Inputs, kernel, likelihood and data, f drawn from its prior."""
    rng = np.random.default_rng([index, len(kind)])
    n = int(rng.integers(1, 3))
    lengthscale, variance = np.exp(rng.uniform(-1.5, 0.7)), np.exp(rng.uniform(-1.2, 2.3))
    x = np.sort(rng.uniform(-2.0, 2.0, n))[:, None]

    def kernel(X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), variance)
        Xs = X if Xs is None else Xs
        return variance * np.exp(-0.5 * ((X - Xs.T) / lengthscale) ** 2)

    f = np.linalg.cholesky(kernel(x) + 1e-10 * np.eye(n)) @ rng.normal(size=n)
    if kind == "logit":
        return x, kernel, Logit(), (rng.random(n) < 1.0 / (1.0 + np.exp(-f))).astype(float)
    if kind == "counts":
        return x, kernel, Counts(), rng.poisson(np.exp(f)).astype(float)
    scale = np.exp(rng.uniform(-1.9, 0.0))
    return x, kernel, Student(scale), f + scale * rng.standard_t(4, n)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("kind", ["logit", "counts", "student"])
def test_errors_are_as_stated(kind):
    evidence, moments = [], []
    for index in range(PROBLEMS):
        x, kernel, likelihood, y = draw_problem(kind, index)
        cov = kernel(x) + 1e-10 * np.eye(y.size)
        exact = site_posterior(
            np.zeros(y.size),
            cov,
            lambda f, y=y, known=likelihood: known.log_likelihood(y, f.T).sum(axis=-1),
            {1: 4001, 2: 701}[y.size],
        )
        posterior = SkewGPPosterior(x, y, cov_func=kernel, likelihood=likelihood, random_seed=index)
        found = posterior.log_marginal_likelihood
        evidence.append((found.value - exact.log_evidence) / found.std_error)
        at = posterior.marginals()
        moments.append((at.moments.mean[0] - exact.mean[0]) / at.moment_errors.mean[0])
        moments.append((at.moments.sd[0] - exact.sd[0]) / at.moment_errors.sd[0])
    for ratio, count in ((np.abs(evidence), 7), (np.abs(moments), 12)):
        assert (ratio > 2.0).sum() <= count
        assert (ratio > 4.0).sum() <= 2
        assert ratio.max() < 8.0
