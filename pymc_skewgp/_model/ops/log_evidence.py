"""The log marginal likelihood, of rows and of factors, as PyTensor Ops, gradient included."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._gaussian.linalg import JITTER_LADDER, symmetric
from pymc_skewgp._gaussian.log_prob_gradient import LogProbMethod, log_prob_and_gradient
from pymc_skewgp._model.ops.densities import ValueWithDerivatives, checked_method, with_batches
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.observations import add_noise
from pymc_skewgp._observations.sites import SiteFamily, SitesGiven, joined_sites
from pymc_skewgp._posterior import evidence_gradient as evidence
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, as_count

# Of EP, begun anew each time, so that the value is a function of the parameters alone.
_TOLERANCE = 1e-6
_ROWS = ("lower", "upper", "value", "noise", *SunParameters._fields)


@dataclass(frozen=True, eq=False)
class SiteKinds:
    """Sites of several kinds of data, one after the other, but for their parameters.

    Attributes
    ----------
    parts : tuple
        Of each kind the family, the data, and dimensions of the parameters.
    """

    parts: tuple[tuple[SiteFamily, Data, list[int]], ...]

    @property
    def ndims(self) -> list[int]:
        """Dimensions of all parameters."""
        return [ndim for _, _, ndims in self.parts for ndim in ndims]

    def at(self, parameters: Sequence[FloatArray]) -> SitesGiven:
        """Sites with these parameters; ValueError where they are impossible."""
        rest = iter(parameters)
        return joined_sites(
            [family(y, [next(rest) for _ in ndims]) for family, y, ndims in self.parts]
        )


class LogEvidence(ValueWithDerivatives):
    r"""Log density of what is known of a unified skew-normal vector with noise: points, intervals.

    .. math:: \log p(v_P = y) + \log P(l < v_I < h \mid v_P = y), \qquad v = f + e, \quad
        f \sim \mathrm{SUN}, \quad e \sim N(0, S)

    Inputs lower (n,), upper (n,), value (n,), which is NaN at intervals, noise (n,) or (n, n), mu
    (n,), scale (n, n), cross_cov (n, s), truncation (s,), latent_cov (s, s), where rows repeat
    counts (n,), and parameters of sites, whose predictors the last rows are; outputs the value and
    its derivatives in each: see `log_evidence`. The same could be written as a graph around
    `MvnLogProb`, with a Cholesky factorisation for the prior's validity; but numba takes a quarter
    of a minute to compile that and its gradient the first time.

    Parameters
    ----------
    method : {"twisted", "ep"}
    n_draws : int, default 256
        As for `MvnLogProb`.
    shared_noise : bool, default False
        Whether the noise is a covariance, (n, n), in place of variances.
    repeats : bool, default False
        Whether each interval stands for `counts` rows, each with noise of its own.
    kinds : SiteKinds, optional
        Of the sites. "twisted" is then by mirrored pairs at fixed points; see `site_evidence`.

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
    >>> rows = *limits, np.full(2, np.nan), np.ones(2)
    >>> value, *gradient = LogEvidence()(*rows, np.zeros(2), np.eye(2), *nothing)
    >>> print(f"{value.eval():.4f}")  # log 1/4
    -1.3863
    """

    quantity = "marginal likelihood"
    __props__ = ("method", "n_draws", "shared_noise", "repeats", "kinds")

    def __init__(
        self,
        method: LogProbMethod = "twisted",
        n_draws: int = 256,
        shared_noise: bool = False,
        repeats: bool = False,
        kinds: SiteKinds | None = None,
    ) -> None:
        self.method, self.n_draws = checked_method(method), as_count("n_draws", n_draws)
        self.shared_noise, self.repeats, self.kinds = shared_noise, repeats, kinds

    @property
    def _ndims(self) -> list[int]:
        """Dimensions of the parameters of sites."""
        return [] if self.kinds is None else self.kinds.ndims

    @property
    def input_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the inputs, for messages."""
        counts = ("counts",) if self.repeats else ()
        return (*_ROWS, *counts, *(f"parameter {i}" for i in range(len(self._ndims))))

    @property
    def gufunc_signature(self) -> str:  # type: ignore[override]
        """Core dimensions."""
        noise = "(n,n)" if self.shared_noise else "(n)"
        inputs = f"(n),(n),(n),{noise},(n),(n,n),(n,s),(s),(s,s)" + (",(n)" if self.repeats else "")
        for i, ndim in enumerate(self._ndims):
            inputs += ",(" + ",".join(f"k{i}{j}" for j in range(ndim)) + ")"
        return f"{inputs}->(),{inputs}"

    def evaluate(self, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        """Value and derivatives; minus infinity and zeros where parameters are impossible."""
        if self.kinds is None:
            return log_evidence(self.method, self.n_draws, *inputs)
        n_rows = len(_ROWS) + self.repeats
        found: tuple[FloatArray, ...] = ()
        with suppress(np.linalg.LinAlgError, ArithmeticError, ValueError):
            sites = self.kinds.at(inputs[n_rows:])
            found = log_evidence(self.method, self.n_draws, *inputs[:n_rows], sites=sites)
        if len(found) <= len(inputs) or not all(np.isfinite(x).all() for x in found[n_rows + 1 :]):
            return np.asarray(-np.inf), *(np.zeros_like(x) for x in inputs)
        return found


def log_evidence(
    method: LogProbMethod,
    n_draws: int,
    *inputs: FloatArray,
    compiled: bool = False,
    sites: SitesGiven | None = None,
) -> tuple[FloatArray, ...]:
    r"""Log density of points and intervals, and its derivatives in the arrays given.

    With :math:`x_0` the latent variable of the SUN and :math:`x_1 + e` the rows,

    .. math:: \log p(x_0 > -\gamma, \; x_1 + e \text{ as known, less } \mu)
        - \log P(x_0 > -\gamma), \qquad \mathrm{cov}(x_0, x_1 + e) =
        \begin{pmatrix} \Gamma & C^\top \\ C & \Omega + S \end{pmatrix}

    Parameters
    ----------
    method, n_draws
        As for `log_prob_and_gradient`.
    *inputs : ndarray
        Limits lower and upper, infinities allowed, shape (n,); value, NaN at intervals, shape (n,);
        noise, shape (n,) or (n, n); the five of `SunParameters`; and, where rows repeat, counts,
        shape (n,).
    compiled : bool, default False
        As for `log_prob_and_gradient`.
    sites : SitesGiven, optional
        Of the last rows' predictors.

    Returns
    -------
    tuple of ndarray
        Value and derivatives, in the parameters of sites as well; minus infinity and zeros of the
        inputs where a parameter is not a number or the prior's covariance not positive definite.
    """
    options: dict[str, Any] = {"method": method, "n_draws": n_draws, "compiled": compiled}
    lower, upper, value, noise, *sun = inputs
    parameters, repeats = SunParameters(*sun[:5]), sun[5:]
    counts = repeats[0] if repeats else np.ones(lower.size)
    mu, s = parameters.mu, parameters.truncation.size
    nothing = (np.asarray(-np.inf), *(np.zeros_like(x) for x in inputs))
    finite = (x for x in parameters if x is not parameters.truncation)
    if not all(np.isfinite(x).all() for x in (noise, *finite)):
        return nothing
    # Of rows that repeat it is their own, all of it, and of those that share theirs nothing.
    own_noise = noise if noise.ndim == 1 else np.where(counts > 1, noise.diagonal(), 0.0)
    cross = parameters.cross_cov
    cov = symmetric(np.block([[parameters.latent_cov, cross.T], [cross, parameters.scale]]))
    if not _is_covariance(cov):
        return nothing
    add_noise(cov[s:, s:], noise)
    terms = evidence.EvidenceTerms(
        np.concatenate([-parameters.truncation, lower - mu]),
        np.concatenate([np.full(s, np.inf), upper - mu]),
        np.concatenate([np.full(s, np.nan), value - mu]),
        cov,
        np.concatenate([np.zeros(s), own_noise]),
        -parameters.truncation,
        np.full(s, np.inf),
        parameters.latent_cov,
        counts=np.concatenate([np.ones(s), counts]),
    )

    joint = partial(evidence.joint_log_prob, sites=sites, tol=_TOLERANCE, **options)
    signs = log_prob_and_gradient(terms.prior_lower, np.inf, terms.prior_cov, **options)
    found, wrt, _, in_parameters = evidence.evidence_of(terms, joint, signs)
    if not np.isfinite(found):
        return nothing
    of_rows, of_noise = wrt.cov[s:, s:], wrt.noise[s:]
    derivatives = (
        wrt.lower[s:],
        wrt.upper[s:],
        wrt.value[s:],
        of_rows.diagonal() + of_noise if noise.ndim == 1 else of_rows + np.diag(of_noise),
        -(wrt.lower[s:] + wrt.upper[s:] + wrt.value[s:]),
        of_rows,
        2.0 * wrt.cov[s:, :s],
        -(wrt.lower[:s] + wrt.prior_lower),
        wrt.cov[:s, :s] + wrt.prior_cov,
        *map(np.zeros_like, repeats),
        *in_parameters,
    )
    return np.asarray(found), *(np.asarray(x, np.float64, order="C") for x in derivatives)


def _is_covariance(matrix: FloatArray) -> bool:
    """Whether `matrix` is positive definite once jitter is added, as much as `linalg` would.

    The probability itself does not say: noise on the diagonal makes up for a prior that is none.
    """
    raised = matrix + np.diag(JITTER_LADDER[-1] * np.abs(matrix.diagonal()))
    _, info = dpotrf(raised, lower=1)
    return bool(info == 0)


def pt_log_evidence(
    limits: tuple[Any, Any],
    sun: SunParameters,
    *,
    noise: Any,
    value: Any = None,
    counts: Any = None,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
    sites: tuple[SiteKinds, Sequence[Any]] | None = None,
) -> TensorVariable:
    """Log density of what is known of a unified skew-normal vector with noise.

    Parameters
    ----------
    limits : tuple of tensor_variable, shape (..., n) each
        Lower and upper ones, infinities allowed.
    sun : SunParameters
        Graphs of the parameters, each with batch dimensions or without.
    value : tensor_variable, shape (..., n), optional
        What the rows are that are points; NaN at intervals. Default: all are intervals.
    noise : tensor_variable, shape (n,) or (n, n)
        Variances, or the covariance.
    counts : tensor_variable, shape (n,), optional
        How many rows each interval stands for, each with noise of its own. Default 1.
    method : {"twisted", "ep"}
    n_draws : int, default 256
        As for `pt_mvn_logcdf`; pairs, where there are sites.
    sites : tuple of SiteKinds and sequence of tensor_variable, optional
        Sites, whose predictors the last rows are, and their parameters, one kind after the other.

    Returns
    -------
    tensor_variable, shape (...)
        Minus infinity, with gradient 0, where a parameter is not a number or the prior's covariance
        is not positive definite.

    Raises
    ------
    NotImplementedError
        For parameters with batch dimensions where there are sites.
    """
    lower, upper = limits
    kinds, parameters = sites or (None, ())
    if kinds is not None and sun.mu.type.ndim != 1:
        raise NotImplementedError("the evidence of sites is for one set of parameters at a time.")
    if value is None:
        value = pt.full_like(lower, np.float64(np.nan), dtype="float64")
    shared = noise.type.ndim == 2 and lower.type.ndim == 1
    repeats = [] if counts is None else [counts]
    op = LogEvidence(
        shared_noise=shared, repeats=bool(repeats), kinds=kinds, method=method, n_draws=n_draws
    )
    return with_batches(op, lower, upper, value, noise, *sun, *repeats, *parameters)
