"""Fields with sparse precisions by their size: EP with its gradient, draws, and their errors.

    python benchmarks/fields.py [--nodes 1000 10000 100000] [--data DIR] [--gpboost PYTHON]
        [--out DIR] [--pairs]

Counts on a square lattice (`pm.CAR`), on a random walk, more dispersed ones on another, labels of
people with an effect each, ten rows a person, and accidents in New York by BYM2; labels on a map
under a Matern 3/2 kernel of range .05, by `Vecchia` with 10 and 20 neighbours and by the kernel as
it is (2,000 nodes); seeds fixed, hyperparameters at the model's initial point. Each is run in a
process of its own and is a row of ``DIR/fields.csv``, written as soon as it is known; what is in
there is not run again. Times are CPU seconds: `compile` of all functions, `ep` of EP with its
gradient from the last result, `draws` of the exact log evidence by 1,024 draws, whose standard
error, relative effective sample size and way, by pairs or part by part, follow. Of maps `compile`
makes the precision, `ep` is all of EP from no sites, and above 20,000 nodes there are fewer draws.
`memory` in GB is the most of the process, of maps before the draws.

With ``--gpboost``, a Python that has it, hyperparameters of such a map are learnt by both, the
range and the standard deviation, with 10 neighbours, and labels at 2,000 more places are forecast
(``DIR/fields_learnt.csv``): CPU seconds and wall clock of the search, mean log loss, and what was
found.

``--pairs``: how unequal pairs weigh on lattices, by nodes and counts a node, in
``DIR/fields_pairs.csv``.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pymc as pm
from runner import append_rows, machine, read_rows
from scipy import sparse

import pymc_skewgp as sg
from pymc_skewgp._gaussian.escalation import pilot_log_weights
from pymc_skewgp._gaussian.weights import relative_ess
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.factor_evidence import factor_sampler
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._model.graph.collapsed import collapse_model

RESULTS = Path(__file__).resolve().parent / "results"
SEED = 8927
FIELDS = (
    "kind", "nodes", "entries", "compile", "ep", "draws", "log_evidence", "log_evidence_se",
    "relative_ess", "method", "memory",
)  # fmt: skip


def neighbours(k):
    """W of a lattice of k by k."""
    edges = sparse.diags_array([np.ones(k - 1)] * 2, offsets=[-1, 1])
    W = sparse.kron(edges, sparse.eye_array(k)) + sparse.kron(sparse.eye_array(k), edges)
    return sparse.csr_matrix(W)


def lattice(nodes, rng):
    k = int(np.sqrt(nodes))
    tau, alpha = pm.Gamma("tau", 2.0, 1.0), pm.Beta("alpha", 9.0, 1.0)
    z = pm.CAR("z", mu=np.zeros(k * k), W=neighbours(k), alpha=alpha, tau=tau)
    pm.Poisson("y", pm.math.exp(pm.Normal("level", 0.0, 1.0) + z), observed=rng.poisson(1.0, k * k))


def walk(nodes, rng):
    start = pm.Normal.dist(0.0, 1.0)
    z = pm.GaussianRandomWalk("z", sigma=pm.HalfNormal("sd", 0.1), init_dist=start, shape=nodes)
    truth = np.sin(0.01 * np.arange(nodes))
    pm.Poisson("y", pm.math.exp(z), observed=rng.poisson(np.exp(truth)))


def rain(nodes, rng):
    """Days of two years on which it rained, of each day of the year: 0, 1 or 2."""
    z = pm.GaussianRandomWalk(
        "z", sigma=pm.HalfNormal("sd", 0.5), init_dist=pm.Normal.dist(0.0, 2.0), shape=nodes
    )
    truth = np.sin(2.0 * np.pi * np.arange(nodes) / 366.0) - 1.0
    pm.Binomial("y", 2, logit_p=z, observed=rng.binomial(2, 1.0 / (1.0 + np.exp(-truth))))


def people(nodes, rng):
    who = np.repeat(np.arange(nodes), 10)
    x = rng.normal(size=who.size)
    effect = pm.Normal("u", 0.0, pm.HalfNormal("sd", 1.0), shape=nodes)
    level, slope = pm.Normal("level", 0.0, 2.0), pm.Normal("slope", 0.0, 2.0)
    truth = 0.5 * x + rng.normal(0.0, 0.8, nodes)[who]
    y = rng.random(who.size) < 1.0 / (1.0 + np.exp(-truth))
    pm.Bernoulli("y", logit_p=level + slope * x + effect[who], observed=y)


def dispersed(nodes, rng):
    """Counts beyond Poisson's on a walk: no likelihood of a closed form."""
    z = pm.GaussianRandomWalk("z", 0.0, 0.1, init_dist=pm.Normal.dist(0.0, 1.0), shape=nodes)
    mu = np.exp(np.sin(0.01 * np.arange(nodes)))
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + mu))
    pm.NegativeBinomial("y", mu=pm.math.exp(z), alpha=2.0, observed=y)


def new_york(nodes, rng, folder=Path()):
    """Accidents in the areas of New York, by BYM2, always all of them."""
    d = json.loads(gzip.decompress((folder / "traffic_accident_nyc.json.gz").read_bytes()))
    W, n = np.zeros((d["N"], d["N"])), d["N"]
    first, second = (np.array(d[k]) - 1 for k in ("node1", "node2"))
    W[first, second] = W[second, first] = 1.0
    level, sigma = pm.Normal("level", 0.0, 1.0), pm.HalfNormal("sigma", 1.0)
    rho = pm.Beta("rho", 0.5, 0.5)
    own, near = pm.Normal("own", 0.0, 1.0, shape=n), pm.ICAR("near", W=W)
    mixed = pm.math.sqrt(1.0 - rho) * own + pm.math.sqrt(rho / d["scaling_factor"]) * near
    pm.Poisson("y", pm.math.exp(np.log(d["E"]) + level + sigma * mixed), observed=d["y"])


def labels_on_a_map(nodes, ls=0.05):
    """Places, and labels of f by random waves, whose covariance is the kernel's."""
    rng, n_waves = np.random.default_rng(SEED), 4000
    X = rng.random((nodes, 2))
    waves = rng.normal(size=(n_waves, 2)) * np.sqrt(3.0 / rng.chisquare(3, (n_waves, 1))) / ls
    phase, height = 2.0 * np.pi * rng.random(n_waves), rng.normal(size=n_waves)
    parts = np.array_split(X, 1 + nodes // 2000)
    f = np.concatenate([np.cos(x @ waves.T + phase) @ height for x in parts])
    return X, np.sqrt(2.0 / n_waves) * f + rng.normal(size=nodes) > 0.0


def on_a_map(nodes, approximation):
    """Its posterior."""
    gp = sg.SkewGP(cov_func=pm.gp.cov.Matern32(2, ls=0.05), approximation=approximation)
    return gp.posterior(*labels_on_a_map(nodes), progressbar=False)


def measure_map(kind, nodes):
    """Figures of one map."""
    m = MAPS[kind]
    posterior = on_a_map(nodes, m and sg.approximations.Vecchia(m))
    began = time.process_time()
    fit = posterior._fit
    if m:
        _ = fit.predictors
    compiled, began = time.process_time() - began, time.process_time()
    entries = fit.ep.gaussian.chol.values.size / nodes if m else nodes / 2
    ep = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    began = time.process_time()
    latent = fit.latent(min(1024, 2 * 10**7 // nodes), SEED)
    found = fit.evidence(latent.log_prob, posterior._prior_log_prob)
    return {
        "kind": kind,
        "nodes": nodes,
        "entries": entries,
        "compile": compiled,
        "ep": ep,
        "draws": time.process_time() - began,
        "log_evidence": found.value,
        "log_evidence_se": found.std_error,
        "relative_ess": latent.relative_ess,
        "method": latent.method,
        "memory": memory,
    }


NEIGHBOURS, HELD_OUT = 10, 2000
LEARNT = ("kind", "nodes", "cpu", "wall", "log_loss", "range", "deviation", "memory")


def measure_learning(nodes):
    """Hyperparameters of a map, and how labels at other places are forecast."""
    X, y = labels_on_a_map(nodes + HELD_OUT)
    with pm.Model():
        ls, deviation = pm.LogNormal("range", -2.0, 1.0), pm.HalfNormal("deviation", 2.0)
        kernel = deviation**2 * pm.gp.cov.Matern32(2, ls=ls)
        gp = sg.SkewGP(cov_func=kernel, approximation=sg.approximations.Vecchia(NEIGHBOURS))
    began = time.process_time(), time.perf_counter()
    fit = sg.find_hyperparameters(gp, X[:nodes], y[:nodes], random_seed=SEED, progressbar=False)
    cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    posterior = gp.posterior(X[:nodes], y[:nodes], point=fit.point, n_draws=256, progressbar=False)
    p = posterior.probability(X[nodes:]).value
    return {
        "kind": "vecchia_10",
        "nodes": nodes,
        "cpu": cpu,
        "wall": wall,
        "log_loss": -float(np.log(np.where(y[nodes:], p, 1.0 - p)).mean()),
        "range": float(fit.point["range"]),
        "deviation": float(fit.point["deviation"]),
        "memory": memory,
    }


def learn_beside(python, nodes, out):
    """Rows of both."""
    here, path = Path(__file__).resolve(), out / "fields_learnt.csv"
    done = {(row["kind"], int(row["nodes"])) for row in read_rows(path)}
    commands = {
        "vecchia_10": [sys.executable, here, "--learn", "--nodes", str(nodes)],
        "gpboost_10": [python, here.with_name("map_gpboost.py"), "labels.npz", str(NEIGHBOURS)],
    }
    with tempfile.TemporaryDirectory() as folder:
        X, y = labels_on_a_map(nodes + HELD_OUT)
        np.savez(Path(folder) / "labels.npz", X=X, y=y, n=nodes)
        for kind, command in commands.items():
            if (kind, nodes) in done:
                continue
            found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            if found.returncode:
                print(kind, nodes, "failed:", found.stderr.strip().splitlines()[-1:])
                continue
            row = json.loads(found.stdout.splitlines()[-1])
            append_rows(path, [row], machine(), LEARNT)
            print(row, flush=True)


def cases(folder=None):
    """Models of `seconds.py`, each beside nutpie: rain of 366 days, a level of 10,000, New York."""
    from latent_models import Case  # of a benchmark of its own

    def build(kind, nodes, **given):
        with pm.Model() as model:
            kind(nodes, np.random.default_rng(SEED), **given)
        return model

    found = {"rain": partial(build, rain, 366), "level": partial(build, walk, 10_000)}
    if folder is not None:
        found["new_york"] = partial(build, new_york, 1921, folder=folder)
    return {name: Case(build) for name, build in found.items()}


# Neighbours; None is the kernel as it is.
MAPS = {"map_10": 10, "map_20": 20, "map_kernel": None}
KINDS = {f.__name__: f for f in (lattice, walk, people, dispersed, new_york)}


def measure(kind, nodes):
    """Figures of one field."""
    with pm.Model() as model:
        KINDS[kind](nodes, np.random.default_rng(SEED))
    began = time.process_time()
    objective, x = compile_objective(model, collapse_model(model), averaged=True)
    compiled = time.process_time() - began
    point = Point(x, ())
    objective.by_ep(point)
    began = time.process_time()
    objective.by_ep(point)
    ep = time.process_time() - began
    ((terms, sites),) = objective.known_at(point)
    start = next(iter(objective.ep.values())).last
    began = time.process_time()
    _, sampler = factor_sampler(terms, sites, start)
    found = sampler.singles(1024, np.random.default_rng(SEED))
    draws = time.process_time() - began
    estimate = found.log_prob
    rows = sampler.proposal.gaussian.prior.pattern._elimination.rows
    return {
        "kind": kind,
        "nodes": nodes,
        "entries": len(rows) / terms.slope.size,
        "compile": compiled,
        "ep": ep,
        "draws": draws,
        "log_evidence": estimate.value + float(terms.log_constant),
        "log_evidence_se": estimate.std_error,
        "relative_ess": estimate.relative_ess,
        "method": found.method,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def measure_pairs(nodes, mean):
    """Of 1,024 pairs on a lattice with so many counts a node; hyperparameters are known."""
    rng, W = np.random.default_rng(SEED), neighbours(int(np.sqrt(nodes)))
    with pm.Model() as model:
        z = pm.CAR("z", mu=np.zeros(nodes), W=W, alpha=0.9, tau=2.0)
        y = rng.poisson(mean * np.exp(0.5 * rng.normal(size=nodes)))
        pm.Poisson("y", mean * pm.math.exp(z), observed=y)
    objective, x = compile_objective(model, collapse_model(model), averaged=True)
    ((terms, sites),) = objective.known_at(Point(x, ()))
    _, sampler = factor_sampler(terms, sites, None)
    log_weights = pilot_log_weights(sampler.proposal, 1024, np.random.default_rng(0))
    found = sampler.singles(512, np.random.default_rng(1))
    return {
        "nodes": nodes,
        "mean": mean,
        "relative_ess": round(relative_ess(log_weights), 3),
        "variance": round(float(np.var(log_weights)), 3),
        "method": found.method,
        "log_evidence_se": round(found.log_prob.std_error, 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, *MAPS], choices=[*KINDS, *MAPS])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--data", type=Path, help="posteriordb's data, for new_york")
    parser.add_argument("--gpboost", help="a Python that has it: hyperparameters of maps")
    parser.add_argument("--learn", action="store_true", help="print the figures of learning")
    parser.add_argument("--one", action="store_true", help="print the figures of one field")
    parser.add_argument("--pairs", action="store_true", help="pairs by nodes and counts a node")
    options = parser.parse_args()
    if options.pairs:
        for mean, nodes in product((0.1, 1.0, 10.0), (400, 1600, 6400)):
            row = measure_pairs(nodes, mean)
            append_rows(options.out / "fields_pairs.csv", [row], machine())
            print(row, flush=True)
        return
    if options.one:
        warnings.simplefilter("ignore")
        kind = options.kinds[0]
        print(json.dumps((measure_map if kind in MAPS else measure)(kind, options.nodes[0])))
        return
    if options.learn:
        print(json.dumps(measure_learning(options.nodes[0])))
        return
    if options.gpboost:
        for nodes in options.nodes:
            learn_beside(options.gpboost, nodes, options.out)
        return
    path = options.out / "fields.csv"
    done = {(row["kind"], int(row["nodes"])) for row in read_rows(path)}
    for nodes in options.nodes:
        for kind in options.kinds:
            size = {"new_york": 1921, "map_kernel": 2000}.get(kind, nodes)
            if (kind, size) in done or (kind == "new_york" and options.data is None):
                continue
            done.add((kind, size))
            own = ["--one", "--kinds", kind, "--nodes", str(size)]
            command = [sys.executable, Path(__file__).resolve(), *own]
            found = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=options.data
            )
            if found.returncode:
                print(kind, size, "failed:", found.stderr.strip().splitlines()[-1:])
                continue
            row = json.loads(found.stdout.splitlines()[-1])
            append_rows(path, [row], machine(), FIELDS)
            print(row, flush=True)


if __name__ == "__main__":
    main()
