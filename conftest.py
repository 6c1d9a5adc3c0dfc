"""Examples in docstrings run without compilation, most of which would be for one use each."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def examples_without_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same numbers by PyTensor in Python; tests are for the backend that users have."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    import pytensor

    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield
