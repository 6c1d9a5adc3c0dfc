"""Hyperparameters averaged over: `integrate` against Markov chains, and averages against maxima.

    python benchmarks/averaging.py [--only SECTION ...] [--data DIR] [--sets NAME ...] [--out DIR]

Figures are appended to ``DIR/averaging.csv`` as soon as they are known, those of single folds to
``DIR/averaging_folds.csv``; what is in the files already is not run again unless its section is
named. Times are CPU seconds of one process: they do not depend on what else the machine does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from datasets import (
    add_data_option,
    information_score,
    pmlb,
    pmlb_sizes,
    standardise,
    stratified_folds,
)
from runner import append_rows, machine, read_rows, run_sections

import pymc_skewgp as sg

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pymc", "pytensor", "numba", "arviz")
SEED = 8927
# The number of the last rung.
CHAINS = 4
# More hyperparameters are left to NUTS: minutes a set.
MOST_FEATURES = 20

# --- against Markov chains ---------------------------------------------------------------------

# Each route in a process of its own with empty caches, imports not counted: CPU seconds of the
# first call and of a second one, the smallest effective sample size of the two hyperparameters,
# and their means with Monte Carlo standard errors.
ROUTE = f"""
import sys; sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import json, time, warnings; warnings.filterwarnings("ignore")
import arviz as az, models, numpy as np, pymc as pm, pymc_skewgp as sg
x, y = models.draw_problem(SIZE, seed=3)
options = {{**models.sampling_options(), "cores": 1, "chains": 2, "nuts_sampler": "pymc"}}
def route():
    with pm.Model() as model:
        kernel = models.priors()
        BODY
    return idata["posterior"]
spent = []
for _ in range(TIMES):
    began = time.process_time(); posterior = route(); spent.append(time.process_time() - began)
posterior = posterior.to_dataset()[["ls", "eta"]]; ess, mcse = az.ess(posterior), az.mcse(posterior)
print(json.dumps(dict(
    seconds=spent, ess=float(min(ess["ls"], ess["eta"])),
    mean=[float(posterior[k].mean()) for k in ("ls", "eta")],
    se=[float(mcse[k]) for k in ("ls", "eta")],
)))
"""
PROBIT = 'pm.Bernoulli("y", p=pm.math.invprobit(f), observed=y)'
BODIES = {
    "integrate": [
        'f = sg.SkewGP(cov_func=kernel).prior("f", x)',
        PROBIT,
        "idata = sg.integrate(model, random_seed=1, progressbar=False)",
    ],
    "ConjugateStep": [
        'f = sg.SkewGP(cov_func=kernel).prior("f", x)',
        PROBIT,
        "idata = pm.sample(1000, tune=500, **options)",
    ],
    "marginal_likelihood + NUTS": [
        'sg.SkewGP(cov_func=kernel).marginal_likelihood("y", x, y)',
        "idata = pm.sample(500, tune=500, **options)",
    ],
    "pm.gp.Latent + NUTS": [
        'f = pm.gp.Latent(cov_func=kernel).prior("f", x)',
        PROBIT,
        "idata = pm.sample(500, tune=500, target_accept=0.9, **options)",
    ],
}
ASKED = {"ConjugateStep": 15, "marginal_likelihood + NUTS": 100, "pm.gp.Latent + NUTS": 50}


def in_a_process(name, size, times):
    """What `ROUTE` prints, with empty caches."""
    with tempfile.TemporaryDirectory() as cold:
        environment = {
            **os.environ,
            "PYTENSOR_FLAGS": f"base_compiledir={cold}/pytensor",
            "NUMBA_CACHE_DIR": f"{cold}/numba",
        }
        code = ROUTE.replace("BODY", "\n        ".join(BODIES[name]))
        code = code.replace("SIZE", str(size)).replace("TIMES", str(times))
        out = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    return json.loads(out.strip().splitlines()[-1])


def chains():
    """Effective draws of two hyperparameters a CPU second, n = 100, compilation included."""
    ours = in_a_process("integrate", 100, 2)
    cold, warm = (ours["ess"] / seconds for seconds in ours["seconds"])
    yield (
        "integrate: first call, second call",
        "-",
        f"{ours['seconds'][0]:.1f} s, {ours['seconds'][1]:.1f} s; {ours['ess']:.0f} effective",
    )
    for name, asked in ASKED.items():
        found = in_a_process(name, 100, 1)
        rate = found["ess"] / found["seconds"][0]
        yield f"{name}", "-", f"{found['seconds'][0]:.0f} s, {found['ess']:.0f} effective"
        yield (
            f"integrate over {name}: first call, second call",
            f">= {asked}",
            f"{cold / rate:.0f}, {warm / rate:.0f}",
        )
        errors = np.hypot(ours["se"], found["se"])
        off = np.abs(np.subtract(ours["mean"], found["mean"])) / errors
        yield f"its means of ls and eta, in joint errors from {name}", "<= 4", f"{off.max():.1f}"


def waiting():
    """First and second call of `integrate` on the README's model, 80 rows, empty caches."""
    ours = in_a_process("integrate", 80, 2)
    for what, asked, seconds in zip(
        ("first", "second"), ("<= 20 s", "<= 3 s"), ours["seconds"], strict=True
    ):
        yield f"integrate, n=80, {what} call (CPU)", asked, f"{seconds:.1f} s"


# --- forecasts ---------------------------------------------------------------------------------


def estimators(seed):
    """What is compared: one lengthscale an input, flat priors but for the average."""
    options = {"ard": True, "random_state": seed}
    return {
        "maximum": sg.SkewGPClassifier(**options, hyperparameters="maximize"),
        "average": sg.SkewGPClassifier(**options, hyperparameters="average"),
    }


def folds(names, data, out):
    """Bits a label beyond the base rate, seconds, and relative ESS: a fold of each set."""
    path = out / "averaging_folds.csv"
    done = {(row["set"], row["method"]) for row in read_rows(path)}
    fields = ("set", "n", "d", "method", "information", "seconds", "relative_ess", "rung")
    for name in names:
        X, y = pmlb(data, name)
        train, test = next(iter(stratified_folds(y, SEED)))
        inputs, new = standardise(X[train], X[test])
        for method, estimator in estimators(SEED).items():
            if (name, method) in done:
                continue
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p = estimator.fit(inputs, y[train]).predict_proba(new)[:, 1]
            seconds = time.process_time() - began
            row = dict.fromkeys(fields, "")
            row |= {"set": name, "n": len(train), "d": X.shape[1], "method": method}
            row["information"] = f"{information_score(y[test], p, y[train].mean()):.6f}"
            row["seconds"] = f"{seconds:.2f}"
            if method == "average":
                found = estimator.hyperparameters_["posterior"].attrs
                row |= {"relative_ess": f"{found['relative_ess']:.3f}", "rung": found["rung"]}
            append_rows(path, [row], machine(PACKAGES), fields)
            print(f"  {name}: {method} {row['information']} bits, {seconds:.1f} s", flush=True)
    return [row for row in read_rows(path) if row["set"] in names]


def forecasts(names, largest, data, out):
    """Sets of the Penn Machine Learning Benchmarks, one lengthscale an input, one fold each."""
    names = names or [k for k, n, d in pmlb_sizes(data) if n <= largest and d <= MOST_FEATURES]
    rows = folds(names, data, out)
    by = {method: {r["set"]: r for r in rows if r["method"] == method} for method in estimators(0)}
    gain = [
        float(by["average"][name]["information"]) - float(by["maximum"][name]["information"])
        for name in names
    ]
    mean, error = np.mean(gain), np.std(gain, ddof=1) / np.sqrt(len(gain))
    yield (
        f"bits a label, average less maximum, {len(gain)} sets",
        ">= .02",
        f"{mean:+.4f} +- {error:.4f}; median {np.median(gain):+.4f}",
    )
    ess = [float(by["average"][name]["relative_ess"]) for name in names]
    rungs = [int(by["average"][name]["rung"]) for name in names]
    yield (
        "relative ESS of the hyperparameters' weights",
        ">= .2",
        f"smallest {min(ess):.2f}, median {np.median(ess):.2f}; "
        f"NUTS for {rungs.count(CHAINS)} of {len(rungs)}",
    )
    ratio = [
        float(by["average"][name]["seconds"]) / float(by["maximum"][name]["seconds"])
        for name in names
    ]
    yield (
        "seconds of average over maximum, median and largest",
        "<= 5",
        f"{np.median(ratio):.1f}, {max(ratio):.1f}",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--only", nargs="+", choices=("waiting", "chains", "forecasts"))
    parser.add_argument("--sets", nargs="+", default=None, help="default: all up to --largest rows")
    parser.add_argument("--largest", type=int, default=300)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    sections = {
        "waiting": waiting,
        "chains": chains,
        "forecasts": partial(
            forecasts, arguments.sets, arguments.largest, arguments.data, arguments.out
        ),
    }
    run_sections(sections, arguments.out / "averaging.csv", arguments.only, PACKAGES)


if __name__ == "__main__":
    main()
