"""Censored linear regression: the grid of Anceschi et al. (2023), exact against NUTS.

N. Anceschi, A. Fasano, D. Durante & G. Zanella (2023), Bayesian conjugacy in probit, tobit,
multinomial probit and extensions, doi:10.1080/01621459.2023.2169150: n = 200, p from 10 to 1200,
15, 50 and 85 % censored, prior variance 250 / p, noise 1. Times are CPU seconds.
"""

import time

import numpy as np
import pymc as pm
from censored import nuts, summary
from gaussian_forecasts import summaries
from runner import append_rows, machine, read_rows

import pymc_skewgp as sg
from pymc_skewgp._diagnostics.approximations import ep_posterior, laplace_posterior

N, SEED = 200, 8927
PREDICTORS, SHARES = (10, 50, 200, 1200), (0.15, 0.5, 0.85)


def problem(p, share):
    """Standardised inputs, an intercept that censors this share at 0, and new inputs."""
    rng = np.random.default_rng([SEED, p, int(100 * share)])
    X = rng.standard_normal((N, p))
    full = X @ (rng.standard_normal(p) * np.sqrt(250.0 / p)) + rng.standard_normal(N)
    offset = -np.quantile(full, share)
    return X, np.maximum(full + offset, 0.0), offset, rng.standard_normal((N, p))


def exact(X, y, offset):
    """5000 draws, (chains, draws, n); the posterior; CPU seconds."""
    variance = 250.0 / X.shape[1]

    def kernel(A, B=None, diag=False):
        return variance * ((A * A).sum(axis=1) if diag else A @ (A if B is None else B).T)

    started = time.process_time()
    posterior = sg.SkewGPPosterior(
        X,
        y,
        cov_func=kernel,
        mean_func=lambda A: np.full(len(A), offset),
        likelihood=sg.likelihoods.CensoredGaussian(1.0, lower=0.0),
    )
    f = posterior.sample(1250, 4, random_seed=SEED)["posterior"]["f"].to_numpy()
    return f, posterior, time.process_time() - started


def by_nuts(X, y, offset):
    """2000 draws of f, and CPU seconds of sampling and tuning."""

    def build():
        # Standard normal: what a careful user would give to NUTS.
        beta = pm.Normal("beta", shape=X.shape[1])
        f = offset + np.sqrt(250.0 / X.shape[1]) * (X @ beta)
        pm.Censored("y", pm.Normal.dist(f, 1.0), lower=0.0, upper=None, observed=y)
        return ["beta"]

    beta, seconds = nuts(build)
    return offset + np.sqrt(250.0 / X.shape[1]) * (beta @ X.T), seconds


def measure(p, share):
    """One cell of the grid, as a row of the table."""
    X, y, offset, new = problem(p, share)
    exact(X, y, offset)  # compiled
    f, posterior, seconds = exact(X, y, offset)
    mean, ess, error = summary(f)
    evidence = posterior.log_marginal_likelihood
    ours = {"seconds": seconds, "ess": ess.min(), "evidence_se": evidence.std_error}
    # New values: how probable it is that they are censored.
    censored = posterior.predict(new, draws=0, quantiles=())["predictions_summary"]["p_lower"]
    approximate = {}
    for method, (found_new, _) in summaries(posterior, (X, y), new).items():
        off = np.abs(found_new["p_lower"] - censored.to_numpy())
        function = ep_posterior if method == "EP" else laplace_posterior
        found = function(posterior.prior, X, y, new[:0], posterior.likelihood)
        sd = f.std(axis=(0, 1))
        approximate |= {
            f"{method}_p_mean": off.mean(), f"{method}_p_largest": off.max(),
            f"{method}_mean": np.max(np.abs(found.mean - mean) / sd),
            f"{method}_evidence": found.log_evidence - evidence.value,
        }  # fmt: skip
    other, took = by_nuts(X, y, offset)
    their_mean, their_ess, their_error = summary(other)
    return {
        "p": p, "share": share, **ours, "nuts_seconds": took, "nuts_ess": their_ess.min(),
        "z": np.max(np.abs(mean - their_mean) / np.hypot(error, their_error)),
        "ratio": (ess.min() / seconds) / (their_ess.min() / took), **approximate,
    }  # fmt: skip


def tobit(path):
    """n = 200: effective draws a second and means against NUTS; EP and Laplace."""
    for p in PREDICTORS:
        for share in SHARES:
            rows = [r for r in read_rows(path) if (int(r["p"]), float(r["share"])) == (p, share)]
            if not rows:
                append_rows(path, [measure(p, share)], machine())
                rows = read_rows(path)[-1:]
            row = {k: float(v) for k, v in rows[0].items() if k != "machine"}
            yield from report(row)


def report(row):
    what = f"p={row['p']:.0f}, {100 * row['share']:.0f} % censored"
    yield (
        f"{what}: 5000 draws: CPU seconds; smallest ESS; standard error of the log evidence",
        "",
        f"{row['seconds']:.2f}; {row['ess']:.0f}; {row['evidence_se']:.4f}",
    )
    yield (
        f"{what}: largest difference of {N} means to NUTS, joint errors",
        "<= 4",
        f"{row['z']:.1f}",
    )
    yield (
        f"{what}: smallest ESS a CPU second over NUTS'",
        ">= 50",
        f"{row['ratio']:.0f} (NUTS {row['nuts_ess']:.0f} in {row['nuts_seconds']:.0f} s)",
    )
    for method in ("EP", "Laplace"):
        yield (
            f"{what}, {method}: P(a new value is censored) off, mean, largest; means of f in "
            "posterior sd; log evidence",
            "",
            f"{row[method + '_p_mean']:.4f}, {row[method + '_p_largest']:.4f}; "
            f"{row[method + '_mean']:.3f}; {row[method + '_evidence']:+.3f}",
        )
