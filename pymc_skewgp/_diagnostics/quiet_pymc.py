"""PyMC without its messages."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_pymc() -> Iterator[None]:
    """Hold back what PyMC logs, but for warnings: it would break a progress bar."""
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
