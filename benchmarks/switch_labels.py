"""What `SkewGP` does by itself with more than 5000 labels, against EP with the kernel itself.

    python benchmarks/switch_labels.py [--out DIR]

Labels (probit) at random places of the unit square, 5,001 to 8,000 of them. The answer is the log
evidence of expectation propagation by plain NumPy and SciPy, n^3 operations a sweep; it goes on
from the sites that the package found, until it changes by less than .001 nat: where it ends does
not depend on where it began. What EP itself is off by is about the same under both priors: an
answer is right within .1 nat and its stated error.

A call that stops is right where the nearest of what was tried is more than .1 nat off.
"""

import argparse
import re
import time
from pathlib import Path

import numpy as np
from runner import append_rows, machine, read_rows
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import log_ndtr
from switch import HERE, KERNELS, LOSS, correlation

import pymc_skewgp as sg

VARIANCE = 4.0
# Kernel, range, rows.
PROBLEMS = (
    ("ExpQuad", 0.05, 5001),
    ("ExpQuad", 0.2, 8000),
    ("Matern32", 0.5, 5500),
    ("Matern32", 0.15, 5200),
    ("Matern12", 0.3, 5100),
)
SWEEPS, SAME = 8, 1e-3


def problem(i):
    """Inputs and labels, of f by random features of some thousand waves."""
    name, ls, n = PROBLEMS[i]
    rng = np.random.default_rng((34, 1, i))
    X = rng.uniform(size=(n, 2))
    waves = rng.standard_normal((2000, 2)) / ls
    degrees = {"Matern12": 1.0, "Matern32": 3.0}.get(name)
    if degrees:
        waves *= np.sqrt(degrees / rng.chisquare(degrees, (2000, 1)))
    angles = X @ waves.T + rng.uniform(0.0, 2.0 * np.pi, 2000)
    f = np.sqrt(VARIANCE / 1000.0) * np.cos(angles) @ rng.standard_normal(2000)
    return X, (f + rng.standard_normal(n) > 0).astype(int)


def log_evidence(i, X, y, tau, nu):
    """By expectation propagation, which goes on from sites; and the sites' last change."""
    name, ls, n = PROBLEMS[i]
    sign, last = 2.0 * y - 1.0, np.inf
    for _ in range(SWEEPS):
        root = np.sqrt(tau)
        matrix = np.empty((n, n), order="F")
        for start in range(0, n, 1000):
            own = slice(start, start + 1000)
            matrix[:, own] = VARIANCE * correlation(name, ls, X, X[own]) * root[:, None] * root[own]
        matrix[np.diag_indices(n)] += 1.0
        chol, failed = dpotrf(matrix, lower=1, overwrite_a=1)
        assert not failed
        half_log_det = np.log(chol.diagonal()).sum()
        inverse, _ = dpotri(chol, lower=1, overwrite_c=1)
        # Covariance of f: (I - B^-1) between inverse roots.
        variance = (1.0 - inverse.diagonal()) / tau
        shifted = nu / root
        mean = (shifted - dsymv(1.0, inverse, shifted, lower=1)) / root
        cavity = 1.0 / variance - tau
        at = (mean / variance - nu) / cavity
        z = sign * at / np.sqrt(1.0 + 1.0 / cavity)
        total = log_ndtr(z).sum() + 0.5 * np.log1p(tau / cavity).sum() - half_log_det
        total += 0.5 * nu @ (mean - nu / (cavity + tau))
        total += 0.5 * (at * cavity / (cavity + tau)) @ (tau * at - 2.0 * nu)
        ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
        scale = np.sqrt(1.0 + 1.0 / cavity)
        new_mean = at + sign * ratio / (cavity * scale)
        new_variance = 1.0 / cavity - ratio * (z + ratio) / (cavity * scale) ** 2
        tau = np.maximum(1.0 / new_variance - cavity, 1e-10)
        nu = new_mean / new_variance - at * cavity
        if abs(total - last) < SAME:
            break
        last = total
    return float(total)


def sites(posterior, X):
    """EP's, of each row in the order of the data."""
    (part,) = posterior._fit.predictors[0][1]
    _ = posterior._fit.ep
    scale = np.broadcast_to(part.scale, part.block.tau.shape)
    place = {tuple(x): k for k, x in enumerate(part.X)}
    order = [place[tuple(x)] for x in X]
    return (part.block.tau * scale**2)[order], (part.block.nu * scale)[order]


def answer(i):
    """A row of the table."""
    name, ls, n = PROBLEMS[i]
    X, y = problem(i)
    row = {"problem": i, "kernel": name, "ls": ls, "n": n}
    kernel = VARIANCE * KERNELS[name](2, ls=ls)
    ask = {"likelihood": sg.likelihoods.BernoulliProbit(), "random_seed": 0}
    started = time.process_time()
    stopped = ""
    try:
        posterior = sg.SkewGP(cov_func=kernel).posterior(X, y, **ask)
    except sg.ApproximationError as error:
        stopped = str(error)
        tried = sg.approximations.Inducing(
            max(map(int, re.findall(r"Inducing\((\d+)\) is", stopped)))
        )
        posterior = sg.SkewGP(cov_func=kernel, approximation=tried).posterior(X, y, **ask)
    found = posterior.log_marginal_likelihood
    seconds = time.process_time() - started
    loss = posterior.approximation_loss
    ours = float(posterior._fit.ep_log_evidence)
    off = ours - log_evidence(i, X, y, *sites(posterior, X))
    right = abs(off) > LOSS if stopped else abs(off) <= LOSS + 2 * found.std_error
    return row | {
        "answer": stopped or repr(posterior.prior.approximation),
        "seconds": f"{seconds:.1f}",
        "off": f"{off:.4f}",
        "said": str(loss),
        "se": f"{found.std_error:.4f}",
        "over_ep": f"{found.value - ours:.4f}",
        "verdict": "right" if right else "WRONG",
    }


def main():
    """Run what the table does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    table = options.out / "switch_labels.csv"
    done = {int(row["problem"]) for row in read_rows(table)}
    for i in range(len(PROBLEMS)):
        if i not in done:
            row = answer(i)
            print(row, flush=True)
            append_rows(table, [row], machine())


if __name__ == "__main__":
    main()
