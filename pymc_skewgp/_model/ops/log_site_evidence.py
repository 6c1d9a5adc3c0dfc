"""The log marginal likelihood of sites, with rows or without, as one PyTensor Op with gradient."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.log_prob_gradient import METHODS, LogProbGradient, LogProbMethod
from pymc_skewgp._gaussian.repeated_log_prob import folded
from pymc_skewgp._model.ops.log_evidence import evidence_of
from pymc_skewgp._model.ops.value_with_derivatives import ValueWithDerivatives
from pymc_skewgp._observations.learnt_sites import SiteFamily, SitesGiven, joined_sites
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._posterior.evidence_terms import Intervals
from pymc_skewgp._posterior.interval_probability import single_rows
from pymc_skewgp._posterior.site_evidence import sites_by_ep, sites_by_pairs
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray, as_count

# Of EP, begun anew each time, so that the value is a function of the parameters alone.
_TOLERANCE = 1e-6
_SEED = 0
_ROWS = ("lower", "upper", "value", "noise", *SunParameters._fields)


@dataclass(frozen=True, eq=False)
class SiteKinds:
    """Sites of several kinds of data, one after the other, but for their parameters.

    Attributes
    ----------
    families : tuple of SiteFamily
    data : tuple of ndarray
    ndims : tuple of tuple of int
        Dimensions of the parameters of each.
    """

    families: tuple[SiteFamily, ...]
    data: tuple[Data, ...]
    ndims: tuple[tuple[int, ...], ...]

    def at(self, parameters: Sequence[FloatArray]) -> SitesGiven:
        """Sites with these parameters; ValueError where they are impossible."""
        rest = iter(parameters)
        known = zip(self.families, self.data, self.ndims, strict=True)
        return joined_sites(
            [family.at(y, [next(rest) for _ in ndims]) for family, y, ndims in known]
        )


class LogSiteEvidence(ValueWithDerivatives):
    """`LogEvidence` whose last rows are predictors of sites; then come the sites' parameters.

    Parameters
    ----------
    kinds : SiteKinds
    method : {"twisted", "ep"}
        "twisted" is by mirrored pairs at fixed points; see `site_evidence`.
    n_draws : int
    shared_noise, repeats : bool
        As for `LogEvidence`.

    Raises
    ------
    ValueError
        An unknown method, `n_draws` < 1.
    """

    quantity = "marginal likelihood"
    __props__ = ("kinds", "method", "n_draws", "shared_noise", "repeats")

    def __init__(
        self,
        kinds: SiteKinds,
        method: LogProbMethod,
        n_draws: int,
        shared_noise: bool = False,
        repeats: bool = False,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {METHODS}, got {method!r}.")
        self.kinds, self.method = kinds, method
        self.n_draws = as_count("n_draws", n_draws)
        self.shared_noise, self.repeats = shared_noise, repeats

    @property
    def input_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of `LogEvidence`, and of the parameters."""
        n = sum(len(ndims) for ndims in self.kinds.ndims)
        counts = ("counts",) if self.repeats else ()
        return (*_ROWS, *counts, *(f"parameter {i}" for i in range(n)))

    @property
    def gufunc_signature(self) -> str:  # type: ignore[override]
        """Core dimensions."""
        noise = "(n,n)" if self.shared_noise else "(n)"
        inputs = f"(n),(n),(n),{noise},(n),(n,n),(n,s),(s),(s,s)" + (",(n)" if self.repeats else "")
        for i, ndim in enumerate(x for ndims in self.kinds.ndims for x in ndims):
            inputs += ",(" + ",".join(f"k{i}{j}" for j in range(ndim)) + ")"
        return f"{inputs}->(),{inputs}"

    def evaluate(self, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        """Value and derivatives; minus infinity and zeros where parameters are impossible."""
        n_rows = len(_ROWS) + self.repeats
        rows, parameters = inputs[:n_rows], inputs[n_rows:]
        nothing = (np.asarray(-np.inf), *(np.zeros_like(x) for x in inputs))
        in_parameters: list[FloatArray] = []
        try:
            sites = self.kinds.at(parameters)
        except ValueError:
            return nothing

        def joint(intervals: Intervals) -> LogProbGradient:
            found, own = self._joint(intervals, sites)
            in_parameters.extend(own)
            return found

        options = {"method": self.method, "n_draws": self.n_draws}
        try:
            value, *derivatives = evidence_of(joint, options, *rows)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return nothing
        if not np.isfinite(value) or not all(np.isfinite(x).all() for x in in_parameters):
            return nothing
        return value, *derivatives, *(np.asarray(x, dtype=np.float64) for x in in_parameters)

    def _joint(
        self, intervals: Intervals, sites: SitesGiven
    ) -> tuple[LogProbGradient, list[FloatArray]]:
        rows, kind = single_rows(intervals)
        with no_warnings(), np.errstate(all="ignore"), few_blas_threads(rows.lower.size):
            if self.method == "ep":
                found, own = sites_by_ep(rows, sites, _TOLERANCE)[0]
            else:
                found, own = sites_by_pairs(rows, sites, self.n_draws, _SEED, _TOLERANCE)
        return found if kind is None else folded(found, kind, intervals.counts.size), own


def pt_log_site_evidence(
    kinds: SiteKinds,
    rows: Any,
    sun: SunParameters,
    parameters: Sequence[Any],
    *,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
) -> TensorVariable:
    """Log density of rows and sites of a unified skew-normal vector.

    Parameters
    ----------
    kinds : SiteKinds
    rows : NoisyRows
        The last of them predictors of sites.
    sun : SunParameters
        Of all rows without their noise.
    parameters : sequence of TensorVariable
        Of the sites, one kind after the other.
    method : {"twisted", "ep"}
    n_draws : int, default 256
        Pairs.

    Raises
    ------
    NotImplementedError
        For parameters with batch dimensions.
    """
    if sun.mu.type.ndim != 1:
        raise NotImplementedError("the evidence of sites is for one set of parameters at a time.")
    repeats = rows.counts is not None
    op = LogSiteEvidence(kinds, method, n_draws, rows.S.type.ndim == 2, repeats)
    counts = [rows.counts] if repeats else []
    known = [rows.lower, rows.upper, rows.value, rows.S, *sun, *counts]
    return op(*(pt.as_tensor_variable(x) for x in [*known, *parameters]))[0]
