"""Models of several predictors through `integrate`, beside long runs of NUTS: see `latent_models`.

    python benchmarks/several_predictors_agreement.py --references DIR [--make-references]
        --data DIR [--only MODEL ...] [--cpu-seconds 300]

Of `several_predictors` at 100 rows, and of the folder of `latent_gaussian` posteriordb's model of a
motorcycle helmet. Functions are whitened in both, and NUTS is nutpie's. The helmet's reference is
importance sampling of its hyperparameters and log deviation, with the mean integrated out.
"""

import functools
from pathlib import Path

from latent_gaussian import cases as cases_of
from latent_models import Case, run
from several_predictors import problem

RESULTS = Path(__file__).resolve().parent / "results" / "several_predictors_agreement.csv"
NAMES = ("softmax 3", "mean and log sd", "zero inflation", "rate and dispersion")


def cases(folder: Path) -> dict[str, Case]:
    """Five, each with a reference of its own."""
    own = {name: Case(functools.partial(problem, name, 100, 1.0)) for name in NAMES}
    return {**own, "mcycle_two_gps": cases_of(folder)["mcycle_two_gps"]}


if __name__ == "__main__":
    run(cases, __doc__, RESULTS)
