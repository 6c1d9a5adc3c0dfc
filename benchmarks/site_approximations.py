"""What approximations of f cost and get wrong under likelihoods without rows.

    python benchmarks/site_approximations.py [--out DIR] [--kinds ...] [--sizes ...]
        [--methods ...] [--sets 20] [--slow-sets 3]

Data are drawn from the prior: f with an RBF kernel (lengthscale .5, inputs in (-2, 2)), y given f.
Every method has the true hyperparameters. The truth is the exact posterior of 16384 pairs, with its
own error. A row a data set and method goes to ``site_approximations.csv`` as soon as it is known;
those in the file are not run again. "inla" is pymc-extras' ``marginalize(laplace_approx=...)``, on
which its INLA rests, where that package is installed: it has an evidence, and no f.

Columns: errors of P(f(x_i) < c), the largest over c, of all data the largest and the mean; largest
errors of the marginals' mean (in exact deviations), deviation (relative) and skewness; the exact
probability of their central 90 % intervals; the share of these intervals that hold the f the data
were drawn with; the error of the log evidence; CPU seconds, compilation included, and seconds of
drawing alone.
"""

import argparse
import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pymc as pm
from core import ROOT
from runner import append_rows, machine, read_rows
from scipy.stats import norm
from sites import KINDS, SEED, latent

import pymc_skewgp as sg
from pymc_skewgp._diagnostics.approximations import METHODS, Problem
from pymc_skewgp._diagnostics.marginals import DrawnMarginals, quiet_pymc

CHOSEN = ("logit", "Poisson", "negative binomial, 3", "Student-t, 4 degrees")
SIZES = (50, 100, 300)
LENGTHSCALE, VARIANCE = 0.5, 4.0
QUICK = ("exact", "ep", "laplace")
SLOW = ("latent_nuts", "advi", "fullrank_advi")
LARGEST = {"fullrank_advi": 100}  # n(n+1)/2 parameters, and 30 000 iterations
PROB = 0.9
GRID = np.linspace(-6.0, 6.0, 241)  # exact deviations
FIELDS = (
    "kind", "n", "set", "method", "p_max", "p_mean", "mean_error", "sd_error", "skewness_error",
    "covered", "held", "evidence", "evidence_error", "evidence_se", "truth_mean_se",
    "truth_skewness_se", "seconds", "drawing", "failure",
)  # fmt: skip
SHOWN = (
    "kind", "n", "set", "method", "p_max", "covered", "evidence_error", "seconds", "failure",
)  # fmt: skip
PACKAGES = ("numpy", "scipy", "numba", "pymc")
if find_spec("pymc_extras"):
    PACKAGES += ("pymc-extras",)


def data_set(kind, n, index):
    """Inputs, data, f that they were drawn with, likelihood and prior."""
    likelihood, scale, draw = KINDS[kind]
    rng = np.random.default_rng([SEED, list(KINDS).index(kind), n, index])
    x = np.sort(rng.uniform(-2, 2, n))[:, None]
    f = scale * latent(x, LENGTHSCALE, VARIANCE, rng)
    cov = scale**2 * VARIANCE * pm.gp.cov.ExpQuad(1, ls=LENGTHSCALE)
    return x, draw(f, rng), f, likelihood, sg.SkewGP(cov_func=cov)


def distribution(marginals, at):
    """P(f <= value) at each column of `at`: of weighted draws, where f given a draw is known."""
    if isinstance(marginals, DrawnMarginals):
        draws = marginals.draws.reshape(-1, at.shape[1]).T
        weights = np.full(draws.shape[1], 1.0 / draws.shape[1])
    else:
        draws, weights = marginals.means, marginals.weights
    found = np.empty(at.shape)
    for i, (f, z) in enumerate(zip(draws, at.T, strict=True)):
        order = np.argsort(f)
        below = np.append(0.0, np.cumsum(weights[order]))
        found[:, i] = below[np.searchsorted(f[order], z, side="right")]
    return found


def errors(found, truth, f, *, gaussian):
    """Of marginals `found`, beside those of the exact posterior."""
    mean, sd, skewness = truth.moments
    at = mean + GRID[:, None] * sd
    own = found.moments
    if gaussian:
        p = norm.cdf(at, own.mean, own.sd)
        tail = norm.ppf(0.5 + 0.5 * PROB) * own.sd
        low, high = own.mean - tail, own.mean + tail
        own = own._replace(skewness=np.zeros(mean.size))
    else:
        p = distribution(found, at)
        low, high = found.quantile([0.5 - 0.5 * PROB, 0.5 + 0.5 * PROB])
    off = np.abs(p - distribution(truth, at)).max(axis=0)
    inside = distribution(truth, np.stack([low, high]))
    return {
        "p_max": off.max(),
        "p_mean": off.mean(),
        "mean_error": (np.abs(own.mean - mean) / sd).max(),
        "sd_error": np.abs(own.sd / sd - 1.0).max(),
        "skewness_error": np.abs(own.skewness - skewness).max(),
        "covered": (inside[1] - inside[0]).mean(),
        "held": ((f > low) & (f < high)).mean(),
    }


def inla(problem):
    """Log evidence of Laplace's approximation as pymc-extras computes it."""
    from pymc_extras.model.marginal import marginalize

    from pymc_skewgp._diagnostics.approximations import observe

    n = problem.X.shape[0]
    K = problem.prior.cov_func(problem.X)
    Q = np.linalg.inv(K + 1e-6 * K.max() * np.eye(n))
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(n), tau=Q)
        observe(problem, f)
    return float(marginalize(model, laplace_approx={f: Q}).compile_logp()({}))


def rows(kind, n, index, methods):
    """One a method."""
    x, y, f, likelihood, gp = data_set(kind, n, index)
    posterior = gp.posterior(x, y, likelihood=likelihood, n_draws=2**14, random_seed=index)
    truth, evidence = posterior.marginals(), posterior.log_marginal_likelihood
    problem = Problem(
        gp, {}, posterior.prior, x, y, x[:0], chains=2, draws=2000, seed=index,
        likelihood=likelihood,
    )  # fmt: skip
    shared = {
        "kind": kind,
        "n": n,
        "set": index,
        "evidence": evidence.value,
        "evidence_se": evidence.std_error,
        "truth_mean_se": (truth.moment_errors.mean / truth.moments.sd).max(),
        "truth_skewness_se": truth.moment_errors.skewness.max(),
    }
    for method in methods:
        row = dict.fromkeys(FIELDS, "") | shared | {"method": method}
        started = time.process_time()
        try:
            with warnings.catch_warnings(), quiet_pymc():
                warnings.simplefilter("ignore")
                if method == "inla":
                    row["evidence_error"] = inla(problem) - evidence.value
                    row["seconds"] = time.process_time() - started
                else:
                    one_core = {"cores": 1} if method.endswith("nuts") else {}
                    found = METHODS[method](replace(problem, options=one_core))
                    row["seconds"] = time.process_time() - started
                    row["drawing"] = found.drawing or ""
                    row["evidence_error"] = found.evidence - evidence.value
                    gaussian = method not in ("exact", "latent_nuts")
                    row |= errors(found.marginals, truth, f, gaussian=gaussian)
        except Exception as error:  # a failure is part of the table
            row["failure"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        yield {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--kinds", nargs="+", default=CHOSEN)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--methods", nargs="+", default=(*QUICK, *SLOW))
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--slow-sets", type=int, default=3)
    options = parser.parse_args()
    path = options.out / "site_approximations.csv"
    options.out.mkdir(parents=True, exist_ok=True)
    for kind in options.kinds:
        list(rows(kind, 20, 0, QUICK))  # what is compiled once and kept
    done = {(r["kind"], r["n"], r["set"], r["method"]) for r in read_rows(path)}
    host = machine(PACKAGES)
    for index in range(options.sets):
        for n in options.sizes:
            for kind in options.kinds:
                left = [
                    m
                    for m in options.methods
                    if (kind, str(n), str(index), m) not in done
                    and n <= LARGEST.get(m, n)
                    and (m in QUICK or index < options.slow_sets)
                ]
                if left:
                    for row in rows(kind, n, index, left):
                        append_rows(path, [row], host, FIELDS)
                        print(*(row[name] for name in SHOWN), flush=True)


if __name__ == "__main__":
    main()
