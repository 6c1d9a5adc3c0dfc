"""All workers of a cluster lost at once: an error, and no call that waits for ever."""

from concurrent.futures import Future

import pytest

import pymc_skewgp as sg
from pymc_skewgp._posterior import dask_blocks as dask_groups
from pymc_skewgp._posterior.dask_blocks import Answer, DaskBlocks


class Actor:
    """Answers while its cluster has workers; later it is silent, as dask's are."""

    def __init__(self, workers):
        self._workers = workers

    def _answer(self, value):
        future = Future()
        if self._workers:
            future.set_result(Answer(value))
        return future

    def build(self, build):
        return self._answer(None)

    def call(self, method, arguments):
        return self._answer((3, 1, 0.0) if method == "numbers" else 1.0)


class Client:
    def __init__(self):
        self.workers = {"a": None, "b": None}

    def wait_for_workers(self, n, timeout):
        if not self.workers:
            raise TimeoutError

    def scheduler_info(self, n_workers):
        return {"workers": self.workers}

    def compute(self, chunks, **where):
        return chunks

    def submit(self, make, chunks, **where):
        future = Future()
        if self.workers:
            future.set_result(Actor(self.workers))
        return future


def test_silence_of_a_lost_cluster_is_an_error(monkeypatch):
    monkeypatch.setattr(dask_groups, "_PATIENCE", 0.1)
    monkeypatch.setattr(dask_groups, "_LOOK", 0.02)
    client = Client()
    blocks = DaskBlocks(client, [([], None), ([], None)])
    assert blocks.total("sums") == 2.0
    client.workers.clear()
    with pytest.raises(sg.ClusterLostError, match="start workers"):
        blocks.total("sums")
