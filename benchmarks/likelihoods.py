"""Every likelihood: cost against binary probit, and forecasts against other packages on real data.

    python benchmarks/likelihoods.py [--data DIR] [--only SECTION ...] [--out DIR]

Every figure is printed beside the one asked for, and appended to ``likelihoods.csv`` as soon as it
is known; sections already in the file are not run again unless named.
"""

import argparse
import functools
import time
import warnings
from pathlib import Path

import numpy as np
from censored import censored
from choices import choices, rankings
from core import RBF, ROOT
from datasets import add_data_option
from duels import duels
from likelihood_scores import classes, ordinal
from runner import run_sections
from shapes import shapes
from tobit import tobit

import pymc_skewgp as sg

lk = sg.likelihoods
PACKAGES = ("numpy", "scipy", "numba", "pymc", "scikit-learn")
N_LEVELS = 4


# --- cost ----------------------------------------------------------------------------------------


def latent(x, rng, variance=2.0):
    """A draw of f at x, lengthscale .5."""
    values, vectors = np.linalg.eigh(RBF(0.5, variance)(x))
    return vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(len(x)))


def problems(n_rows, seed=0):
    """A data set of about so many rows for each likelihood: name, X, y, likelihood."""
    rng = np.random.default_rng(seed)

    def draw(n):
        x = rng.standard_normal((n, 1))
        return x, latent(x, rng)

    x, f = draw(n_rows)
    v = f + rng.standard_normal(n_rows)
    yield "probit", x, (v > 0).astype(int), lk.BernoulliProbit()
    cutpoints = np.array([-1.0, 0.0, 1.0])
    yield "ordered probit, 4 levels", x, np.searchsorted(cutpoints, v), lk.OrderedProbit(cutpoints)
    yield "tobit, half censored", x, np.maximum(v, 0.0), lk.CensoredGaussian(1.0, lower=0.0)
    few, g = draw(n_rows // 10)
    counts = (g[:, None] + rng.standard_normal((len(g), 10)) > 0).sum(axis=1)
    yield "binomial, 10 trials a place", few, counts, lk.BinomialProbit(10)
    items, g = draw(max(n_rows // 4, 4))
    pairs = np.array([rng.choice(len(g), 2, replace=False) for _ in range(n_rows)])
    score = g[pairs] + rng.standard_normal(pairs.shape)
    winner_first = np.where(score[:, :1] > score[:, 1:], pairs, pairs[:, ::-1])
    yield "duels, sd 1", items, winner_first, lk.Preference(1.0)
    sets = np.array([rng.choice(len(g), 4, replace=False) for _ in range(n_rows // 3)])
    order = np.argsort(-(g[sets] + rng.standard_normal(sets.shape)), axis=1)
    ranked = np.take_along_axis(sets, order, axis=1)
    yield "choices among 4", items, ranked, lk.Choice(1.0)
    yield "rankings of 4", items, ranked, lk.Ranking(1.0)
    few, _ = draw(n_rows // (N_LEVELS - 1))
    several = np.column_stack([latent(few, rng) for _ in range(N_LEVELS)])
    label = np.argmax(several + rng.standard_normal(several.shape), axis=1)
    yield "multinomial, 4 classes", few, label, lk.MultinomialProbit(N_LEVELS)


def cost():
    """Evidence and 1024 draws: CPU time over binary probit's; relative ESS; error."""
    # Of six runs; the first is not counted.
    for n in (200, 1000):
        base = None
        for name, X, y, likelihood in problems(n):
            seconds = []
            for _ in range(6):
                started = time.process_time()
                posterior = sg.SkewGPPosterior(
                    X, y, cov_func=RBF(), likelihood=likelihood, n_draws=1024
                )
                evidence = posterior.log_marginal_likelihood
                seconds.append(time.process_time() - started)
            taken = np.median(seconds[1:])
            base = base or taken
            u = posterior.latent
            yield (
                f"{name}, N={n}: time over binary probit's; relative ESS; standard error",
                "1.5; .9 or .1",
                f"{taken / base:.2f} ({taken:.2f} s); "
                f"{u.relative_ess:.3f}; {evidence.std_error:.3f}",
            )


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--peer-python", help="interpreter with mord, statsmodels and botorch")
    parser.add_argument("--gpflow-python", help="interpreter with gpflow and tensorflow-cpu")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    data = options.data
    sections = {
        "cost": cost,
        "duels": functools.partial(duels, options.out / "duels.csv", options.peer_python),
        "tobit": functools.partial(tobit, options.out / "tobit.csv"),
        "censored": functools.partial(censored, data),
        "shapes": shapes,
        "ordinal": functools.partial(
            ordinal, data, options.out, options.peer_python, options.gpflow_python
        ),
        "classes": functools.partial(classes, data, options.out),
        "choices": functools.partial(choices, data, options.out),
        "rankings": functools.partial(rankings, data, options.out),
    }
    run_sections(sections, options.out / "likelihoods.csv", options.only, PACKAGES)


if __name__ == "__main__":
    main()
