"""Fields with sparse precisions by their size: EP with its gradient, draws, and their errors.

    python benchmarks/fields.py [--nodes 1000 10000 100000] [--out DIR]

Counts on a square lattice (`pm.CAR`), on a random walk, and of people with an effect each, ten rows
a person, seeds fixed, hyperparameters at the model's initial point. Each is run in a process of its
own and is a row of ``DIR/fields.csv``, written as soon as it is known; what is in there is not run
again. Times are CPU seconds: `compile` of all functions, `ep` of EP with its gradient from the last
result, `draws` of the exact log evidence by 1,024 draws, whose standard error, relative effective
sample size and way, by pairs or part by part, follow. `memory` in GB is the most of the process.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from runner import append_rows, machine, read_rows
from scipy import sparse

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


def lattice(nodes, rng):
    k = int(np.sqrt(nodes))
    edges = sparse.diags_array([np.ones(k - 1)] * 2, offsets=[-1, 1])
    W = sparse.kron(edges, sparse.eye_array(k)) + sparse.kron(sparse.eye_array(k), edges)
    tau, alpha = pm.Gamma("tau", 2.0, 1.0), pm.Beta("alpha", 9.0, 1.0)
    z = pm.CAR("z", mu=np.zeros(k * k), W=sparse.csr_matrix(W), alpha=alpha, tau=tau)
    pm.Poisson("y", pm.math.exp(pm.Normal("level", 0.0, 1.0) + z), observed=rng.poisson(1.0, k * k))


def walk(nodes, rng):
    start = pm.Normal.dist(0.0, 1.0)
    z = pm.GaussianRandomWalk("z", sigma=pm.HalfNormal("sd", 0.1), init_dist=start, shape=nodes)
    truth = np.sin(0.01 * np.arange(nodes))
    pm.Poisson("y", pm.math.exp(z), observed=rng.poisson(np.exp(truth)))


def people(nodes, rng):
    who = np.repeat(np.arange(nodes), 10)
    x = rng.normal(size=who.size)
    effect = pm.Normal("u", 0.0, pm.HalfNormal("sd", 1.0), shape=nodes)
    level, slope = pm.Normal("level", 0.0, 2.0), pm.Normal("slope", 0.0, 2.0)
    truth = 0.5 * x + rng.normal(0.0, 0.8, nodes)[who]
    y = rng.random(who.size) < 1.0 / (1.0 + np.exp(-truth))
    pm.Bernoulli("y", logit_p=level + slope * x + effect[who], observed=y)


KINDS = {"lattice": lattice, "walk": walk, "people": people}


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
    return {
        "kind": kind,
        "nodes": nodes,
        "entries": sampler.proposal.gaussian.spread.values.size / terms.slope.size,
        "compile": compiled,
        "ep": ep,
        "draws": draws,
        "log_evidence": estimate.value + float(terms.log_constant),
        "log_evidence_se": estimate.std_error,
        "relative_ess": estimate.relative_ess,
        "method": found.method,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", action="store_true", help="print the figures of one field")
    options = parser.parse_args()
    if options.one:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(options.kinds[0], options.nodes[0])))
        return
    path = options.out / "fields.csv"
    done = {(row["kind"], int(row["nodes"])) for row in read_rows(path)}
    for nodes in options.nodes:
        for kind in options.kinds:
            if (kind, nodes) in done:
                continue
            own = ["--one", "--kinds", kind, "--nodes", str(nodes)]
            found = subprocess.run(
                [sys.executable, __file__, *own], capture_output=True, text=True, check=False
            )
            if found.returncode:
                print(kind, nodes, "failed:", found.stderr.strip().splitlines()[-1:])
                continue
            row = json.loads(found.stdout.splitlines()[-1])
            append_rows(path, [row], machine(), FIELDS)
            print(row, flush=True)


if __name__ == "__main__":
    main()
