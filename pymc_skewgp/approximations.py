"""Approximations of the prior for many rows: f has finite rank, and the rest is noise of its row.

Each is a small frozen object for ``SkewGP(approximation=...)``.
"""

from pymc_skewgp._posterior.features import HSGP, Inducing, PivotedCholesky

__all__ = ["HSGP", "Inducing", "PivotedCholesky"]
