"""Diagnostics, comparisons, plots, and results that are saved and loaded."""

import tempfile

import matplotlib as mpl
import numpy as np
import pymc as pm
import xarray as xr
from matplotlib import pyplot as plt

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp.approximations import Inducing

from .harness import SEED, call, calls, drawn

X = np.linspace(-2.0, 2.0, 8)[:, None]
LABELS = np.array([0, 1, 0, 0, 1, 1, 0, 1])
GP = sg.SkewGP(cov_func=1.5**2 * pm.gp.cov.ExpQuad(1, ls=0.8))
QUIET = {"random_seed": SEED, "progressbar": False}


def fit():
    return GP.posterior(X, LABELS, random_seed=SEED)


def skewness(of, n=8):
    found = sg.posterior_skewness(of)
    return {"skewness": (found["skewness"].values[:n], found["skewness_se"].values[:n])}


calls(
    skewness_at_the_data=lambda: skewness(fit()),
    skewness_of_draws=lambda: skewness(fit().sample(1000, 4, random_seed=SEED), 3),
    skewness_at_new_points=lambda: skewness(fit().marginals([[0.3]])),
)


@call
def coverage_of_draws():
    found = sg.coverage(fit().sample(1000, 4, random_seed=SEED), fit(), probs=[0.5, 0.9])
    return {"mean": (found["mean"].values, found["mean_se"].values)}


@call
def calibration_by_simulation():
    ranks = sg.sbc(GP, X[:4], n_simulations=100, **QUIET)
    found = sg.coverage(ranks, probs=[0.5])
    ranked = ranks["prior_sbc"]["f"].values
    return {
        "rank": (ranked.mean(), ranked.std() / 10.0),
        "coverage": (found["mean"].values, found["mean_se"].values),
        "names": sorted(ranks["prior_sbc"].data_vars),
    }


@call
def calibration_under_counts():
    ranks = sg.sbc(GP, X[:4], likelihood=of.Poisson(), n_simulations=50, **QUIET)
    ranked = ranks["prior_sbc"]["log_likelihood"].values
    return {"rank": (ranked.mean(), ranked.std() / np.sqrt(50))}


@call
def calibration_of_a_method():
    """A function from a problem to an approximation: here the exact one, by hand."""

    def method(problem):
        assert isinstance(problem, sg.Problem)
        found = problem.posterior
        at = found.marginals()
        return sg.Approximation(at, at.probability(), found.sample(99, 1, random_seed=1))

    ranks = sg.sbc(GP, X[:3], method=method, n_simulations=30, **QUIET)
    ranked = ranks["prior_sbc"]["f"].values
    return {"rank": (ranked.mean(), ranked.std() / np.sqrt(30))}


def compared(methods, y=LABELS, **more):
    found = sg.compare_approximations(GP, X, y, methods=methods, **QUIET, **more)
    assert isinstance(found, sg.Comparison)
    return found


@call
def approximations_of_labels():
    found = compared(["exact", "ep", "laplace"], Xnew=[[0.3], [1.0]], ynew=[1, 1])
    table = found.table
    columns = ("evidence", "coverage_89", "wasserstein", "skewness_error", "p_error")
    numbers = {name: (table[name].values, table[f"{name}_se"].fillna(0).values) for name in columns}
    # Distances from draws have a bias of the size of their noise.
    noisy = {n: (v, np.hypot(e, table[f"{n}_noise"].fillna(0).values))
             for n, (v, e) in numbers.items() if f"{n}_noise" in table}  # fmt: skip
    return (
        numbers
        | noisy
        | {
            "information": (table["information"].values, 0.01),
            "columns": sorted(table.columns),
            "summary": list(found.summary.columns),
            "trees": sorted(found.trees),
        }
    )


@call
def approximations_of_counts():
    found = compared(["exact", "ep", "laplace"], [0, 1, 2, 0, 1, 4, 0, 3], likelihood=of.Poisson())
    table = found.table
    return {name: (table[name].values, table[f"{name}_se"].fillna(0).values)
            for name in ("evidence", "coverage_89")}  # fmt: skip


@call
def approximation_by_lin_ess():
    table = compared(["lin_ess"], draws=200, chains=2).table
    error = np.hypot(table["wasserstein_se"], table["wasserstein_noise"])
    return {"wasserstein": (table["wasserstein"].values, error.values)}


@call(slow=True)
def approximations_by_pymc():
    """Of stochastic optimisers and short chains: that they ran."""
    methods = ["advi", "fullrank_advi", "latent_nuts", "hsgp_nuts"]
    options = {"advi": {"n": 2000}, "fullrank_advi": {"n": 2000}}
    table = compared(methods, draws=200, tune=200, chains=2, options=options).table
    return {"rows": list(table.index), "failure": list(table["failure"])}


def told_by(axes, **more):
    """What a reader of the picture can see."""
    found = {
        "x": axes.get_xlabel(), "y": axes.get_ylabel(), "title": axes.get_title(),
        "lines": len(axes.lines), "areas": len(axes.collections),
    }  # fmt: skip
    axes.figure.canvas.draw()
    plt.close(axes.figure)
    return found | more


def axes():
    mpl.use("Agg")
    return plt.subplots()[1]


def bands():
    at = fit().marginals(X)
    ax = sg.plot_latent_band(X, at, at, labels=("a", "b"), ax=axes())
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    middle = max((line.get_ydata() for line in ax.lines), key=len)
    return told_by(ax, legend=legend, middle=(middle, 0.01))


def report():
    x = np.linspace(-2.0, 2.0, 60)[:, None]
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), approximation=Inducing(x[::6]))
    return gp.posterior(x, np.arange(60) % 2).prior_report(30)


def forecast():
    return fit().predict(X, draws=200, random_seed=SEED)


def coverage():
    return sg.coverage(fit().marginals(), fit())


calls(
    plot_of_two_bands=bands,
    plot_of_a_band=lambda: told_by(
        sg.plot_latent_band(X, forecast(), group="predictions", y=LABELS, X_data=X, ax=axes())
    ),
    plot_of_skewness=lambda: told_by(sg.plot_skewness(X, sg.posterior_skewness(fit()), ax=axes())),
    plot_of_coverage=lambda: told_by(sg.plot_coverage(coverage(), labels="exact", ax=axes())),
    plot_of_second_order_probabilities=lambda: told_by(
        sg.plot_second_order(forecast(), y=LABELS, ax=axes())
    ),
    plot_of_a_prior_report=lambda: told_by(sg.plot_prior_report(report(), ax=axes())),
    plot_of_a_slice=lambda: told_by(
        sg.plot_slice_density(fit().marginals(X), 5, X=X, gaussian=True, ax=axes())
    ),
    plot_of_the_prior=lambda: told_by(
        sg.plot_prior_draws(GP, X, draws=5, random_seed=SEED, ax=axes())
    ),
    plot_of_a_sun=lambda: told_by(
        sg.plot_sun_density(sg.SUN([0.0], [[1.0]], [[0.9]], [0.0], [[1.0]]), ax=axes())
    ),
    version=lambda: {"version": sg.__version__.count(".") >= 2},
)


@call
def saved_draws():
    """To netCDF and back."""
    tree = fit().sample(200, 2, random_seed=SEED)
    with tempfile.TemporaryDirectory() as folder:
        tree.to_netcdf(f"{folder}/draws.nc")
        again = xr.load_datatree(f"{folder}/draws.nc")
    found = sorted(set(again["sample_stats"].attrs) & {"method", "relative_ess", "pareto_k"})
    return drawn(again["posterior"]["f"][..., 0]) | {"attributes": found}
