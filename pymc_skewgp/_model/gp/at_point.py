"""``pm.gp`` objects with their random hyperparameters replaced by values."""

from typing import Any

import pymc as pm
from pytensor.graph.replace import graph_replace

from pymc_skewgp._model.gp.functions import Point, as_value, hyperparameters


class CovarianceAtPoint(pm.gp.cov.Covariance):
    """A covariance function in which every random variable has the value it has in `point`.

    Parameters
    ----------
    cov_func : pymc.gp.cov.Covariance
    point : mapping
        Values by name.

    Raises
    ------
    ValueError
        At the first use, when a random variable has no value.
    """

    def __init__(self, cov_func: Any, point: Point) -> None:
        # A constant has neither; what is passed on to it are whole inputs in any case.
        super().__init__(getattr(cov_func, "input_dim", 1), getattr(cov_func, "active_dims", None))
        self._cov_func, self._point = cov_func, dict(point)

    def full(self, X: Any, Xs: Any = None) -> Any:
        """Matrix of covariances."""
        return fixed(self._cov_func(X, Xs), self._point)

    def diag(self, X: Any) -> Any:
        """Variances."""
        return fixed(self._cov_func(X, diag=True), self._point)

    def power_spectral_density(self, omega: Any) -> Any:
        """Power spectral density, where `cov_func` has one."""
        return fixed(self._cov_func.power_spectral_density(omega), self._point)


class MeanAtPoint(pm.gp.mean.Mean):
    """A mean function in which every random variable has the value it has in `point`."""

    def __init__(self, mean_func: Any, point: Point) -> None:
        super().__init__()
        self._mean_func, self._point = mean_func, dict(point)

    def __call__(self, X: Any) -> Any:
        """Mean at the rows of `X`."""
        return fixed(self._mean_func(X), self._point)


def fixed(output: Any, point: Point) -> Any:
    """The graph `output` with its random variables replaced by their values."""
    found = hyperparameters([output], point, [], "point")
    replace = {node: as_value(node, point[node.name]) for node in found}
    return graph_replace(output, replace) if replace else output
