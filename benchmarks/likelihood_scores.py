"""Forecasts of ordered and unordered classes, cross-validated on real data, against other packages.

"ours less this" has the differences of accuracy, absolute error and log loss (nats a label), each
with its standard error over the folds.
"""

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pymc as pm
from fold_scores import SEED, FoldScores
from gaussian_forecasts import largest_by_ep, summaries
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import pymc_skewgp as sg

ORDINAL = ("machine", "auto", "stock", "wisconsin_breast", "abalone")
CLASSES = (
    "iris", "wine-recognition", "glass", "balance-scale", "dermatology", "cmc", "vowel",
    "segmentation",
)  # fmt: skip
BY_SOFTMAX = CLASSES[:3]  # CPU minutes a fold with more rows or classes
MOST_ROWS = 500  # of the multinomial probit's, K - 1 for each label


def loaded(path):
    with np.load(path, allow_pickle=True) as file:
        return file["X"].astype(float), file["y"].astype(int)


# --- ordered classes -----------------------------------------------------------------------------


def peer(python, script="ordinal_peers.py"):
    """The packages of one interpreter, as one method of several."""

    def fit(Z, y, new):
        with tempfile.TemporaryDirectory() as folder:
            given, out = Path(folder) / "in.npz", Path(folder) / "out.npz"
            np.savez(given, X=Z, y=y, new=new)
            subprocess.run([python, Path(__file__).with_name(script), given, out], check=True)
            with np.load(out) as found:
                names = [key[2:] for key in found.files if key.startswith("p_")]
                return {n: (found[f"p_{n}"], float(found[f"seconds_{n}"])) for n in names}

    return fit


def ordered(Z, y, new):
    """Exact forecasts, and those of EP and Laplace at the same hyperparameters."""
    started = time.process_time()
    model = sg.SkewGPOrdinalClassifier(random_state=SEED).fit(Z, y)
    p = model.predict_proba(new)
    found = {"exact": (p, time.process_time() - started)}
    for name, (summary, seconds) in summaries(model.posterior_, (Z, y), new).items():
        found[name] = summary["p_mean"], seconds
    return found


def ordered_ard(Z, y, new):
    model = sg.SkewGPOrdinalClassifier(ard=True, hyperparameters="maximize", random_state=SEED)
    return model.fit(Z, y).predict_proba(new)


def ordinal(data, folder, peer_python=None, gpflow_python=None):
    """Five data sets, five folds, 800 training rows at most: accuracy, absolute error, log loss."""

    methods = {"exact + EP + Laplace": ordered, "exact, ard": ordered_ard}
    if peer_python:
        methods["mord + statsmodels"] = peer(peer_python)
    if gpflow_python:
        methods["gpflow"] = peer(gpflow_python, "ordinal_gpflow.py")
    table = FoldScores(folder / "likelihood_folds.csv", "ordinal")
    for name in ORDINAL:
        X, y = loaded(data / "ordinal" / f"{name}.npz")
        table.measure(name, (X, y), methods)
        yield from table.report(name, len(y), "exact")


# --- classes without an order --------------------------------------------------------------------


def together(Z, y, new):
    """Exact forecasts of all classes together, and those of EP at the same hyperparameters."""
    started = time.process_time()
    model = sg.SkewGPClassifier(multi_class="exact", random_state=SEED).fit(Z, y)
    p = model.predict_proba(new)
    found = {"exact": (p, time.process_time() - started)}
    if p.shape[1] > 2:
        found["EP"] = largest_by_ep(model.posterior_, (Z, y), new, p.shape[1])
    return found


def one_against_the_rest(Z, y, new):
    return sg.SkewGPClassifier(random_state=SEED).fit(Z, y).predict_proba(new)


def softmax(Z, y, new):
    return (
        sg.SkewGPClassifier(multi_class="softmax", random_state=SEED).fit(Z, y).predict_proba(new)
    )


def logistic_regression(Z, y, new):
    return LogisticRegression(max_iter=10_000).fit(Z, y).predict_proba(new)


def with_weak_priors(Z, y, new):
    """One against the rest, under the priors that "exact" has."""

    def kernel(d):
        ls = pm.InverseGamma("ls", 2.0, 3.0 * np.sqrt(d))
        return pm.HalfNormal("eta", 5.0) ** 2 * pm.gp.cov.ExpQuad(d, ls=ls)

    return sg.SkewGPClassifier(kernel, random_state=SEED).fit(Z, y).predict_proba(new)


def sklearn(Z, y, new):
    kernel = ConstantKernel(1.0) * RBF(Z.shape[1] ** 0.5)
    model = OneVsRestClassifier(GaussianProcessClassifier(kernel, random_state=SEED))
    return model.fit(Z, y).predict_proba(new)


def classes(data, folder):
    """Eight data sets, five folds: all classes together, one against the rest, scikit-learn."""
    methods = {
        "exact + EP": together,
        "one against the rest": one_against_the_rest,
        "one against the rest, weak priors": with_weak_priors,
        "scikit-learn": sklearn,
        "logistic regression": logistic_regression,
    }
    table = FoldScores(folder / "likelihood_folds.csv", "classes")
    for name in CLASSES:
        X, y = loaded(data / "multiclass" / f"{name}.npz")
        own = methods | ({"softmax": softmax} if name in BY_SOFTMAX else {})
        table.measure(name, (X, y), own, largest=MOST_ROWS // int(y.max()))
        yield from table.report(name, len(y), "exact")
