"""Rows in blocks against EP of one piece, exact probabilities, quadrature and differences.

Some 2 CPU seconds.
"""

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from pymc_skewgp._gaussian.blocks.ep import LocalBlocks, fit_blocks, rough_blocks
from pymc_skewgp._gaussian.blocks.functions import FunctionSites
from pymc_skewgp._gaussian.blocks.groups import GroupSites, OneFactor, one_factor
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs, singles_side_by_side
from pymc_skewgp._gaussian.blocks.rows import RowBlock, RowSites, SparseBlock, row_block
from pymc_skewgp._gaussian.compiled.row_sites import log_probs
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.covariance import LowRankCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._gaussian.escalation import GoalSettings, SamplerSettings

OPEN = np.inf


def problem(n=60, r=4, seed=0, size=1.0):
    """Factor, and rows of all kinds: one-sided, two-sided, without limits; noise of their own."""
    rng = np.random.default_rng(seed)
    factor = size * rng.standard_normal((n, r))
    lower, upper = np.full(n, -OPEN), np.full(n, OPEN)
    kind = np.arange(n) % 4
    lower[kind == 0] = rng.normal(-1.0, 0.5, (kind == 0).sum())
    upper[kind == 1] = rng.normal(1.0, 0.5, (kind == 1).sum())
    lower[kind == 2] = rng.normal(-1.0, 0.3, (kind == 2).sum())
    upper[kind == 2] = lower[kind == 2] + rng.uniform(0.2, 2.0, (kind == 2).sum())
    return factor, lower, upper, rng.uniform(0.5, 2.0, n)


def blocks_of(factor, lower, upper, noise, value=None, size=17, counts=None):
    value = np.full(lower.size, np.nan) if value is None else value
    columns = [lower, upper, value, noise] + ([] if counts is None else [counts])
    rows = [slice(i, i + size) for i in range(0, lower.size, size)]
    return LocalBlocks([RowBlock(factor[i], RowSites(*(x[i] for x in columns))) for i in rows])


def test_log_ndtr_by_table():
    x = np.concatenate([np.linspace(-12.0, 10.0, 4001), [-60.0, 40.0]])
    one = np.ones((1, 1))
    rows = np.stack([0.0 * one[0], OPEN * one[0], np.nan * one[0], one[0], one[0]])
    found = log_probs(rows, x[:, None])[:, 0]
    np.testing.assert_allclose(found, log_ndtr(x), rtol=2e-13, atol=1e-14)


def test_points_alone():
    """Log densities, their slopes and their products with Gaussians, by SciPy's normal density.

    NumPy's formulas here: of rows among which there are intervals loops are compiled.
    """
    rng = np.random.default_rng(5)
    value, centre, mean, sd = rng.normal(size=(4, 6))
    noise, sd, counts = rng.uniform(0.3, 2.0, 6), np.abs(sd) + 0.1, rng.integers(1, 4, 6)
    sites = RowSites(np.full(6, -OPEN), np.full(6, OPEN), value, noise, counts.astype(float))
    some, eta, step = slice(1, 5), rng.normal(size=(7, 4)), 1e-5

    def expected(x):
        return norm.logpdf(value[some], x, np.sqrt(noise[some]))

    np.testing.assert_allclose(sites.log_prob(some, eta), expected(eta), rtol=1e-13)
    first, second = sites.slopes(some, eta)
    up, down = expected(eta + step), expected(eta - step)
    # Round-off of 1e-16 over the step, and over its square.
    np.testing.assert_allclose(first, (up - down) / (2 * step), atol=1e-9)
    np.testing.assert_allclose(second, sites.slopes(some, eta[:1])[1].repeat(7, axis=0))
    np.testing.assert_allclose(second, (up - 2 * expected(eta) + down) / step**2, atol=1e-4)
    off, total = rng.normal(size=(4, 9)), np.ones(9)
    sites.add_log_probs(some, centre[some], off, -1.0, total)
    each = counts[some] * expected((centre[some, None] - off).T)
    np.testing.assert_allclose(total, 1.0 + each.sum(axis=1), rtol=1e-13)
    log_mass, shift, variance, lost = sites.tilted(mean, sd)
    deviation = np.sqrt(sd**2 + noise)
    np.testing.assert_allclose(log_mass, norm.logpdf(value, mean, deviation), rtol=1e-13)
    precision = 1 / sd**2 + 1 / noise
    exact = (mean / sd**2 + value / noise) / precision
    np.testing.assert_allclose(mean + sd * shift, exact, rtol=1e-12)
    np.testing.assert_allclose(variance, 1 / (precision * sd**2), rtol=1e-13)
    np.testing.assert_allclose(lost, 1 - 1 / (precision * sd**2), rtol=1e-12)


def separated(n=600, r=30, variance=30.0, seed=0):
    """Labels that a smooth function separates; nine rows of ten are one of two."""
    rng = np.random.default_rng(seed)
    centres = 3.0 * rng.standard_normal((6, 10))
    places = centres[rng.integers(6, size=r)] + 0.3 * rng.standard_normal((r, 10))
    places[:2] = centres[:2]
    share = np.full(r, 0.1 / r)
    share[:2] += [0.72, 0.18]
    X = places[rng.choice(r, n, p=share)]

    def matern32(a, b):
        distance = np.sqrt(((a[:, None] - b) ** 2).sum(axis=-1)) / 3.0
        return variance * (1.0 + distance) * np.exp(-distance)

    chol = np.linalg.cholesky(matern32(places, places) + 1e-6 * np.eye(r))
    factor = np.linalg.solve(chol, matern32(places, X)).T
    positive = ((X[:, None] - centres) ** 2).sum(axis=-1).argmin(axis=1) == 0
    lower, upper = np.where(positive, 0.0, -OPEN), np.where(positive, OPEN, 0.0)
    noise = 1.0 + np.maximum(variance - (factor**2).sum(axis=1), 0.0)
    return factor, lower, upper, noise


@pytest.mark.parametrize("case", ["steep", "separated"])
def test_hard_problems_converge(case):
    """A prior variance of 400, where plain parallel steps oscillate; a step to be taken back.

    The accelerated step moves the mean of separated labels by a hundred deviations.
    """
    rows, tol = (problem(200, 4, 1, 10.0), 1e-8) if case == "steep" else (separated(), 1e-4)
    found = fit_blocks(blocks_of(*rows, size=200), tol=tol, max_sweeps=100)
    factor, lower, upper, noise = rows
    whole = LowRankCovariance(noise, factor)
    wanted = fit_ep(whole, lower, upper, tol=1e-2 * tol)
    assert found.n_sweeps < 100
    # Both are stationary there: residuals of .01 deviations are 1e-4 nats.
    assert found.log_prob == pytest.approx(wanted.log_prob, abs=1e-6 if case == "steep" else 1e-3)
    off = found.gaussian.mean - factor.T @ wanted.weights
    cov = np.eye(off.size) - factor.T @ whole.site_precision(wanted.tau) @ factor
    assert np.sqrt(off @ np.linalg.solve(cov, off)) < 0.05


def test_threads_do_not_matter():
    factor, lower, upper, noise = problem()
    found = []
    for n_threads in (1, 3):
        blocks = LocalBlocks(blocks_of(factor, lower, upper, noise).blocks, n_threads)
        ep = fit_blocks(blocks)
        found.append((ep.log_prob, *blocks.total("pair_log_probs", ep.gaussian.mean, factor.T)))
    # To the bit: sums are in the order of the blocks.
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def sparse_problem(collinear=False):
    """Rows of two of sixty effects and two covariates, which may be almost the same."""
    rng = np.random.default_rng(5)
    n, r = 400, 62
    factor = np.zeros((n, r))
    factor[:, 0] = 100.0
    factor[:, 1] = 100.0 * (1.0 + 1e-7 * rng.normal(size=n)) if collinear else rng.normal(size=n)
    factor[np.arange(n), 2 + rng.integers(0, 30, n)] = 0.7
    some = rng.random(n) < 0.5
    factor[some, 32 + rng.integers(0, 30, some.sum())] = rng.normal(size=some.sum())
    limits = np.full(n, -OPEN), rng.normal(0.5, 1.0, n)
    return factor, RowSites(*limits, np.full(n, np.nan), np.ones(n), rng.integers(1, 4, n) * 1.0)


@pytest.mark.parametrize("collinear", [False, True])
def test_sparse_rows_are_dense_ones(collinear):
    factor, sites = sparse_problem(collinear)
    dense, sparse = RowBlock(factor, sites), row_block(factor, sites)
    assert isinstance(sparse, SparseBlock)
    assert isinstance(row_block(factor, sites, sparse.pattern), SparseBlock)
    assert row_block(factor, sites, sparse.pattern).pattern is sparse.pattern
    found = [fit_blocks(LocalBlocks([block]), tol=1e-9) for block in (dense, sparse)]
    # EP's residual, and sums in another order.
    assert found[1].log_prob == pytest.approx(found[0].log_prob, abs=1e-6)
    gaussian = found[0].gaussian
    sparse.tau, sparse.nu = dense.tau, dense.nu
    for one, other in zip(sparse.sums(), dense.sums(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-8)
    each = (block.gradient(gaussian.mean, gaussian.spread) for block in (sparse, dense))
    for one, other in zip(*each, strict=True):
        # Of variances 1e-8 of their terms half of the digits are left.
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    off = np.random.default_rng(6).normal(size=(62, 5))
    pairs = (block.pair_log_probs(gaussian.mean, off) for block in (sparse, dense))
    np.testing.assert_allclose(*pairs, rtol=1e-10)


@pytest.mark.parametrize("far", [1e4, 1e9, 1e200])
def test_a_loser_very_far_behind(far):
    """From 0 it would be so many nodes to the integrand of two rows that share noise."""
    noise, lower, upper = np.eye(2)[None] + 1.0, np.zeros((1, 2)), np.full((1, 2), OPEN)
    sites = GroupSites(lower, upper, noise, OneFactor(lower, upper, *one_factor(noise)))
    x = far * np.array([1.0, 0.9])
    found = sites.log_probs(slice(None), -x[None, :, None])[0, 0]
    # The quadratic form, of which logarithms of x are no more than 1e-6.
    wanted = -np.inf if far > 1e150 else -0.5 * x @ np.linalg.solve(np.eye(2) + 1.0, x)
    assert found == pytest.approx(wanted, rel=1e-6)


def test_singles_side_by_side_are_of_their_targets():
    """No count at predictors s c, from Gaussians that are not EP's: skewed, by quadrature."""
    scales, n_pairs = np.array([1.5, 3.0]), 40_000
    gaussians = [CoordinateGaussian(np.array([-0.6]), np.eye(1)) for _ in scales]
    rngs = np.random.default_rng(0).spawn(2)
    known = gaussians, scales[:, None, None], lambda eta: -np.exp(eta).sum(axis=2), n_pairs, rngs
    x = np.linspace(-9.0, 9.0, 4001)
    for scale, (c, log_weights, found) in zip(scales, singles_side_by_side(*known), strict=True):
        density = norm.pdf(x) * np.exp(-np.exp(scale * x)) * (x[1] - x[0])
        assert abs(found.value - np.log(density.sum())) < 5.0 * found.std_error
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        for power in (1, 2, 3):
            true = density @ x**power / density.sum()
            off = c[:, 0] ** power - true
            # Five standard errors, of eight numbers: a false alarm in 200,000 seeds.
            assert abs(weights @ off) < 5.0 * np.sqrt(weights**2 @ off**2)


# Tempering by the rows that matter, against quadrature and against the weights of all rows.
#
# Some 2 CPU seconds.


N, SD = 3000, 20.0
NEVER = GoalSettings(accept=2.0, temper=0.3)
TEMPERED = SamplerSettings(draws=NEVER, accept_large=2.0)


def separated_rough():
    """A line of prior deviation 20 for labels that it separates, one in thirty of them 1.

    Sixty places, where rows repeat; their factors, and a sign for each row.
    """
    rng = np.random.default_rng(0)
    places = np.sort(rng.uniform(-3.0, 1.0, 60))
    x = places[(60 * rng.random(N) ** 2).astype(int)]
    sign = np.where(x > np.quantile(x, 0.97), 1.0, -1.0)
    return SD * np.stack([np.ones(N), x], axis=1), sign


def blocks_of_rough(factor, sign, sites_of=None):
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
    factor, sign = separated_rough()
    blocks = blocks_of_rough(factor, sign)
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
    factor, sign = separated_rough()

    def functions(sign):
        def log_prob(eta):
            return log_ndtr(sign * eta)

        def slopes(eta):
            z = sign * eta
            ratio = np.exp(norm.logpdf(z) - log_ndtr(z))
            return sign * ratio, -ratio * (z + ratio)

        return FunctionSites(log_prob, slopes, *np.zeros((3, sign.size)))

    if case == "few rows":
        blocks = LocalBlocks(blocks_of_rough(factor, sign).blocks[:2])
    else:
        blocks = blocks_of_rough(0.1 * factor, sign, functions)
    fit_blocks(blocks)
    assert rough_blocks(blocks) is None
