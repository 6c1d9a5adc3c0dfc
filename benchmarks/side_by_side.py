"""Two checkouts side by side: ratios of CPU times with 95 % intervals, the machine shared or not.

    python benchmarks/side_by_side.py OLD NEW [--rounds 7] [--only WORD ...]

A process of each checkout takes turns with the other call by call: what else the machine does slows
both. A time is the least of some calls. The interval is Student's, of the mean log ratio
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

LONG, MOST = 0.2, 6  # seconds of all calls, from which on, and calls, up to which there are more


def worker():
    """A name on standard input, the time of a call on standard output; the names first."""
    from side_by_side_rows import rows

    warnings.filterwarnings("ignore")
    calls, known = rows(), ""
    print("|".join(calls), flush=True)
    for line in sys.stdin:
        if line != known:
            known, call = line, calls[line.strip()]()
        start = time.process_time()
        call()
        print(time.process_time() - start, flush=True)


def started(checkout):
    """A worker of a checkout, and the names of its rows."""
    caches = f"/tmp/side_by_side{os.path.abspath(checkout).replace('/', '_')}"
    environment = os.environ | {"PYTHONPATH": checkout, "NUMBA_CACHE_DIR": f"{caches}/numba"}
    environment |= {"PYTENSOR_FLAGS": f"base_compiledir={caches}/pytensor"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    process = subprocess.Popen([sys.executable, __file__], env=environment, **pipes)
    return process, process.stdout.readline().strip().split("|")


def least(workers, name, first):
    """CPU seconds of each, the least of some calls that alternate."""
    found = []
    while not found or (np.sum(found) < LONG and len(found) < MOST):
        pair = [0.0, 0.0]
        for side in (first, 1 - first):
            print(name, file=workers[side].stdin, flush=True)
            pair[side] = float(workers[side].stdout.readline())
        found.append(pair)
    return np.min(found, axis=0)


def line(name, pairs):
    """Seconds, and the ratio with its interval."""
    log_ratio = np.diff(np.log(pairs), axis=1)[:, 0]
    half = stats.t.ppf(0.975, len(pairs) - 1) * stats.sem(log_ratio)
    mean, low, high = np.exp(log_ratio.mean() + np.array([0.0, -half, half]))
    old, new = np.median(pairs, axis=0)
    return f"{name:48} {old:8.4f} {new:8.4f} s  ratio {mean:.3f}  [{low:.3f}, {high:.3f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=[""], help="words of rows")
    options = parser.parse_args()
    seconds = {}
    workers, names = zip(*map(started, options.checkouts), strict=True)
    chosen = [name for name in names[0] if any(word in name for word in options.only)]
    for i in range(-1, options.rounds):  # the first one loads what is compiled
        for name in chosen:
            pair = least(workers, name, i % 2)
            if i >= 0:
                seconds.setdefault(name, []).append(pair)
        print(f"round {i + 1} of {options.rounds}")
        if i > 0:
            print("\n".join(line(*row) for row in seconds.items()), flush=True)
    for process in workers:
        process.communicate()


if __name__ == "__main__":
    main() if len(sys.argv) > 1 else worker()
