"""Learning hyperparameters and `SkewGPClassifier`, against grids, scikit-learn and GPy.

    python benchmarks/learning.py [--data DIR] [--only SECTION ...] [--out DIR]

Every figure is printed beside the one asked for, and appended to ``learning.csv`` as soon as it is
known; sections already in the file are not run again unless named. The section "score" keeps every
fold in ``learning_score.csv``: a killed run goes on where it was.
"""

import argparse
import csv
import functools
import resource
import time
import warnings
from pathlib import Path

import numpy as np
from core import ROOT
from datasets import (
    SETS_20,
    add_data_option,
    draw_probit_gp,
    fashion_mnist,
    information_score,
    pmlb,
    standardise,
    stratified_folds,
)
from peers import fit_gpy, fit_sklearn
from runner import run_sections
from threadpoolctl import threadpool_limits

import pymc_skewgp as sg
from pymc_skewgp._posterior.evidence_gradient import EvidenceByEP, EvidenceTerms, evidence_estimate

PACKAGES = ("numpy", "scipy", "pymc", "pytensor", "scikit-learn", "GPy")
SEED = 8927
warnings.filterwarnings("ignore")


# --- the optimum ---------------------------------------------------------------------------------

# Steps of .2 in the logarithms, over all that the search may reach and matters: between two of them
# an evidence with a second derivative of 10, which is much for 400 labels, loses .05.
LOG_LS = np.arange(-3.0, 5.01, 0.2)
LOG_ETA = np.arange(-3.0, 7.61, 0.2)
# What EP's evidence may be off by: points further below its best are not run by twisting.
DOUBT = 3.0


def terms(X, sign, log_ls, log_eta):
    squared = ((X[:, None] - X) ** 2).sum(axis=-1)
    cov = np.exp(2 * log_eta - 0.5 * squared * np.exp(-2 * log_ls))
    lower, upper = np.where(sign > 0, 0.0, -np.inf), np.where(sign > 0, np.inf, 0.0)
    none, noise, unseen = np.zeros(0), np.ones(len(X)), np.full(len(X), np.nan)
    G = cov + np.eye(len(X))
    return EvidenceTerms(lower, upper, unseen, G, noise, none, none, np.zeros((0, 0)))


def grid_best(X, sign, found):
    """Best log evidence on a dense grid, and at the point `found`: both by 4096 fresh draws."""
    scale = np.log(np.sqrt(X.var(axis=0).sum()))
    by_ep = {}
    for log_ls in LOG_LS + scale:
        ep = EvidenceByEP()
        for log_eta in LOG_ETA:
            by_ep[log_ls, log_eta] = ep(terms(X, sign, log_ls, log_eta)).value
    best = max(by_ep.values())
    close = [point for point, value in by_ep.items() if value > best - DOUBT]
    twisted = {p: evidence_estimate(terms(X, sign, *p), 256, 1).value for p in close}
    best_by_twisting = sorted(close, key=lambda p: -twisted[p])[:5]
    again = [evidence_estimate(terms(X, sign, *p), 4096, 2) for p in best_by_twisting]
    ours = evidence_estimate(terms(X, sign, *found), 4096, 3)
    return max(again, key=lambda e: e.value), ours, len(by_ep), len(close)


def optimum(data):
    """Evidence reached on 20 data sets, two-parameter RBF, against a dense grid."""
    gaps = []
    for name in SETS_20:
        X, y = pmlb(data, name)
        (X,) = standardise(X)
        model, seconds = timed(functools.partial(sg.SkewGPClassifier(random_state=SEED).fit, X, y))
        point = model.hyperparameters_.point
        found = float(np.log(point["ls"])), float(np.log(point["eta"]))
        grid, ours, n_points, n_close = grid_best(X, 2.0 * y - 1.0, found)
        gaps.append(ours.value - grid.value)
        yield (
            f"{name} (n={len(y)}, d={X.shape[1]}): evidence reached less the best of {n_points} "
            f"grid points ({n_close} by twisting); fit {seconds:.1f} s",
            ">= -.05",
            f"{gaps[-1]:.3f} +- {np.hypot(grid.std_error, ours.std_error):.3f} ({ours.value:.2f})",
        )
    yield "worst of 20", ">= -.05", f"{min(gaps):.3f}"


# --- time ----------------------------------------------------------------------------------------


def timed(function):
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started


def fit_time():
    """Seconds to fit, RBF, no restarts, one BLAS thread: SkewGPClassifier, scikit-learn, GPy."""
    # With two the peers wait for their own threads, the more the busier the machine is.
    with threadpool_limits(1):
        yield from fit_times()


def fit_times():
    sg.SkewGPClassifier(n_restarts=0).fit(*draw_probit_gp(50))  # imports and caches
    for n in (500, 1000):
        X, y = draw_probit_gp(n)
        model = sg.SkewGPClassifier(n_restarts=0, random_state=0)
        ours = [timed(functools.partial(model.fit, X, y))[1] for _ in range(3)]
        laplace = [fit_sklearn(X, y).seconds for _ in range(3)]
        own = float(np.median(ours))
        yield f"n={n}: seconds to fit, median of 3, posterior draws included", "", f"{own:.2f}"
        ratio = own / np.median(laplace)
        asked = "<= 3" if n == 1000 else ""
        yield f"n={n}: over scikit-learn (Laplace)", asked, f"{ratio:.2f}"
        for mode in ("nested", "alternated"):
            gpy = fit_gpy(X, y, ep_mode=mode)
            yield (
                f"n={n}: GPy over it (EP, {mode}, {gpy.n_evaluations} evaluations in "
                f"{gpy.seconds:.1f} s)",
                ">= 5",
                f"{gpy.seconds / own:.1f}",
            )


# --- score ---------------------------------------------------------------------------------------


def ours(X, y):
    model = sg.SkewGPClassifier(random_state=SEED).fit(X, y)
    return lambda new: model.predict_proba(new)[:, 1]


def from_data(X):
    """Start of the peers at the scale of the data, where SkewGPClassifier starts: theirs is 1."""
    return 1.0, float(X.shape[1]) ** 0.5


def sklearn_from_one(X, y):
    return fit_sklearn(X, y, n_restarts=1, seed=SEED).predict_proba


def sklearn_from_data(X, y):
    return fit_sklearn(X, y, n_restarts=1, seed=SEED, start=from_data(X)).predict_proba


def gpy(X, y):
    return fit_gpy(X, y, n_restarts=1, seed=SEED, start=from_data(X)).predict_proba


METHODS = {
    "SkewGPClassifier": ours,
    "scikit-learn": sklearn_from_one,
    "scikit-learn from sqrt(d)": sklearn_from_data,
    "GPy": gpy,
}
FIELDS = ("set", "fold", "method", "information", "accuracy", "seconds")


def score(data, path):
    """Information score in bits, 5-fold, two-parameter RBF, same folds and scaling for all."""
    path.touch()
    with path.open() as file:
        done = {tuple(row[:3]) for row in csv.reader(file)}
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if not done:
            writer.writerow(FIELDS)
        for name in SETS_20:
            X, y = pmlb(data, name)
            for k, (train, test) in enumerate(stratified_folds(y, SEED)):
                Z, new = standardise(X[train], X[test])
                for method, fit in METHODS.items():
                    if (name, str(k), method) in done:
                        continue
                    predict, seconds = timed(functools.partial(fit, Z, y[train]))
                    p = predict(new)
                    bits = information_score(y[test], p, y[train].mean())
                    row = [name, k, method, f"{bits:.6f}", f"{np.mean((p > 0.5) == y[test]):.6f}"]
                    writer.writerow([*row, f"{seconds:.3f}"])
                    file.flush()
    with path.open() as file:
        rows = list(csv.DictReader(file))
    table = {}
    for name in SETS_20:
        for method in METHODS:
            own = [r for r in rows if r["set"] == name and r["method"] == method]
            table[name, method] = [np.mean([float(r[f]) for r in own]) for f in FIELDS[3:]]
        bits = ", ".join(f"{method} {table[name, method][0]:.3f}" for method in METHODS)
        yield f"{name}: bits a label", "", bits
    means = {m: np.mean([table[name, m] for name in SETS_20], axis=0) for m in METHODS}
    own = np.array([table[name, "SkewGPClassifier"][0] for name in SETS_20])
    for method, (bits, accuracy, seconds) in means.items():
        yield (
            f"{method}: average of 20 sets, bits; accuracy; seconds a fold",
            "",
            f"{bits:.4f}; {accuracy:.4f}; {seconds:.2f}",
        )
        if method != "SkewGPClassifier":
            gain = own - [table[name, method][0] for name in SETS_20]
            error = gain.std(ddof=1) / np.sqrt(gain.size)
            # One set on which a peer fails altogether would decide the mean.
            shown = f"{gain.mean():.4f} +- {error:.4f}, median {np.median(gain):.4f}"
            yield f"SkewGPClassifier less {method}, bits (standard error over sets)", ">= 0", shown


# --- large ---------------------------------------------------------------------------------------


def large(data):
    """Fashion-MNIST, 5000 training and 5000 test images, one class against the rest."""
    (X, y), (new, truth) = (fashion_mnist(data, part) for part in ("train", "test"))
    X, y, new, truth = X[:5000], y[:5000], new[:5000], truth[:5000]
    p = np.empty((5000, 10))
    for k in range(10):
        model, seconds = timed(lambda k=k: sg.SkewGPClassifier(random_state=SEED).fit(X, y == k))
        p[:, k], more = timed(lambda model=model: model.predict_proba(new)[:, 1])
        accuracy = np.mean((p[:, k] > 0.5) == (truth == k))
        bits = information_score((truth == k).astype(float), p[:, k], np.mean(y == k))
        evidence = model.log_marginal_likelihood_
        yield (
            f"class {k}: seconds to fit and to predict 5000; accuracy; bits; log evidence",
            "< 90 s",
            f"{seconds:.1f} + {more:.1f}; {accuracy:.4f}; {bits:.4f}; {evidence.value:.1f} +- "
            f"{evidence.std_error:.2g}",
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield "peak memory", "< 6 GB", f"{peak:.2f} GB"
    yield "accuracy, one against the rest", ">= .816", f"{np.mean(p.argmax(axis=1) == truth):.4f}"


# --- growth --------------------------------------------------------------------------------------


def growth():
    """Seconds to fit against n, ten features, and the exponent of n."""
    sizes, seconds = (500, 1000, 2000, 5000), []
    for n in sizes:
        X, y = draw_probit_gp(n, d=10, lengthscale=3.0)
        model = sg.SkewGPClassifier(n_restarts=0, random_state=0)
        seconds.append(timed(functools.partial(model.fit, X, y))[1])
        yield f"n={n}, d=10: seconds to fit", "", f"{seconds[-1]:.2f}"
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    yield "exponent of n, 500 to 5000", "<= 3", f"{exponent:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    sections = {
        "fit_time": fit_time,
        "growth": growth,
        "optimum": functools.partial(optimum, options.data),
        "large": functools.partial(large, options.data),
        "score": functools.partial(score, options.data, options.out / "learning_score.csv"),
    }
    run_sections(sections, options.out / "learning.csv", options.only, PACKAGES)


if __name__ == "__main__":
    main()
