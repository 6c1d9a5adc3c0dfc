"""The core against its targets: errors, honesty, effective draws, time and memory, in one run.

    python benchmarks/core.py [--only accuracy honesty ...] [--peer-python PATH] [--out DIR]

Every figure is printed beside the one asked for, and appended to ``DIR/core.csv`` as soon as it is
known; sections already in the file are skipped unless named with ``--only``. Times are ratios
against a yardstick measured in the same run. Run it on an otherwise idle machine.
"""

import argparse
import re
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from runner import run_sections
from scipy.linalg import cholesky
from scipy.stats import multivariate_normal

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import oracles

import pymc_skewgp as sg
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import RectangleSampler

ROOT = Path(__file__).resolve().parents[1]


class RBF:
    """Radial basis function kernel on one input."""

    def __init__(self, lengthscale=0.5, variance=2.0):
        self.lengthscale, self.variance = lengthscale, variance

    def __call__(self, X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), self.variance)
        gap = (X - (X if Xs is None else Xs).T) / self.lengthscale
        return self.variance * np.exp(-0.5 * gap**2)


def draw_problem(n, lengthscale=0.5, variance=2.0, seed=0):
    """P(n): x ~ N(0, 1), f from the RBF GP, probit labels."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 1))
    values, vectors = np.linalg.eigh(RBF(lengthscale, variance)(x))
    f = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(n))
    return x, (f + rng.standard_normal(n) > 0).astype(int)


def probit_cov(x, y, lengthscale=0.5, variance=2.0):
    sign = 2.0 * y - 1.0
    return sign[:, None] * RBF(lengthscale, variance)(x) * sign + np.eye(len(y))


def best_of(n_times, function):
    times = []
    for _ in range(n_times):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def cholesky_time(n):
    matrix = probit_cov(*draw_problem(n))
    return best_of(7, lambda: cholesky(matrix, lower=True))


def accuracy():
    """Error of mvn_logcdf with 1024 draws against exact values, worst of 3 seeds."""
    for rho, asked in ((0.2, 0.01), (0.5, 0.01), (0.9, 0.03)):
        for n in (10, 100, 300, 1000):
            exact = oracles.equicorrelated_log_prob(np.full(n, -np.inf), np.zeros(n), rho)
            cov = (1 - rho) * np.eye(n) + rho
            found = [sg.mvn_logcdf(np.zeros(n), cov, random_seed=seed) for seed in range(3)]
            errors = [abs(e.value - exact) for e in found]
            yield f"equicorrelated rho={rho} n={n}", f"<= {asked} nat", f"{max(errors):.4f}"
    for n in (10, 100, 300, 1000):
        x, y = draw_problem(n)
        sign = 2.0 * y - 1.0
        cov = sign[:, None] * 2.0 * np.exp(-np.abs(x - x.T) / 0.5) * sign + np.eye(n)
        exact = oracles.ou_probit_log_evidence(x[:, 0], y, 0.5, 2.0)
        found = [sg.mvn_logcdf(np.zeros(n), cov, random_seed=seed) for seed in range(3)]
        errors = [abs(e.value - exact) for e in found]
        yield f"OU-probit n={n}", "<= 0.01 nat", f"{max(errors):.4f}"


def honesty():
    """Error over stated standard error on 100 random problems, reference 64 times longer."""
    rng = np.random.default_rng(20261121)
    ratios = []
    for index in range(100):
        n = int(np.exp(rng.uniform(np.log(2), np.log(300))))
        d = int(rng.integers(1, 4))
        x = rng.standard_normal((n, d)) / rng.uniform(0.1, 2.0)
        squared = ((x[:, None] - x) ** 2).sum(-1)
        shape = rng.integers(3)
        kernel = np.exp(-0.5 * squared) if shape == 0 else np.exp(-np.sqrt(squared))
        if shape == 2:
            kernel = 1.0 / (1.0 + squared)
        sign = rng.choice([-1.0, 1.0], n) if rng.random() < 0.5 else np.ones(n)
        cov = sign[:, None] * kernel * sign * np.exp(rng.uniform(-2, 3)) + np.eye(n)
        sd = np.sqrt(cov.diagonal())
        upper = sd * rng.normal(rng.uniform(-1, 1.5), 1.0, n)
        two_sided = rng.random(n) < (rng.random() if rng.random() < 0.5 else 0.0)
        lower = np.where(two_sided, upper - sd * rng.exponential(1.5, n) - 0.01 * sd, -np.inf)
        found = sg.mvn_logcdf(upper, cov, lower=lower, random_seed=index)
        long = sg.mvn_logcdf(upper, cov, lower=lower, n_draws=64 * 1024, random_seed=10_000 + index)
        # The reference is an estimate as well; floor: round-off of the exact cases.
        error = np.hypot(found.std_error, long.std_error) + 1e-12
        ratios.append(abs(found.value - long.value) / error)
    ratios = np.array(ratios)
    yield "errors within 4 standard errors, of 100", ">= 97", str(int((ratios <= 4).sum()))
    yield "errors within 2 standard errors, of 100", ">= 85", str(int((ratios <= 2).sum()))


def fraction():
    """Relative effective sample size on P(n): mean of 8 randomisations for each of 3 problems."""
    for n in (200, 500, 1000, 2000):
        found = []
        for seed in range(3):
            x, y = draw_problem(n, seed=seed)
            runs = [
                sg.SkewGPPosterior(x, y, cov_func=RBF(), random_seed=run).latent.relative_ess
                for run in range(8)
            ]
            found.append(np.mean(runs))
        yield f"relative ESS P({n})", ">= 0.95", " ".join(f"{f:.3f}" for f in found)


def steep():
    """Standard error of the evidence on steep problems."""
    for n in (300, 1000):
        for variance in (100.0, 1000.0):
            for lengthscale in (0.1, 0.5):
                x, y = draw_problem(n, lengthscale, variance)
                kernel = RBF(lengthscale, variance)
                start = time.perf_counter()
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    latent = sg.SkewGPPosterior(x, y, cov_func=kernel).latent
                spent = time.perf_counter() - start
                warned = f", warned {len(caught)}" if caught else ""
                yield (
                    f"std error, variance {variance:g}, lengthscale {lengthscale}, n={n}",
                    "<= 0.1 nat",
                    f"{latent.log_prob.std_error:.3f} ({latent.method}, {spent:.1f} s{warned})",
                )


def cost():
    """1024 draws of f and the evidence, everything included, over one Cholesky factorisation."""
    for n in (1000, 2000):
        x, y = draw_problem(n)

        def whole(x=x, y=y):
            posterior = sg.SkewGPPosterior(x, y, cov_func=RBF())
            return posterior.sample(draws=256, chains=4, random_seed=1)

        whole()  # imports
        unit, spent = cholesky_time(n), best_of(5, whole)
        unit = min(unit, cholesky_time(n))
        yield (
            f"1024 draws and evidence, n={n}, over a Cholesky factorisation",
            "<= 80",
            f"{spent / unit:.1f} ({spent:.2f} s / {unit * 1e3:.1f} ms)",
        )
        # The operation count: EP's n r^2 is nothing; two dense factorisations, the product that
        # makes S, twisted draws (n^2), the solve (2 n^2) and the correction, for 1024 draws.
        flops = 3 * n**3 / 3 + 2 * n**2 * 1024 / 2 + 4 * n**2 * 1024
        count = flops / (n**3 / 3)
        yield (
            f"n={n}: operation count of the dense parts in Cholesky units; time over it",
            "state it",
            f"{count:.1f}; {spent / unit / count:.1f}",
        )


def effective():
    """Smallest effective sample size of f a second: twisted over lin-ess."""
    from arviz_stats.base import array_stats

    for n, asked, draws, thin in ((200, 300, 4000, 50), (1000, 1000, 2000, 400)):
        x, y = draw_problem(n)
        rates = {}
        for method, kwargs in (
            ("twisted", {"draws": 1000}),
            ("lin_ess", {"draws": draws, "thin": thin}),
        ):
            posterior = sg.SkewGPPosterior(x, y, cov_func=RBF())
            start = time.perf_counter()
            dt = posterior.sample(chains=4, method=method, random_seed=1, **kwargs)
            spent = dt["sample_stats"].attrs["sampling_time"]
            ess = array_stats.ess(dt["posterior"]["f"].values, chain_axis=0, draw_axis=1).min()
            rates[method] = ess / spent
            del dt, start
        yield (
            f"effective draws a second over lin-ess, n={n}",
            f">= {asked}",
            f"{rates['twisted'] / rates['lin_ess']:.0f} "
            f"({rates['twisted']:.0f} / {rates['lin_ess']:.2f})",
        )


def botorch(peer_python):
    """Steps a second of lin-ess over BoTorch's sampler (benchmarks/lin_ess_against_botorch.py)."""
    if peer_python is None:
        print("  skipped: --peer-python names a Python that has torch and botorch")
        return
    script = Path(__file__).with_name("lin_ess_against_botorch.py")
    command = [sys.executable, str(script), "--peer-python", peer_python]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print(shown)
    for row in re.findall(r"^\s*(\d+)\s+(\d+)\s+[\d,]+\s+[\d,]+\s+([\d.]+)", shown, re.M):
        yield f"lin-ess steps over BoTorch's, N={row[0]}, {row[1]} chain(s)", ">= 3", row[2]


_MEMORY = """
import resource, sys
sys.path.insert(0, {benchmarks!r})
import core
x, y = core.draw_problem(300)
core.sg.SkewGPPosterior(x, y, cov_func=core.RBF()).sample(draws=10)
rng = core.np.random.default_rng(0)
x = rng.standard_normal((5000, 1)); y = (rng.random(5000) < 0.5).astype(int)
core.sg.SkewGPPosterior(x, y, cov_func=core.{kernel}).sample(draws=250, chains=4, random_seed=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


class OU(RBF):
    """Ornstein-Uhlenbeck kernel: of full numerical rank."""

    def __call__(self, X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), self.variance)
        return self.variance * np.exp(-np.abs(X - (X if Xs is None else Xs).T) / self.lengthscale)


def memory():
    """Peak memory of 1000 draws at n = 5000, whole process."""
    for kernel in ("RBF()", "OU()"):
        code = _MEMORY.format(benchmarks=str(Path(__file__).parent), kernel=kernel)
        command = [sys.executable, "-c", code]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        yield f"peak memory n=5000, 1000 draws, {kernel}", "< 4 GB", f"{float(shown):.2f} GB"


def against_scipy():
    """Time and error against scipy logcdf (maxpts 20000) on OU-probit, n = 500, exact by filter."""
    n = 500
    x, y = draw_problem(n)
    sign = 2.0 * y - 1.0
    cov = sign[:, None] * 2.0 * np.exp(-np.abs(x - x.T) / 0.5) * sign + np.eye(n)
    exact = oracles.ou_probit_log_evidence(x[:, 0], y, 0.5, 2.0)
    ours, theirs, spent, peer_spent = [], [], [], []
    for seed in range(3):
        start = time.perf_counter()
        ours.append(abs(sg.mvn_logcdf(np.zeros(n), cov, random_seed=seed).value - exact))
        spent.append(time.perf_counter() - start)
        start = time.perf_counter()
        value = multivariate_normal.logcdf(
            np.zeros(n), cov=cov, maxpts=20_000, rng=np.random.default_rng(seed)
        )
        peer_spent.append(time.perf_counter() - start)
        theirs.append(abs(value - exact))
    yield (
        "times faster than scipy logcdf, n=500",
        ">= 10",
        f"{np.median(peer_spent) / np.median(spent):.1f} "
        f"({np.median(peer_spent):.2f} / {np.median(spent):.2f} s)",
    )
    yield (
        "times closer than scipy logcdf, n=500 (root mean square of 3)",
        ">= 100",
        f"{np.linalg.norm(theirs) / np.linalg.norm(ours):.0f} "
        f"({np.linalg.norm(theirs) / 3**0.5:.3f} / {np.linalg.norm(ours) / 3**0.5:.5f} nat)",
    )


def ladder():
    """Where the time of one posterior goes, for the reader of the cost figure."""
    n = 1000
    x, y = draw_problem(n)
    cov = DenseCovariance(probit_cov(x, y))
    unit = cholesky_time(n)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    spent = best_of(
        3,
        lambda: RectangleSampler(cov, lower, upper).sample(
            1024, np.random.default_rng(0), goal="draws"
        ),
    )
    yield "dense covariance, draws of u and evidence only, n=1000", "-", f"{spent / unit:.1f}"


SECTIONS = {
    "accuracy": accuracy,
    "honesty": honesty,
    "fraction": fraction,
    "steep": steep,
    "cost": cost,
    "effective": effective,
    "botorch": botorch,
    "memory": memory,
    "against_scipy": against_scipy,
    "ladder": ladder,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=None)
    parser.add_argument("--peer-python", help="a Python that has torch and botorch")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    sections = dict(SECTIONS, botorch=partial(botorch, arguments.peer_python))
    run_sections(sections, arguments.out / "core.csv", arguments.only)


if __name__ == "__main__":
    main()
