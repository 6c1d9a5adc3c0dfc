"""The variables of a model that stand for a SkewGP at given inputs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.distributions.truncated_mvnormal import TruncatedMvNormal
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.gp.process import as_input_graph, process_at, shape_now
from pymc_skewgp._model.ops.skew_normal import static_n_latent, sun_from_white, sun_given
from pymc_skewgp._sun.parameters import SunParameters


class FunctionAt(NamedTuple):
    """The latent function of a model where it is known.

    Attributes
    ----------
    X : array or variable, shape (n, d)
    f : TensorVariable, shape (n,)
    jitter : float
        Added to the variances there.
    """

    X: Any
    f: Any
    jitter: float


def as_function_at(given: Mapping[str, Any], n_columns: float, jitter: float) -> FunctionAt:
    """The argument `given` of `SkewGP.conditional`."""
    if set(given) != {"X", "f"}:
        raise ValueError(
            f"given must have the keys 'X' and 'f', got {sorted(given)}: SkewGPs are not "
            "additive, so there is no 'gp' to name."
        )
    X = as_input_graph("given['X']", given["X"], n_columns)
    f = pt.as_tensor_variable(given["f"])
    n, found = shape_now(X)[0], f.type.shape
    if len(found) != 1 or (None not in (n, found[0]) and found[0] != n):
        raise ValueError(
            f"given['f'] must have shape ({n},), one value for each row of given['X']; got {found}."
        )
    return FunctionAt(X, f, jitter)


def function_here(functions: Mapping[str, FunctionAt]) -> FunctionAt | None:
    """The latent function that `prior` made, in the model in context where it was called in some.

    Raises
    ------
    ValueError
        Of several in one model.
    """
    model = pm.Model.get_context(error_if_none=False)
    every = list(functions.values())
    here = [x for x in every if model is not None and model.named_vars.get(x.f.name) is x.f]
    if len(here) > 1:
        names = ", ".join(repr(x.f.name) for x in here)
        raise ValueError(
            f"this SkewGP has {len(here)} latent functions in the model, {names}: say which one by "
            "given={'X': ..., 'f': ...}."
        )
    return next(reversed(here or every), None)


def process_given(gp: Any, known: FunctionAt, f: Any, Xnew: Any, jitter: float) -> SunParameters:
    """A SkewGP at new inputs given that it equals `f` where `known` is."""
    joint = process_at(gp, [known.X, Xnew], jitter)
    return sun_given(joint, pt.specify_shape(f, pt.as_tensor_variable(known.X).shape[:1]))


def skew_normal(
    name: str, sun: SunParameters, distribution: Any = UnifiedSkewNormal, **kwargs: Any
) -> TensorVariable:
    """One variable with the parameters of a unified skew-normal vector."""
    return distribution(name, **sun._asdict(), **kwargs)


def skew_normal_from_white(name: str, sun: SunParameters, **kwargs: Any) -> TensorVariable:
    """The same as a function of white noise and of a truncated Gaussian variable."""
    dims = kwargs.pop("dims", None)
    shape = {} if dims is not None else {"shape": sun.mu.shape}
    white = pm.Normal(f"{name}_rotated_", dims=dims, **shape, **kwargs)
    latent = None
    n_latent = static_n_latent(sun)
    if n_latent:
        latent = TruncatedMvNormal(
            f"{name}_latent_",
            mu=np.zeros(n_latent),
            cov=sun.latent_cov,
            lower=-sun.truncation,
            upper=None,
        )
    return pm.Deterministic(name, sun_from_white(sun, latent, white), dims=dims)
