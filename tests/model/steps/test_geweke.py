"""The joint distribution of parameters, function and data, by `ConjugateStep` and by simulation.

A chain alternates between a step on (theta, f) given y and new data y given (theta, f), by plain
NumPy. If the step is right it has the joint distribution of the model, whose moments independent
draws of the prior have too (Geweke 2004, doi:10.1198/016214504000001132). Each functional is judged
by z = difference of means / standard error, with the effective sample size of the chain, at 4.5: a
right step is called wrong with probability 7e-6 a functional, below 2e-4 a case, for a new seed,
never for the seeds fixed here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from pymc.distributions.transforms import ordered
from pymc.sampling.mcmc import assign_step_methods

import pymc_skewgp as sg

SIGMAS = 4.5
N = 6
X = np.arange(float(N))
KNOT = 2.5
N_PRIOR = 100_000
LOG_SIGMA = np.log(0.6), 0.3
LIMITS = (-0.5, 1.5)
GROUP, LOG_TAU = np.array([0, 1, 0, 1, 1, 0]), (np.log(0.8), 0.4)
# Of each function value four data, for what is known of noise and labels from many only.
REPEATED = np.repeat(np.arange(N), 4)
LOG_NU, EPS = (np.log(5.0), 0.3), (2.0, 6.0)
CUTS, CUTS_SD = np.array([-0.8, 0.7]), 0.4


class Case(NamedTuple):
    """A likelihood in a model.

    Attributes
    ----------
    observe : callable
        From f and data to the observed variable "y" and those that it takes.
    simulate : callable
        Data given f, the variables of `theta` and a generator.
    data : ndarray
        Of the form of the data.
    theta : callable
        Prior draws of the likelihood's variables, on the scale that they are sampled on.
    predictor : callable
        What the data are about.
    n_steps : int
        Of the chain: more where data and what is known of their noise follow each other slowly.
    """

    observe: Callable[[Any, Any], Any]
    simulate: Callable[[Any, dict[str, Any], np.random.Generator], Any]
    data: Any
    theta: Callable[[int, np.random.Generator], dict[str, Any]] = lambda n, rng: {}
    predictor: Callable[[Any], Any] = lambda f: f
    n_steps: int = 1500


def noise(f, rng):
    return rng.standard_normal(f.shape)


def log_sigma(n, rng):
    return {"sigma_log__": rng.normal(*LOG_SIGMA, n)}


def sigma():
    return pm.LogNormal("sigma", *LOG_SIGMA)


def ordered_cuts(n, rng):
    """Normal cut-points, where they increase."""
    cuts = rng.normal(CUTS, CUTS_SD, (2 * n, 2))
    cuts = cuts[cuts[:, 0] < cuts[:, 1]][:n]
    return {"cuts_ordered__": np.column_stack([cuts[:, 0], np.log(np.diff(cuts)[:, 0])])}


def observe_ordered(f, data):
    cuts = pm.Normal("cuts", CUTS, CUTS_SD, transform=ordered, initval=CUTS)
    pm.OrderedProbit("y", eta=f, cutpoints=cuts, observed=data, compute_p=False)


def simulate_ordered(f, theta, rng):
    cut, log_gap = np.moveaxis(theta["cuts_ordered__"], -1, 0)
    value = f + noise(f, rng)
    second = cut + np.exp(log_gap)
    return (value > cut[..., None]).astype(int) + (value > second[..., None])


def simulate_values(f, theta, rng):
    return f + np.exp(theta["sigma_log__"])[..., None] * noise(f, rng)


def simulate_labels(f, theta, rng):
    return (f + noise(f, rng) > 0).astype(int)


def repeated(f):
    return f[..., REPEATED]


def observe_student_t(f, data):
    nu = pm.LogNormal("nu", *LOG_NU)
    pm.StudentT("y", nu=nu, mu=f[REPEATED], sigma=sigma(), observed=data)


def draw_student_t(n, rng):
    return {**log_sigma(n, rng), "nu_log__": rng.normal(*LOG_NU, n)}


def simulate_student_t(f, theta, rng):
    nu, scale = (np.exp(theta[x])[..., None] for x in ("nu_log__", "sigma_log__"))
    found = repeated(f)
    return found + scale * noise(found, rng) / np.sqrt(rng.chisquare(nu, found.shape) / nu)


def observe_flips(f, data):
    eps = pm.Beta("eps", *EPS)
    p = pm.math.invprobit(f[REPEATED])
    pm.Bernoulli("y", p=eps + (1 - 2 * eps) * p, observed=data)


def draw_flips(n, rng):
    eps = rng.beta(*EPS, n)
    return {"eps_logodds__": np.log(eps / (1 - eps))}


def simulate_flips(f, theta, rng):
    """Some labels are exchanged for the other one, more than half where eps is above .5."""
    eps = 1 / (1 + np.exp(-theta["eps_logodds__"]))[..., None]
    label = simulate_labels(repeated(f), theta, rng)
    return np.where(rng.random(label.shape) < eps, 1 - label, label)


def second_function():
    return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0)).prior("g", X[:, None])


def draw_second_function(n, rng):
    cov = np.exp(-0.5 * ((X[:, None] - X) / 2.0) ** 2) + 1e-8 * np.eye(N)
    return rng.multivariate_normal(np.zeros(N), cov, n)


def observe_sum(f, data):
    """Two functions and random effects of two groups."""
    effects = pm.Normal("effects", 0.0, pm.LogNormal("tau", *LOG_TAU), shape=2)
    eta = f + second_function() + effects[GROUP]
    pm.Normal("y", eta, 1.0, observed=data)


def draw_sum(n, rng):
    tau = rng.normal(*LOG_TAU, n)
    effects = np.exp(tau)[:, None] * rng.standard_normal((n, 2))
    return {"tau_log__": tau, "effects": effects, "g": draw_second_function(n, rng)}


def simulate_sum(f, theta, rng):
    return f + theta["g"] + theta["effects"][..., GROUP] + noise(f, rng)


CASES = {
    "probit": Case(
        lambda f, data: sg.BernoulliProbit("y", f, observed=data), simulate_labels, np.zeros(N, int)
    ),
    "censored": Case(
        lambda f, data: pm.Censored("y", pm.Normal.dist(f, sigma()), *LIMITS, observed=data),
        lambda f, theta, rng: np.clip(simulate_values(f, theta, rng), *LIMITS),
        np.zeros(N),
        log_sigma,
    ),
    "sum": Case(observe_sum, simulate_sum, np.zeros(N), draw_sum),
    "student t": Case(
        observe_student_t,
        simulate_student_t,
        np.zeros(REPEATED.size),
        draw_student_t,
        repeated,
        n_steps=6000,
    ),
    "flips": Case(
        observe_flips, simulate_flips, np.zeros(REPEATED.size, int), draw_flips, repeated
    ),
    "ordered": Case(observe_ordered, simulate_ordered, np.zeros(N, int), ordered_cuts),
    "logit": Case(
        lambda f, data: pm.Bernoulli("y", logit_p=f, observed=data),
        lambda f, theta, rng: (rng.logistic(size=f.shape) < f).astype(int),
        np.zeros(N, int),
    ),
}


def build(case, s):
    """Model, its data container "data", and the step."""
    with pm.Model() as model:
        ls, eta = pm.LogNormal("ls", 0.0, 0.3), pm.Normal("eta", 1.5, 0.3)
        gp = sg.SkewGP(
            cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls), pseudo_points=[[KNOT]] if s else None
        )
        f = gp.prior("f", X[:, None])
        case.observe(f, pm.Data("data", case.data))
        chosen = assign_step_methods(model)[1][sg.ConjugateStep]
        return model, sg.ConjugateStep(chosen)


def draw_prior(case, s, n, rng):
    """Theta, f and y, independent draws; with a pseudo-point f is positive there."""
    theta = {"ls_log__": rng.normal(0.0, 0.3, n), "eta": rng.normal(1.5, 0.3, n)}
    theta |= case.theta(n, rng)
    places = np.append(X, KNOT)
    distance = (places[:, None] - places) / np.exp(theta["ls_log__"])[:, None, None]
    root = np.linalg.cholesky(np.exp(-0.5 * distance**2) + 1e-8 * np.eye(N + 1))
    f = theta["eta"][:, None] * (root @ rng.standard_normal((n, N + 1, 1)))[..., 0]
    if s:  # the sign has probability 1/2 whatever theta is: symmetric, so turn f over
        f *= np.sign(f[:, -1:])
    f = f[:, :N]
    return theta, f, case.simulate(f, theta, rng)


def functionals(case, theta, f, y):
    """By name; arrays have a draw in each row."""
    found = {"f_0": f[:, 0], "f_mean": f.mean(axis=1), "f_0 f_1": f[:, 0] * f[:, 1]}
    found["log f^2"] = np.log((f**2).mean(axis=1))
    found["roughness"] = np.log((np.diff(f) ** 2).mean(axis=1))
    for name, values in theta.items():
        for i, column in enumerate(np.reshape(values, (len(f), -1)).T):
            found[f"{name} {i}"], found[f"{name} {i} squared"] = column, column**2
    found["y"] = y.mean(axis=1)
    found["y f"] = (y * case.predictor(f)).mean(axis=1)
    found["y f^2"] = (y * case.predictor(f) ** 2).mean(axis=1)
    found["eta f^2"] = theta["eta"] * np.log((f**2).mean(axis=1))
    return found


def chain(case, s, n, seed):
    """Theta and f before each of `n` steps, and then, and the data; it starts with a prior draw."""
    model, step = build(case, s)
    rng = np.random.default_rng(seed)
    theta, f, y = draw_prior(case, s, 1, rng)
    point = {name: value[0] for name, value in {**theta, "f": f}.items()}
    assert set(point) == set(model.initial_point())
    points, data = [point], []
    for _ in range(n):
        known = {name: np.asarray(point[name]) for name in theta}
        y = case.simulate(point["f"], known, rng)
        model.set_data("data", y)
        step.setup_chain(np.random.default_rng(rng.integers(2**32)), 0, 1)
        point, _ = step.step(point)
        points.append(point)
        data.append(y)
    columns = {name: np.array([point[name] for point in points]) for name in point}
    f, y = columns.pop("f"), np.array(data)
    before = {name: column[:-1] for name, column in columns.items()}, f[:-1], y
    after = {name: column[1:] for name, column in columns.items()}, f[1:], y
    return before, after


def standard_error(values, sd):
    ess = array_stats.ess(values[None], chain_axis=0, draw_axis=1, method="mean")
    assert ess > 60, ess  # fewer would say little of their own standard error
    return sd / np.sqrt(ess)


def z_scores(case, s, n, seed=1):
    """Of means along the chain, and of what a step changes where the data have a say."""
    before, after = (functionals(case, *state) for state in chain(case, s, n, seed))
    expected = functionals(case, *draw_prior(case, s, N_PRIOR, np.random.default_rng(seed + 1000)))
    z = {}
    for name, prior in expected.items():
        error = np.hypot(standard_error(after[name], prior.std()), prior.std() / np.sqrt(N_PRIOR))
        z[name] = float((after[name].mean() - prior.mean()) / error)
        if name.startswith("y "):
            change = after[name] - before[name]
            z[f"change of {name}"] = float(change.mean() / standard_error(change, change.std()))
    return z


IN_CI = [("probit", 1), ("ordered", 0), ("sum", 0), ("flips", 1)]
OTHERS = [("censored", 1), ("logit", 1), ("student t", 0)]


@pytest.mark.parametrize(
    ("name", "s"),
    [pytest.param(*case, marks=pytest.mark.slow(ci=True)) for case in IN_CI]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS],
)
def test_the_step_leaves_the_joint_distribution_alone(name, s):
    z = z_scores(CASES[name], s, CASES[name].n_steps)
    assert max(map(abs, z.values())) < SIGMAS, z


@pytest.mark.slow(ci=True)
def test_other_data_are_found():
    """Labels with more noise than the model has."""
    wrong = CASES["probit"]._replace(
        simulate=lambda f, theta, rng: (f + 2.0 * noise(f, rng) > 0).astype(int)
    )
    z = z_scores(wrong, 0, 1500)
    assert max(map(abs, z.values())) > SIGMAS, z
