"""Several rows of one value of f, such as trials, as one site of it."""

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.blocks.block_sites import FunctionSites, RowSites
from pymc_skewgp._gaussian.site_factors import SiteFunction, SlopeFunction
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._posterior.averaged_sites import NoiseRule
from pymc_skewgp._validation import FloatArray


class _Kinds:
    """Equal rows of one value as one row that counts so often, in the order of the values."""

    def __init__(self, rows: Observations, design: sparse.csr_array) -> None:
        value = np.where(rows.is_point, rows.value, 0.0)
        limits = (np.where(rows.is_point, 0.0, x) for x in (rows.lower, rows.upper))
        columns = (design.indices, design.data, rows.a, rows.S, *limits, value, rows.is_point)
        table, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
        self.unit = table[:, 0].astype(np.intp)
        self.counts, self.scale, offset = counts.astype(float), table[:, 1], table[:, 2]
        point = table[:, 7] > 0
        lower, upper = (np.where(point, np.nan, table[:, i] - offset) for i in (4, 5))
        self.rows = RowSites(
            lower, upper, np.where(point, table[:, 6] - offset, np.nan), table[:, 3]
        )


def repeated_sites(
    observations: Observations,
    design: sparse.csr_array,
    phi: FloatArray,
    mean: FloatArray,
    rest: FloatArray,
) -> FunctionSites:
    """The product of all rows of each value of f, averaged over what features leave of it."""
    kinds, n = _Kinds(observations, design), mean.size
    sd = np.sqrt(np.einsum("ij,ij->i", phi, phi))
    rule = NoiseRule.of(_products(kinds, slice(0, n))[0], rest, mean, sd)

    def functions(rows: slice) -> tuple[SiteFunction, SlopeFunction]:
        found = _products(kinds, slice(*rows.indices(n)[:2]))
        return found if rule is None else rule.part(rows).averaged(*found)

    return FunctionSites(functions, mean)


def _products(kinds: _Kinds, units: slice) -> tuple[SiteFunction, SlopeFunction]:
    """Log of the product of the rows of some values, and its derivatives."""
    first, last = units.start, units.stop
    own = slice(*np.searchsorted(kinds.unit, [first, last]))
    at, counts, scale = kinds.unit[own] - first, kinds.counts[own], kinds.scale[own]
    sums = sparse.csr_array((counts, (at, np.arange(at.size))), shape=(last - first, at.size))

    def added(values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        return np.asarray((sums @ values.T).T).reshape(*shape[:-1], last - first)

    def spread(eta: FloatArray) -> FloatArray:
        return np.ascontiguousarray((scale * eta[..., at]).reshape(-1, at.size))

    def log_prob(eta: FloatArray) -> FloatArray:
        return added(kinds.rows.log_prob(own, spread(eta)), eta.shape)

    def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        one, two = kinds.rows.slopes(own, spread(eta))
        return added(scale * one, eta.shape), added(scale**2 * two, eta.shape)

    return log_prob, slopes
