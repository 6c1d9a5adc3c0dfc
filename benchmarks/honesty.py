"""Are the stated errors right? Thousands of random log probabilities with known answers.

    python benchmarks/honesty.py [--count 340] [--families ...] [--out DIR] [--against CSV]

For each problem both goals: a probability (`mvn_logcdf`, or the evidence of a SkewGP) and draws
(`truncated_mvn`, whose evidence comes from the draws); `integrate` has one, under two seeds. The
error over the stated standard error has Student's t distribution with 15 degrees of freedom at best
(16 replicates): 6.4 % beyond 2, .1 % beyond 4. Rows are appended to ``DIR/honesty_rows.csv`` as
they are known, those in the file are not computed again; the table goes to ``DIR/honesty.csv``.
``--against``: rows of another state of the package, on the same problems, whose time and root mean
square error stand beside.
"""

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np
from honesty_problems import FAMILIES, problem
from runner import append_rows, machine, read_rows

import pymc_skewgp as sg

ROOT = Path(__file__).resolve().parents[1]
GOALS = ("probability", "draws")
FIELDS = ("family", "index", "goal", "exact", "value", "std_error", "ess", "k", "seconds", "warned")
# Round-off of the answers themselves: trapezoidal rules stop at 1e-9 and 1e-7 (three factors).
FLOOR = {"three factors, upper": 1e-7, "three factors, mixed": 1e-7, "three factors, far": 1e-7}
ASKED = {"beyond_2": 0.10, "beyond_4": 0.007, "beyond_8": 0.0, "time": 1.3, "rms": 1.2}


def estimate(case, goal, seed):
    """The package's estimate for one problem."""
    if case.estimate is not None:
        return case.estimate(seed)
    if case.prior is not None:
        posterior = sg.SkewGPPosterior(**case.prior, random_seed=seed)
        if goal == "probability":
            return posterior.log_marginal_likelihood
        found = posterior.sample(draws=256, chains=4, random_seed=seed)["sample_stats"].attrs
        return sg.Estimate(
            found["log_marginal_likelihood"],
            found["log_marginal_likelihood_se"],
            found["relative_ess"],
            found["pareto_k"],
        )
    if goal == "probability":
        return sg.mvn_logcdf(case.upper, case.cov, lower=case.lower, random_seed=seed)
    return sg.truncated_mvn(case.cov, case.lower, case.upper, random_seed=seed).log_prob


def measure(family, index, answers):
    """Rows of one problem, one a goal."""
    case = problem(family, index)
    key = (family, str(index))
    if key not in answers:
        answers[key] = case.answer()
    for number, goal in enumerate(GOALS):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.process_time()
            found = estimate(case, goal, 1000 * number + index)
            spent = time.process_time() - start
        names = sorted({w.category.__name__ for w in caught})
        numbers = (answers[key], found.value, found.std_error, found.relative_ess, found.pareto_k)
        text = [f"{x:.17g}" for x in numbers]
        row = (family, index, goal, *text, f"{spent:.4f}", " ".join(names))
        yield dict(zip(FIELDS, row, strict=True))


def summary(rows, against):
    """One row a family and goal, and over all."""
    others = {(r["family"], r["index"], r["goal"]): r for r in against}
    groups = {}
    for row in rows:
        groups.setdefault((row["family"], row["goal"]), []).append(row)
    for goal in GOALS:
        groups[("all", goal)] = [row for row in rows if row["goal"] == goal]
    for (family, goal), members in groups.items():
        error, ratio = errors(members)
        line = {
            "family": family,
            "goal": goal,
            "problems": len(members),
            "beyond_2": f"{(ratio > 2).mean():.3f}",
            "beyond_4": f"{(ratio > 4).mean():.4f}",
            "beyond_8": str(int((ratio > 8).sum())),
            "worst": f"{ratio.max():.1f}",
            "rms": f"{np.sqrt((error**2).mean()):.2g}",
            "median": f"{np.median(np.abs(error)):.2g}",
            "warned": f"{np.mean([bool(r['warned']) for r in members]):.3f}",
            "seconds": f"{sum(float(r['seconds']) for r in members):.1f}",
        }
        same = [
            (r, others[k]) for r in members if (k := (r["family"], r["index"], r["goal"])) in others
        ]
        if same:
            ours, theirs = (np.sqrt((errors(x)[0] ** 2).mean()) for x in zip(*same, strict=True))
            spent = [sum(float(r["seconds"]) for r in x) for x in zip(*same, strict=True)]
            line["time_ratio"] = f"{spent[0] / spent[1]:.2f}"
            line["rms_ratio"] = f"{ours / theirs:.2f}" if theirs > 1e-8 else "-"
        yield line


def errors(rows):
    """Errors, and their sizes over the stated ones, the answers' own accuracy allowed for."""
    exact, value, std_error = (
        np.array([float(r[name]) for r in rows]) for name in ("exact", "value", "std_error")
    )
    floor = np.array([FLOOR.get(r["family"], 1e-9) for r in rows])
    error = value - exact
    beyond = np.maximum(np.abs(error) - floor, 0.0)
    return error, beyond / np.maximum(std_error, 1e-300)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=340, help="problems in each family")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--against", type=Path, help="honesty_rows.csv of another state")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "honesty_rows.csv"
    rows = read_rows(path)
    done = {(r["family"], r["index"]) for r in rows}
    against = read_rows(arguments.against) if arguments.against else []
    answers = {(r["family"], r["index"]): float(r["exact"]) for r in [*against, *rows]}
    host = machine()
    sg.mvn_logcdf(np.zeros(3), np.eye(3))  # imports
    for index in range(arguments.count):
        for family in arguments.families:
            if (family, str(index)) not in done:
                append_rows(path, list(measure(family, index, answers)), host, FIELDS)
    wanted = [
        r
        for r in read_rows(path)
        if r["family"] in arguments.families and int(r["index"]) < arguments.count
    ]
    lines = list(summary(wanted, against))
    with (arguments.out / "honesty.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*max(lines, key=len), "machine"])
        writer.writeheader()
        writer.writerows({**line, "machine": host} for line in lines)
    print("asked:", ", ".join(f"{name} <= {value}" for name, value in ASKED.items()))
    for line in lines:
        print("  ".join(f"{x:>{w}}" for x, w in zip(line.values(), WIDTHS, strict=False)))


WIDTHS = (22, 11, 4, 6, 7, 4, 7, 8, 8, 6, 7, 5, 5)


if __name__ == "__main__":
    main()
