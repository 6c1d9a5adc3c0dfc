"""Models of Bambi as they are built: exact posteriors beside Bambi's own NUTS.

    python benchmarks/bambi_models.py [--only NAME ...]

A process and a row a model, of those that have no row yet. A row has CPU seconds with compilation,
the log evidence, and the largest differences of means and standard deviations over all scalars of
the posterior, in joint Monte Carlo errors, with how many scalars there are. Then the same of what
follows from the results: ``predict`` at the data and for new groups, and the effects of
``bambi.interpret``. Needs bambi.
"""

import argparse
import functools
import resource
import warnings
from pathlib import Path

import arviz as az
import bambi as bmb
import numpy as np
import pandas as pd
from latent_models import BEYOND, SEED, compared, watched
from references import scalars
from runner import append_rows, machine, read_rows
from scipy.special import expit

import pymc_skewgp as sg

ROWS = 120
OUT = Path(__file__).resolve().parent / "results" / "bambi.csv"
FIELDS = (
    "model",
    "answer",
    "reason",
    "cpu_exact",
    "cpu_nuts",
    "log_evidence",
    "se",
    "relative_ess",
    "relative_ess_exact",
    "method",
    "warnings",
    "divergences",
    "parameters",
    "mean_z",
    "mean_of",
    "sd_z",
    "sd_of",
    "predict_z",
    "new_groups_z",
    "interpret_z",
    "verdict",
)
# Formula and arguments. A formula of several parameters is a tuple.
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
    # Beyond the usual ones.
    "bernoulli cloglog": ("label ~ x + (1|g)", {"family": "bernoulli", "link": "cloglog"}),
    "cumulative probit": ("grade ~ x + (1|g)", {"family": "cumulative", "link": "probit"}),
    "sratio": ("grade ~ x + (1|g)", {"family": "sratio"}),
    "beta-binomial": ("p(hits, trials) ~ x + (1|g)", {"family": "beta_binomial"}),
    "laplace": ("heavy ~ x + (1|g)", {"family": "laplace"}),
    "lognormal": ("positive ~ x + (1|g)", {"family": "lognormal"}),
    "weibull": ("positive ~ x + (1|g)", {"family": "weibull"}),
    "wald, log": ("positive ~ x + (1|g)", {"family": "wald", "link": "log"}),
    "exponential": ("positive ~ x + (1|g)", {"family": "exponential"}),
    "zero-inflated poisson": ("count ~ x + (1|g)", {"family": "zero_inflated_poisson"}),
    "hurdle poisson": ("count ~ x + (1|g)", {"family": "hurdle_poisson"}),
    "poisson, offset": ("hits ~ x + offset(log(trials)) + (1|g)", {"family": "poisson"}),
    "poisson, interaction": ("count ~ 0 + x:treat + treat + (1|g)", {"family": "poisson"}),
    "poisson, hsgp by group": (
        "count ~ hsgp(t, m=6, c=1.5, by=treat)",
        {"family": "poisson"},
    ),
    "gaussian, weighted": ("weighted(y, trials) ~ x + (1|g)", {}),
    "gaussian, censored": ("censored(top, status) ~ x + (1|g)", {}),
    "poisson, truncated": ("truncated(one, lb=1) ~ x + (1|g)", {"family": "poisson"}),
    "gaussian, sigma of x": (("y ~ x + (1|g)", "sigma ~ x"), {}),
    "gaussian, log link": ("positive ~ x", {"link": "log"}),
    "categorical": ("grade ~ x", {"family": "categorical"}),
}


def simulated(seed=1):
    """A column for each family, all from one predictor."""
    rng = np.random.default_rng(seed)
    g, h = rng.integers(0, 8, ROWS), rng.integers(0, 5, ROWS)
    x, t = rng.normal(size=ROWS), np.sort(rng.uniform(-2, 2, ROWS))
    level = (0.7 * rng.normal(size=8))[g] + (0.5 * rng.normal(size=5))[h]
    eta = 0.3 + 0.6 * x + level
    mean, trials = expit(0.6 * eta), rng.integers(3, 15, ROWS)
    y = eta + np.sin(2 * t) + (0.4 * rng.normal(size=8))[g] * x + rng.normal(size=ROWS)
    return pd.DataFrame(
        {
            "x": x,
            "t": t,
            "g": g.astype(str),
            "h": h.astype(str),
            "treat": rng.integers(0, 2, ROWS).astype(str),
            "label": (rng.uniform(size=ROWS) < expit(eta)).astype(int),
            "count": (count := rng.poisson(np.exp(0.5 * eta + 0.4 * np.sin(2 * t)))),
            "one": np.maximum(count, 1),
            "trials": trials,
            "hits": rng.binomial(trials, expit(eta)),
            "over": rng.negative_binomial(3, 3 / (3 + np.exp(0.5 * eta + 0.5))),
            "y": y,
            "top": np.minimum(y, 1.5),
            "status": np.where(y > 1.5, "right", "none"),
            "heavy": eta + 0.4 * rng.standard_t(3, size=ROWS),
            "positive": rng.gamma(3, np.exp(0.4 * eta) / 3),
            "share": np.clip(rng.beta(8 * mean, 8 - 8 * mean), 0.002, 0.998),
            "grade": pd.Categorical(
                np.digitize(eta + rng.logistic(size=ROWS), [-1.0, 0.3, 1.5]), ordered=True
            ),
        }
    )


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def gap(ours, theirs):
    """The largest difference of the means of two arrays of draws, in joint Monte Carlo errors."""

    def summary(draws):
        flat = np.asarray(draws).reshape(*draws.shape[:2], -1)
        errors = [float(az.mcse(flat[..., i])) for i in range(flat.shape[-1])]
        return flat.mean(axis=(0, 1)), np.array(errors)

    (mean, error), (other, other_error) = summary(ours), summary(theirs)
    joint = np.hypot(error, other_error)
    varies = joint > 0
    return float(np.abs((mean - other)[varies] / joint[varies]).max(initial=0.0))


def reference_of(posterior):
    """Mean, deviation and effective draws of each scalar, as `compared` asks for them."""
    found = {}
    for name in posterior.data_vars:
        draws = posterior[name].to_numpy()
        flat = draws.reshape(*draws.shape[:2], -1)
        for i, scalar in enumerate(scalars(str(name), draws.shape[2:])):
            x = flat[..., i]
            if x.std() > 0:  # what is 0 by construction is no draw
                ess = min(float(az.ess(x, method=method)) for method in ("mean", "sd"))
                found[scalar] = (float(x.mean()), float(x.std()), ess)
    return found


def downstream(model, trees, data):
    """Of predictions at the data and of a new group, and of effects: the largest gaps."""
    parent = model.family.likelihood.parent
    seen = [
        model.predict(tree, kind="response_params", inplace=False)["posterior"][parent]
        for tree in trees
    ]
    found = {"predict_z": f"{gap(*(x.to_numpy()[:, :, :12] for x in seen)):.2f}"}
    new = data.iloc[:6].assign(g="new", h="new")
    at = [
        model.predict(
            tree, kind="response", data=new, sample_new_groups=True, inplace=False, random_seed=SEED
        )["posterior_predictive"]
        for tree in trees
    ]
    (name,) = at[0].data_vars
    found["new_groups_z"] = f"{gap(*(x[name].to_numpy() for x in at)):.2f}"
    covariate = "x" if "x" in data and "x" in str(model.formula) else "t"
    at_two = {covariate: [-0.5, 0.5]}
    effects = [bmb.interpret.comparisons(model, tree, at_two).draws for tree in trees]
    drawn = [x["posterior"][parent].to_numpy() for x in effects]
    return found | {"interpret_z": f"{gap(*drawn):.2f}"}


def answer(name):
    """The row of one model."""
    formula, options = MODELS[name]
    data = simulated()
    whole = bmb.Formula(*formula) if isinstance(formula, tuple) else formula
    model = bmb.Model(whole, data, **options)
    began = cpu_seconds()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            ours = sg.integrate(model, random_seed=SEED, progressbar=False)
        except Exception as error:
            kind = "refused" if isinstance(error, (TypeError, ValueError)) else "failed"
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return {"answer": kind, "reason": text[:600]}
    own = {x.category.__name__ for x in heard if issubclass(x.category, sg.SkewGPWarning)}
    attrs = ours["posterior"].attrs
    found = {
        "answer": "taken",
        "cpu_exact": f"{cpu_seconds() - began:.1f}",
        "log_evidence": f"{attrs['log_evidence']:.3f}",
        "se": f"{attrs['log_evidence_se']:.3f}",
        "relative_ess": f"{attrs['relative_ess']:.2f}",
        "relative_ess_exact": f"{attrs['relative_ess_exact']:.2f}",
        "method": attrs["method"],
        "warnings": " ".join(sorted(own)),
    }
    warnings.simplefilter("ignore")
    began = cpu_seconds()
    theirs = model.fit(
        draws=2000, chains=2, cores=1, target_accept=0.95, random_seed=SEED, progressbar=False
    )
    found["cpu_nuts"] = f"{cpu_seconds() - began:.1f}"
    found["divergences"] = int(theirs["sample_stats"]["diverging"].sum())
    missing = set(theirs["posterior"].data_vars).symmetric_difference(ours["posterior"].data_vars)
    found |= compared(ours["posterior"], reference_of(theirs["posterior"]))
    try:
        found |= downstream(model, (ours, theirs), data)
    except Exception as error:  # of Bambi, on either tree: the row says which
        found["reason"] = f"downstream: {type(error).__name__}: {error}"[:600]
    if missing:
        found |= {"verdict": "beyond", "reason": f"variables of one alone: {sorted(missing)}"}
    if max(float(found.get(f"{x}_z", 0)) for x in ("predict", "new_groups", "interpret")) > BEYOND:
        found["verdict"] = "beyond"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="models, run again where they have a row")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--cpu-seconds", type=float, default=400.0)
    args = parser.parse_args()
    host = machine(("numpy", "scipy", "numba", "pymc", "bambi"))
    done = read_rows(args.out)
    if args.only:
        kept = [row for row in done if row["model"] not in args.only]
        args.out.unlink(missing_ok=True)
        for row in kept:
            append_rows(args.out, [{f: row[f] for f in FIELDS}], row["machine"], FIELDS)
    finished = {row["model"] for row in done}
    for name in args.only or [name for name in MODELS if name not in finished]:
        found = watched(functools.partial(answer, name), args.cpu_seconds)
        row = dict.fromkeys(FIELDS, "")
        row |= found.found or {"answer": "stopped", "reason": found.stopped}
        row = {f: row[f] for f in FIELDS} | {"model": name}
        append_rows(args.out, [row], host, FIELDS)
        shown = ("answer", "cpu_exact", "cpu_nuts", "relative_ess", "parameters", "mean_z", "sd_z")
        more = ("predict_z", "new_groups_z", "interpret_z", "verdict", "warnings", "reason")
        print(name, *(row[key] for key in (*shown, *more)), flush=True)


if __name__ == "__main__":
    main()
