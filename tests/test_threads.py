"""BLAS threads are limited to one where more do not pay, and the limit ends."""

import multiprocessing
import threading

import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import ThreadpoolController, threadpool_limits

from pymc_skewgp._limits import few_blas_threads


def counts():
    """Threads of the OpenBLAS libraries, as threadpoolctl sees them."""
    found = ThreadpoolController().select(internal_api="openblas").info()
    return [x["num_threads"] for x in found if x["threading_layer"] == "pthreads"]


@pytest.fixture(autouse=True)
def two_threads():
    scipy.linalg.cholesky(np.eye(2))  # loads the library
    if not counts():
        pytest.skip("no OpenBLAS with threads of its own")
    before = threadpool_limits(2, user_api="blas")
    for library in ThreadpoolController().select(internal_api="openblas").lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread()
    if set(counts()) != {2}:
        pytest.skip("OpenBLAS was built for one thread")
    yield
    before.restore_original_limits()


def test_small_work_has_one_thread_and_gives_back_what_was():
    with pytest.raises(RuntimeError), few_blas_threads(100):  # noqa: PT012
        with few_blas_threads(100):
            assert set(counts()) == {1}
        assert set(counts()) == {1}
        raise RuntimeError
    assert set(counts()) == {2}
    with few_blas_threads(5000):  # large work keeps them
        assert set(counts()) == {2}


def test_one_of_several_threads_has_one_whatever_the_size():
    """Two at once: the first to end leaves the other with one."""
    seen, inside, leave = {}, threading.Barrier(2), threading.Event()

    def first():
        with few_blas_threads(5000):
            inside.wait(10)
        leave.set()

    def second():
        with few_blas_threads(5000):
            inside.wait(10)
            leave.wait(10)
            seen["second"] = counts()

    threads = [threading.Thread(target=f) for f in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen["second"]) == {1}
    assert set(counts()) == {2}


def test_a_limit_that_somebody_set_stands():
    with threadpool_limits(2, user_api="blas"):
        if not hasattr(ThreadpoolController().lib_controllers[0], "clear_controlling_thread"):
            pytest.skip("threadpoolctl before 3.7 does not tell")
        with few_blas_threads(100):
            assert set(counts()) == {2}
        assert set(counts()) == {2}
    assert set(counts()) == {2}


def in_child(queue):
    with few_blas_threads(5000):
        queue.put((counts(), float(np.linalg.cholesky(2.0 * np.eye(300)).sum())))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_one_whatever_the_size():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with few_blas_threads(100):  # limited in the parent at the fork, and computed with before
        np.linalg.cholesky(2.0 * np.eye(300))
        child = context.Process(target=in_child, args=(queue,))
        child.start()
        found, total = queue.get(timeout=30)
        child.join()
    assert set(found) == {1}
    assert total == pytest.approx(300 * np.sqrt(2.0))
    assert set(counts()) == {2}
