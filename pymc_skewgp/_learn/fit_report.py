"""`HyperparameterFit`: what a search for hyperparameters found, and how it got there."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_skewgp._deprecation import RenamedAttribute
from pymc_skewgp._gaussian.weights import Estimate

# Entries of an array that a line shows.
_SHOWN = 4


@dataclass(frozen=True, repr=False)
class HyperparameterFit:
    """Result of `find_hyperparameters`.

    ``print`` shows values, standard errors and whether the search converged; ``repr`` the same in
    a line.

    Attributes
    ----------
    point : dict of arrays
        The optimum: random variables and Deterministics by name, on their own scale. What
        `SkewGP.posterior` and ``pm.sample(initvals=...)`` take.
    log_marginal_likelihood : Estimate
        At the optimum, in nats, with its standard error, from 1024 fresh draws; of the composite
        likelihood where `kind` says so, which does not compare with a marginal likelihood
        (`SkewGPClassifier` gives the marginal likelihood of all labels all the same). Priors are
        not in it.
    improper_priors : list of str
        Variables with a flat prior that are integrated out of it, as coefficients of ``pm.Flat``:
        of density 1, so that it is the restricted likelihood (REML) up to a constant, and compares
        only with that of models with the same ones.
    log_prior : float
        Log density of the priors (and of all else in the model), without Jacobians.
    std_error : dict of arrays
        Standard errors of what is in `point`, from the Hessian of EP's evidence and the derivatives
        of the transforms: a Gaussian approximation, infinite for what is not identified. Empty for
        more than 40 parameters, for a composite likelihood, whose Hessian ignores the dependence
        between batches, and where `SkewGPClassifier` searched on part of the data only.
    kind : {"evidence", "composite", "frechet"}
        What was maximised, besides the prior.
    converged : bool
        Whether the best ascent ended at an optimum. `maximize_frechet_bound` makes a fixed number
        of iterations and always says so.
    at_bound : list of str
        Coordinates at the bounds of the search, a factor of a thousand away from the start.
    flat : list of str
        Weakly identified coordinates: the objective hardly depends on them.
    runs : Dataset
        Dimension ``run``: ``method``, ``pattern`` of the binary variables, ``n_evaluations``,
        ``log_evidence`` and ``total`` (with the prior) of its best point.
    path : Dataset
        Dimension ``evaluation``: ``run``, ``log_evidence``, ``total`` and ``x``, the unconstrained
        parameters (``coordinate``).
    seconds : float
        Of the search, compilation included; the final evidence and the standard errors come after.
    """

    point: dict[str, NDArray[Any]]
    log_marginal_likelihood: Estimate
    log_prior: float
    std_error: dict[str, NDArray[Any]]
    kind: str
    converged: bool
    at_bound: list[str]
    flat: list[str]
    runs: xr.Dataset
    path: xr.Dataset
    seconds: float
    improper_priors: list[str] = field(default_factory=list)

    settled = RenamedAttribute("converged")

    def __repr__(self) -> str:
        evidence = self.log_marginal_likelihood
        values = ", ".join(f"{name}={_short(value)}" for name, value in self.point.items())
        parts = [
            f"log {self._likelihood} {evidence.value:.2f} +- {evidence.std_error:.2g}{self._flat}",
            "converged" if self.converged else "not converged",
            *self._remarks(),
        ]
        return f"HyperparameterFit({values}; {'; '.join(parts)})"

    def __str__(self) -> str:
        lines = [f"log {self._likelihood} {self.log_marginal_likelihood}{self._flat}"]
        if self.kind != "frechet":  # which leaves priors out
            lines[0] += f", log prior {self.log_prior:.3f}"
        for name, value in self.point.items():
            error = self.std_error.get(name)
            shown = np.array2string(value, precision=4, threshold=8)
            if error is not None:
                shown += f" +- {np.array2string(error, precision=2, threshold=8)}"
            lines.append(f"  {name}: {shown}")
        lines += self._remarks()
        if not self.std_error:
            lines.append("no standard errors (see HyperparameterFit)")
        if not self.converged:
            lines.append("not converged: raise n_restarts, or give a start")
        lines.append(
            f"{'converged: ' if self.converged else ''}{self.path.sizes['evaluation']} evaluations "
            f"in {self.runs.sizes['run']} runs, {self.seconds:.1f} s"
        )
        return "\n".join(lines)

    @property
    def _likelihood(self) -> str:
        return "composite likelihood" if self.kind == "composite" else "marginal likelihood"

    @property
    def _flat(self) -> str:
        names = ", ".join(self.improper_priors)
        return f" (under density 1 of {names})" if names else ""

    def _remarks(self) -> list[str]:
        remarks = {"at the bounds of the search": self.at_bound, "weakly identified": self.flat}
        return [f"{remark}: {', '.join(found)}" for remark, found in remarks.items() if found]


def _short(value: NDArray[Any]) -> str:
    if value.size > _SHOWN:
        return f"<array {value.shape}>"
    return np.array2string(value, precision=4, separator=", ").replace("\n", "")
