"""What each door costs at 100 to 1,000,000 rows: the table in the README.

    python benchmarks/chooser.py [--limit 1200] [--doors DOOR ...] [--rows N ...]

Labels of one smooth function of two inputs, two hyperparameters, each call in a process of its own,
imports apart, with disk caches as a call on 60 rows leaves them. CPU seconds, chains in processes
of their own included, and the peak of memory; BLAS has one thread, and the limit is of CPU seconds.
`effects` are labels of people, with an effect each and a slope, ten rows a person.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from runner import append_rows, machine

RESULTS = Path(__file__).resolve().parent / "results" / "chooser.csv"
PACKAGES = ("numpy", "scipy", "numba", "pymc")
ROWS = (100, 1_000, 10_000, 1_000_000)


def cpu() -> float:
    """Seconds of this process and of those that it has waited for."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(each)[:2]) for each in who)


def labels(n):
    """A gp with two hyperparameters in the model, inputs and labels."""
    import numpy as np
    import pymc as pm

    import pymc_skewgp as sg

    rng = np.random.default_rng(8927)
    X = rng.uniform(-2, 2, (n, 2))
    f = 2 * np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
    y = (f + rng.standard_normal(n) > 0).astype(int)
    with pm.Model() as model:
        ls = pm.InverseGamma("ls", 3, 3)
        eta = pm.HalfNormal("eta", 2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=ls))
    return model, gp, X, y


def posterior(n):
    """Draws and evidence at known hyperparameters."""
    _, gp, X, y = labels(n)
    found = gp.posterior(X, y, point={"ls": 1.0, "eta": 2.0}, random_seed=1)
    found.sample(draws=250, chains=4, random_seed=1)
    found.predict(X[:10], random_seed=1)
    return str(found.log_marginal_likelihood)


def optimum(n):
    """`find_hyperparameters`."""
    import pymc_skewgp as sg

    _, gp, X, y = labels(n)
    fit = sg.find_hyperparameters(gp, X, y, random_seed=1, progressbar=False)
    return str(fit.log_marginal_likelihood)


def integrated(n):
    """`integrate` of the gp."""
    import pymc_skewgp as sg

    _, gp, X, y = labels(n)
    found = sg.integrate(gp, X, y, random_seed=1, progressbar=False)["posterior"].attrs
    return f"{found['log_evidence']:.3f} +- {found['log_evidence_se']:.3f}"


def effects(n):
    """`integrate` of a regression with an effect of each person."""
    import numpy as np
    import pymc as pm

    import pymc_skewgp as sg

    rng = np.random.default_rng(8927)
    person, n_people = np.arange(n) // 10, -(-n // 10)
    x = rng.standard_normal(n)
    own = rng.standard_normal(n_people)[person]
    y = (0.5 * x + own + rng.standard_normal(n) > 0).astype(int)
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1)
        u = pm.Normal("u", 0, sd, shape=n_people)
        b = pm.Normal("b", 0, 1)
        pm.Bernoulli("y", p=pm.math.invprobit(b * x + u[person]), observed=y)
    found = sg.integrate(model, random_seed=1, progressbar=False)["posterior"].attrs
    return f"{found['log_evidence']:.3f} +- {found['log_evidence_se']:.3f}"


def chain(n):
    """`pm.sample` with `ConjugateStep`, two chains of 100 + 500."""
    import arviz as az
    import pymc as pm

    import pymc_skewgp as sg

    model, gp, X, y = labels(n)
    with model:
        sg.BernoulliProbit("y", gp.prior("f", X), observed=y)
        found = pm.sample(500, tune=100, chains=2, random_seed=1, progressbar=False)
    ess = az.ess(found["posterior"].dataset[["ls", "eta"]])
    return f"least ESS {min(float(ess[name]) for name in ess):.0f}"


DOORS = {each.__name__: each for each in (posterior, optimum, integrated, effects, chain)}


def measured(door: str, n: int, limit: int) -> dict[str, object]:
    """A row: one call in a process of its own."""
    command = [sys.executable, __file__, "--child", door, "--rows", str(n)]
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **quiet},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
        capture_output=True,
        text=True,
    )
    if done.stdout:
        found = json.loads(done.stdout.splitlines()[-1])
        said = found.pop("answer")
    else:
        found, said = {}, f"stopped after {limit} CPU s, or: {done.stderr[-80:].strip()}"
    return {"door": door, "rows": n, "cpu": "", "wall": "", "gb": "", **found, "answer": said}


def child(door: str, n: int) -> None:
    """Make the one call and print what it took."""
    import arviz  # noqa: F401
    import pymc  # noqa: F401

    import pymc_skewgp  # noqa: F401

    begun, clock = cpu(), time.perf_counter()
    try:
        answer = DOORS[door](n)
    except Exception as error:  # a refusal is an answer
        answer = f"{type(error).__name__}: {str(error)[:200]}"
    taken = {"cpu": round(cpu() - begun, 2), "wall": round(time.perf_counter() - clock, 2)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({**taken, "gb": round(peak, 2), "answer": answer}))


def main() -> None:
    """Measure what is asked for, row by row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--doors", nargs="+", default=list(DOORS), choices=list(DOORS))
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--limit", type=int, default=1200)
    parser.add_argument("--child", choices=list(DOORS))
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.rows[0])
        return
    host = machine(PACKAGES)
    for door in asked.doors:
        measured(door, 60, asked.limit)  # for the caches on disk
        for n in asked.rows:
            row = measured(door, n, asked.limit)
            print(row, flush=True)
            append_rows(RESULTS, [row], host)


if __name__ == "__main__":
    main()
