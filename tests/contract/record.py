"""Write down what is not yet recorded, and anew the calls whose names begin as those given.

cd tests; python -m contract.record [beginning ...]
"""

import json
import sys
import time
import traceback
import warnings

from .harness import HERE, SEED, load, recorded

FILE = HERE / "recorded.json"


def read() -> dict:
    """The record: results by the names of calls."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def main(anew: tuple[str, ...]) -> None:
    """Keep what stands, drop what is no call any more, add the rest."""
    assert SEED == 0, "the record has the seed 0"
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS", UserWarning)
    calls = load()
    record = {name: found for name, found in read().items() if name in calls}
    for name, call in calls.items():
        if name in record and not name.startswith(anew):
            continue
        start = time.perf_counter()
        try:
            record[name] = recorded(call.make())
        except Exception:
            traceback.print_exc(limit=-3)
        print(f"{time.perf_counter() - start:6.2f} s  {name}  {record.get(name)}", flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or ("nothing",))
