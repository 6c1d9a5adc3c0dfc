"""`integrate` against long runs of NUTS, and calibrated by simulation.

    python benchmarks/averaging_checks.py [--only SECTION ...] [--simulations N] [--out DIR]

Figures are appended to ``DIR/averaging_checks.csv`` as soon as they are known, ranks of single
simulations to ``DIR/averaging_ranks.csv``; those in the files already are not run again unless
their section is named. Times are CPU seconds.
"""

import argparse
import logging
import os
import time
import warnings
from functools import partial
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from runner import append_rows, machine, read_rows, run_sections
from scipy import stats
from scipy.special import ndtr

import pymc_skewgp as sg

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pymc", "pytensor", "numba", "arviz")
SEED = 8927
logging.getLogger("pymc").setLevel(logging.ERROR)
# What is said of divergences and of unequal weights is part of what is measured.
warnings.filterwarnings("ignore")

# --- five models -------------------------------------------------------------------------------
# Each a function of a rule for f: the latent functions as variables, or integrated out.


def inputs(n, d, rng):
    return rng.uniform(-2.0, 2.0, (n, d))


def two(n=80):
    """Labels, one lengthscale."""
    rng = np.random.default_rng(SEED)
    X = inputs(n, 1, rng)
    y = (np.sin(2.5 * X[:, 0]) + rng.standard_normal(n) > 0).astype(int)

    def kernel():
        eta = pm.HalfNormal("eta", sigma=2.0)
        return eta**2 * pm.gp.cov.ExpQuad(1, ls=pm.InverseGamma("ls", alpha=3.0, beta=2.0))

    return X, y, kernel, None, {}


def counts(n=80):
    """Over-dispersed counts: two of the kernel, one of the likelihood."""
    rng = np.random.default_rng(SEED + 1)
    X = inputs(n, 1, rng)
    mu = np.exp(1.0 + np.sin(2.0 * X[:, 0]))
    y = rng.negative_binomial(3.0, 3.0 / (3.0 + mu))

    def kernel():
        eta = pm.HalfNormal("eta", sigma=2.0)
        return eta**2 * pm.gp.cov.Matern52(1, ls=pm.InverseGamma("ls", alpha=3.0, beta=2.0))

    return X, y, kernel, "counts", {}


def several(n=100):
    """Labels, one lengthscale for each of four inputs: five."""
    rng = np.random.default_rng(SEED + 2)
    X = inputs(n, 4, rng)
    y = (2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] + rng.standard_normal(n) > 0).astype(int)

    def kernel():
        ls = pm.InverseGamma("ls", alpha=2.0, beta=3.0, shape=4)
        return pm.HalfNormal("eta", sigma=2.0) ** 2 * pm.gp.cov.ExpQuad(4, ls=ls)

    return X, y, kernel, None, {}


def many(n=120):
    """Labels, one lengthscale for each of ten inputs, a linear part: twelve."""
    rng = np.random.default_rng(SEED + 3)
    X = inputs(n, 10, rng)
    y = (2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] + rng.standard_normal(n) > 0).astype(int)

    def kernel():
        ls = pm.InverseGamma("ls", alpha=2.0, beta=5.0, shape=10)
        slope = pm.HalfNormal("slope", sigma=1.0)
        smooth = pm.HalfNormal("eta", sigma=2.0) ** 2 * pm.gp.cov.ExpQuad(10, ls=ls)
        return smooth + slope**2 * pm.gp.cov.Linear(10, c=np.zeros(10))

    return X, y, kernel, None, {}


def signs(n=50):
    """Labels, a SkewGP with two pseudo-points of random phases: two, and two signs."""
    X, y, kernel, _, _ = two(n)

    def pseudo():
        positive = pm.Bernoulli("positive", 0.5, shape=2)
        return {"pseudo_points": np.array([[-1.0], [1.5]]), "phase": 2 * positive - 1}

    return X, y, kernel, None, pseudo


FEW = {
    "labels, 2": two,
    "labels, 2 and 2 random signs": signs,
    "counts, 3": counts,
    "labels, 5": several,
}
MANY = {"labels, 12": many}


def likelihood_of(kind):
    if kind is None:
        return None
    return sg.likelihoods.NegativeBinomial(pm.HalfNormal("alpha", sigma=5.0))


def observe(kind, f, y):
    if kind is None:
        return pm.Bernoulli("y", p=pm.math.invprobit(f), observed=y)
    alpha = pm.HalfNormal("alpha", sigma=5.0)
    return pm.NegativeBinomial("y", mu=pt.exp(f), alpha=alpha, observed=y)


def integrated(build):
    """What `integrate` says: hyperparameters, f, and their attributes."""
    X, y, kernel, kind, pseudo = build()
    with pm.Model():
        gp = sg.SkewGP(cov_func=kernel(), **(pseudo() if pseudo else {}))
        likelihood = likelihood_of(kind)
    began = time.process_time()
    found = sg.integrate(
        gp, X, y, likelihood=likelihood, random_seed=SEED, progressbar=False, draws=2000
    )
    return found["posterior"].to_dataset(), time.process_time() - began


def sampled(build, draws, cores):
    """The same by NUTS on f and the hyperparameters, f a function of white noise."""
    X, y, kernel, kind, pseudo = build()
    with pm.Model():
        if pseudo:
            f = sg.SkewGP(cov_func=kernel(), **pseudo()).prior("f", X, reparameterize=True)
        else:
            f = pm.gp.Latent(cov_func=kernel()).prior("f", X)
        observe(kind, f, y)
        found = pm.sample(
            draws,
            tune=1500,
            chains=4,
            cores=cores,
            target_accept=0.95,
            nuts_sampler="pymc",
            random_seed=SEED,
            progressbar=False,
            compute_convergence_checks=False,
        )
    return found["posterior"].to_dataset()


def quantities(posterior, kind, names):
    """Logs of hyperparameters, signs, and the mean of a new observation at eleven data."""
    parts = {name: posterior[name] for name in names}
    logs = {
        f"log {name}": np.log(x) if x.dtype.kind == "f" else x.astype(float)
        for name, x in parts.items()
    }
    f = posterior["f"]
    at = f.isel({f.dims[-1]: np.linspace(0, f.sizes[f.dims[-1]] - 1, 11).astype(int)})
    new = xr.apply_ufunc(ndtr if kind is None else np.exp, at)
    return xr.Dataset(logs).merge({"new": new.rename({f.dims[-1]: "place"}).drop_vars("place")})


def weighted_error(x, relative_ess):
    """Standard errors of means of draws that stand for so many independent ones."""
    axes = [d for d in x.dims if d in ("chain", "draw")]
    return x.std(axes) / np.sqrt(relative_ess)


def agreement(models, draws, cores):
    """Means of hyperparameters and of new observations, in joint standard errors from NUTS."""
    for title, build in models.items():
        kind = build()[3]
        ours, seconds = integrated(build)
        theirs = sampled(build, draws, cores)
        names = [name for name in ours.data_vars if name != "f"]
        names = [name for name in names if name in theirs]
        a, b = quantities(ours, kind, names), quantities(theirs, kind, names)
        effective = ours.attrs["relative_ess_exact"] * ours.attrs["n_evidences"]
        worst, where, count = 0.0, "", 0
        for name in a.data_vars:
            gap = a[name].mean(("chain", "draw")) - b[name].mean(("chain", "draw"))
            error = np.hypot(weighted_error(a[name], effective), az.mcse(b[[name]])[name])
            ratio = np.abs(gap.to_numpy() / error.to_numpy())
            count += ratio.size
            if ratio.max() > worst:
                worst, where = float(ratio.max()), name
        quietest = az.ess(b)
        least = min(float(quietest[name].min()) for name in b.data_vars)
        yield (
            f"{title}: largest of {count} differences, in joint errors",
            "<= 4",
            f"{worst:.1f} ({where}); integrate {seconds:.0f} s, {effective:.0f} effective, "
            f"relative ESS {ours.attrs['relative_ess']:.2f}, rung {ours.attrs['rung']}; "
            f"NUTS at least {least:.0f} effective",
        )


# --- calibration -------------------------------------------------------------------------------

PLACES = (0, 10, 20)


def ranks(index):
    """Places of the true values among 99 draws of `integrate`, for one simulation."""
    rng = np.random.default_rng([SEED, index])
    X = np.sort(inputs(30, 1, rng), axis=0)
    ls, eta = stats.invgamma(3.0, scale=2.0).rvs(random_state=rng), abs(rng.normal(0.0, 2.0))
    covariance = eta**2 * np.exp(-0.5 * ((X - X.T) / ls) ** 2)
    values, vectors = np.linalg.eigh(covariance)
    f = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(30))
    y = (f + rng.standard_normal(30) > 0).astype(int)
    with pm.Model():
        kernel = pm.HalfNormal("eta", sigma=2.0) ** 2
        kernel *= pm.gp.cov.ExpQuad(1, ls=pm.InverseGamma("ls", alpha=3.0, beta=2.0))
        gp = sg.SkewGP(cov_func=kernel)
    found = sg.integrate(gp, X, y, random_seed=rng, progressbar=False)["posterior"].to_dataset()
    flat = found.stack(sample=("chain", "draw"))
    kept = rng.choice(flat.sizes["sample"], 99, replace=False)
    true = {"ls": ls, "eta": eta, "log ls + log eta": np.log(ls * eta)}
    drawn = {name: flat[name].to_numpy() for name in ("ls", "eta")}
    drawn["log ls + log eta"] = np.log(drawn["ls"] * drawn["eta"])
    at = flat["f"].transpose("sample", ...).to_numpy()
    true |= {f"f {i}": f[i] for i in PLACES} | {"log likelihood": log_likelihood(f, y)}
    drawn |= {f"f {i}": at[:, i] for i in PLACES} | {"log likelihood": log_likelihood(at, y)}
    return {name: int((drawn[name][kept] < true[name]).sum()) for name in true}


def log_likelihood(f, y):
    return stats.norm.logcdf(np.where(y == 1, f, -f)).sum(axis=-1)


def calibration(n_simulations, out):
    """Ranks of hyperparameters, f and the log likelihood: p-values of uniformity."""
    path = out / "averaging_ranks.csv"
    done = {int(row["simulation"]) for row in read_rows(path)}
    for index in range(n_simulations):
        if index not in done:
            append_rows(path, [{"simulation": index, **ranks(index)}], machine(PACKAGES))
    rows = [row for row in read_rows(path) if int(row["simulation"]) < n_simulations]
    names = [name for name in rows[0] if name not in ("simulation", "machine")]
    p = {}
    for name in names:
        rank = np.array([int(row[name]) for row in rows])
        # Of 100 ranks ten at a time.
        p[name] = stats.chisquare(np.bincount(rank // 10, minlength=10)).pvalue
    least = min(p, key=lambda name: p[name])
    yield (
        f"smallest p-value of {len(p)} quantities, {len(rows)} simulations",
        f">= {0.05 / len(p):.3f}",
        f"{p[least]:.3f} ({least})",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=("agreement", "many", "calibration"))
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--draws", type=int, default=4000, help="of NUTS, in each of four chains")
    parser.add_argument("--cores", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    sections = {
        "agreement": partial(agreement, FEW, arguments.draws, arguments.cores),
        "many": partial(agreement, MANY, arguments.draws, arguments.cores),
        "calibration": partial(calibration, arguments.simulations, arguments.out),
    }
    run_sections(sections, arguments.out / "averaging_checks.csv", arguments.only, PACKAGES)


if __name__ == "__main__":
    main()
