"""What approximations get wrong on real data, and simulation-based calibration.

    python benchmarks/approximations.py [--data DIR] [--only tables sbc] [--methods NAME ...]

"tables": `compare_approximations` on four sets of the Penn Machine Learning Benchmarks, five
splits each, every method at the same hyperparameters: the mode of their posterior given the
training rows, f integrated out, under weak priors. A row for each method goes to
``approximations.csv`` as soon as a split is done; a killed run goes on where it was. ``--methods``
adds methods to splits that are there, for instance from an environment with pymc-extras.

"sbc": 500 simulations at 30 inputs, GP and SkewGP with two pseudo-points, by exact draws and by
expectation propagation, to ``sbc.csv``.
"""

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pymc as pm
from core import ROOT
from datasets import add_data_option, pmlb, standardise, stratified_folds
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from runner import append_rows, machine, read_rows
from scipy.stats import kstest

import pymc_skewgp as sg

SEED = 8927
# Some 100 (labels that are clear, and labels that are noise), 200 and 500 training rows; two have
# few enough columns for HSGP.
SETS = ("analcatdata_creditscore", "analcatdata_boxing1", "prnn_synth", "wdbc")
METHODS = (
    "exact", "lin_ess", "ep", "laplace", "advi", "fullrank_advi", "latent_nuts", "hsgp_nuts",
)  # fmt: skip
PACKAGES = ("numpy", "scipy", "pymc", "pytensor")
if find_spec("pymc_extras"):
    PACKAGES += ("pymc-extras",)
# Columns that follow from others, and that the file does not have.
NOISE = ("wasserstein_noise", "skewness_error_noise", "p_error_noise")
# Of NUTS, ADVI and all others: what a user would wait for in a first look.
COUNTS = {"draws": 500, "tune": 500, "chains": 2}


def kernel(d):
    # Without a prior the variance of separable labels has no bound.
    eta = pm.HalfNormal("eta", sigma=5.0)
    ls = pm.InverseGamma("ls", alpha=3.0, beta=2.0 * np.sqrt(d))
    return eta**2 * pm.gp.cov.ExpQuad(d, ls=ls)


def tables(data, out, methods):
    """Four data sets, five splits, all methods."""
    path = out / "approximations.csv"
    rows = read_rows(path)
    done = {(row["set"], row["split"], row["method"]) for row in rows}
    host = machine(PACKAGES)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns) as progress:
        task = progress.add_task("Comparing", total=5 * len(SETS))
        for name in SETS:
            X, y = pmlb(data, name)
            for split, (train, test) in enumerate(stratified_folds(y, SEED)):
                progress.update(task, description=f"{name}, split {split + 1} of 5")
                left = [m for m in methods if (name, str(split), m) not in done]
                if left:
                    append_rows(path, compared(name, split, X, y, train, test, left), host)
                progress.advance(task)


def compared(name, split, X, y, train, test, methods):
    """Rows of the table for one split, as dictionaries."""
    inputs, new = standardise(X[train], X[test])
    with pm.Model():
        gp = sg.SkewGP(cov_func=kernel(X.shape[1]))
    start = {"eta": 2.0, "ls": float(np.sqrt(inputs.var(axis=0).sum()))}
    fit = sg.find_hyperparameters(
        gp, inputs, y[train], start=start, random_seed=SEED, progressbar=False
    )
    table, _ = sg.compare_approximations(
        gp,
        inputs,
        y[train],
        point=fit.point,
        Xnew=new,
        ynew=y[test],
        methods=methods,
        random_seed=SEED + split,
        progressbar=False,
        **COUNTS,
    )
    known = {"set": name, "n": len(train), "d": X.shape[1], "split": split}
    known |= {key: float(fit.point[key]) for key in ("eta", "ls")}
    return [
        {**known, "method": method, **{k: shorter(v) for k, v in row.items() if k not in NOISE}}
        for method, row in table.to_dict("index").items()
    ]


def shorter(value):
    return f"{value:.6g}" if isinstance(value, float) else value


def sbc(data, out, methods):
    """500 simulations at 30 inputs: places of the truth, and their uniformity."""
    X = np.linspace(-3, 3, 30)[:, None]
    host = machine(PACKAGES)
    path = out / "sbc.csv"
    path.unlink(missing_ok=True)
    signs = {"pseudo_points": [[-1.0], [1.5]], "phase": [1, -1]}
    for s, pseudo in ((0, {}), (2, signs)):
        gp = sg.SkewGP(cov_func=9.0 * pm.gp.cov.ExpQuad(1, ls=1.0), **pseudo)
        for method in ("exact", "ep"):
            started = time.perf_counter()
            tree = sg.sbc(gp, X, method=method, n_simulations=500, random_seed=SEED)
            seconds = time.perf_counter() - started
            places = tree["prior_sbc"]["f"].values[0]
            row = {"s": s, "method": method, "simulations": 500, "n": 30}
            # Points depend on each other: the smallest of 30 p-values, times 30.
            p = min(kstest(places[:, i], "uniform").pvalue for i in range(30))
            row["p_bonferroni"] = f"{min(1.0, 30 * p):.3g}"
            cover = sg.coverage(tree)
            for prob in cover["prob"].values:
                at = cover.sel(prob=prob)
                row[f"coverage_{prob * 100:.0f}"] = f"{float(at['mean']):.4f}"
                row[f"coverage_{prob * 100:.0f}_se"] = f"{float(at['mean_se']):.4f}"
            row["seconds"] = f"{seconds:.1f}"
            append_rows(path, [row], host)
            print(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--only", nargs="+", choices=("tables", "sbc"), default=("tables", "sbc"))
    parser.add_argument("--methods", nargs="+", default=METHODS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        {"tables": tables, "sbc": sbc}[name](arguments.data, arguments.out, arguments.methods)


if __name__ == "__main__":
    main()
