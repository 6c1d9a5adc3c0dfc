"""Log of the standard normal distribution function as a PyTensor expression."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

_ROOT_HALF = float(np.sqrt(0.5))
# Left of it the scaled complementary error function carries the tail; right of it nothing cancels.
_SWITCH = -1.0


def pt_log_ndtr(z: TensorVariable) -> TensorVariable:
    r"""Log distribution function of the standard normal, stable in both tails.

    .. math:: \log \Phi(z) = \log\{\tfrac12 \mathrm{erfcx}(-z/\sqrt2)\} - z^2/2
        = \mathrm{log1p}\{-\tfrac12 \mathrm{erfc}(z/\sqrt2)\}

    The first form serves z < -1, the second the rest. Each sees only arguments of its own side:
    out of its range erfcx overflows, and the gradient of a switch multiplies that by zero.

    Parameters
    ----------
    z : tensor_variable
        Any shape; infinities allowed.

    Returns
    -------
    tensor_variable
        Same shape.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.log_ndtr import pt_log_ndtr
    >>> log_p = pt_log_ndtr(pt.constant([-40.0, 0.0, 2.0])).eval()
    >>> print(*(f"{value:.4f}" for value in log_p))
    -804.6084 -0.6931 -0.0230
    """
    left, right = pt.minimum(z, _SWITCH), pt.maximum(z, _SWITCH)
    tail = pt.log(0.5 * pt.erfcx(-_ROOT_HALF * left)) - 0.5 * pt.sqr(left)
    body = pt.log1p(-0.5 * pt.erfc(_ROOT_HALF * right))
    return pt.switch(pt.lt(z, _SWITCH), tail, body)
