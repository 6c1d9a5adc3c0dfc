"""Breast-cancer diagnosis from two measurements: the exact posterior, its evidence, a picture.

Run it with ``python examples/quickstart.py [--figure PATH]``; it takes well under a minute.
"""

import argparse
import time
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from matplotlib.figure import Figure
from rich.progress import Progress, TimeRemainingColumn
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import pymc_skewgp as sg

RANDOM_SEED = 8927
FEATURES = ["mean concave points", "worst texture"]
GRID = [(variance, lengthscale) for variance in (10.0, 40.0) for lengthscale in (1.0, 2.0, 4.0)]


def load():
    data = load_breast_cancer(as_frame=True)
    X = data.data[FEATURES].to_numpy()
    malignant = (data.target == 0).astype(int).to_numpy()
    X_train, X_test, y_train, y_test = train_test_split(
        X, malignant, train_size=300, stratify=malignant, random_state=RANDOM_SEED
    )
    scaler = StandardScaler().fit(X_train)
    return scaler, scaler.transform(X_train), scaler.transform(X_test), y_train, y_test


def kernel(variance, lengthscale):
    return variance * pm.gp.cov.ExpQuad(2, ls=lengthscale)


def information_score(p, y):
    """Bits of information about each label: 1 is certain and right, 0 is a coin toss."""
    return np.mean(1.0 + np.log2(np.where(y == 1, p, 1.0 - p)))


def min_ess_per_second(dt):
    """Smallest of f at every tenth of the tumours, in all and for each second."""
    ess = float(az.ess(dt["posterior"].dataset.isel(obs_id=slice(None, None, 10)))["f"].min())
    return ess, ess / dt["sample_stats"].attrs["sampling_time"]


def report(name, posterior, X_test, y_test):
    evidence = posterior.log_marginal_likelihood
    p = posterior.probability(X_test).value
    print(
        f"{name:<7} log evidence {evidence.value:8.3f} +- {evidence.std_error:.3f}   test set: "
        f"information {information_score(p, y_test):.3f} bits, accuracy "
        f"{np.mean((p > 0.5) == y_test):.3f}"
    )


def draw_figure(path, posterior, at_two, two, scaler, X, y, pseudo_points, phase):
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    surface, *panels = figure.subplot_mosaic("ab;ac", width_ratios=[1.35, 1]).values()

    low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
    axes = [np.linspace(low[i], high[i], 50) for i in range(2)]
    mesh = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    summary = posterior.predict(mesh, draws=0, quantiles=[])["predictions_summary"]
    original = scaler.inverse_transform(mesh)
    shape = (axes[1].size, axes[0].size)
    horizontal, vertical = (original[:, i].reshape(shape) for i in range(2))
    filled = surface.contourf(
        horizontal,
        vertical,
        summary["p_mean"].values.reshape(shape),
        levels=np.linspace(0, 1, 11),
        cmap="PuOr_r",
        alpha=0.9,
    )
    figure.colorbar(filled, ax=surface, label="p(malignant)")
    points = scaler.inverse_transform(X)
    for label, marker, colour, name in (
        (0, "o", "#3b1a66", "benign"),
        (1, "^", "#8a3d00", "malignant"),
    ):
        surface.scatter(
            *points[y == label].T, s=16, marker=marker, c=colour, lw=0.4, ec="w", label=name
        )
    places = scaler.inverse_transform(pseudo_points)
    surface.scatter(*places.T, s=130, marker="*", c="k", ec="w", label="sign known in the prior")
    for (a, b), sign in zip(places, phase, strict=True):
        surface.annotate(
            "f > 0" if sign > 0 else "f < 0",
            (a, b),
            (0, 12),
            textcoords="offset points",
            ha="center",
            bbox={"boxstyle": "round", "fc": "w", "ec": "none", "alpha": 0.8},
        )
    for index, letter in zip(two, "AB", strict=True):
        surface.scatter(*points[index], s=90, fc="none", ec="w", lw=1.5)
        surface.annotate(
            letter,
            points[index],
            (8, 6),
            textcoords="offset points",
            bbox={"boxstyle": "round,pad=0.2", "fc": "w", "ec": "none", "alpha": 0.8},
        )
    surface.set(
        xlabel=FEATURES[0],
        ylabel=FEATURES[1],
        title="Predictive probability",
    )
    surface.legend(loc="upper left", fontsize=8, framealpha=0.9)

    means, sds, skewness = at_two.moments
    grid = means + np.linspace(-3.3, 3.3, 400)[:, None] * sds
    density = at_two.density(grid)
    for k, (panel, index) in enumerate(zip(panels, two, strict=True)):
        f, height = grid[:, k], density[:, k]
        panel.fill_between(f, height, color="#5e3c99", alpha=0.25, lw=0)
        panel.plot(f, height, color="#5e3c99", lw=2, label="exact posterior")
        panel.plot(
            f,
            norm.pdf(f, means[k], sds[k]),
            "--",
            color="#e66101",
            lw=2,
            label="Gaussian, same moments",
        )
        panel.axvline(0, color="0.5", lw=0.8)
        place = ", ".join(
            f"{name} {v:.3g}" for name, v in zip(FEATURES, points[index], strict=True)
        )
        panel.set_title(f"{'AB'[k]}: {place}; skewness {skewness[k]:+.2f}", fontsize=8)
        panel.set(yticks=[], ylabel="density", ylim=(0, None))
    panels[0].legend(fontsize=8)
    panels[0].set_xlabel("latent f")
    panels[1].set_xlabel("latent f (at 0 the probability is 1/2)")
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path, default=Path("quickstart.png"))
    arguments = parser.parse_args()
    started = time.perf_counter()
    scaler, X, X_test, y, y_test = load()
    print(f"{len(y)} tumours for training, {len(y_test)} for testing; {' and '.join(FEATURES)}.\n")

    # Few concave points and a smooth texture: benign. Many and a rough texture: malignant.
    pseudo_points = np.array([[-1.3, -1.8], [2.6, 2.2]])
    phase = [-1, 1]

    with Progress(*Progress.get_default_columns()[:-1], TimeRemainingColumn()) as progress:
        learning = progress.add_task("Comparing kernels by evidence", total=len(GRID))
        scores = []
        for variance, lengthscale in GRID:
            gp = sg.SkewGP(cov_func=kernel(variance, lengthscale))
            scores.append(gp.posterior(X, y).log_marginal_likelihood.value)
            progress.advance(learning)
        variance, lengthscale = GRID[int(np.argmax(scores))]

        fitting = progress.add_task("Posterior of GP and SkewGP", total=2)
        cov_func = kernel(variance, lengthscale)
        plain = sg.SkewGP(cov_func=cov_func).posterior(X, y)
        progress.advance(fitting)
        skew_gp = sg.SkewGP(cov_func=cov_func, pseudo_points=pseudo_points, phase=phase)
        skew = skew_gp.posterior(X, y, n_draws=4096)
        progress.advance(fitting)

        sampling = progress.add_task("Sampling: twisted, lin-ess", total=2)
        dt = skew.sample(draws=1000, chains=4, random_seed=RANDOM_SEED)
        progress.advance(sampling)
        chain = skew.sample(draws=2000, chains=4, method="lin_ess", random_seed=RANDOM_SEED)
        progress.advance(sampling)

    print(
        f"\nBest of {len(GRID)} kernels: variance {variance:g}, lengthscale {lengthscale:g} sd.\n"
    )
    report("GP", plain, X_test, y_test)
    report("SkewGP", skew, X_test, y_test)

    at_data = skew.predict(X, draws=0, quantiles=[])["predictions_summary"]
    skewness, error = at_data["f_skewness"].values, at_data["f_skewness_se"].values
    most = np.argsort(-np.abs(skewness))[:5]
    shown = ", ".join(f"{skewness[i]:+.2f} +- {error[i]:.2f}" for i in most)
    print(f"\nThe five most skewed latent values have skewness {shown}:")
    print(az.summary(dt.sel(obs_id=most), var_names=["f"]))

    twisted, chained = min_ess_per_second(dt), min_ess_per_second(chain)
    print(
        "\nSmallest effective sample size (ESS) of f at 30 tumours, for each second (in all):"
        f"\n  twisted {twisted[1]:9.1f} ({twisted[0]:.0f} of 4000)"
        f"\n  lin-ess {chained[1]:9.1f} ({chained[0]:.0f} of 8000)"
        f"\n  ratio   {twisted[1] / chained[1]:9.0f}"
    )
    skewness = skew.marginals().moments.skewness
    two = [np.argmin(skewness), np.argmax(skewness)]
    # A smooth density of f asks for more draws than its mean does.
    at_two = skew_gp.posterior(X, y, n_draws=32_768).marginals(X[two])
    draw_figure(arguments.figure, skew, at_two, two, scaler, X, y, pseudo_points, phase)
    print(f"\nFigure: {arguments.figure}. Took {time.perf_counter() - started:.0f} s.")


if __name__ == "__main__":
    main()
