"""Hyperparameters: where the evidence is largest, and the posterior averaged over them."""

import numpy as np
import pymc as pm

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp.approximations import HSGP, Inducing

from .harness import SEED, averaged, call, calls, estimate, optimum

X = np.linspace(-3.0, 3.0, 20)[:, None]
WAVE = np.sin(2.0 * X[:, 0])
ROUGH = np.cos(np.arange(20.0) ** 2)  # as good as noise of standard deviation 0.7
LABELS = (WAVE + ROUGH > 0).astype(int)
VALUES = WAVE + 0.4 * ROUGH
COUNTS = np.round(np.exp(1.0 + VALUES)).astype(int)
OPTIONS = {"random_seed": SEED, "progressbar": False, "quiet": True, "n_restarts": 1}


def process(**options):
    """A kernel with two hyperparameters, within the model in context."""
    ls, sd = pm.InverseGamma("ls", 5, 5), pm.HalfNormal("sd", 2.0)
    return sg.SkewGP(cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=ls), **options)


def learnt(y, likelihood=None, **more):
    options = {k: more.pop(k) for k in ("approximation", "pseudo_points") if k in more}
    with pm.Model():
        gp = process(**options)
        return sg.find_hyperparameters(gp, X, y, likelihood=likelihood, **OPTIONS | more)


@call
def labels():
    fit = learnt(LABELS)
    return optimum(fit) | {"prior": (fit.log_prior, 0.01), "kind": fit.kind, "flat": fit.flat}


@call
def labels_in_batches():
    """Without standard errors, and random by its batches: no more than the kind is recorded."""
    fit = learnt(LABELS, batch_size=10)
    return {"kind": fit.kind, "names": sorted(fit.point), "errors": len(fit.std_error)}


@call
def values():
    with pm.Model():
        gp, sigma = process(), pm.HalfNormal("sigma")
        return optimum(
            sg.find_hyperparameters(gp, X, VALUES, likelihood=of.Gaussian(sigma), **OPTIONS)
        )


@call
def over_dispersed_counts():
    with pm.Model():
        gp, alpha = process(), pm.Gamma("alpha", 3.0, 1.0)
        found = of.NegativeBinomial(alpha)
        return optimum(sg.find_hyperparameters(gp, X, COUNTS, likelihood=found, **OPTIONS))


@call
def cut_points():
    with pm.Model():
        ordered = pm.distributions.transforms.ordered
        cuts = pm.Normal("cuts", [-0.5, 0.5], 1.0, transform=ordered, shape=2)
        levels = np.digitize(VALUES, [-0.5, 0.5])
        found = of.OrderedProbit(cuts)
        return optimum(sg.find_hyperparameters(process(), X, levels, likelihood=found, **OPTIONS))


@call
def duels():
    pairs = np.column_stack([np.arange(20), (np.arange(20) * 7 + 3) % 20])
    first = VALUES[pairs[:, 0]] > VALUES[pairs[:, 1]]
    return optimum(learnt(np.where(first[:, None], pairs, pairs[:, ::-1]), of.Preference()))


@call
def a_distribution():
    with pm.Model():
        gp, scale = process(), pm.HalfNormal("scale")
        found = sg.find_hyperparameters(
            gp, X, VALUES, likelihood=lambda eta: pm.Logistic.dist(eta, scale), **OPTIONS
        )
    return optimum(found)


@call(slow=True)
def several_kinds():
    data = {"y": (X, VALUES, of.Gaussian(0.3)), "z": (X, LABELS, of.BernoulliProbit())}
    with pm.Model():
        return optimum(sg.find_hyperparameters(process(), data, **OPTIONS))


@call
def a_model():
    with pm.Model() as model:
        f = process().prior("f", X)
        sg.BernoulliProbit("y", f, observed=LABELS)
    return optimum(sg.find_hyperparameters(model, **OPTIONS))


@call
def a_model_with_the_function_integrated_out():
    with pm.Model() as model:
        process().marginal_likelihood("y", X, LABELS)
    return optimum(sg.find_hyperparameters(model, **OPTIONS))


@call
def approximated_labels():
    fit = learnt(LABELS, approximation=Inducing(np.linspace(-3.0, 3.0, 10)[:, None]))
    return optimum(fit)


@call
def places_of_pseudo_points():
    with pm.Model():
        place = pm.Normal("place", 1.0, 1.0, shape=(1, 1))
        kernel = 2.0 * pm.gp.cov.ExpQuad(1, ls=0.9)
        gp = sg.SkewGP(cov_func=kernel, pseudo_points=place)
        return optimum(sg.find_hyperparameters(gp, X, LABELS, **OPTIONS))


@call
def signs_of_pseudo_points():
    with pm.Model():
        positive = pm.Bernoulli("positive", 0.5)
        kernel = pm.HalfNormal("sd", 2.0) ** 2 * pm.gp.cov.ExpQuad(1, ls=0.9)
        gp = sg.SkewGP(cov_func=kernel, pseudo_points=[[0.8]], phase=2 * positive[None] - 1)
        fit = sg.find_hyperparameters(gp, X, LABELS, **OPTIONS)
    return {"positive": int(fit.point["positive"]), "sd": (fit.point["sd"], 0.02)} | {
        "evidence": estimate(fit.log_marginal_likelihood)
    }


@call
def frechet_bound():
    """A stochastic ascent: its end is known to a few hundredths."""
    with pm.Model():
        gp = process()
        fit = sg.maximize_frechet_bound(
            gp, X, LABELS, batch_size=10, n_iterations=30, random_seed=SEED, progressbar=False
        )
    return {"kind": fit.kind, "names": sorted(fit.point)}


QUIET = {"random_seed": SEED, "progressbar": False, "draws": 500, "chains": 2}


@call
def averaged_model():
    with pm.Model() as model:
        sg.BernoulliProbit("y", process().prior("f", X), observed=LABELS)
    return averaged(sg.integrate(model, **QUIET), "ls", "sd", "f")


@call
def averaged_labels():
    with pm.Model():
        tree = sg.integrate(process(), X, LABELS, Xnew=[[0.3]], **QUIET)
    p = tree["predictions"]["p"].values
    return averaged(tree, "ls", "sd") | {"p": (p.mean(), 0.01), "groups": sorted(tree)}


@call(slow=True)
def averaged_labels_under_signs():
    with pm.Model():
        return averaged(sg.integrate(process(pseudo_points=[[0.8]]), X, LABELS, **QUIET), "ls", "f")


@call
def averaged_values():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", process().prior("f", X), sigma, observed=VALUES)
    return averaged(sg.integrate(model, **QUIET), "ls", "sd", "sigma", "f")


@call(slow=True)
def averaged_counts():
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(process().prior("f", X)), observed=COUNTS)
    return averaged(sg.integrate(model, n_evidences=128, **QUIET), "ls", "sd", "f")


@call(slow=True)
def averaged_with_effects():
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=4)
        f = process().prior("f", X)
        sg.BernoulliProbit("y", f + u[np.arange(20) % 4], observed=LABELS)
    return averaged(sg.integrate(model, n_evidences=256, **QUIET), "ls", "tau", "f")


@call(slow=True)
def averaged_by_the_surrogate():
    with pm.Model():
        tree = sg.integrate(process(), X, LABELS, method="surrogate", n_evidences=256, **QUIET)
    return averaged(tree, "ls", "sd")


@call(slow=True)
def averaged_by_nuts():
    with pm.Model():
        tree = sg.integrate(process(), X, LABELS, method="nuts", n_evidences=256, **QUIET)
    stats = tree["posterior"].attrs
    draws = tree["posterior"]["ls"].values
    return {"method": stats["method"], "ls": (draws.mean(), draws.std() / np.sqrt(100))}


@call
def averaged_signs():
    """A binary variable: all of its values are tried."""
    with pm.Model():
        positive = pm.Bernoulli("positive", 0.5)
        kernel = pm.HalfNormal("sd", 2.0) ** 2 * pm.gp.cov.ExpQuad(1, ls=0.9)
        gp = sg.SkewGP(cov_func=kernel, pseudo_points=[[0.8]], phase=2 * positive[None] - 1)
        return averaged(sg.integrate(gp, X, LABELS, n_evidences=256, **QUIET), "positive", "sd")


@call
def averaged_with_an_approximation():
    with pm.Model():
        gp = process(approximation=Inducing(np.linspace(-3.0, 3.0, 10)[:, None]))
        return averaged(sg.integrate(gp, X, LABELS, **QUIET), "ls", "sd")


@call(slow=True)
def forecasts_of_an_average():
    with pm.Model():
        gp = process()
        tree = sg.integrate(gp, X, LABELS, **QUIET)
        found = gp.sample_latent(tree, Xnew=[[0.3]], random_seed=SEED, progressbar=False)
    f = found["predictions"]["f"].values
    return {"f": (f.mean(), f.std() / np.sqrt(500))}


calls(
    labels_by_ep=lambda: optimum(learnt(LABELS, method="ep")),
    labels_from_a_start=lambda: optimum(learnt(LABELS, start={"ls": 0.7, "sd": 1.0}, n_restarts=0)),
    labels_under_signs=lambda: optimum(learnt(LABELS, pseudo_points=[[1.0]])),
    labels_with_weights=lambda: optimum(learnt(LABELS, weights=1 + np.arange(20) % 3)),
    counts=lambda: optimum(learnt(COUNTS, of.Poisson())),
    approximated_counts=lambda: optimum(learnt(COUNTS, of.Poisson(), approximation=HSGP(12))),
)
