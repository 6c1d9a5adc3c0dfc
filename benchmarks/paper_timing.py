"""A thousand draws of a GP classifier's posterior: ess, lin-ess and the twisted sampler.

The problem is that of the paper's timing figure: n inputs from N(0, 1), f from a GP with an RBF
kernel of lengthscale .5 and variance 2, labels by a probit link.
"""

import time

import arviz as az
import numpy as np
import pymc as pm
from datasets import draw_probit_gp
from threadpoolctl import threadpool_limits

import pymc_skewgp as sg

SAMPLERS = ("ess", "lin_ess", "twisted")
SIZES = (50, 100, 200, 500, 1000, 2000)
DRAWS = 1000


def time_of_draws(sampler: str, n: int) -> dict[str, object]:
    """Seconds of 1000 draws, set-up included, and what they are worth."""
    X, y = draw_probit_gp(n, d=1, lengthscale=0.5, variance=2.0, seed=n)
    gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=0.5))
    gp.posterior(X[:20], y[:20]).sample(
        draws=4, chains=1, method="lin_ess" if sampler == "lin_ess" else "twisted"
    )  # compilation
    with threadpool_limits(1):
        posterior = gp.posterior(X, y)
        began = time.perf_counter()
        if sampler == "ess":
            u = elliptical_slices(posterior.sun.latent_cov, DRAWS, np.random.default_rng(n))
        else:
            tree = posterior.sample(draws=DRAWS, chains=1, method=sampler, random_seed=n)
        seconds = time.perf_counter() - began
    if sampler == "ess":  # its draws are of u: f given u is a draw away
        ess = float(az.ess(az.from_dict({"posterior": {"u": u[None]}}))["u"].min())
    else:
        ess = float(az.ess(tree["posterior"].dataset)["f"].min())
    return {
        "sampler": sampler,
        "n": n,
        "draws": DRAWS,
        "seconds": f"{seconds:.3f}",
        "ess": f"{ess:.1f}",
        "draws_per_second": f"{DRAWS / seconds:.1f}",
        "ess_per_second": f"{ess / seconds:.2f}",
    }


def elliptical_slices(cov: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of N(0, cov) restricted to u > 0 by elliptical slice sampling.

    Murray, Adams & MacKay (2010), arXiv:1001.0175, with a likelihood of 1 inside and 0 outside: a
    point of a random ellipse, and a bracket of angles that shrinks until one is inside.
    """
    chol = np.linalg.cholesky(cov)
    u = np.abs(chol @ rng.standard_normal(len(cov)))
    out = np.empty((n_draws, len(cov)))
    for i in range(n_draws):
        nu = chol @ rng.standard_normal(len(cov))
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
    return out
