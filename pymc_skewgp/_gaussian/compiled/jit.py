"""How this package compiles loops: without Python's lock, and kept on disk."""

from functools import partial

import numba
import numpy as np

jit = partial(numba.njit, cache=True, nogil=True, error_model="numpy")
# Sums in any order, which lets a loop be vectorised.
jit_sums = partial(jit, fastmath={"contract", "nsz", "reassoc"})

# Indices of this type cannot be negative: without a test for that, loops are vectorised.
Index = np.uintp
