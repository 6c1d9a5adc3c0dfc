"""Warnings can be kept back, for one thread at a time."""

import threading

import pytest

from pymc_skewgp._errors import JitterWarning, no_warnings, warn


def test_the_warning_points_at_the_caller():
    with pytest.warns(JitterWarning, match="a jitter") as record:
        warn("a jitter", JitterWarning, stacklevel=1)
    assert record[0].filename == __file__


def test_no_warnings_ends_with_its_block_even_by_an_exception():
    with pytest.raises(KeyError), no_warnings():  # noqa: PT012
        warn("unheard", JitterWarning, stacklevel=1)
        raise KeyError
    with pytest.warns(JitterWarning):
        warn("heard", JitterWarning, stacklevel=1)


def test_another_thread_is_heard():
    heard = []

    def other():
        try:
            warn("loud", JitterWarning, stacklevel=1)
        except JitterWarning:  # warnings are errors in the tests
            heard.append(True)

    with no_warnings():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert heard == [True]
