"""The multivariate normal restricted to a rectangle, as a PyMC variable."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.distributions.transforms import Transform, _default_transform
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.samplers.independent import independent_draws
from pymc_skewgp._model.distributions.joint_draws import JointDrawsRV, batch_shape_of, draw_groups
from pymc_skewgp._model.distributions.parameters import (
    as_covariance_parameter,
    as_vector_parameter,
    check_known_finite,
    known_value,
)
from pymc_skewgp._model.distributions.rectangle_transform import RectangleTransform
from pymc_skewgp._model.ops.mvn_logcdf import pt_mvn_logcdf
from pymc_skewgp._model.ops.skew_normal_density import pt_normal_log_density
from pymc_skewgp._validation import FloatArray, as_bounds, as_covariance


class TruncatedMvNormalRV(JointDrawsRV):
    """Draws of a multivariate normal restricted to a rectangle, each independent of the others."""

    name = "truncated_multivariate_normal"
    signature = "(n),(n,n),(n),(n)->(n)"
    _print_name = ("TruncatedMvNormal", "\\operatorname{TruncatedMvNormal}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: FloatArray,
        cov: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        size: tuple[int, ...] | None,
    ) -> FloatArray:
        """Draw; `size` None means the batch shape of the parameters."""

        def draw_rows(n: int, matrix: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
            matrix = as_covariance("cov", symmetric(matrix))
            low, high = as_bounds(low, high, matrix.shape[0])
            return independent_draws(DenseCovariance(matrix), low, high, n, rng)

        parameters = [(cov, 2), (lower - mu, 1), (upper - mu, 1)]
        shape = batch_shape_of([(mu, 1), *parameters]) if size is None else size
        draws = mu + draw_groups(draw_rows, shape, mu.shape[-1], parameters)
        return np.clip(draws, lower, upper)  # the sum may round to the far side of a limit


truncated_multivariate_normal = TruncatedMvNormalRV()


class TruncatedMvNormal(pm.Continuous):
    r"""Multivariate normal distribution restricted to a rectangle.

    .. math::

        \log p(x) = \log N(x; \mu, \Sigma) - \log P(l < N(\mu, \Sigma) < h), \qquad l \le x \le h

    Not the distribution of a normal vector clipped or reflected at its limits, nor that of
    independent truncated normals: the density is the normal one, divided by the probability of the
    rectangle, which depends on all of mu, cov and the limits. That probability is exact for N <= 2
    and computed with fixed quasi-random points beyond, so that it is a deterministic and
    differentiable function of the parameters.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., n)
        Location: the mean without the limits. A scalar is repeated.
    cov : tensor_like of float, shape (..., n, n)
        Covariance without the limits.
    lower, upper : tensor_like of float, shape (..., n), or None
        Limits; a scalar is repeated. None and infinite entries mean no limit there.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        Constants that are invalid: NaN, a covariance that is not positive definite, a lower limit
        at or above its upper one. Parameters that turn out invalid while sampling have log density
        -inf; draws with them raise.

    Notes
    -----
    Sampled in unconstrained space: each coordinate is transformed by the limits it has (log odds,
    log distance or not at all).

    References
    ----------
    .. [1] W. C. Horrace (2005), Some results on the multivariate truncated normal distribution,
       doi:10.1016/j.jmva.2004.10.007.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp._model.distributions.truncated_mvnormal import TruncatedMvNormal
    >>> cov = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> x = TruncatedMvNormal.dist(mu=0.0, cov=cov, lower=0.0, upper=[1.0, np.inf])
    >>> print(f"{pm.logp(x, [0.5, 1.0]).eval():.4f}")
    -0.6138

    In a model, with one limit only:

    >>> with pm.Model(coords={"axis": ["a", "b"]}):
    ...     x = TruncatedMvNormal("x", mu=0.0, cov=cov, lower=0.0, upper=None, dims="axis")
    >>> pm.draw(x, draws=3, random_seed=1).shape
    (3, 2)
    """

    rv_op = truncated_multivariate_normal

    @classmethod
    def dist(
        cls, mu: Any = 0.0, cov: Any = None, lower: Any = None, upper: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        if cov is None:
            raise ValueError("cov is needed: the covariance without the limits, shape (n, n).")
        cov = as_covariance_parameter("cov", cov)
        mu = as_vector_parameter("mu", mu, cov)
        check_known_finite("mu", mu)
        lower = as_vector_parameter("lower", -np.inf if lower is None else lower, cov)
        upper = as_vector_parameter("upper", np.inf if upper is None else upper, cov)
        low, high = known_value(lower), known_value(upper)
        if low is not None and high is not None:
            low, high = np.broadcast_arrays(low, high)
            as_bounds(low.ravel(), high.ravel(), low.size)
        return super().dist([mu, cov, lower, upper], **kwargs)

    def support_point(rv: Any, size: Any, mu: Any, cov: Any, lower: Any, upper: Any) -> Any:
        """Point inside: the location, moved away from limits that it is near or beyond."""
        sd = pt.sqrt(pt.diagonal(cov, axis1=-2, axis2=-1))
        # A quarter of a finite interval, else a standard deviation.
        width = upper - lower
        margin = pt.switch(pt.isinf(width), sd, 0.25 * width)
        point = pt.minimum(pt.maximum(mu, lower + margin), upper - margin)
        if not rv_size_is_none(size):
            point = pt.full(pt.concatenate([size, [point.shape[-1]]]), point)
        return point

    def logp(value: Any, mu: Any, cov: Any, lower: Any, upper: Any) -> Any:
        """Log density, -inf outside and where the parameters are invalid."""
        normal = pt_normal_log_density(value - mu, cov)
        log_mass = pt_mvn_logcdf(upper - mu, cov, lower=lower - mu)
        inside = pt.all(pt.and_(pt.ge(value, lower), pt.le(value, upper)), axis=-1)
        result = normal - log_mass
        # A rectangle that is empty has log mass -inf: what comes of it is as impossible as NaN.
        return pt.switch(pt.and_(inside, pt.lt(result, np.inf)), result, -np.inf)


@_default_transform.register(TruncatedMvNormalRV)
def _to_whole_space(op: TruncatedMvNormalRV, rv: TensorVariable) -> Transform:
    return RectangleTransform()
