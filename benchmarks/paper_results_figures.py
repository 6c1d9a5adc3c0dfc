"""Figures of the paper that are made of result files: timing, signed ranks, tree, calibration."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from paper_summary import ROPE, by_set, signed_rank
from sklearn.model_selection import cross_val_predict
from sklearn.tree import DecisionTreeRegressor, plot_tree

import pymc_skewgp as sg

SAMPLERS = {"ess": "elliptical slices", "lin_ess": "lin-ess", "twisted": "this package"}
CORNERS = np.array([[0.0, 0.0], [0.5, np.sqrt(0.75)], [1.0, 0.0]])  # worse, equal, better
FEATURES = ["skewness", "n", "d"]
# Sets that a leaf needs: fewer would be read as a rule.
LEAF, DEPTH = 5, 2


def timing(results: Path, small: bool = False) -> Figure:
    """Draws a second, and the independent draws that they are worth, against n."""
    rows = pd.read_csv(results / "paper_timing.csv")
    rows["error"] = rows["ess_per_second"] * rows["ess_error"] / rows["ess"]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharex=True)
    columns = {
        "draws_per_second": ("draws per second", None),
        "ess_per_second": ("independent draws per second", "error"),
    }
    for ax, (column, (label, error)) in zip(axes, columns.items(), strict=True):
        for sampler, name in SAMPLERS.items():
            own = rows[rows["sampler"] == sampler]
            ax.errorbar(own["n"], own[column], error and own[error], fmt="o-", label=name)
        sizes = sorted(rows["n"].unique())
        ax.set(xscale="log", yscale="log", xlabel="labels n", ylabel=label, xticks=sizes)
        ax.set_xticklabels(sizes)
        ax.minorticks_off()
    axes[0].legend()
    return figure


def simplex(results: Path, small: bool = False) -> Figure:
    """The Bayesian signed-rank test: draws of P(worse), P(equal), P(better)."""
    table = by_set(results)
    pairs = (("SkewGP0", "GP-EP"), ("SkewGP2", "GP-EP"), ("SkewGP0", "GP-L"))
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
    for ax, (first, second) in zip(axes, pairs, strict=True):
        drawn = signed_rank(table, first, second, 2000 if small else 20_000)
        x, y = (drawn @ CORNERS).T
        drawn_at = ax.hexbin(
            x, y, gridsize=45, mincnt=1, bins="log", cmap="viridis", extent=(0, 1, 0, 0.87)
        )
        (edges,) = ax.fill(*CORNERS.T, fc="none", ec="0.3", lw=1)
        drawn_at.set_clip_path(edges)
        # From the middle to the edges: inside, which of the three is the most probable.
        middle = CORNERS.mean(axis=0)
        for i in range(3):
            edge = CORNERS[[i, (i + 1) % 3]].mean(axis=0)
            ax.plot(*np.transpose([middle, edge]), color="0.6", lw=0.8)
        shares = np.bincount(drawn.argmax(axis=1), minlength=3) / len(drawn)
        names = (f"{second} better", f"equal within {ROPE}", f"{first} better")
        places = ((0.0, -0.03, "left", "top"), (0.5, 0.89, "center", "bottom"),
                  (1.0, -0.03, "right", "top"))  # fmt: skip
        for name, share, (left, height, ha, va) in zip(names, shares, places, strict=True):
            ax.text(left, height, f"{name}\nP = {share:.3f}", ha=ha, va=va, fontsize=11)
        ax.set(aspect="equal", xlim=(-0.05, 1.05), ylim=(-0.17, 1.05))
        ax.axis("off")
    figure.colorbar(drawn_at, ax=axes, label="draws in a cell", shrink=0.6)
    return figure


def gain_and_skewness(results: Path) -> pd.DataFrame:
    """A row a set: largest skewness, n, d, gain in bits over EP at the same hyperparameters."""
    table = by_set(results)
    return pd.DataFrame(
        {
            "skewness": table["skewness"]["SkewGP0"],
            "n": table["n"]["SkewGP0"],
            "d": table["d"]["SkewGP0"],
            "gain": table["information"]["SkewGP0"] - table["information"]["EP@0"],
        }
    )


def fitted_tree(rows: pd.DataFrame) -> tuple[DecisionTreeRegressor, float]:
    """The regression tree, and the share of variance it explains of sets it has not seen."""
    tree = DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=LEAF, random_state=0)
    n = len(rows)
    left_out = cross_val_predict(tree, rows[FEATURES], rows["gain"], cv=n)
    # About the mean of the others: a tree that knows nothing explains nothing.
    spread = np.sum((rows["gain"] - rows["gain"].mean()) ** 2) * (n / (n - 1)) ** 2
    explained = 1.0 - float(np.sum((rows["gain"] - left_out) ** 2) / spread)
    return tree.fit(rows[FEATURES], rows["gain"]), explained


def tree(results: Path, small: bool = False) -> Figure:
    """Largest skewness over the test rows against the gain over EP, and the regression tree."""
    rows = gain_and_skewness(results)
    fitted, explained = fitted_tree(rows)
    figure, axes = plt.subplots(1, 2, figsize=(14, 5), layout="constrained", width_ratios=[2, 3])
    axes[0].axhspan(-ROPE, ROPE, color="0.9", label=f"within {ROPE}")
    axes[0].scatter(rows["skewness"], rows["gain"], s=18)
    axes[0].set(xlabel="largest skewness of f over the test rows",
                ylabel="bits a label, exact less EP")  # fmt: skip
    axes[0].legend(loc="lower left", frameon=True)
    plot_tree(
        fitted, feature_names=FEATURES, impurity=False, filled=True, rounded=True, precision=4,
        fontsize=10, ax=axes[1],
    )  # fmt: skip
    axes[1].set_title(
        "mean gain (value) by inputs d, rows n and skewness; darker: larger\n"
        f"share of the variance explained, each set left out once: {explained:.2f}",
        fontsize=12,
    )
    return figure


def calibration(results: Path, small: bool = False) -> Figure:
    """Forecast against what came true, all problems of a kernel together."""
    rows = pd.read_csv(results / "paper_calibration.csv")
    kernels = {"rbf": "RBF kernel", "nn": "arcsine kernel"}
    shown = [kernel for kernel in kernels if kernel in set(rows["kernel"])]
    problems = [name for name in PROBLEMS if name in set(rows["problem"])]
    figure, axes = plt.subplots(
        len(shown),
        len(problems),
        figsize=(4.3 * len(problems), 4.2 * len(shown)),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for line, kernel in zip(axes, shown, strict=True):
        for ax, problem in zip(line, problems, strict=True):
            ax.plot([0, 1], [0, 1], color="0.6", lw=1)
            own = rows[(rows["kernel"] == kernel) & (rows["problem"] == problem)]
            for method, part in own.groupby("method"):
                if method != "EP@0":
                    # Of the share with one right and one wrong more: no bar of length 0.
                    share = (part["share"] * part["count"] + 1) / (part["count"] + 2)
                    error = np.sqrt(share * (1 - share) / part["count"])
                    ax.errorbar(part["p"], part["share"], error, fmt="o-", ms=4, label=method)
            ax.set(title=f"{PROBLEMS[problem]}\n{kernels[kernel]}")
            ax.title.set_fontsize(12)
    for ax in axes[-1]:
        ax.set_xlabel("forecast probability")
    for ax in axes[:, 0]:
        ax.set_ylabel("share that came true")
    axes[0, 0].legend(loc="upper left")
    return figure


PROBLEMS = {
    "fashion": "Fashion-MNIST, one against the rest",
    "mnist": "MNIST, 3 against 5",
    "gtsrb": "speed limits, 30 against 50",
}


def second_order(results: Path, small: bool = False) -> Figure:
    """Mean of p against its standard deviation, right and wrong forecasts told apart."""
    rows = pd.read_csv(results / "paper_second_order.csv")
    rows = rows[rows["kernel"] == "rbf"]
    problems = [name for name in PROBLEMS if name in set(rows["problem"])]
    figure, axes = plt.subplots(
        1, len(problems), figsize=(6.2 * len(problems), 4.6), layout="constrained", squeeze=False
    )
    for ax, problem in zip(axes[0], problems, strict=True):
        own = rows[rows["problem"] == problem]
        method = max(own["method"])  # SkewGP2 where it is there
        own = own[own["method"] == method]
        sg.plot_second_order(own["p"], own["p_sd"], own["y"], ax=ax)
        ax.set_title(f"{PROBLEMS[problem]}, {method}", fontsize=12)
    return figure


FIGURES: dict[str, Any] = {
    "timing": timing,
    "simplex": simplex,
    "tree": tree,
    "calibration": calibration,
    "second_order": second_order,
}
