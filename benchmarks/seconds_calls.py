"""What `seconds.py` measures: a process for each task, which shows its rows as it finds them.

A task is JSON: ``part``, ``case`` and ``who`` (a name in ``RUNS``), ``began`` in seconds since
1970, ``folder`` of models or null, and for models ``names`` of variables and ``seeds``. Nothing
that takes long to import is imported before it is needed: that is a part of a call.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SEED = 37
CHAINS, DRAWS = 4, 1000
OURS, PEER = "integrate", "nutpie"
Row = dict[str, Any]


def clock() -> np.ndarray:
    """Wall and CPU seconds; what child processes have used counts once they have ended."""
    return np.array([time.time(), sum(os.times()[:4])])


# --- calls -------------------------------------------------------------------------------------


def data(seed: int, n: int = 80, counts: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """One input and labels with a probit link, or counts."""
    rng = np.random.default_rng([SEED, seed, n])
    X = np.linspace(-3, 3, n)[:, None]
    f = np.sin(2 * X[:, 0])
    y = rng.poisson(2.0 * np.exp(f)) if counts else f + 0.5 * rng.standard_normal(n) > 0
    return X, y.astype(int)


def unknown_gp() -> Any:
    """A SkewGP with two hyperparameters."""
    import pymc as pm

    import pymc_skewgp as sg

    with pm.Model():
        ls, eta = pm.InverseGamma("ls", alpha=3, beta=2), pm.HalfNormal("eta", sigma=2)
        return sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))


def posterior(seed: int) -> Row:
    import pymc as pm

    import pymc_skewgp as sg

    gp = sg.SkewGP(cov_func=2.0**2 * pm.gp.cov.ExpQuad(1, ls=0.7))
    gp.posterior(*data(seed)).sample(draws=DRAWS, chains=CHAINS, random_seed=seed)
    return {}


def find(seed: int) -> Row:
    import pymc_skewgp as sg

    sg.find_hyperparameters(unknown_gp(), *data(seed), random_seed=seed, progressbar=False)
    return {}


def integrate(seed: int, counts: bool = False) -> Row:
    import pymc_skewgp as sg

    likelihood = sg.likelihoods.Poisson() if counts else None
    options = {"likelihood": likelihood, "random_seed": seed, "progressbar": False}
    tree = sg.integrate(unknown_gp(), *data(seed, counts=counts), **options)
    distinct = np.unique(tree["posterior"]["ls"]).size
    return {"note": f"{distinct} distinct hyperparameters"}


def classifier(seed: int) -> Row:
    from sklearn.datasets import load_iris

    import pymc_skewgp as sg

    flowers, species = load_iris(return_X_y=True)
    chosen = np.random.default_rng([SEED, seed]).permutation(150)[:100]
    rest = np.setdiff1d(np.arange(150), chosen)
    X = (flowers - flowers.mean(axis=0)) / flowers.std(axis=0)
    fitted = sg.SkewGPClassifier(random_state=seed).fit(X[chosen], species[chosen])
    return {"note": f"{fitted.score(X[rest], species[rest]):.2f} right of 50 others"}


def step(seed: int) -> Row:
    import arviz as az
    import pymc as pm

    import pymc_skewgp as sg

    X, y = data(seed)
    with pm.Model():
        ls, eta = pm.InverseGamma("ls", alpha=3, beta=2), pm.HalfNormal("eta", sigma=2)
        f = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls)).prior("f", X)
        sg.BernoulliProbit("y", f, observed=y)
        options = {"chains": 2, "random_seed": seed, "progressbar": False}
        idata = pm.sample(DRAWS, tune=100, **options)
    ess = az.ess(idata, var_names=["ls", "eta"])
    return {"ess": round(min(float(x.min()) for x in ess.data_vars.values()), 1)}


CALLS: dict[str, Callable[[int], Row]] = {
    "posterior": posterior,
    "find": find,
    "integrate, labels": integrate,
    "integrate, counts": lambda seed: integrate(seed, counts=True),
    "classifier": classifier,
    "step": step,
}


def run_call(case: str, began: np.ndarray, **_: Any) -> Iterator[Row]:
    """The first call of a process that began then, and the second."""
    for seed, part in enumerate(("first", "second")):
        found = CALLS[case](seed)
        now = clock()
        yield {"part": part, "call": part, "seed": 0} | found | taken(began, now)
        began = clock()


def taken(began: np.ndarray, now: np.ndarray) -> Row:
    return dict(zip(("wall", "cpu"), np.round(now - began, 4).tolist(), strict=True))


# --- models ------------------------------------------------------------------------------------


def latent_cases() -> dict[str, Any]:
    """``pm.gp.Latent`` with two hyperparameters, under labels, counts and changing noise."""

    from latent_models import Case

    def build(n: int, counts: bool) -> Any:
        import pymc as pm

        X, y = data(0, n, counts)
        with pm.Model() as model:
            ls, eta = pm.InverseGamma("ls", alpha=3, beta=2), pm.HalfNormal("eta", sigma=2)
            gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
            f = gp.prior("f", X)
            if counts:
                pm.Poisson("y", pm.math.exp(f), observed=y)
            else:
                pm.Bernoulli("y", p=pm.math.invprobit(f), observed=y)
        return model

    sizes = [(n, counts) for n in (100, 300) for counts in (False, True)]
    of_one = {f"{'counts' if c else 'labels'}, {n}": Case(partial(build, n, c)) for n, c in sizes}
    of_two = {f"mean and log sd, {n}": Case(partial(mean_and_log_sd, n)) for n in (30, 100)}
    return of_one | of_two


def mean_and_log_sd(n: int) -> Any:
    """Two functions, with two hyperparameters each."""
    import pymc as pm

    X = np.linspace(-3, 3, n)[:, None]
    rng = np.random.default_rng([SEED, n])
    y = np.sin(2 * X[:, 0]) + np.exp(np.cos(X[:, 0]) - 1.0) * rng.standard_normal(n)

    def function(name: str) -> Any:
        ls, eta = pm.InverseGamma(f"{name}_ls", 3, 2), pm.HalfNormal(f"{name}_eta", 2)
        return pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls)).prior(name, X)

    with pm.Model() as model:
        pm.Normal("y", function("f"), pm.math.exp(function("g") - 1.0), observed=y)
    return model


def cases_of(part: str, folder: Path | None) -> Mapping[str, Any]:
    if part == "latent":
        return latent_cases()
    if part == "models" and folder is not None:
        from latent_gaussian import cases

        return cases(folder)
    if part == "fields":
        from fields import cases as fields

        return fields(folder)
    return {}


def run_explain(part: str, case: str, folder: Path | None, **_: Any) -> Iterator[Row]:
    """Names of the hyperparameters, or of the coefficients where there are none."""
    import pymc_skewgp as sg

    found = sg.explain(cases_of(part, folder)[case].build())
    names = found.with_role("hyperparameter") or found.with_role("block")
    note = json.dumps(names) if found.is_taken else f"refused: {found.obstacle}"
    yield {"call": "roles", "seed": 0, "note": note}


def run_integrate(part: str, case: str, folder: Path | None, **known: Any) -> Iterator[Row]:
    model = cases_of(part, folder)[case].build()

    def sample(seed: int) -> Any:
        import pymc_skewgp as sg

        return sg.integrate(model, random_seed=seed, progressbar=False)

    yield from calls(sample, sample, known)


def run_nutpie(part: str, case: str, folder: Path | None, **known: Any) -> Iterator[Row]:
    model, compiled = cases_of(part, folder)[case].build(), []

    def sample(seed: int) -> Any:
        import nutpie

        options = {"chains": CHAINS, "cores": os.cpu_count(), "progress_bar": False}
        return nutpie.sample(compiled[0], seed=seed, **options)

    def first(seed: int) -> Any:
        import nutpie

        compiled.append(nutpie.compile_pymc_model(model))
        return sample(seed)

    yield from calls(first, sample, known)


def calls(first: Callable[[int], Any], warm: Callable[[int], Any], known: Row) -> Iterator[Row]:
    """The first call, with seed 0, and warm ones; what is known already is not shown."""
    import arviz as az

    for seed in sorted({0, *known["seeds"]}):
        began = clock()
        if known["who"] == OURS and not seed:  # the import came with the models
            began = began - known["imported"]
        tree = (warm if seed else first)(seed)
        row = {"call": "warm" if seed else "first", "seed": seed} | taken(began, clock())
        draws = tree["posterior"].to_dataset()[known["names"]]
        ess = az.ess(draws, method="mean")
        row["ess"] = round(min(float(x.min()) for x in ess.data_vars.values()), 1)
        row["means"] = json.dumps(scalars_of(draws.mean(("chain", "draw"))))
        row["sds"] = json.dumps(scalars_of(draws.std(("chain", "draw"))))
        if known["who"] == PEER:
            row["divergences"] = int(tree["sample_stats"]["diverging"].sum())
        yield row


def scalars_of(summary: Any) -> dict[str, float]:
    from references import scalars

    return {
        name: float(value)
        for variable, values in summary.data_vars.items()
        for name, value in zip(scalars(variable, values.shape), values.values.flat, strict=True)
    }


# --- numbers -----------------------------------------------------------------------------------


def run_numbers(**_: Any) -> Iterator[Row]:
    """An exact evidence with draws, and EP with its gradient, under counts, in seconds."""
    from ep_gradient import milliseconds

    import pymc_skewgp as sg
    from pymc_skewgp._learn.averaging.importance import IntegrationSettings
    from pymc_skewgp._learn.averaging.integration import integral_by_ep
    from pymc_skewgp._learn.averaging.points import N_CANDIDATES, exact_points
    from pymc_skewgp._learn.averaging.problem import integration_problem
    from pymc_skewgp._learn.coordinates import Point
    from pymc_skewgp._learn.problem import TrainingData

    for n in (20, 80, 200):
        counts = *data(0, n, counts=True), sg.likelihoods.Poisson(), None
        problem = integration_problem(TrainingData(unknown_gp(), *counts), None, None)
        rng = np.random.default_rng(SEED)
        centre = problem.origins[0].x
        points = [Point(centre + rng.normal(0.0, 0.1, centre.size)) for _ in range(20)]
        cpu = milliseconds(problem.objective.by_ep, points) / 1e3
        yield {"call": f"EP with gradient, n = {n}", "seed": 0, "cpu": round(cpu, 6)}
        if n != 80:
            continue
        points = integral_by_ep(problem, IntegrationSettings(), rng).points
        size = problem.evidences(IntegrationSettings().n_evidences)
        given = problem.latent, points, size, 1.5 * CHAINS * DRAWS, N_CANDIDATES, rng
        exact_points(*given)
        began = clock()
        found = len(exact_points(*given).points)
        row = taken(began, began + (clock() - began) / found)
        yield {"call": "exact evidence, n = 80", "seed": 0, "note": f"of {found}"} | row


RUNS = {"call": run_call, "explain": run_explain, OURS: run_integrate, PEER: run_nutpie}
RUNS["numbers"] = run_numbers


def child(task: Row) -> None:
    """Rows as lines on standard output."""
    warnings.filterwarnings("ignore")
    task["began"] = np.array([task["began"], 0.0])  # of CPU this process has used none
    task["folder"] = Path(task["folder"]) if task["folder"] else None
    if task["part"] in ("models", "latent", "fields"):
        import pymc  # noqa: F401

        before = clock()
        import pymc_skewgp  # noqa: F401

        task["imported"] = clock() - before
    for row in RUNS[task["who"]](**task):
        print("ROW " + json.dumps(row), flush=True)


if __name__ == "__main__":
    child(json.loads(sys.argv[1]))
