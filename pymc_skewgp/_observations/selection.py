"""An outcome that is seen only where another process selects it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import log_ndtr, ndtr

from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.likelihood import Data, Likelihood, Mixture
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.probability import interval_probability
from pymc_skewgp._observations.real_values import noisy_summary
from pymc_skewgp._validation import FloatArray, as_positive, as_real_array

_LOG_2PI = float(np.log(2.0 * np.pi))
OUTCOME, SELECTION = 0, 1


@dataclass(frozen=True, eq=False)
class Selection(Likelihood):
    r"""Outcomes that are seen only where they are selected (Heckman's model).

    .. math::

        y_i = f_1(x_i) + \sigma e_{1i} \;\text{ where }\; f_2(x_i) + e_{2i} > 0, \qquad
        \mathrm{corr}(e_{1i}, e_{2i}) = \rho

    with standard normal e. Of the others it is only known that they were not selected. There are
    two functions at each input, named "outcome" and "selection". The kernel is that of both, times
    the ``coregion`` that ``gp.posterior`` takes: its diagonal gives each its variance, in the units
    of y squared for the outcome. The mean function is that of both: centre y, and use a mean of 0.

    Parameters
    ----------
    sigma : float
        Standard deviation of the outcome's noise, in the units of y. It may be a random variable of
        a PyMC model, whose value ``point`` then gives.
    rho : float, default 0
        Correlation of the two noises, strictly between -1 and 1. With 0 selection is ignorable
        given the functions. It may be a random variable too.

    Raises
    ------
    ValueError
        When used: sigma not positive, rho outside of (-1, 1), y of another length than X or
        infinite. NaN in y stands for what was not selected.

    Notes
    -----
    Forecasts: ``y_mean`` and ``y_sd`` of an outcome whether selected or not; ``p_selected``;
    ``y_mean_selected``, of an outcome that is selected; each with its standard error ``_se``.

    References
    ----------
    .. [1] J. J. Heckman (1979), Sample selection bias as a specification error,
       doi:10.2307/1912352.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([np.nan, 1.1, 1.4])
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior(
    ...     X, y, likelihood=sg.likelihoods.Selection(0.3, 0.5), coregion=[[2.0, 0.0], [0.0, 1.0]]
    ... )
    >>> new = posterior.predict([[0.0], [2.0]])["predictions_summary"]
    >>> new["p_selected"].values.round(1)
    array([0.4, 0.7])
    """

    sigma: Any
    rho: Any = 0.0

    sigma_of_points_only: ClassVar[bool] = True

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values as floats, NaN where not selected."""
        as_positive("sigma", float(self.sigma) if np.ndim(self.sigma) == 0 else self.sigma)
        if np.ndim(self.rho) or not -1.0 < float(self.rho) < 1.0:
            raise ValueError(
                f"rho must be one number strictly between -1 and 1, got {self.rho!r}; noises of "
                "correlation 1 are one noise."
            )
        values = as_real_array("y", y)
        base.refuse_shape("y", values, n, "value, or NaN where it was not selected,")
        if np.isinf(values).any():
            raise ValueError(
                f"y holds {int(np.isinf(values).sum())} infinite value(s): give NaN where an "
                "outcome was not selected."
            )
        return values.copy()

    def n_functions(self, y: Data) -> int:
        """Two."""
        return 2

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Names of the functions."""
        return {self.function_dim: ["outcome", "selection"]}

    def observations(self, y: Data, n: int) -> Observations:
        """An interval of the selection for each row, then a point for each outcome that is seen."""
        seen = np.flatnonzero(~np.isnan(y))
        m = n + seen.size
        columns = np.concatenate([2 * np.arange(n) + SELECTION, 2 * seen + OUTCOME])
        A = sparse.csr_array((np.ones(m), (np.arange(m), columns)), shape=(m, 2 * n))
        sigma, rows = float(self.sigma), n + np.arange(seen.size)
        shared = np.full(seen.size, float(self.rho) * sigma)
        noise = sparse.csr_array(
            (
                np.concatenate([np.repeat([1.0, sigma**2], [n, seen.size]), shared, shared]),
                (
                    np.concatenate([np.arange(m), seen, rows]),
                    np.concatenate([np.arange(m), rows, seen]),
                ),
            ),
            shape=(m, m),
        )
        selected = ~np.isnan(y)
        nowhere = np.full(seen.size, np.nan)
        return Observations(
            A,
            np.zeros(m),
            noise,
            np.concatenate([np.where(selected, 0.0, -np.inf), nowhere]),
            np.concatenate([np.where(selected, np.inf, 0.0), nowhere]),
            np.concatenate([np.full(n, np.nan), y[seen]]),
        )

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log density of an outcome that is seen; log probability of one that is not."""
        sigma, rho = float(self.sigma), float(self.rho)
        seen = ~np.isnan(y)
        result = np.empty(f.shape[:-1])
        result[..., ~seen] = log_ndtr(-f[..., ~seen, SELECTION])
        z = (y[seen] - f[..., seen, OUTCOME]) / sigma
        shifted = (f[..., seen, SELECTION] + rho * z) / np.sqrt(1.0 - rho**2)
        result[..., seen] = log_ndtr(shifted) - 0.5 * z**2 - np.log(sigma) - 0.5 * _LOG_2PI
        return result

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New data, NaN where not selected."""
        drawn, selected = self._drawn(f, rng)
        drawn[~selected] = np.nan
        return drawn

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``y``, outcomes whether selected or not, and ``selected``."""
        return dict(zip(("y", "selected"), self._drawn(f, rng), strict=True))

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean``, ``y_sd``, ``p_selected`` and ``y_mean_selected``, with their errors."""
        covariance = mixture.covariance
        assert covariance is not None  # of two functions
        rest = mixture.weights, mixture.replicate, mixture.exact
        outcome, selection = (
            Mixture(mixture.means[i::2], mixture.variance[i::2], *rest)
            for i in (OUTCOME, SELECTION)
        )
        probability = interval_probability(selection, 0.0, np.inf)
        # Of y and the noisy selection v2 given u; their mean where v2 > 0, times P(v2 > 0).
        spread = np.sqrt(selection.variance + 1.0)[:, None]
        shared = covariance[:, OUTCOME, SELECTION] + float(self.rho) * float(self.sigma)
        z = selection.means / spread
        mass = ndtr(z)
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        total = mass @ mixture.weights
        part = outcome.means * mass + shared[:, None] / spread * density
        among = (part @ mixture.weights) / total
        influence = (part - among[:, None] * mass) / total[:, None]
        return noisy_summary(outcome, float(self.sigma) ** 2) | {
            "p_selected": probability.value,
            "p_selected_se": probability.std_error,
            "y_mean_selected": among,
            "y_mean_selected_se": base.average_error(mixture, influence),
        }

    def _drawn(self, f: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, Data]:
        """Outcomes, and which of them are selected."""
        rho = float(self.rho)
        shared, own = rng.standard_normal((2, *f.shape[:-1]))
        noise = rho * shared + np.sqrt(1.0 - rho**2) * own
        selected = f[..., SELECTION] + shared > 0
        return f[..., OUTCOME] + float(self.sigma) * noise, selected
