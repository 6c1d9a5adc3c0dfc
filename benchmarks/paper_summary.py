"""The paper's table on PMLB, from the rows that `paper.py pmlb` has made so far.

    python benchmarks/paper_summary.py [--results DIR]

Averages of information score and accuracy over sets that every method finished, the paper's figures
beside them; what the exact posterior and what the hyperparameters are worth, with standard errors
that take sets of one origin as one; and the Bayesian signed-rank test with a rope of .01 (Benavoli,
Corani, Demsar & Zaffalon 2017).
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from core import ROOT
from peers import missing_peer

LAPLACE = "GP-L"  # of thousands of rows it takes minutes a fold
METHODS = (LAPLACE, "EP-1", "GP-EP", "EP@0", "SkewGP0", "SkewGP2")
PAPER = {
    "GP-L": (0.512, 0.863),
    "GP-EP": (0.542, 0.859),
    "SkewGP0": (0.557, 0.882),
    "SkewGP2": (0.573, 0.904),
}
PAIRS = (
    ("SkewGP0", "GP-EP", "SkewGP0 less GP-EP"),
    ("SkewGP0", "EP@0", "of it, the exact posterior at the same hyperparameters"),
    ("EP@0", "GP-EP", "of it, the hyperparameters"),
    ("GP-EP", "EP-1", "GP-EP less EP-1: a search for the hyperparameters"),
    ("SkewGP2", "SkewGP0", "SkewGP2 less SkewGP0: two pseudo-points"),
    ("SkewGP2", "GP-EP", "SkewGP2 less GP-EP"),
    ("SkewGP0", LAPLACE, "SkewGP0 less GP-L"),
)
# What `paper.py pmlb --methods SkewGP0-P` is for.
PRIOR_PAIRS = (
    ("SkewGP0-P", "SkewGP0", "weak priors on the hyperparameters, exact posterior"),
    ("EP@0-P", "EP@0", "weak priors on the hyperparameters, EP"),
    ("SkewGP0-P", "EP@0-P", "the exact posterior at hyperparameters with priors"),
    ("SkewGP0-P", "GP-L", "SkewGP0 with priors less GP-L"),
)
# What `paper.py pmlb --methods SkewGP0-A` is for.
AVERAGE_PAIRS = (
    ("SkewGP0-A", "GP-EP", "averages, exact posteriors, less GP-EP at its maximum"),
    ("EP-A", "GP-EP", "averages, EP's posteriors, less GP-EP at its maximum"),
    ("SkewGP0-A", "SkewGP0", "averages less SkewGP0 at its maximum"),
    ("SkewGP0-A", "EP-A", "averages: the exact posteriors less EP's"),
)
# Sets of one study, or of the same things seen in other ways.
FAMILIES = (
    ("cleve", "cleveland", "cleveland-nominal", "heart-c"),
    ("hungarian", "heart-h"),
    ("breast-cancer-wisconsin", "wdbc"),
    ("breast", "breast-w"),
    ("german", "credit-g"),
    ("colic", "horse-colic"),
    ("car", "car-evaluation"),
    ("flare", "solar-flare_1", "solar-flare_2"),
    ("allbp", "ann-thyroid", "hypothyroid"),
    ("led7", "led24"),
    ("monk1", "monk3"),
    ("mfeat-factors", "mfeat-fourier", "mfeat-karhunen", "mfeat-morphological", "mfeat-pixel"),
    (
        "GAMETES_Epistasis_2-Way_20atts_0.1H_EDM-1_1",
        "GAMETES_Epistasis_2-Way_20atts_0.4H_EDM-1_1",
        "GAMETES_Epistasis_3-Way_20atts_0.2H_EDM-1_1",
        "GAMETES_Heterogeneity_20atts_1600_Het_0.4_0.2_50_EDM-2_001",
        "GAMETES_Heterogeneity_20atts_1600_Het_0.4_0.2_75_EDM-2_001",
    ),
)
PEER = "GPy-EP"
FOLDS = 5
KEY = ["set", "fold", "method"]
ROPE = 0.01
DRAWS, SEED = 50_000, 8927


def read_rows(results: Path) -> pd.DataFrame:
    """One for each set, fold and method: of two runs at once the later."""
    return pd.read_csv(results / "paper_pmlb.csv").drop_duplicates(KEY, keep="last")


def whole_sets(results: Path, methods: tuple[str, ...] = METHODS) -> pd.DataFrame:
    """The rows of sets that every one of these methods finished: all folds, no failure."""
    rows = read_rows(results)
    done = rows.dropna(subset="information").groupby(["set", "method"])["fold"].transform("size")
    rows = rows[done.reindex(rows.index).eq(FOLDS)]
    found = rows[rows["method"].isin(methods)].groupby("set")["method"].nunique()
    return rows[rows["set"].isin(found.index[found.eq(len(methods))])]


def by_set(results: Path, methods: tuple[str, ...] = METHODS) -> pd.DataFrame:
    """Means over the folds: a row a set that these methods finished, columns (figure, method)."""
    figures = ["information", "accuracy", "log_evidence", "skewness", "seconds", "n", "d"]
    rows = whole_sets(results, methods)
    timed_folds = rows.groupby(["set", "method"])["seconds"].transform("count")
    rows = rows.assign(seconds=rows["seconds"].where(timed_folds == FOLDS))
    return rows.pivot_table(index="set", columns="method", values=figures)


def timed(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds a fold of the sets on which every method was searched for by itself."""
    return table["seconds"][list(METHODS)].dropna()


def averages(table: pd.DataFrame) -> pd.DataFrame:
    """A row a method: means over the sets, the paper's beside them."""
    seconds = timed(table).mean()
    return pd.DataFrame(
        {
            method: {
                "information": table["information"][method].mean(),
                "paper's": PAPER.get(method, (np.nan, np.nan))[0],
                "accuracy": table["accuracy"][method].mean(),
                "paper's ": PAPER.get(method, (np.nan, np.nan))[1],
                # EP@0's are SkewGP0's, and then some.
                "seconds a fold": np.nan if method == "EP@0" else seconds[method],
            }
            for method in METHODS
        }
    ).T


def differences(
    table: pd.DataFrame, pairs: tuple[tuple[str, str, str], ...] = PAIRS, tested: bool = True
) -> pd.DataFrame:
    """A row a pair of methods: gain in bits a label, and the signed-rank test of it."""
    rows = {}
    for first, second, what in pairs:
        gain = table["information"][first] - table["information"][second]
        rows[what] = {
            "mean": gain.mean(),
            "std. error": std_error(gain),
            "median": gain.median(),
        }
        if tested:
            largest = signed_rank(table, first, second).argmax(axis=1)
            shares = [np.mean(largest == i) for i in range(3)]
            rows[what] |= zip(("P(worse)", "P(equal)", "P(better)"), shares, strict=True)
    return pd.DataFrame(rows).T


def std_error(gain: pd.Series) -> float:
    """Of the mean over sets, a family counted as one: its deviations are added before squaring."""
    family = {name: members[0] for members in FAMILIES for name in members}
    deviations = (gain - gain.mean()).groupby(lambda name: family.get(name, name)).sum()
    groups = len(deviations)
    return float(np.sqrt(groups / (groups - 1) * (deviations**2).sum()) / len(gain))


def with_priors(table: pd.DataFrame) -> pd.DataFrame:
    """The sets on which hyperparameters with priors were learnt as well."""
    names = {name for pair in PRIOR_PAIRS for name in pair[:2]}
    scores = table["information"].reindex(columns=sorted(names))
    return table[scores.notna().all(axis=1)]


def with_averages(results: Path) -> pd.DataFrame:
    """Sets on which hyperparameters were averaged over: means over the folds that all have."""
    names = sorted({name for pair in AVERAGE_PAIRS for name in pair[:2]})
    rows = read_rows(results)
    if not set(names) <= set(rows["method"]):
        return pd.DataFrame()
    rows = rows[rows["method"].isin(names)].set_index(KEY)
    folds = rows[["information", "relative_ess", "rung", "n", "d"]].unstack()
    folds = folds[folds["information"][names].notna().all(axis=1)]
    return folds.groupby("set").mean()


def beside_gpy(results: Path) -> tuple[pd.DataFrame, int]:
    """GP-EP less GPy's EP, a row a fold: bits a label, nats; and how many GPy made nothing of."""
    rows = read_rows(results)
    figures = rows.set_index(KEY)[["information", "log_evidence"]].unstack()
    if PEER not in figures["information"]:
        return pd.DataFrame(columns=["information", "log_evidence"]), 0
    ours, peer = (figures.xs(method, axis=1, level="method") for method in ("GP-EP", PEER))
    failed = rows.loc[rows["method"] == PEER, "information"].isna()
    return (ours - peer).dropna(), int(failed.sum())


def signed_rank(table: pd.DataFrame, first: str, second: str, draws: int = DRAWS) -> np.ndarray:
    """Draws of the probabilities that `first` is worse, practically equal, better on a set."""
    with missing_peer("baycomp"):
        import baycomp
    scores = table["information"]
    drawn: np.ndarray = baycomp.SignedRankTest.sample(
        scores[second].to_numpy(),
        scores[first].to_numpy(),
        rope=ROPE,
        nsamples=draws,
        random_state=SEED,
    )
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--results",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        metavar="DIR",
        help="where paper_pmlb.csv is, by default benchmarks/results",
    )
    results = parser.parse_args().results
    if not (results / "paper_pmlb.csv").exists():
        parser.error(f"no paper_pmlb.csv in {results}: paper.py pmlb --out {results} makes it")
    table = by_set(results)
    if table.empty:
        parser.error(
            f"{results / 'paper_pmlb.csv'} has no set with all {FOLDS} folds of "
            f"{', '.join(METHODS)}: paper.py pmlb --out {results} goes on with it"
        )
    print(f"{len(table)} sets (the paper: 124)\n")
    print(averages(table).to_string(float_format="{:.3f}".format))
    print(f"\nInformation score, bits a label; equal: within {ROPE}\n")
    tested = find_spec("baycomp") is not None
    if not tested:
        print("(Without the Bayesian signed-rank test: pip install baycomp)\n")
    print(differences(table, tested=tested).to_string(float_format="{:.4f}".format))
    without = tuple(name for name in METHODS if name != LAPLACE)
    more = by_set(results, without)
    if len(more) > len(table):
        pairs = tuple(pair for pair in PAIRS if LAPLACE not in pair)
        print(f"\nWith the sets that {LAPLACE} was not run on, {len(more)} sets\n")
        print(differences(more, pairs, tested).to_string(float_format="{:.4f}".format))
    prior = with_priors(table)
    if len(prior):
        print(f"\nHyperparameters with priors, {len(prior)} sets\n")
        print(differences(prior, PRIOR_PAIRS, tested).to_string(float_format="{:.4f}".format))
    average = with_averages(results)
    if len(average):
        print(f"\nHyperparameters averaged over, {len(average)} sets\n")
        print(average["information"].mean().to_string(float_format="{:.3f}".format))
        print(differences(average, AVERAGE_PAIRS, tested).to_string(float_format="{:.4f}".format))
        reached = average[[("relative_ess", "SkewGP0-A"), ("rung", "SkewGP0-A")]]
        print(reached.describe().loc[["min", "25%", "50%", "max"]].to_string())
    found, failed = beside_gpy(results)
    if len(found):
        print(f"\nGP-EP less GPy's EP, medians of {len(found)} folds; of {failed} GPy made nothing")
        print(found.median().to_string(float_format="{:+.4f}".format))


if __name__ == "__main__":
    main()
