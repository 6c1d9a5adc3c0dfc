"""Thirteen jobs of a working week, timed in two checkouts that take turns.

    python benchmarks/jobs.py OLD NEW [--rounds 2] [--only WORD ...] [--limit 150] [--out DIR]

A job is the lines between ``# job`` and ``# truth`` of a test in `tests/jobs`, in a process of its
own that has imported PyMC and the package. The first round begins with empty caches, others find
what it compiled. What OLD does not have is written as it was written then: a SkewGP for
``pm.gp.Latent``, `SkewGP.sample_latent` for `predict`. A job that cannot be done says why. A row is
appended to ``jobs.csv`` as soon as it is known; rows that are there are not run again.
"""

import argparse
import inspect
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIELDS = ("job", "checkout", "round", "cpu", "wall", "note")
AS_IT_WAS = {
    "pm.gp.Latent(": "made(",
    "sg.SkewGP(": "made(",
    "sg.integrate(gp, ": "integrated(gp, ",
    "sg.compare(results": "dict(results",
    "sg.predict(idata, ": "predicted(idata, Xnew=",
    "sg.predict(dt, ": "predicted(dt, Xnew=",
    'run = subprocess.run([sys.executable, "-c", NEW_PROCESS, file], ': (
        "predicted(dt, Xnew=[[2.0], [5.0]], "
    ),
    "capture_output=True, text=True)": "progressbar=False)",
}


def seconds():
    """CPU seconds of this process and its children, and seconds on the wall."""
    used = [resource.getrusage(x) for x in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(x.ru_utime + x.ru_stime for x in used), time.time()


class Done(Exception):
    """A job has ended."""


def work(name):
    """Run one job in this process, and print what it took as JSON."""
    import test_jobs

    import pymc_skewgp as sg

    began, processes, known = [], [], {}

    def end():
        raise Done

    def made(*args, **options):
        processes.append(sg.SkewGP(*args, **options))
        return processes[-1]

    def integrated(gp, X, y, likelihood, **options):
        known.update(X=X, y=y, likelihood=likelihood, name="f_new")
        return sg.integrate(gp, X, y, likelihood=likelihood, **options)

    def predicted(idata, Xnew, **options):
        Xnew = next(iter(Xnew.values())) if isinstance(Xnew, dict) else Xnew
        tree = processes[-1].sample_latent(idata, Xnew=Xnew, **known, **options)
        return {"predictions_summary": tree["predictions"]}

    source = inspect.getsource(getattr(test_jobs, name))
    source = source[source.index("def ") :]
    source = source.replace("    # job\n", "    begin()\n").replace("    # truth\n", "    end()\n")
    if not hasattr(sg, "predict"):
        for new, old in AS_IT_WAS.items():
            source = source.replace(new, old)
    scope = vars(test_jobs) | {"end": end, "made": made, "integrated": integrated}
    scope["predicted"] = predicted
    exec(source, scope | {"begin": lambda: began.extend(seconds())}, scope)
    note = ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            scope[name](*([Path(folder)] if "tmp_path" in source else []))
        except Done:
            pass
        except Exception as error:
            note = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    cpu, wall = (b - a for a, b in zip(began, seconds(), strict=True))
    print(json.dumps({"cpu": f"{cpu:.2f}", "wall": f"{wall:.2f}", "note": note}))


def run(checkout, name, caches, limit):
    """What a process of a checkout says of a job."""
    path = os.pathsep.join([str(checkout), str(HERE.parent / "tests" / "jobs")])
    environment = os.environ | {"PYTHONPATH": path, "NUMBA_CACHE_DIR": f"{caches}/numba"}
    environment |= {"PYTENSOR_FLAGS": f"base_compiledir={caches}/pytensor"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    found = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--job", name],
        env=environment,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
    )
    if found.returncode:
        return {"cpu": "", "wall": "", "note": f"not done in {limit} CPU s, or stopped"}
    return json.loads(found.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", metavar="CHECKOUT")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[""], help="words of jobs")
    parser.add_argument("--limit", type=int, default=150, help="CPU seconds of a job")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.job:
        return work(options.job)
    from runner import append_rows, machine, read_rows

    source = (HERE.parent / "tests" / "jobs" / "test_jobs.py").read_text()
    names = re.findall(r"def (test_\w+)\([a-z_]*\):\n    \"\"\"", source)
    table = options.out / "jobs.csv"
    there = {(row["job"], row["checkout"], row["round"]) for row in read_rows(table)}
    host = machine(("pymc", "pytensor", "numpy", "numba"))
    with tempfile.TemporaryDirectory() as caches:
        for turn in range(options.rounds):
            for name in (x for x in names if any(word in x for word in options.only)):
                for which, checkout in zip(("old", "new"), options.checkouts, strict=True):
                    row = {"job": name.removeprefix("test_"), "checkout": which, "round": str(turn)}
                    if tuple(row.values()) in there:
                        continue
                    own = f"{caches}/{which}"
                    row |= run(Path(checkout).resolve(), name, own, options.limit)
                    print(row, flush=True)
                    append_rows(table, [row], host, FIELDS)


if __name__ == "__main__":
    main()
