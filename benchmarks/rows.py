"""Ten thousand to a million rows under a prior of finite rank: time, memory, errors.

    python benchmarks/rows.py [--only SECTION ...] [--out DIR]

Every figure is printed beside the one asked for, and appended to ``rows.csv`` as soon as it is
known; sections already in the file are not run again unless named. The data are labels on the unit
square under an RBF kernel of variance 2 and lengthscale .1, with inducing points on a grid. Each
size runs in a process of its own, whose peak of memory is printed with the rest. Seconds are CPU
seconds over the threads that ran, as if the machine had nothing else to do, and by the clock.

Operations, for n rows and r coordinates: a sweep of EP 2 n r^2 (products of a triangle, and of a
symmetric result), 1024 pairs 2048 n r, features n r^2. Bytes: 8 n r for the features, and nothing
else of that size.
"""

import argparse
import functools
import json
import os
import pickle
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from core import ROOT
from runner import run_sections

import pymc_skewgp as sg
from pymc_skewgp.approximations import Inducing

VARIANCE, LENGTHSCALE = 2.0, 0.1
SEED = 271
FEW = 40_000  # rows of a first run, for which everything is compiled
# n, points on a side of the grid; then what is asked for: seconds of EP and of draws, relative ESS,
# and GB of memory.
SIZES = {
    "1e4": (10_000, 15, 1.0, 1.0, 0.7, None),
    "1e5": (100_000, 15, 8.0, 10.0, 0.95, 1.5),
    "1e6": (1_000_000, 12, 30.0, 60.0, 0.95, 3.0),
}


def rbf(X, Xs=None, diag=False):
    """Kernel on arrays, without an array of a third dimension."""
    if diag:
        return np.full(len(X), VARIANCE)
    Xs = X if Xs is None else Xs
    square = X @ Xs.T
    square *= -2.0
    square += (X**2).sum(axis=1)[:, None]
    square += (Xs**2).sum(axis=1)
    square *= -0.5 / LENGTHSCALE**2
    np.exp(square, out=square)
    square *= VARIANCE
    return square


def grid(side):
    """Inducing points on the unit square."""
    along = np.linspace(-0.02, 1.02, side)
    return np.stack(np.meshgrid(along, along), axis=-1).reshape(-1, 2)


def labels(n, side, seed=SEED):
    """Inputs, and labels of a draw of the prior."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    prior = Inducing(grid(side)).features(_prior(), X)
    weights = rng.standard_normal(side**2)
    y = np.empty(n, dtype=np.int8)
    for start in range(0, n, 10_000):
        rows = slice(start, start + 10_000)
        f = prior.at(X[rows])[0] @ weights
        y[rows] = f + rng.standard_normal(f.size) > 0
    return X, y


def _prior():
    return sg.SkewGPPosterior([[0.0, 0.0]], [1], cov_func=rbf).prior


class Clock:
    """CPU seconds over threads, and seconds by the clock, since it was made."""

    def __init__(self):
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def __call__(self):
        return time.process_time() - self.cpu, time.perf_counter() - self.wall


def measured(n, side, threads):
    """What one size takes, in this process."""
    X, y = labels(n, side)
    small = sg.SkewGPPosterior(
        X[:4000], y[:4000], cov_func=rbf, approximation=Inducing(grid(6)), n_draws=128
    )
    _ = small.log_marginal_likelihood  # compiles
    posterior = sg.SkewGPPosterior(X, y, cov_func=rbf, approximation=Inducing(grid(side)))
    found = {"threads": threads}
    for name, step in (
        ("features", lambda: posterior._fit.data_blocks),
        ("ep", lambda: posterior._fit.ep),
        ("draws", lambda: posterior.log_marginal_likelihood),
        ("predict", lambda: posterior.predict(X[:1000], draws=0)),
    ):
        clock = Clock()
        step()
        found[name] = clock()
    evidence = posterior.log_marginal_likelihood
    found |= {"sweeps": posterior._fit.ep.n_sweeps, "evidence": evidence.value}
    found |= {"se": evidence.std_error, "ess": evidence.relative_ess}
    found["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return found


@functools.cache
def in_a_process(n, side):
    """`measured`, in a process of its own, with as many threads as cores."""
    threads = len(os.sched_getaffinity(0))
    command = [sys.executable, __file__, "--measure", str(n), str(side), str(threads)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


# --- sections ----------------------------------------------------------------------------------


def one_size(name):
    """EP, draws, relative ESS, standard error, memory."""
    n, side, ep, draws, ess, gigabytes = SIZES[name]
    found = in_a_process(n, side)
    what = f"n = {name}, r = {side**2}"

    def seconds(step):
        cpu, wall = found[step]
        return f"{cpu / found['threads']:.2f} ({wall:.1f} by the clock)"

    yield f"{what}: seconds, features", "", seconds("features")
    yield f"{what}: seconds, EP ({found['sweeps']} sweeps)", f"<= {ep:g}", seconds("ep")
    yield f"{what}: seconds, 1024 pairs", f"<= {draws:g}", seconds("draws")
    yield f"{what}: seconds, 1000 predictions", "", seconds("predict")
    yield f"{what}: relative ESS", f">= {ess}", f"{found['ess']:.3f}"
    yield f"{what}: standard error, nat", "<= 0.02", f"{found['se']:.4f}"
    wanted = f"< {gigabytes}" if gigabytes else ""
    yield f"{what}: peak of memory, GB, the data included", wanted, f"{found['gigabytes']:.2f}"


def exponent():
    """Of time in n, from 1e4 to 1e6 rows at r = 144: features, EP a sweep, and 1024 pairs."""
    small, large = (in_a_process(n, 12) for n in (10_000, 1_000_000))

    def power(a, b):
        return f"{np.log(b / a) / np.log(100.0):.2f}"

    yield "exponent, features", "<= 1.1", power(small["features"][0], large["features"][0])
    ep = (x["ep"][0] / x["sweeps"] for x in (small, large))
    yield "exponent, a sweep of EP", "<= 1.1", power(*ep)
    yield "exponent, EP", "<= 1.1", power(small["ep"][0], large["ep"][0])
    yield "exponent, 1024 pairs", "<= 1.1", power(small["draws"][0], large["draws"][0])


def agreement():
    """With the exact posterior: 2000 rows, as many coordinates (all rows are inducing points)."""
    from pymc_skewgp._posterior.features import finite_rank_prior
    from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit

    X, y = labels(2000, 15)
    exact = sg.SkewGPPosterior(X, y, cov_func=rbf, n_draws=4096)
    blocks = sg.SkewGPPosterior(
        X, y, cov_func=rbf, approximation=Inducing(X), n_draws=4096, random_seed=1
    )
    prior, features = finite_rank_prior(blocks.prior, X)
    blocks._fit = FiniteRankFit(prior, features, blocks._sets)
    a, b = exact.log_marginal_likelihood, blocks.log_marginal_likelihood
    error = np.hypot(a.std_error, b.std_error)
    yield "log evidence, without blocks", "", f"{a.value:.4f} +- {a.std_error:.4f}"
    yield "log evidence, in blocks", "", f"{b.value:.4f} +- {b.std_error:.4f}"
    yield "difference, standard errors", "< 4", f"{(b.value - a.value) / error:.2f}"
    new = np.random.default_rng(0).uniform(size=(200, 2))
    p, q = (x.predict(new, draws=0)["predictions_summary"] for x in (exact, blocks))
    for name in ("f_mean", "f_sd", "p_mean"):
        gap = p[name].values - q[name].values
        se = np.hypot(p[f"{name}_se"].values, q[f"{name}_se"].values)[:] if f"{name}_se" in p else 1
        yield (
            f"{name} of 200 points: root mean square of gap over error",
            "about 1",
            (f"{np.sqrt(np.mean((gap / se) ** 2)):.2f} (largest gap {np.abs(gap).max():.1e})"),
        )


def honest():
    """Are the errors right? 100 seeds at n = 1e4, ten of each of ten data sets."""
    ratios, errors = [], []
    for index in range(10):
        X, y = labels(10_000, 15, index)
        posterior = sg.SkewGPPosterior(X, y, cov_func=rbf, approximation=Inducing(grid(15)))
        fit = posterior._fit
        reference = fit.latent(32_768, 1000 + index).log_prob
        for seed in range(10):
            found = fit.latent(1024, seed).log_prob
            error = np.hypot(found.std_error, reference.std_error)
            ratios.append((found.value - reference.value) / error)
            errors.append(found.std_error)
    size = np.abs(ratios)
    yield "100 runs of 1024 pairs, mean standard error, nat", "<= 0.02", f"{np.mean(errors):.4f}"
    yield "share beyond two standard errors", "<= 0.10", f"{(size > 2).mean():.2f}"
    yield "share beyond four", "<= 0.007", f"{(size > 4).mean():.2f}"
    yield "root mean square of error over standard error", "", f"{np.sqrt(np.mean(size**2)):.2f}"


class Counting:
    """An actor of which the bytes of all arguments and answers are counted, as they are sent."""

    def __init__(self, actor, counts):
        self._actor, self._counts = actor, counts

    def __getattr__(self, method):
        call = getattr(self._actor, method)

        def counted(*arguments):
            self._counts["sent"] += len(pickle.dumps(arguments))
            return Answered(call(*arguments), self._counts)

        return counted


class Answered:
    """The future of an answer."""

    def __init__(self, future, counts):
        self._future, self._counts = future, counts

    def done(self):
        """Of the future."""
        return self._future.done()

    def result(self, timeout=None):
        """See `Counting`."""
        found = self._future.result(timeout=timeout)
        self._counts["got"] += len(pickle.dumps(found))
        return found


def on_workers(n=1_000_000, side=12):
    """Four dask workers of one thread against one process of two: EP and 1024 pairs, 1e6 rows."""
    found, r = in_two_threads("--workers", n, side), side**2
    yield from compared(found)
    yield moved("kB of a sweep, out and back", found, r**2 + r, r**2 + 2 * r)


def learning_on_workers(n=250_000, side=12):
    """The same of a step of learning: EP's evidence with its gradient, 2.5e5 rows."""
    found, r = in_two_threads("--learning", n, side), side**2
    yield from compared(found)
    yield "largest difference of a slope, share", "round-off", f"{found['slope_gap']:.1e}"
    s = found["sweeps"]
    # Sweeps, then the Gaussian once more; back come also the first sums, and those of the gradient.
    sums = (s + 1) * (r**2 + r), (s + 1) * r**2 + 2 * s * r
    yield moved(f"kB of a step with {s} sweeps, out and back", found, *sums)


def in_two_threads(option, n, side):
    """What a measurement finds in a process of its own."""
    command = [sys.executable, __file__, option, str(n), str(side)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def compared(found):
    """Four workers and one process."""
    one, four = found["one"], found["four"]
    for name, (cpu, clock) in (("one process, two threads", one), ("four workers", four)):
        yield f"{name}: seconds", "", f"{cpu:.1f} ({clock:.1f} by the clock)"
    ratio = f"{four[0] / one[0]:.2f} ({four[1] / one[1]:.2f} by the clock)"
    yield "four workers over one process", "<= 1.3", ratio
    yield "difference of the log evidence, nat", "round-off", f"{found['gap']:.1e}"


def moved(what, found, out, back):
    """Bytes, of which so many numbers are asked for, for each of four workers."""
    asked = f"{32 * out / 1e3:.0f} and {32 * back / 1e3:.0f}"
    return what, asked, f"{found['sent'] / 1e3:.0f} and {found['got'] / 1e3:.0f}"


@contextmanager
def four_workers():
    """A client of them, and a function that cuts data into chunks.

    Dask lets its workers give memory back at once: arrays of a block then have new pages each time,
    which is a third of all CPU seconds. Here they keep it.
    """
    import dask
    import dask.array as da
    import distributed

    def chunked(*arrays):
        size = len(arrays[0]) // 16
        return [da.from_array(x, chunks=(size, *x.shape[1:])) for x in arrays]

    options = {"n_workers": 4, "threads_per_worker": 1, "dashboard_address": ":0"}
    names = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    kept = {f"distributed.nanny.pre-spawn-environ.{name}": 2**25 for name in names}
    with (
        dask.config.set(kept),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client, chunked


def worked(n, side):
    """What `on_workers` measures, in this process."""
    from pymc_skewgp._posterior.distributed_posterior import DistributedPosterior

    X, y = labels(n, side)
    options = {"cov_func": rbf, "approximation": Inducing(grid(side))}
    # Functions that numba has compiled are loaded with these, in every process.
    few = X[:FEW], y[:FEW]
    _ = sg.SkewGPPosterior(*few, **options).log_marginal_likelihood
    posterior = sg.SkewGPPosterior(X, y, **options)
    _ = posterior._fit.data_blocks
    clock = TreeClock()
    value = posterior.log_marginal_likelihood.value
    one = clock()
    with four_workers() as (client, chunked):
        _ = DistributedPosterior(*chunked(*few), **options).log_marginal_likelihood
        posterior = DistributedPosterior(*client.persist(chunked(X, y)), **options)
        blocks, counts = posterior._fit.data_blocks, {"sent": 0, "got": 0}
        actors, blocks._actors = blocks._actors, [Counting(x, counts) for x in blocks._actors]
        clock = TreeClock()
        sweeps = posterior._fit.ep.n_sweeps
        blocks._actors = actors
        other = posterior.log_marginal_likelihood.value
        four = clock()
    counts = {name: size / sweeps for name, size in counts.items()}
    return {"one": one, "four": four, "gap": abs(other - value), **counts}


def learnt(n, side):
    """What `learning_on_workers` measures, in this process."""
    import pymc as pm

    from pymc_skewgp._learn.coordinates import Point
    from pymc_skewgp._learn.problem import TrainingData, process_objective

    X, y = labels(n, side)
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 0.3, shape=2, initval=[LENGTHSCALE, 0.12])
        eta = pm.HalfNormal("eta", 2.0, initval=1.5)
        kernel = eta**2 * pm.gp.cov.ExpQuad(2, ls=ls)
        gp = sg.SkewGP(cov_func=kernel, approximation=Inducing(grid(side)))

    def objective(X, y):
        rng = np.random.default_rng(0)
        found = process_objective(TrainingData(gp, X, y), None, rng, None)
        point = Point(found.origin)
        return found.rows.on_all(point), point

    def evaluated(X, y):
        rows, point = objective(X, y)
        clock = TreeClock()
        return rows.by_ep(point), clock()

    few = X[:FEW], y[:FEW]
    _ = evaluated(*few)
    value, one = evaluated(X, y)
    with four_workers() as (client, chunked):
        _ = evaluated(*chunked(*few))
        rows, point = objective(*client.persist(chunked(X, y)))
        groups, counts, sweeps = rows.rows._groups, {"sent": 0, "got": 0}, []
        ask = groups.ask

        def counting(method, *arguments):
            sweeps.append(arguments[:1] == ("total",) and arguments[1][0] == "tilt")
            return ask(method, *arguments)

        groups.ask = counting
        groups._actors = [Counting(x, counts) for x in groups._actors]
        clock = TreeClock()
        other = rows.by_ep(point)
        four = clock()
    gap = np.abs(other.gradient / value.gradient - 1.0).max()
    found = {"one": one, "four": four, "gap": abs(other.total - value.total), **counts}
    return {**found, "slope_gap": float(gap), "sweeps": sum(sweeps)}


class TreeClock:
    """CPU seconds of this process and those below it, and seconds by the clock, since it began."""

    def __init__(self):
        self._start = self._now()

    def __call__(self):
        return [now - then for now, then in zip(self._now(), self._start, strict=True)]

    def _now(self):
        import psutil

        here = psutil.Process()
        tree = [here, *here.children(recursive=True)]
        return sum(sum(x.cpu_times()[:2]) for x in tree), time.perf_counter()


SECTIONS = {name: functools.partial(one_size, name) for name in SIZES} | {
    "exponent": exponent,
    "agreement": agreement,
    "honest": honest,
    "on_workers": on_workers,
    "learning_on_workers": learning_on_workers,
}


def main():
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=SECTIONS)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--measure", nargs=3, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--workers", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--learning", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.workers:
        print(json.dumps(worked(*arguments.workers)))
        return
    if arguments.learning:
        print(json.dumps(learnt(*arguments.learning)))
        return
    if arguments.measure:
        print(json.dumps(measured(*arguments.measure)))
        return
    run_sections(SECTIONS, arguments.out / "rows.csv", arguments.only)


if __name__ == "__main__":
    main()
