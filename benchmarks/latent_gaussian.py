"""Latent Gaussian models of other collections through `integrate`: see `latent_models`.

The folder of data has ``models.py`` with functions of no argument that return models, in ``REG`` by
name, and ``ref``: ``pdb_*.json`` as posteriordb has them, and ``nuts_MODEL.json``. Models without a
sound one have those of `posteriordb_effects`, of `posteriordb_exact`, or by NUTS.
"""

import functools
import importlib.util
import json
from pathlib import Path

import numpy as np
from latent_models import Case, Known, run
from posteriordb import reference_of
from references import scalars

RESULTS = Path(__file__).resolve().parent / "results" / "latent_gaussian.csv"
# What posteriordb has by another name.
POSTERIORDB = {
    "eight_schools_c": "eight_schools-eight_schools_noncentered",
    "eight_schools_nc": "eight_schools-eight_schools_noncentered",
    "gp_pois_regr": "gp_pois_regr-gp_pois_regr",
    "gp_regr": "gp_pois_regr-gp_regr",
    "kidscore_interaction": "kidiq-kidscore_interaction",
    "logmesquite": "mesquite-logmesquite",
    "nes1972": "nes1972-nes",
    "blr_sblri": "sblri-blr",
    "arK": "arK-arK",
    "kilpisjarvi": "kilpisjarvi_mod-kilpisjarvi",
}

# The same model of `posteriordb_exact`.
SAME = {"radon_mn_centered": "radon_mn-radon_hierarchical_intercept_centered"}


def by_nuts(path: Path) -> Known:
    content = json.loads(path.read_text())
    found: dict[str, tuple[float, float, float]] = {}
    for variable, summary in content["summary"].items():
        values = [np.ravel(summary[key]) for key in ("mean", "sd", "ess")]
        names = scalars(variable, np.shape(summary["mean"]))
        names = [variable] if len(names) == 1 else names
        found |= dict(zip(names, zip(*values, strict=True), strict=True))
    poor = [f"r_hat {content['max_rhat']:.3f}"] * (content["max_rhat"] > 1.01)
    poor += [f"{content['divergences']} divergent"] * (content["divergences"] > 0)
    how = ", ".join(["importance" if "importance" in content.get("how", "") else "NUTS", *poor])
    return Known(how, {name: x for name, x in found.items() if x[1] > 0.0})


def cases(folder: Path) -> dict[str, Case]:
    """All of ``REG``, in its order."""
    spec = importlib.util.spec_from_file_location("lgm_models", folder / "models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def reference(name: str) -> functools.partial[Known] | None:
        if name in POSTERIORDB:
            return functools.partial(reference_of, folder / "ref" / f"pdb_{POSTERIORDB[name]}.json")
        path = folder / "ref" / f"nuts_{name}.json"
        if path.exists():
            return functools.partial(by_nuts, path)
        return None

    return {
        name: Case(build, reference(name), SAME.get(name, "")) for name, build in module.REG.items()
    }


if __name__ == "__main__":
    run(cases, __doc__, RESULTS)
