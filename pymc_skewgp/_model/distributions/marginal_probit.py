"""Binary labels of a unified skew-normal function, with the function integrated out."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.abstract import _logprob
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.linalg import JITTER_LADDER
from pymc_skewgp._gaussian.log_prob_gradient import LogProbMethod
from pymc_skewgp._model.distributions.joint_draws import JointDrawsRV
from pymc_skewgp._model.distributions.unified_skew_normal import (
    UnifiedSkewNormal,
    UnifiedSkewNormalRV,
    as_sun_parameters,
)
from pymc_skewgp._model.ops.mvn_logcdf import MvnLogProb, pt_mvn_logcdf
from pymc_skewgp._model.ops.skew_normal import SunGraph, probit_limits, sun_of_process
from pymc_skewgp._validation import FloatArray


class MarginalProbitRV(JointDrawsRV):
    """Labels y = 1{f + e > 0} of a unified skew-normal f and standard normal noise e.

    Parameters
    ----------
    method : {"twisted", "ep"}
    n_draws : int
        How the log density is computed; see `pt_mvn_logcdf`.
    """

    name = "marginal_probit"
    signature = "(p),(p,p),(p,s),(s),(s,s)->(p)"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "method", "n_draws")
    _print_name = ("MarginalProbit", "\\operatorname{MarginalProbit}")

    def __init__(
        self, method: LogProbMethod = "twisted", n_draws: int = 256, **kwargs: Any
    ) -> None:
        self.method = method
        self.n_draws = n_draws
        super().__init__(**kwargs)

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: FloatArray,
        scale: FloatArray,
        skewness: FloatArray,
        truncation: FloatArray,
        latent_cov: FloatArray,
        size: tuple[int, ...] | None,
    ) -> Any:
        """Draw f, then y given f."""
        f = UnifiedSkewNormalRV.rng_fn(rng, mu, scale, skewness, truncation, latent_cov, size)
        return (f + rng.standard_normal(f.shape) > 0).astype(np.int64)


def _make(
    *parameters: Any,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
    rng: Any = None,
    **kwargs: Any,
) -> TensorVariable:
    rng = pt.random.shared_rng(seed=None) if rng is None else rng
    op = MarginalProbitRV(method, n_draws)
    return op(*parameters, rng=rng, return_next_rng=True, **kwargs)[1]


class MarginalProbit(pm.Discrete):
    r"""Binary labels of a unified skew-normal function, with the function integrated out.

    .. math:: p(y) = \int \prod_i \Phi(w_i f_i)\, \mathrm{SUN}(f)\, df
        = \frac{\Phi_{s+n}(\tilde\gamma; \tilde\Gamma)}{\Phi_s(\gamma; \Gamma)}, \qquad w = 2y - 1

    One density for all labels together: they are dependent once f is gone.

    Parameters
    ----------
    mu, scale, skewness, truncation, latent_cov : tensor_like
        Of f, as for `UnifiedSkewNormal`; batch dimensions are data sets apart.
    method : {"twisted", "ep"}, default "twisted"
    n_draws : int, default 256
        How the probabilities are computed, as for `pt_mvn_logcdf`.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        Constants that are invalid, as for `UnifiedSkewNormal`; an unknown method, `n_draws` < 1.
        Parameters that turn out invalid while sampling, and labels other than 0 and 1, have log
        density -inf.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp._model.distributions.marginal_probit import MarginalProbit
    >>> none = np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0))
    >>> y = MarginalProbit.dist(np.zeros(2), np.eye(2), *none)
    >>> print(f"{pm.logp(y, [0, 1]).eval():.4f}")  # log 1/4
    -1.3863
    """

    rv_type = MarginalProbitRV
    rv_op = _make

    @classmethod
    def dist(
        cls,
        mu: Any,
        scale: Any,
        skewness: Any,
        truncation: Any,
        latent_cov: Any,
        *,
        method: LogProbMethod = "twisted",
        n_draws: int = 256,
        **kwargs: Any,
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        parameters = as_sun_parameters(mu, scale, skewness, truncation, latent_cov)
        MvnLogProb(method, n_draws)  # refuses what it does not know, before any sampling
        return super().dist(parameters, method=method, n_draws=n_draws, **kwargs)

    def support_point(rv: Any, size: Any, *parameters: Any) -> Any:
        """Label more probable at the location, one by one."""
        likely = pt.gt(UnifiedSkewNormal.support_point(rv, size, *parameters), 0.0)
        return likely.astype("int64")


@_logprob.register(MarginalProbitRV)
def _marginal_probit_logp(op: MarginalProbitRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    [value] = values
    _, _, mu, scale, skewness, truncation, latent_cov = inputs
    lengths = [parameter.type.shape[-1] for parameter in (skewness, truncation, latent_cov)]
    if 0 in lengths:
        lower, upper, cov, prior_cov = _limits_of_normal(value, mu, scale)
    else:
        lower, upper, cov, prior_cov = _limits(value, mu, scale, skewness, truncation, latent_cov)
    options: dict[str, Any] = {"method": op.method, "n_draws": op.n_draws}
    log_prob = pt_mvn_logcdf(upper, cov, lower=lower, **options)
    if 0 not in lengths:
        log_prob = log_prob - pt_mvn_logcdf(truncation, latent_cov, **options)
    binary = pt.all(pt.or_(pt.eq(value, 0), pt.eq(value, 1)), axis=-1)
    possible = pt.and_(binary, pt.and_(_is_covariance(prior_cov), pt.invert(pt.isnan(log_prob))))
    return pt.switch(possible, log_prob, -np.inf)


def _rectangle(value: Any, sun: SunGraph) -> tuple[Any, Any, Any, Any]:
    """Limits and covariance of the labels, and the covariance of the prior that they rest on."""
    lower, upper, cov = probit_limits(sun, value)
    if sun.n_latent == 0:
        return lower, upper, cov, sun.scale
    top = pt.concatenate([sun.latent_cov, sun.cross_cov.T], axis=1)
    bottom = pt.concatenate([sun.cross_cov, sun.scale], axis=1)
    return lower, upper, cov, pt.concatenate([top, bottom], axis=0)


def _core(value: Any, mu: Any, scale: Any, skewness: Any, truncation: Any, latent: Any) -> Any:
    # A variance that is none is found below; here its root is not to spoil the gradient.
    variance = pt.diagonal(scale)
    sd = pt.sqrt(pt.switch(pt.gt(variance, 0.0), variance, 1.0))
    return _rectangle(value, SunGraph(mu, scale, sd[:, None] * skewness, truncation, latent, -1))


def _core_of_normal(value: Any, mu: Any, scale: Any) -> Any:
    return _rectangle(value, sun_of_process(mu, scale, None, None, 0))


_limits = pt.vectorize(_core, signature="(p),(p),(p,p),(p,s),(s),(s,s)->(n),(n),(n,n),(m,m)")
_limits_of_normal = pt.vectorize(_core_of_normal, signature="(p),(p),(p,p)->(p),(p),(p,p),(p,p)")


def _is_covariance(matrix: Any) -> Any:
    """Whether `matrix` is positive definite once jitter is added, as much as `linalg` would.

    The probability itself does not tell: noise on the diagonal makes up for a prior that is none.
    """
    matrix = disconnected_grad(matrix)  # zeros sent back through the factor would come out as NaN
    diagonal = pt.diagonal(matrix, axis1=-2, axis2=-1)
    jitter = JITTER_LADDER[-1] * pt.abs(diagonal)[..., None]
    chol = pt.linalg.cholesky(matrix + jitter * pt.eye(matrix.shape[-1]))
    return pt.invert(pt.isnan(pt.diagonal(chol, axis1=-2, axis2=-1)).any(axis=-1))
