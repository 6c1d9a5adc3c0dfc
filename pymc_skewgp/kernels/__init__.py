"""Numerical kernels: truncated Gaussians on NumPy and SciPy, with no PyMC."""
