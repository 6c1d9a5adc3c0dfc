"""The exact posterior of a SkewGP at values of its hyperparameters, and of the mean."""

from collections.abc import Callable, Container
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._model.gp import functions
from pymc_skewgp._model.gp.process import ValuesAt, as_input_graph, mean_of_values, pseudo_points_at
from pymc_skewgp._model.gp.site_functions import DistributionSites
from pymc_skewgp._model.graph.collapsed import AffineMean, affine_mean, mean_coefficients
from pymc_skewgp._model.graph.data import is_distribution
from pymc_skewgp._observations.likelihood import Likelihood, as_inputs
from pymc_skewgp._posterior.distributed_posterior import DistributedPosterior, is_dask
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._posterior.prior import as_likelihood, kinds_of

# Likelihoods with values for the random variables among their parameters.


def likelihood_at(likelihood: Any, point: functions.Point) -> Any:
    """`likelihood` with every parameter that is a graph replaced by its value at `point`.

    A function from a predictor to a PyMC distribution becomes a likelihood of sites.

    Raises
    ------
    ValueError
        When `point` lacks a value.
    """
    if is_distribution(likelihood):
        return DistributionSites(likelihood, point)
    if not isinstance(likelihood, Likelihood):  # none, or refused later
        return likelihood
    graphs = likelihood.graphs.items()
    return likelihood.with_parameters(
        {name: functions.compile_at([], x, point)() for name, x in graphs}
    )


# A process whose mean has Gaussian coefficients that have no values: they go into its kernel.


class CoefficientCovariance(pm.gp.cov.Covariance):
    """Covariance M S M' of a mean M b, with S the prior covariance of b."""

    def __init__(self, mean: Callable[[Any], AffineMean], n_columns: int) -> None:
        super().__init__(n_columns)
        self._mean = mean

    def full(self, X: Any, Xs: Any = None) -> Any:
        """Matrix of covariances."""
        left = self._mean(X)
        right = left if Xs is None else self._mean(Xs)
        return left.design @ left.cov @ right.design.T

    def diag(self, X: Any) -> Any:
        """Variances."""
        found = self._mean(X)
        return ((found.design @ found.cov) * found.design).sum(axis=1)


class MeanOf(pm.gp.mean.Mean):
    """A function of the inputs as a mean function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function

    def __call__(self, X: Any) -> Any:
        """Mean at the rows of `X`."""
        return self._function(X)


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
    _, missing = functions.determining([mean], point, [X])
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

    def found(X: Any) -> AffineMean:
        return affine_mean(model.free_RVs, chosen, mean_of_values(mean_func, [ValuesAt(X)]))

    return cov_func + CoefficientCovariance(found, columns or 1), MeanOf(lambda X: found(X).mean)


def posterior_of(
    gp: Any,
    X: Any,
    y: Any,
    likelihood: Any,
    point: functions.Point,
    *,
    coregion: Any,
    shared: functions.SharedFunctions | None = None,
    **options: Any,
) -> SkewGPPosterior:
    """`SkewGP.posterior` at checked values of the hyperparameters; further `options` as there.

    What the posteriors at other points compile may be `shared`.
    """
    kinds: dict[str, tuple[Any, Any, Any]] = {}
    make: Any = SkewGPPosterior
    kernel, mean = gp.cov_func, gp.mean_func
    if is_dask(X) or is_dask(y):
        make, likelihood = DistributedPosterior, likelihood_at(likelihood, point)
    else:
        every = kinds_of(X, y, likelihood)
        kinds = {
            name: (inputs_of(gp, X), y, likelihood_at(likelihood, point))
            for name, (X, y, likelihood) in every.items()
        }

        def one_kernel() -> bool:
            found = [(as_likelihood(own), y, X.shape[0]) for X, y, own in kinds.values()]
            k = max(own.n_functions(own.as_data(y, n)) for own, y, n in found)
            return can_be_integrated(gp, k, coregion)

        kernel, mean = functions_at(gp, point, one_kernel)
        named = {name: (every[name][0], *rest) for name, (_, *rest) in kinds.items()}
        X, y, likelihood = named.get("", (named, None, None))
    cov_func = functions.ArrayCovariance(kernel, point, shared)
    mean_func = functions.ArrayMean(mean, point, shared)
    is_graph = isinstance(coregion, Variable)
    posterior = make(
        X,
        y,
        likelihood=likelihood,
        cov_func=cov_func,
        mean_func=mean_func,
        approximation=gp.approximation,
        coregion=functions.compile_at([], coregion, point)() if is_graph else coregion,
        **pseudo_points_at(gp, point),
        **options,
    )
    for name, (inputs, values, known) in kinds.items():
        if isinstance(known, DistributionSites):
            where = f"in the data {name!r}: " if name else ""
            known.refuse_impossible_mean(values, mean_func(inputs), where)
    return posterior


def inputs_of(gp: Any, X: Any) -> Any:
    """Inputs with as many columns as the kernel was built for."""
    if is_dask(X):
        raise ApproximationError(
            "data of several kinds cannot be dask arrays: pass NumPy arrays, or one X and one y."
        )
    return as_input_graph("X", as_inputs("X", X), gp.n_columns)


# ``pm.gp`` objects with their random hyperparameters replaced by values.


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

    def __init__(self, cov_func: Any, point: functions.Point) -> None:
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


def mean_at_point(mean_func: Any, point: functions.Point) -> MeanOf:
    """A mean function in which every random variable has the value it has in `point`."""
    return MeanOf(lambda X: fixed(mean_func(X), point))


def fixed(output: Any, point: functions.Point) -> Any:
    """The graph `output` with its random variables replaced by their values."""
    found = functions.hyperparameters([output], point, [], "point")
    replace = {node: functions.as_value(node, point[node.name]) for node in found}
    return graph_replace(output, replace) if replace else output
