"""Cross-validated forecasts of categories by several methods, kept in a table of folds.

Every fold of every method is a row of ``likelihood_folds.csv``. A section of the benchmark reads
it, and compares methods fold by fold: two methods on the same folds differ by less than the folds
do, and that difference has a standard error of its own.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import standardise
from runner import append_rows, machine, read_rows
from sklearn.model_selection import KFold, StratifiedKFold

SEED, FOLDS = 8927, 5
LEAST = 1e-6  # no probability counts as less
FIELDS = ("section", "data", "fold", "method", "accuracy", "absolute_error", "log_loss", "seconds")
# Takes X, y = 0..K-1 and new inputs; returns probabilities, or several methods' with CPU seconds.
Method = Callable[[np.ndarray, np.ndarray, np.ndarray], object]


def folds(y, largest):
    """Five folds; training parts of at most `largest` rows, the others left out."""
    try:
        split = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(y, y)
    except ValueError:
        split = KFold(FOLDS, shuffle=True, random_state=SEED).split(y)
    rng = np.random.default_rng(SEED)
    for train, test in split:
        yield rng.permutation(train)[:largest], test


def log_loss(p, y):
    return float(-np.log(np.clip(p[np.arange(len(y)), y], LEAST, 1)).mean())


@dataclass(frozen=True)
class FoldScores:
    """The table of one section, in the file at `path`."""

    path: Path
    section: str

    def _rows(self, data: str) -> list[dict[str, str]]:
        rows = read_rows(self.path)
        return [r for r in rows if r["section"] == self.section and r["data"] == data]

    def measure(
        self,
        data: str,
        split: tuple[np.ndarray, np.ndarray],
        methods: Mapping[str, Method],
        largest: int = 800,
        scale: bool = True,
    ) -> None:
        """Whatever folds of the X and y of `split` the table does not have yet."""
        X, y = split
        done = {(row["fold"], row["method"]) for row in self._rows(data)}
        for fold, (train, test) in enumerate(folds(y, largest)):
            Z, new = standardise(X[train], X[test]) if scale else (X[train], X[test])
            levels, inner = np.unique(y[train], return_inverse=True)
            for name, method in methods.items():
                if any((str(fold), own) in done for own in name.split(" + ")):
                    continue
                started = time.process_time()
                found = method(Z, inner, new)
                seconds = time.process_time() - started
                several = found if isinstance(found, dict) else {name: (found, seconds)}
                for own, (p_own, took) in several.items():
                    p = np.zeros((len(test), int(y.max()) + 1))
                    p[:, levels] = p_own
                    self._append(data, fold, own, p, y[test], took)

    def _append(self, data, fold, method, p, y, seconds) -> None:
        guess = p.argmax(axis=1)
        values = (
            self.section, data, fold, method, float(np.mean(guess == y)),
            float(np.abs(guess - y).mean()), log_loss(p, y), seconds,
        )  # fmt: skip
        append_rows(self.path, [dict(zip(FIELDS, values, strict=True))], machine(), FIELDS)

    def report(self, data: str, n: int, ours: str) -> Iterator[tuple[str, str, str]]:
        """Means over folds; and how `ours` differs from each, fold by fold."""
        table: dict[str, dict[str, tuple[float, ...]]] = {}
        for row in self._rows(data):
            values = tuple(float(row[name]) for name in FIELDS[4:])
            table.setdefault(row["method"], {})[row["fold"]] = values
        for method, rows in table.items():
            accuracy, error, loss, seconds = np.mean(list(rows.values()), axis=0)
            found = f"{accuracy:.3f}, {error:.3f}, {loss:.3f}, {seconds:.1f} s"
            if method != ours and ours in table:
                common = sorted(set(rows) & set(table[ours]))
                gaps = np.array([np.subtract(table[ours][k], rows[k])[:3] for k in common])
                spread = np.std(gaps, ddof=1, axis=0) / np.sqrt(len(gaps))
                both = zip(gaps.mean(axis=0), spread, strict=True)
                found += "; ours less this: " + ", ".join(f"{a:+.3f} +- {b:.3f}" for a, b in both)
            yield (
                f"{data} (n={n}), {method}: accuracy, mean absolute error, log loss, CPU a fold",
                "",
                found,
            )
