"""Sixty labels on a line: the exact posterior beside Laplace's and EP's Gaussians.

The data are made as those of section 3.7.2 of Rasmussen & Williams (2006), which Benavoli,
Azzimonti & Piga (2020) have in their first three figures. docs/approximations.md tells what is
seen; `paper_figures.py posterior` draws it.
"""

from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from scipy.optimize import minimize

import pymc_skewgp as sg
from pymc_skewgp._diagnostics.approximations import ep_posterior, laplace_posterior

RANDOM_SEED = 8927
# Standard deviation and lengthscale that Rasmussen & Williams have by Laplace's evidence.
REFERENCE = (7.0, 2.6)
START = {"eta": 4.0, "ls": 2.0}
N_DRAWS = 16384  # fewer leave bumps in the densities

old = np.random.RandomState(0)
x = np.concatenate([old.normal(-6, 0.8, 20), old.normal(0, 0.8, 30), old.normal(2, 0.8, 10)])
X, y = x[:, None], np.repeat([1, 0, 1], [20, 30, 10])
grid = np.linspace(-10, 6, 161)[:, None]


class Posteriors(NamedTuple):
    """What each says about f, at the same inputs."""

    truth: sg.LatentMarginals
    laplace: sg.LatentMarginals
    ep: sg.LatentMarginals


class Optima(NamedTuple):
    """Pairs (eta, ls) that maximise each evidence, and the search for the exact one."""

    exact: Any
    laplace: Any
    ep: Any
    fit: sg.HyperparameterFit


def kernel(eta, ls):
    return eta**2 * pm.gp.cov.ExpQuad(1, ls=ls)


def gaussian(method, eta, ls, new=grid):
    """Laplace's or EP's Gaussian for f at `new`, and its log evidence."""
    prior = sg.SkewGP(cov_func=kernel(eta, ls)).posterior(X, y).prior
    found = method(prior, X, 2.0 * y - 1.0, new)
    mean, variance = found.mean[len(X) :], found.cov.diagonal()[len(X) :]
    return sg.LatentMarginals(mean[:, None], variance, np.ones(1)), found.log_evidence


def exact(eta, ls, new=grid, *, n_draws=N_DRAWS, **told):
    """The exact posterior of f at `new`, for the same kernel; `told` are arguments of SkewGP."""
    gp = sg.SkewGP(cov_func=kernel(eta, ls), **told)
    return gp.posterior(X, y, n_draws=n_draws).marginals(new)


def posteriors(exact_at, laplace_at, ep_at, new=grid, *, n_draws=N_DRAWS):
    """All three at `new`, each with its own pair (eta, ls)."""
    return Posteriors(
        exact(*exact_at, new, n_draws=n_draws),
        gaussian(laplace_posterior, *laplace_at, new)[0],
        gaussian(ep_posterior, *ep_at, new)[0],
    )


def optimum(method, tol=1e-4):
    """Hyperparameters that maximise the method's own evidence."""

    def loss(log):
        return -gaussian(method, *np.exp(log), new=grid[:1])[1]

    start = np.log(list(START.values()))
    return np.exp(minimize(loss, start, method="Nelder-Mead", tol=tol).x)


def optima(tol=1e-4, n_restarts=2):
    """Hyperparameters that maximise each method's evidence; the exact one by its gradient."""
    with pm.Model():
        eta, ls = pm.HalfFlat("eta"), pm.HalfFlat("ls")
        gp = sg.SkewGP(cov_func=kernel(eta, ls))
    fit = sg.find_hyperparameters(
        gp,
        X,
        y,
        start=START,
        n_restarts=n_restarts,
        random_seed=RANDOM_SEED,
        progressbar=False,
    )
    best = float(fit.point["eta"]), float(fit.point["ls"])
    return Optima(best, optimum(laplace_posterior, tol), optimum(ep_posterior, tol), fit)


def two_pseudo_points(n_restarts=1):
    """A SkewGP that learnt where it knows the sign of f, and which."""
    model = sg.SkewGPClassifier(n_pseudo_points=2, n_restarts=n_restarts, random_state=RANDOM_SEED)
    return model.fit(X, y)


def wrong_side(marginals):
    """P(f < 0) at each point."""
    return marginals.cdf_values(np.zeros(marginals.size))


def draw(truth, laplace, ep, *, new=grid, axes=None):
    """Bands of both approximations, and the slice where Laplace's P(f < 0) is furthest off.

    On three `axes`, by default new ones; returns the index of that slice in `new`.
    """
    if axes is None:
        _, axes = plt.subplots(
            1, 3, figsize=(14, 4.8), layout="constrained", width_ratios=[3, 3, 2.4]
        )
    where = int(np.argmax(np.abs(wrong_side(laplace) - wrong_side(truth))))
    own, *others = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    pairs = zip(axes, ("Laplace", "EP"), (laplace, ep), others, strict=False)
    for ax, name, other, colour in pairs:  # each its colour in all panels
        with plt.rc_context({"axes.prop_cycle": plt.cycler(color=[own, colour])}):
            sg.plot_latent_band(new, truth, other, labels=("exact", name), y=y, X_data=X, ax=ax)
        ax.axvline(new[where, 0], color="0.6", lw=0.8)
        ax.set(xlabel="x", ylabel="latent f")
    slices = {"exact": truth, "Laplace": laplace, "EP": ep}
    sg.plot_slice_density(slices, where, ax=axes[2])
    axes[2].set_xlabel(f"f at x = {new[where, 0]:.1f}")
    return where
