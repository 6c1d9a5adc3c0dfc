"""Binary labels of a unified skew-normal function, with the function integrated out."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.abstract import _logprob
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.log_prob_gradient import LogProbMethod
from pymc_skewgp._model.distributions.joint_draws import JointDrawsRV
from pymc_skewgp._model.distributions.sun_parameters import as_sun_parameters
from pymc_skewgp._model.distributions.unified_skew_normal import (
    UnifiedSkewNormal,
    UnifiedSkewNormalRV,
)
from pymc_skewgp._model.ops.log_evidence import LogEvidence, pt_log_evidence
from pymc_skewgp._model.ops.skew_normal import label_intervals
from pymc_skewgp._sun.parameters import SunParameters
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
        cross_cov: FloatArray,
        truncation: FloatArray,
        latent_cov: FloatArray,
        size: tuple[int, ...] | None,
    ) -> Any:
        """Draw f, then y given f."""
        f = UnifiedSkewNormalRV.rng_fn(rng, mu, scale, cross_cov, truncation, latent_cov, size)
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
    mu, scale, skewness, truncation, latent_cov, cross_cov : tensor_like
        Of f, as for `UnifiedSkewNormal`; batch dimensions are data sets apart.
    method : {"twisted", "ep"}, default "twisted"
    n_draws : int, default 256
        How the probabilities are computed, as for `pt_mvn_logcdf`.

    Raises
    ------
    TypeError
        As for `UnifiedSkewNormal`.
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
        skewness: Any = None,
        truncation: Any = None,
        latent_cov: Any = None,
        *,
        cross_cov: Any = None,
        method: LogProbMethod = "twisted",
        n_draws: int = 256,
        **kwargs: Any,
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        sun = as_sun_parameters(mu, scale, skewness, truncation, latent_cov, cross_cov)
        LogEvidence(method, n_draws)  # refuses what it does not know, before any sampling
        return super().dist(list(sun), method=method, n_draws=n_draws, **kwargs)

    def support_point(rv: Any, size: Any, *parameters: Any) -> Any:
        """Label more probable at the location, one by one."""
        likely = pt.gt(UnifiedSkewNormal.support_point(rv, size, *parameters), 0.0)
        return likely.astype("int64")


@_logprob.register(MarginalProbitRV)
def _marginal_probit_logp(op: MarginalProbitRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    [value] = values
    _, _, *parameters = inputs
    lower, upper, noise = label_intervals(value)
    log_p = pt_log_evidence(
        lower,
        upper,
        SunParameters(*parameters),
        noise=noise,
        method=op.method,
        n_draws=op.n_draws,
    )
    binary = pt.all(pt.or_(pt.eq(value, 1), pt.eq(value, 0)), axis=-1)
    return pt.switch(binary, log_p, -np.inf)
