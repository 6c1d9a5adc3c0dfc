"""The latent Gaussian posteriors of posteriordb through `integrate`: see `latent_models`.

The folder of data has posteriordb's: ``data/NAME.json.gz``, and ``ref/POSTERIOR.json``, means and
standard deviations of its 10,000 reference draws by parameter.
"""

import functools
import gzip
import json
from pathlib import Path

import numpy as np
from latent_models import Case, Known, run
from posteriordb_models import NAMES

# Without draws of its own: the posterior is that of another form.
SAME = {"eight_schools-eight_schools_centered": "eight_schools-eight_schools_noncentered"}
RESULTS = Path(__file__).resolve().parent / "results" / "posteriordb.csv"


def data_of(path: Path) -> dict[str, object]:
    """By Stan's names; lists are arrays."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    return {k: np.array(v) if isinstance(v, list) else v for k, v in content.items()}


def reference_of(path: Path) -> Known:
    content = json.loads(path.read_text())
    draws = {name: x.get("draws", x.get("ess")) for name, x in content.items()}
    return Known("given", {name: (x["mean"], x["sd"], draws[name]) for name, x in content.items()})


def cases(folder: Path) -> dict[str, Case]:
    """All 93, those of the smallest data first."""

    def data(name: str) -> Path:
        return folder / "data" / f"{name}.json.gz"

    def case(name: str) -> Case:
        posterior, ref = NAMES[name], folder / "ref" / f"{SAME.get(name, name)}.json"
        reference = functools.partial(reference_of, ref) if ref.exists() else None
        return Case(lambda: posterior.model(data_of(data(posterior.data))), reference)

    names = sorted(NAMES, key=lambda name: data(NAMES[name].data).stat().st_size)
    return {name: case(name) for name in names}


if __name__ == "__main__":
    run(cases, __doc__, RESULTS)
