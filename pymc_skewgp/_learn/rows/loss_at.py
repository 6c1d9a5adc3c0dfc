"""What the prior that "auto" learns hyperparameters with loses, where they were found."""

from dataclasses import replace
from typing import Any

from pymc_skewgp._learn.rows.rows_objective import RowsObjective
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._posterior.approximations.automatic import warn_of_loss
from pymc_skewgp._posterior.approximations.check import FEW_ROWS, loss_of_fit
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.approximations.inducing import Inducing
from pymc_skewgp._posterior.distributed.chunked_data import is_dask
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.rows_on import current_client


def warn_of_learnt(data: Any, run: Any, stacklevel: int) -> None:
    """The same at the optimum of a `LearningRun`."""
    if isinstance(run.objective, RowsObjective) and data.model.approximation == "auto":
        basis = run.objective.latent.basis  # which are points
        warn_of_loss_at(data, Inducing(basis), run.values, stacklevel + 1)


def warn_of_loss_at(
    data: Any, approximation: Approximation, values: dict[str, Any], stacklevel: int
) -> None:
    """Warn where it would have stopped a posterior; `data` are `TrainingData` of a SkewGP.

    Nothing is known of rows on the workers of a cluster.
    """
    gp = data.model
    if gp.approximation != "auto" or is_dask(data.X) or current_client() is not None:
        return
    posterior = posterior_of(
        gp.approximated_by(approximation),
        data.X,
        data.y,
        data.likelihood,
        values,
        coregion=data.coregion,
        weights=data.weights,
    )
    fit = posterior._fit
    if isinstance(fit, FiniteRankFit):  # a warning is not to take longer than the search
        prior = replace(posterior.prior, approximation=None)
        loss = loss_of_fit(fit, prior, of_more=FEW_ROWS)
        warn_of_loss(approximation, loss, stacklevel + 1)
