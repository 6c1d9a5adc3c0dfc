r"""What the evidence of a block without a SkewGP is a function of: predictors of white coordinates.

.. math:: p(y) = C \int \prod_i p(y_i \mid a_i + F_i c)\, N(c; 0, I)\, dc

Wide priors are large rows of F: nothing is lost to round-off that a matrix of predictors would
lose.
"""

from typing import Any, NamedTuple

import numpy as np


class FactorTerms(NamedTuple):
    """Predictors F c + a of rows, then of sites, for arrays and for graphs alike.

    Attributes
    ----------
    factor : (k + m, r)
        F.
    offset : (k + m,)
        a.
    lower, upper, value, noise : (k,)
        Limits of the noisy predictors of the rows, the value of those that are known, else NaN;
        variances of their noise.
    counts : (k,) or ()
        How often each row was seen.
    log_constant : ()
        Log of C.
    """

    factor: Any
    offset: Any
    lower: Any
    upper: Any
    value: Any
    noise: Any
    counts: Any = np.float64(1.0)
    log_constant: Any = np.float64(0.0)

    @property
    def n_rows(self) -> int:
        """Predictors."""
        return int(self.offset.size)

    @property
    def n_factorised(self) -> int:
        """Rows of a matrix whose factorisation takes as long as a sweep: (n r^2)^(1/3)."""
        n, r = self.factor.shape
        return int((n * r * r) ** (1.0 / 3.0))
