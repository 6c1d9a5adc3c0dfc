"""One lengthscale for all inputs, one for each, or one for each, shrunk together; and a level of f.

    python benchmarks/lengthscales.py [--data DIR] [--rows 50 150] [--out DIR]

All sets of the Penn Machine Learning Benchmarks with at most 1,000 rows and 44 features, 20 where
more than 50 rows are learnt from, which takes as long as all else; those that are equal in rows,
features and classes once. Of each, `--rows` rows drawn by class with the seed `SEED`, at most four
fifths of all, are learnt from, and the others forecast: bits a label beyond the base rate. Sets of
few features come first: averages of many take minutes where NUTS follows, and not all are run yet.
Each forecast is a row of ``DIR/lengthscales.csv``, written as soon as it is known; what
is in there is not run again. Times are CPU seconds.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from datasets import add_data_option, information_score, pmlb_sets, standardise
from runner import append_rows, machine, read_rows
from sklearn.model_selection import train_test_split

import pymc_skewgp as sg

RESULTS = Path(__file__).resolve().parent / "results"
SEED = 8927
MOST_ROWS, FEW = 1000, 50
FIELDS = ("set", "rows", "features", "lengthscales", "hyperparameters", "information", "seconds")


def independent(average):
    """A kernel with a lengthscale for each input, of which no prior knows the others."""

    def kernel(d):
        if average:
            eta = pm.HalfNormal("eta", 25.0, initval=2.0)
            ls = pm.LogNormal("ls", 0.5 * np.log(d) + 1.0, 1.5, shape=d)
        else:
            eta = pm.HalfFlat("eta", initval=2.0)
            ls = pm.HalfFlat("ls", shape=d, initval=np.full(d, np.sqrt(d)))
        return eta**2 * pm.gp.cov.ExpQuad(d, ls=ls)

    return kernel


def estimators(hyperparameters):
    """By lengthscales."""
    options = {"hyperparameters": hyperparameters, "random_state": SEED, "fit_intercept": False}
    kernel = independent(hyperparameters == "average")
    yield "one", sg.SkewGPClassifier(**options)
    yield "independent", sg.SkewGPClassifier(kernel, **options)
    yield "together", sg.SkewGPClassifier(ard=True, **options)
    if hyperparameters == "maximize":
        yield "one, level", sg.SkewGPClassifier(**options | {"fit_intercept": True})


def chosen_sets(data, wanted):
    """Name, X, y."""
    most = 44 if wanted <= FEW else 20
    known = set()
    for name, X, y in pmlb_sets(data):
        key = (*X.shape, *sorted(np.bincount(y)))
        if X.shape[0] <= MOST_ROWS and X.shape[1] <= most and key not in known:
            known.add(key)
            yield name, X, y


def n_features(one):
    """Averages of many take longest."""
    return one[1].shape[1]


def measure(name, X, y, wanted, which, path, done):
    """All lengthscales, or those that are wanted, on one set."""
    only, hyperparameters = which
    count = min(wanted, int(0.8 * len(y)))
    parts = train_test_split(X, y, train_size=count, stratify=y, random_state=SEED)
    (inputs, new), labels, truth = standardise(*parts[:2]), parts[2], parts[3]
    for lengthscales, estimator in estimators(hyperparameters):
        known = (name, str(count), lengthscales, hyperparameters) in done
        if known or (only and lengthscales not in only):
            continue
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = estimator.fit(inputs, labels).predict_proba(new)[:, 1]
        seconds = time.process_time() - began
        bits = information_score(truth, p, labels.mean())
        row = (name, count, X.shape[1], lengthscales, hyperparameters, f"{bits:.6f}")
        rows = [dict(zip(FIELDS, (*row, f"{seconds:.2f}"), strict=True))]
        append_rows(path, rows, machine(), FIELDS)


def summary(rows):
    """Means over sets, and differences from one lengthscale under the same treatment."""
    sizes = {}
    for row in rows:  # few rows of a small set are all it has
        size = f"{FEW} rows" if int(row["rows"]) <= FEW else "more rows"
        table = sizes.setdefault(size, {})
        values = float(row["information"]), float(row["seconds"])
        table.setdefault((row["lengthscales"], row["hyperparameters"]), {})[row["set"]] = values
    for size, table in sizes.items():
        base = table["one", "maximize"]
        for (lengthscales, hyperparameters), own in table.items():
            common = sorted(set(own) & set(base))
            bits, seconds = np.array([own[name] for name in common]).T
            gain = bits - [base[name][0] for name in common]
            error = gain.std(ddof=1) / np.sqrt(gain.size)
            print(
                f"{size:>9} {lengthscales:>11} {hyperparameters:>8}: {bits.mean():.3f} bits on "
                f"{gain.size} sets, {gain.mean():+.3f} +- {error:.3f}, worst {gain.min():+.3f}; "
                f"{np.median(seconds):.1f} s"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--rows", nargs="+", type=int, default=[50, 150])
    parser.add_argument("--only", nargs="+", default=["maximize", "average"])
    parser.add_argument("--lengthscales", nargs="+", help="of those, e.g. one together")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "lengthscales.csv"
    names = ("set", "rows", "lengthscales", "hyperparameters")
    done = {tuple(row[name] for name in names) for row in read_rows(path)}
    for hyperparameters in arguments.only:
        for wanted in arguments.rows:
            for name, X, y in sorted(chosen_sets(arguments.data, wanted), key=n_features):
                which = arguments.lengthscales, hyperparameters
                measure(name, X, y, wanted, which, path, done)
    summary(read_rows(path))


if __name__ == "__main__":
    main()
