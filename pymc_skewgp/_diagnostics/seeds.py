"""One number from what a `random_seed` may be, for methods that take no more than that."""

import operator
from typing import Any

import numpy as np

from pymc_skewgp._validation import as_generator


def as_number(random_seed: Any) -> int:
    """An integer of at least 0: the one given, or one drawn from anything else."""
    if random_seed is not None and not isinstance(
        random_seed, np.random.Generator | np.random.SeedSequence | list | tuple | np.ndarray
    ):
        as_generator(random_seed)  # refuses what is no seed
        return operator.index(random_seed)
    return int(as_generator(random_seed).integers(2**31))
