"""Likelihoods without rows: relative ESS, errors, cost and effective draws against NUTS.

    python benchmarks/sites.py [--data DIR] [--only SECTION ...] [--out DIR]

Every figure is printed beside the one asked for, and appended to ``sites.csv`` as soon as it is
known; sections already in the file are not run again unless named. Times are CPU seconds.
"""

import argparse
import functools
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from censored import nuts, summary
from core import RBF, ROOT
from datasets import add_data_option
from runner import run_sections
from scipy.linalg import cholesky
from scipy.special import expit

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective

sys.path.insert(0, str(ROOT / "tests"))
from site_oracles import site_posterior

lk = sg.likelihoods
PACKAGES = ("numpy", "scipy", "numba", "pymc")
# n, lengthscale, variance
PROBLEMS = ((100, 0.5, 2.0), (300, 0.2, 2.0), (300, 0.5, 10.0), (1000, 0.5, 2.0), (1000, 0.5, 10.0))
CUTPOINTS = np.array([-1.0, 0.0, 1.0])
PAIRS = 1024
SEED = 271


def latent(x, lengthscale, variance, rng):
    """A draw of f at x."""
    values, vectors = np.linalg.eigh(RBF(lengthscale, variance)(x))
    return vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(len(x)))


# Likelihood, what f is multiplied by, and data given the predictor.
KINDS = {
    "logit": (lk.BernoulliLogit(), 1.0, lambda g, rng: rng.binomial(1, expit(g))),
    "Poisson": (lk.Poisson(), 0.5, lambda g, rng: rng.poisson(np.exp(g))),
    "negative binomial, 3": (
        lk.NegativeBinomial(3.0),
        0.5,
        lambda g, rng: rng.negative_binomial(3.0, 3.0 / (3.0 + np.exp(g))),
    ),
    "binomial, 10 trials": (lk.BinomialLogit(10), 1.0, lambda g, rng: rng.binomial(10, expit(g))),
    "gamma, shape 2": (lk.Gamma(2.0), 0.5, lambda g, rng: rng.gamma(2.0, np.exp(g) / 2.0)),
    "ordered logit, 4 levels": (
        lk.OrderedLogit(CUTPOINTS),
        1.0,
        lambda g, rng: np.searchsorted(CUTPOINTS, g + rng.logistic(size=g.size)),
    ),
    "Student-t, 4 degrees": (
        lk.StudentT(4.0, 0.3),
        0.5,
        lambda g, rng: g + 0.3 * rng.standard_t(4, size=g.size),
    ),
}
LOG_CONCAVE = tuple(name for name in KINDS if not name.startswith("Student"))


def problem(name, n, lengthscale, variance):
    """Data of one kind: X, y, likelihood, kernel."""
    rng = np.random.default_rng([SEED, n, int(10 * lengthscale), int(variance)])
    likelihood, scale, draw = KINDS[name]
    x = np.sort(rng.uniform(-2, 2, n))[:, None]
    eta = scale * latent(x, lengthscale, variance, rng)
    return x, draw(eta, rng), likelihood, RBF(lengthscale, scale**2 * variance)


def fitted(name, shape, seed=0):
    """Evidence with its draws, and CPU seconds."""
    x, y, likelihood, kernel = problem(name, *shape)
    started = time.process_time()
    posterior = sg.SkewGPPosterior(
        x, y, cov_func=kernel, likelihood=likelihood, n_draws=PAIRS, random_seed=seed
    )
    evidence = posterior.log_marginal_likelihood
    return posterior, evidence, time.process_time() - started


def table():
    """Relative ESS of 1024 pairs; standard error of the log evidence; CPU seconds."""
    for name in KINDS:
        asked = ">= .85; <= .02" if name in LOG_CONCAVE else "; <= .1"
        for shape in PROBLEMS:
            _, evidence, seconds = fitted(name, shape)
            n, lengthscale, variance = shape
            yield (
                f"{name}, n = {n}, ls {lengthscale}, var {variance:g}",
                asked,
                f"{evidence.relative_ess:.2f}; {evidence.std_error:.4f}; {seconds:.2f} s",
            )


def choleskys():
    """EP and 1024 pairs with the evidence, in Cholesky factorisations of that size."""
    for n in (300, 1000):
        matrix = np.eye(n) + np.full((n, n), 0.5)
        factorised = []
        for _ in range(9):
            started = time.process_time()
            for _ in range(max(1, 3000 // n)):
                cholesky(matrix, lower=True, check_finite=False)
            factorised.append((time.process_time() - started) / max(1, 3000 // n))
        for name in ("logit", "Poisson"):
            shape = (n, 0.2 if n == 300 else 0.5, 2.0)
            seconds = np.median([fitted(name, shape)[2] for _ in range(3)])
            yield (
                f"{name}, n = {n}: in Choleskys of n rows",
                "<= 40",
                f"{seconds / np.median(factorised):.0f}",
            )


def against_nuts():
    """Effective draws of f a CPU second over pm.gp.Latent with NUTS; compiling apart."""
    for name, asked in (("logit", 50), ("Poisson", 100)):
        for n in (200, 500):
            x, y, likelihood, kernel = problem(name, n, 0.5, 2.0)

            def build(x=x, y=y, kernel=kernel, name=name):
                cov = kernel.variance * pm.gp.cov.ExpQuad(1, ls=kernel.lengthscale)
                f = pm.gp.Latent(cov_func=cov).prior("f", X=x)
                if name == "logit":
                    pm.Bernoulli("y", logit_p=f, observed=y)
                else:
                    pm.Poisson("y", pm.math.exp(f), observed=y)
                return ["f"]

            f, took = nuts(build)
            mean, ess, error = summary(f)
            started = time.process_time()
            posterior = sg.SkewGPPosterior(x, y, cov_func=kernel, likelihood=likelihood)
            ours = posterior.sample(1000, 4, random_seed=SEED)["posterior"]["f"].to_numpy()
            seconds = time.process_time() - started
            own_mean, own_ess, own_error = summary(ours)
            z = np.max(np.abs(mean - own_mean) / np.hypot(error, own_error))
            ratio = (own_ess.min() / seconds) / (ess.min() / took)
            yield (
                f"{name}, n = {n}: smallest ESS a CPU second over NUTS'; largest |z| of means",
                f">= {asked}; <= 4",
                f"{ratio:.0f}; {z:.1f} (NUTS {ess.min():.0f} in {took:.1f} s, "
                f"exact {own_ess.min():.0f} in {seconds:.2f} s)",
            )


LEARNT = {
    "logit": lambda: lk.BernoulliLogit(),
    "Poisson": lambda: lk.Poisson(),
    "negative binomial, 3": lambda: lk.NegativeBinomial(pm.HalfNormal("alpha", sigma=5)),
}


def learnt_model(name, n):
    """A model with random hyperparameters, its SkewGP, data and likelihood."""
    x, y, _, _ = problem(name, n, 0.5, 2.0)
    with pm.Model() as model:
        ls = pm.InverseGamma("ls", alpha=3, beta=2)
        eta = pm.HalfNormal("eta", sigma=2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
        likelihood = LEARNT[name]()
    return model, gp, x, y, likelihood


def learning():
    """Evidence with its gradient in Choleskys; a search in seconds, and NUTS beside it."""
    for name in LEARNT:
        for n in (300, 1000):
            _, gp, x, y, likelihood = learnt_model(name, n)
            found = process_objective(
                TrainingData(gp, x, y, likelihood), None, np.random.default_rng(0), None
            )
            matrix = np.eye(n) + np.full((n, n), 0.5)
            one = seconds_of(lambda matrix=matrix: cholesky(matrix, lower=True), 20)
            cost = []
            for evaluate in (
                lambda point, o=found.objective: o.on(o.batches).by_ep(point),
                lambda point, o=found.objective: o.by_twisting(point, 256, 0),
            ):
                point = Point(found.origin)
                evaluate(point)
                cost.append(seconds_of(lambda f=evaluate, p=point: f(p), 3) / one)
            yield (
                f"{name}, n = {n}: evidence with gradient in Choleskys, EP; exact, 256 pairs",
                "",
                f"{cost[0]:.0f}; {cost[1]:.0f} (kernel and its gradient included)",
            )
    for name in LEARNT:
        model, gp, x, y, likelihood = learnt_model(name, 300)
        started = time.process_time()
        fit = sg.find_hyperparameters(
            gp, x, y, likelihood=likelihood, random_seed=0, progressbar=False, quiet=True
        )
        seconds = time.process_time() - started
        with model:
            gp.marginal_likelihood("y", x, y, likelihood=likelihood, method="ep")
            started = time.process_time()
            trace = pm.sample(
                100,
                tune=100,
                chains=2,
                cores=1,
                random_seed=SEED,
                progressbar=False,
                nuts_sampler="pymc",
                initvals={rv.name: fit.point[rv.name] for rv in model.free_RVs},
            )["posterior"]
        took = time.process_time() - started
        off = []
        for rv in model.free_RVs:
            draws = np.log(trace[rv.name].to_numpy())
            off.append(abs(np.log(fit.point[rv.name]) - draws.mean()) / draws.std())
        yield (
            f"{name}, n = 300: find_hyperparameters; its distance from NUTS' mean of the logs",
            "; <= 1 deviation",
            f"{seconds:.1f} s; {max(off):.2f} (NUTS on the evidence, 2 x 200 draws: {took:.0f} s)",
        )


def seconds_of(function, times):
    """CPU seconds of a call, the median."""
    found = []
    for _ in range(times):
        started = time.process_time()
        function()
        found.append(time.process_time() - started)
    return float(np.median(found))


# Likelihoods of one scale, and data given the predictor: random ones for the honesty of errors.
RANDOM_KINDS = {
    "logit": (lambda s: lk.BernoulliLogit(), lambda g, s, rng: rng.binomial(1, expit(g))),
    "binomial": (lambda s: lk.BinomialLogit(5), lambda g, s, rng: rng.binomial(5, expit(g))),
    "Poisson": (lambda s: lk.Poisson(), lambda g, s, rng: rng.poisson(np.exp(g))),
    "negative binomial": (
        lambda s: lk.NegativeBinomial(2 * s),
        lambda g, s, rng: rng.negative_binomial(2 * s, 2 * s / (2 * s + np.exp(g))),
    ),
    "gamma": (
        lambda s: lk.Gamma(2 * s),
        lambda g, s, rng: np.maximum(rng.gamma(2 * s, np.exp(g) / (2 * s)), 1e-300),
    ),
    "ordered logit": (
        lambda s: lk.OrderedLogit(CUTPOINTS),
        lambda g, s, rng: np.searchsorted(CUTPOINTS, g + rng.logistic(size=g.size)),
    ),
    "Student-t": (
        lambda s: lk.StudentT(4.0, s),
        lambda g, s, rng: g + s * rng.standard_t(4, size=g.size),
    ),
    "Laplace": (lambda s: lk.Laplace(s), lambda g, s, rng: g + rng.laplace(scale=s, size=g.size)),
}
N_HONEST = 500
# Smaller differences count as none: what the quadrature may err where noise has a kink, and tails
# so far out that no draw meets them.
FLOOR = 1e-4


def error_ratios(index):
    """Errors over stated errors of the evidence, mean, deviation and skewness of f at a point."""
    rng = np.random.default_rng([SEED, index])
    make, draw = list(RANDOM_KINDS.values())[index % len(RANDOM_KINDS)]
    n = int(rng.integers(1, 3))
    scale = float(np.exp(rng.uniform(-1.9, 0.5)))
    kernel = RBF(np.exp(rng.uniform(-1.5, 0.7)), np.exp(rng.uniform(-1.2, 2.3)))
    x = np.sort(rng.uniform(-2, 2, n))[:, None]
    cov = kernel(x) + 1e-10 * np.eye(n)
    likelihood = make(scale)
    y = draw(np.linalg.cholesky(cov) @ rng.standard_normal(n), scale, rng)
    exact = site_posterior(
        np.zeros(n),
        cov,
        lambda f: likelihood.log_likelihood(y, f.T).sum(axis=-1),
        {1: 8001, 2: 1001}[n],
    )
    posterior = sg.SkewGPPosterior(x, y, cov_func=kernel, likelihood=likelihood, random_seed=index)
    found, at = posterior.log_marginal_likelihood, posterior.marginals()
    pairs = [(found.value - exact.log_evidence, found.std_error)] + [
        (value[0] - wanted[0], error[0])
        for value, error, wanted in zip(at.moments, at.moment_errors, exact[1:], strict=True)
    ]
    return [max(abs(off) - FLOOR, 0.0) / error for off, error in pairs]


def honest():
    """Errors over stated ones against quadrature, random problems of one or two data."""
    ratio = np.array([error_ratios(index) for index in range(N_HONEST)])
    kinds = np.array(list(RANDOM_KINDS))[np.arange(N_HONEST) % len(RANDOM_KINDS)]
    for i, what in enumerate(("evidence", "mean", "deviation", "skewness")):
        for name in ("all", *RANDOM_KINDS):
            one = ratio[:, i] if name == "all" else ratio[kinds == name, i]
            yield (
                f"{what}, {name}, {one.size} problems: beyond 2; beyond 4; largest",
                "<= 10 %; <= .7 %; <= 8",
                f"{(one > 2).mean():.1%}; {(one > 4).mean():.1%}; {one.max():.1f}",
            )


def described(posterior, started):
    """Log evidence, relative ESS and CPU seconds as text."""
    evidence = posterior.log_marginal_likelihood
    return (
        f"log evidence {evidence.value:.2f} +- {evidence.std_error:.3f}; relative ESS "
        f"{evidence.relative_ess:.2f}; {time.process_time() - started:.1f} s"
    )


def magic(data):
    """1000 rows, and 1000 to test, under either link: the kernel in units of the link's noise."""
    rows = np.load(data / "large" / "magic.npz")
    chosen = np.random.default_rng(SEED).permutation(len(rows["y"]))[:2000]  # sorted by class
    X, y = rows["X"][chosen].astype(float), rows["y"][chosen].astype(int)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    train, test = np.arange(1000), np.arange(1000, 2000)
    for name, likelihood, scale in (
        ("probit", lk.BernoulliProbit(), 1.0),
        ("logit", lk.BernoulliLogit(), 1.7),
    ):
        gp = sg.SkewGP(cov_func=(scale * 2.0) ** 2 * pm.gp.cov.ExpQuad(X.shape[1], ls=3.0))
        started = time.process_time()
        posterior = gp.posterior(X[train], y[train], likelihood=likelihood)
        found = posterior.predict(X[test], draws=0, quantiles=())["predictions_summary"]["p_mean"]
        loss = -np.log(np.where(y[test] == 1, found.to_numpy(), 1.0 - found.to_numpy()))
        yield (
            f"magic, 1000 rows, {name}: log loss of 1000 others",
            "",
            f"{loss.mean():.4f} +- {loss.std() / len(loss) ** 0.5:.4f}; "
            + described(posterior, started),
        )


def coal(data):
    """Disasters a year; the largest difference to NUTS in the mean of the log rate."""
    date = np.load(data / "counts" / "coal.npz")["date"]
    year = np.arange(1851, 1963)
    y = np.bincount(date.astype(int) - 1851, minlength=year.size)
    x = (year - 1906.0)[:, None] / 10.0
    gp = sg.SkewGP(mean_func=pm.gp.mean.Constant(0.5), cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    started = time.process_time()
    posterior = gp.posterior(x, y, likelihood=lk.Poisson())
    ours = posterior.sample(1000, 4, random_seed=SEED)["posterior"]["f"].to_numpy()
    text = described(posterior, started)

    def build():
        mean = pm.gp.mean.Constant(0.5)
        f = pm.gp.Latent(mean_func=mean, cov_func=pm.gp.cov.ExpQuad(1, ls=2.0)).prior("f", X=x)
        pm.Poisson("y", pm.math.exp(f), observed=y)
        return ["f"]

    yield "coal mining disasters, 112 years, Poisson", "", f"{text}; {agreement(ours, build)}"


def epil(data):
    """Seizures of 59 patients: a patient's effect, and one of each visit (over-dispersion)."""
    rows = np.load(data / "counts" / "epil.npz")
    base, y = np.log(rows["base"] / 4.0), rows["y"]
    columns = [np.ones(y.size), base - base.mean(), rows["treated"], rows["period"] == 4]
    Z, subject = np.column_stack(columns).astype(float), rows["subject"]

    def kernel(A, B=None, diag=False):
        """Coefficients N(0, 4), patients N(0, .25), visits N(0, .1)."""
        if diag:
            return 4.0 * (A[:, :4] ** 2).sum(axis=1) + 0.35
        same = A[:, 4:5] == (A if B is None else B)[:, 4]
        K = 4.0 * A[:, :4] @ (A if B is None else B)[:, :4].T + 0.25 * same
        return K + 0.1 * np.eye(len(A)) if B is None else K

    started = time.process_time()
    posterior = sg.SkewGPPosterior(
        np.column_stack([Z, subject]), y, cov_func=kernel, likelihood=lk.Poisson()
    )
    ours = posterior.sample(1000, 4, random_seed=SEED)["posterior"]["f"].to_numpy()
    text = described(posterior, started)

    def build():
        b = pm.Normal("b", 0.0, 2.0, shape=4)
        patient = pm.Normal("patient", 0.0, 1.0, shape=59)
        visit = pm.Normal("visit", 0.0, 1.0, shape=y.size)
        eta = Z @ b + 0.5 * patient[subject - 1] + np.sqrt(0.1) * visit
        f = pm.Deterministic("f", eta)
        pm.Poisson("y", pm.math.exp(f), observed=y)
        return ["f"]

    yield "epil, 236 visits of 59 patients, Poisson", "", f"{text}; {agreement(ours, build)}"


def agreement(ours, build):
    """Largest difference of means to NUTS, in joint errors, and the ratio of efficiencies."""
    f, took = nuts(build)
    mean, ess, error = summary(f)
    own_mean, _, own_error = summary(ours)
    z = np.max(np.abs(mean - own_mean) / np.hypot(error, own_error))
    return (
        f"largest |z| of means to NUTS {z:.1f} (its smallest ESS {ess.min():.0f} in {took:.0f} s)"
    )


def real(data):
    """Real data: logit beside probit, disasters a year, seizures with effects of patients."""
    yield from magic(data)
    yield from coal(data)
    yield from epil(data)


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    sections = {
        "table": table,
        "choleskys": choleskys,
        "honest": honest,
        "nuts": against_nuts,
        "learning": learning,
        "real": functools.partial(real, options.data),
    }
    run_sections(sections, options.out / "sites.csv", options.only, PACKAGES)


if __name__ == "__main__":
    main()
