"""What PyMC's users ask for or complain of: the model as it stands, by `integrate` and by NUTS.

    python benchmarks/complaints.py [--only NAME ...]

A process and a row for each model and method: CPU seconds with compilation, the smallest effective
sample size over all scalars of the posterior, that of the worst hyperparameter, divergences, and
the largest difference of a mean between the two methods, in joint Monte Carlo errors. NUTS is
PyMC's own with its defaults but for two chains. Data are simulated here, but for the eight schools
(Rubin 1981).
"""

import argparse
import functools
import resource
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from latent_models import SEED, watched
from runner import append_rows, machine, read_rows
from scipy.special import expit

import pymc_skewgp as sg

OUT = Path(__file__).resolve().parent / "results" / "complaints.csv"
FIELDS = (
    "model",
    "method",
    "cpu_seconds",
    "draws",
    "ess_least",
    "ess_hyperparameter",
    "divergences",
    "log_evidence",
    "scalars",
    "largest_gap",
    "stopped",
)
METHODS = ("integrate", "NUTS")


def schools():
    """Centred effects."""
    gain = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    error = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        pm.Normal("y", pm.Normal("theta", mu, tau, shape=8), error, observed=gain)
    return model, ["tau"]


def patients():
    """A generalised linear mixed model: labels of 40 patients at five visits."""
    rng = np.random.default_rng(SEED)
    who, dose = np.repeat(np.arange(40), 5), rng.uniform(-1, 1, 200)
    eta = 0.5 - 1.2 * dose + rng.normal(size=40)[who]
    labels = (rng.uniform(size=200) < expit(eta)).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=2)
        s = pm.HalfNormal("s", 1)
        u = pm.Normal("u", 0, s, shape=40)
        pm.Bernoulli("y", logit_p=b[0] + b[1] * dose + u[who], observed=labels)
    return model, ["s"]


def areas():
    """Counts of 64 areas under ICAR and noise of their own."""
    rng, side = np.random.default_rng(SEED), 8
    at = np.stack(np.meshgrid(range(side), range(side)), -1).reshape(-1, 2)
    W = (np.abs(at[:, None] - at).sum(-1) == 1).astype(int)
    truth = 0.5 * np.sin(at[:, 0] / 2.0) + 0.2 * rng.normal(size=64)
    counts = rng.poisson(8 * np.exp(truth))
    with pm.Model() as model:
        level = pm.Normal("level", 0, 2)
        s, noise = pm.HalfNormal("s", 1), pm.HalfNormal("noise", 1)
        phi, own = pm.ICAR("phi", W=W), pm.Normal("own", 0, 1, shape=64)
        pm.Poisson("y", 8 * pm.math.exp(level + s * phi + noise * own), observed=counts)
    return model, ["s", "noise"]


def series():
    """Counts of 60 weeks whose log rate is an autoregression."""
    rng, f = np.random.default_rng(SEED), np.zeros(60)
    for t in range(1, 60):
        f[t] = 0.8 * f[t - 1] + 0.4 * rng.normal()
    counts = rng.poisson(3 * np.exp(f))
    with pm.Model() as model:
        rho, s = pm.Normal("rho", 0.5, 0.5), pm.HalfNormal("s", 1)
        f = pm.AR("f", rho=rho, sigma=s, init_dist=pm.Normal.dist(0, 1), shape=60)
        pm.Poisson("y", 3 * pm.math.exp(f), observed=counts)
    return model, ["rho", "s"]


def labels():
    """80 labels of a process by `pm.gp.Latent`."""
    rng, x = np.random.default_rng(SEED), np.linspace(0, 6, 80)
    y = (rng.uniform(size=80) < expit(2 * np.sin(2 * x))).astype(int)
    with pm.Model() as model:
        ls, eta = pm.InverseGamma("ls", 5, 5), pm.HalfNormal("eta", 2)
        gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=ls))
        pm.Bernoulli("y", logit_p=gp.prior("f", x[:, None]), observed=y)
    return model, ["ls", "eta"]


MODELS = {f.__name__: f for f in (schools, patients, areas, series, labels)}


def measured(name, method):
    """The row of one method, and means with their errors."""
    model, hyperparameters = MODELS[name]()
    warnings.simplefilter("ignore")
    before = resource.getrusage(resource.RUSAGE_SELF)
    if method == "integrate":
        tree = sg.integrate(model, random_seed=SEED, progressbar=False)
    else:
        tree = pm.sample(
            model=model,
            nuts_sampler="pymc",
            chains=2,
            cores=1,
            random_seed=SEED,
            progressbar=False,
        )
    after = resource.getrusage(resource.RUSAGE_SELF)
    posterior = tree["posterior"]
    ess, mean, error = {}, {}, {}
    for v in posterior.data_vars:
        flat = posterior[v].to_numpy()
        flat = flat.reshape(*flat.shape[:2], -1)
        for i in range(flat.shape[-1]):
            x = flat[..., i]
            ess[v, i] = float(az.ess(x))
            mean[v, i], error[v, i] = float(x.mean()), float(az.mcse(x))
    attrs, divergences = posterior.attrs, ""
    if method == "NUTS":
        divergences = int(tree["sample_stats"]["diverging"].sum())
    row = {
        "cpu_seconds": f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f}",
        "draws": posterior.sizes["chain"] * posterior.sizes["draw"],
        "ess_least": f"{min(ess.values()):.0f}",
        "ess_hyperparameter": f"{min(ess[v, 0] for v in hyperparameters):.0f}",
        "divergences": divergences,
        "scalars": len(ess),
    }
    if method == "integrate":
        row["log_evidence"] = f"{attrs['log_evidence']:.3f} +- {attrs['log_evidence_se']:.3f}"
    return row, mean, error


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=MODELS, help="models, run again")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--cpu-seconds", type=float, default=900.0)
    args = parser.parse_args()
    host = machine(("numpy", "scipy", "numba", "pymc"))
    done = read_rows(args.out)
    if args.only:
        kept = [row for row in done if row["model"] not in args.only]
        args.out.unlink(missing_ok=True)
        for row in kept:
            append_rows(args.out, [{f: row[f] for f in FIELDS}], row["machine"], FIELDS)
    finished = {row["model"] for row in done}
    for name in args.only or [name for name in MODELS if name not in finished]:
        known = {
            method: watched(functools.partial(measured, name, method), args.cpu_seconds)
            for method in METHODS
        }
        gap = ""
        if all(x.found for x in known.values()):
            (_, one, a), (_, other, b) = (known[method].found for method in METHODS)
            gap = f"{max(abs(one[k] - other[k]) / np.hypot(a[k], b[k]) for k in one):.1f}"
        rows = []
        for method, x in known.items():
            row = dict.fromkeys(FIELDS, "") | {"model": name, "method": method, "largest_gap": gap}
            rows.append(row | (x.found[0] if x.found else {"stopped": x.stopped}))
            print(*rows[-1].values(), flush=True)
        append_rows(args.out, rows, host, FIELDS)


if __name__ == "__main__":
    main()
