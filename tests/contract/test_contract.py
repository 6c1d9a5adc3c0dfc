"""Each call gives what it gave when it was recorded, or refuses, or warns in those words."""

import warnings

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
    call = CALLS[name]
    if call.error:
        with pytest.raises(call.error) as caught:
            call.make()
        assert not [word for word in call.words if word not in str(caught.value)], caught.value
    elif call.warning:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            call.make()
        texts = [str(w.message) for w in heard if issubclass(w.category, call.warning)]
        assert any(all(word in text for word in call.words) for text in texts), texts
    else:
        assert name in RECORD, "record it: cd tests; python -m contract.record"
        assert not differences(recorded(call.make()), RECORD[name])
