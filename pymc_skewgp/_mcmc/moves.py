"""What a Markov kernel on the rows u is, for the samplers that use one."""

from typing import NamedTuple, Protocol

import numpy as np

from pymc_skewgp._validation import FloatArray


class Walk(NamedTuple):
    """Successive states of u, shape (n, s + m), and what is known of each, arrays of length n."""

    u: FloatArray
    stats: dict[str, FloatArray]


class Move(Protocol):
    """A Markov kernel that leaves N(0, G) restricted to its rectangle invariant.

    It belongs to one `Augmentation`, and what it keeps depends on that alone: neither on a state,
    nor on what a chain drew before.
    """

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """Every `thin`-th of `n` times `thin` states that follow `u`."""
        ...

    def adapt(self) -> int:
        """Prepare for a long run at these parameters, and choose steps between two draws of f."""
        ...
