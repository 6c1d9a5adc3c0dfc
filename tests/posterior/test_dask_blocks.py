"""Row blocks on dask workers against the same blocks in this process, to the bit.

Some 10 CPU seconds, of which most are two processes that import the package.
"""

import os
import signal

import numpy as np
import pytest

from pymc_skewgp._gaussian.blocks.ep import JoinedBlocks, fit_blocks, gaussian_of
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.rows import RowBlock, RowSites
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._posterior.dask_blocks import BuiltBlocks, DaskBlocks

N, R, CHUNK = 2000, 5, 250


def table():
    """Rows of F, limits and noise."""
    rng = np.random.default_rng(1)
    positive = rng.random(N) < 0.5
    lower, upper = np.where(positive, 0.0, -np.inf), np.where(positive, np.inf, 0.0)
    noise = rng.uniform(0.5, 2.0, N)
    return np.column_stack([rng.standard_normal((N, R)), lower, upper, noise])


def build(chunks):
    """A block for each chunk; what it is called with may be impossible."""
    blocks = []
    for chunk in chunks:
        lower, upper, noise = chunk[:, R:].T
        if not (noise > 0).all():
            raise ValueError("a row has no noise.")
        sites = RowSites(lower, upper, np.full(noise.size, np.nan), noise)
        blocks.append(RowBlock(chunk[:, :R], sites))
    return BuiltBlocks(blocks, float(len(blocks)))


def groups_of(rows, n_groups):
    per = N // CHUNK // n_groups
    chunks = [rows[i : i + CHUNK] for i in range(0, N, CHUNK)]
    return [chunks[i * per : (i + 1) * per] for i in range(n_groups)]


def on_workers(client, rows, n_groups):
    import dask

    lazy = [[dask.delayed(chunk) for chunk in group] for group in groups_of(rows, n_groups)]
    return DaskBlocks(client, [(chunks, build) for chunks in lazy])


def here(rows, n_groups):
    return JoinedBlocks([build(group) for group in groups_of(rows, n_groups)])


def results(blocks):
    ep = fit_blocks(blocks, tol=1e-8)
    proposal = BlockPairs(gaussian_of(blocks.total("sums")), blocks)
    draws = SiteSampler(proposal).members(128, np.random.default_rng(0))
    return [ep.log_prob, ep.gaussian.mean, draws.log_prob.value, draws.log_weights]


def assert_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow(ci=True)
def test_two_workers_are_one_process(dask_cluster):
    rows = table()
    with dask_cluster.get_client() as client:
        blocks = on_workers(client, rows, 2)
        assert (blocks.n_rows, blocks.rank, blocks.log_constant) == (N, R, N / CHUNK)
        assert_same(results(blocks), results(here(rows, 2)))
        rows[-1, -1] = 0.0
        with pytest.raises(ValueError, match="no noise"):
            on_workers(client, rows, 2)


class KillsAWorker:
    """Blocks of which a worker is killed before a certain call."""

    def __init__(self, blocks, client, at):
        self._blocks, self._client, self._left = blocks, client, at
        self.n_rows, self.rank = blocks.n_rows, blocks.rank

    def total(self, method, *arguments):
        self._left -= 1
        if self._left == 0:
            address = next(iter(self._client.scheduler_info(n_workers=-1)["workers"]))
            os.kill(self._client.run(os.getpid)[address], signal.SIGKILL)
        return self._blocks.total(method, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("dask_cluster", [4], indirect=True)
def test_a_killed_worker_changes_nothing(dask_cluster):
    rows = table()
    wanted = results(here(rows, 4))
    with dask_cluster.get_client() as client:
        blocks = on_workers(client, rows, 4)
        assert_same(results(KillsAWorker(blocks, client, at=6)), wanted)  # within EP
        # Some seconds later dask has a new worker in its place.
        client.wait_for_workers(4, timeout=120)
        blocks = on_workers(client, rows, 4)
        fit_blocks(blocks, tol=1e-8)
        gaussian = gaussian_of(blocks.total("sums"))
        # Among the draws.
        sampler = SiteSampler(BlockPairs(gaussian, KillsAWorker(blocks, client, at=1)))
        draws = sampler.members(128, np.random.default_rng(0))
    assert_same([draws.log_prob.value, draws.log_weights], wanted[2:])
