"""Choices: which of several alternatives has the greatest value, seen with noise."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.ops.double_precision import as_real
from pymc_skewgp._model.ops.log_greatest import pt_log_greatest


class ChoiceProbitRV(RandomVariable):
    """Index of the greatest of several values, after independent normal noise was added."""

    name = "choice_probit"
    signature = "(k),()->()"
    dtype = "int64"
    _print_name = ("ChoiceProbit", "\\operatorname{ChoiceProbit}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        eta: NDArray[Any],
        sigma: NDArray[Any],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.int64]:
        """Draw; `size` None means the batch shape of the parameters."""
        if size is None:
            size = np.broadcast_shapes(eta.shape[:-1], np.shape(sigma))
        noise = rng.standard_normal((*size, eta.shape[-1]))
        return np.asarray(np.argmax(eta + np.asarray(sigma)[..., None] * noise, axis=-1))


choice_probit = ChoiceProbitRV()


class ChoiceProbit(pm.Discrete):
    r"""Choice among k alternatives: the one of greatest value, seen with noise.

    With independent noise :math:`e_j \sim N(0, \sigma^2)` on the value of each alternative, fresh
    in each choice, y is the index of the greatest of :math:`\eta_j + e_j`:

    .. math:: P(y = c) = \int \phi(z) \prod_{j \ne c}
        \Phi\Bigl(\frac{\eta_c - \eta_j}{\sigma} + z\Bigr)\, dz

    The log density computes the integral by the trapezoid rule, with relative error below 1e-10.

    Parameters
    ----------
    eta : tensor_like of float, shape (..., k)
        Values of the alternatives, for each choice; ``f[sets]``, say, where `sets` has the indices
        of the items among which each choice was made.
    sigma : tensor_like of float, default 1
        Standard deviation of the noise, positive; one for all choices, or one each.

    Raises
    ------
    ValueError
        `eta` without a dimension of alternatives, or with fewer than two of them.

    See Also
    --------
    MultinomialProbit : The same for classes, with noise of variance 1.
    PreferenceProbit : Two alternatives, where ties may be.

    References
    ----------
    .. [1] J. A. Hausman & D. A. Wise (1978), A conditional probit model for qualitative choice,
       doi:10.2307/1913909.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> y = sg.ChoiceProbit.dist(eta=[1.0, 0.0, 0.0])
    >>> print(*(f"{p:.4f}" for p in pm.logp(y, np.arange(3)).exp().eval()))
    0.6337 0.1831 0.1831
    """

    rv_op = choice_probit

    @classmethod
    def dist(cls, eta: Any, sigma: Any = 1.0, **kwargs: Any) -> TensorVariable:
        """Unnamed variable; see the class."""
        return super().dist([check_alternatives(eta), as_real(sigma)], **kwargs)

    def support_point(rv: Any, size: Any, eta: Any, sigma: Any) -> Any:
        """Alternative of the greatest value."""
        best, _ = pt.broadcast_arrays(pt.argmax(eta, axis=-1), sigma)
        return best if rv_size_is_none(size) else pt.full(size, best)

    def logp(value: Any, eta: Any, sigma: Any) -> Any:
        """Log probability, -inf for values other than 0 to k - 1."""
        value = pt.as_tensor_variable(value)
        inside = pt.and_(pt.ge(value, 0), pt.lt(value, eta.shape[-1]))
        chosen = pt.switch(inside, value, 0)
        log_p = pt_log_greatest(eta / pt.shape_padright(sigma), chosen)
        return check_parameters(pt.switch(inside, log_p, -np.inf), sigma > 0, msg="sigma > 0")


def check_alternatives(eta: Any) -> TensorVariable:
    """`eta` as a graph whose last dimension can hold alternatives."""
    eta = as_real(eta)
    if not eta.type.ndim or eta.type.shape[-1] in (0, 1):
        raise ValueError(
            f"eta must have two alternatives or more in its last dimension, got {eta.type}."
        )
    return eta
