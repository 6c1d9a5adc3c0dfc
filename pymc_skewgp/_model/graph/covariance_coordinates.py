"""Coordinates of Cholesky factors of covariance matrices in which posteriors have no funnel.

PyMC's are the factor's own entries, with the logarithm of its diagonal. Where a standard deviation
may be near zero, all entries of its row are, and their range is as narrow as the deviation is
small. Here a row is its standard deviation and its correlations, which are independent of it in
the prior (Lewandowski, Kurowicka & Joe 2009, doi:10.1016/j.jmva.2009.04.008).
"""

from itertools import pairwise
from typing import Any

import numpy as np
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
        self._n = n

    def _rows(self, value: Any) -> list[list[Any]]:
        """Entries by row. One by one, so that no graph of PyMC's start needs a C compiler."""
        ends = [i * (i + 1) // 2 for i in range(self._n + 1)]
        return [[value[..., k] for k in range(a, b)] for a, b in pairwise(ends)]

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Coordinates of the packed factor."""
        found: list[Any] = []
        for row in self._rows(value):
            t, own = row[-1], []
            for entry in reversed(row[:-1]):
                own.append(pt.arcsinh(entry / t))
                t = pt.sqrt(t**2 + entry**2)
            found += [*reversed(own), pt.log(t)]
        return pt.stack(found, axis=-1)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """The packed factor."""
        found: list[Any] = []
        for row in self._rows(value):
            t = [pt.exp(x) for x in _log_t(row)]
            found += [a * pt.tanh(y) for a, y in zip(t, row[:-1], strict=False)] + t[-1:]
        return pt.stack(found, axis=-1)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log determinant of the derivative of `backward`."""
        return sum(x for row in self._rows(value) for x in _log_t(row))


def _log_t(row: list[Any]) -> list[Any]:
    """Log of what the correlations so far leave of the deviation, from all of it on."""
    found = [row[-1]]
    for y in row[:-1]:
        log_cosh = y + pt.softplus(-2.0 * y) - np.log(2.0)
        found.append(found[-1] - log_cosh)
    return found


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
