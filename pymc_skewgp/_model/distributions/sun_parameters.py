"""The parameters of a unified skew-normal variable: what users give, checked and converted."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._model.distributions.joint_draws import batch_shape_of
from pymc_skewgp._model.distributions.parameters import (
    as_covariance_parameter,
    as_parameter,
    as_vector_parameter,
    check_known_finite,
    check_positive_definite,
    check_static_shape,
    known_value,
)
from pymc_skewgp._sun.parameters import SunParameters


def as_sun_parameters(
    mu: Any, scale: Any, skewness: Any, truncation: Any, latent_cov: Any, cross_cov: Any
) -> SunParameters:
    """Parameters as variables of full dimensions; those that are constants are checked.

    Raises
    ------
    TypeError
        Neither or both of `skewness` and `cross_cov`; no `truncation` or no `latent_cov`.
    ValueError, NotPositiveDefiniteError
        Constants or static shapes that are invalid.
    """
    if (skewness is None) == (cross_cov is None):
        found = "neither" if skewness is None else "both"
        raise TypeError(f"give either skewness or cross_cov, got {found}.")
    for name, value in (("truncation", truncation), ("latent_cov", latent_cov)):
        if value is None:
            raise TypeError(f"{name} is missing: it has to be given.")
    scale = as_covariance_parameter("scale", scale)
    latent_cov = as_covariance_parameter("latent_cov", latent_cov)
    name, given = ("cross_cov", cross_cov) if skewness is None else ("skewness", skewness)
    cross_cov = _as_matrix(name, given, scale, latent_cov)
    mu = as_vector_parameter("mu", mu, scale)
    truncation = as_vector_parameter("truncation", truncation, latent_cov)
    for label, variable in (("mu", mu), ("truncation", truncation), (name, cross_cov)):
        check_known_finite(label, variable)
    joint = "[[latent_cov, cross_cov'], [cross_cov, scale]]"
    if skewness is not None:
        cross_cov = _from_skewness(scale, cross_cov)
        joint = "[[latent_cov, C'], [C, scale]] (C from skewness)"
    sun = SunParameters(mu, scale, cross_cov, truncation, latent_cov)
    _check_known_joint(joint, sun)
    return sun


def is_known_normal(sun: SunParameters) -> bool:
    """Whether there is known to be no latent dimension."""
    latent = (sun.cross_cov, sun.truncation, sun.latent_cov)
    return any(parameter.type.shape[-1] == 0 for parameter in latent)


def _as_matrix(
    name: str, value: Any, scale: TensorVariable, latent_cov: TensorVariable
) -> TensorVariable:
    """Skewness or cross-covariance as a matrix (p, s)."""
    matrix = as_parameter(name, value, 1)
    wanted = (scale.type.shape[-1], latent_cov.type.shape[-1])
    if matrix.type.ndim == 1 and wanted[1] == 1:
        known = known_value(matrix)
        matrix = matrix[:, None] if known is None else pt.constant(known[:, None])
    if matrix.type.ndim < 2:
        raise ValueError(
            f"{name} must have shape (p, s), got {matrix.type.ndim} dimension(s): a vector "
            "will do only when latent_cov is known to be of shape (1, 1)."
        )
    check_static_shape(name, matrix, wanted)
    return matrix


def _from_skewness(scale: TensorVariable, skewness: TensorVariable) -> TensorVariable:
    """C = D Delta: a constant where both are."""
    omega, delta = known_value(scale), known_value(skewness)
    if omega is not None and delta is not None:
        cross = np.sqrt(np.diagonal(omega, axis1=-2, axis2=-1))[..., None] * delta
        return pt.constant(cross.astype(skewness.type.dtype))
    if skewness.type.shape[-1] == 0:
        return skewness
    variance = pt.diagonal(scale, axis1=-2, axis2=-1)
    # What is no variance makes no density; its root must not make the gradient NaN as well.
    return pt.sqrt(pt.switch(pt.gt(variance, 0.0), variance, 1.0))[..., None] * skewness


def _check_known_joint(name: str, sun: SunParameters) -> None:
    """Refuse constants whose joint covariance is not positive definite."""
    values = [known_value(variable) for variable in (sun.scale, sun.cross_cov, sun.latent_cov)]
    if any(value is None or value.size == 0 for value in values):
        return
    omega, cross, latent = (value for value in values if value is not None)
    batch = batch_shape_of([(omega, 2), (cross, 2), (latent, 2)])
    for index in np.ndindex(*batch):
        o, c, g = (np.broadcast_to(x, batch + x.shape[-2:])[index] for x in (omega, cross, latent))
        joint = symmetric(np.block([[g, c.T], [c, o]]))
        check_positive_definite(name, joint)
