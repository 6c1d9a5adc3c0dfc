"""Censored linear regression: the grid of Anceschi et al. (2023), exact against NUTS.

N. Anceschi, A. Fasano, D. Durante & G. Zanella (2023), Bayesian conjugacy in probit, tobit,
multinomial probit and extensions, doi:10.1080/01621459.2023.2169150: n = 200, p from 10 to 1200,
15, 50 and 85 % censored, prior variance 250 / p, noise 1.
"""

import logging
import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_skewgp as sg

N, SEED = 200, 8927
PREDICTORS, SHARES = (10, 50, 200, 1200), (0.15, 0.5, 0.85)
NUTS_UP_TO = 200  # predictors; beyond it takes hours


def problem(p, share):
    """Standardised inputs, an intercept that censors this share at 0."""
    rng = np.random.default_rng([SEED, p, int(100 * share)])
    X = rng.standard_normal((N, p))
    full = X @ (rng.standard_normal(p) * np.sqrt(250.0 / p)) + rng.standard_normal(N)
    return X, np.maximum(full - np.quantile(full, share), 0.0), -np.quantile(full, share)


def exact(X, y, offset):
    variance = 250.0 / X.shape[1]

    def kernel(A, B=None, diag=False):
        return variance * ((A * A).sum(axis=1) if diag else A @ (A if B is None else B).T)

    posterior = sg.SkewGPPosterior(
        X,
        y,
        cov_func=kernel,
        mean_func=lambda A: np.full(len(A), offset),
        likelihood=sg.likelihoods.CensoredGaussian(1.0, lower=0.0),
    )
    f = posterior.sample(1250, 4, random_seed=SEED)["posterior"]["f"].to_numpy()
    return f, posterior


def nuts(X, y, offset):
    logging.getLogger("pymc").setLevel(logging.ERROR)
    with pm.Model():
        beta = pm.Normal("beta", 0.0, np.sqrt(250.0 / X.shape[1]), shape=X.shape[1])
        f = pm.Deterministic("f", offset + X @ beta)
        pm.Censored("y", pm.Normal.dist(f, 1.0), lower=0.0, upper=None, observed=y)
        idata = pm.sample(
            1000, tune=1000, chains=2, cores=1, random_seed=SEED, progressbar=False,
            compute_convergence_checks=False, nuts_sampler="pymc",
        )  # fmt: skip
    posterior = idata["posterior"]
    return posterior["f"].to_numpy(), posterior.attrs["sampling_time"]


def summary(f):
    tree = az.from_dict({"posterior": {"f": f}})
    ess, error = az.ess(tree)["f"].to_numpy(), az.mcse(tree)["f"].to_numpy()
    return f.mean(axis=(0, 1)), ess, error


def tobit():
    """n = 200: evidence, effective draws a second, means of f against NUTS in joint errors."""
    for p in PREDICTORS:
        for share in SHARES:
            X, y, offset = problem(p, share)
            exact(X, y, offset)
            started = time.perf_counter()
            f, posterior = exact(X, y, offset)
            seconds = time.perf_counter() - started
            mean, ess, error = summary(f)
            what = f"p={p}, {100 * share:.0f} % censored"
            evidence = posterior.log_marginal_likelihood
            yield (
                f"{what}: 5000 draws: seconds; smallest ESS; standard error of the log evidence",
                "",
                f"{seconds:.2f}; {ess.min():.0f}; {evidence.std_error:.3f}",
            )
            if p > NUTS_UP_TO:
                continue
            other, took = nuts(X, y, offset)
            their_mean, their_ess, their_error = summary(other)
            worst = np.max(np.abs(mean - their_mean) / np.hypot(error, their_error))
            ratio = (ess.min() / seconds) / (their_ess.min() / took)
            yield (
                f"{what}: largest difference of means to NUTS, joint errors",
                "<= 4",
                f"{worst:.1f}",
            )
            yield (
                f"{what}: smallest ESS a second over NUTS'",
                ">= 50",
                f"{ratio:.0f} (NUTS {took:.0f} s, smallest ESS {their_ess.min():.0f})",
            )
