"""PyMC models: `pm.sample` with the package's steps, and functions that are integrated out."""

import numpy as np
import pymc as pm

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

from .harness import SEED, call, calls, drawn

X = np.linspace(-1.0, 1.0, 6)[:, None]
LABELS = np.array([0, 1, 1, 0, 1, 0])
VALUES = np.array([-0.3, 0.6, 0.4, 1.0, -0.8, 2.0])
COUNTS = np.array([0, 2, 1, 5, 0, 3])
KERNEL = 1.5**2 * pm.gp.cov.ExpQuad(1, ls=0.7)


def sample(draws=500, **more):
    settings = {"chains": 2, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
    return pm.sample(draws, tune=200, random_seed=SEED, **settings, **more)


def function(**options):
    return sg.SkewGP(cov_func=KERNEL, **options).prior("f", X)


def at_one_place(tree):
    """Moments of f at 0.6."""
    return {f"f_{name}": x for name, x in drawn(tree["posterior"]["f"][..., 4]).items()}


@call
def labels():
    with pm.Model():
        sg.BernoulliProbit("y", function(pseudo_points=[[0.5]]), observed=LABELS)
        return at_one_place(sample(8000))


@call
def labels_by_the_step_itself():
    with pm.Model():
        f = function()
        pm.Bernoulli("y", p=pm.math.invprobit(f), observed=LABELS)
        return at_one_place(sample(4000, step=sg.ConjugateStep([f], n_proposals=8)))


@call
def labels_by_lin_ess():
    with pm.Model():
        f = function()
        sg.BernoulliProbit("y", f, observed=LABELS)
        return at_one_place(sample(step=sg.LinESS([f], n_steps=5)))


@call(slow=True)
def rows_beside_counts():
    with pm.Model():
        f = function(pseudo_points=[[0.5]])
        sg.BernoulliProbit("y", f, observed=LABELS)
        pm.Poisson("z", pm.math.exp(f), observed=COUNTS)
        return at_one_place(sample())


def integrated(y=LABELS, likelihood=None, method="twisted", error=3e-3, **options):
    """Log density of a model at a lengthscale and a standard deviation, and its gradient."""
    with pm.Model() as model:
        ls, sd = pm.HalfNormal("ls"), pm.HalfNormal("sd")
        gp = sg.SkewGP(cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=ls), **options)
        gp.marginal_likelihood("y", X, y, likelihood=likelihood, method=method)
    point = {"ls_log__": np.log(0.6), "sd_log__": np.log(1.5)}
    # Of 256 points in so few dimensions; nothing is drawn for EP, and for values.
    error = 0.0 if method == "ep" else error
    return {
        "logp": (model.compile_logp()(point), error),
        "gradient": (model.compile_dlogp()(point), 2 * error),
    }


def traced(method="twisted"):
    with pm.Model() as model:
        ls = pm.InverseGamma("ls", 5, 3)
        gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=ls))
        gp.marginal_likelihood("y", X, LABELS, method=method)
        return model, gp, sample(300)


@call(slow=True)
def latent_draws_of_a_trace():
    model, gp, trace = traced()
    with model:
        tree = gp.sample_latent(trace, Xnew=[[0.3]], random_seed=SEED, progressbar=False)
    f, p = tree["posterior"]["f"][..., 4], tree["predictions"]["p"][..., 0]
    return drawn(f) | {"p": drawn(p)["mean"], "ls": drawn(trace["posterior"]["ls"])["mean"]}


@call(slow=True)
def corrected_trace():
    model, _, trace = traced("ep")
    found = sg.correct(trace, model=model, random_seed=SEED, progressbar=False)
    stats = found["posterior"].attrs
    return drawn(found["posterior"]["ls"]) | {
        "ratio": (stats["log_evidence_ratio"], stats["log_evidence_ratio_se"])
    }


@call
def forecasts_of_a_model():
    with pm.Model():
        gp = sg.SkewGP(cov_func=KERNEL, pseudo_points=[[0.5]])
        sg.BernoulliProbit("y", gp.prior("f", X), observed=LABELS)
        trace = sample()
        gp.conditional("g", [[0.3], [1.5]])
        options = {"predictions": True, "random_seed": SEED, "progressbar": False}
        tree = pm.sample_posterior_predictive(trace, var_names=["g"], **options)
    return drawn(tree["predictions"]["g"])


@call
def step_one_by_one():
    """The step's own names: what `pm.sample` asks of it."""
    with pm.Model() as model:
        f = function()
        sg.BernoulliProbit("y", f, observed=LABELS)
        step = sg.ConjugateStep([f], rng=SEED)
        step.setup_chain(np.random.default_rng(SEED), 0, 1)
        point, stats = step.step(model.initial_point())
    return {
        "names": sorted(point),
        "stats": sorted({"relative_ess", "log_weight"} & set(stats[0])),
        "vars": [v.name for v in step.vars],
    }


calls(
    evidence_of_labels=lambda: integrated(),
    evidence_of_labels_by_ep=lambda: integrated(method="ep"),
    evidence_of_labels_with_signs=lambda: integrated(pseudo_points=[[0.5]]),
    evidence_of_values=lambda: integrated(VALUES, of.Gaussian(0.3), error=0.0),
    evidence_of_counts=lambda: integrated(COUNTS, of.Poisson()),
    evidence_of_counts_by_ep=lambda: integrated(COUNTS, of.Poisson(), method="ep"),
    evidence_of_levels=lambda: integrated([0, 2, 1, 1, 0, 2], of.OrderedProbit([-0.5, 0.5])),
    evidence_of_duels=lambda: integrated([[0, 1], [2, 3], [4, 0], [1, 5]], of.Preference(0.5)),
    evidence_of_classes=lambda: integrated([0, 2, 1, 1, 0, 2], of.MultinomialProbit()),
)

calls(
    slow=True,
    evidence_of_a_distribution=lambda: integrated(VALUES, lambda eta: pm.Logistic.dist(eta, 0.3)),
)
