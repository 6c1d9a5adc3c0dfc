"""From a rectangle to the whole space, each coordinate by the limits it has."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.transforms import Transform
from pytensor.tensor.variable import TensorVariable


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
