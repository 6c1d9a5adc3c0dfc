"""Coordinates of Cholesky factors of covariance matrices in which posteriors have no funnel.

PyMC's are the factor's own entries, with the logarithm of its diagonal. Where a standard deviation
may be near zero, all entries of its row are, and their range is as narrow as the deviation is
small. Here a row is its standard deviation and its correlations, which are independent of it in
the prior (Lewandowski, Kurowicka & Joe 2009, doi:10.1016/j.jmva.2009.04.008).
"""

from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import CholeskyCovPacked
from pymc.logprob.transforms import Transform

from pymc_skewgp._model.ops.plain_mode import PLAIN


class CovarianceCoordinates(Transform):
    r"""Of each row the canonical partial correlations' :math:`y`, and the log deviation.

    With :math:`t_0` the deviation, :math:`L_{ij} = t_j \tanh y_j` and
    :math:`t_{j+1} = t_j / \cosh y_j`; :math:`L_{ii} = t_i`.

    Parameters
    ----------
    n : int
        Rows of the factor.
    """

    name = CholeskyCovPacked.name  # so that values have the names that PyMC gives
    ndim_supp = 1

    def __init__(self, n: int) -> None:
        self._rows = [slice(i * (i + 1) // 2, (i + 1) * (i + 2) // 2) for i in range(n)]

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Coordinates of the packed factor."""
        found = []
        for own in self._rows:
            row = value[..., own]
            t = pt.sqrt(pt.cumsum(row[..., ::-1] ** 2, axis=-1)[..., ::-1])
            found += [pt.arcsinh(row[..., :-1] / t[..., 1:]), pt.log(t[..., :1])]
        return pt.concatenate(found, axis=-1)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """The packed factor."""
        found = []
        for own in self._rows:
            t = pt.exp(_log_t(value[..., own]))
            found += [t[..., :-1] * pt.tanh(value[..., own][..., :-1]), t[..., -1:]]
        return pt.concatenate(found, axis=-1)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log determinant of the derivative of `backward`."""
        return sum(_log_t(value[..., own]).sum(axis=-1) for own in self._rows)


def _log_t(row: Any) -> Any:
    """Log of what the correlations so far leave of the deviation, from all of it on."""
    y, log_sd = row[..., :-1], row[..., -1:]
    log_cosh = y + pt.softplus(-2.0 * y) - pt.log(2.0)
    return pt.concatenate([log_sd, log_sd - pt.cumsum(log_cosh, axis=-1)], axis=-1)


def in_covariance_coordinates(model: pm.Model) -> pm.Model:
    """The model, its variables the same, with these coordinates of factors in place of PyMC's."""
    new = {
        rv: CovarianceCoordinates(len(transform.diag_idxs.eval(mode=PLAIN)))
        for rv, transform in model.rvs_to_transforms.items()
        if isinstance(transform, CholeskyCovPacked)
    }
    if not new:
        return model
    found = object.__new__(type(model))
    vars(found).update(vars(model))
    found.rvs_to_transforms = model.rvs_to_transforms | new
    return found
