"""Normal values of which some are known to be in an interval, and no more."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.ops.log_normal_mass import pt_log_normal_mass
from pymc_skewgp._validation import FloatArray

_LOG_2PI = np.float64(np.log(2.0 * np.pi))


class IntervalNormalRV(RandomVariable):
    """Draws of a normal, with one number for all values within the limits."""

    name = "interval_normal"
    signature = "(),(),(),()->()"
    dtype = "floatX"
    _print_name = ("IntervalNormal", "\\operatorname{IntervalNormal}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: FloatArray,
        sigma: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        size: tuple[int, ...] | None,
    ) -> FloatArray:
        """Draw; `size` None means the shape of the parameters."""
        if size is None:
            size = np.broadcast_shapes(*(np.shape(x) for x in (mu, sigma, lower, upper)))
        v = mu + sigma * rng.standard_normal(size)
        low, high = (np.broadcast_to(x, size) for x in (lower, upper))
        both = np.isfinite(low) & np.isfinite(high)
        end = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
        middle = np.where(both, 0.5 * (np.where(both, low, 0.0) + np.where(both, high, 0.0)), end)
        return np.asarray(np.where((v > low) & (v < high), middle, v))


interval_normal = IntervalNormalRV()


class IntervalNormal(pm.Continuous):
    r"""Normal values that are not seen within an interval: interval-censored data.

    .. math:: v \sim N(\mu, \sigma^2), \qquad y = \begin{cases}
        v & v \notin (l, h) \\ \text{any number in } [l, h] & v \in (l, h) \end{cases}

    Where l < h, a y in [l, h] says only that v is there: its log density is that of the interval,
    :math:`\log[\Phi\{(h - \mu)/\sigma\} - \Phi\{(l - \mu)/\sigma\}]`, whichever number it is. Any
    other y is v itself. For data that are intervals give them as limits, with equal ones where a
    value is known, and any number of the interval as y. Left and right censored data are intervals
    with an infinite end.

    Random draws have the middle of the interval for values in it, or its finite end.

    Parameters
    ----------
    mu : tensor_like of float
        Mean.
    sigma : tensor_like of float
        Standard deviation, positive.
    lower, upper : tensor_like of float
        Limits l <= h, infinities allowed; one for all values, or one each.

    Raises
    ------
    ValueError
        Constant limits with lower > upper, or that are NaN.

    References
    ----------
    .. [1] J. Tobin (1958), Estimation of relationships for limited dependent variables,
       doi:10.2307/1907382.

    Examples
    --------
    Three values: one in (0, 1), one above 2, and one that is known.

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> lower, upper = np.array([0.0, 2.0, 0.4]), np.array([1.0, np.inf, 0.4])
    >>> y = sg.IntervalNormal.dist(mu=0.0, sigma=1.0, lower=lower, upper=upper)
    >>> print(*(f"{log_p:.4f}" for log_p in pm.logp(y, [0.0, 2.0, 0.4]).eval()))
    -1.0748 -3.7832 -0.9989
    """

    rv_op = interval_normal

    @classmethod
    def dist(cls, mu: Any, sigma: Any, lower: Any, upper: Any, **kwargs: Any) -> TensorVariable:
        """Unnamed variable; see the class."""
        numbers = [x for x in (lower, upper) if not hasattr(x, "owner")]
        if any(np.isnan(np.asarray(x, dtype=float)).any() for x in numbers):
            raise ValueError("lower and upper must not be NaN: use infinities for no limit.")
        if len(numbers) == 2 and (np.asarray(lower) > np.asarray(upper)).any():
            count = int((np.asarray(lower) > np.asarray(upper)).sum())
            raise ValueError(f"lower must not exceed upper; it does for {count} value(s).")
        parameters = [pt.as_tensor_variable(x) for x in (mu, sigma, lower, upper)]
        return super().dist([pt.cast(x, "floatX") for x in parameters], **kwargs)

    def support_point(rv: Any, size: Any, mu: Any, sigma: Any, lower: Any, upper: Any) -> Any:
        """Mean."""
        mu, *_ = pt.broadcast_arrays(mu, sigma, lower, upper)
        return mu if rv_size_is_none(size) else pt.full(size, mu)

    def logp(value: Any, mu: Any, sigma: Any, lower: Any, upper: Any) -> Any:
        """Log density outside the interval, log probability of it inside."""
        inside = within(value, lower, upper)
        # What is not in the interval gets one that has a finite gradient.
        low = pt.switch(inside, _standardised(lower, mu, sigma), -1.0)
        high = pt.switch(inside, _standardised(upper, mu, sigma), 1.0)
        z = (value - mu) / sigma
        density = -0.5 * (pt.sqr(z) + _LOG_2PI) - pt.log(sigma)
        log_p = pt.switch(inside, pt_log_normal_mass(low, high), density)
        return check_parameters(
            log_p, sigma > 0, pt.le(lower, upper), msg="sigma > 0, lower <= upper"
        )


def within(value: Any, lower: Any, upper: Any) -> Any:
    """Whether a value stands for an interval, as a graph."""
    return pt.and_(pt.lt(lower, upper), pt.and_(pt.ge(value, lower), pt.le(value, upper)))


def _standardised(limit: Any, mu: Any, sigma: Any) -> Any:
    """A limit less mu over sigma; an infinite one as it is, out of reach of gradients."""
    endless = pt.isinf(limit)
    return pt.switch(endless, limit, (pt.switch(endless, mu, limit) - mu) / sigma)
