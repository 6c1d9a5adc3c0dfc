"""What a likelihood is: how data become rows of latent functions, and what is predicted."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._validation import FloatArray

Data = NDArray[Any]


class Likelihood(ABC):
    """A frozen object: the parameters of p(y | f), which the data are handed to.

    f are values of K functions at the n rows of X. Where K is 1 arrays of it have shape (..., n),
    else (..., n, K). To add one: a class in a file of its own beside this one, its name in
    `pymc_skewgp.likelihoods`, and a test against quadrature.
    """

    # Dimension of y: of the rows of X, unless the data are about several of them each.
    y_dim: str = "obs_id"
    # Further dimensions of y, where an observation is not one number.
    y_inner_dims: tuple[str, ...] = ()
    # Further dimensions of what is predicted, after that of the point, by variable.
    predicted_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Dimension that tells functions apart, where there are several.
    function_dim: str = "function"
    # What of the functions the rows are of: a derivative, or None for themselves.
    derivative: Derivative | None = None
    # Whether there is a y that can be replicated, or else only a statement about f.
    has_data: ClassVar[bool] = True
    # Whether a parameter sigma is that of the points alone: the noise of intervals is 1.
    sigma_of_points_only: ClassVar[bool] = False
    # Whether S is in units of the prior variance of what the rows are of.
    relative_noise: ClassVar[bool] = False

    @abstractmethod
    def as_data(self, y: ArrayLike, n: int) -> Data:
        """`y`, one value for each of `n` rows of X, checked and copied.

        Raises
        ------
        ValueError, TypeError
            The message says what was found and what was expected.
        """

    @abstractmethod
    def observations(self, y: Data, n: int) -> Observations:
        """Rows of f at `n` rows of X: the n K values of f in the order of `Values`."""

    @abstractmethod
    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f), one for each observation in the last dimension."""

    @abstractmethod
    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data | None:
        """New data at the rows of the old ones, drawn given f; None where they cannot be drawn."""

    def of_observations(self, index: IntArray, y: Data) -> "Likelihood":
        """The same for observations chosen from all of `y`; they may repeat.

        Where a parameter is one number for each observation, these numbers are chosen with them.
        """
        return self

    def n_functions(self, y: Data) -> int:
        """Number K of functions."""
        return 1

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Coordinates of dimensions that only this likelihood has, such as names of categories."""
        return {}

    def observed(self, y: Data) -> dict[str, Data]:
        """The data by name, one for each observation: what a DataTree shows of them."""
        return {"y": y}

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """What is predicted at new points given draws of f there, by name."""
        return {}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """The same averaged over f, one number a point, with standard errors (``_se``)."""
        return {}

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """Quantiles of what is predicted, f averaged over, shape (n_probs, t), by name."""
        return {}

    def joint_summary(self, f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
        """What the new points tell only together, with standard errors (``_se``).

        `f` are joint draws there; `mixture` has their covariance given u, in ``joint``.
        """
        return {}

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Checked data at `n` rows of X together with `new` ones, at so many rows more."""
        return np.concatenate([y, self.as_data(new, n_new)])
