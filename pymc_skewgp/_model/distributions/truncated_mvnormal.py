"""The multivariate normal restricted to a rectangle; `pm.logcdf` of `pm.MvNormal`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import MvNormalRV
from pymc.distributions.shape_utils import maybe_resize, rv_size_is_none
from pymc.distributions.transforms import Transform, _default_transform
from pymc.logprob.abstract import _logcdf, _logprob
from pymc.logprob.binary import MeasurableComparison
from pymc.logprob.censoring import MeasurableClip, MeasurableRound
from pymc.logprob.transforms import MeasurableTransform
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.independent import independent_draws
from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._model.distributions import unified_skew_normal as sun
from pymc_skewgp._model.ops.densities import pt_mvn_logcdf, pt_normal_log_density
from pymc_skewgp._model.ops.plain_mode import as_real
from pymc_skewgp._validation import FloatArray, as_bounds, as_covariance

# From a rectangle to the whole space, each coordinate by the limits it has.


class RectangleTransform(Transform):
    r"""Coordinatewise: log odds between two limits, log distance to one, the identity without.

    .. math:: x = \log\frac{y - l}{h - y}, \; \log(y - l), \; \log(h - y) \;\text{or}\; y

    Limits are symbolic and may be infinite, in any mixture; which coordinate has which is looked up
    when the graph runs. PyMC's ``Interval`` does so too, but an unbounded coordinate beyond 709
    overflows in the branches that it does not take, and its gradient is then NaN: here every branch
    sees harmless numbers where it is not taken.

    The last two parameters of the random variable are the lower and the upper limits.
    """

    name = "interval"
    ndim_supp = 1

    def forward(self, value: Any, *inputs: Any) -> TensorVariable:
        """Rectangle to space."""
        low, high, below, above = _limits(inputs)
        log_from_low = pt.log(pt.switch(below, value - low, 1.0))
        log_to_high = pt.log(pt.switch(above, high - value, 1.0))
        both_or_low = log_from_low - pt.switch(above, log_to_high, 0.0)
        return pt.switch(below, both_or_low, pt.switch(above, log_to_high, value))

    def backward(self, value: Any, *inputs: Any) -> TensorVariable:
        """Space to rectangle."""
        low, high, below, above = _limits(inputs)
        one = pt.exp(pt.switch(pt.xor(below, above), value, 0.0))
        odds = pt.sigmoid(pt.switch(pt.and_(below, above), value, 0.0))
        # From the nearer limit: the distance to it keeps its digits.
        near_low = low + (high - low) * odds
        near_high = high - (high - low) * pt.sigmoid(pt.switch(pt.and_(below, above), -value, 0.0))
        between = pt.switch(pt.lt(value, 0.0), near_low, near_high)
        return pt.switch(
            pt.and_(below, above),
            between,
            pt.switch(below, low + one, pt.switch(above, high - one, value)),
        )

    def log_jac_det(self, value: Any, *inputs: Any) -> TensorVariable:
        """Log determinant of the derivative of `backward`, which is diagonal."""
        low, high, below, above = _limits(inputs)
        both = pt.and_(below, above)
        width = pt.log(pt.switch(both, high - low, 1.0))
        two_sided = width - pt.softplus(-value) - pt.softplus(value)
        one_sided = pt.switch(pt.or_(below, above), value, pt.zeros_like(value))
        return pt.switch(both, two_sided, one_sided).sum(axis=-1)


def _limits(inputs: Any) -> tuple[TensorVariable, ...]:
    """Limits, 0 where there is none, and where there is one."""
    lower, upper = inputs[-2:]
    below, above = pt.gt(lower, -np.inf), pt.lt(upper, np.inf)
    return pt.switch(below, lower, 0.0), pt.switch(above, upper, 0.0), below, above


class TruncatedMvNormalRV(sun.JointDrawsRV):
    """Draws of a multivariate normal restricted to a rectangle, each independent of the others."""

    name = "truncated_multivariate_normal"
    signature = "(n),(n,n),(n),(n)->(n)"

    def draws(
        self, rng: np.random.Generator, size: Any, mu: Any, cov: Any, lower: Any, upper: Any
    ) -> Any:
        """Draw."""

        def draw_rows(n: int, matrix: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
            matrix = as_covariance("cov", symmetric(matrix))
            low, high = as_bounds(low, high, matrix.shape[0])
            return independent_draws(DenseCovariance(matrix), low, high, n, rng)

        parameters = [(cov, 2), (lower - mu, 1), (upper - mu, 1)]
        draws = mu + sun.draw_groups(draw_rows, size, mu.shape[-1], parameters)
        return np.clip(draws, lower, upper)  # the sum may round to the far side of a limit


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

    rv_op = TruncatedMvNormalRV()

    @classmethod
    def dist(
        cls, mu: Any = 0.0, cov: Any = None, lower: Any = None, upper: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        if cov is None:
            raise ValueError("cov is needed: the covariance without the limits, shape (n, n).")
        cov = sun.as_covariance_parameter("cov", cov)
        mu = sun.as_vector_parameter("mu", mu, cov)
        sun.check_known_finite("mu", mu)
        lower = sun.as_vector_parameter("lower", -np.inf if lower is None else lower, cov)
        upper = sun.as_vector_parameter("upper", np.inf if upper is None else upper, cov)
        low, high = sun.known_value(lower), sun.known_value(upper)
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


# The distribution function of PyMC's own multivariate normal, which PyMC lacks.
#
# Importing this module makes ``pm.logcdf(pm.MvNormal.dist(mu, cov), x)`` work.

# What PyMC derives element by element from a variable's logcdf. It asks none of them whether the
# variable is univariate, because until now no multivariate one had a logcdf: they would mix up the
# joint distribution function with those of the elements, and answer wrongly.
_ELEMENTWISE = (
    (_logprob, MeasurableClip),
    (_logprob, MeasurableComparison),
    (_logprob, MeasurableRound),
    (_logcdf, MeasurableClip),
    (_logcdf, MeasurableTransform),
)


@_logcdf.register(MvNormalRV)
def mvnormal_logcdf(
    op: MvNormalRV, value: Any, rng: Any, size: Any, mu: Any, cov: Any, **kwargs: Any
) -> TensorVariable:
    r"""Log distribution function of ``pm.MvNormal``, for ``pm.logcdf``.

    .. math:: \log P(z \le x), \qquad z \sim N(\mu, \Sigma)

    See `pt_mvn_logcdf`, whose defaults it takes.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp._model.distributions.truncated_mvnormal
    >>> cov = 0.5 * np.eye(4) + 0.5
    >>> log_cdf = pm.logcdf(pm.MvNormal.dist(np.ones(4), cov), np.ones(4)).eval()
    >>> print(f"{log_cdf:.2f}, exact {-np.log(5):.2f}")
    -1.61, exact -1.61
    """
    return maybe_resize(pt_mvn_logcdf(as_real(value) - as_real(mu), cov), size)


def _refuse_vectors(dispatcher: Any, measurable: type) -> None:
    """Let `measurable` go on as it was for multivariate variables: not implemented."""
    original: Callable[..., Any] = dispatcher.dispatch(measurable)

    @dispatcher.register(measurable)
    def guarded(op: Any, values: Any, *inputs: Any, **kwargs: Any) -> Any:
        for x in inputs:
            if x.owner is not None and (getattr(x.owner.op, "ndim_supp", None) or 0) > 0:
                raise NotImplementedError(
                    f"{op} of a multivariate variable has no distribution function here: write it "
                    "as probabilities of rectangles with pymc_skewgp.pt_mvn_logcdf."
                )
        return original(op, values, *inputs, **kwargs)


for _dispatcher, _measurable in _ELEMENTWISE:
    _refuse_vectors(_dispatcher, _measurable)
