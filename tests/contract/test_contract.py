"""Each call gives what it gave when it was recorded."""

import pytest

from .harness import differences, load, recorded
from .record import read

CALLS = load()
RECORD = read()


def cases() -> list:
    slow = pytest.mark.slow(ci=True)
    there = [name for name, call in CALLS.items() if name in RECORD or not call.has_oracle]
    return [pytest.param(name, marks=[slow] * CALLS[name].slow) for name in there]


@pytest.mark.parametrize("name", cases())
def test_call(name: str):
    assert name in RECORD, "record it: cd tests; python -m contract.record"
    assert not differences(recorded(CALLS[name].make()), RECORD[name])
