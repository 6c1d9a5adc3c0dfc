"""What tests of graphs share."""

from collections.abc import Iterator

import pytest
from pytensor import config


@pytest.fixture(scope="module")
def in_python() -> Iterator[None]:
    """Functions without a mode of their own run in Python: numba takes seconds for each.

    Modules that ask for it name ``mode="NUMBA"`` where the backend is what they test.
    """
    with config.change_flags(linker="py"):
        yield
