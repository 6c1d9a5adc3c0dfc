"""Two checkouts side by side: ratios of CPU times with 95 % intervals, the machine shared or not.

    python benchmarks/side_by_side.py OLD NEW [--rounds 7] [--only WORD ...]

A round starts a process of each checkout, and these take turns row by row: what else the machine
does slows both. A time is the least of some calls. The interval is Student's, of the mean log ratio
over rounds. Rows are times of `core.py` and `sites.py`; caches are kept, by checkout, in /tmp.
"""

import argparse
import os
import subprocess
import sys
import time
import warnings

import numpy as np
from scipy import stats


def timed(call, least=0.4, most=12):
    """CPU seconds, the least of two calls or more."""
    found = []
    while len(found) < 2 or (sum(found) < least and len(found) < most):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def worker():
    """Names of rows on standard input, times on standard output; the names first."""
    from side_by_side_rows import rows

    warnings.filterwarnings("ignore")
    calls = rows()
    print("|".join(calls), flush=True)
    for line in sys.stdin:
        print(timed(calls[line.strip()]()), flush=True)


def started(checkout):
    """A worker of a checkout, and the names of its rows."""
    caches = f"/tmp/side_by_side{os.path.abspath(checkout).replace('/', '_')}"
    environment = os.environ | {"PYTHONPATH": checkout, "NUMBA_CACHE_DIR": f"{caches}/numba"}
    environment |= {"PYTENSOR_FLAGS": f"base_compiledir={caches}/pytensor"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    process = subprocess.Popen([sys.executable, __file__], env=environment, **pipes)
    return process, process.stdout.readline().strip().split("|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=[""], help="words of rows")
    options = parser.parse_args()
    seconds = {}
    for i in range(options.rounds):
        workers, names = zip(*map(started, options.checkouts), strict=True)
        for name in names[0]:
            if any(word in name for word in options.only):
                pair = [0.0, 0.0]
                for side in ((0, 1), (1, 0))[i % 2]:
                    print(name, file=workers[side].stdin, flush=True)
                    pair[side] = float(workers[side].stdout.readline())
                seconds.setdefault(name, []).append(pair)
        for process in workers:
            process.communicate()
        print(f"round {i + 1} of {options.rounds}", file=sys.stderr, flush=True)
    for name, pairs in seconds.items():
        log_ratio = np.diff(np.log(pairs), axis=1)[:, 0]
        half = stats.t.ppf(0.975, len(pairs) - 1) * stats.sem(log_ratio)
        mean, low, high = np.exp(log_ratio.mean() + np.array([0.0, -half, half]))
        old, new = np.median(pairs, axis=0)
        print(f"{name:52} {old:9.4f} {new:9.4f} s  ratio {mean:.3f}  [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main() if len(sys.argv) > 1 else worker()
