"""The distribution function of PyMC's own multivariate normal, which PyMC lacks.

Importing this module makes ``pm.logcdf(pm.MvNormal.dist(mu, cov), x)`` work.
"""

from collections.abc import Callable
from typing import Any

from pymc.distributions.multivariate import MvNormalRV
from pymc.distributions.shape_utils import maybe_resize
from pymc.logprob.abstract import _logcdf, _logprob
from pymc.logprob.binary import MeasurableComparison
from pymc.logprob.censoring import MeasurableClip, MeasurableRound
from pymc.logprob.transforms import MeasurableTransform
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.ops.double_precision import as_real
from pymc_skewgp._model.ops.mvn_logcdf import pt_mvn_logcdf

# What PyMC derives element by element from a variable's logcdf. It asks none of them whether the
# variable is univariate, because until now no multivariate one had a logcdf: they would mix up the
# joint distribution function with those of the elements, and answer wrongly.
_ELEMENTWISE = (
    (_logprob, MeasurableClip),
    (_logprob, MeasurableComparison),
    (_logprob, MeasurableRound),
    (_logcdf, MeasurableClip),
    (_logcdf, MeasurableTransform),
)


@_logcdf.register(MvNormalRV)
def mvnormal_logcdf(
    op: MvNormalRV, value: Any, rng: Any, size: Any, mu: Any, cov: Any, **kwargs: Any
) -> TensorVariable:
    r"""Log distribution function of ``pm.MvNormal``, for ``pm.logcdf``.

    .. math:: \log P(z \le x), \qquad z \sim N(\mu, \Sigma)

    See `pt_mvn_logcdf`, whose defaults it takes.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp._model.distributions.mvnormal
    >>> cov = 0.5 * np.eye(4) + 0.5
    >>> log_cdf = pm.logcdf(pm.MvNormal.dist(np.ones(4), cov), np.ones(4)).eval()
    >>> print(f"{log_cdf:.2f}, exact {-np.log(5):.2f}")
    -1.61, exact -1.61
    """
    return maybe_resize(pt_mvn_logcdf(as_real(value) - as_real(mu), cov), size)


def _refuse_vectors(dispatcher: Any, measurable: type) -> None:
    """Let `measurable` go on as it was for multivariate variables: not implemented."""
    original: Callable[..., Any] = dispatcher.dispatch(measurable)

    @dispatcher.register(measurable)
    def guarded(op: Any, values: Any, *inputs: Any, **kwargs: Any) -> Any:
        for x in inputs:
            if x.owner is not None and (getattr(x.owner.op, "ndim_supp", None) or 0) > 0:
                raise NotImplementedError(
                    f"{op} of a multivariate variable has no distribution function here: write it "
                    "as probabilities of rectangles with pymc_skewgp.pt_mvn_logcdf."
                )
        return original(op, values, *inputs, **kwargs)


for _dispatcher, _measurable in _ELEMENTWISE:
    _refuse_vectors(_dispatcher, _measurable)
