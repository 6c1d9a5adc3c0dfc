"""Several modes: is every wrong posterior warned of or tempered, and are right ones left alone?

    python benchmarks/many_modes.py [--first 80] [--last 119] [--settings ...] [--out DIR]

The problems of `honesty_problems.many_modes`, one to three coordinates under factors that are not
log-concave, with evidence, means and deviations of f by quadrature: with the kernel alone, beside
labels or a sign, both under inducing points that leave nothing of the prior, and as coefficients in
a PyMC model. Rows are appended to ``DIR/many_modes.csv`` as they are known; those in the file are
kept. Asked for: no wrong one that is neither warned of nor tempered, and at most 5 % of the right
ones either.
"""

import argparse
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from honesty_problems import problem, sites
from runner import append_rows, machine, read_rows
from scipy.stats import norm

import pymc_skewgp as sg
from pymc_skewgp._gaussian.coordinates import SiteSampler

RESULTS = Path(__file__).resolve().parent / "results"
# Standard errors beyond which a number is wrong: of a right one and each of two directions of f
# .0002 are, by Student's t of 15 degrees of freedom; and what quadrature leaves.
BEYOND, FLOOR = 5.0, 1e-4
POINTS = np.linspace(-1.5, 1.5, 3)[:, None]  # rank three at most
FIELDS = (
    *("setting", "index", "kind", "evidence", "std_error", "error", "mean", "sd", "sd_off"),
    *("ess", "modes", "tempered", "warned", "seconds"),
)


def beside(case, index):
    """Arguments of a posterior and its truth: with labels at three places, or a sign at one."""
    kernel, likelihood = case.prior["cov_func"], case.prior["likelihood"]
    x, y = case.prior["X"], case.prior["y"]
    rng, n = np.random.default_rng([index, 1]), y.size
    if index % 2:
        at, above = rng.uniform(-1.5, 1.5, (1, 1)), rng.uniform(-0.5, 1.0)
        # The first of the turned coordinates is what the sign is of.
        turned = np.linalg.qr(kernel.features(at).T, mode="complete")[0]
        turned[:, 0] *= np.sign(kernel.features(at)[0] @ turned[:, 0])
        truth = sites.posterior_of_coordinates(
            kernel.features(x) @ turned,
            lambda f: likelihood.log_likelihood(y, f.T).sum(axis=-1),
            sites.above(-above),
        )
        return {**case.prior, "pseudo_points": at, "truncation": above}, truth
    at, labels = rng.uniform(-1.5, 1.5, (3, 1)), rng.integers(0, 2, 3)
    data = [(x, y, likelihood), (at, labels, sg.likelihoods.BernoulliProbit())]

    def log_likelihood(f):
        of_labels = norm.logcdf((2.0 * labels - 1.0)[:, None] * f[n:]).sum(axis=0)
        return likelihood.log_likelihood(y, f[:n].T).sum(axis=-1) + of_labels

    truth = sites.posterior_of_coordinates(kernel.features(np.vstack([x, at])), log_likelihood)
    return {"X": data, "cov_func": kernel}, truth


def of_posterior(prior, truth, index):
    """Evidence, its error, and how far means and deviations of f are off, in their errors."""
    posterior = sg.SkewGPPosterior(**prior, random_seed=index)
    found, at = posterior.log_marginal_likelihood, posterior.marginals()
    parts = (at.moments.mean, at.moments.sd, at.moment_errors.mean, at.moment_errors.sd)
    mean, sd, mean_error, sd_error = (
        np.concatenate(x) if isinstance(x, (list, tuple)) else x for x in parts
    )
    n = mean.size
    off = [
        (np.abs(a - b[:n]) / np.hypot(e, FLOOR)).max()
        for a, b, e in ((mean, truth.mean, mean_error), (sd, truth.sd, sd_error))
    ]
    latent = posterior.latent
    sizes = np.abs(sd / truth.sd[:n] - 1.0).max()
    return found, off, sizes, latent.relative_ess, latent.n_modes


def model_of(case):
    """Coefficients of the features in PyMC."""
    kernel, likelihood = case.prior["cov_func"], case.prior["likelihood"]
    y, features = case.prior["y"], kernel.features(case.prior["X"])
    with pm.Model() as model:
        f = pm.math.dot(features, pm.Normal("c", 0.0, 1.0, shape=features.shape[1]))
        if isinstance(likelihood, sites.Student):
            pm.StudentT("y", likelihood.df, f, sigma=likelihood.scale, observed=y)
        elif isinstance(likelihood, sites.Lapses):
            lapse = likelihood.lapse
            p = lapse + (1.0 - 2.0 * lapse) * pm.math.sigmoid(likelihood.steep * f)
            pm.Bernoulli("y", p, observed=y.astype(int))
        else:
            mu = pt.stack([f + likelihood.apart, f - likelihood.apart], axis=-1)
            share = np.array([likelihood.share, 1.0 - likelihood.share])
            pm.NormalMixture("y", share, mu, sigma=likelihood.scale, observed=y)
    return model, features


def of_model(case, truth, index):
    """The same of coefficients in a model: moments by 4000 equal draws."""
    model, features = model_of(case)
    found = sg.integrate(model, random_seed=index, progressbar=False)
    attrs, c = found["posterior"].attrs, found["posterior"]["c"].to_numpy()
    f = features @ c.reshape(-1, features.shape[1]).T
    ess = float(found["sample_stats"]["relative_ess"].mean())
    draws = f.shape[1] * ess
    mean, sd = f.mean(axis=1), f.std(axis=1)
    fourth = ((f - mean[:, None]) ** 4).mean(axis=1) / sd**4
    errors = sd / np.sqrt(draws), 0.5 * sd * np.sqrt(np.maximum(fourth - 1.0, 0.1) / draws)
    off = [
        (np.abs(a - b) / np.hypot(e, FLOOR)).max()
        for a, b, e in zip((mean, sd), (truth.mean, truth.sd), errors, strict=True)
    ]
    evidence = sg.Estimate(attrs["log_evidence"], attrs["log_evidence_se"], ess, np.nan)
    sizes = np.abs(sd / truth.sd - 1.0).max()
    return evidence, off, sizes, ess, ""


def measure(setting, index):
    """One row."""
    case = problem("many modes", index)
    prior, truth = beside(case, index) if "beside" in setting else (case.prior, case.whole())
    if "approximated" in setting:
        prior = {**prior, "approximation": sg.approximations.Inducing(POINTS)}
    tempering = SiteSampler._tempered
    with (
        warnings.catch_warnings(record=True) as caught,
        mock.patch.object(SiteSampler, "_tempered", autospec=True, side_effect=tempering) as calls,
    ):
        warnings.simplefilter("always")
        start = time.process_time()
        how = of_model(case, truth, index) if setting == "coefficients" else None
        found, off, sizes, ess, modes = how or of_posterior(prior, truth, index)
        spent = time.process_time() - start
    error = found.value - truth.log_evidence
    size = abs(error) / np.hypot(found.std_error, FLOOR)
    numbers = (size, found.std_error, error, *off, sizes, ess)
    names = " ".join(sorted({w.category.__name__ for w in caught}))
    text = [f"{x:.3g}" for x in numbers]
    kind = type(case.prior["likelihood"]).__name__
    row = (setting, index, kind, *text, modes, int(calls.called), names, f"{spent:.2f}")
    return dict(zip(FIELDS, row, strict=True))


def wrong(row):
    """Whether a number is off by more than its error allows."""
    return max(float(row[x]) for x in ("evidence", "mean", "sd")) > BEYOND


def warned_or_tempered(row):
    """Whether the draws were tempered, or something was said."""
    return bool(int(row["tempered"])) or bool(row["warned"])


def summary(rows):
    """A line a setting."""
    for setting in dict.fromkeys(r["setting"] for r in rows):
        own = [r for r in rows if r["setting"] == setting]
        off = [r for r in own if wrong(r)]
        silent = [r["index"] for r in off if not warned_or_tempered(r)]
        right = [r for r in own if not wrong(r)]
        tempered = [r["index"] for r in right if warned_or_tempered(r)]
        yield (
            f"{setting}: {len(own)} problems, {len(off)} wrong, silent {silent}; "
            f"{len(right)} right, of which tempered or warned {tempered}; "
            f"{sum(float(r['seconds']) for r in own):.0f} s"
        )


SETTINGS = ("alone", "beside", "approximated", "approximated beside", "coefficients")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=80)
    parser.add_argument("--last", type=int, default=119)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "many_modes.csv"
    done = {(r["setting"], r["index"]) for r in read_rows(path)}
    host = machine()
    indices = range(arguments.first, arguments.last + 1)
    for setting in arguments.settings:
        for index in indices:
            if (setting, str(index)) not in done:
                append_rows(path, [measure(setting, index)], host, FIELDS)
    rows = [
        r
        for r in read_rows(path)
        if int(r["index"]) in indices and r["setting"] in arguments.settings
    ]
    for line in summary(rows):
        print(line)


if __name__ == "__main__":
    main()
