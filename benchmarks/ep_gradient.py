"""EP's log evidence with its gradient against the time of its factorisations.

    python benchmarks/ep_gradient.py [--only SECTION ...] [--out DIR]

The unit is n^3/3 operations, a Cholesky factorisation of n rows. A sweep of `dense_ep` takes 3
of them (a factor and its inverse), the check that the covariance is one takes 1, and the gradient
none; a sweep of `fit_ep` takes 2 and its gradient 3. All times are CPU time of one thread, the
least of several runs, and ratios are of times of one run.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from core import ROOT
from runner import run_sections
from scipy.linalg.lapack import dpotrf

import pymc_skewgp as sg
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import ep_gradient, fit_ep
from pymc_skewgp._gaussian.ep_dense import ep_with_gradient
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._model.graph.collapsed import collapse_model
from pymc_skewgp._model.ops.log_evidence import log_evidence, pt_log_evidence
from pymc_skewgp._posterior.evidence_gradient import EvidenceByEP
from pymc_skewgp._sun.parameters import SunParameters

SIZES = (100, 300, 1000)
N_INPUTS = 8  # enough for the covariance to have full rank
TOLERANCE = 1e-4
PACKAGES = ("numpy", "scipy", "numba", "pytensor", "nutpie")


def milliseconds(function, arguments, repeats=5):
    """CPU time of a call, mean over the arguments; the least of several rounds."""
    found = []
    for _ in range(repeats):
        started = time.process_time()
        for argument in arguments:
            function(argument)
        found.append((time.process_time() - started) / len(arguments) * 1e3)
    return min(found)


def classification(n, seed=1):
    """Inputs and labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, N_INPUTS))
    f = X[:, 0] + np.sin(2.0 * X[:, 1])
    return X, (f + 0.5 * rng.standard_normal(n) > 0).astype(int)


def objective_and_points(n):
    """Of a model with two hyperparameters, and points as a search moves: a tenth on each."""
    X, y = classification(n)
    with pm.Model() as model:
        ls, eta = pm.InverseGamma("ls", 3, 2), pm.HalfNormal("eta", 2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(N_INPUTS, ls=ls))
        gp.marginal_likelihood("y", X, y, method="ep")
    objective, origin = compile_objective(model, collapse_model(model))
    rng = np.random.default_rng(0)
    return objective, [Point(origin + 0.2 + rng.normal(0.0, 0.1, 2)) for _ in range(20)]


# --- sections ----------------------------------------------------------------------------------


def evidence():
    """Log evidence and gradient, from the sites of the last point, as a search asks for them."""
    for n in SIZES:
        objective, points = objective_and_points(n)
        terms = [next(iter(objective.terms_at(point))) for point in points]
        unit = milliseconds(lambda x: dpotrf(x.cov, lower=1), terms)
        sweeps = {"new": [], "old": []}
        last = {"new": None, "old": None}

        def new(x, last=last, sweeps=sweeps):
            cov = DenseCovariance(x.cov)
            ep, _ = ep_with_gradient(cov, x.lower, x.upper, tol=TOLERANCE, start=last["new"])
            last["new"] = ep
            sweeps["new"].append(ep.n_sweeps)

        def old(x, last=last, sweeps=sweeps):
            cov = DenseCovariance(x.cov)
            ep = fit_ep(cov, x.lower, x.upper, tol=TOLERANCE, start=last["old"])
            ep_gradient(cov, ep, x.lower, x.upper)
            last["old"] = ep
            sweeps["old"].append(ep.n_sweeps)

        new(terms[0])  # numba compiles
        fast, plain = milliseconds(new, terms), milliseconds(old, terms)
        units = 3.0 * np.mean(sweeps["new"]) + 1.0
        before = 2.0 * np.mean(sweeps["old"]) + 4.0
        yield f"n = {n}: a Cholesky factorisation, ms", "", f"{unit:.3f}"
        yield f"n = {n}: sweeps; units of n^3/3", "", f"{np.mean(sweeps['new']):.1f}; {units:.1f}"
        yield f"n = {n}: time over that of its units", "<= 4", f"{fast / unit / units:.2f}"
        yield f"n = {n}: ms", "", f"{fast:.2f}"
        yield f"n = {n}: by `fit_ep`, units", "", f"{before:.1f}"
        yield f"n = {n}: time of `fit_ep` with gradient over it", "", f"{plain / fast:.2f}"
        whole = milliseconds(objective.by_ep, points)
        by_class = milliseconds(EvidenceByEP(), terms)
        kernel = milliseconds(lambda p, o=objective: next(iter(o.terms_at(p))), points)
        prior = milliseconds(objective.prior, points)
        yield (
            f"n = {n}: `Objective.by_ep` over the units of its EP",
            "",
            f"{whole / unit / units:.2f}",
        )
        rest = whole - by_class - kernel - prior
        parts = f"{by_class:.2f}; {kernel:.2f}; {prior:.2f}; {rest:.2f}"
        yield f"n = {n}: ms of evidence; kernel; prior; pull-back", "", parts


def op():
    """The Op that NUTS climbs, method "ep", from no sites to a residual of 1e-8."""
    dims = (1, 1, 1, 1, 1, 2, 2, 1, 2)
    inputs = [pt.tensor(dtype="float64", shape=(None,) * d) for d in dims]
    lower, upper, value, noise, *sun = inputs
    log_p = pt_log_evidence(
        lower, upper, SunParameters(*sun), value=value, noise=noise, method="ep"
    )
    started = time.process_time()
    outputs = [log_p, *pytensor.grad(log_p, inputs)]
    function = pytensor.function(inputs, outputs, mode="NUMBA", on_unused_input="ignore")
    for n in (20, 100, 300):
        X, y = classification(n)
        scale = 4.0 * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1) / 2.5**2)
        limits = np.where(y == 1, 0.0, -np.inf), np.where(y == 1, np.inf, 0.0)
        nothing = np.zeros((n, 0)), np.zeros(0), np.zeros((0, 0))
        case = [*limits, np.full(n, np.nan), np.ones(n), np.zeros(n), scale, *nothing]
        function(*case)
        if n == 20:
            elapsed = time.process_time() - started
            yield "CPU s to compile it, or to load it where the cache has it", "", f"{elapsed:.1f}"
        cases = [case] * 5
        unit = milliseconds(lambda x: dpotrf(x[5] + np.eye(len(x[5])), lower=1), cases)
        fast = milliseconds(lambda x: function(*x), cases)
        python = milliseconds(lambda x: log_evidence("ep", 1, *x), cases)
        cov = DenseCovariance(scale + np.eye(n))
        plain = milliseconds(lambda x, c=cov: fit_ep(c, x[0], x[1], tol=1e-8), cases)
        yield f"n = {n}: ms; in Cholesky factorisations", "", f"{fast:.3f}; {fast / unit:.1f}"
        yield (
            f"n = {n}: time in Python over it; of `fit_ep` alone",
            "",
            (f"{python / fast:.1f}; {plain / fast:.1f}"),
        )


def nuts():
    """The README's collapsed model with method "ep", two chains of 200 + 200 by nutpie."""
    rng = np.random.default_rng(8927)
    X = np.linspace(-3, 3, 80)[:, None]
    y = (np.sin(2 * X[:, 0]) + 0.5 * rng.standard_normal(80) > 0).astype(int)
    with pm.Model():
        ls, eta = pm.InverseGamma("ls", alpha=3, beta=2), pm.HalfNormal("eta", sigma=2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
        gp.marginal_likelihood("y", X, y, method="ep")
        for sampler in ("nutpie", "pymc"):
            started = time.perf_counter()
            options = {"chains": 2, "cores": 2, "progressbar": False, "random_seed": 1}
            idata = pm.sample(200, tune=200, nuts_sampler=sampler, **options)
            wall = time.perf_counter() - started
            sampling = idata["posterior"].attrs["sampling_time"]
            yield f"{sampler}: s in all; of it sampling", "", f"{wall:.1f}; {sampling:.1f}"


SECTIONS = {"evidence": evidence, "op": op, "nuts": nuts}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    run_sections(SECTIONS, arguments.out / "ep_gradient.csv", arguments.only, PACKAGES)
