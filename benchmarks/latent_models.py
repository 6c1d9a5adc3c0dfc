"""Models with references through `integrate`: a process, a row and a verdict each.

`posteriordb.py`, `latent_gaussian.py` and `latent_gaussian_forms.py` run it on their models:

    python benchmarks/posteriordb.py --data DIR [--references DIR] [--only MODEL ...] [--precise]

A row says whether the model was taken or why not, CPU seconds with compilation, the log evidence,
relative ESS, and how far means and standard deviations of all parameters are from the reference, in
joint Monte Carlo errors. With ``--precise`` rows that have a reference of many draws get columns of
another run at many more points, to see a bias that errors hide.
``--make-references`` makes references for models without a sound one: see `references`.
"""

import argparse
import functools
import json
import multiprocessing
import resource
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm
from references import Reference, make_reference, scalars
from runner import append_rows, machine, read_rows
from scipy.stats import norm

import pymc_skewgp as sg

SEED = 35
# Joint errors at most, and of few scalars what one right model in a thousand is beyond.
BEYOND, LEVEL = 4.0, 1e-3
# Effective draws of a reference from which on it tells a distance of .05 deviations.
MANY_DRAWS = 6400
PRECISE: dict[str, int] = {"n_evidences": 4096, "draws": 4000}
MEMORY_GB = 6.0
PACKAGE = str(Path(sg.__file__).parent)
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
    "absent",
    "mean_z",
    "mean_of",
    "mean_rms",
    "sd_z",
    "sd_of",
    "sd_rms",
    "precise_mean_z",
    "precise_sd_z",
    "mean_sds",
    "sd_ratio",
    "verdict",
)


class Known(NamedTuple):
    """A reference, and where it is from, with what is wrong with it."""

    how: str
    of: Reference

    @property
    def is_sound(self) -> bool:
        """Whether its chains agree, without divergences."""
        return "r_hat" not in self.how and "divergent" not in self.how

    @property
    def effective_draws(self) -> float:
        """Of the worst scalar."""
        return min(ess for _, _, ess in self.of.values())


class Case(NamedTuple):
    """A model, and its reference: none, where the folder is to have one, maybe by another name."""

    build: Callable[[], pm.Model]
    reference: Callable[[], Known] | None = None
    same: str = ""


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
        names = scalars(str(name), draws.shape[2:])
        if wanted.isdisjoint(names):  # references may have their scalars in one row
            names = scalars(str(name), flat.shape[2:])
        for i, scalar in enumerate(names):
            if scalar in wanted:
                x = flat[..., i]
                sd = float(x.std())
                kurtosis = float(((x - x.mean()) ** 4).mean() / max(sd, 1e-300) ** 4)
                errors = [float(az.mcse(x, method=method)) for method in ("mean", "sd")]
                found[scalar] = Summary(float(x.mean()), sd, *errors, kurtosis)
    return found


def limit(count: int) -> float:
    """Joint errors that the largest of so many is within, where all is right."""
    return float(min(BEYOND, norm.isf(LEVEL / (2.0 * count))))


class Distances(NamedTuple):
    """From a reference: z of means and of standard deviations, in deviations, and as ratios."""

    mean_z: dict[str, float]
    sd_z: dict[str, float]
    in_sds: list[float]
    ratios: list[float]
    absent: list[str]

    @property
    def are_within(self) -> bool:
        """What is not a number is not."""
        every = [*self.mean_z.values(), *self.sd_z.values()]
        return not self.absent and bool(np.max(np.abs(every)) <= limit(len(self.mean_z)))


def distances(posterior: Any, reference: Reference) -> Distances:
    """Of all scalars that the reference has."""
    found = summaries(posterior, set(reference))
    known = Distances({}, {}, [], [], [name for name in reference if name not in found])
    for name, ours in found.items():
        mean, sd, ess = reference[name]
        error = np.hypot(ours.mean_error, sd / np.sqrt(ess))
        known.mean_z[name] = (ours.mean - mean) / error
        known.in_sds.append(abs(ours.mean - mean) / sd)
        # The error of a standard deviation goes with the fourth moment.
        error = np.hypot(ours.sd_error, sd * np.sqrt(max(ours.kurtosis - 1.0, 2.0) / (4.0 * ess)))
        known.sd_z[name] = (ours.sd - sd) / error
        known.ratios.append(ours.sd / sd)
    return known


def compared(posterior: Any, known: Known) -> dict[str, object]:
    """The largest distances from the reference, in joint errors, and their mean squares."""
    found = distances(posterior, known.of)
    absent = " ".join(found.absent[:5]) + " ..." * (len(found.absent) > 5)
    row: dict[str, object] = {"parameters": len(found.mean_z), "absent": absent}
    if not found.mean_z:
        return row | {"verdict": "nothing compared"}
    for name, z in (("mean", found.mean_z), ("sd", found.sd_z)):
        worst = max(z, key=lambda scalar, z=z: np.nan_to_num(abs(z[scalar]), nan=np.inf))
        row[f"{name}_z"], row[f"{name}_of"] = f"{z[worst]:.2f}", worst
        row[f"{name}_rms"] = f"{np.sqrt(np.mean(np.square(list(z.values())))):.2f}"
    verdict = "right" if found.are_within else "beyond"
    return row | {"verdict": verdict if known.is_sound else "no sound reference"}


def known(name: str, case: Case, folder: Path | None) -> Known | None:
    """The reference of a model: the one given where it is sound, then that of the folder."""
    given = None if case.reference is None else case.reference()
    path = None if folder is None else folder / f"{case.same or name}.json"
    if (given is None or not given.is_sound) and path is not None and path.exists():
        content = json.loads(path.read_text())
        return Known(content["how"], content["summaries"])
    return given


def is_refusal(error: Exception) -> bool:
    """Whether the package has raised it itself, on purpose."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    raised = (last.line or "").startswith("raise")
    return isinstance(error, TypeError | ValueError) and raised and PACKAGE in last.filename


def answer(case: Case, known: Known | None) -> dict[str, object]:
    """The row of one model, without its name."""
    began = time.process_time()
    model = case.build()
    rows = sum(int(np.prod(rv.shape.eval(), dtype=int)) for rv in model.observed_RVs)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            tree = sg.integrate(model, random_seed=SEED, progressbar=False)
        except Exception as error:
            kind = "refused" if is_refusal(error) else "failed"
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return {"rows": rows, "answer": kind, "reason": text[:600]}
    seconds = time.process_time() - began
    own = {x.category.__name__ for x in heard if issubclass(x.category, sg.SkewGPWarning)}
    attrs = tree["posterior"].attrs
    row: dict[str, object] = {
        "rows": rows,
        "answer": "taken",
        "cpu_seconds": f"{seconds:.1f}",
        "log_evidence": f"{attrs['log_evidence']:.3f}",
        "se": f"{attrs['log_evidence_se']:.3f}",
        "relative_ess": f"{attrs['relative_ess']:.3f}",
        "relative_ess_exact": f"{attrs['relative_ess_exact']:.3f}",
        "pareto_k": f"{attrs['pareto_k']:.2f}",
        "method": attrs["method"],
        "warnings": " ".join(sorted(own)),
        "verdict": "no reference",
    }
    if known is not None:
        row |= {"reference": known.how, **compared(tree["posterior"], known)}
    return row


def precisely(case: Case, known: Known) -> dict[str, object]:
    """Distances at many more points: a bias that the errors of few points hide."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = sg.integrate(case.build(), random_seed=SEED + 1, progressbar=False, **PRECISE)
    found = distances(tree["posterior"], known.of)
    ratio = max(found.ratios, key=lambda x: abs(np.log(x)))
    return {
        "precise_mean_z": f"{max(found.mean_z.values(), key=abs):.2f}",
        "precise_sd_z": f"{max(found.sd_z.values(), key=abs):.2f}",
        "mean_sds": f"{max(found.in_sds):.3f}",
        "sd_ratio": f"{ratio:.3f}",
        **({} if found.are_within else {"verdict": "beyond"}),
    }


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


def run(
    cases: Callable[[Path], Mapping[str, Case]],
    description: str | None,
    out: Path,
    *,
    has_data: bool = True,
) -> None:
    """The command line of a table: every model that has no row yet."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=has_data, help="folder of data, references")
    parser.add_argument("--references", type=Path, help="folder of references that were made")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--only", nargs="*", help="models, run again where they have a row")
    parser.add_argument("--cpu-seconds", type=float, default=300.0)
    parser.add_argument("--precise", action="store_true", help="for rows without, and no more")
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
    finished = {row["model"] for row in done}
    for name in args.only or [name for name in models if args.precise or name not in finished]:
        case = models[name]
        reference = known(name, case, args.references)
        if args.precise:
            _add_precise(args.out, name, host, case, reference, args.cpu_seconds)
            continue
        found = watched(functools.partial(answer, case, reference), args.cpu_seconds)
        row = dict.fromkeys(FIELDS, "") | {"cpu_seconds": f"{found.cpu_seconds:.1f}"}
        row |= found.found or {"answer": "stopped", "reason": found.stopped}
        row["model"] = name
        _replace(args.out, row, host)
        shown = ("answer", "cpu_seconds", "relative_ess", "mean_z", "sd_z", "verdict", "reason")
        print(name, *(row[key] for key in shown), flush=True)


def _add_precise(
    out: Path, name: str, host: str, case: Case, reference: Known | None, cpu_seconds: float
) -> None:
    """To the row of a model by the same code, where it has none and its reference allows."""
    row = next((x for x in read_rows(out) if x["model"] == name and x["machine"] == host), None)
    if row is None or row["verdict"] != "right" or row["mean_sds"] or reference is None:
        return
    if reference.effective_draws >= MANY_DRAWS:
        found = watched(functools.partial(precisely, case, reference), cpu_seconds)
        row |= found.found or {"mean_sds": found.stopped}
        _replace(out, row, host)
        print(name, row["precise_mean_z"], row["mean_sds"], row["verdict"], flush=True)


def _replace(out: Path, row: Mapping[str, object], host: str) -> None:
    """The row of a model, in place of one that it has."""
    kept = [x for x in read_rows(out) if x["model"] != row["model"]]
    new = out.with_suffix(".new")  # a run that is killed loses nothing
    new.unlink(missing_ok=True)
    for x in [*kept, {**row, "machine": host}]:
        append_rows(new, [{f: x[f] for f in FIELDS}], str(x["machine"]), FIELDS)
    new.replace(out)


def _make_references(
    models: Mapping[str, Case], names: list[str], folder: Path, cpu_seconds: float
) -> None:
    for name in names:
        path = folder / f"{name}.json"
        given = models[name].reference
        if (given is None or not given().is_sound) and not path.exists():
            work = functools.partial(make_reference, models[name].build, path)
            found = watched(work, cpu_seconds)
            print(name, found.found or found.stopped, f"{found.cpu_seconds:.0f} CPU s", flush=True)
