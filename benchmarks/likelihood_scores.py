"""Forecasts under each likelihood, cross-validated on real data, against other packages."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from datasets import standardise
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier

import pymc_skewgp as sg
from pymc_skewgp._observations.winner import win_probabilities

SEED, FOLDS, LARGEST = 8927, 5, 800
ORDINAL = ("machine", "auto", "stock", "wisconsin_breast", "abalone")
CLASSES = (
    "glass", "iris", "wine-recognition", "balance-scale", "vowel", "dermatology", "cmc",
    "segmentation",
)  # fmt: skip
LEAST = 1e-6


def folds(y):
    """Five folds; training parts of at most `LARGEST` rows, the others left out."""
    try:
        split = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(y, y)
    except ValueError:
        split = KFold(FOLDS, shuffle=True, random_state=SEED).split(y)
    rng = np.random.default_rng(SEED)
    for train, test in split:
        yield rng.permutation(train)[:LARGEST], test


def log_loss(p, y):
    return float(-np.log(np.clip(p[np.arange(len(y)), y], LEAST, 1)).mean())


def timed(function, *arguments):
    started = time.perf_counter()
    return function(*arguments), time.perf_counter() - started


def cross_validated(X, y, methods):
    """Mean of (accuracy, mean absolute error, log loss, seconds) over folds, by method."""
    found = {}
    for train, test in folds(y):
        Z, new = standardise(X[train], X[test])
        levels, inner = np.unique(y[train], return_inverse=True)
        for name, method in methods.items():
            own, seconds = timed(method, Z, inner, new)
            for label, p_own in own.items() if isinstance(own, dict) else ((name, own),):
                p = np.zeros((len(test), int(y.max()) + 1))
                p[:, levels] = p_own
                guess = p.argmax(axis=1)
                row = (
                    np.mean(guess == y[test]), np.abs(guess - y[test]).mean(),
                    log_loss(p, y[test]), seconds,
                )  # fmt: skip
                found.setdefault(label, []).append(row)
    return {name: np.mean(rows, axis=0) for name, rows in found.items()}


def ordinal(data, peer_python=None):
    """Five data sets, five folds, 800 training rows at most: accuracy, absolute error, log loss."""

    def ours(Z, y, new):
        return sg.SkewGPOrdinalClassifier(random_state=SEED).fit(Z, y).predict_proba(new)

    def peers(Z, y, new):
        with tempfile.TemporaryDirectory() as folder:
            given, out = Path(folder) / "in.npz", Path(folder) / "out.npz"
            np.savez(given, X=Z, y=y, new=new)
            script = Path(__file__).with_name("ordinal_peers.py")
            subprocess.run([peer_python or sys.executable, script, given, out], check=True)
            result = np.load(out)
            return {k[2:]: result[k] for k in result.files if k.startswith("p_")}

    for name in ORDINAL:
        with np.load(data / "ordinal" / f"{name}.npz", allow_pickle=True) as file:
            X, y = file["X"].astype(float), file["y"].astype(int)
        for method, row in cross_validated(
            X, y, {"SkewGPOrdinalClassifier": ours, "peers": peers}
        ).items():
            yield report(name, len(y), method, row)


def classes(data):
    """Eight data sets, five folds: "exact", one against the rest, scikit-learn."""

    def skewgp(multi_class):
        def fit(Z, y, new):
            model = sg.SkewGPClassifier(multi_class=multi_class, random_state=SEED)
            return model.fit(Z, y).predict_proba(new)

        return fit

    def sklearn(Z, y, new):
        kernel = ConstantKernel(1.0) * RBF(Z.shape[1] ** 0.5)
        model = OneVsRestClassifier(GaussianProcessClassifier(kernel, random_state=SEED))
        return model.fit(Z, y).predict_proba(new)

    methods = {"exact": skewgp("exact"), "ovr": skewgp("ovr"), "scikit-learn": sklearn}
    for name in CLASSES:
        path = data / "multiclass" / f"{name}.npz"
        if not path.exists():
            continue
        with np.load(path, allow_pickle=True) as file:
            X, y = file["X"].astype(float), file["y"].astype(int)
        for method, row in cross_validated(X, y, methods).items():
            yield report(name, len(y), method, row)


def report(name, n, method, row):
    accuracy, error, loss, seconds = row
    return (
        f"{name} (n={n}), {method}: accuracy, mean absolute error, log loss, seconds a fold",
        "",
        f"{accuracy:.3f}, {error:.3f}, {loss:.3f}, {seconds:.1f}",
    )


# --- choices -------------------------------------------------------------------------------------


def conditional_logit(X, chosen, new, penalty=1e-3):
    """Linear utilities under a softmax, ridge-penalised; X of shape (n, k, d)."""

    def loss(b):
        eta = X @ b
        p = eta - logsumexp(eta, axis=1, keepdims=True)
        here = np.arange(len(chosen))
        gap = X[here, chosen] - np.einsum("nk,nkd->nd", np.exp(p), X)
        return -p[here, chosen].sum() + penalty * b @ b, -gap.sum(axis=0) + 2 * penalty * b

    b = minimize(loss, np.zeros(X.shape[2]), jac=True).x
    eta = new @ b
    return np.exp(eta - logsumexp(eta, axis=1, keepdims=True))


def choices(data):
    """Travel mode and fishing, five folds: log score of the choices, linear logit against GP."""
    for name in ("travel_mode", "fishing"):
        with np.load(data / "choice" / f"{name}.npz", allow_pickle=True) as file:
            X, y = file["X"].astype(float), file["y"].astype(int)
        n, k, d = X.shape
        flat = X.reshape(-1, d)
        X = ((flat - flat.mean(axis=0)) / flat.std(axis=0)).reshape(n, k, d)
        # What an alternative is called counts too: constants of the alternatives.
        X = np.concatenate([X, np.broadcast_to(np.eye(k), (n, k, k))], axis=2)
        scores = {"GP, exact": [], "conditional logit": [], "frequencies": []}
        for train, test in folds(y):
            p = gp_choices(X[train], y[train], X[test])
            scores["GP, exact"].append(log_loss(p, y[test]))
            p = conditional_logit(X[train], y[train], X[test])
            scores["conditional logit"].append(log_loss(p, y[test]))
            share = np.bincount(y[train], minlength=k) / len(train)
            scores["frequencies"].append(log_loss(np.tile(share, (len(test), 1)), y[test]))
        for method, own in scores.items():
            error = np.std(own, ddof=1) / np.sqrt(FOLDS)
            yield f"{name} (n={n}), {method}: log loss", "", f"{np.mean(own):.3f} +- {error:.3f}"


def gp_choices(X, y, new):
    """Choice probabilities of a GP utility, lengthscale and variance by its own evidence."""
    n, k, d = X.shape
    rest = np.array([[c, *(j for j in range(k) if j != c)] for c in y]) + k * np.arange(n)[:, None]
    likelihood = sg.likelihoods.Choice(1.0)

    def posterior(point):
        scale, variance = np.exp(point)

        def kernel(A, B=None, diag=False):
            if diag:
                return np.full(len(A), variance * (2.0))
            B = A if B is None else B
            squared = (A**2).sum(1)[:, None] + (B**2).sum(1) - 2 * A @ B.T
            return variance * (np.exp(-0.5 * np.maximum(squared, 0) / scale**2) + A @ B.T / d)

        return sg.SkewGPPosterior(
            X.reshape(-1, d), rest, cov_func=kernel, likelihood=likelihood, n_draws=256
        )

    found = minimize(
        lambda t: -posterior(t).log_marginal_likelihood.value,
        np.log([np.sqrt(d), 1.0]), method="Nelder-Mead", options={"maxfev": 25},
    )  # fmt: skip
    best = posterior(found.x)
    f = best.predict(new.reshape(-1, d), draws=250, quantiles=())["predictions"]["f"].to_numpy()
    f = f.reshape(-1, *new.shape[:2])
    return win_probabilities(f).mean(axis=0)


def rankings(data):
    """91 people rank six platforms: log score of who is first, exact GP against frequencies."""
    with np.load(data / "choice" / "game_rankings.npz", allow_pickle=True) as file:
        rank, own = file["rank"].astype(int), file["own"].astype(float)
    n, k = rank.shape
    order = np.argsort(rank, axis=1)
    first = order[:, 0]
    items = np.concatenate([np.broadcast_to(np.eye(k), (n, k, k)), own[:, :, None]], axis=2)
    scores = {"GP on rankings, exact": [], "frequencies of the first": []}
    for train, test in folds(first):
        X, new = items[train].reshape(-1, k + 1), items[test].reshape(-1, k + 1)
        y = order[train] + k * np.arange(len(train))[:, None]

        def kernel(A, B=None, diag=False):
            return (A * A).sum(axis=1) if diag else A @ (A if B is None else B).T

        posterior = sg.SkewGPPosterior(
            X, y, cov_func=kernel, likelihood=sg.likelihoods.Ranking(1.0)
        )
        f = posterior.predict(new, draws=250, quantiles=())["predictions"]["f"].to_numpy()
        p = win_probabilities(f.reshape(-1, len(test), k)).mean(axis=0)
        scores["GP on rankings, exact"].append(log_loss(p, first[test]))
        share = (np.bincount(first[train], minlength=k) + 0.5) / (len(train) + 0.5 * k)
        scores["frequencies of the first"].append(
            log_loss(np.tile(share, (len(test), 1)), first[test])
        )
    for method, values in scores.items():
        error = np.std(values, ddof=1) / np.sqrt(FOLDS)
        yield (
            f"game rankings (n={n}), {method}: log loss of the first place",
            "",
            f"{np.mean(values):.3f} +- {error:.3f}",
        )
