"""Factors of several predictors: relative ESS and errors of evidences at fixed hyperparameters.

    python benchmarks/several_predictors.py [--likelihoods ...] [--n 30 100 200]

Data are drawn from the model: functions of one input under an exponentiated quadratic kernel of
length .5, with variance 1 or 4 (of a log deviation and of a zero's logit: 1). A row each: how many
draws count, the evidence with its error, and CPU seconds of a first and a second call.
Asked for: relative ESS of .7 under a softmax, .5 for mean and log deviation, .6 under zero
inflation, or a standard error of the log evidence of at most .05.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from runner import append_rows, machine, read_rows
from scipy.special import expit

import pymc_skewgp as sg

RESULTS = Path(__file__).resolve().parent / "results" / "several_predictors.csv"
FIELDS = ("likelihood", "n", "variance", "ess", "log_evidence", "std_error", "first", "second")
LEVEL = -1.0  # of the log deviation


def problem(name, n, variance):
    """A model without hyperparameters, and a name for it."""
    rng = np.random.default_rng([n, int(variance), len(name)])
    x = np.sort(rng.uniform(-2.0, 2.0, n))[:, None]
    kernel = pm.gp.cov.ExpQuad(1, ls=0.5)
    root = np.linalg.cholesky(kernel(x).eval() + 1e-8 * np.eye(n))

    def drawn(scale=1.0):
        return scale * root @ rng.standard_normal(n)

    def prior(name, scale=1.0):
        return pm.gp.Latent(cov_func=scale**2 * kernel).prior(name, x)

    scale = np.sqrt(variance)
    with pm.Model() as model:
        if name.startswith("softmax"):
            k = int(name[-1])
            logits = np.stack([drawn(scale) for _ in range(k)], axis=1)
            noise = rng.gumbel(size=(n, k))
            functions = [prior(f"f{i}", scale) for i in range(k)]
            stacked = pm.math.stack(functions, axis=1)
            pm.Categorical("y", logit_p=stacked, observed=(logits + noise).argmax(axis=1))
        elif name == "mean and log sd":
            values = rng.normal(drawn(scale), np.exp(LEVEL + drawn()))
            spread = pm.math.exp(LEVEL + prior("g"))
            pm.Normal("y", prior("f", scale), spread, observed=values)
        elif name == "rate and dispersion":
            rate, shape = np.exp(1.0 + drawn(scale)), np.exp(1.0 + drawn())
            counts = rng.poisson(rng.gamma(shape, rate / shape))
            alpha, mu = pm.math.exp(1.0 + prior("g")), pm.math.exp(1.0 + prior("f", scale))
            pm.NegativeBinomial("y", mu=mu, alpha=alpha, observed=counts)
        else:
            counts = rng.poisson(np.exp(1.0 + drawn(scale)))
            counts *= rng.uniform(size=n) < expit(1.0 + drawn())
            psi, mu = pm.math.sigmoid(1.0 + prior("g")), pm.math.exp(1.0 + prior("f", scale))
            pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=counts)
    return model


def measured(model):
    start = time.process_time()
    found = sg.integrate(model, draws=1000, chains=1, random_seed=0, progressbar=False)
    return found["posterior"].attrs, time.process_time() - start


LIKELIHOODS = ("softmax 3", "softmax 5", "mean and log sd", "zero inflation")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--likelihoods", nargs="*", default=list(LIKELIHOODS))
    parser.add_argument("--n", nargs="*", type=int, default=[30, 100, 200])
    arguments = parser.parse_args()
    host = machine(("numpy", "scipy", "pymc", "pytensor"))
    print(host)
    done = {tuple(row[x] for x in FIELDS[:3]) for row in read_rows(RESULTS)}
    for name in arguments.likelihoods:
        for n in arguments.n:
            for variance in (1.0, 4.0):
                if (name, str(n), str(variance)) in done:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = problem(name, n, variance)
                    _, first = measured(model)
                    attrs, second = measured(model)
                row = [name, n, variance, f"{attrs['relative_ess_exact']:.2f}"]
                row += [f"{attrs[x]:.3f}" for x in ("log_evidence", "log_evidence_se")]
                row += [f"{first:.2f}", f"{second:.2f}"]
                append_rows(RESULTS, [dict(zip(FIELDS, row, strict=True))], host, FIELDS)
                print(*row, flush=True)


if __name__ == "__main__":
    main()
