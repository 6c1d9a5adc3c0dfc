"""Models of Bambi as they are built: exact posteriors beside Bambi's own NUTS.

Run ``python benchmarks/bambi_models.py`` (all), or with words of the names of some. A row a model:
CPU seconds of both, the log evidence with its error, the relative ESS, and the largest difference
of a posterior mean over all scalars, in joint Monte Carlo errors, with how many there are. Then
whether ``predict`` and ``bambi.interpret`` run on the result, and the largest difference of a mean
prediction, in joint errors. Needs bambi.
"""

import sys
import time
import warnings

import arviz as az
import bambi as bmb
import numpy as np
import pandas as pd
from scipy.special import expit

import pymc_skewgp as sg

ROWS = 120
MODELS = {
    "bernoulli logit": ("label ~ x + (1|g)", {"family": "bernoulli"}),
    "bernoulli probit, crossed": (
        "label ~ x + (1|g) + (1|h)",
        {"family": "bernoulli", "link": "probit"},
    ),
    "poisson, crossed": ("count ~ x + (1|g) + (1|h)", {"family": "poisson"}),
    "poisson, nested": ("count ~ x + (1|g/treat)", {"family": "poisson"}),
    "poisson, slopes": ("count ~ x + (x|g)", {"family": "poisson"}),
    "poisson, centred effects": ("count ~ x + (1|g)", {"family": "poisson", "noncentered": False}),
    "poisson, no effects": ("count ~ x + treat", {"family": "poisson"}),
    "poisson, hsgp": ("count ~ x + hsgp(t, m=8, c=1.5)", {"family": "poisson"}),
    "binomial": ("p(hits, trials) ~ x + (1|g)", {"family": "binomial"}),
    "negative binomial": ("over ~ x + (1|g)", {"family": "negativebinomial"}),
    "gaussian, slopes": ("y ~ x + (x|g)", {}),
    "gaussian, splines": ("y ~ bs(t, df=6) + (1|g)", {}),
    "gaussian, hsgp": ("y ~ x + hsgp(t, m=8, c=1.5)", {}),
    "t": ("heavy ~ x + (1|g)", {"family": "t"}),
    "gamma, log": ("positive ~ x + (1|g)", {"family": "gamma", "link": "log"}),
    "beta": ("share ~ x + (1|g)", {"family": "beta"}),
    "cumulative": ("grade ~ x + (1|g)", {"family": "cumulative"}),
}


def simulated(seed=1):
    """A column for each family, all from one predictor."""
    rng = np.random.default_rng(seed)
    g, h = rng.integers(0, 8, ROWS), rng.integers(0, 5, ROWS)
    x, t = rng.normal(size=ROWS), np.sort(rng.uniform(-2, 2, ROWS))
    level = (0.7 * rng.normal(size=8))[g] + (0.5 * rng.normal(size=5))[h]
    eta = 0.3 + 0.6 * x + level
    mean, trials = expit(0.6 * eta), rng.integers(3, 15, ROWS)
    return pd.DataFrame(
        {
            "x": x,
            "t": t,
            "g": g.astype(str),
            "h": h.astype(str),
            "treat": rng.integers(0, 2, ROWS).astype(str),
            "label": (rng.uniform(size=ROWS) < expit(eta)).astype(int),
            "count": rng.poisson(np.exp(0.5 * eta + 0.4 * np.sin(2 * t))),
            "trials": trials,
            "hits": rng.binomial(trials, expit(eta)),
            "over": rng.negative_binomial(3, 3 / (3 + np.exp(0.5 * eta + 0.5))),
            "y": eta + np.sin(2 * t) + (0.4 * rng.normal(size=8))[g] * x + rng.normal(size=ROWS),
            "heavy": eta + 0.4 * rng.standard_t(3, size=ROWS),
            "positive": rng.gamma(3, np.exp(0.4 * eta) / 3),
            "share": np.clip(rng.beta(8 * mean, 8 - 8 * mean), 0.002, 0.998),
            "grade": pd.Categorical(
                np.digitize(eta + rng.logistic(size=ROWS), [-1.0, 0.3, 1.5]), ordered=True
            ),
        }
    )


def mean_and_error(draws):
    """Of each scalar."""
    values = np.asarray(draws).reshape(*draws.shape[:2], -1)
    ess = np.array([float(az.ess(values[..., i])) for i in range(values.shape[-1])])
    flat = values.reshape(-1, values.shape[-1])
    return flat.mean(axis=0), flat.std(axis=0) / np.sqrt(ess)


def gaps(ours, theirs):
    """Differences of means in joint Monte Carlo errors, of what varies."""
    (mean, error), (other, other_error) = mean_and_error(ours), mean_and_error(theirs)
    joint = np.hypot(error, other_error)
    return ((mean - other) / joint)[joint > 0]


def row(name, data):
    formula, options = MODELS[name]
    model = bmb.Model(formula, data, **options)
    began = time.process_time()
    ours = sg.integrate(model, draws=1000, chains=2, random_seed=0, progressbar=False)
    exact = time.process_time() - began
    attrs = ours["posterior"].attrs
    began = time.process_time()
    theirs = model.fit(
        draws=1000, tune=1000, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True
    )
    nuts = time.process_time() - began
    names = [x for x in theirs["posterior"].data_vars if x in ours["posterior"]]
    missing = sorted(set(theirs["posterior"].data_vars) - set(names))
    each = [gaps(ours["posterior"][x].values, theirs["posterior"][x].values) for x in names]
    found = np.concatenate(each)
    predicted = [
        model.predict(tree, kind="response_params", inplace=False)["posterior"]
        for tree in (ours, theirs)
    ]
    parent = model.family.likelihood.parent
    of_rows = gaps(*(x[parent].values[:, :, :12] for x in predicted))
    model.predict(ours, kind="response", inplace=True)
    bmb.interpret.comparisons(model, ours, "x" if "x" in formula else "t")
    print(
        f"{name:28s} {exact:6.1f} {nuts:6.1f} {attrs['log_evidence']:9.3f} "
        f"{attrs['log_evidence_se']:.3f} {attrs['relative_ess']:.2f} "
        f"{found[np.abs(found).argmax()]:+5.1f} ({found.size}) {missing or ''} "
        f"predict {of_rows[np.abs(of_rows).argmax()]:+5.1f}, interpret runs",
        flush=True,
    )


def main(words):
    print("model, CPU s exact, CPU s NUTS, log evidence, its error, ESS, largest gap of a mean")
    for name in MODELS:
        if not words or any(word in name.split(", ") for word in words):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row(name, simulated())


if __name__ == "__main__":
    main(sys.argv[1:])
