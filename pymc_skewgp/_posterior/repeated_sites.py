"""Several rows of one value of f, such as trials, as one site of it."""

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.blocks.block_sites import FunctionSites, RowSites
from pymc_skewgp._gaussian.row_factors import RowFactors
from pymc_skewgp._gaussian.site_factors import SiteFunction, SlopeFunction
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._posterior.averaged_sites import NoiseRule
from pymc_skewgp._validation import FloatArray


def _row_factors(rows: Observations, design: sparse.csr_array, size: int) -> RowFactors:
    """Equal rows of one value as one row that counts so often, in the order of the values."""
    value = np.where(rows.is_point, rows.value, 0.0)
    limits = (np.where(rows.is_point, 0.0, x) for x in (rows.lower, rows.upper))
    columns = (design.indices, design.data, rows.a, rows.S, *limits, value, rows.is_point)
    table, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
    offset, point = table[:, 2], table[:, 7] > 0
    lower, upper = (np.where(point, np.nan, table[:, i] - offset) for i in (4, 5))
    known = RowSites(lower, upper, np.where(point, table[:, 6] - offset, np.nan), table[:, 3])
    unit = table[:, 0].astype(np.intp)
    return RowFactors(unit, known, counts.astype(float), table[:, 1], size)


def repeated_sites(
    observations: Observations,
    design: sparse.csr_array,
    phi: FloatArray,
    mean: FloatArray,
    rest: FloatArray,
) -> FunctionSites:
    """The product of all rows of each value of f, averaged over what features leave of it."""
    factors = _row_factors(observations, design, mean.size)
    sd = np.sqrt(np.einsum("ij,ij->i", phi, phi))
    rule = NoiseRule.of(factors.log_prob, rest, mean, sd)

    def functions(rows: slice) -> tuple[SiteFunction, SlopeFunction]:
        own = factors.part(rows)
        if rule is None:
            return own.log_prob, own.slopes
        return rule.part(rows).averaged(own.log_prob, own.slopes)

    return FunctionSites(functions, mean)
