"""Real data of ten thousand to half a million rows: log loss, seconds, memory, beside peers.

    python benchmarks/large_sets.py --data DIR [--only SET ...] [--out DIR]

80 per cent of the rows to learn from, seed 0, inputs standardised by them. `SkewGPClassifier` with
a lengthscale for each input and the defaults of many rows (300 inducing points, hyperparameters by
EP's evidence of all rows), logistic regression and scikit-learn's gradient boosting. Each set runs
in a process of its own, with as many threads as cores; seconds are CPU seconds of all threads.
Figures go to ``large_sets.csv`` as they are known.
"""

import argparse
import functools
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from core import ROOT
from runner import run_sections

# Log loss of gradient boosting plus .01 is asked for, on two of the first three; then what is known
# of Gaussian processes: the best of GPflow, GPBoost and an isotropic kernel.
SETS = {
    "magic": "<= .316, < .321",
    "adult": "<= .281, < .318",
    "sleep": "<= .407, < .409",
    "564_fried": "to the end",
    "kddcup": "to the end",
}
KERNEL = "matern52"


def measured(name, data):
    """Of each method, in this process."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    import pymc_skewgp as sg

    warnings.filterwarnings("ignore")
    with np.load(Path(data) / "large" / f"{name}.npz") as arrays:
        X, y = arrays["X"].astype(np.float64), arrays["y"].astype(int)
    X, Xnew, y, truth = train_test_split(X, y, test_size=0.2, random_state=0)
    scaler = StandardScaler().fit(X)
    X, Xnew = scaler.transform(X), scaler.transform(Xnew)
    methods = {
        "logistic regression": LogisticRegression(max_iter=1000),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0),
        "SkewGPClassifier": sg.SkewGPClassifier(KERNEL, ard=True, random_state=0),
    }
    for method, model in methods.items():
        began = time.process_time()
        p = model.fit(X, y).predict_proba(Xnew)[:, 1]
        found = {"log_loss": log_loss(truth, p), "seconds": time.process_time() - began}
        if method == "SkewGPClassifier":
            evidence = model.log_marginal_likelihood_
            found |= {"evidence": evidence.value, "se": evidence.std_error}
            found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"method": method, "n": len(y), "d": X.shape[1], **found}), flush=True)


def one_set(name, data):
    """Log loss of the rows that were left out."""
    command = [sys.executable, __file__, "--data", str(data), "--measure", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            what = f"{name}, {row['n']} rows, {row['d']} inputs: {row['method']}"
            reached = f"{row['log_loss']:.4f}, {row['seconds']:.0f} s"
            own = "evidence" in row
            if own:
                reached += f", {row['memory']:.1f} GB; evidence {row['evidence']:.2f}"
                reached += f" +- {row['se']:.2f}"
            yield what, SETS[name] if own else "", reached
    if process.returncode:
        yield f"{name}: SkewGPClassifier", SETS[name], f"ended with {process.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=tuple(SETS))
    parser.add_argument("--measure", choices=tuple(SETS), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    if arguments.measure:
        measured(arguments.measure, arguments.data)
        return
    sections = {name: functools.partial(one_set, name, arguments.data) for name in SETS}
    run_sections(sections, arguments.out / "large_sets.csv", arguments.only)


if __name__ == "__main__":
    main()
