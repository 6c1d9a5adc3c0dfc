"""What a likelihood is: how data become rows of the latent function, and what is predicted."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._validation import FloatArray

Data = NDArray[Any]


class Likelihood(Protocol):
    """A frozen object: the parameters of p(y | f), which the data are handed to.

    To add one: a class in a file of its own beside this one, its name in
    `pymc_skewgp.likelihoods`, and a test against quadrature.
    """

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """`y`, one value for each of `n` rows of X, checked and copied.

        Raises
        ------
        ValueError, TypeError
            The message says what was found and what was expected.
        """
        ...

    def observations(self, y: Data) -> Observations:
        """Rows of f at the data."""
        ...

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i), for f of shape (..., n)."""
        ...

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New data at the rows of the old ones, drawn given f, shape (..., n)."""
        ...

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """What is predicted at new points given draws of f there, by name."""
        ...

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """The same averaged over f, one number a point, with standard errors (``_se``)."""
        ...
