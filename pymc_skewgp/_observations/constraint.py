"""Statements about a function's shape, or its range, at virtual points."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._observations import likelihood
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._validation import FloatArray, as_bounds, as_positive

# Standard deviations of the noise within a nugget: beyond is 1e-15 of it.
_SDS_WITHIN = 8.0


@dataclass(frozen=True, eq=False)
class Constraint(likelihood.Likelihood):
    r"""The function, or a derivative of it, lies within limits at virtual points.

    .. math:: l_i < \frac{\partial^k f}{\partial x_j^k}(x_i) < h_i

    The inputs X are the virtual points, and there is no y: it is None. Between the points nothing
    is asked of f; points at half a lengthscale leave little room. A constraint is one kind of data
    in a list of several: ``[(X, y, Gaussian(0.1)), (Xv, None, Constraint.increasing())]``.

    The evidence counts the probability of the constraint as that of data.

    Parameters
    ----------
    lower, upper : float or array_like, shape (n,)
        Limits, default none; one for all points, or one a point. In the units of y, over those of
        the feature for a derivative.
    derivative : tuple of two int, optional
        (feature, order): in which column of X, and 1 or 2 times. Default None: f itself.
    nugget : float, default 1e-6
        What a draw may break a limit by, in units of the prior standard deviation of what is
        limited. Each row has Gaussian noise with an eighth of it as standard deviation, without
        which the constraints' covariance would be singular.

    Raises
    ------
    ValueError, TypeError
        When made: no limit at all, an order other than 1 and 2, a nugget that is not positive. When
        used: y other than None, limits of another length than X or with a lower one that is not
        below the upper, a feature that X does not have, constraints on what has no variance.
    NotDifferentiableError
        When used: a kernel whose functions do not have that derivative.
    ContradictoryConstraintsError
        When used: constraints that contradict each other or the data so much that double precision
        does not hold their probability.

    References
    ----------
    .. [1] J. Riihimaki & A. Vehtari (2010), Gaussian processes with monotonicity information,
       proceedings.mlr.press/v9/riihimaki10a.html.
    .. [2] S. Da Veiga & A. Marrel (2012), Gaussian process modeling with inequality constraints,
       doi:10.5802/afst.1344.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> from pymc_skewgp.likelihoods import Constraint, Gaussian
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.2, 0.1, 0.6])
    >>> Xv = np.linspace(0, 2, 9)[:, None]
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> data = {"dose": (X, y, Gaussian(0.1)), "shape": (Xv, None, Constraint.increasing())}
    >>> f = gp.posterior(data).marginals(X).moments.mean
    >>> bool(np.all(np.diff(f) > 0))
    True
    """

    lower: Any = -np.inf
    upper: Any = np.inf
    derivative: likelihood.Derivative | None = None
    nugget: float = 1e-6

    has_data: ClassVar[bool] = False
    relative_noise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        as_positive("nugget", self.nugget)
        object.__setattr__(self, "derivative", likelihood.as_derivative(self.derivative))
        for name in ("lower", "upper"):
            object.__setattr__(self, name, likelihood.frozen_copy(getattr(self, name)))

    @classmethod
    def increasing(cls, feature: int = 0, *, nugget: float = 1e-6) -> "Constraint":
        """A first derivative above 0 in one column of X."""
        return cls(lower=0.0, derivative=likelihood.Derivative(feature, 1), nugget=nugget)

    @classmethod
    def decreasing(cls, feature: int = 0, *, nugget: float = 1e-6) -> "Constraint":
        """A first derivative below 0 in one column of X."""
        return cls(upper=0.0, derivative=likelihood.Derivative(feature, 1), nugget=nugget)

    @classmethod
    def convex(cls, feature: int = 0, *, nugget: float = 1e-6) -> "Constraint":
        """A second derivative above 0 in one column of X."""
        return cls(lower=0.0, derivative=likelihood.Derivative(feature, 2), nugget=nugget)

    @classmethod
    def concave(cls, feature: int = 0, *, nugget: float = 1e-6) -> "Constraint":
        """A second derivative below 0 in one column of X."""
        return cls(upper=0.0, derivative=likelihood.Derivative(feature, 2), nugget=nugget)

    @classmethod
    def bounds(
        cls, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf, *, nugget: float = 1e-6
    ) -> "Constraint":
        """Limits of the function itself."""
        return cls(lower, upper, nugget=nugget)

    def as_data(self, y: ArrayLike | None, n: int) -> likelihood.Data:
        """Nothing, with the limits checked."""
        if y is not None and np.size(y):  # what this method returns it takes
            raise ValueError(
                "a Constraint says what f is at X, and has no y: give None, and limits as "
                "Constraint(lower, upper)."
            )
        lower, upper = as_bounds(self.lower, self.upper, n)
        free = np.isneginf(lower) & np.isposinf(upper)
        if free.any():
            raise ValueError(
                f"the constraint has no limit at {int(free.sum())} of {n} point(s): give lower, "
                "upper or both, or leave those points out."
            )
        return np.empty(0)

    def observations(self, y: likelihood.Data, n: int) -> Observations:
        """One interval a virtual point."""
        lower, upper = as_bounds(self.lower, self.upper, n)
        return intervals(lower, upper, np.full(n, (self.nugget / _SDS_WITHIN) ** 2))


# The sign of a process at pseudo-points, as rows of it.


def pseudo_point_rows(sd: FloatArray, phase: FloatArray, truncation: FloatArray) -> Observations:
    r"""Rows of f less its mean at the pseudo-points, in standard deviations, without noise.

    .. math:: \ell_j (f_j - m_j) / \mathrm{sd}_j + \gamma_j > 0: \qquad
        \text{above } -\gamma_j \text{ for phase } +1, \quad \text{below } \gamma_j \text{ for } -1

    Parameters
    ----------
    sd, phase, truncation : ndarray, shape (s,)
        Prior standard deviation; phase, +1 or -1; gamma.

    Returns
    -------
    Observations
    """
    positive = phase > 0
    return intervals(
        np.where(positive, -truncation, -np.inf),
        np.where(positive, np.inf, truncation),
        np.zeros(sd.size),
        A=1.0 / sd,
    )
