"""Which fit data are answered by: the latent vector that is drawn for them."""

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._posterior.data_sets import DataSet, n_functions, rows_of, sites_of
from pymc_skewgp._posterior.finite_rank import finite_rank_prior
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.finite_rank_values import FiniteRankValues, are_values
from pymc_skewgp._posterior.function_fit import FunctionFit
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.process_fit import ProcessFit
from pymc_skewgp._posterior.site_fit import SiteFit

# Rows a coordinate from which on pairs of coordinates are better than draws of all rows, and rows
# up to which the latter take moments.
_ROWS_A_COORDINATE = 5
MOST_DENSE_ROWS = 5000


def fit_of(prior: Prior, sets: tuple[DataSet, ...]) -> FunctionFit:
    """Rows, or sites, under the prior as it is; many rows under an approximated one in blocks."""
    if prior.approximation is not None:
        prior, features = finite_rank_prior(prior, np.vstack([data.X for data in sets]))
        n = sum(data.values.size for data in sets)
        rank = features.rank * n_functions(sets)
        if n > min(_ROWS_A_COORDINATE * rank, MOST_DENSE_ROWS):
            try:
                kind = FiniteRankValues if are_values(sets, prior) else FiniteRankFit
                return kind(prior, features, sets)
            except ApproximationError:
                if n > MOST_DENSE_ROWS:
                    raise
    parts, sites = [data.values for data in sets], sites_of(sets)
    if sites is None:
        return ProcessFit(prior, parts, *rows_of(sets, prior))
    rows, constrained = rows_of(sets, prior)
    return SiteFit(prior, parts, rows, sites, constrained[~rows.is_point])
