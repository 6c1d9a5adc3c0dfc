"""Data whose rows share noise, or are about several functions, as sites in blocks of groups."""

from collections.abc import Iterator

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.blocks.group_block import GroupBlock
from pymc_skewgp._gaussian.blocks.group_predictors import DenseRows, FunctionRows, GroupPredictors
from pymc_skewgp._gaussian.blocks.group_sites import GroupSites
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._posterior.approximations.several_functions import FunctionFeatures
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.group_log_probs import SHARED_NOISE, log_probs_of, rest_is_noise
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.row_groups import RowGroups, row_groups
from pymc_skewgp._validation import FloatArray

_NUMBERS_AT_ONCE = 2**21  # of features, in a block


def grouped_blocks(
    rows: Observations, data: DataSet, features: FunctionFeatures, prior: Prior
) -> Iterator[RowBlock | GroupBlock]:
    """Of all groups of the rows of these data."""
    groups = list(row_groups(rows))
    takes_rest = rest_is_noise(groups, features, data.values.n_functions)
    for some in groups:
        n, m = some.shape
        size = max(1, _NUMBERS_AT_ONCE // (m * features.rank))
        for start in range(0, n, size):
            part = some.part(slice(start, start + size))
            yield _block(part, data, features, prior, takes_rest)


def _block(
    groups: RowGroups, data: DataSet, features: FunctionFeatures, prior: Prior, takes_rest: bool
) -> RowBlock | GroupBlock:
    k = data.values.n_functions
    inputs, place = np.unique(groups.values // k, return_inverse=True)
    place = place.reshape(groups.values.shape)
    X = data.X[inputs]
    phi, rest = features.single.at(X)
    if takes_rest:
        groups = groups.with_rest(features.of_rest(groups.values, rest[place], k))
    groups = groups.points_first()
    mean = prior.mean("X", X)[place]
    offset = groups.offset + (groups.design @ mean[:, :, None])[:, :, 0]
    limits = [x - offset for x in (groups.lower, groups.upper, groups.value)]
    variance = np.einsum("ijj->ij", groups.noise)
    if not (variance > 0.0).all():
        raise ApproximationError(
            f"{data.likelihood!r} has rows without noise, which an approximated prior of many rows "
            "does not take: give it noise."
        )
    predictors = _predictors(groups, place, phi, features, k)
    if groups.is_apart:
        lower, upper, value = (x.ravel() for x in limits)
        sites = RowSites(lower, upper, value, variance.ravel())
        return RowBlock(predictors.rows(), sites)
    log_probs = log_probs_of(limits[0], limits[1], groups.noise)
    if log_probs is None:  # of a few groups that is known before
        raise ApproximationError(f"{data.likelihood!r} {SHARED_NOISE}: take fewer rows.")
    return GroupBlock(predictors, GroupSites(limits[0], limits[1], groups.noise, log_probs))


def _predictors(
    groups: RowGroups,
    place: IntArray,
    phi: FloatArray,
    features: FunctionFeatures,
    n_functions: int,
) -> GroupPredictors:
    """Of one input each, or of several."""
    n, m = groups.shape
    half = features.half[groups.values % n_functions]  # (n, p, L)
    if (place == place[:, :1]).all():
        return FunctionRows(phi[place[:, 0]], groups.design @ half)
    factor = np.zeros((n, m, half.shape[2], phi.shape[1]))
    for i in range(place.shape[1]):
        weight = groups.design[:, :, i, None] * half[:, None, i]
        factor += weight[:, :, :, None] * phi[place[:, i]][:, None, None]
    return DenseRows(factor.reshape(n * m, -1), m)
