"""Models without a SkewGP through `integrate`: are its draws calibrated, and its errors right?

    python benchmarks/calibration.py ranks [--simulations 200] [--models NAME ...]
    python benchmarks/calibration.py errors [--seeds 40] [--data DIR] [--models NAME ...]
    python benchmarks/calibration.py summary [--picture FILE]

"ranks": simulation-based calibration. Parameters are drawn from the prior and data from these, and
of each scalar, and of the log likelihood, the rank of the truth among 99 posterior draws is
written. `integrate` runs as users have it: 4000 draws, some 256 values of the hyperparameters.
Draws that share one stand side by side, so that of every fortieth no two do, but where a value has
more than a hundredth of the weight; how many differ is written as well. Models without
hyperparameters, where all draws are apart, have 400. Asked for: the empirical
distribution function of each within the simultaneous 99 % band.

"errors": the log evidence and the means of all scalars over seeds, less the right values, over the
stated errors (of means ``az.mcse``). Right is what quadrature gives, where `ORACLES` has it, or a
long run. Asked for is a standard deviation between .65 and 1.35 in each model, .85 and 1.15 in all,
and none beyond 4.5. ``--data`` is the folder of `latent_gaussian.py`, for models of other sources.

Rows are appended as they are known, those in the files are not computed again. The tables go to
``calibration.csv``.
"""

import argparse
import functools
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor
from calibration_models import MODELS, OPTIONS, ORACLES, areas
from latent_gaussian import cases
from latent_gaussian_forms import hsgp
from references import scalars
from runner import append_rows, machine, read_rows
from scipy import stats

import pymc_skewgp as sg

RESULTS = Path(__file__).resolve().parent / "results"
SEED = 35
N_DRAWS = 99  # behind a rank
LONG = 4096  # values of the hyperparameters of a long run; as many others are tried
COST = ("relative_ess", "relative_ess_exact", "n_evidences", "seconds", "warned")
PACKAGES = ("numpy", "scipy", "numba", "pymc", "arviz")
OTHERS = ("eight_schools_c", "eight_schools_nc", "seeds", "salm", "cbpp")


@functools.cache
def simulated(name, count):
    """Draws of the parameters by name, of the data, and the log likelihoods there."""
    build, zeros = MODELS[name]
    model = build(zeros, is_drawn=True) if build is areas else build(zeros)
    (y,) = model.observed_RVs
    drawn = pm.draw([*model.free_RVs, y], draws=count, random_seed=SEED)
    log_p = log_likelihood(model)
    logs = np.array([log_p(*each) for each in zip(*drawn, strict=True)])
    names = [rv.name for rv in model.free_RVs]
    return dict(zip(names, drawn[:-1], strict=True)), drawn[-1], logs


@functools.cache
def built(name):
    build, zeros = MODELS[name]
    return build(zeros)


def log_likelihood(model):
    """As a function of the parameters, on their own scale, and the data."""
    (y,) = model.observed_RVs
    value = y.clone()
    inputs = [*model.free_RVs, value]
    return pytensor.function(inputs, pm.logp(y, value).sum(), on_unused_input="ignore")


def integrated(model, **options):
    """The result, CPU seconds, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        tree = sg.integrate(model, progressbar=False, **options)
        spent = time.process_time() - start
    own = {x.category.__name__ for x in caught if issubclass(x.category, sg.SkewGPWarning)}
    return tree, spent, " ".join(sorted(own))


def ranks(name, index, count):
    """One row."""
    truth, y, logs = simulated(name, count)
    model = built(name)
    with model:  # new data in the same model: most of its functions are made once
        pm.set_data({"data": y[index]})
    tree, spent, warned = integrated(model, random_seed=index, **OPTIONS.get(name, {}))
    posterior = tree["posterior"].dataset.stack(sample=("chain", "draw"))
    rng = np.random.default_rng((SEED, index))
    size = posterior.sizes["sample"]
    places = ((np.arange(N_DRAWS) + rng.uniform()) * size / N_DRAWS).astype(int)
    log_p = tree["log_likelihood"]["y"].to_dataset(name="y").stack(sample=("chain", "draw"))["y"]
    below = {"log_likelihood": (log_p.sum(log_p.dims[0]).to_numpy()[places] < logs[index]).sum()}
    for variable, values in truth.items():
        drawn = posterior[variable].transpose("sample", ...).to_numpy()[places]
        found = (drawn < values[index]).sum(axis=0)
        keys = scalars(variable, found.shape)
        below |= dict(zip(keys, found.ravel(), strict=True))
    evidences = tree["sample_stats"]["log_marginal_likelihood"].to_numpy().ravel()
    attrs = tree["posterior"].attrs
    return {
        "model": name,
        "simulation": index,
        "ranks": " ".join(f"{key}:{rank}" for key, rank in below.items()),
        "different": np.unique(evidences[places]).size,
        "relative_ess": f"{attrs['relative_ess']:.3f}",
        "relative_ess_exact": f"{attrs['relative_ess_exact']:.3f}",
        "method": attrs["method"],
        "seconds": f"{spent:.2f}",
        "compile_time": f"{attrs['compile_time']:.2f}",
        "warned": warned,
    }


def least_tail(u):
    """Smallest of all binomial tails of empirical distribution functions, at i / n.

    As in Sailynoja, Buerkner & Vehtari (2022), doi:10.1007/s11222-022-10090-6; u has shape
    (..., n).
    """
    n = u.shape[-1]
    at = np.arange(1, n) / n
    below = np.array([np.searchsorted(np.sort(x), at, "right") for x in u.reshape(-1, n)])
    tails = np.minimum(stats.binom.cdf(below, n, at), stats.binom.sf(below - 1, n, at))
    return tails.min(axis=1).reshape(u.shape[:-1])


@functools.cache
def null(n, count=20_000):
    """The same of uniform values, in order."""
    return np.sort(least_tail(np.random.default_rng(SEED).random((count, n))))


def places_of(rows):
    """Of each quantity: the truth's place between 0 and 1, by the ranks."""
    rng = np.random.default_rng(SEED)
    table = [dict(item.rsplit(":", 1) for item in row["ranks"].split()) for row in rows]
    found = {key: np.array([int(row[key]) for row in table]) for key in table[0]}
    # Of L draws r are below: uniform between r / (L + 1) and (r + 1) / (L + 1).
    return {key: (r + rng.random(r.size)) / (N_DRAWS + 1) for key, r in found.items()}


def problems(data):
    """Ten models by name, those of other sources where their folder is known."""
    found = {
        name: functools.partial(build, simulated(name, 200)[1][0])
        for name, (build, _) in MODELS.items()
    }
    found["HSGP, probit"] = functools.partial(hsgp, "bernoulli_probit")
    if data is not None:
        known = cases(data)
        found |= {name: known[name].build for name in OTHERS}
    return found


def estimates(tree, names):
    """The log evidence, and means of scalars, with their stated errors."""
    attrs = tree["posterior"].attrs
    found = {"log_evidence": (attrs["log_evidence"], attrs["log_evidence_se"])}
    posterior = tree["posterior"].dataset[names]
    error = az.mcse(posterior, method="mean")
    mean = posterior.mean(("chain", "draw"))
    for name in names:
        keys = scalars(name, mean[name].shape)
        values = zip(mean[name].to_numpy().ravel(), error[name].to_numpy().ravel(), strict=True)
        found |= dict(zip(keys, values, strict=True))
    return found


def as_text(found):
    return " ".join(f"{key}:{value:.8g}:{error:.3g}" for key, (value, error) in found.items())


def from_text(text):
    triples = (item.split(":") for item in text.split())
    return {key: (float(value), float(error)) for key, value, error in triples}


def errors(name, build, seed):
    """One row: of a seed, or the right values, where that is "truth"."""
    model = build()
    names = [rv.name for rv in model.free_RVs]
    if seed == "truth" and name in ORACLES:
        found = {key: (value, 0.0) for key, value in ORACLES[name](model).items()}
        return {"model": name, "seed": seed, "estimates": as_text(found), **dict.fromkeys(COST, "")}
    options = {"random_seed": SEED, "n_evidences": LONG, "draws": 4 * LONG}
    options = options if seed == "truth" else {"random_seed": seed}
    tree, spent, warned = integrated(model, **options)
    attrs = tree["posterior"].attrs
    if seed != "truth":  # what a run says that its draws do not give is no estimate of it
        names = [name for name in names if name not in attrs["heavy_tails"].split(", ")]
    row = {"model": name, "seed": seed, "estimates": as_text(estimates(tree, names))}
    row |= {key: f"{attrs[key]:.3f}" for key in COST[:2]}
    return {**row, "n_evidences": attrs["n_evidences"], "seconds": f"{spent:.2f}", "warned": warned}


def z_of(rows):
    """Errors over stated ones by quantity, shape (runs,); nan where a run disclaims it."""
    truth = next(from_text(row["estimates"]) for row in rows if row["seed"] == "truth")
    found = [from_text(row["estimates"]) for row in rows if row["seed"] != "truth"]
    z = {}
    for key, (value, error) in truth.items():
        means, errors = np.array([x.get(key, (np.nan, np.nan)) for x in found]).T
        z[key] = (means - value) / np.hypot(errors, error)
    return {key: x for key, x in z.items() if np.isfinite(x).any()}


def run_ranks(arguments, path):
    rows = {(row["model"], int(row["simulation"])) for row in read_rows(path)}
    for index in range(arguments.simulations):
        for name in arguments.models or MODELS:
            if (name, index) not in rows:
                row = ranks(name, index, max(arguments.simulations, 200))
                append_rows(path, [row], machine(PACKAGES))


def run_errors(arguments, path):
    rows = {(row["model"], row["seed"]) for row in read_rows(path)}
    known: dict[str, Callable[[], pm.Model]] = problems(arguments.data)
    for seed in ("truth", *map(str, range(arguments.seeds))):
        for name in arguments.models or known:
            if (name, seed) not in rows:
                row = errors(name, known[name], seed if seed == "truth" else int(seed))
                append_rows(path, [row], machine(PACKAGES))


def by_model(path):
    found: dict[str, list[dict[str, str]]] = {}
    for row in read_rows(path):
        found.setdefault(row["model"], []).append(row)
    return found


def lines_of_ranks(groups):
    """Of each model: how many quantities are within the band, and the least p-value."""
    for name, rows in groups.items():
        places = places_of(rows)
        tails = least_tail(np.array(list(places.values())))
        order = null(len(rows))
        p = np.searchsorted(order, tails, "right") / order.size
        least = int(np.argmin(p))
        yield (
            "ranks",
            name,
            len(rows),
            {
                "quantities": p.size,
                "within 99 % band": int((p > 0.01).sum()),
                "least p": f"{p[least]:.4f}",
                "of": list(places)[least],
                "different draws, median and least": f"{_median(rows, 'different'):.0f} "
                f"{min(int(row['different']) for row in rows)}",
            }
            | _cost(rows),
        )


def lines_of_errors(groups):
    """Of each model, and of all: standard deviations of errors over stated ones, about zero."""
    every = []
    for name, rows in groups.items():
        z = z_of(rows)
        evidence, means = z.pop("log_evidence"), np.array(list(z.values()))
        every.append((evidence, means))
        each = np.sqrt(np.nanmean(means**2, axis=1))
        largest = np.nanmax(np.abs(means), axis=1)
        yield (
            "errors",
            name,
            evidence.size,
            {
                "quantities": 1 + len(means),
                "not given": f"{np.isnan(means).mean():.3f}",
                **_sds(evidence, means),
                "of single means": f"{each.min():.2f} {each.max():.2f}",
                "of": list(z)[int(np.argmax(largest))],
            }
            | _cost([row for row in rows if row["seed"] != "truth"]),
        )
    if every:
        evidence = np.concatenate([x for x, _ in every])
        means = np.concatenate([x.ravel() for _, x in every])
        yield "errors", "all", evidence.size, _sds(evidence, means)


def _sds(evidence, means):
    return {
        "sd of z, log evidence": f"{np.sqrt((evidence**2).mean()):.2f}",
        "sd of z, means": f"{np.sqrt(np.nanmean(means**2)):.2f}",
        "largest": f"{np.abs(evidence).max():.1f} {np.nanmax(np.abs(means)):.1f}",
    }


def _median(rows, key):
    return float(np.median([float(row[key]) for row in rows]))


def _cost(rows):
    share = np.mean([bool(row["warned"]) for row in rows])
    return {"warned": f"{share:.3f}", "CPU s": f"{_median(rows, 'seconds'):.2f}"}


def picture(groups, path):
    """Empirical distribution functions of the places, less the diagonal, with the 99 % band."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(groups), figsize=(3.2 * len(groups), 2.6), sharey=True)
    for ax, (name, rows) in zip(np.atleast_1d(axes), groups.items(), strict=True):
        n = len(rows)
        at = np.arange(1, n) / n
        tail = np.quantile(null(n), 0.01)
        low, high = stats.binom.ppf(tail, n, at) / n, stats.binom.isf(tail, n, at) / n
        ax.fill_between(at, low - at, high - at, color="0.85", step="mid", lw=0)
        for key, u in places_of(rows).items():
            own = np.searchsorted(np.sort(u), at, "right") / n - at
            is_likelihood = key == "log_likelihood"
            ax.plot(at, own, lw=1.5 if is_likelihood else 0.6, color="k" if is_likelihood else None)
        ax.set(title=name, xlabel="place of the truth")
    np.atleast_1d(axes)[0].set_ylabel("distribution function\nless the diagonal")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def summary(arguments):
    """The tables of both files."""
    groups, of_errors = (by_model(arguments.out / f"calibration_{x}.csv") for x in PARTS)
    path = arguments.out / "calibration.csv"
    path.unlink(missing_ok=True)
    for section, name, runs, found in [*lines_of_ranks(groups), *lines_of_errors(of_errors)]:
        print(section, name, runs, *(f"{key} {value}," for key, value in found.items()))
        rows = [
            {"section": section, "model": name, "runs": runs, "measured": key, "reached": value}
            for key, value in found.items()
        ]
        append_rows(path, rows, machine(PACKAGES))
    if arguments.picture:
        picture(groups, arguments.picture)


PARTS = {"ranks": run_ranks, "errors": run_errors}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*PARTS, "summary"])
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.part in PARTS:
        PARTS[arguments.part](arguments, arguments.out / f"calibration_{arguments.part}.csv")
    else:
        summary(arguments)


if __name__ == "__main__":
    main()
