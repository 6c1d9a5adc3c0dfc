"""Bernoulli observations with a probit link."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_icdf_value
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_skewgp._model.ops.double_precision import as_real
from pymc_skewgp._model.ops.log_ndtr import pt_log_ndtr


class BernoulliProbitRV(RandomVariable):
    """Draws of y = 1 where eta + e > 0, with e standard normal."""

    name = "bernoulli_probit"
    signature = "()->()"
    dtype = "int64"
    _print_name = ("BernoulliProbit", "\\operatorname{BernoulliProbit}")

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, eta: NDArray[Any], size: tuple[int, ...] | None
    ) -> NDArray[np.int64]:
        """Draw; `size` None means the shape of `eta`."""
        noise = rng.standard_normal(np.shape(eta) if size is None else size)
        return np.asarray(noise > -eta, dtype=np.int64)


bernoulli_probit = BernoulliProbitRV()


class BernoulliProbit(pm.Discrete):
    r"""Bernoulli distribution with success probability :math:`\Phi(\eta)`.

    .. math:: p(y \mid \eta) = \Phi\{(2 y - 1)\, \eta\}, \qquad y \in \{0, 1\}

    The same model as ``pm.Bernoulli(p=pm.math.invprobit(eta))``, with a log density and a gradient
    that stay exact in both tails, where that one's probability rounds to 0 or 1.

    Parameters
    ----------
    eta : tensor_like of float
        Linear predictor, any shape; y = 1 where eta plus standard normal noise is positive.

    Raises
    ------
    ValueError
        A constant `eta` that holds NaN. A NaN that turns up while sampling has log density -inf.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbit
    >>> y = BernoulliProbit.dist(eta=[-40.0, 0.0, 2.0])
    >>> print(*(f"{log_p:.4f}" for log_p in pm.logp(y, [1, 1, 1]).eval()))
    -804.6084 -0.6931 -0.0230

    In a model, with observations:

    >>> with pm.Model():
    ...     f = pm.Normal("f", shape=3)
    ...     y = BernoulliProbit("y", eta=f, observed=[0, 1, 1])
    """

    rv_op = bernoulli_probit

    @classmethod
    def dist(cls, eta: Any, **kwargs: Any) -> TensorVariable:
        """Unnamed variable; see the class."""
        eta = as_real(eta)
        if isinstance(eta, TensorConstant) and np.isnan(eta.data).any():
            count = int(np.isnan(eta.data).sum())
            raise ValueError(f"eta holds {count} NaN value(s): remove or impute them first.")
        return super().dist([eta], **kwargs)

    def support_point(rv: Any, size: Any, eta: Any) -> Any:
        """More probable value."""
        if not rv_size_is_none(size):
            eta = pt.full(size, eta)
        return pt.switch(pt.lt(eta, 0.0), 0, 1)

    def logp(value: Any, eta: Any) -> Any:
        """Log probability, -inf for values other than 0 and 1 and where eta is NaN."""
        possible = pt.or_(pt.eq(value, 0), pt.eq(value, 1))
        inside = pt.and_(possible, pt.invert(pt.isnan(eta)))
        # NaN times zero is NaN in a gradient: what is outside never reaches the tails.
        signed = pt.switch(inside, pt.switch(pt.eq(value, 1), eta, -eta), 0.0)
        return pt.switch(inside, pt_log_ndtr(signed), -np.inf)

    def logcdf(value: Any, eta: Any) -> Any:
        """Log distribution function."""
        known = pt.invert(pt.isnan(eta))
        below = pt_log_ndtr(-pt.switch(known, eta, 0.0))
        inside = pt.switch(pt.lt(value, 1), below, 0.0)
        return pt.switch(pt.and_(known, pt.ge(value, 0)), inside, -np.inf)

    def icdf(value: Any, eta: Any) -> Any:
        """Quantile; NaN outside [0, 1]."""
        zero = pt.le(value, pt.exp(pt_log_ndtr(-eta)))
        return check_icdf_value(pt.switch(zero, 0, 1).astype("int64"), value)
