"""Rows on the workers of a dask cluster: the results of one process.

In a process of their own, as dask leaves sockets to be collected. Some 10 CPU seconds.
"""

import importlib.util
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="the extra dask is not installed"
)

MODEL = """
import json, sys
import distributed
import numpy as np
import pymc_skewgp as sg

lk = sg.likelihoods


def rbf(X, Xs=None, diag=False):
    if diag:
        return np.full(len(X), 2.0)
    return 2.0 * np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2 / 0.25)


def posterior(kind, n=2000):
    rng = np.random.default_rng(4)
    X = rng.uniform(-3.0, 3.0, (n, 1))
    f = np.sin(2.0 * X[:, 0])
    likelihood, y = {
        "labels": (None, f + rng.standard_normal(n) > 0),
        "counts": (lk.Poisson(np.linspace(0.5, 1.5, n)), rng.poisson(np.exp(f))),
        "duels": (lk.Preference(0.5), np.arange(n).reshape(-1, 2)),
    }[kind]
    return sg.SkewGPPosterior(
        X, y, cov_func=rbf, likelihood=likelihood, n_draws=256,
        approximation=sg.approximations.Inducing(np.linspace(-3.0, 3.0, 15)[:, None]),
    )


def numbers(found):
    evidence = found.log_marginal_likelihood
    f = found.sample(20, 2, random_seed=1, rows=[5, 7])["posterior"]["f"].values
    return [evidence.value, evidence.std_error, found._fit.ep.n_sweeps, f.ravel().tolist()]


options = {"dashboard_address": ":0"}
"""

THREADS = """
if __name__ == "__main__":
    found = {}
    with distributed.Client(processes=False, n_workers=2, threads_per_worker=2, **options) as c:
        for kind in ("labels", "counts"):
            with sg.rows_on(c):
                remote = numbers(posterior(kind))
            found[kind] = [remote, numbers(posterior(kind))]
        with sg.rows_on(c):
            try:
                posterior("duels").log_marginal_likelihood
            except sg.ApproximationError as error:
                found["error"] = str(error)
    print(json.dumps(found))
"""

KILLED = """
if __name__ == "__main__":
    import os, signal
    n = int(sys.argv[1])
    with distributed.LocalCluster(n_workers=n, threads_per_worker=1, **options) as cluster:
        with distributed.Client(cluster) as client, sg.rows_on(client):
            found = posterior("labels")
            _ = found._fit.ep
            pid = next(iter(client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)
            remote = numbers(found)
    print(json.dumps({"labels": [remote, numbers(posterior("labels"))], "pid": pid}))
"""


def run(tmp_path, script, *arguments):
    """What it prints: it is a file, which processes that dask starts import."""
    path = tmp_path / "cluster_script.py"
    path.write_text(MODEL + script)
    command = [sys.executable, str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(found, wanted):
    # Sums over parts of the rows in another order: round-off of some 1000 nats.
    assert found[0] == pytest.approx(wanted[0], abs=1e-7)
    assert found[1] == pytest.approx(wanted[1], rel=1e-4)
    assert found[2] == wanted[2]
    assert found[3] == pytest.approx(wanted[3], rel=1e-5, abs=1e-6)


@pytest.mark.slow(ci=True)
def test_threads_as_workers(tmp_path):
    found = run(tmp_path, THREADS)
    check(*found["labels"])
    check(*found["counts"])
    assert "cannot be cut into rows" in found["error"]


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", ["2", "4"])
def test_a_killed_worker_is_survived(tmp_path, n_workers):
    check(*run(tmp_path, KILLED, n_workers)["labels"])
