"""What `SkewGP` does by itself above 5000 rows, against exact evidences: 40 problems.

    python benchmarks/switch.py [--out DIR] [--exact DIR]

Values with Gaussian noise at random places of the unit square, 5,001 to 20,000 of them: Matern 1/2,
Matern 3/2 and ExpQuad, ranges from .02 to 1, noise from .1 to 1. The exact evidence, mean and
standard deviation come from one Cholesky factor by plain NumPy and SciPy, whose standard normal
image the values are drawn from. It is kept in DIR, as it takes minutes and 3.2 GB for 20,000 rows.

An answer is right within .1 nat and its stated error; a call that stops is right where the loss of
300 inducing points is above .1 nat. Every row of ``switch.csv`` is written as it is known, and
rows in the file are not run again.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pymc as pm
from runner import append_rows, machine, read_rows
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf
from scipy.spatial.distance import cdist

import pymc_skewgp as sg

KERNELS = {"Matern12": pm.gp.cov.Matern12, "Matern32": pm.gp.cov.Matern32}
KERNELS["ExpQuad"] = pm.gp.cov.ExpQuad
N_PROBLEMS, NEW = 40, 50
LARGE = {37: 12_000, 38: 12_000, 39: 20_000}  # rows of the last problems; others have fewer
LOSS = 0.1
HERE = Path(__file__).resolve().parent


def problem(i):
    """Kernel, range, noise, inputs and new inputs; and a generator for the values."""
    rng = np.random.default_rng((34, i))
    name = list(KERNELS)[i % 3]
    ls, sigma = (float(np.exp(rng.uniform(*np.log(ends)))) for ends in ((0.02, 1.0), (0.1, 1.0)))
    n = LARGE.get(i, 5001 + int(3000 * rng.uniform() ** 2))
    return name, ls, sigma, rng.uniform(size=(n, 2)), rng.uniform(size=(NEW, 2)), rng


def correlation(name, ls, A, B):
    """Of the kernels, in place of the distances."""
    r = cdist(A, B)
    r /= ls
    if name == "ExpQuad":
        return np.exp(-0.5 * np.square(r, out=r), out=r)
    if name == "Matern12":
        return np.exp(np.negative(r, out=r), out=r)
    r *= np.sqrt(3.0)
    near = 1.0 + r
    np.exp(np.negative(r, out=r), out=r)
    return np.multiply(near, r, out=r)


def exact(i, folder):
    """Values, log evidence, and mean and deviation of f at the new inputs."""
    path = folder / f"{i}.npz"
    if not path.exists():
        name, ls, sigma, X, new, rng = problem(i)
        n = len(X)
        matrix = np.empty((n, n), order="F")
        for start in range(0, n, 1000):
            matrix[:, start : start + 1000] = correlation(name, ls, X, X[start : start + 1000])
        matrix[np.diag_indices(n)] += sigma**2
        chol, failed = dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
        assert failed == 0
        white = rng.standard_normal(n)
        y = np.zeros(n)
        for start in range(0, n, 500):  # the upper triangle is not clean
            rows = np.tril(chol[start : start + 500, : start + 500], start)
            y[start : start + 500] = rows @ white[: rows.shape[1]]
        evidence = -0.5 * white @ white - np.log(chol.diagonal()).sum()
        cross = correlation(name, ls, X, new)
        half = solve_triangular(chol, cross, lower=True)
        mean = cross.T @ cho_solve((chol, True), y)
        sd = np.sqrt(1.0 - (half**2).sum(axis=0))
        np.savez(path, y=y, evidence=evidence - 0.5 * n * np.log(2 * np.pi), mean=mean, sd=sd)
    return np.load(path)


def answer(i, folder):
    """What the package says by itself, as a row of the table."""
    name, ls, sigma, X, new, _ = problem(i)
    known = exact(i, folder)
    row = {"problem": i, "kernel": name, "ls": f"{ls:.3f}", "sigma": f"{sigma:.3f}", "n": len(X)}
    gp = sg.SkewGP(cov_func=KERNELS[name](2, ls=ls))
    ask = {"likelihood": sg.likelihoods.Gaussian(sigma), "random_seed": 0}
    started = time.perf_counter()
    try:
        posterior = gp.posterior(X, known["y"], **ask)
        found, by = posterior.log_marginal_likelihood, posterior.prior.approximation
        moments = posterior.marginals(new).moments
    except sg.ApproximationError as error:
        row |= {"answer": f"stopped: {error}", "seconds": f"{time.perf_counter() - started:.1f}"}
        gp = sg.SkewGP(cov_func=gp.cov_func, approximation=sg.approximations.Inducing(300))
        found = gp.posterior(X, known["y"], **ask).log_marginal_likelihood
        loss = found.value - float(known["evidence"])
        verdict = "right" if abs(loss) > LOSS else "WRONG"
        return row | {"loss": f"{loss:.3f}", "se": "", "mean": "", "sd": "", "verdict": verdict}
    taken = "the kernel itself" if by is None else repr(by)
    row |= {"answer": taken, "seconds": f"{time.perf_counter() - started:.1f}"}
    loss = found.value - float(known["evidence"])
    off = np.abs(moments.mean - known["mean"]).max() / known["sd"].mean()
    ratio = np.abs(np.log(moments.sd / known["sd"])).max()
    verdict = "right" if abs(loss) <= LOSS + 2 * found.std_error else "WRONG"
    numbers = {"loss": loss, "se": found.std_error, "mean": off, "sd": np.exp(ratio)}
    return row | {k: f"{x:.3f}" for k, x in numbers.items()} | {"verdict": verdict}


def main():
    """Run what the table does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--exact", type=Path, default=HERE / "results" / "switch")
    parser.add_argument("--only-exact", action="store_true")
    options = parser.parse_args()
    options.exact.mkdir(parents=True, exist_ok=True)
    table = options.out / "switch.csv"
    done = {int(row["problem"]) for row in read_rows(table)}
    for i in range(N_PROBLEMS):
        if options.only_exact:
            exact(i, options.exact)
        elif i not in done:
            row = answer(i, options.exact)
            print(row, flush=True)
            append_rows(table, [row], machine())


if __name__ == "__main__":
    main()
