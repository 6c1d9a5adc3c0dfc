"""Rows of `side_by_side.py`: calls whose time `core.py` and `sites.py` report, and small ones."""

from functools import partial

import core
import numpy as np
import pymc as pm
import sites

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective


def labels(kernel, n, draws=256):
    """Evidence and draws of labels."""
    x, y = core.draw_problem(n)

    def whole():
        sg.SkewGPPosterior(x, y, cov_func=kernel).sample(draws=draws, chains=4, random_seed=1)

    return whole


def probability(n):
    """`mvn_logcdf` of signs under an Ornstein-Uhlenbeck process."""
    x, y = core.draw_problem(n)
    sign = 2.0 * y - 1.0
    cov = sign[:, None] * core.OU()(x) * sign + np.eye(n)
    return partial(sg.mvn_logcdf, np.zeros(n), cov, random_seed=0)


def gradient(name, n, exact, new=False):
    """The evidence of a learnt model with its gradient; of a `new` one, with what it compiles."""
    _, gp, x, y, likelihood = sites.learnt_model(name, n)

    def made():
        data = TrainingData(gp, x, y, likelihood)
        found = process_objective(data, None, np.random.default_rng(0), None)
        objective, point = found.objective, Point(found.origin)
        if exact:
            return partial(objective.by_twisting, point, 256, 0)
        return partial(objective.on(objective.batches).by_ep, point)

    if new:
        return lambda: made()()
    call = made()
    call()
    return call


def search(name):
    """`find_hyperparameters`."""
    _, gp, x, y, likelihood = sites.learnt_model(name, 300)
    options = {"random_seed": 0, "progressbar": False, "quiet": True}
    return partial(sg.find_hyperparameters, gp, x, y, likelihood=likelihood, **options)


def averaged(n):
    """`integrate`, labels."""
    x, y = core.draw_problem(n)
    with pm.Model():
        ls, eta = pm.InverseGamma("ls", alpha=3, beta=2), pm.HalfNormal("eta", sigma=2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    return partial(sg.integrate, gp, x, y, draws=100, random_seed=0, progressbar=False)


def rows():
    """Each name with a function that prepares the call."""
    found = {f"labels, RBF, n = {n}": partial(labels, core.RBF(), n) for n in (30, 100, 300, 1000)}
    found["labels, RBF, n = 2000"] = partial(labels, core.RBF(), 2000)
    for n in (30, 100, 300, 1000):
        found[f"labels, OU, n = {n}"] = partial(labels, core.OU(), n)
        found[f"mvn_logcdf, OU, n = {n}"] = partial(probability, n)
    for variance in (100.0, 1000.0):
        for ls in (0.1, 0.5):
            kernel, name = core.RBF(ls, variance), f"steep, variance {variance:g}, ls {ls}, n = 300"
            x, y = core.draw_problem(300, ls, variance)
            one = partial(lambda *a: lambda: sg.SkewGPPosterior(*a[:2], cov_func=a[2]).latent, x, y)
            found[name] = partial(one, kernel)
    for name in sites.KINDS:
        for shape in ((30, 0.5, 2.0), *sites.PROBLEMS[:2], sites.PROBLEMS[3]):
            n, ls, variance = shape
            one = partial(sites.fitted, name, shape)
            found[f"{name}, n = {n}, ls {ls}, var {variance:g}"] = partial(lambda f: f, one)
    for name in sites.LEARNT:
        for n in (300, 1000):
            found[f"EP's gradient, {name}, n = {n}"] = partial(gradient, name, n, False)
            found[f"exact gradient, {name}, n = {n}"] = partial(gradient, name, n, True)
        found[f"first EP's gradient, {name}, n = 300"] = partial(gradient, name, 300, False, True)
        found[f"find_hyperparameters, {name}, n = 300"] = partial(search, name)
    found["integrate, labels, n = 40"] = partial(averaged, 40)
    return found
