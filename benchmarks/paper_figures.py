"""Figures after those of Benavoli, Azzimonti & Piga (2020).

    python benchmarks/paper_figures.py [densities prior_draws posterior ...] [--out DIR]
                                       [--format png|svg] [--results DIR] [--small]

draws those named, or all, and prints the paths of ``DIR/paper_NAME.png``. What a figure has to read
comes from the tables under ``--results``; with ``--small`` the figures are coarse and soon done.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import arviz as az
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import paper_results_figures
import pymc as pm
from core import ROOT
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from paper_one_dimension import (
    N_DRAWS,
    REFERENCE,
    draw,
    exact,
    grid,
    optima,
    posteriors,
    two_pseudo_points,
)
from scipy.stats import norm

import pymc_skewgp as sg

GREY = "0.4"
CORRELATION = 0.4
# For figures of many panels.
LETTERS = {
    "axes.labelsize": 12,
    "axes.titlesize": 12,
    "axes.titleweight": "normal",
    "legend.fontsize": 10.5,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
}


def densities(results: Path, small: bool = False) -> Figure:
    """SUN densities of one dimension and of two, and the Gaussians that they come from."""
    one = [([[0.8]], [0]), ([[0.95]], [0]), ([[0.95]], [-1.5]), ([[0.8, -0.5]], [0, 0])]
    same, both = [[0.9], [0.2]], [[0.9, 0.1], [0.2, 0.9]]
    two = [(same, [0]), (same, [-1.5]), (both, [0, 0]), (both, [-1, -1])]
    with plt.rc_context(LETTERS):
        figure, axes = plt.subplots(2, 4, figsize=(13.5, 7), layout="constrained", sharey="row")
        for ax, (skewness, truncation) in zip(axes.ravel(), one + two, strict=True):
            p, s = np.shape(skewness)
            scale = np.where(np.eye(p, dtype=bool), 1.0, CORRELATION)
            sun = sg.SUN(np.zeros(p), scale, skewness, truncation, np.eye(s))
            draw_gaussian(ax, p)
            sg.plot_sun_density(sun, ax=ax, n_grid=None if p == 1 else 30 if small else 100)
            ax.set_title(parameters(skewness, truncation))
            ax.legend(loc="upper right", handlelength=1.6, borderaxespad=0.0)
            if p == 1:
                ax.set(xlim=(-4.0, 5.0), ylim=(0.0, 1.2), xlabel="$z$")
                ax.lines[-1].set_ydata([0.0, 0.8])  # the mean, short of the legend
            else:
                ax.set(xlim=(-2.5, 3.5), ylim=(-2.5, 4.1), xlabel="$z_0$", ylabel="$z_1$")
        for ax in axes[:, 1:].ravel():
            ax.set_ylabel("")
    return figure


def draw_gaussian(ax: Axes, p: int) -> None:
    """A line, or the ellipses that hold 50 and 90 %."""
    if p == 1:
        z = np.linspace(-4.0, 4.0, 200)
        ax.plot(z, norm.pdf(z), color=GREY, ls="--", lw=1.2, label="N(0, 1)")
        return
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    chol = np.linalg.cholesky([[1.0, CORRELATION], [CORRELATION, 1.0]])
    circle = chol @ [np.cos(angle), np.sin(angle)]
    for held, label in ((0.5, "N(0, Ω): 50, 90 %"), (0.9, None)):
        radius = np.sqrt(-2.0 * np.log(1.0 - held))
        ax.plot(*(radius * circle), color=GREY, ls="--", lw=1.2, label=label)


def parameters(skewness: list[list[float]], truncation: list[float]) -> str:
    """A title: the columns of Delta, one for each latent variable, and gamma."""
    columns = [[f"{value:g}" for value in column] for column in zip(*skewness, strict=True)]
    delta = ", ".join(c[0] if len(c) == 1 else f"({', '.join(c)})" for c in columns)
    gamma = ", ".join(f"{value:g}" for value in truncation)
    return f"$s = {len(truncation)}$\n$\\Delta = {delta}$,  $\\gamma = {gamma}$"


def prior_draws(results: Path, small: bool = False) -> Figure:
    """A GP, one that is told two signs in either way, and one for which they hardly count."""
    x = np.linspace(-4, 4, 41 if small else 201)[:, None]
    cov = 1.5**2 * pm.gp.cov.ExpQuad(1, ls=1.0)
    at = {"cov_func": cov, "pseudo_points": [[-1.0], [1.0]]}
    priors = {
        "GP": sg.SkewGP(cov_func=cov),
        "$f(-1) > 0$,  $f(1) < 0$": sg.SkewGP(**at, phase=[1, -1]),
        "$f(-1) < 0$,  $f(1) > 0$": sg.SkewGP(**at, phase=[-1, 1]),
        "truncation 1.5:  $f(-1) > -1.5$ sd,  $f(1) < 1.5$ sd": sg.SkewGP(
            **at, phase=[1, -1], truncation=1.5
        ),
    }
    with plt.rc_context(LETTERS):
        figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
        for ax, (title, gp) in zip(axes.ravel(), priors.items(), strict=True):
            sg.plot_prior_draws(gp, x, draws=15, random_seed=4, ax=ax)
            ax.set_title(title)
        share_limits(axes.ravel())
        for ax in axes.ravel():
            ax.label_outer()
    return figure


def posterior(results: Path, small: bool = False) -> Figure:
    """The posterior of sixty labels and what Laplace and EP make of it, in three settings."""
    new, n_draws = (grid[::4], 2048) if small else (grid, N_DRAWS)
    best = optima(tol=0.05, n_restarts=0) if small else optima()
    same = posteriors(REFERENCE, REFERENCE, REFERENCE, new, n_draws=n_draws)
    own = posteriors(best.exact, best.laplace, best.ep, new, n_draws=n_draws)
    learnt = two_pseudo_points(n_restarts=0 if small else 1).hyperparameters_.point
    told = {"pseudo_points": learnt["pseudo_points"], "phase": 2 * learnt["positive"] - 1}
    # The classifier's own posterior has fewer draws, and bumps.
    skewed = exact(learnt["eta"], learnt["ls"], new, n_draws=n_draws, **told)
    signs = ", ".join(
        f"f({r:.1f}) {'>' if way > 0 else '<'} 0"
        for r, way in zip(told["pseudo_points"][:, 0], told["phase"], strict=True)
    )
    eta, ls = REFERENCE
    titles = (
        # Those of Laplace's evidence, but for another draw of such data: here it has row b's.
        f"a. GP, all at Rasmussen & Williams' standard deviation {eta:g} and lengthscale {ls:g}",
        "b. GP, each method at the maximum of its own evidence",
        f"c. Exact: SkewGP that learnt {signs}; Laplace and EP: as in b",
    )
    rows = (same, own, own._replace(truth=skewed))
    with plt.rc_context(LETTERS):
        figure, axes = plt.subplots(
            3, 3, figsize=(13, 12.5), layout="constrained", width_ratios=[3, 3, 2.7]
        )
        for row, title, three in zip(axes, titles, rows, strict=True):
            draw(*three, new=new, axes=row)
            share_limits(row[:2])
            row[0].set_title(title, loc="left", pad=10, fontsize=13)
            row[0].set_ylabel("f: median, 89 % interval")
            row[1].set_ylabel("")
    return figure


def share_limits(axes: Iterable[Axes]) -> None:
    """One scale for panels to be compared.

    Not shared from the start: each would make room for its legend on top of the others' room.
    """
    axes = list(axes)
    low, high = np.transpose([ax.get_ylim() for ax in axes])
    for ax in axes:
        ax.set_ylim(low.min(), high.max())


# Each from the directory of the tables, which some have no need of.
FIGURES: dict[str, Callable[[Path, bool], Figure]] = {
    "densities": densities,
    "prior_draws": prior_draws,
    "posterior": posterior,
    **paper_results_figures.FIGURES,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "figures")
    parser.add_argument("--format", choices=("png", "svg"), default="png")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--small", action="store_true", help="coarse and quick")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(FIGURES))
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}: there are {', '.join(FIGURES)}")
    matplotlib.use("Agg")
    az.style.use("arviz-variat")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or FIGURES:
        try:
            figure = FIGURES[name](arguments.results, small=arguments.small)
        except FileNotFoundError as error:
            message = f"no {name}: {error.filename} is not there, which paper.py makes"
            if arguments.names:
                parser.error(message)
            print(message, file=sys.stderr)
            continue
        path = arguments.out / f"paper_{name}.{arguments.format}"
        figure.savefig(path, dpi=80 if arguments.small else 200)
        plt.close(figure)
        print(path, flush=True)


if __name__ == "__main__":
    main()
