"""Tempering by the rows that matter, against quadrature and against the weights of all rows.

Some 2 CPU seconds.
"""

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from pymc_skewgp._gaussian.blocks.ep import LocalBlocks, fit_blocks, rough_blocks
from pymc_skewgp._gaussian.blocks.functions import FunctionSites
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.rows import RowBlock, RowSites
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.escalation import GoalSettings, SamplerSettings

N, SD = 3000, 20.0
NEVER = GoalSettings(accept=2.0, temper=0.3)
TEMPERED = SamplerSettings(draws=NEVER, accept_large=2.0)


def separated():
    """A line of prior deviation 20 for labels that it separates, one in thirty of them 1.

    Sixty places, where rows repeat; their factors, and a sign for each row.
    """
    rng = np.random.default_rng(0)
    places = np.sort(rng.uniform(-3.0, 1.0, 60))
    x = places[(60 * rng.random(N) ** 2).astype(int)]
    sign = np.where(x > np.quantile(x, 0.97), 1.0, -1.0)
    return SD * np.stack([np.ones(N), x], axis=1), sign


def blocks_of(factor, sign, sites_of=None):
    lower, upper = np.where(sign > 0, 0.0, -np.inf), np.where(sign > 0, np.inf, 0.0)
    rows = [slice(i, i + 700) for i in range(0, N, 700)]
    plain = [RowSites(lower[i], upper[i], np.full(N, np.nan)[i], np.ones(N)[i]) for i in rows]
    sites = plain if sites_of is None else [sites_of(sign[i]) for i in rows]
    return LocalBlocks([RowBlock(factor[i], s) for i, s in zip(rows, sites, strict=True)])


def by_quadrature(factor, sign):
    """Log evidence, and the mean of the coordinates."""
    kinds, counts = np.unique(sign[:, None] * factor, axis=0, return_counts=True)
    first, second = np.linspace(-4.0, 4.0, 601), np.linspace(-4.0, 4.0, 601)
    logs = np.empty((first.size, second.size))
    for i, c in enumerate(first):
        eta = kinds[:, 0] * c + np.outer(second, kinds[:, 1])
        logs[i] = log_ndtr(eta) @ counts + norm.logpdf(c) + norm.logpdf(second)
    weights = np.exp(logs - logsumexp(logs))
    mean = np.array([weights.sum(axis=1) @ first, weights.sum(axis=0) @ second])
    return logsumexp(logs) + 2.0 * np.log(first[1] - first[0]), mean


def test_evidence_and_mean_are_those_of_all_rows():
    factor, sign = separated()
    blocks = blocks_of(factor, sign)
    ep = fit_blocks(blocks)
    rough = rough_blocks(blocks)
    assert rough is not None
    assert 0 < rough.n_rows < N / 4
    draws = SiteSampler(BlockPairs(ep.gaussian, blocks), TEMPERED).members(
        4096, np.random.default_rng(1)
    )
    assert draws.method == "tempered"
    value, mean = by_quadrature(factor, sign)
    # Four standard errors, of Student's t with 15 degrees of freedom: 1 in 1000, seed fixed.
    assert abs(draws.log_prob.value - value) < 4.0 * draws.log_prob.std_error
    assert draws.log_prob.std_error < 0.1
    weights = np.exp(draws.log_weights - logsumexp(draws.log_weights))
    found = weights @ draws.draws
    own = np.array([
        np.average(draws.draws[of], axis=0, weights=weights[of])
        for of in (draws.replicate == i for i in np.unique(draws.replicate))
    ])  # fmt: skip
    error = own.std(axis=0, ddof=1) / np.sqrt(len(own))
    assert (np.abs(found - mean) < 4.0 * error).all()


@pytest.mark.parametrize("case", ["few rows", "functions"])
def test_all_rows_where_they_do_not_come_apart(case):
    factor, sign = separated()

    def functions(sign):
        def log_prob(eta):
            return log_ndtr(sign * eta)

        def slopes(eta):
            z = sign * eta
            ratio = np.exp(norm.logpdf(z) - log_ndtr(z))
            return sign * ratio, -ratio * (z + ratio)

        return FunctionSites(log_prob, slopes, *np.zeros((3, sign.size)))

    if case == "few rows":
        blocks = LocalBlocks(blocks_of(factor, sign).blocks[:2])
    else:
        blocks = blocks_of(0.1 * factor, sign, functions)
    fit_blocks(blocks)
    assert rough_blocks(blocks) is None
