"""Steps a second of our lin-ess sampler and of BoTorch's, interleaved in one run.

The target is u ~ N(0, I + W K W') given u > 0: probit classification with an RBF kernel
(lengthscale .5, variance 2) at x ~ N(0, 1). BoTorch runs as a subprocess of another interpreter
(torch and botorch need not live beside this package), in whichever of three equivalent forms is
fastest for it. Both get the same number of threads. BoTorch is timed after its set-up; our times
include everything but the compilation.

    python benchmarks/lin_ess_against_botorch.py --peer-python path/to/python
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEER_FORMS = ("whitened", "root", "bounds")


def worker() -> None:
    """BoTorch's side: one JSON request a line in, seconds out."""
    import numpy as np
    import torch
    from botorch.utils.probability.lin_ess import LinearEllipticalSliceSampler

    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    samplers = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = (request["problem"], request["form"], request["chains"])
        if key not in samplers:
            problem = np.load(request["problem"])
            factor, start = problem["factor"], problem["start"]
            size = len(start)
            arguments = {"num_chains": request["chains"]}
            if request["form"] == "whitened":
                start = np.linalg.solve(factor, start)
                rows = torch.tensor(-factor), torch.zeros(size, 1)
                arguments |= {"inequality_constraints": rows}
            elif request["form"] == "root":
                rows = -torch.eye(size), torch.zeros(size, 1)
                arguments |= {"inequality_constraints": rows}
            else:
                bounds = torch.stack([torch.zeros(size), torch.full((size,), torch.inf)])
                arguments |= {"bounds": bounds}
            if request["form"] != "whitened":
                arguments |= {"covariance_root": torch.tensor(factor)}
            start = torch.tensor(start)[:, None]
            samplers[key] = LinearEllipticalSliceSampler(interior_point=start, **arguments)
            samplers[key].draw(5)
        begin = time.perf_counter()
        samplers[key].draw(request["steps"])
        print(json.dumps(time.perf_counter() - begin), flush=True)


def make_problem(size: int, path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(size)
    x = rng.normal(size=size)
    cov = 2 * np.exp(-0.5 * ((x[:, None] - x) / 0.5) ** 2)
    latent = np.linalg.cholesky(cov + 1e-9 * np.eye(size)) @ rng.normal(size=size)
    sign = np.where(latent + rng.normal(size=size) > 0, 1.0, -1.0)
    factor = np.linalg.cholesky(np.eye(size) + cov * np.outer(sign, sign))
    # A common state far from the corner, so that both sides start from arcs of the usual length.
    np.savez(path, factor=factor, start=np.abs(factor @ rng.normal(size=size)) + 0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", required=True, help="interpreter with torch and botorch")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--steps", type=int, default=300, help="steps of a repeat")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    # Thread pools read these when their library is loaded: ours below, the peer's in its process.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    import numpy as np

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    begin = time.perf_counter()
    from pymc_skewgp._gaussian.lin_ess import lin_ess

    imported = time.perf_counter()
    lin_ess(np.eye(2), np.ones((1, 2)), 0.0, n_draws=2)
    compiled = time.perf_counter()
    print(
        f"import {imported - begin:.2f} s, first call (compiled, or read from numba's cache) "
        f"{compiled - imported:.2f} s, {args.threads} thread(s), "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    command = [args.peer_python, os.path.abspath(__file__), "--worker"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as peer,
    ):
        assert peer.stdin is not None
        assert peer.stdout is not None

        def time_peer(path: Path, form: str, chains: int, steps: int) -> float:
            request = {"problem": str(path), "form": form, "chains": chains, "steps": steps}
            peer.stdin.write(json.dumps(request) + "\n")
            return float(json.loads(peer.stdout.readline()))

        print(f"{'N':>5} {'chains':>6} {'ours':>11} {'BoTorch':>11} {'ratio':>6} {'form':>9}")
        print(f"{'':12} {'steps of all chains a second':>23}")
        for size in args.sizes:
            path = Path(folder, f"{size}.npz")
            make_problem(size, path)
            problem = np.load(path)
            for chains in args.chains:
                trial = {f: time_peer(path, f, chains, args.steps) for f in PEER_FORMS}
                form = min(trial, key=trial.__getitem__)
                ours, theirs = [], []
                start = np.tile(problem["start"], (chains, 1))
                # Our share of a repeat is made about as long as the peer's: less timer noise.
                steps = 5 * args.steps
                for seed in range(args.repeats):
                    begin = time.perf_counter()
                    lin_ess(problem["factor"], start, 0.0, n_draws=steps, random_seed=seed)
                    ours.append(steps * chains / (time.perf_counter() - begin))
                    seconds = time_peer(path, form, chains, args.steps)
                    theirs.append(args.steps * chains / seconds)
                a, b = np.median(ours), np.median(theirs)
                print(f"{size:5} {chains:6} {a:11,.0f} {b:11,.0f} {a / b:6.1f} {form:>9}")
        peer.stdin.close()
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        worker()
    else:
        main()
