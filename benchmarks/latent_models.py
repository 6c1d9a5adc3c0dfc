"""Models with references through `integrate`: a process, a row and a verdict each.

`posteriordb.py` and `latent_gaussian.py` run it on their models:

    python benchmarks/posteriordb.py --data DIR [--references DIR] [--only MODEL ...]

A row says whether the model was taken or why not, CPU seconds with compilation, the log evidence,
relative ESS, and how far means and standard deviations of all parameters are from the reference, in
joint Monte Carlo errors. ``--make-references`` makes them for models without: see `references`.
"""

import argparse
import functools
import json
import multiprocessing
import resource
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm
from references import Reference, make_reference, scalars
from runner import append_rows, machine, read_rows

import pymc_skewgp as sg

SEED = 35
BEYOND = 4.0  # joint errors: the largest of a thousand normal ones is at 3.3
MEMORY_GB = 6.0
FIELDS = (
    "model",
    "rows",
    "answer",
    "reason",
    "cpu_seconds",
    "log_evidence",
    "se",
    "relative_ess",
    "relative_ess_exact",
    "pareto_k",
    "method",
    "warnings",
    "reference",
    "parameters",
    "mean_z",
    "mean_of",
    "mean_sds",
    "sd_z",
    "sd_of",
    "verdict",
)


class Case(NamedTuple):
    """A model, and the summaries of its reference: none, where the folder is to have NUTS's."""

    build: Callable[[], pm.Model]
    reference: Callable[[], Reference] | None = None


class Summary(NamedTuple):
    """Of the draws of one scalar, with Monte Carlo errors."""

    mean: float
    sd: float
    mean_error: float
    sd_error: float
    kurtosis: float


def summaries(posterior: Any, wanted: set[str]) -> dict[str, Summary]:
    """Of the scalars that are wanted."""
    found: dict[str, Summary] = {}
    for name in posterior.data_vars:
        draws = posterior[name].to_numpy()
        flat = draws.reshape(*draws.shape[:2], -1)
        for i, scalar in enumerate(scalars(str(name), draws.shape[2:])):
            if scalar in wanted:
                x = flat[..., i]
                sd = float(x.std())
                kurtosis = float(((x - x.mean()) ** 4).mean() / max(sd, 1e-300) ** 4)
                errors = [float(az.mcse(x, method=method)) for method in ("mean", "sd")]
                found[scalar] = Summary(float(x.mean()), sd, *errors, kurtosis)
    return found


def compared(posterior: Any, reference: Reference) -> dict[str, object]:
    """The largest distances from the reference, in joint errors."""
    found = summaries(posterior, set(reference))
    if not found:
        return {"parameters": 0}
    z_mean, z_sd, distance = {}, {}, {}
    for name, ours in found.items():
        mean, sd, ess = reference[name]
        error = np.hypot(ours.mean_error, sd / np.sqrt(ess))
        z_mean[name] = (ours.mean - mean) / error
        distance[name] = abs(ours.mean - mean) / sd
        # The error of a standard deviation goes with the fourth moment.
        error = np.hypot(ours.sd_error, sd * np.sqrt(max(ours.kurtosis - 1.0, 2.0) / (4.0 * ess)))
        z_sd[name] = (ours.sd - sd) / error
    worst = {k: max(z, key=lambda name, z=z: abs(z[name])) for k, z in (("m", z_mean), ("s", z_sd))}
    right = abs(z_mean[worst["m"]]) <= BEYOND and abs(z_sd[worst["s"]]) <= BEYOND
    return {
        "parameters": len(found),
        "mean_z": f"{z_mean[worst['m']]:.2f}",
        "mean_of": worst["m"],
        "mean_sds": f"{max(distance.values()):.3f}",
        "sd_z": f"{z_sd[worst['s']]:.2f}",
        "sd_of": worst["s"],
        "verdict": "right" if right else "beyond",
    }


def known(name: str, case: Case, folder: Path | None) -> tuple[str, Reference] | None:
    """The reference of a model, and where it is from, with what is wrong with it."""
    if case.reference is not None:
        return "given", case.reference()
    path = None if folder is None else folder / f"{name}.json"
    if path is None or not path.exists():
        return None
    content = json.loads(path.read_text())
    return content["how"], content["summaries"]


def answer(case: Case, known: tuple[str, Reference] | None) -> dict[str, object]:
    """The row of one model, without its name and seconds."""
    model = case.build()
    rows = sum(int(np.prod(rv.shape.eval(), dtype=int)) for rv in model.observed_RVs)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            tree = sg.integrate(model, random_seed=SEED, progressbar=False)
        except Exception as error:
            kind = "refused" if isinstance(error, (TypeError, ValueError)) else "failed"
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return {"rows": rows, "answer": kind, "reason": text[:400]}
    own = {x.category.__name__ for x in heard if issubclass(x.category, sg.SkewGPWarning)}
    attrs = tree["posterior"].attrs
    row: dict[str, object] = {
        "rows": rows,
        "answer": "taken",
        "log_evidence": f"{attrs['log_evidence']:.3f}",
        "se": f"{attrs['log_evidence_se']:.3f}",
        "relative_ess": f"{attrs['relative_ess']:.3f}",
        "relative_ess_exact": f"{attrs['relative_ess_exact']:.3f}",
        "pareto_k": f"{attrs['pareto_k']:.2f}",
        "method": attrs["method"],
        "warnings": " ".join(sorted(own)),
    }
    if known is not None:
        row |= {"reference": known[0], **compared(tree["posterior"], known[1])}
    return row


class Watched(NamedTuple):
    """What a piece of work gave, or why it was stopped, and its CPU seconds."""

    found: Any
    stopped: str
    cpu_seconds: float


def watched(work: Callable[[], Any], cpu_seconds: float) -> Watched:
    """Work in a process of its own: with what is imported, but nothing that was compiled."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds) + 5))
        there.send(work())

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = context.Process(target=limited)
    process.start()
    there.close()
    found, stopped = None, ""
    while True:
        try:
            if here.poll(0.5):
                found = here.recv()
                break
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        except (EOFError, OSError):  # it has ended without an answer
            break
        if pages * resource.getpagesize() > MEMORY_GB * 1e9:
            stopped = f"more than {MEMORY_GB:.0f} GB"
            process.kill()
    process.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if found is None and not stopped:
        late = used > 0.95 * cpu_seconds
        stopped = f"more than {cpu_seconds:.0f} CPU s" if late else f"exit {process.exitcode}"
    return Watched(found, stopped, used)


def run(cases: Callable[[Path], Mapping[str, Case]], description: str | None, out: Path) -> None:
    """The command line of a table: every model that has no row yet."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of data and references")
    parser.add_argument("--references", type=Path, help="folder of references that were made")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--only", nargs="*", help="models, run again where they have a row")
    parser.add_argument("--cpu-seconds", type=float, default=300.0)
    parser.add_argument(
        "--make-references", action="store_true", help="for models without one, and no more"
    )
    args = parser.parse_args()
    models = cases(args.data)
    if args.make_references:
        _make_references(models, args.only or list(models), args.references, args.cpu_seconds)
        return
    host = machine(("numpy", "scipy", "numba", "pymc"))
    done = read_rows(args.out)
    if args.only:
        kept = [row for row in done if row["model"] not in args.only]
        args.out.unlink(missing_ok=True)
        for row in kept:
            append_rows(args.out, [{f: row[f] for f in FIELDS}], row["machine"], FIELDS)
        done = kept
    finished = {row["model"] for row in done}
    for name in args.only or [name for name in models if name not in finished]:
        case = models[name]
        reference = known(name, case, args.references)
        found = watched(functools.partial(answer, case, reference), args.cpu_seconds)
        row = dict.fromkeys(FIELDS, "")
        row |= found.found or {"answer": "stopped", "reason": found.stopped}
        row |= {"model": name, "cpu_seconds": f"{found.cpu_seconds:.1f}"}
        append_rows(args.out, [row], host, FIELDS)
        shown = ("answer", "cpu_seconds", "relative_ess", "mean_z", "sd_z", "verdict", "reason")
        print(name, *(row[key] for key in shown), flush=True)


def _make_references(
    models: Mapping[str, Case], names: list[str], folder: Path, cpu_seconds: float
) -> None:
    for name in names:
        path = folder / f"{name}.json"
        if models[name].reference is None and not path.exists():
            work = functools.partial(make_reference, models[name].build, path)
            found = watched(work, cpu_seconds)
            print(name, found.found or found.stopped, f"{found.cpu_seconds:.0f} CPU s", flush=True)
