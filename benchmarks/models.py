"""SkewGP inside PyMC models against ``pm.gp.Latent`` with NUTS: agreement, speed, waiting time.

    python benchmarks/models.py [--only SECTION ...] [--out DIR]

Every figure is printed beside the one asked for, and appended to ``DIR/models.csv`` as soon as it
is known; sections already in the file are not run again unless named.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from core import ROOT, draw_problem
from runner import run_sections
from scipy.special import ndtr

import pymc_skewgp as sg

SEED = 8927
PACKAGES = ("pymc", "pytensor", "numba", "nutpie", "arviz")
XNEW = np.linspace(-2.5, 2.5, 9)[:, None]
logging.getLogger("pymc").setLevel(logging.ERROR)
# What is said of short chains and divergences is part of what is measured, not a message.
warnings.filterwarnings("ignore")


def smallest_ess(f):
    """Smallest bulk effective sample size over the latent values, f of shape (chain, draw, n)."""
    return float(az.ess(az.from_dict({"posterior": {"f": f}}), method="bulk")["f"].min())


def kernel():
    return 2.0 * pm.gp.cov.ExpQuad(1, ls=0.5)


# --- fixed hyperparameters: speed --------------------------------------------------------------


def by_latent_nuts(x, y):
    """`pm.gp.Latent` + NUTS: draws of f, seconds to compile, seconds to sample."""
    with pm.Model():
        f = pm.gp.Latent(cov_func=kernel()).prior("f", x)
        pm.Bernoulli("y", p=pm.math.invprobit(f), observed=y)
        return timed_sample()


def by_conjugate_step(x, y):
    """`pm.sample` on a SkewGP, which picks `ConjugateStep`."""
    with pm.Model():
        f = sg.SkewGP(cov_func=kernel()).prior("f", x)
        pm.Bernoulli("y", p=pm.math.invprobit(f), observed=y)
        return timed_sample()


def timed_sample():
    """Draws of f, seconds to compile, seconds to sample; one core, so that a core is compared.

    Tuning is as PyMC's defaults have it: 1000 draws for NUTS, what the step asks for otherwise.
    """
    options = {"chains": 4, "cores": 1, "progressbar": False, "random_seed": SEED}
    options |= {"nuts_sampler": "pymc", "compute_convergence_checks": False}
    started = time.perf_counter()
    idata = pm.sample(1000, **options)
    elapsed = time.perf_counter() - started
    sampling = idata["posterior"].attrs["sampling_time"]
    return idata["posterior"]["f"].to_numpy(), elapsed - sampling, sampling


def by_shortcut(x, y):
    """`SkewGP.posterior(...).sample`, whose `sampling_time` means what PyMC's does."""
    calls = []
    for _ in range(2):
        started = time.perf_counter()
        dt = sg.SkewGP(cov_func=kernel()).posterior(x, y).sample(1000, 4, random_seed=SEED)
        calls.append(time.perf_counter() - started)
    # The first call also compiles the kernel and loads tables.
    sampling = dt["sample_stats"].attrs["sampling_time"]
    return dt["posterior"]["f"].to_numpy(), calls[0] - sampling, sampling


def speed():
    """Smallest effective draws of f a second at fixed hyperparameters, over pm.gp.Latent + NUTS."""
    for n in (200, 500):
        x, y = draw_problem(n)
        f, compiling, sampling = by_latent_nuts(x, y)
        base, base_all = smallest_ess(f) / sampling, smallest_ess(f) / (compiling + sampling)
        yield f"pm.gp.Latent + NUTS, n={n}", "-", f"{base:.1f} a second ({compiling:.1f} s compile)"
        f, compiling, sampling = by_conjugate_step(x, y)
        rate = smallest_ess(f) / sampling
        what = f"ConjugateStep over pm.gp.Latent + NUTS, compiling apart, n={n}"
        yield what, ">= 20", f"{rate / base:.0f} ({rate:.0f} a second)"
        f, compiling, sampling = by_shortcut(x, y)
        rate = smallest_ess(f) / sampling
        what = f"SkewGP.posterior().sample over pm.gp.Latent + NUTS, compiling apart, n={n}"
        yield what, ">= 100", f"{rate / base:.0f} ({rate:.0f} a second)"
        what = f"the same with compiling included, n={n}"
        rate = smallest_ess(f) / (compiling + sampling)
        yield what, ">= 20", f"{rate / base_all:.0f}"


# --- hyperparameters: agreement ----------------------------------------------------------------


def priors():
    ls = pm.InverseGamma("ls", alpha=3.0, beta=2.0)
    eta = pm.HalfNormal("eta", sigma=2.0)
    return eta**2 * pm.gp.cov.ExpQuad(1, ls=ls)


def marginal(x, y, nuts_sampler):
    """(a) NUTS on the marginal likelihood, then exact f and f*."""
    with pm.Model():
        gp = sg.SkewGP(cov_func=priors())
        gp.marginal_likelihood("y", x, y)
        idata = pm.sample(
            1000, tune=500, chains=2, cores=2, nuts_sampler=nuts_sampler, **sampling_options()
        )
    latent = gp.sample_latent(idata, Xnew=XNEW, random_seed=SEED, progressbar=False)
    return latent["posterior"], latent["predictions"]["p"].to_numpy()


def conjugate(x, y):
    """(b) `ConjugateStep` for f, NUTS for the rest."""
    with pm.Model() as model:
        gp = sg.SkewGP(cov_func=priors())
        f = gp.prior("f", x)
        pm.Bernoulli("y", p=pm.math.invprobit(f), observed=y)
        idata = pm.sample(5000, tune=1000, chains=2, cores=2, **sampling_options())
        gp.conditional("fnew", XNEW)
    return idata["posterior"], predicted(model, idata)


def latent_nuts(x, y):
    """(c) `pm.gp.Latent` + NUTS."""
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=priors())
        f = gp.prior("f", x)
        pm.Bernoulli("y", p=pm.math.invprobit(f), observed=y)
        idata = pm.sample(
            2000, tune=1000, chains=2, cores=2, target_accept=0.9, **sampling_options()
        )
        # With less of it some draws have no Cholesky factor.
        gp.conditional("fnew", XNEW, jitter=1e-4)
    return idata["posterior"], predicted(model, idata)


def sampling_options():
    return {"progressbar": False, "random_seed": SEED, "compute_convergence_checks": False}


def predicted(model, idata):
    thinned = idata.sel(draw=slice(None, None, max(1, idata["posterior"].sizes["draw"] // 500)))
    with model:
        drawn = pm.sample_posterior_predictive(
            thinned, var_names=["fnew"], predictions=True, progressbar=False, random_seed=SEED
        )
    # Draws whose conditional covariance has no Cholesky factor come back as NaN: left out.
    fnew = drawn["predictions"]["fnew"].to_numpy()
    fnew = fnew[:, ~np.isnan(fnew).any(axis=(0, 2))]
    return ndtr(fnew)


def agreement():
    """Hyperparameters and p(y*) of a small model by three routes, n = 100."""
    x, y = draw_problem(100, seed=3)
    routes = {
        "marginal likelihood, PyMC's NUTS": lambda: marginal(x, y, "pymc"),
        "marginal likelihood, nutpie": lambda: marginal(x, y, "nutpie"),
        "ConjugateStep and NUTS": lambda: conjugate(x, y),
        "pm.gp.Latent and NUTS": lambda: latent_nuts(x, y),
    }
    found = {}
    for name, route in routes.items():
        started = time.perf_counter()
        posterior, p = route()
        elapsed = time.perf_counter() - started
        draws = {**{k: posterior[k].to_numpy() for k in ("ls", "eta")}, "p": p}
        mean, error = {}, {}
        for k, values in draws.items():  # p has fewer of them
            mean[k] = values.mean(axis=(0, 1))
            error[k] = az.mcse(az.from_dict({"posterior": {k: values}}))[k].to_numpy()
        found[name] = mean, error
        shown = ", ".join(f"{k} {mean[k]:.3f} +- {error[k]:.3f}" for k in ("ls", "eta"))
        yield f"{name}: hyperparameters (wall time)", "-", f"{shown} ({elapsed:.0f} s)"
    reference, reference_error = found.pop("pm.gp.Latent and NUTS")
    for name, (mean, error) in found.items():
        worst = {
            k: float(
                np.max(np.abs(mean[k] - reference[k]) / np.hypot(error[k], reference_error[k]))
            )
            for k in mean
        }
        shown = ", ".join(f"{k} {v:.1f}" for k, v in worst.items())
        yield f"{name}: largest difference to pm.gp.Latent in joint errors", "<= 4", shown


# --- waiting -----------------------------------------------------------------------------------

FIRST_CALL = f"""
import sys; sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import time; started = time.perf_counter()
import pymc as pm, models
x, y = models.draw_problem(100, seed=3)
with pm.Model():
    gp = models.sg.SkewGP(cov_func=models.priors())
    ROUTE
    pm.sample(500, tune=500, chains=2, cores=2, **models.sampling_options())
print(time.perf_counter() - started)
"""
ROUTES = {
    "ConjugateStep": 'pm.Bernoulli("y", p=pm.math.invprobit(gp.prior("f", x)), observed=y)',
    "marginal_likelihood": 'gp.marginal_likelihood("y", x, y)',
}


def first_call():
    """First `pm.sample` from cold caches, n = 100, random hyperparameters, imports included."""
    for name, route in ROUTES.items():
        with tempfile.TemporaryDirectory() as cold:
            flags = f"base_compiledir={cold}/pytensor"
            environment = {
                **os.environ,
                "PYTENSOR_FLAGS": flags,
                "NUMBA_CACHE_DIR": f"{cold}/numba",
            }
            code = FIRST_CALL.replace("ROUTE", route)
            ran = subprocess.run(
                [sys.executable, "-c", code], env=environment, capture_output=True, text=True
            )
        shown = (
            f"{float(ran.stdout.split()[-1]):.0f} s" if ran.returncode == 0 else ran.stderr[-200:]
        )
        yield f"first pm.sample from cold caches, {name}, n=100, 2 x (500 + 500)", "< 60 s", shown


def imports():
    """Import of the package over import of PyMC, best of 7 fresh processes each."""
    best = {}
    for module in ("pymc", "pymc_skewgp"):
        code = (
            f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        )
        times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(7)]
        best[module] = min(times)
    ratio = best["pymc_skewgp"] / best["pymc"]
    yield (
        "import of pymc_skewgp over import of pymc",
        "< 1.5",
        f"{ratio:.2f} ({best['pymc']:.1f} s)",
    )


SECTIONS = {f.__name__: f for f in (imports, first_call, speed, agreement)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=None)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    run_sections(SECTIONS, arguments.out / "models.csv", arguments.only, PACKAGES)


if __name__ == "__main__":
    main()
