"""The kernel itself, by the values of f at every input that is in the data: where these repeat."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._observations.distinct_rows import one_of_each
from pymc_skewgp._posterior.approximations.inducing import InducingFeatures, whitened
from pymc_skewgp._posterior.approximations.pivoted_cholesky import PivotedCholesky
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pymc_skewgp._posterior.prior import Prior


class EveryInputFeatures(InducingFeatures):
    """Features that leave nothing of f at the data, but for round-off."""

    def residual_covariance(self, X: FloatArray) -> FloatArray:
        """What they leave at new points, which depends on each other as the kernel says."""
        cross = self.prior.covariance("Xnew", X, self.points)
        phi = whitened(np.ascontiguousarray(cross), self.factor)
        return linalg.symmetric(self.prior.covariance("Xnew", X) - phi @ phi.T)


@dataclass(frozen=True)
class EveryInput:
    """Inducing points at the different rows of X, but for those that the others determine.

    Given f there, f at new points does not depend on the data: the posterior is that of the kernel
    itself, in as many coordinates as there are different inputs.
    """

    def doubled(self) -> "EveryInput":
        """The same: there are no more points."""
        return self

    def features(self, prior: "Prior", X: FloatArray) -> EveryInputFeatures:
        """Of the process at inputs like X."""
        points = self.places(prior, X)
        # What is left of each by those before is more than round-off: it needs no nugget.
        matrix = linalg.symmetric(prior.covariance("X", points, points))
        factor, _ = linalg.cholesky("the covariance of the different inputs", matrix)
        return EveryInputFeatures(prior, points, factor)

    def places(self, prior: "Prior", X: FloatArray) -> FloatArray:
        """Different rows of X, the first of which least is known given those before."""
        distinct = X[one_of_each(X)]
        return PivotedCholesky(distinct.shape[0]).places(prior, distinct)
