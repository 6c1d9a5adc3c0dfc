"""The tables of Benavoli, Azzimonti & Piga (2020) on real data.

    python benchmarks/paper.py pmlb [--data DIR] [--jobs 2] [--largest 1600] [--sets NAME ...]
    python benchmarks/paper.py pmlb --methods GPy-EP --largest 200
    python benchmarks/paper.py pmlb --methods SkewGP0-P
    python benchmarks/paper.py pmlb --methods SkewGP0-A
    python benchmarks/paper.py draws
    python benchmarks/paper.py timing
    python benchmarks/paper.py images [--data DIR] [--images 5000]

Each experiment appends its rows to ``paper_NAME.csv`` in the folder ``--out``, by default
``benchmarks/results``, as they are done, with versions, machine and seconds; what is in the file is
not computed again, so a killed run goes on where it was, and another ``--out`` begins anew.

pmlb    sets of two classes, five folds: information score, accuracy and CPU seconds of each method
draws   the folds of "pmlb" on which the exact posterior and EP differ most, by other draws and more
timing  a thousand draws of the posterior of f on a line, by three samplers
images  Fashion-MNIST, MNIST 3 against 5, German traffic signs 30 against 50

Work goes through joblib, to a cluster with ``--dask ADDRESS`` of its scheduler: the workers need
this folder on their PYTHONPATH, and the folders of --data and --out at the same place. One seed
gives one result, whatever the number of jobs; with another version it may give another.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import paper_summary
from core import ROOT
from datasets import (
    DataUnavailableError,
    add_data_option,
    information_score,
    pmlb,
    pmlb_sizes,
    standardise,
    stratified_folds,
)
from paper_image_tables import collect
from paper_images import CLASSES, N, image_row, image_tasks
from paper_images import METHODS as IMAGE_METHODS
from paper_methods import BY_NAME, COME_WITH, TASKS, TOGETHER, drawn_again, forecasts
from paper_timing import SAMPLERS, SIZES, time_of_draws
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from runner import append_rows, machine, read_rows
from threadpoolctl import threadpool_limits

SEED = 8927
PACKAGES = ("numpy", "scipy", "pymc", "pytensor", "scikit-learn")

# Folds of "draws", and their rows at the most.
MOST_DRAWN, N_DRAWN = 12, 700

Row = dict[str, Any]


def pmlb_tasks(arguments: argparse.Namespace) -> list[tuple[str, int, str, Path | None]]:
    """One for each set, fold and method, small sets first."""
    if arguments.sets:
        names = arguments.sets
        for name in names:
            pmlb(arguments.data, name)  # fetched here, and not by each job for itself
    else:
        sizes = sorted(pmlb_sizes(arguments.data), key=lambda row: row[1] ** 2 * row[2])
        names = [name for name, n, _ in sizes if n <= arguments.largest]
    asked = [name for name in BY_NAME if name in arguments.methods]  # not among the others
    tasks = itertools.product(names, range(arguments.folds), [*TASKS, *asked])
    return [(*task, arguments.data) for task in tasks]


def pmlb_fold(name: str, fold: int, method: str, data: Path | None) -> list[Row]:
    """One method, and those that come with it, on one fold of one set: ARD RBF."""
    names = COME_WITH.get(method, (method,))
    rows = fold_rows(name, fold, names, data)
    if names == TOGETHER and "failure" in rows[0]:  # which of them?
        parts = (("GP-EP",), ("SkewGP0", "EP@0"), ("SkewGP2",))
        rows = [row for part in parts for row in fold_rows(name, fold, part, data)]
    return rows


def split(name: str, fold: int, data: Path | None) -> tuple[np.ndarray, ...]:
    """Scaled inputs and labels of the rows to learn from, then of those to forecast."""
    X, y = pmlb(data, name)
    train, test = stratified_folds(y, SEED)[fold]
    inputs, new = standardise(X[train], X[test])
    return inputs, y[train], new, y[test]


def fold_rows(name: str, fold: int, names: tuple[str, ...], data: Path | None) -> list[Row]:
    """A row for each of the methods; where they fail, of why."""
    inputs, labels, new, truth = split(name, fold, data)
    n, d = len(inputs) + len(new), inputs.shape[1]
    same = {"set": name, "fold": fold, "n": n, "d": d}
    try:
        with threadpool_limits(1):
            found = forecasts(names, inputs, labels, new, seed=SEED)
    except Exception as error:  # a method that fails is a result
        failure = f"{type(error).__name__}: {error}"
        return [{**same, "method": method, "failure": failure} for method in names]
    return [
        {
            **same,
            "method": method,
            "information": f"{information_score(truth, forecast.p, labels.mean()):.6f}",
            "accuracy": f"{np.mean((forecast.p > 0.5) == truth):.6f}",
            "log_evidence": f"{forecast.log_evidence:.4f}",
            "skewness": f"{forecast.skewness:.4f}",
            # Not known of GP-EP, whose search is a part of SkewGP0's.
            "seconds": "" if np.isnan(forecast.seconds) else f"{forecast.seconds:.2f}",
            "relative_ess": ""
            if np.isnan(forecast.relative_ess)
            else f"{forecast.relative_ess:.3f}",
            "rung": "" if np.isnan(forecast.rung) else f"{forecast.rung:.0f}",
        }
        for method, forecast in found.items()
    ]


def draws_tasks(arguments: argparse.Namespace) -> list[tuple[str, int, Path | None]]:
    """The folds of "pmlb", of few rows, where the exact posterior differs most from EP."""
    if not (arguments.out / "paper_pmlb.csv").exists():
        raise SystemExit(f"draws needs rows of pmlb in {arguments.out}: run pmlb first.")
    rows = paper_summary.read_rows(arguments.out)
    scores = rows[rows["n"] <= N_DRAWN].set_index(paper_summary.KEY)["information"].unstack()
    if not {"SkewGP0", "EP@0"} <= set(scores):
        raise SystemExit(
            f"draws needs rows of SkewGP0 and EP@0 in {arguments.out}: run pmlb --methods SkewGP2, "
            "which they come with."
        )
    gaps = (scores["SkewGP0"] - scores["EP@0"]).abs()
    return [(name, int(fold), arguments.data) for name, fold in gaps.nlargest(MOST_DRAWN).index]


def draws_fold(name: str, fold: int, data: Path | None) -> list[Row]:
    """The score of SkewGP0 on one fold by other draws, and by more."""
    inputs, labels, new, truth = split(name, fold, data)
    with threadpool_limits(1):
        found = list(drawn_again(inputs, labels, new, SEED))
    return [
        {
            "set": name,
            "fold": fold,
            "draws": draws,
            "seed": seed,
            "information": f"{information_score(truth, p, labels.mean()):.6f}",
        }
        for draws, seed, p in found
    ]


def timing_tasks(arguments: argparse.Namespace) -> list[tuple[str, int]]:
    """One for each sampler and size."""
    return [(method, n) for n in arguments.sizes for method in SAMPLERS]


def timing_row(method: str, n: int) -> list[Row]:
    """A thousand draws of the posterior of the paper's timing figure."""
    return [time_of_draws(method, n)]


def images_tasks(arguments: argparse.Namespace) -> list[tuple[Any, ...]]:
    """One for each data set, kernel, class and method."""
    return image_tasks(arguments.data, arguments.out, arguments.images, arguments.sets)


class Experiment(NamedTuple):
    """What to do, and how its rows are told apart."""

    tasks: Callable[[argparse.Namespace], list[tuple[Any, ...]]]
    work: Callable[..., list[Row]]
    key: tuple[str, ...]  # columns that the first entries of a task are
    fields: tuple[str, ...]  # further columns
    methods: tuple[str, ...]  # of --methods
    finish: Callable[[argparse.Namespace], None] | None = None  # what its rows, once there, make


EXPERIMENTS = {
    "pmlb": Experiment(
        pmlb_tasks,
        pmlb_fold,
        ("set", "fold", "method"),
        ("n", "d", "information", "accuracy", "log_evidence", "skewness", "seconds",
         "failure", "relative_ess", "rung"),
        (*TASKS, *BY_NAME),
    ),
    "draws": Experiment(
        draws_tasks, draws_fold, ("set", "fold"), ("draws", "seed", "information"), ()
    ),
    "timing": Experiment(
        timing_tasks,
        timing_row,
        ("sampler", "n"),
        ("draws", "seconds", "ess", "ess_error", "draws_per_second", "ess_per_second"),
        SAMPLERS,
    ),
    "images": Experiment(
        images_tasks,
        image_row,
        ("problem", "kernel", "class", "method"),
        ("n", "accuracy", "information", "log_evidence", "skewness", "seconds"),
        IMAGE_METHODS,
        lambda arguments: collect(arguments.data, arguments.out, arguments.images),
    ),
}  # fmt: skip


def alone(work: Callable[..., list[Row]], task: tuple[Any, ...]) -> tuple[list[Row], str]:
    """The rows of a task, and what machine they are from; its own jobs stay in its process."""
    host = machine(PACKAGES)
    with joblib.parallel_config(backend="sequential"):
        return work(*task), host


def run(name: str, arguments: argparse.Namespace) -> None:
    """Run what is left of an experiment, and write it as it comes."""
    tasks, work, key, fields, methods, finish = EXPERIMENTS[name]
    path = arguments.out / f"paper_{name}.csv"
    done = {tuple(row[column] for column in key) for row in read_rows(path)}
    asked = tasks(arguments)
    if methods and arguments.methods:
        asked = [task for task in asked if not arguments.methods.isdisjoint(task)]
    left = [task for task in asked if tuple(map(str, task[: len(key)])) not in done]
    print(f"{name}: {len(asked) - len(left)} of {len(asked)} tasks have their rows in {path}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    # Rows come in the order in which they are done.
    together = joblib.Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")
    with Progress(*columns) as progress:
        bar = progress.add_task(name, total=len(left))
        for found, host in together(joblib.delayed(alone)(work, task) for task in left):
            append_rows(path, found, host, (*key, *fields))
            progress.update(bar, description=" ".join(str(found[0][column]) for column in key))
            progress.advance(bar)
    if finish is not None:
        finish(arguments)


@contextmanager
def workers(scheduler: str | None) -> Iterator[None]:
    """Those of a dask cluster, given the address of its scheduler, or this machine's."""
    if scheduler is None:
        yield
        return
    from dask.distributed import Client

    with Client(scheduler) as client, joblib.parallel_config(backend="dask"):
        # A worker that cannot import the work never says so: joblib would wait for it.
        try:
            client.run(import_module, "paper_methods")
        except ModuleNotFoundError as error:
            raise SystemExit(
                f"A worker says: {error}. Start the workers with {Path(__file__).parent} on their "
                "PYTHONPATH, in an environment like this one."
            ) from None
        yield


def positive(number: str) -> int:
    if not (number.isdecimal() and int(number)):
        raise argparse.ArgumentTypeError(f"{number} is not a whole number above 0")
    return int(number)


def command_line() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", choices=tuple(EXPERIMENTS))
    add_data_option(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        metavar="DIR",
        help="where the rows go, and those that are there are not computed again; by default "
        "benchmarks/results, which has all",
    )
    parser.add_argument("--jobs", type=int, help="processes, -1: as many as cores; by default one")
    parser.add_argument("--dask", metavar="ADDRESS", help="of a scheduler, as in tcp://host:8786")
    parser.add_argument(
        "--largest",
        type=positive,
        default=1600,
        metavar="N",
        help="of pmlb: rows of the largest set, by default %(default)s",
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        metavar="NAME",
        help=f"of pmlb: these, whatever --largest; of images: of {', '.join(CLASSES)}",
    )
    methods = (f"of {name} {', '.join(e.methods)}" for name, e in EXPERIMENTS.items() if e.methods)
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help=f"these only: {'; '.join(methods)}. With SkewGP2 of pmlb come "
        f"{', '.join(TOGETHER[:-1])}; {' and '.join(BY_NAME)} are run where they are named only",
    )
    parser.add_argument(
        "--folds",
        type=int,
        choices=range(1, paper_summary.FOLDS + 1),
        default=paper_summary.FOLDS,
        help=f"of pmlb: the first of the {paper_summary.FOLDS}",
    )
    parser.add_argument(
        "--images",
        type=positive,
        default=N,
        metavar="N",
        help="to learn from, and as many to forecast, by default %(default)s; others want an --out "
        "of their own",
    )
    parser.add_argument(
        "--sizes", type=positive, nargs="+", default=SIZES, metavar="N", help="of timing: labels"
    )
    return parser


def check_methods(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """An error for those that none of the experiments has."""
    known = [method for name in arguments.experiments for method in EXPERIMENTS[name].methods]
    for method in arguments.methods or ():
        if method not in known:
            tasks = [task for task in known if method in COME_WITH.get(task, ())]
            parser.error(
                f"--methods: {' and '.join(arguments.experiments)} can be asked for "
                f"{', '.join(known) or 'none'}, not for {method}"
                + "".join(f", which comes with {task}" for task in tasks)
            )


def main() -> None:
    parser = command_line()
    arguments = parser.parse_args()
    check_methods(parser, arguments)
    arguments.methods = frozenset(arguments.methods or ())
    arguments.out = arguments.out.resolve()  # of workers as well, whatever folder they are in
    arguments.data = arguments.data and arguments.data.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        with workers(arguments.dask):
            for name in arguments.experiments:
                run(name, arguments)
    except DataUnavailableError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
