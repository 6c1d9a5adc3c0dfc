"""The exact posterior of a SkewGP at values of its random hyperparameters."""

from typing import Any

from pytensor.graph.basic import Variable

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._model.gp.distribution_sites import DistributionSites
from pymc_skewgp._model.gp.functions import (
    ArrayCovariance,
    ArrayMean,
    Point,
    SharedFunctions,
    compile_at,
)
from pymc_skewgp._model.gp.integrated_mean import can_be_integrated, functions_at
from pymc_skewgp._model.gp.likelihood_at import likelihood_at
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.pseudo_points import pseudo_points_at
from pymc_skewgp._observations.arguments import as_inputs
from pymc_skewgp._posterior.data_sets import as_likelihood, kinds_of
from pymc_skewgp._posterior.distributed.chunked_data import is_dask
from pymc_skewgp._posterior.distributed.distributed_posterior import DistributedPosterior
from pymc_skewgp._posterior.posterior import SkewGPPosterior


def posterior_of(
    gp: Any,
    X: Any,
    y: Any,
    likelihood: Any,
    point: Point,
    *,
    coregion: Any,
    shared: SharedFunctions | None = None,
    **options: Any,
) -> SkewGPPosterior:
    """`SkewGP.posterior` at checked values of the hyperparameters; further `options` as there.

    What the posteriors at other points compile may be `shared`.
    """
    if is_dask(X) or is_dask(y):
        return _distributed(gp, X, y, likelihood, point, coregion=coregion, **options)
    kinds = {
        name: (inputs_of(gp, X), y, likelihood_at(likelihood, point))
        for name, (X, y, likelihood) in kinds_of(X, y, likelihood).items()
    }

    def one_kernel() -> bool:
        found = [(as_likelihood(own), y, X.shape[0]) for X, y, own in kinds.values()]
        k = max(own.n_functions(own.as_data(y, n)) for own, y, n in found)
        return can_be_integrated(gp, k, coregion)

    kernel, mean = functions_at(gp, point, one_kernel)
    cov_func, mean_func = ArrayCovariance(kernel, point, shared), ArrayMean(mean, point, shared)
    only = kinds.get("")
    X, y, likelihood = (kinds, None, None) if only is None else only
    posterior = SkewGPPosterior(
        X,
        y,
        likelihood=likelihood,
        cov_func=cov_func,
        mean_func=mean_func,
        approximation=gp.approximation,
        coregion=compile_at([], coregion, point)() if isinstance(coregion, Variable) else coregion,
        **pseudo_points_at(gp, point),
        **options,
    )
    for name, (inputs, values, known) in kinds.items():
        if isinstance(known, DistributionSites):
            where = f"in the data {name!r}: " if name else ""
            known.refuse_impossible_mean(values, mean_func(inputs), where)
    return posterior


def _distributed(
    gp: Any, X: Any, y: Any, likelihood: Any, point: Point, **options: Any
) -> DistributedPosterior:
    """Of data that are dask arrays."""
    return DistributedPosterior(
        X,
        y,
        likelihood=likelihood_at(likelihood, point),
        cov_func=ArrayCovariance(gp.cov_func, point),
        mean_func=ArrayMean(gp.mean_func, point),
        approximation=gp.approximation,
        **pseudo_points_at(gp, point),
        **options,
    )


def inputs_of(gp: Any, X: Any) -> Any:
    """Inputs with as many columns as the kernel was built for."""
    if is_dask(X):
        raise ApproximationError(
            "data of several kinds cannot be dask arrays: pass NumPy arrays, or one X and one y."
        )
    return as_input_graph("X", as_inputs("X", X), gp.n_columns)
