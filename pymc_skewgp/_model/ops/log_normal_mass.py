"""Log probability of an interval under the standard normal, as a PyTensor expression."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.ops.double_precision import as_real
from pymc_skewgp._model.ops.log_ndtr import pt_log_ndtr

# Beyond it, infinite limits included, nothing is left of a normal, whose log is -5e15 there.
_FAR = np.float64(1e8)


def pt_log_normal_mass(lower: Any, upper: Any) -> TensorVariable:
    r"""Log probability that a standard normal is in an interval.

    .. math:: \log\{\Phi(b) - \Phi(a)\} = \log\Phi(b) + \log[1 - \exp\{\log\Phi(a) - \log\Phi(b)\}]

    on the side of 0 where the interval, or more of it, is to the left. The relative error is
    about 1e-16 (1 + a^2) / (b - a) for narrow intervals, and round-off else.

    Parameters
    ----------
    lower, upper : tensor_like
        a < b, any shapes that broadcast; infinities allowed.

    Returns
    -------
    tensor_variable
        Minus infinity where the limits are equal, with a gradient that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._model.ops.log_normal_mass import pt_log_normal_mass
    >>> log_p = pt_log_normal_mass([-np.inf, 0.0, 40.0], [0.0, np.inf, 41.0]).eval()
    >>> print(*(f"{value:.4f}" for value in log_p))
    -0.6931 -0.6931 -804.6084
    """
    lower, upper = (pt.clip(as_real(x), -_FAR, _FAR) for x in (lower, upper))
    right = pt.gt(lower + upper, 0.0)
    a, b = pt.switch(right, -upper, lower), pt.switch(right, -lower, upper)
    log_below = pt_log_ndtr(b)
    return log_below + pt.log1mexp(pt_log_ndtr(a) - log_below)
