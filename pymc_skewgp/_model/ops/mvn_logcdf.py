"""The log probability of a rectangle as a PyTensor Op, with its gradient among the outputs."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.log_prob_gradient import METHODS, LogProbMethod, log_prob_and_gradient
from pymc_skewgp._model.ops.value_with_derivatives import ValueWithDerivatives, with_batches
from pymc_skewgp._validation import FloatArray, as_count


class MvnLogProb(ValueWithDerivatives):
    r"""Log probability of a rectangle under N(0, cov), and its derivatives.

    Inputs lower (n,), upper (n,), cov (n, n); outputs value (), d/dlower (n,), d/dupper (n,),
    d/dcov (n, n): see `log_prob_and_gradient`. One evaluation gives all, because the draws behind
    the value are those behind the gradient; the derivatives themselves have none.

    Parameters
    ----------
    method : {"twisted", "ep"}
        How, for n >= 3; one and two dimensions are exact.
    n_draws : int, default 256
        Draws of "twisted".
    random_seed : int, default 0
        Fixes its points.

    Raises
    ------
    ValueError
        An unknown method, `n_draws` < 1, a negative seed.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.mvn_logcdf import MvnLogProb
    >>> value, *gradient = MvnLogProb()(np.zeros(3), np.full(3, np.inf), 0.5 + 0.5 * np.eye(3))
    >>> print(f"{value.eval():.2f}")  # log(1/4)
    -1.39
    """

    quantity = "normal probability"
    __props__ = ("method", "n_draws", "random_seed")
    input_names = ("lower", "upper", "cov")
    gufunc_signature = "(n),(n),(n,n)->(),(n),(n),(n,n)"

    def __init__(
        self, method: LogProbMethod = "twisted", n_draws: int = 256, random_seed: int = 0
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {METHODS}, got {method!r}.")
        self.method = method
        self.n_draws = as_count("n_draws", n_draws)
        # An integer and nothing else: a value that changes from call to call would mislead NUTS.
        self.random_seed = as_count("random_seed", random_seed, minimum=0)

    def evaluate(self, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        """`log_prob_and_gradient` as the arrays that an Op gives."""
        return evaluate(self.method, self.n_draws, self.random_seed, *inputs)


def evaluate(
    method: LogProbMethod,
    n_draws: int,
    random_seed: int,
    lower: FloatArray,
    upper: FloatArray,
    cov: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """`log_prob_and_gradient` as the arrays that an Op gives."""
    result = log_prob_and_gradient(
        lower, upper, cov, method=method, n_draws=n_draws, random_seed=random_seed
    )
    return (
        np.asarray(result.value),
        np.ascontiguousarray(result.lower),
        np.ascontiguousarray(result.upper),
        np.ascontiguousarray(result.cov),
    )


def pt_mvn_logcdf(
    x: Any,
    cov: Any,
    *,
    lower: Any = None,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
    random_seed: int = 0,
) -> TensorVariable:
    r"""Log probability that a multivariate normal lies in a rectangle, with gradient.

    .. math:: \log P(l < u \le x), \qquad u \sim N(0, \Sigma)

    The symbolic counterpart of `mvn_logcdf`, for models: differentiable in `x`, `lower` and `cov`,
    deterministic (its random points are fixed), and minus infinity, with gradient zero, where a
    limit is not a number, a lower limit is not below its upper one, or the covariance of the rows
    with limits is not positive definite (from three rows on: beyond what a jitter of round-off's
    size mends).

    Parameters
    ----------
    x : tensor_like, shape (..., n)
        Upper limits, infinities allowed; a scalar is repeated.
    cov : tensor_like, shape (..., n, n)
        Covariance, of which the symmetric part is read.
    lower : tensor_like, shape (..., n), optional
        Lower limits, or a scalar. Default: minus infinity.
    method : {"twisted", "ep"}
        For n >= 3 (one and two dimensions are exact). "twisted": sequential importance sampling,
        right up to a small Monte Carlo error, in value and gradient. "ep": expectation propagation,
        cheaper, smooth and with the exact gradient of its value, but biased by some hundredths
        of a nat, and more at large variances.
    n_draws : int, default 256
        Draws of "twisted".
    random_seed : int, default 0
        Which points they use.

    Returns
    -------
    tensor_variable, shape (...)
        The batch dimensions of the arguments, broadcast together.

    Raises
    ------
    ValueError
        Dimensions or static shapes that do not fit, an unknown method, `n_draws` < 1.

    References
    ----------
    .. [1] A. Genz (1992), Numerical computation of multivariate normal probabilities,
       doi:10.1080/10618600.1992.10477010.
    .. [2] R. L. Plackett (1954), A reduction formula for normal multivariate integrals,
       doi:10.1093/biomet/41.3-4.351.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.mvn_logcdf import pt_mvn_logcdf
    >>> rho = pt.dscalar("rho")
    >>> cov = (1 - rho) * pt.eye(2) + rho
    >>> log_prob = pt_mvn_logcdf([0.0, 0.0], cov)  # log{1/4 + asin(rho)/(2 pi)}
    >>> f = pytensor.function([rho], [log_prob, pytensor.grad(log_prob, rho)])
    >>> print(*(f"{float(value):.4f}" for value in f(0.5)))
    -1.0986 0.5513
    """
    op = MvnLogProb(method, n_draws, random_seed)
    cov = pt.as_tensor_variable(cov)
    if cov.type.ndim < 2:
        raise ValueError(f"cov must be (..., n, n), got {cov.type.ndim} dimension(s).")
    n = cov.shape[-1]
    upper = _vector(x, n)
    low = _vector(-np.inf if lower is None else lower, n)
    return with_batches(op, low, upper, cov)


def _vector(value: Any, n: TensorVariable) -> TensorVariable:
    variable = pt.cast(pt.as_tensor_variable(value), "float64")
    return variable if variable.type.ndim else pt.full((n,), variable)
