"""Student-t noise and flipped labels: `ConjugateStep` against NUTS, effective draws a second.

    python benchmarks/mixtures.py [--only SECTION ...] [--out DIR]

The same model with random hyperparameters of kernel and likelihood: f as it stands for the step,
reparameterised for NUTS. Seconds are of the processor, sampling only; both have one core.
"""

import argparse
import logging
import time
import warnings
from functools import partial
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from core import ROOT
from runner import run_sections

import pymc_skewgp as sg

SEED = 8927
PACKAGES = ("pymc", "pytensor", "numba", "arviz")
logging.getLogger("pymc").setLevel(logging.ERROR)
# What is said of short chains is part of what is measured, not a message.
warnings.filterwarnings("ignore")


def student_t(f, truth, rng):
    """Nu = 4, the scale random."""
    y = truth + 0.3 * rng.standard_t(4, truth.size)
    pm.StudentT("y", nu=4, mu=f, sigma=pm.HalfNormal("sigma", 1.0), observed=y)
    return "sigma"


def flips(f, truth, rng):
    """Eight of a hundred labels flipped, the rate random."""
    label = truth + rng.standard_normal(truth.size) > 0
    label = np.where(rng.random(truth.size) < 0.08, ~label, label).astype(int)
    eps = pm.Beta("eps", 1.0, 9.0)
    pm.Bernoulli("y", p=eps + (1 - 2 * eps) * pm.math.invprobit(f), observed=label)
    return "eps"


def rates(observe, n, reparameterize, tune, draws):
    """Effective draws a second: smallest of f, of the lengthscale, of the likelihood's parameter.

    Posterior mean and standard deviation of the last besides, for comparison.
    """
    rng = np.random.default_rng(n)
    x = np.sort(rng.uniform(-3.0, 3.0, n))
    with pm.Model():
        ls, scale = pm.LogNormal("ls", 0.0, 0.5), pm.HalfNormal("scale", 2.0)
        gp = sg.SkewGP(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, ls=ls))
        f = gp.prior("f", x[:, None], reparameterize=reparameterize)
        name = observe(f, 1.5 * np.sin(2.0 * x), rng)
        options = {"chains": 2, "cores": 1, "progressbar": False, "quiet": True}
        options |= {"nuts_sampler": "pymc"} if reparameterize else {}
        pm.sample(2, tune=2, random_seed=SEED, **options)  # compiles
        started = time.process_time()
        found = pm.sample(draws, tune=tune, random_seed=SEED, **options).posterior.dataset
        seconds = time.process_time() - started
    ess = az.ess(found[["f", "ls", name]])
    of = [float(ess[x].min()) / seconds for x in ("f", "ls", name)]
    return of, f"{float(found[name].mean()):.3f} ({float(found[name].std()):.3f})"


def compared(observe, n, step_draws, nuts_draws):
    """Effective draws a second by the step over those by NUTS, and what both find."""
    step, one = rates(observe, n, False, *step_draws)
    nuts, other = rates(observe, n, True, *nuts_draws)
    for what, a, b in zip(("f", "lengthscale", "noise or rate"), step, nuts, strict=True):
        asked = ">= 1"
        yield f"ConjugateStep over NUTS, {what}, n={n}", asked, f"{a / b:.1f} ({a:.2f} a second)"
    yield f"posterior mean and sd of noise or rate, n={n}", f"as NUTS: {other}", one


SECTIONS = {
    "student_t_100": partial(compared, student_t, 100, (100, 600), (300, 300)),
    "flips_100": partial(compared, flips, 100, (100, 600), (300, 300)),
    "student_t_300": partial(compared, student_t, 300, (60, 250), (150, 150)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=None)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    run_sections(SECTIONS, arguments.out / "mixtures.csv", arguments.only, PACKAGES)


if __name__ == "__main__":
    main()
