"""Censored regression and selection on data that textbooks use, against likelihood and NUTS.

Maximum likelihood is scipy's, of ten lines; it is checked against what was published:

* affairs: W. Greene (2003), Econometric analysis, table 22.3, as R's ``AER::tobit`` has it;
* hours and wages of Mroz's women: J. Wooldridge (2010), Econometric analysis of cross section and
  panel data, table 17.2 and example 19.6; log likelihoods as Stata has them.

The exact posterior and NUTS share one model: linear, coefficients N(0, 10^2) in standardised units.
Hyperparameters, such as the noise, are those of maximum likelihood for both.
"""

import logging
import time

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from fold_scores import SEED, folds
from gaussian_forecasts import at_new_points
from scipy.optimize import minimize
from scipy.special import log_ndtr
from scipy.stats import norm

import pymc_skewgp as sg

lk = sg.likelihoods
PRIOR_SD = 10.0
TOBIT = {
    "affairs": (
        ("age", "yearsmarried", "religiousness", "occupation", "rating"),
        (8.1742, -0.1793, 0.5541, -1.6862, 0.3261, -2.2850), -705.58,
    ),
    "mroz": (
        ("nwifeinc", "educ", "exper", "expersq", "age", "kidslt6", "kidsge6"),
        (965.31, -8.81, 80.65, 131.56, -1.86, -54.41, -894.02, -16.22), -3819.09,
    ),
}  # fmt: skip
WAGES = ("educ", "exper", "expersq")
HECKMAN = (-0.5526974, 0.1083502, 0.0428369, -0.0008374), 0.0266, -832.885


def loaded(data, name):
    """Columns by the names of the textbooks, the censored variable, and the wage."""
    with np.load(data / "censored" / f"{name}.npz", allow_pickle=True) as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
        columns = dict(zip([str(c) for c in file["columns"]], X.T, strict=True))
        wage = file["wage"].astype(float) if "wage" in file.files else None
    if wage is not None:
        earned = np.where(y > 0, np.nan_to_num(wage) * y, 0.0)
        columns |= {
            "nwifeinc": (columns["fincome"] - earned) / 1000.0,
            "educ": columns["education"],
            "exper": columns["experience"],
            "expersq": columns["experience"] ** 2,
            "kidslt6": columns["youngkids"],
            "kidsge6": columns["oldkids"],
        }
    return columns, y, wage


def standardised(columns, names):
    """Z with a first column of ones, and the matrix M with X = Z M."""
    X = np.column_stack([columns[name] for name in names])
    mean, sd = X.mean(axis=0), X.std(axis=0)
    return np.column_stack([np.ones(len(X)), (X - mean) / sd]), mean, sd


def in_units(b, mean, sd):
    """Coefficients of the standardised features as those of the features."""
    slopes = b[1:] / sd
    return np.concatenate([[b[0] - mean @ slopes], slopes])


# --- maximum likelihood --------------------------------------------------------------------------


def log_tobit(b, sigma, Z, y):
    z = (y - Z @ b) / sigma
    return np.where(y > 0, norm.logpdf(z) - np.log(sigma), log_ndtr(z))


def tobit_likelihood(Z, y):
    """Coefficients, sigma, log likelihood."""
    scale = y.std()
    start = np.append(np.linalg.lstsq(Z, y / scale, rcond=None)[0], 0.0)
    found = minimize(
        lambda t: -log_tobit(t[:-1], np.exp(t[-1]), Z, y / scale).sum(), start, tol=1e-9
    ).x
    b, sigma = found[:-1] * scale, np.exp(found[-1]) * scale
    return b, sigma, log_tobit(b, sigma, Z, y).sum()


def log_selection(b, g, sigma, rho, Z, W, y):
    """Heckman's, y being NaN where it was not selected; Z b the outcome, W g its selection."""
    seen = ~np.isnan(y)
    score = W @ g
    z = (y[seen] - Z[seen] @ b) / sigma
    shifted = (score[seen] + rho * z) / np.sqrt(1.0 - rho**2)
    return (
        log_ndtr(-score[~seen]).sum()
        + (log_ndtr(shifted) + norm.logpdf(z) - np.log(sigma)).sum()
    )  # fmt: skip


def heckman_likelihood(Z, W, y):
    """b, g, sigma, rho, log likelihood."""
    k = Z.shape[1]
    seen = ~np.isnan(y)
    b = np.linalg.lstsq(Z[seen], y[seen], rcond=None)[0]
    start = np.concatenate([b, np.zeros(W.shape[1]), [np.log(np.std(y[seen])), 0.0]])

    def lost(t):
        return -log_selection(t[:k], t[k:-2], np.exp(t[-2]), np.tanh(t[-1]), Z, W, y)

    t = minimize(lost, start, tol=1e-9).x
    return t[:k], t[k:-2], np.exp(t[-2]), np.tanh(t[-1]), -lost(t)


# --- exact posterior and NUTS, of coefficients ---------------------------------------------------


def linear(A, B=None, diag=False):
    return PRIOR_SD**2 * ((A * A).sum(axis=1) if diag else A @ (A if B is None else B).T)


def exact(Z, y, likelihood, **more):
    """The posterior, draws of coefficients (chains, draws, d times functions), CPU seconds."""
    started = time.process_time()
    posterior = sg.SkewGPPosterior(Z, y, cov_func=linear, likelihood=likelihood, **more)
    new = posterior.predict(np.eye(Z.shape[1]), draws=1000, quantiles=(), random_seed=SEED)
    f = new["predictions"]["f"].to_numpy()
    return posterior, f.reshape(*f.shape[:2], -1), time.process_time() - started


def nuts(build):
    """Draws of what `build` returns, names of variables; CPU seconds from first to last iteration.

    Compilation is left out.
    """
    logging.getLogger("pymc").setLevel(logging.ERROR)
    times = []
    with pm.Model():
        names = build()
        idata = pm.sample(
            1000, tune=1000, chains=2, cores=1, step=pm.NUTS(), random_seed=SEED,
            progressbar=False, compute_convergence_checks=False,
            callback=lambda trace, draw: times.append(time.process_time()),
        )  # fmt: skip
    values = [idata["posterior"][name].to_numpy() for name in names]
    return np.concatenate([v.reshape(*v.shape[:2], -1) for v in values], axis=2), times[-1] - times[
        0
    ]


def summary(f):
    tree = az.from_dict({"posterior": {"f": f}})
    ess, error = az.ess(tree)["f"].to_numpy(), az.mcse(tree)["f"].to_numpy()
    return f.mean(axis=(0, 1)), ess, error


def compared(what, ours, theirs):
    """Means in joint standard errors; effective draws a second."""
    (f, seconds), (other, took) = ours, theirs
    mean, ess, error = summary(f)
    their_mean, their_ess, their_error = summary(other)
    z = np.abs(mean - their_mean) / np.hypot(error, their_error)
    yield f"{what}: largest difference of means to NUTS, joint errors", "<= 4", f"{z.max():.1f}"
    ratio = (ess.min() / seconds) / (their_ess.min() / took)
    yield (
        f"{what}: smallest ESS a CPU second over NUTS'",
        ">= 50",
        f"{ratio:.0f} ({ess.min():.0f} in {seconds:.2f} s, NUTS {their_ess.min():.0f} in "
        f"{took:.0f} s)",
    )


# --- the section ---------------------------------------------------------------------------------


def censored(data):
    """Affairs, hours and wages: published coefficients, maximum likelihood, NUTS, forecasts."""
    for name, (names, published, log_published) in TOBIT.items():
        columns, y, _ = loaded(data, name)
        Z, mean, sd = standardised(columns, names)
        b, sigma, top = tobit_likelihood(Z, y)
        own = in_units(b, mean, sd)
        off = np.max(np.abs(own - published) / np.maximum(np.abs(published), 0.1))
        what = f"{name} (n={len(y)}, {100 * np.mean(y == 0):.0f} % at 0)"
        yield (
            f"{what}: maximum likelihood, largest relative difference to published coefficients; "
            "log likelihood, published",
            "",
            f"{off:.4f}; {top:.2f}, {log_published:.2f}",
        )
        scale = y.std()
        likelihood = lk.CensoredGaussian(sigma / scale, lower=0.0)
        exact(Z, y / scale, likelihood)  # compiled
        posterior, f, seconds = exact(Z, y / scale, likelihood)
        off = np.abs(f.mean(axis=(0, 1)) * scale - b) / (f.std(axis=(0, 1)) * scale)
        yield (
            f"{what}: posterior means less maximum likelihood, in posterior sd; log evidence",
            "",
            f"{off.max():.3f}; {posterior.log_marginal_likelihood!r}",
        )

        def build(Z=Z, y=y / scale, sigma=sigma / scale):
            b = pm.Normal("b", 0.0, PRIOR_SD, shape=Z.shape[1])
            pm.Censored("y", pm.Normal.dist(Z @ b, sigma), lower=0.0, upper=None, observed=y)
            return ["b"]

        yield from compared(what, (f, seconds), nuts(build))
        yield from approximations(what, posterior, Z, y / scale, f)
        yield from forecasts(what, columns, names, y)
    yield from selection(data)


def approximations(what, posterior, Z, y, f):
    """EP and Laplace at the same hyperparameters."""
    new = np.eye(Z.shape[1])
    centre, sd = f.mean(axis=(0, 1)), f.std(axis=(0, 1))
    for method in ("EP", "Laplace"):
        mean, cov = at_new_points(posterior, (Z, y), new, method)
        off = np.abs(mean - centre) / sd
        ratio = np.sqrt(cov.diagonal()) / sd
        yield (
            f"{what}, {method}: coefficients off, in posterior sd; sd over the exact ones",
            "",
            f"{off.max():.3f}; {ratio.min():.3f} to {ratio.max():.3f}",
        )


def linear_and_smooth(d):
    """A straight line and what departs from it, with weak priors."""
    ls = pm.InverseGamma("ls", 2.0, 3.0 * np.sqrt(d))
    smooth = pm.HalfNormal("smooth", 1.0) ** 2 * pm.gp.cov.ExpQuad(d, ls=ls)
    return pm.HalfNormal("slope", 1.0) ** 2 * pm.gp.cov.Linear(d, c=np.zeros(d)) + smooth


def forecasts(what, columns, names, y):
    """Log score of values left out, a density or the probability of the limit: GP, linear tobit."""
    X = np.column_stack([columns[name] for name in names])
    kernels = {"rbf": "rbf", "linear + rbf": linear_and_smooth}
    scores = {"rbf": [], "linear + rbf": [], "linear tobit": []}
    for train, test in folds(y > 0, len(y)):
        mean, sd, scale = X[train].mean(axis=0), X[train].std(axis=0), y[train].std()
        Z, new = (X[train] - mean) / sd, (X[test] - mean) / sd
        for kernel, function in kernels.items():
            model = sg.SkewGPRegressor(function, censoring=(0.0, None), random_state=SEED)
            model.fit(Z, y[train] / scale)
            new_f = model.sample_latent(new, draws=250, random_state=SEED)["predictions"]["f"]
            sigma = float(model.posterior_.likelihood.sigma)
            z = (y[test] / scale - new_f.to_numpy().reshape(-1, len(test))) / sigma
            density = np.where(y[test] > 0, norm.logpdf(z) - np.log(sigma * scale), log_ndtr(z))
            scores[kernel].append(np.logaddexp.reduce(density).mean() - np.log(len(z)))
        Z, new = (np.column_stack([np.ones(len(A)), A]) for A in (Z, new))
        b, sigma, _ = tobit_likelihood(Z, y[train])
        scores["linear tobit"].append(log_tobit(b, sigma, new, y[test]).mean())
    for kernel in kernels:
        gap = np.subtract(scores[kernel], scores["linear tobit"])
        yield (
            f"{what}: log score of new rows: GP ({kernel}), linear tobit; difference",
            ">= 0",
            f"{np.mean(scores[kernel]):.3f}, {np.mean(scores['linear tobit']):.3f}; "
            f"{gap.mean():+.3f} +- {gap.std(ddof=1) / np.sqrt(len(gap)):.3f}",
        )


def selection(data):
    """Wages seen only of those who work: Heckman's model."""
    columns, hours, wage = loaded(data, "mroz")
    y = np.where(hours > 0, np.log(np.where(hours > 0, wage, 1.0)), np.nan)
    names = ("educ", "exper", "expersq", "nwifeinc", "age", "kidslt6", "kidsge6")
    W, mean, sd = standardised(columns, names)
    k = 1 + len(WAGES)  # the first columns
    b, _, _, rho, top = heckman_likelihood(W[:, :k], W, y)
    published, rho_published, log_published = HECKMAN
    off = np.abs(in_units(b, mean[: k - 1], sd[: k - 1]) / published - 1.0).max()
    yield (
        "wages, Heckman: maximum likelihood, largest relative difference to the published; rho, "
        "published; log likelihood, published",
        "",
        f"{off:.4f}; {rho:.4f}, {rho_published:.4f}; {top:.3f}, {log_published:.3f}",
    )
    # Both functions share the kernel here, so that the outcome has all columns too.
    _, _, sigma, rho, top = heckman_likelihood(W, W, y)
    likelihood = lk.Selection(sigma, rho)
    same = {"coregion": np.eye(2)}
    exact(W, y, likelihood, **same)  # compiled
    _, f, seconds = exact(W, y, likelihood, **same)

    def build():
        coefficients = pm.Normal("b", 0.0, PRIOR_SD, shape=(W.shape[1], 2))
        both = pt.as_tensor(W) @ coefficients
        mean, score = both[:, 0], both[:, 1]
        seen = ~np.isnan(y)
        z = (y[seen] - mean[seen]) / sigma
        shifted = (score[seen] + rho * z) / np.sqrt(1.0 - rho**2)
        standard = pm.Normal.dist(0.0, 1.0)
        total = pm.logcdf(standard, -score[~seen]).sum() + pm.logcdf(standard, shifted).sum()
        pm.Potential("y", total - 0.5 * pt.sum(z**2))
        return ["b"]

    what = f"wages, selection (n={len(y)}, {int(np.isnan(y).sum())} not seen)"
    yield from compared(what, (f, seconds), nuts(build))
    evidences = {}
    for value in (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9):
        again = sg.SkewGPPosterior(
            W, y, cov_func=linear, likelihood=lk.Selection(sigma, value), **same
        )
        evidences[value] = again.log_marginal_likelihood.value
    best = max(evidences, key=evidences.get)
    yield (
        f"{what}: rho by maximum likelihood; log evidence at rho, less its largest",
        "",
        f"{rho:.2f}; " + ", ".join(f"{v}: {e - evidences[best]:.2f}" for v, e in evidences.items()),
    )
