"""From a SkewGP and its data to their objective with f of finite rank."""

from collections.abc import Sequence
from typing import Any

import pymc as pm

from pymc_skewgp._cost import announce_rows
from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._learn.rows.functions_at import Functions
from pymc_skewgp._learn.rows.group_kind import is_grouped, why_not_in_groups
from pymc_skewgp._learn.rows.inducing_prior import InducingPrior
from pymc_skewgp._learn.rows.latent_at import Latent
from pymc_skewgp._learn.rows.prior_at import PriorFamily, ValuesOf
from pymc_skewgp._learn.rows.rows_at import RowsHere
from pymc_skewgp._learn.rows.rows_objective import RowsObjective
from pymc_skewgp._learn.rows.signs_block import SignsBlock
from pymc_skewgp._learn.rows.spectral_prior import SpectralPrior
from pymc_skewgp._model.gp.spectral_features import active_columns
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._model.graph.data_sites import KnownSites
from pymc_skewgp._posterior.approximations.automatic import MANY_ROWS, automatic
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.approximations.hsgp import HSGP
from pymc_skewgp._posterior.approximations.inducing import Inducing
from pymc_skewgp._posterior.approximations.pivoted_cholesky import PivotedCholesky
from pymc_skewgp._posterior.row_predictors import MOST_LIMITS
from pymc_skewgp._posterior.rows_on import current_client

_LEARNT_WITH = Inducing, PivotedCholesky, HSGP


def why_not_by_rows(gp: Any, known: Sequence[Any], coregion: Any = None) -> str | None:
    """What keeps hyperparameters from being learnt with f of finite rank; None where nothing."""
    if gp.n_pseudo_points and coregion is not None:
        return "it has pseudo-points, and coregion is given"
    if gp.n_pseudo_points and isinstance(gp.approximation, HSGP):
        return "HSGP has no pseudo-points: take Inducing"
    if gp.approximation not in (None, "auto") and not isinstance(gp.approximation, _LEARNT_WITH):
        names = ", ".join(kind.__name__ for kind in _LEARNT_WITH)
        return f"its approximation is {gp.approximation!r}, and only {names} are learnt with"
    if not any(data.likelihood.has_data for data in known):
        return "constraints alone have no rows that blocks are made of"
    if isinstance(gp.approximation, HSGP) and any(_differentiates(data) for data in known):
        return "HSGP has no derivatives for constraints: take Inducing"
    reasons = (_why_not_of(data) for data in known)
    return next((reason for reason in reasons if reason is not None), None)


def why_not_on_workers(gp: Any, known: Sequence[Any]) -> str | None:
    """What, of all that is learnt by rows, is not on workers of a cluster; None where nothing."""
    if gp.n_pseudo_points:
        return "it has pseudo-points"
    constraints = (data.likelihood for data in known if not data.likelihood.has_data)
    return next((f"{likelihood!r} is a constraint" for likelihood in constraints), None)


def _differentiates(known: Any) -> bool:
    return known.likelihood.derivative is not None


def _why_not_of(known: Any) -> str | None:
    """The same of data of one kind."""
    if isinstance(known, KnownSites):
        return None
    assert isinstance(known, KnownData)
    likelihood = known.likelihood
    if not likelihood.has_data and known.X.shape[0] > MOST_LIMITS:
        return f"{likelihood!r} has more than {MOST_LIMITS} virtual points"
    by_row = [name for name, x in known.random.items() if x.ndim and name != "cutpoints"]
    if by_row:
        return f"{', '.join(by_row)} of the likelihood is learnt for each row"
    return why_not_in_groups(known) if is_grouped(known) else None


def approximation_of(gp: Any, known: Sequence[Any], coregion: Any = None) -> Approximation | None:
    """How hyperparameters are learnt from the data; None for the kernel as it is.

    Raises
    ------
    ApproximationError
        Where an approximation was asked for that they cannot be learnt with; or where the rows are
        to be on workers, and some of what is known of f has no place there.
    TooManyRowsError
        Where there are too many rows for the kernel as it is.
    """
    n = sum(max(data.X.shape[0], len(data.y)) for data in known)
    asked = gp.approximation
    if asked is None or (asked == "auto" and n <= MANY_ROWS):
        announce_rows(_n_dense(known))
        return None
    reason = why_not_by_rows(gp, known, coregion)
    if reason is None:
        _refuse_on_workers(gp, known)
        return automatic(n, max(data.n_functions for data in known)) if asked == "auto" else asked
    if asked != "auto":
        raise ApproximationError(
            f"hyperparameters of this SkewGP are not learnt with approximation="
            f"{asked!r}: {reason}. Use approximation=None, or learn with batch_size."
        )
    announce_rows(_n_dense(known), reason)
    return None


def _refuse_on_workers(gp: Any, known: Sequence[Any]) -> None:
    reason = None if current_client() is None else why_not_on_workers(gp, known)
    if reason is not None:
        raise ApproximationError(
            "hyperparameters of this SkewGP are not learnt from rows on the workers of a cluster: "
            f"{reason}. Leave out rows_on."
        )


def _n_dense(known: Sequence[Any]) -> int:
    """Rows of the largest matrix that learning with the kernel as it is has."""
    groups = (data for data in known if isinstance(data, KnownData) and is_grouped(data))
    of_groups = sum(data.whole.columns[0].size for data in groups)
    return max(of_groups, sum(data.X.shape[0] for data in known))


def rows_objective(
    model: pm.Model,
    gp: Any,
    approximation: Approximation,
    objective: Objective,
    functions: Functions,
    known: Sequence[Any],
) -> RowsObjective:
    """That of a SkewGP of finite rank, given that of matrices of all rows, which is not evaluated.

    Its basis, and blocks of the data that are `known`, are still to come.
    """
    coordinates, n_columns = objective.coordinates, known[0].X.shape[1]
    process: PriorFamily
    if isinstance(approximation, HSGP):
        m = approximation.sizes(active_columns(gp.cov_func))
        process = SpectralPrior(coordinates, model, gp, n_columns, m)
    else:
        of: set[ValuesOf] = {data.likelihood.derivative for data in known}
        if gp.n_pseudo_points:
            of.add("pseudo-points")
        process = InducingPrior(coordinates, model, gp, n_columns, of)
    signs = SignsBlock.of_process(gp, model, coordinates, n_columns)
    latent = Latent(process, functions, None)
    nothing = RowsHere(latent, [])
    return RowsObjective(coordinates, latent, signs, objective.prior, objective.values, nothing)
