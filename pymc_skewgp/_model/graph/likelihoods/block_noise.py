"""Noise that rows share in blocks: the covariance of all rows, as a graph."""

from typing import Any

import pytensor.tensor as pt


def block_diagonal(blocks: Any) -> Any:
    """Covariance of shape (n k, n k) with `blocks`, shape (n, k, k), on its diagonal."""
    n, k = blocks.shape[0], blocks.shape[1]
    apart = pt.eye(n, dtype="float64")[:, None, :, None] * blocks[:, :, None, :]
    return apart.reshape((n * k, n * k))
