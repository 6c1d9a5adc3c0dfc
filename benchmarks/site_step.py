"""`ConjugateStep` under sites against NUTS, in effective draws a second of everything.

    python benchmarks/site_step.py [--kinds KIND ...] [--sizes N ...] [--out DIR]

The same model twice: ``gp.prior("f", X)`` with the step, and with ``reparameterize=True``, f by
whitened values, which PyMC's NUTS samples. Effective draws are the fewest of any value of f and of
any hyperparameter, by ArviZ's bulk ESS; CPU seconds are those of the draws after tuning, compiling
apart. A case is appended to ``site_step.csv`` as soon as it is known, and not run again.
"""

import argparse
import itertools
import logging
import time
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from core import ROOT
from runner import append_rows, machine, read_rows
from scipy.special import expit

import pymc_skewgp as sg

PACKAGES = ("numpy", "scipy", "numba", "pymc")
KINDS = ("logit", "Poisson", "negative_binomial")
SIZES = (100, 200, 50, 500)
# Hyperparameters of the process: none; lengthscale and scale; two lengthscales, scale and mean.
COUNTS = (2, 0, 4)
SEED = 5


def data(kind, n):
    """Two inputs, of which f depends on the first more than on the second; and y."""
    rng = np.random.default_rng([SEED, n])
    X = rng.uniform(-2, 2, (n, 2))
    d = (X[:, None] - X) / np.array([0.7, 2.0])
    K = 2.0 * np.exp(-0.5 * (d**2).sum(axis=2)) + 1e-8 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal(n)
    if kind == "logit":
        return X, rng.binomial(1, expit(f))
    mean = np.exp(0.5 * f)
    if kind == "Poisson":
        return X, rng.poisson(mean)
    return X, rng.negative_binomial(3, 3.0 / (3.0 + mean))


def build(kind, n, count, reparameterize):
    """The model."""
    X, y = data(kind, n)
    with pm.Model() as model:
        mean = pm.gp.mean.Zero()
        if count == 0:
            kernel = 2.0 * pm.gp.cov.ExpQuad(2, ls=[0.7, 2.0])
        else:
            shared = pm.InverseGamma("ls", 3.0, 2.0, shape=2 if count == 4 else None)
            ls = shared if count == 4 else shared * np.array([0.7, 2.0])
            scale = pm.HalfNormal("scale", 2.0)
            kernel = scale**2 * pm.gp.cov.ExpQuad(2, ls=ls)
        if count == 4:
            mean = pm.gp.mean.Constant(pm.Normal("level", 0.0, 1.0))
        gp = sg.SkewGP(mean_func=mean, cov_func=kernel)
        f = gp.prior("f", X, reparameterize=reparameterize)
        if kind == "logit":
            pm.Bernoulli("y", logit_p=f, observed=y)
        elif kind == "Poisson":
            pm.Poisson("y", pm.math.exp(0.5 * f), observed=y)
        else:
            alpha = pm.Exponential("alpha", 0.3) if count else 3.0
            pm.NegativeBinomial("y", mu=pm.math.exp(0.5 * f), alpha=alpha, observed=y)
    return model


def efficiency(model, tune, draws, step):
    """The fewest effective draws, and CPU seconds for all after tuning."""
    times = []
    with model:
        idata = pm.sample(
            draws, tune=tune, chains=1, step=step(model), random_seed=SEED, progressbar=False,
            compute_convergence_checks=False, quiet=True,
            callback=lambda trace, draw: times.append(time.process_time()),
        )  # fmt: skip
    names = [x.name for x in model.free_RVs if not x.name.startswith("f")]
    ess = az.ess(idata, var_names=["f", *names])
    fewest = {name: float(ess[name].min()) for name in ess.data_vars}
    return min(fewest.values()), times[-1] - times[tune - 1], idata


def case(kind, n, count):
    """One row of the table."""
    ours, seconds, idata = efficiency(
        build(kind, n, count, False), 150, 300, lambda m: sg.ConjugateStep(m.free_RVs, model=m)
    )
    size = 60 if n >= 500 and count else 200
    theirs, took, _ = efficiency(
        build(kind, n, count, True), size, size, lambda m: pm.NUTS(model=m)
    )
    return {
        "kind": kind,
        "n": n,
        "hyperparameters": count + (kind == "negative_binomial" and count > 0),
        "step_ess_of_300": round(ours),
        "step_ms_a_draw": round(1e3 * seconds / 300, 2),
        "relative_ess": round(float(idata["sample_stats"]["relative_ess"].mean()), 3),
        "nuts_ess": round(theirs),
        "nuts_draws": size,
        "nuts_ms_a_draw": round(1e3 * took / size, 2),
        "ratio": round((ours / seconds) / (theirs / took), 2),
    }


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--counts", nargs="*", type=int, default=COUNTS)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    path = options.out / "site_step.csv"
    for n, count, kind in itertools.product(options.sizes, options.counts, options.kinds):
        known = count + (kind == "negative_binomial" and count > 0)
        done = {(x["kind"], int(x["n"]), int(x["hyperparameters"])) for x in read_rows(path)}
        if (kind, n, known) not in done:
            row = case(kind, n, count)
            print(row, flush=True)
            append_rows(path, [row], machine(PACKAGES))


if __name__ == "__main__":
    main()
