r"""A prior of finite rank as a kernel: :math:`k(x, x') = \phi(x)^\top \phi(x')`, and noise of rows.

What is exact for any kernel is exact for it as well: where the rows are few that is all it takes.
"""

from dataclasses import dataclass, replace

import numpy as np

from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._posterior.approximations.features import Features
from pymc_skewgp._posterior.approximations.several_functions import derivative_features
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class FiniteRankKernel:
    """A `CovarianceFunction`; what features leave of the variance is noise of each row."""

    features: Features

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Evaluate it."""
        phi, rest = self.features.at(X)
        if diag:
            return np.asarray(np.einsum("ij,ij->i", phi, phi) + rest)
        if Xs is not None:
            return np.asarray(phi @ self.features.at(Xs)[0].T)
        matrix = phi @ phi.T
        matrix[np.diag_indices_from(matrix)] += rest
        return np.asarray(matrix)

    def derivative(
        self, X: FloatArray, Xs: FloatArray, left: Derivative | None, right: Derivative | None
    ) -> FloatArray:
        """Covariance of derivatives, of what the features say of f; None for f itself."""
        a, b = (
            self.features.at(x)[0]
            if wanted is None
            else derivative_features(self.features, x, wanted)
            for x, wanted in ((X, left), (Xs, right))
        )
        return np.asarray(a @ b.T)


def finite_rank_prior(prior: Prior, X: FloatArray) -> tuple[Prior, Features]:
    """The prior that its approximation makes of it for inputs like X, and the features."""
    assert prior.approximation is not None
    features = prior.approximation.features(replace(prior, approximation=None), X)
    return replace(prior, cov_func=FiniteRankKernel(features), approximation=None), features
