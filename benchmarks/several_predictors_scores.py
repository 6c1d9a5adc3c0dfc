"""Held-out log scores where noise changes: one standard deviation against one of time.

    python benchmarks/several_predictors_scores.py --data DIR

Five folds of the helmet data in the folder of `latent_gaussian`. Hyperparameters are those of the
tutorial; a score is the log of the mean density of a measurement over draws.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from runner import append_rows, machine, read_rows
from scipy import special, stats
from sklearn.model_selection import KFold

import pymc_skewgp as sg

RESULTS = Path(__file__).resolve().parent / "results" / "several_predictors_scores.csv"
SEED, FOLDS = 8927, 5


def helmet(folder):
    """Milliseconds and g; the times are read off the first two functions of the basis."""
    with np.load(folder / "data" / "pdb_mcycle_gp.npz") as file:
        first, second = file["Xgp_1"][:, :2].T
        angle = np.arctan2(np.sqrt(1.5) * first, 0.5 * second / first)
        x, y = angle - angle.min(), file["Y"].astype(float)
    return 2.4 + x / x.max() * 55.2, y


def model_of(t, y, train, is_changing):
    def function(name, scale, ls, m):
        kernel = scale**2 * pm.gp.cov.Matern52(1, ls=ls)
        return pm.gp.HSGP(m=[m], c=1.3, cov_func=kernel).prior(name, t[:, None])

    with pm.Model() as model:
        f = function("f", 45.0, 6.0, 25)
        if is_changing:
            sd = pm.math.exp(pm.Normal("level", np.log(15), 1) + function("g", 1.3, 9.0, 12))
            sd, own = pm.Deterministic("sd", sd), train
        else:
            sd, own = pm.HalfNormal("sd", 40), ...
        pm.Normal("y", f[train], sd[own], observed=y[train])
    return model


def scores(t, y, train, test, is_changing):
    model = model_of(t, y, train, is_changing)
    drawn = sg.integrate(model, random_seed=SEED, progressbar=False)["posterior"].dataset
    drawn = drawn.stack(sample=("chain", "draw"))
    f, sd = (drawn[name].transpose(..., "sample").to_numpy() for name in ("f", "sd"))
    sd = sd[test] if is_changing else sd
    log_p = stats.norm.logpdf(y[test][:, None], f[test], sd)
    return special.logsumexp(log_p, axis=1) - np.log(log_p.shape[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    t, y = helmet(parser.parse_args().data)
    host = machine(("numpy", "scipy", "pymc"))
    done = {(row["fold"], row["model"]) for row in read_rows(RESULTS)}
    split = KFold(FOLDS, shuffle=True, random_state=SEED).split(y)
    for fold, (train, test) in enumerate(split):
        for is_changing in (False, True):
            name = "sd of time" if is_changing else "one sd"
            if (str(fold), name) not in done:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = scores(t, y, train, test, is_changing)
                row = {"fold": fold, "model": name, "rows": len(test), "score": found.mean()}
                append_rows(RESULTS, [row], host)
                print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
