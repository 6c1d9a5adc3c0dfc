"""What an approximated prior loses on data: their rows as noisy values of f, by EP's sites.

EP's evidence is stationary in its sites. So what another prior changes of it is, to first order,
the change of the evidence of Gaussian values, which the sites are.
"""

from typing import TYPE_CHECKING

import numpy as np

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import as_matrix
from pymc_skewgp._posterior.approximations.loss import (
    ApproximationLoss,
    NoisyValues,
    loss_of_values,
)
from pymc_skewgp._posterior.approximations.placing import column_scales
from pymc_skewgp._posterior.approximations.several_functions import FunctionFeatures
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.row_predictors import PredictorRows
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit

# Rows of which every pair is met; of more some neighbourhoods, as rows share what features leave
# of f with those near them.
MOST_ROWS, FEW_ROWS, _NEIGHBOURHOOD = 20_000, 5000, 2500
LIMIT = 0.1  # nats that are as good as none
_SILENT = 1e-12  # of the largest precision: rows that say nothing
_SEED = 0


def loss_of_fit(
    fit: "FiniteRankFit",
    prior: Prior,
    limit: float = LIMIT,
    most_rows: int = MOST_ROWS,
    of_more: int = MOST_ROWS,
) -> ApproximationLoss | None:
    """Nats that the fit's evidence lacks to that of a prior with the kernel itself.

    Of rows about several values each, and of more than `most_rows`, of which only `of_more` are
    met, the evidence itself is not compared. Then the value is what labels lose on average at
    most, the Kullback-Leibler divergence D of noisy values, and the error what it scatters by,
    sqrt(2 D).

    `limit` is what the loss is compared with. None where the rows are on the workers of a cluster.
    """
    if fit.predictors is None:
        return None
    _ = fit.ep  # whose sites the blocks have
    features, known, parts = fit.features, True, []
    for data, rows in fit.predictors:
        if any(part.X is None for part in rows):
            parts.append(_information(data, features))
        else:
            parts += [_sites(part, features) for part in rows]
        known = known and all(part.X is not None and part.design is None for part in rows)
    scale = float(features.between.diagonal().max())
    X, value, variance, counts = (np.concatenate(x) for x in zip(*parts, strict=True))
    values = NoisyValues(X, value / np.sqrt(scale), variance / scale, counts)
    n, copies = value.size, float(fit.n_functions)
    if not n:
        return ApproximationLoss(0.0, 0.0, 0.0)
    if n > most_rows:
        values = values.rows(_neighbourhoods(prior, X, min(of_more, most_rows)))
        copies, known = copies * n / values.value.size, False
    found = loss_of_values(prior, features.single, values, limit if known else np.inf)
    if known:
        return found
    divergence = copies * max(found.divergence, 0.0)
    return ApproximationLoss(divergence, float(np.sqrt(2.0 * divergence)), divergence)


def _sites(part: PredictorRows, features: FunctionFeatures) -> NoisyValues:
    """EP's, of the values of f themselves; those that say nothing are left out."""
    assert part.X is not None
    block = part.block
    if part.design is not None:  # of each value as if the others of a predictor were known
        precision: FloatArray = part.design.power(2).T @ np.maximum(block.tau, 0.0)
        return _seen(part.X, precision, features)
    scale = np.broadcast_to(part.scale, block.tau.shape)
    counts = np.broadcast_to(block.sites.counts, block.tau.shape)  # type: ignore[union-attr]
    kept = block.tau > _SILENT * block.tau.max(initial=0.0)
    tau, nu, scale = block.tau[kept], block.nu[kept], scale[kept]
    return NoisyValues(part.X[kept], nu / tau / scale, 1.0 / (tau * scale**2), counts[kept])


def _information(data: DataSet, features: FunctionFeatures) -> NoisyValues:
    """What rows would say of each value if they were seen to the last digit."""
    rows = data.rows()
    design = abs(as_matrix(rows.A, rows.n_rows)).power(2)
    precision = np.zeros(data.values.size)
    precision[: design.shape[1]] = design.T @ (1.0 / rows.variances)
    return _seen(data.X, precision.reshape(data.X.shape[0], -1).max(axis=1), features)


def _seen(X: FloatArray, precision: FloatArray, features: FunctionFeatures) -> NoisyValues:
    """Values of which nothing is known but their precision."""
    kept = precision > 0.0
    X = X[kept]
    rest = features.single.at(X)[1] * float(features.between.diagonal().max())
    ones = np.ones(X.shape[0])
    return NoisyValues(X, 0.0 * ones, 1.0 / precision[kept] + rest, ones)


def _neighbourhoods(prior: Prior, X: FloatArray, size: int) -> IntArray:
    """About so many rows: those around a few, in units of the kernel."""
    rng = np.random.default_rng(_SEED)
    some = X[rng.choice(X.shape[0], 5000)]
    scaled = X * column_scales(prior, some, rng)
    chosen, each = [], min(size, _NEIGHBOURHOOD)
    for centre in rng.choice(X.shape[0], size // each, replace=False):
        square = np.square(scaled - scaled[centre]).sum(axis=1)
        chosen.append(np.argpartition(square, each)[:each])
    return np.unique(np.concatenate(chosen))
