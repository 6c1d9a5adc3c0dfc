"""Seconds: what a call takes, first and second, and 1,000 effective draws beside nutpie's.

    python benchmarks/seconds.py [--rows PART ...] [--data DIR] [--models NAME ...] [--seeds 4]
        [--who integrate nutpie] [--limit 600] [--out DIR] [--again] [--report]

``first`` and ``second``: the calls that users begin with, in a process each with empty caches,
imports included, and once more there on new data of the same kind. ``models``: all of
`latent_gaussian` in the folder of data, ``latent``: ``pm.gp.Latent``, and ``fields``: of `fields`
(New York in the folder of data), each by `integrate` and
by nutpie, run after run with other seeds. There the first call includes the import of the sampler,
not that of PyMC, and what is compiled; a warm call is `integrate` again, or nutpie's sampling and
tuning alone. ``numbers``: single ones.

Effective draws are (posterior deviation over the scatter of the posterior mean over seeds) squared,
of the worst hyperparameter, or of the worst coefficient where there is none; the deviation is that
of a sound reference, or of all nutpie's runs together. A call that gives E of them in T seconds
needs 1000 T / E for 1,000; compiling is counted once. Beside it stands the ratio with ArviZ's
effective draws, which few seeds do not blur. nutpie has its own settings, 1,000 + 1,000 draws, but
four chains on all cores; BLAS has one thread. A row is one call, appended to ``seconds.csv`` with
the load of the machine as soon as it is known; rows that are there are not run again but with
``--again``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from latent_models import known
from runner import append_rows, machine, read_rows
from seconds_calls import CALLS, CHAINS, OURS, PEER, Row, cases_of

PARTS = ("first", "second", "models", "latent", "fields", "numbers")
OF_MODELS = ("models", "latent", "fields")
KEY = ("part", "case", "who", "call", "seed")
FIELDS = (*KEY, "wall", "cpu", "ess", "divergences", "means", "sds", "note", "load")
SHOWN = ("case", "who", "call", "seed", "wall", "cpu", "ess", "divergences", "note", "load")
PACKAGES = ("numpy", "scipy", "numba", "pytensor", "pymc", "nutpie")
RESULTS = Path(__file__).resolve().parent / "results"
CHILD = Path(__file__).with_name("seconds_calls.py")
# Seconds asked for of the first call and of the second; milliseconds of the numbers.
ASKED = {
    "posterior": (3, 0.1),
    "find": (5, 0.2),
    "integrate, labels": (6, 0.7),
    "integrate, counts": (7, 1.0),
    "classifier": (5, 0.7),
    "step": (8, 5),
}
ASKED_MS = {
    "exact evidence, n = 80": 2,
    "EP with gradient, n = 20": 0.8,
    "EP with gradient, n = 80": 1.5,
    "EP with gradient, n = 200": 4,
}


def launched(task: Row, limit: float) -> Iterator[Row]:
    """What a process of its own finds, with empty caches where they matter, or why it stopped."""
    with tempfile.TemporaryDirectory() as caches, (Path(caches) / "errors").open("w+") as errors:
        environment = dict(os.environ)
        if task["who"] not in ("explain", "numbers"):
            environment["NUMBA_CACHE_DIR"] = f"{caches}/numba"
            environment["PYTENSOR_FLAGS"] = f"base_compiledir={caches}/pytensor"
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment |= dict.fromkeys(threads, "1")
        command = [sys.executable, str(CHILD), json.dumps(task | {"began": time.time()})]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        timer = threading.Timer(limit, process.kill)
        timer.start()
        for line in process.stdout or ():
            if line.startswith("ROW "):
                yield json.loads(line[4:])
        process.wait()
        late = timer.finished.is_set()
        timer.cancel()
        if process.returncode:
            errors.seek(0)
            why = (errors.read().strip().splitlines() or [f"exit {process.returncode}"])[-1]
            note = f"more than {limit:.0f} s" if late else why[:300]
            yield {"call": "stopped", "seed": 0, "note": note}


class Table:
    """The rows of the file.

    Parameters
    ----------
    path : Path
    limit : float
        Seconds of a process.
    """

    def __init__(self, path: Path, limit: float) -> None:
        self.path, self.limit = path, limit
        self.rows: list[Row] = [dict(row) for row in read_rows(path)]

    def forget(self, parts: Sequence[str], cases: Sequence[str], who: Sequence[str]) -> None:
        """Rows that are to be measured again."""

        def stays(row: Row) -> bool:
            other = (cases and row["case"] not in cases) or (
                row["part"] in OF_MODELS and row["who"] not in who
            )
            return row["part"] not in parts or bool(other)

        self.rows = [row for row in self.rows if stays(row)]
        new = self.path.with_suffix(".new")  # a run that is killed loses nothing
        new.unlink(missing_ok=True)
        for row in self.rows:
            append_rows(new, [{f: row[f] for f in FIELDS}], row["machine"], FIELDS)
        if self.rows:
            new.replace(self.path)
        else:
            self.path.unlink(missing_ok=True)

    def of(self, part: str, case: str, who: str) -> list[Row]:
        return [x for x in self.rows if [x[key] for key in KEY[:3]] == [part, case, who]]

    def add(self, task: Row, parts: Sequence[str]) -> None:
        """Rows that a process finds and that are not there yet."""
        for found in launched(task, self.limit):
            row = dict.fromkeys(FIELDS, "") | {key: task[key] for key in KEY[:3]} | found
            row["load"] = f"{os.getloadavg()[0]:.1f}"
            row = {key: str(value) for key, value in row.items()}
            there = {tuple(x[key] for key in KEY) for x in self.rows}
            if row["part"] in parts and tuple(row[key] for key in KEY) not in there:
                host = machine(PACKAGES)
                append_rows(self.path, [row], host, FIELDS)
                self.rows.append(row | {"machine": host})
                print(*(row[key] for key in SHOWN), flush=True)

    def calls(self, parts: Sequence[str], only: Sequence[str]) -> None:
        """First and second calls."""
        for case in [name for name in CALLS if not only or name in only]:
            if not all(self.of(part, case, "call") for part in parts):
                self.add({"part": parts[0], "case": case, "who": "call", "folder": None}, parts)

    def model(self, task: Row, n_seeds: int, samplers: Sequence[str]) -> None:
        """What a model lacks."""
        place = task["part"], task["case"]
        if not self.of(*place, "explain"):
            self.add(task | {"who": "explain"}, [task["part"]])
        roles = self.of(*place, "explain")
        if not roles or not roles[0]["note"].startswith("["):
            return
        for who in samplers:
            done = {x["seed"] for x in self.of(*place, who)}
            stopped = any(x["call"] == "stopped" for x in self.of(*place, who))
            seeds = [seed for seed in range(n_seeds) if str(seed) not in done]
            if seeds and not stopped:
                names = json.loads(roles[0]["note"])
                self.add(task | {"who": who, "names": names, "seeds": seeds}, [task["part"]])


def deviations(peer: Sequence[Row], reference: Any) -> dict[str, float]:
    """Of a sound reference, or of all runs together."""
    means, sds = ([json.loads(x[key]) for x in peer] for key in ("means", "sds"))
    given = reference.of if reference is not None and reference.is_sound else {}
    found = {}
    for name in sds[0]:
        within, between = np.mean([x[name] ** 2 for x in sds]), np.var([x[name] for x in means])
        found[name] = given[name][1] if name in given else float(np.sqrt(within + between))
    return found


def needed(rows: Sequence[Row], sds: Mapping[str, float], measure: str) -> np.ndarray:
    """Seconds to 1,000 effective draws by the scatter, warm and first, and the same by ArviZ's."""
    warm, first = (
        np.median([float(x[measure]) for x in rows if x["call"] == call])
        for call in ("warm", "first")
    )
    means = [json.loads(x["means"]) for x in rows]
    scatter = {name: np.std([x[name] for x in means], ddof=1) for name in means[0]}
    by_scatter = min((sds[name] / x) ** 2 for name, x in scatter.items() if x > 0.0)
    by_arviz = np.median([float(x["ess"]) for x in rows])
    each = [1e3 * warm / by_scatter, 1e3 * warm / by_arviz]
    return np.array([x for y in each for x in (y, first - warm + y)])


def report_calls(table: Table) -> None:
    """Beside what is asked for."""
    for i, part in enumerate(PARTS[:2]):
        for case, asked in ASKED.items():
            for x in table.of(part, case, "call"):
                facts = x["note"] + (f"ESS {float(x['ess']):.0f}" if x["ess"] else "")
                times = f"wall {float(x['wall']):6.2f}, CPU {float(x['cpu']):6.2f}"
                print(
                    f"{part:7} {case:18} asked {asked[i]:4} s: {times}, load {x['load']}  {facts}"
                )
    for x in table.of("numbers", "", "numbers"):
        asked_ms = ASKED_MS.get(x["call"], "")
        print(
            f"{x['call']:26} asked {asked_ms:4} ms: CPU {1e3 * float(x['cpu']):6.2f}  {x['note']}"
        )


def report_models(table: Table, part: str, folder: Path | None) -> None:
    """Ratios of each model, and in how many they are as asked for."""
    ratios = []
    for case, model in cases_of(part, folder).items():
        both = [[x for x in table.of(part, case, who) if x["means"]] for who in (OURS, PEER)]
        if any(len({x["call"] for x in rows}) < 2 for rows in both):
            for x in [x for x in table.rows if x["case"] == case and x["who"] != "explain"]:
                print(f"{case:22}", *(x[key] for key in SHOWN[1:]))
            continue
        sds = deviations(both[1], known(case, model, None))
        found = {m: needed(both[1], sds, m) / needed(both[0], sds, m) for m in ("wall", "cpu")}
        divergent = [int(x["divergences"]) for x in both[1]]
        shown = " ".join(f"{m}" + " ".join(f"{x:8.2f}" for x in found[m]) for m in found)
        print(f"{case:22} {shown}  divergent {divergent}, runs {len(both[0])}, {len(both[1])}")
        if np.median(divergent) == 0:
            ratios.append([found[m][:2] for m in ("wall", "cpu")])
    for i, measure in enumerate(("wall", "cpu")[: 2 * bool(ratios)]):
        warm, first = np.array(ratios)[:, i].T
        shares = ", ".join(f">= {x}: {np.sum(warm >= x)}" for x in (1, 5, 20))
        count = f"{part}, {len(warm)} sampled by nutpie without divergences, {measure}"
        print(f"{count}: warm {shares}; first >= .7: {np.sum(first >= 0.7)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--data", type=Path, help="folder of `latent_gaussian`")
    parser.add_argument("--models", nargs="*", default=[], help="no other calls or models")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--who", nargs="+", choices=(OURS, PEER), default=(OURS, PEER))
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a process")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="rows that are there, too")
    parser.add_argument("--report", action="store_true", help="of the rows that are there alone")
    options = parser.parse_args()
    table = Table(options.out / "seconds.csv", options.limit)
    rows, folder = options.rows, options.data
    print(
        f"One BLAS thread; nutpie: {CHAINS} chains on {os.cpu_count()} cores, 1,000 + 1,000 draws"
    )
    if options.again and not options.report:
        table.forget(rows, options.models, options.who)
    if not options.report:
        if chosen := [part for part in PARTS[:2] if part in rows]:
            table.calls(chosen, options.models)
        for part in [x for x in OF_MODELS if x in rows]:
            cases = cases_of(part, folder)
            for case in [x for x in options.models or cases if x in cases]:
                task = {"part": part, "case": case, "folder": folder and str(folder)}
                table.model(task, options.seeds, options.who)
        if "numbers" in rows and len(table.of("numbers", "", "numbers")) < len(ASKED_MS):
            table.add(
                {"part": "numbers", "case": "", "who": "numbers", "folder": None}, ["numbers"]
            )
    report_calls(table)
    print("nutpie's seconds over ours: warm, first by the scatter; warm, first by ArviZ's ESS")
    for part in [x for x in OF_MODELS if x in rows]:
        report_models(table, part, folder)


if __name__ == "__main__":
    main()
