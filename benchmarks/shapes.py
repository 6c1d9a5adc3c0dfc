"""Monotone and bounded functions: coverage, evidence and limits with 30 to 200 constraints.

True functions are draws of the prior that happen to be monotone, or within bounds, on a fine grid
(rejection, plain NumPy). Data are at both ends; intervals are judged in the gap between them.
"""

import time

import numpy as np
import pymc as pm

import pymc_skewgp as sg

lk = sg.likelihoods
LENGTHSCALE, NOISE, BOUND = 0.3, 0.3, 1.0
COUNTS, TRUTHS, SEED = (30, 100, 200), 60, 8927
GRID = np.linspace(0.0, 1.0, 201)
GAP = np.linspace(0.35, 0.65, 7)  # without data
LEVEL = (0.055, 0.945)


def true_functions(kind, n, rng):
    """Values on the grid, (n, 201)."""
    K = np.exp(-0.5 * ((GRID[:, None] - GRID) / LENGTHSCALE) ** 2)
    values, vectors = np.linalg.eigh(K)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    kept = np.empty((0, len(GRID)))
    while len(kept) < n:
        f = rng.standard_normal((2000, len(GRID))) @ factor.T
        if kind == "monotone":
            good = (np.diff(f, axis=1) > 0).all(axis=1)
        else:
            good = (np.abs(f) < BOUND).all(axis=1)
        kept = np.concatenate([kept, f[good]])
    return kept[:n]


def constraint(kind):
    return lk.Constraint.increasing() if kind == "monotone" else lk.Constraint.bounds(-BOUND, BOUND)


def column(x):
    return np.asarray(x, dtype=float)[:, None]


def seconds_of_probit(n, rng):
    """Evidence and draws of u of binary probit with as many rows, same kernel: CPU seconds."""
    x = rng.random(n)
    y = (np.sin(6 * x) + rng.standard_normal(n) > 0).astype(int)
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=LENGTHSCALE))
    times = []
    for _ in range(4):
        started = time.process_time()
        _ = gp.posterior(column(x), y).log_marginal_likelihood
        times.append(time.process_time() - started)
    return np.median(times[1:])


class Tally:
    """What is kept of each fit."""

    def __init__(self):
        self.inside, self.width, self.errors, self.ess, self.seconds = [], [], [], [], []
        self.broken = -np.inf

    def add(self, posterior, f, started):
        evidence = posterior.log_marginal_likelihood
        self.seconds.append(time.process_time() - started)
        low, high = posterior.marginals(column(GAP)).quantile(LEVEL)
        truth = np.interp(GAP, GRID, f)
        self.inside.append(np.mean((low < truth) & (truth < high)))
        self.width.append(np.mean(high - low))
        self.errors.append(evidence.std_error)
        self.ess.append(posterior.latent.relative_ess)

    def largest_break(self, posterior, kind, seed):
        """Of 1000 draws, in prior standard deviations of what is limited."""
        drawn = posterior.sample(500, 2, random_seed=seed)["posterior"]["f_shape"].to_numpy()
        beyond = -drawn * LENGTHSCALE if kind == "monotone" else np.abs(drawn) - BOUND
        self.broken = max(self.broken, float(beyond.max()))


def mean_and_error(values):
    return f"{np.mean(values):.3f} +- {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def shapes():
    """Coverage of 89 % intervals in the gap, their width, evidence, largest break of a limit."""
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=LENGTHSCALE))
    rng = np.random.default_rng(SEED)
    base = {n: seconds_of_probit(n, rng) for n in COUNTS}
    for kind in ("monotone", "bounded"):
        truths = true_functions(kind, TRUTHS, rng)
        tallies = {n: Tally() for n in (0, *COUNTS)}
        for i, f in enumerate(truths):
            x = np.concatenate([rng.uniform(0.0, 0.3, 6), rng.uniform(0.7, 1.0, 6)])
            y = np.interp(x, GRID, f) + NOISE * rng.standard_normal(len(x))
            for n, tally in tallies.items():
                data = {"y": (column(x), y, lk.Gaussian(NOISE))}
                if n:
                    data["shape"] = (column(np.linspace(0, 1, n)), None, constraint(kind))
                started = time.process_time()
                posterior = gp.posterior(data)
                tally.add(posterior, f, started)
                if n and i < TRUTHS // 3:
                    tally.largest_break(posterior, kind, i)
        for n, tally in tallies.items():
            yield from report(kind, n, tally, base.get(n))


def report(kind, n, tally, base):
    what = f"{kind}, {n} constraints" if n else f"{kind}, no constraint"
    yield (
        f"{what}: coverage of 89 % intervals without data; their width",
        ".89",
        f"{mean_and_error(tally.inside)}; {np.mean(tally.width):.3f}",
    )
    if not n:
        return
    yield (
        f"{what}: standard error of the log evidence, median, largest; relative ESS, median, "
        "smallest; CPU seconds over binary probit's",
        "",
        f"{np.median(tally.errors):.3f}, {np.max(tally.errors):.3f}; {np.median(tally.ess):.2f}, "
        f"{np.min(tally.ess):.2f}; {np.median(tally.seconds) / base:.1f}",
    )
    yield (
        f"{what}: a limit broken at most by, prior standard deviations (negative: none is)",
        "<= 1e-6",
        f"{tally.broken:.1e}",
    )
