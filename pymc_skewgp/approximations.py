"""Approximations of the prior for many rows: by finite rank, or by a sparse precision.

Each is a small frozen object for ``SkewGP(approximation=...)``.
"""

from pymc_skewgp._posterior.features import HSGP, Inducing, PivotedCholesky
from pymc_skewgp._posterior.vecchia import Vecchia

__all__ = ["HSGP", "Inducing", "PivotedCholesky", "Vecchia"]
