"""A process whose mean has Gaussian coefficients that have no values: they go into its kernel."""

from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors

from pymc_skewgp._model.gp.functions import undetermined
from pymc_skewgp._model.gp.values import ValuesAt, mean_of_values
from pymc_skewgp._model.graph.mean_coefficients import AffineMean, affine_mean, mean_coefficients


class CoefficientCovariance(pm.gp.cov.Covariance):
    """Covariance M S M' of a mean M b, with S the prior covariance of b."""

    def __init__(self, mean: "_MeanOf", n_columns: int) -> None:
        super().__init__(n_columns)
        self._mean = mean

    def full(self, X: Any, Xs: Any = None) -> Any:
        """Matrix of covariances."""
        left = self._mean.at(X)
        right = left if Xs is None else self._mean.at(Xs)
        return left.design @ left.cov @ right.design.T

    def diag(self, X: Any) -> Any:
        """Variances."""
        found = self._mean.at(X)
        return ((found.design @ found.cov) * found.design).sum(axis=1)


class MeanOfCoefficients(pm.gp.mean.Mean):
    """A mean with its coefficients at their prior means."""

    def __init__(self, mean: "_MeanOf") -> None:
        super().__init__()
        self._mean = mean

    def __call__(self, X: Any) -> Any:
        """Mean at the rows of `X`."""
        return self._mean.at(X).mean


class _MeanOf:
    """A mean function, and which of its variables are coefficients."""

    def __init__(self, mean_func: Any, variables: Sequence[Any], coefficients: list[Any]) -> None:
        self._mean_func, self._variables, self._coefficients = mean_func, variables, coefficients

    def at(self, X: Any) -> AffineMean:
        """At the rows of `X`."""
        mean = mean_of_values(self._mean_func, [ValuesAt(X)])
        return affine_mean(self._variables, self._coefficients, mean)


def can_be_integrated(gp: Any, n_functions: int, coregion: Any) -> bool:
    """Whether a posterior has coefficients of the mean as a part of its kernel.

    Signs are those of f less its mean, and several functions have one mean, but not one kernel.
    """
    return gp.pseudo_points is None and n_functions == 1 and coregion is None


def functions_at(gp: Any, point: Container[str], can_be: Callable[[], bool]) -> tuple[Any, Any]:
    """Kernel and mean of a SkewGP, coefficients of the mean that `point` lacks integrated out.

    Parameters
    ----------
    gp : SkewGP
    point : mapping
        Values by name.
    can_be : callable
        Whether they may be: see `can_be_integrated`. Asked where some are lacking.

    Raises
    ------
    ValueError
        Where it lacks some that cannot be.
    """
    cov_func, mean_func = gp.cov_func, gp.mean_func
    columns = int(gp.n_columns) if np.isfinite(gp.n_columns) else None
    X = pt.matrix("X", shape=(None, columns))
    mean = mean_of_values(mean_func, [ValuesAt(X)])
    missing = undetermined([mean], point, [X])
    if gp.model is None or not missing:
        return cov_func, mean_func
    model = gp.model.root
    above = set(ancestors([mean]))
    rest = [rv for rv in model.free_RVs if rv in above or rv.name in point]
    chosen = mean_coefficients(model, mean, [cov_func(X)], rest)
    chosen = [rv for rv in chosen if rv.name not in point]
    if not set(missing).issubset(chosen):
        return cov_func, mean_func  # which say what is lacking
    if not can_be():
        names = ", ".join(str(rv.name) for rv in missing)
        raise ValueError(
            f"the mean depends on {names}: give their values in point. They are integrated out "
            "without pseudo-points and for data of one function; integrate(gp, X, y) does so, and "
            "draws them, in any case."
        )
    found = _MeanOf(mean_func, model.free_RVs, chosen)
    return cov_func + CoefficientCovariance(found, columns or 1), MeanOfCoefficients(found)
