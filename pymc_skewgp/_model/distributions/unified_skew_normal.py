"""The unified skew-normal distribution as a PyMC variable."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._model.distributions.joint_draws import JointDrawsRV, batch_shape_of, draw_groups
from pymc_skewgp._model.distributions.other_methods import warn_of_other_methods
from pymc_skewgp._model.distributions.sun_parameters import as_sun_parameters, is_known_normal
from pymc_skewgp._model.ops.mvn_logcdf import pt_mvn_logcdf
from pymc_skewgp._model.ops.skew_normal_density import (
    pt_log_density_and_orthant,
    pt_normal_log_density,
)
from pymc_skewgp._sun.draws import independent_sun_draws
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray


class UnifiedSkewNormalRV(JointDrawsRV):
    """Draws of the unified skew-normal distribution, each independent of the others."""

    name = "unified_skew_normal"
    signature = "(p),(p,p),(p,s),(s),(s,s)->(p)"
    _print_name = ("UnifiedSkewNormal", "\\operatorname{UnifiedSkewNormal}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: FloatArray,
        scale: FloatArray,
        cross_cov: FloatArray,
        truncation: FloatArray,
        latent_cov: FloatArray,
        size: tuple[int, ...] | None,
    ) -> FloatArray:
        """Draw; `size` None means the batch shape of the parameters."""

        def draw_rows(n: int, *parameters: FloatArray) -> FloatArray:
            omega, cross, gamma, latent = parameters
            sun = SUN.from_cross_cov(
                np.zeros(n_dims), symmetric(omega), cross, gamma, symmetric(latent)
            )
            return independent_sun_draws(sun.parameters, n, rng)

        n_dims = mu.shape[-1]
        parameters = [(scale, 2), (cross_cov, 2), (truncation, 1), (latent_cov, 2)]
        shape = batch_shape_of([(mu, 1), *parameters]) if size is None else size
        # Rows that differ in their location alone are one group.
        return mu + draw_groups(draw_rows, shape, n_dims, parameters)


unified_skew_normal = UnifiedSkewNormalRV()


class UnifiedSkewNormal(pm.Continuous):
    r"""Unified skew-normal distribution.

    A normal vector seen through a condition on latent ones. With :math:`C = D \Delta`,
    :math:`D = \mathrm{diag}(\Omega)^{1/2}`,

    .. math::

        \begin{pmatrix} x_0 \\ x_1 \end{pmatrix} \sim N\left(0,
        \begin{pmatrix} \Gamma & C^\top \\ C & \Omega \end{pmatrix}\right), \qquad
        z = \mu + x_1 \;\text{ given }\; x_0 + \gamma > 0,

        \log p(z) = \log N(z; \mu, \Omega)
        + \log \Phi_s\{\gamma + C^\top \Omega^{-1} (z - \mu);\, \Gamma - C^\top \Omega^{-1} C\}
        - \log \Phi_s(\gamma; \Gamma).

    With s = 0 it is the multivariate normal, with p = s = 1 and gamma = 0 the skew-normal. The
    normal probabilities are exact for s <= 2, and computed with fixed quasi-random points beyond,
    so that the density is a deterministic, differentiable function of the parameters.

    ========  ===================================================================
    Support   :math:`z \in \mathbb{R}^p`
    Mean      :math:`\mu + C \Gamma^{-1} E[u]`, :math:`u \sim N(0, \Gamma)`
              given :math:`u > -\gamma`
    ========  ===================================================================

    Parameters
    ----------
    mu : tensor_like of float, shape (..., p)
        Location :math:`\mu` (not the mean). A scalar is repeated.
    scale : tensor_like of float, shape (..., p, p)
        :math:`\Omega`, symmetric and positive definite.
    skewness : tensor_like of float, shape (..., p, s)
        :math:`\Delta`; the shape (p,) will do when `latent_cov` is known to be 1 by 1. Zero entries
        leave the normal distribution alone. Give either this or `cross_cov`.
    truncation : tensor_like of float, shape (..., s)
        :math:`\gamma`; large positive values leave the normal distribution alone. A scalar is
        repeated.
    latent_cov : tensor_like of float, shape (..., s, s)
        :math:`\Gamma`, symmetric and positive definite, as
        :math:`[[\Gamma, C^\top], [C, \Omega]]` has to be.
    cross_cov : tensor_like of float, shape (..., p, s), optional, keyword only
        :math:`C` in place of the skewness.

    Raises
    ------
    TypeError
        Neither or both of `skewness` and `cross_cov`, or an argument that is missing.
    ValueError, NotPositiveDefiniteError
        Constants that are invalid: NaN, infinities, matrices that are not positive definite.
        Parameters that turn out invalid while sampling have log density -inf; draws with them
        raise.

    See Also
    --------
    pymc_skewgp.SUN : The same distribution as a NumPy value, with moments, marginals, conditionals
        and the conjugate update.

    References
    ----------
    .. [1] R. B. Arellano-Valle & A. Azzalini (2006), On the unification of families of skew-normal
       distributions, doi:10.1111/j.1467-9469.2006.00503.x.
    .. [2] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
    >>> scale = np.array([[1.0, 0.5], [0.5, 2.0]])
    >>> z = UnifiedSkewNormal.dist(0.0, scale, [[0.9], [0.3]], 0.0, [[1.0]])
    >>> print(f"{pm.logp(z, [1.0, 1.0]).eval():.4f}")
    -2.0164

    In a model, with a random location:

    >>> with pm.Model(coords={"axis": ["a", "b"]}):
    ...     mu = pm.Normal("mu")
    ...     z = UnifiedSkewNormal("z", mu, scale, [[0.9], [0.3]], 0.0, [[1.0]], dims="axis")
    >>> pm.draw(z, draws=3, random_seed=1).shape
    (3, 2)
    """

    rv_op = unified_skew_normal

    @classmethod
    def dist(
        cls,
        mu: Any,
        scale: Any,
        skewness: Any = None,
        truncation: Any = None,
        latent_cov: Any = None,
        *,
        cross_cov: Any = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        sun = as_sun_parameters(mu, scale, skewness, truncation, latent_cov, cross_cov)
        return super().dist(list(sun), **kwargs)

    def support_point(rv: Any, size: Any, mu: Any, *parameters: Any) -> Any:
        """Location: every point has positive density, as no latent row is a function of z."""
        if not rv_size_is_none(size):
            return pt.full(pt.concatenate([size, [mu.shape[-1]]]), mu)
        scale, cross_cov, truncation, latent_cov = parameters
        # Only their batch dimensions count; a sum is there even where s = 0.
        rows = [truncation.sum(-1, keepdims=True), latent_cov.sum(-1).sum(-1, keepdims=True)]
        return pt.broadcast_arrays(mu, scale[..., -1], cross_cov.sum(-1), *rows)[0]

    def logp(
        value: Any, mu: Any, scale: Any, cross_cov: Any, truncation: Any, latent_cov: Any
    ) -> Any:
        """Log density, -inf where the parameters are invalid; cross-covariance, not skewness."""
        warn_of_other_methods()
        sun = SunParameters(mu, scale, cross_cov, truncation, latent_cov)
        offset = value - sun.mu
        if is_known_normal(sun):
            return _possible(pt_normal_log_density(offset, sun.scale))
        joint = pt_log_density_and_orthant(offset, *sun[1:])
        return _possible(joint - pt_mvn_logcdf(sun.truncation, sun.latent_cov))

    def logcdf(
        value: Any, mu: Any, scale: Any, cross_cov: Any, truncation: Any, latent_cov: Any
    ) -> Any:
        """Log distribution function: one normal probability of p + s dimensions over one of s."""
        sun = SunParameters(mu, scale, cross_cov, truncation, latent_cov)
        limits = _end_to_end(value - sun.mu, sun.truncation)
        joint = pt_mvn_logcdf(limits, _covariance_below(sun.scale, sun.cross_cov, sun.latent_cov))
        if is_known_normal(sun):
            return joint
        return _possible(joint - pt_mvn_logcdf(sun.truncation, sun.latent_cov))


# Blocks put together core by core, their batch dimensions broadcast.
_end_to_end = pt.vectorize(lambda x, y: pt.concatenate([x, y]), signature="(p),(s)->(n)")
_covariance_below = pt.vectorize(
    lambda scale, cross, latent: pt.concatenate(
        [
            pt.concatenate([scale, -cross], axis=1),
            pt.concatenate([-cross.T, latent], axis=1),
        ],
        axis=0,
    ),
    signature="(p,p),(p,s),(s,s)->(n,n)",
)


def _possible(log_density: Any) -> Any:
    """Minus infinity in place of what comes of probabilities that do not exist."""
    return pt.switch(pt.lt(log_density, np.inf), log_density, -np.inf)
