"""A thousand draws of a GP classifier's posterior: ess, lin-ess and the twisted sampler.

The problem is that of the paper's timing figure: n inputs from N(0, 1), f from a GP with an RBF
kernel of lengthscale .5 and variance 2, labels by a probit link.
"""

import time

import numpy as np
import pymc as pm
from datasets import draw_probit_gp
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

import pymc_skewgp as sg

SAMPLERS = ("ess", "lin_ess", "twisted")
SIZES = (50, 100, 200, 500, 1000, 2000)
DRAWS, CHAINS = 1000, 16
# Of the exact mean and variance of f: off by less than a tenth of what a thousand draws are.
REFERENCE = 2**14
JITTER = 1e-8


def time_of_draws(sampler: str, n: int) -> dict[str, object]:
    """Seconds of 1000 draws of f, set-up included, and what they are worth.

    A chain is worth as many independent draws as would give means of f with its squared error,
    averaged over all f. Chains that creep cannot tell that of themselves: here it is the distance
    from the exact mean.
    """
    X, y = draw_probit_gp(n, d=1, lengthscale=0.5, variance=2.0, seed=n)
    gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=0.5))
    prior = gp.posterior(X, y).prior
    few = sg.SkewGPPosterior(X[:20], y[:20], cov_func=prior.cov_func)
    few.sample(draws=4, chains=1, method="twisted" if sampler == "ess" else sampler)  # compilation
    seconds, squares = np.empty(CHAINS), np.empty(CHAINS)
    with threadpool_limits(1):
        exact = gp.posterior(X, y, n_draws=REFERENCE).marginals().moments
        for chain in range(CHAINS):
            began = time.perf_counter()
            if sampler == "ess":
                K = prior.covariance("X", X)
                f = elliptical_slices(K, 2.0 * y - 1.0, DRAWS, np.random.default_rng([n, chain]))
            else:
                posterior = sg.SkewGPPosterior(X, y, cov_func=prior.cov_func)
                tree = posterior.sample(DRAWS, 1, method=sampler, random_seed=[n, chain])
                f = tree["posterior"]["f"].values[0]
            seconds[chain] = time.perf_counter() - began
            squares[chain] = np.mean(((f.mean(axis=0) - exact.mean) / exact.sd) ** 2)
    ess, second = 1.0 / squares.mean(), np.median(seconds)
    error = ess**2 * squares.std(ddof=1) / np.sqrt(CHAINS)
    return {
        "sampler": sampler,
        "n": n,
        "draws": DRAWS,
        "seconds": f"{second:.3f}",
        "ess": f"{ess:.2f}",
        "ess_error": f"{error:.2f}",
        "draws_per_second": f"{DRAWS / second:.1f}",
        "ess_per_second": f"{ess / second:.3f}",
    }


def elliptical_slices(
    K: np.ndarray, sign: np.ndarray, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws of f: u = sign (f + noise) restricted to u > 0 by elliptical slice sampling, f given u.

    Murray, Adams & MacKay (2010), arXiv:1001.0175, with a likelihood of 1 inside and 0 outside: a
    point of a random ellipse, and a bracket of angles that shrinks until one is inside.
    """
    chol = np.linalg.cholesky(np.outer(sign, sign) * K + np.eye(len(K)))
    u = np.abs(chol @ rng.standard_normal(len(K)))
    out = np.empty((n_draws, len(K)))
    for i in range(n_draws):
        nu = chol @ rng.standard_normal(len(K))
        angle = rng.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        while True:
            trial = u * np.cos(angle) + nu * np.sin(angle)
            if (trial > 0).all():
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        u = trial
        out[i] = u
    # A draw of f from the prior, corrected by what it lacks to u (Matheron's rule).
    f = rng.standard_normal(out.shape) @ np.linalg.cholesky(K + JITTER * np.eye(len(K))).T
    gap = sign * out - f - rng.standard_normal(out.shape)
    return f + (K @ cho_solve(cho_factor(K + np.eye(len(K)), lower=True), gap.T)).T
