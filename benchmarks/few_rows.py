"""Few rows integrated: is the standard error of `integrate` right? Twelve problems of 5 to 20 rows.

    python benchmarks/few_rows.py [--seeds 40] [--out DIR]

Rows are appended to ``DIR/few_rows.csv`` as they are known; those in the file are kept. Asked for
is a standard deviation of the error over its standard error between .65 and 1.35 in each problem
and .85 and 1.15 in all, and none beyond 4.5.

With few rows the posterior of the hyperparameters is wide, and its tails go far out: a noise scale
near zero, a lengthscale that nothing bounds. The answer is the mean of the likelihood over
scrambled Sobol points of the prior, which misses no tail.
"""

import argparse
import functools
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
from runner import append_rows, machine, read_rows
from scipy import stats
from scipy.special import gammaln, log_ndtr, logsumexp

import pymc_skewgp as sg

RESULTS = Path(__file__).resolve().parent / "results"
# name in PyMC -> frozen distribution of SciPy, by the arguments of the first.
PRIORS = {
    "HalfNormal": lambda sigma: stats.halfnorm(scale=sigma),
    "HalfCauchy": lambda beta: stats.halfcauchy(scale=beta),
    "InverseGamma": lambda alpha, beta: stats.invgamma(alpha, scale=beta),
    "Gamma": lambda alpha, beta: stats.gamma(alpha, scale=1.0 / beta),
    "Exponential": lambda lam: stats.expon(scale=1.0 / lam),
    "LogNormal": lambda mu, sigma: stats.lognorm(sigma, scale=np.exp(mu)),
}
LS, ETA, SIGMA = ("InverseGamma", (3.0, 2.0)), ("HalfNormal", (2.0,)), ("HalfNormal", (1.0,))


class FewRows(NamedTuple):
    """Priors by name in the order of declaration; what is no prior is a number.

    `ls1`, `ls2` are lengthscales of the inputs, `eta` and `sigma` standard deviations of f and of
    normal noise; `log2_points` of the answer.
    """

    likelihood: str
    n_rows: int
    priors: dict
    log2_points: int = 18
    seed: int = 0


PROBLEMS = {
    "Gaussian 12, ls eta sigma": FewRows("Gaussian", 12, {"ls1": LS, "eta": ETA, "sigma": SIGMA}),
    "Gaussian 12, sigma eta ls": FewRows(
        "Gaussian", 12, {"sigma": SIGMA, "eta": ETA, "ls1": LS}, seed=1
    ),
    "Gaussian 5, ls": FewRows("Gaussian", 5, {"ls1": LS, "eta": 1.0, "sigma": 0.3}),
    "Gaussian 8, eta sigma": FewRows("Gaussian", 8, {"ls1": 0.8, "eta": ETA, "sigma": SIGMA}),
    "Gaussian 20, ls ls eta sigma": FewRows(
        "Gaussian", 20, {"ls1": LS, "ls2": LS, "eta": ETA, "sigma": SIGMA}, 19
    ),
    "Gaussian 6, heavy tails": FewRows(
        "Gaussian",
        6,
        {
            "sigma": ("Exponential", (2.0,)),
            "eta": ("HalfCauchy", (1.0,)),
            "ls1": ("LogNormal", (0.0, 1.0)),
        },
    ),
    "probit 5, ls": FewRows("probit", 5, {"ls1": LS, "eta": 2.0}, 20),
    "probit 10, ls eta": FewRows("probit", 10, {"ls1": LS, "eta": ETA}, 21),
    "probit 12, ls ls eta": FewRows("probit", 12, {"ls1": LS, "ls2": LS, "eta": ETA}, 23),
    "Poisson 6, eta": FewRows("Poisson", 6, {"ls1": 1.0, "eta": ("HalfCauchy", (1.0,))}, 21),
    "Poisson 8, ls eta": FewRows("Poisson", 8, {"ls1": LS, "eta": ("HalfNormal", (1.0,))}, 22),
    "Poisson 12, ls eta": FewRows(
        "Poisson", 12, {"eta": ("Exponential", (1.0,)), "ls1": ("Gamma", (2.0, 2.0))}, 24
    ),
}


def data(case):
    """Inputs and data, the same in every run."""
    rng = np.random.default_rng([case.n_rows, case.seed])
    d = sum(name.startswith("ls") for name in case.priors)
    X = rng.uniform(-2.0, 2.0, (case.n_rows, d))
    f = np.sin(2.0 * X[:, 0]) + (0.3 * X[:, 1] if d > 1 else 0.0)
    if case.likelihood == "Gaussian":
        return X, f + 0.3 * rng.standard_normal(case.n_rows)
    if case.likelihood == "probit":
        return X, (f + rng.standard_normal(case.n_rows) > 0).astype(int)
    return X, rng.poisson(np.exp(f))


def _covariances(case, X, theta):
    """exp(-|x - x'|^2 / 2) scaled, one for each draw of the hyperparameters."""
    squared = sum(
        np.square((X[:, i, None] - X[:, i]) / theta[f"ls{i + 1}"][:, None, None])
        for i in range(X.shape[1])
    )
    return theta["eta"][:, None, None] ** 2 * np.exp(-0.5 * squared)


def _log_likelihoods(case, X, y, uniforms):
    """Of each of the prior's points; f integrated out where the noise is normal."""
    names = [name for name, prior in case.priors.items() if isinstance(prior, tuple)]
    theta = {
        name: np.full(len(uniforms), prior)
        for name, prior in case.priors.items()
        if name not in names
    }
    for i, name in enumerate(names):
        kind, arguments = case.priors[name]
        theta[name] = PRIORS[kind](*arguments).ppf(uniforms[:, i])
    K = _covariances(case, X, theta)
    eye = np.eye(case.n_rows)
    if case.likelihood == "Gaussian":
        # Where the noise vanishes a jitter as small as round-off stands for it.
        noise = theta["sigma"] ** 2 + 1e-12 * theta["eta"] ** 2
        chol = np.linalg.cholesky(K + noise[:, None, None] * eye)
        white = np.linalg.solve(chol, np.broadcast_to(y[:, None], (len(K), y.size, 1)))[..., 0]
        log_dets = np.log(np.einsum("kii->ki", chol)).sum(axis=1)
        return -0.5 * (white**2).sum(axis=1) - log_dets - 0.5 * y.size * np.log(2.0 * np.pi)
    chol = np.linalg.cholesky(K + 1e-9 * theta["eta"][:, None, None] ** 2 * eye)
    f = np.einsum("kij,kj->ki", chol, stats.norm.ppf(uniforms[:, len(names) :]))
    if case.likelihood == "probit":
        return log_ndtr((2 * y - 1) * f).sum(axis=1)
    return (y * f - np.exp(f) - gammaln(y + 1.0)).sum(axis=1)


def answer(name):
    """Log evidence, and its standard error from eight independent randomisations."""
    case = PROBLEMS[name]
    X, y = data(case)
    n = sum(isinstance(prior, tuple) for prior in case.priors.values())
    d = n if case.likelihood == "Gaussian" else n + case.n_rows
    means = []
    for seed in range(8):
        sobol = stats.qmc.Sobol(d, rng=np.random.default_rng([seed, 1]))
        parts = []
        for _ in range(2 ** (case.log2_points - 3 - 15 if case.log2_points > 18 else 0)):
            points = sobol.random(2 ** min(15, case.log2_points - 3))
            parts.append(_log_likelihoods(case, X, y, np.clip(points, 1e-15, 1 - 1e-15)))
        every = np.concatenate(parts)
        means.append(logsumexp(every) - np.log(every.size))
    value = logsumexp(means) - np.log(8)
    return float(value), float(np.exp(means - value).std(ddof=1) / np.sqrt(8))


def answers(path):
    """Those of a table, by problem."""
    return {
        row["problem"]: (float(row["exact"]), float(row["exact_se"])) for row in read_rows(path)
    }


@functools.cache
def truth(name):
    """The answer, from the table of results where it is in there: some take minutes."""
    return answers(RESULTS / "few_rows.csv").get(name) or answer(name)


def estimate(name, seed):
    """`integrate`'s."""
    case = PROBLEMS[name]
    X, y = data(case)
    with pm.Model():
        values = {
            key: getattr(pm, prior[0])(key, *prior[1]) if isinstance(prior, tuple) else prior
            for key, prior in case.priors.items()
        }
        ls = [values[f"ls{i + 1}"] for i in range(X.shape[1])]
        kernel = pm.gp.cov.ExpQuad(X.shape[1], ls=pm.math.stack(ls) if len(ls) > 1 else ls[0])
        gp = sg.SkewGP(cov_func=values["eta"] ** 2 * kernel)
    likelihood = {
        "Gaussian": lambda: sg.likelihoods.Gaussian(values["sigma"]),
        "probit": lambda: None,
        "Poisson": lambda: sg.likelihoods.Poisson(),
    }[case.likelihood]()
    return sg.integrate(
        gp, X, y, likelihood=likelihood, draws=100, random_seed=seed, progressbar=False
    )


FIELDS = (
    *("problem", "seed", "exact", "exact_se", "value", "std_error"),
    *("relative_ess", "relative_ess_exact", "n_evaluations", "seconds", "warned"),
)


def measure(name, seed, exact):
    """One row."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        found = estimate(name, seed)["posterior"].attrs
        spent = time.process_time() - start
    keys = ("log_evidence", "log_evidence_se", "relative_ess", "relative_ess_exact")
    warned = " ".join(sorted({w.category.__name__ for w in caught}))
    numbers = [f"{x:.10g}" for x in (*exact, *(found[key] for key in keys))]
    row = (name, seed, *numbers, found["n_evaluations"], f"{spent:.2f}", warned)
    return dict(zip(FIELDS, row, strict=True))


def summary(rows):
    """Root mean square of the error over its standard error, of each problem and of all."""
    for name in [*PROBLEMS, None]:
        own = [row for row in rows if name in (None, row["problem"])]
        if not own:
            continue
        value, exact, a, b = (
            np.array([float(row[key]) for row in own])
            for key in ("value", "exact", "std_error", "exact_se")
        )
        z = (value - exact) / np.hypot(a, b)
        most = max(int(row["n_evaluations"]) for row in own)
        print(
            f"{name or 'all':30} {z.size:4} runs  sd of z {np.sqrt((z**2).mean()):.2f}  "
            f"largest {np.abs(z).max():.1f}  se {np.median(a):.4f}  evaluations at most {most}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "few_rows.csv"
    rows = read_rows(path)
    known = answers(path)
    done = {(row["problem"], int(row["seed"])) for row in rows}
    for seed in range(arguments.seeds):
        for name in PROBLEMS:
            if (name, seed) in done:
                continue
            if name not in known:
                known[name] = answer(name)
            append_rows(path, [measure(name, seed, known[name])], machine(), FIELDS)
    summary(read_rows(path))


if __name__ == "__main__":
    main()
