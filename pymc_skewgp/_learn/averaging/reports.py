"""What an integral over hyperparameters says of itself: attributes of the result, and warnings."""

from typing import Any

import numpy as np

from pymc_skewgp._errors import IntegrationWarning, warn
from pymc_skewgp._gaussian.proposals.policy import DEFAULT
from pymc_skewgp._gaussian.weights import describe_weights
from pymc_skewgp._learn.averaging.exact_points import ExactPoints
from pymc_skewgp._learn.averaging.integration import CHAINS, RUNGS, Integral
from pymc_skewgp._learn.averaging.settings import ImportanceSettings

_DEFAULT, _LARGEST_SE = ImportanceSettings(), DEFAULT.largest_se


def attributes_of(integral: Integral, exact: ExactPoints) -> dict[str, Any]:
    """By name; see `integrate`."""
    by_ep, correction = integral.log_integral, exact.correction()
    return {
        "log_evidence": by_ep.value + correction.value,
        "log_evidence_se": float(np.hypot(by_ep.std_error, correction.std_error)),
        "relative_ess": by_ep.relative_ess,
        "pareto_k": by_ep.pareto_k,
        "relative_ess_exact": correction.relative_ess,
        "pareto_k_exact": correction.pareto_k,
        "method": RUNGS[integral.rung],
        "rung": integral.rung,
        "n_evaluations": integral.n_evaluations,
        "n_evidences": len(exact.points),
    }


def warn_of(integral: Integral, exact: ExactPoints, stacklevel: int) -> None:
    """Warn of weights, or chains, that are not good enough."""
    if not integral.accepted:
        what = (
            "the chains of the hyperparameters have not converged"
            if integral.rung == CHAINS
            else "the importance weights of the hyperparameters are very unequal"
        )
        warn(
            f"{what} ({describe_weights(integral.log_integral)}): the draws may not be those of "
            "the posterior. Give narrower priors, or use pm.sample.",
            IntegrationWarning,
            stacklevel=stacklevel,
        )
    correction = exact.correction()
    if len(exact.points) == 1:  # one evidence, of draws that nobody has judged
        if not correction.std_error <= _LARGEST_SE:
            warn(
                "the importance weights of the draws are very unequal "
                f"({describe_weights(correction)}; standard error of the log evidence "
                f"{correction.std_error:.2g} nats): use pm.sample.",
                IntegrationWarning,
                stacklevel=stacklevel,
            )
        return
    if correction.heavy_tailed or correction.relative_ess < _DEFAULT.least_exact_ess:
        warn(
            "expectation propagation's evidence is far from the exact one "
            f"({describe_weights(correction)} of the weights between them): raise n_evidences, or "
            "use pm.sample.",
            IntegrationWarning,
            stacklevel=stacklevel,
        )
