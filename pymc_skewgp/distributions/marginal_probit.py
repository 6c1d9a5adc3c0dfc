"""Binary labels of a unified skew-normal function, with the function integrated out."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _logprob
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp.distributions.joint_draws import JointDrawsRV
from pymc_skewgp.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp.kernels.validation import FloatArray
from pymc_skewgp.symbolic.mvn_logcdf import pt_mvn_logcdf
from pymc_skewgp.symbolic.skew_normal import SunGraph, probit_limits


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

    def __init__(self, method: str = "twisted", n_draws: int = 256, **kwargs: Any) -> None:
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
    *parameters: Any, method: str = "twisted", n_draws: int = 256, **kwargs: Any
) -> TensorVariable:
    return MarginalProbitRV(method, n_draws)(*parameters, **kwargs)


class MarginalProbit(pm.Discrete):
    r"""Binary labels of a unified skew-normal function, with the function integrated out.

    .. math:: p(y) = \int \prod_i \Phi(w_i f_i)\, \mathrm{SUN}(f)\, df
        = \frac{\Phi_{s+n}(\tilde\gamma; \tilde\Gamma)}{\Phi_s(\gamma; \Gamma)}, \qquad w = 2y - 1

    One density for all labels together: they are dependent once f is gone.

    Parameters
    ----------
    mu, scale, skewness, truncation, latent_cov : tensor_like
        Of f, as for `UnifiedSkewNormal`; no batch dimensions.
    method : {"twisted", "ep"}, default "twisted"
    n_draws : int, default 256
        How the probabilities are computed, as for `pt_mvn_logcdf`.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp.distributions.marginal_probit import MarginalProbit
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
        method: str = "twisted",
        n_draws: int = 256,
        **kwargs: Any,
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        parameters = [
            pt.as_tensor_variable(value) for value in (mu, scale, skewness, truncation, latent_cov)
        ]
        return super().dist(parameters, method=method, n_draws=n_draws, **kwargs)

    def support_point(rv, size, mu, *parameters):  # type: ignore[no-untyped-def]  # noqa: D102
        likely = pt.gt(mu, 0).astype("int64")
        if not rv_size_is_none(size):
            likely = pt.full(pt.concatenate([size, [mu.shape[-1]]]), likely)
        return likely


@_logprob.register(MarginalProbitRV)
def _marginal_probit_logp(op: MarginalProbitRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    [value] = values
    _, _, mu, scale, skewness, truncation, latent_cov = inputs
    cross_cov = pt.sqrt(pt.diagonal(scale))[:, None] * skewness
    n_latent = truncation.type.shape[0]
    sun = SunGraph(
        mu, scale, cross_cov, truncation, latent_cov, -1 if n_latent is None else n_latent
    )
    limits, cov = probit_limits(sun, (2 * value - 1).astype(mu.dtype))
    options: dict[str, Any] = {"method": op.method, "n_draws": op.n_draws}
    log_prob = pt_mvn_logcdf(limits, cov, **options)
    if sun.n_latent != 0:
        log_prob = log_prob - pt_mvn_logcdf(truncation, latent_cov, **options)
    binary = pt.all(pt.or_(pt.eq(value, 0), pt.eq(value, 1)))
    return pt.switch(pt.and_(binary, pt.invert(pt.isnan(log_prob))), log_prob, -np.inf)
