"""Held-out log scores where noise changes: one standard deviation against one of an input.

    python benchmarks/several_predictors_scores.py --data DIR

Five folds of data in the folder of `latent_gaussian`: the helmet, with the hyperparameters of the
tutorial, and mesquite bushes, grams of leaves by the logarithm of a canopy's volume, with such as
the ranges of both suggest. A score is the log of the mean density of a value over draws.
"""

import argparse
import warnings
from pathlib import Path
from typing import NamedTuple

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


def mesquite(folder):
    """Log of cubic metres, and grams."""
    with np.load(folder / "data" / "pdb_mesquite.npz") as file:
        sizes = (file[name].astype(float) for name in ("diam1", "diam2", "canopy_height"))
        return sum(np.log(x) for x in sizes), file["weight"].astype(float)


class Kind(NamedTuple):
    """Data, and scale, lengthscale and number of functions of a mean and of a log sd."""

    data: object
    mean: tuple
    log_sd: tuple
    level: float  # median of the sd
    width: float  # scale of the prior of one sd


KINDS = {
    "helmet": Kind(helmet, (45.0, 6.0, 25), (1.3, 9.0, 12), 15.0, 40.0),
    "mesquite": Kind(mesquite, (1000.0, 2.0, 15), (1.3, 3.0, 10), 200.0, 500.0),
}


def model_of(t, y, train, kind, is_changing):
    def function(name, scale, ls, m):
        kernel = scale**2 * pm.gp.cov.Matern52(1, ls=ls)
        return pm.gp.HSGP(m=[m], c=1.3, cov_func=kernel).prior(name, t[:, None])

    with pm.Model() as model:
        f = function("f", *kind.mean)
        if is_changing:
            level = pm.Normal("level", np.log(kind.level), 1)
            sd = pm.math.exp(level + function("g", *kind.log_sd))
            sd, own = pm.Deterministic("sd", sd), train
        else:
            sd, own = pm.HalfNormal("sd", kind.width), ...
        pm.Normal("y", f[train], sd[own], observed=y[train])
    return model


def scores(t, y, train, test, kind, is_changing):
    model = model_of(t, y, train, kind, is_changing)
    drawn = sg.integrate(model, random_seed=SEED, progressbar=False)["posterior"].dataset
    drawn = drawn.stack(sample=("chain", "draw"))
    f, sd = (drawn[name].transpose(..., "sample").to_numpy() for name in ("f", "sd"))
    sd = sd[test] if is_changing else sd
    log_p = stats.norm.logpdf(y[test][:, None], f[test], sd)
    return special.logsumexp(log_p, axis=1) - np.log(log_p.shape[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    folder, host = parser.parse_args().data, machine(("numpy", "scipy", "pymc"))
    done = {(row["data"], row["fold"], row["model"]) for row in read_rows(RESULTS)}
    for data, kind in KINDS.items():
        t, y = kind.data(folder)
        split = KFold(FOLDS, shuffle=True, random_state=SEED).split(y)
        for fold, (train, test) in enumerate(split):
            for is_changing in (False, True):
                name = "changing sd" if is_changing else "one sd"
                if (data, str(fold), name) in done:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = scores(t, y, train, test, kind, is_changing)
                row = {"data": data, "fold": fold, "model": name, "rows": len(test)}
                append_rows(RESULTS, [row | {"score": found.mean()}], host)
                print(*row.values(), found.mean(), flush=True)


if __name__ == "__main__":
    main()
