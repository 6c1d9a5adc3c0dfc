"""The log marginal likelihood of interval data as one PyTensor Op, gradient included."""

from typing import Any

import numpy as np
from pytensor.tensor.variable import TensorVariable
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._gaussian.linalg import JITTER_LADDER, symmetric
from pymc_skewgp._gaussian.log_prob_gradient import METHODS, LogProbMethod, log_prob_and_gradient
from pymc_skewgp._model.ops.backend_hook import import_for
from pymc_skewgp._model.ops.value_with_derivatives import ValueWithDerivatives, with_batches
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, as_count


class LogEvidence(ValueWithDerivatives):
    r"""Log probability that a unified skew-normal vector plus unit noise lies in a rectangle.

    .. math:: \log P(l < f + e < h), \qquad f \sim \mathrm{SUN}, \quad e \sim N(0, I)

    Inputs lower (n,), upper (n,), mu (n,), scale (n, n), cross_cov (n, s), truncation (s,),
    latent_cov (s, s); outputs the value and its derivatives in each: see `log_evidence`. The same
    could be written as a graph around `MvnLogProb`, with a Cholesky factorisation for the prior's
    validity; but numba takes a quarter of a minute to compile that and its gradient the first time.

    Parameters
    ----------
    method : {"twisted", "ep"}
    n_draws : int, default 256
        As for `MvnLogProb`.

    Raises
    ------
    ValueError
        An unknown method, `n_draws` < 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._model.ops.log_evidence import LogEvidence
    >>> nothing = np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0))
    >>> limits = np.array([0.0, -np.inf]), np.array([np.inf, 0.0])
    >>> value, *gradient = LogEvidence()(*limits, np.zeros(2), np.eye(2), *nothing)
    >>> print(f"{value.eval():.4f}")  # log 1/4
    -1.3863
    """

    quantity = "marginal likelihood"
    __props__ = ("method", "n_draws")
    input_names = ("lower", "upper", *SunParameters._fields)
    gufunc_signature = "(n),(n),(n),(n,n),(n,s),(s),(s,s)->(),(n),(n),(n),(n,n),(n,s),(s),(s,s)"

    def __init__(self, method: LogProbMethod = "twisted", n_draws: int = 256) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {METHODS}, got {method!r}.")
        self.method = method
        self.n_draws = as_count("n_draws", n_draws)

    def evaluate(self, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        """`log_evidence` with the options of this Op."""
        return log_evidence(self.method, self.n_draws, *inputs)


def log_evidence(
    method: LogProbMethod, n_draws: int, lower: FloatArray, upper: FloatArray, *sun: FloatArray
) -> tuple[FloatArray, ...]:
    r"""Log probability of a rectangle, and its derivatives in the arrays given.

    .. math:: \log P(x_0 > -\gamma, \; l - \mu < x_1 + e < h - \mu) - \log P(x_0 > -\gamma),
        \qquad \mathrm{cov}(x_0, x_1 + e) =
        \begin{pmatrix} \Gamma & C^\top \\ C & \Omega + I \end{pmatrix}

    Parameters
    ----------
    method, n_draws
        As for `log_prob_and_gradient`.
    lower, upper : ndarray, shape (n,)
        Limits, infinities allowed.
    *sun : ndarray
        The five of `SunParameters`.

    Returns
    -------
    tuple of ndarray
        Value and derivatives; minus infinity and zeros where a parameter is not a number or the
        prior's covariance not positive definite.
    """
    parameters = SunParameters(*sun)
    s = parameters.truncation.size
    nothing = tuple(np.zeros_like(x) for x in (lower, upper, *sun))
    finite = (x for x in parameters if x is not parameters.truncation)
    if not all(np.isfinite(x).all() for x in finite):
        return np.asarray(-np.inf), *nothing
    cov = _joint(parameters)
    if not _is_covariance(cov):
        return np.asarray(-np.inf), *nothing
    cov[np.arange(s, len(cov)), np.arange(s, len(cov))] += 1.0
    joint = log_prob_and_gradient(
        np.concatenate([-parameters.truncation, lower - parameters.mu]),
        np.concatenate([np.full(s, np.inf), upper - parameters.mu]),
        cov,
        method=method,
        n_draws=n_draws,
    )
    prior = log_prob_and_gradient(
        -parameters.truncation,
        np.inf,
        parameters.latent_cov,
        method=method,
        n_draws=n_draws,
    )
    if not np.isfinite(joint.value) or not np.isfinite(prior.value):
        return np.asarray(-np.inf), *nothing
    derivatives = (
        joint.lower[s:],
        joint.upper[s:],
        -(joint.lower[s:] + joint.upper[s:]),
        joint.cov[s:, s:],
        2.0 * joint.cov[s:, :s],
        prior.lower - joint.lower[:s],
        joint.cov[:s, :s] - prior.cov,
    )
    value = np.asarray(joint.value - prior.value)
    return value, *(np.ascontiguousarray(x) for x in derivatives)


def _joint(sun: SunParameters) -> FloatArray:
    """Covariance of the latent variable and of f, symmetric."""
    cov: FloatArray = np.block([[sun.latent_cov, sun.cross_cov.T], [sun.cross_cov, sun.scale]])
    return symmetric(cov)


def _is_covariance(matrix: FloatArray) -> bool:
    """Whether `matrix` is positive definite once jitter is added, as much as `linalg` would.

    The probability itself does not say: noise on the diagonal makes up for a prior that is none.
    """
    raised = matrix + np.diag(JITTER_LADDER[-1] * np.abs(matrix.diagonal()))
    _, info = dpotrf(raised, lower=1)
    return bool(info == 0)


import_for("numba", "pymc_skewgp._model.ops.log_evidence_numba")


def pt_log_evidence(
    lower: Any,
    upper: Any,
    sun: SunParameters,
    *,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
) -> TensorVariable:
    """Log probability that a unified skew-normal vector plus unit noise lies in a rectangle.

    Parameters
    ----------
    lower, upper : tensor_variable, shape (..., n)
        Limits, infinities allowed.
    sun : SunParameters
        Graphs of the parameters, each with batch dimensions or without.
    method : {"twisted", "ep"}
    n_draws : int, default 256
        As for `pt_mvn_logcdf`.

    Returns
    -------
    tensor_variable, shape (...)
        Minus infinity, with gradient 0, where a parameter is not a number or the prior's covariance
        is not positive definite.
    """
    return with_batches(LogEvidence(method, n_draws), lower, upper, *sun)
