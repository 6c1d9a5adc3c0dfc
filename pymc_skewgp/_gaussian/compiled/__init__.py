"""Loops that numba compiles: they hold neither Python's lock nor a thread of BLAS."""
