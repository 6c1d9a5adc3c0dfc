"""From a SkewGP and its data to their objective with f of finite rank."""

from collections.abc import Sequence
from typing import Any

import pymc as pm

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._learn.rows.inducing_prior import InducingPrior
from pymc_skewgp._learn.rows.prior_at import PriorFamily
from pymc_skewgp._learn.rows.rows_at import RowsHere
from pymc_skewgp._learn.rows.rows_objective import RowsObjective
from pymc_skewgp._learn.rows.spectral_prior import SpectralPrior
from pymc_skewgp._model.gp.spectral_features import active_columns
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._model.graph.data_sites import KnownSites
from pymc_skewgp._posterior.approximations.automatic import MANY_ROWS, automatic
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.approximations.hsgp import HSGP
from pymc_skewgp._posterior.approximations.inducing import Inducing
from pymc_skewgp._posterior.approximations.pivoted_cholesky import PivotedCholesky

_LEARNT_WITH = Inducing, PivotedCholesky, HSGP


def why_not_by_rows(gp: Any, known: Sequence[Any], coregion: Any = None) -> str | None:
    """What keeps hyperparameters from being learnt with f of finite rank; None where nothing."""
    if gp.n_pseudo_points:
        return "it has pseudo-points"
    if coregion is not None:
        return "coregion is given"
    if gp.approximation not in (None, "auto") and not isinstance(gp.approximation, _LEARNT_WITH):
        names = ", ".join(kind.__name__ for kind in _LEARNT_WITH)
        return f"its approximation is {gp.approximation!r}, and only {names} are learnt with"
    reasons = (_why_not_of(data) for data in known)
    return next((reason for reason in reasons if reason is not None), None)


def _why_not_of(known: Any) -> str | None:
    """The same of data of one kind."""
    if isinstance(known, KnownSites):
        return None
    assert isinstance(known, KnownData)
    likelihood = known.likelihood
    if known.n_functions > 1:
        return f"{likelihood!r} is about several functions"
    if likelihood.derivative is not None or not likelihood.has_data or likelihood.relative_noise:
        return f"{likelihood!r} is a constraint"
    if known.shares_noise:
        return f"{likelihood!r} has noise that its rows share"
    by_row = [name for name, x in known.random.items() if x.ndim and name != "cutpoints"]
    if by_row:
        return f"{', '.join(by_row)} of the likelihood is learnt for each row"
    return None


def approximation_of(gp: Any, known: Sequence[Any], coregion: Any = None) -> Approximation | None:
    """How hyperparameters are learnt from the data; None for the kernel as it is.

    Raises
    ------
    ApproximationError
        Where an approximation was asked for that they cannot be learnt with.
    """
    n = sum(max(data.X.shape[0], len(data.y)) for data in known)
    asked = gp.approximation
    if asked is None or (asked == "auto" and n <= MANY_ROWS):
        return None
    reason = why_not_by_rows(gp, known, coregion)
    if reason is None:
        return automatic(n) if asked == "auto" else asked
    if asked != "auto":
        raise ApproximationError(
            f"hyperparameters of this SkewGP are not learnt with approximation="
            f"{asked!r}: {reason}. Use approximation=None, or learn with batch_size."
        )
    return None


def rows_objective(
    model: pm.Model, gp: Any, approximation: Approximation, objective: Objective, n_columns: int
) -> RowsObjective:
    """That of a SkewGP of finite rank, given that of matrices of all rows, which is not evaluated.

    Its data and its basis are still to come.
    """
    coordinates = objective.coordinates
    process: PriorFamily
    if isinstance(approximation, HSGP):
        m = approximation.sizes(active_columns(gp.cov_func))
        process = SpectralPrior(coordinates, model, gp, n_columns, m)
    else:
        process = InducingPrior(coordinates, model, gp, n_columns)
    nothing = RowsHere(process, [], None)
    return RowsObjective(coordinates, process, objective.prior, objective.values, nothing, None)
