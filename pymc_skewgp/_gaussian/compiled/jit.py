"""How this package compiles loops: without Python's lock, and kept on disk.

What is kept is made anew when the file of a function changes, not when one that it calls lies in
another file: after a change here clear ``NUMBA_CACHE_DIR`` or ``__pycache__``.
"""

from functools import partial

import numba
import numpy as np

jit = partial(numba.njit, cache=True, nogil=True, error_model="numpy")
# Called by compiled functions alone: half the time to compile a short one.
jit_inner = partial(jit, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# Sums in any order, which lets a loop be vectorised.
jit_sums = partial(jit_inner, fastmath={"contract", "nsz", "reassoc"})

# Indices of this type cannot be negative: without a test for that, loops are vectorised.
Index = np.uintp
