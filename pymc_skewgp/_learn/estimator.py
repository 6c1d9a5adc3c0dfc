"""What the estimators have in common: checked arguments, settings of the search, draws."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from pymc.gp.cov import BaseCovariance
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pymc_skewgp._errors import BoundaryOptimumWarning, warn
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._learn.averaging.averaged_posterior import AveragedPosterior
from pymc_skewgp._learn.binary_fit import LARGE
from pymc_skewgp._learn.fit_report import HyperparameterFit
from pymc_skewgp._learn.named_kernels import KERNELS
from pymc_skewgp._learn.one_process import FittedProcess
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._observations.weights import as_weights
from pymc_skewgp._posterior.approximations.automatic import MANY_ROWS
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray

ROWS_AT_ONCE = 1000
# Nats by which an evidence says that an amplitude is too small.
_RISE = 0.08
# Differences of inputs whose squares, and squares of these, are far from over- and underflow.
_LEAST_INPUT, _LARGEST_INPUT = 1e-100, 1e100


class ProcessEstimator(BaseEstimator):
    """An estimator with a kernel whose hyperparameters are learnt."""

    # Not a parameter: benchmarks and tests set others on an instance.
    _search: ClassVar[SearchSettings] = SearchSettings(n_draws=256)

    def _checked(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        checked = validate_data(self, X, dtype="numeric", reset=False)
        return np.asarray(checked, dtype=np.float64)

    @staticmethod
    def _features(X: ArrayLike) -> FloatArray:
        """As doubles, refused where squares of their differences over- or underflow."""
        inputs = np.asarray(X, dtype=np.float64)
        size, spread = np.abs(inputs).max(axis=0), np.ptp(inputs / 2.0, axis=0)
        wrong = (size > _LARGEST_INPUT) | ((spread > 0) & (spread < _LEAST_INPUT))
        if wrong.any():
            column = int(np.argmax(wrong))
            raise ValueError(
                f"feature {column} of X has values of size {size[column]:.0e}, whose distances are "
                "beyond double precision: multiply it by a power of ten, then scale it by a "
                "StandardScaler in front of the estimator."
            )
        return inputs

    @staticmethod
    def _warn_of_bounds(
        fits: Sequence[Any], rises: Sequence[float | None] = (), stacklevel: int = 3
    ) -> None:
        """Name hyperparameters at the edge of the box of a search, and amplitudes far out.

        An amplitude near 0, of labels that features say nothing of, is as it should be; and so are
        lengthscales of single features without effect, and an amplitude so large that the evidence,
        and with it every forecast, is the same for all that are larger.
        """
        found: dict[str, str] = {}
        for fit, rise in zip_longest(fits, rises):
            if not isinstance(fit, HyperparameterFit):
                continue
            names = [x for x in fit.at_bound if x in fit.point]
            if "eta" in names and fit.point["eta"] < 1.0:
                continue
            if rise is not None:
                names = [x for x in names if x != "eta"]
            found |= {x: f"{x} = {float(fit.point[x]):.3g}" for x in names}
            if rise is not None and rise > _RISE:
                found["eta"] = (
                    f"eta = {float(fit.point['eta']):.3g}, where the log evidence is {rise:.2g} "
                    f"above that at {LARGE:.0f} and does not fall further out"
                )
        if found:
            warn(
                f"{', '.join(found.values())}: far away from where the search began, as neither "
                "data nor prior bound it. Where classes are separable, or rare with large weights, "
                'probabilities are then nearly 0 or 1. hyperparameters="average" has priors that '
                "bound it.",
                BoundaryOptimumWarning,
                stacklevel=stacklevel,
            )

    def _seed(self, random_state: Any) -> int:
        return int(check_random_state(random_state).randint(2**31 - 1))

    def _repeated(self, n: int, sample_weight: ArrayLike | None) -> IntArray | slice:
        """Which of `n` rows to fit to, each as often as its weight says."""
        if sample_weight is None:
            return slice(None)
        return np.repeat(np.arange(n), as_weights("sample_weight", sample_weight, n))

    @property
    def _averages(self) -> bool:
        return bool(self.hyperparameters == "average")

    def _settings(self, n: int, rows_each: int = 1) -> SearchSettings:
        """Of the search with `n` observations of so many rows, from the parameters, checked."""
        if isinstance(self.kernel, BaseCovariance) or hasattr(self.kernel, "get_params"):
            raise TypeError(
                f"kernel must be a name or a function, got the object {self.kernel!r}: pass a "
                "function of the number of features, as in lambda d: pm.gp.cov.ExpQuad(d, ls=1.0). "
                "Kernels of scikit-learn are not taken."
            )
        if not (callable(self.kernel) or self.kernel in KERNELS):
            raise ValueError(
                f"kernel must be one of {', '.join(KERNELS)} or a function of the number of "
                f"features, got {self.kernel!r}."
            )
        if self.hyperparameters not in ("maximize", "average"):
            raise ValueError(
                f'hyperparameters must be "maximize" or "average", got {self.hyperparameters!r}.'
            )
        for name in ("n_pseudo_points", "n_restarts"):
            value = getattr(self, name, 0)
            if not isinstance(value, int | np.integer) or value < 0:
                raise ValueError(f"{name} must be an integer >= 0, got {value!r}.")
        size: Any = getattr(self, "batch_size", None)
        n_rows = n * rows_each
        if size == "auto":
            # Many rows are learnt from all together, with f of finite rank.
            size = None if n > MANY_ROWS else self._search.batch_size_for(n_rows)
        elif size is not None and (not isinstance(size, int | np.integer) or size < 2):
            raise ValueError(f'batch_size must be an integer > 1, "auto" or None, got {size!r}.')
        if size is not None and size >= n_rows:
            size = None
        # A composite likelihood is off by more than expectation propagation is.
        return replace(
            self._search,
            method="twisted" if size is None else "ep",
            batch_size=size,
            n_restarts=self.n_restarts,
        )


class OneProcessEstimator(ProcessEstimator):
    """An estimator with one latent function."""

    posterior_: SkewGPPosterior | AveragedPosterior
    hyperparameters_: HyperparameterFit | xr.DataTree | None
    log_marginal_likelihood_: Estimate

    def sample_latent(
        self, X: ArrayLike, draws: int = 1000, chains: int = 4, random_state: Any = None
    ) -> xr.DataTree:
        """Draw the latent function at new points, jointly.

        Parameters
        ----------
        X : array_like, shape (t, d)
        draws, chains : int
        random_state : int, RandomState instance or None

        Returns
        -------
        DataTree
            As `SkewGPPosterior.predict` returns it.
        """
        X = self._checked(X)
        seed = self._seed(random_state)
        return self.posterior_.predict(X, draws=draws, chains=chains, random_seed=seed)

    def to_datatree(
        self, draws: int = 1000, chains: int = 4, random_state: Any = None
    ) -> xr.DataTree:
        """Posterior at the training data, for ArviZ.

        Parameters
        ----------
        draws, chains : int
        random_state : int, RandomState instance or None

        Returns
        -------
        DataTree
            As `SkewGPPosterior.sample` returns it.
        """
        check_is_fitted(self)
        seed = self._seed(random_state)
        return self.posterior_.sample(draws=draws, chains=chains, random_seed=seed)

    def _keep(self, found: FittedProcess) -> None:
        self.posterior_, self.hyperparameters_ = found.posterior, found.fit
        self.log_marginal_likelihood_ = found.posterior.log_marginal_likelihood
        self._warn_of_bounds([found.fit], stacklevel=4)

    def _summary(self, X: ArrayLike, *names: str) -> list[FloatArray]:
        """Variables of the forecast at new points."""
        X = self._checked(X)
        return forecast(self.posterior_, X, *names)


def forecast(
    posterior: SkewGPPosterior | AveragedPosterior, X: FloatArray, *names: str
) -> list[FloatArray]:
    """Variables of ``predictions_summary`` at the rows of `X`."""
    parts = []
    for start in range(0, X.shape[0], ROWS_AT_ONCE):
        new = X[start : start + ROWS_AT_ONCE]
        found = posterior.predict(new, draws=0)["predictions_summary"]
        parts.append([found[name].to_numpy() for name in names])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def probabilities(posterior: SkewGPPosterior | AveragedPosterior, X: FloatArray) -> FloatArray:
    """Of classes, shape (t, K), in the unit interval and adding up to 1 to the last digit."""
    (p,) = forecast(posterior, X, "p_mean")
    p = np.clip(p, 0.0, 1.0)
    p /= p.sum(axis=1, keepdims=True)
    return p
