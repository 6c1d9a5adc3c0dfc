"""The unified skew-normal distribution as a PyMC variable."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp.distributions.joint_draws import JointDrawsRV, draw_groups
from pymc_skewgp.kernels.linalg import symmetric
from pymc_skewgp.kernels.validation import FloatArray
from pymc_skewgp.sun import SUN


class UnifiedSkewNormalRV(JointDrawsRV):
    """Draws of the unified skew-normal distribution."""

    name = "unified_skew_normal"
    signature = "(p),(p,p),(p,s),(s),(s,s)->(p)"
    _print_name = ("UnifiedSkewNormal", "\\operatorname{UnifiedSkewNormal}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: FloatArray,
        scale: FloatArray,
        skewness: FloatArray,
        truncation: FloatArray,
        latent_cov: FloatArray,
        size: tuple[int, ...] | None,
    ) -> FloatArray:
        """Draw; `size` None means the batch shape of the parameters."""

        def draw_rows(n: int, *parameters: FloatArray) -> FloatArray:
            omega, delta, gamma, latent = parameters
            sun = SUN(np.zeros(n_dims), symmetric(omega), delta, gamma, symmetric(latent))
            return sun.sample(n, rng)

        n_dims = mu.shape[-1]
        parameters = [(scale, 2), (skewness, 2), (truncation, 1), (latent_cov, 2)]
        if size is None:
            batch = (value.shape[: value.ndim - core] for value, core in [(mu, 1), *parameters])
            size = np.broadcast_shapes(*batch)
        # The location is not a parameter of the groups: rows that differ in it alone are one.
        return mu + draw_groups(draw_rows, size, n_dims, parameters)


unified_skew_normal = UnifiedSkewNormalRV()


class UnifiedSkewNormal(pm.Continuous):
    r"""Unified skew-normal distribution."""

    rv_op = unified_skew_normal

    @classmethod
    def dist(
        cls, mu: Any, scale: Any, skewness: Any, truncation: Any, latent_cov: Any, **kwargs: Any
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        mu, scale, skewness, truncation, latent_cov = (
            pt.as_tensor_variable(value) for value in (mu, scale, skewness, truncation, latent_cov)
        )
        mu, _ = pt.broadcast_arrays(mu, scale[..., -1])
        if truncation.type.ndim == 0:
            truncation = pt.alloc(truncation, latent_cov.shape[-1])
        return super().dist([mu, scale, skewness, truncation, latent_cov], **kwargs)

    def support_point(rv, size, mu, *parameters):  # type: ignore[no-untyped-def] # noqa: N805, D102
        if not rv_size_is_none(size):
            mu = pt.full(pt.concatenate([size, [mu.shape[-1]]]), mu)
        return mu

    def logp(value, mu, scale, skewness, truncation, latent_cov):  # type: ignore[no-untyped-def] # noqa: N805, D102
        from pymc_skewgp.symbolic.mvn_logcdf import pt_mvn_logcdf

        chol = pt.linalg.cholesky(scale, lower=True)
        n_dims = value.shape[-1]
        white = pt.linalg.solve_triangular(chol, value - mu, lower=True, b_ndim=1)
        log_det = pt.log(pt.diagonal(chol, axis1=-2, axis2=-1)).sum(axis=-1)
        normal = -0.5 * (pt.sqr(white).sum(-1) + n_dims * np.log(2 * np.pi)) - log_det
        sd = pt.sqrt(pt.diagonal(scale, axis1=-2, axis2=-1))
        half = pt.linalg.solve_triangular(chol, sd[..., None] * skewness, lower=True, b_ndim=2)
        limits = truncation + (half * white[..., None]).sum(-2)
        inner = latent_cov - half.mT @ half
        inner = 0.5 * (inner + inner.mT)
        latent = 0.5 * (latent_cov + latent_cov.mT)
        result = normal + pt_mvn_logcdf(limits, inner) - pt_mvn_logcdf(truncation, latent)
        return pt.switch(pt.isnan(result), -np.inf, result)
