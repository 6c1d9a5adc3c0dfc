"""The paper's table on PMLB, from the rows that `paper.py pmlb` has made so far.

    python benchmarks/paper_summary.py [--results DIR]

Averages of information score and accuracy over sets that every method finished, the paper's figures
beside them; what the exact posterior and what the hyperparameters are worth; and the Bayesian
signed-rank test with a rope of .01 (Benavoli, Corani, Demsar & Zaffalon 2017) where `baycomp` is
installed.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from core import ROOT

METHODS = ("GP-L", "GP-EP", "EP@0", "SkewGP0", "SkewGP2")
PAPER = {
    "GP-L": (0.512, 0.863),
    "GP-EP": (0.542, 0.859),
    "SkewGP0": (0.557, 0.882),
    "SkewGP2": (0.573, 0.904),
}
PAIRS = (
    ("SkewGP0", "GP-EP", "SkewGP0 less GP-EP"),
    ("SkewGP0", "EP@0", "  of it, the exact posterior at the same hyperparameters"),
    ("EP@0", "GP-EP", "  of it, the hyperparameters"),
    ("SkewGP2", "SkewGP0", "SkewGP2 less SkewGP0: two pseudo-points"),
    ("SkewGP0", "GP-L", "SkewGP0 less GP-L"),
)
ROPE = 0.01


def averages(path: Path) -> pd.DataFrame:
    """Mean over the five folds of each set that is complete, by (figure, method)."""
    rows = pd.read_csv(path)
    counts = rows.groupby("set")["fold"].nunique()
    whole = rows[rows["set"].isin(counts.index[counts == 5])]
    table = whole.pivot_table(
        index="set", columns="method", values=["information", "accuracy", "seconds"]
    )
    return table.dropna()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    table = averages(parser.parse_args().results / "paper_pmlb.csv")
    print(f"{len(table)} sets (the paper: 124)\n")
    print(f"{'':<10}{'information':>12}{'paper':>8}{'accuracy':>10}{'paper':>8}{'seconds':>9}")
    for method in METHODS:
        bits, hits = (table[figure][method].mean() for figure in ("information", "accuracy"))
        theirs = PAPER.get(method, (np.nan, np.nan))
        seconds = table["seconds"][method].mean()
        print(
            f"{method:<10}{bits:>12.3f}{theirs[0]:>8.3f}{hits:>10.3f}{theirs[1]:>8.3f}{seconds:>9.1f}"
        )
    print("\nInformation score, mean difference over sets +- standard error, and median:")
    for first, second, what in PAIRS:
        difference = table["information"][first] - table["information"][second]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        print(f"{what:<58}{difference.mean():+.4f} +- {error:.4f}{difference.median():+9.4f}")
        signed_rank(table["information"][second], table["information"][first])


def signed_rank(worse: pd.Series, better: pd.Series) -> None:
    """P(worse better, practically equal, better better)."""
    try:
        import baycomp
    except ImportError:
        return
    left, rope, right = baycomp.SignedRankTest.probs(worse.to_numpy(), better.to_numpy(), rope=ROPE)
    print(f"    signed rank: worse {left:.3f}, equal within {ROPE} {rope:.3f}, better {right:.3f}")


if __name__ == "__main__":
    main()
