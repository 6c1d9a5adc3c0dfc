"""Gaussian variables whose log density PyMC leaves short: of deficient rank, or not normalised."""

from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.continuous import FlatRV
from pymc.distributions.multivariate import ICARRV
from pytensor.graph.traversal import ancestors
from scipy.sparse.csgraph import connected_components

from pymc_skewgp._errors import UnnormalizedPriorWarning, warn
from pymc_skewgp._model.ops.plain_mode import PLAIN


def is_intrinsic(model: pm.Model, rv: Any) -> bool:
    """Whether the precision of a variable is singular: the data alone bound some direction.

    So is that of areas with islands under ICAR, which keeps the sum over all areas at 0 and says
    nothing of the level of each part, and of a walk whose start has a flat prior.
    """
    if isinstance(rv.owner.op, ICARRV):
        W = np.asarray(rv.owner.op.dist_params(rv.owner)[0].eval(mode=PLAIN))
        return bool(connected_components(W, directed=False)[0] > 1)
    own = [x for x in ancestors([rv]) if isinstance(getattr(x.owner, "op", None), FlatRV)]
    return any(x not in model.basic_RVs for x in own)


def warn_of_scale(model: pm.Model, rv: Any, stacklevel: int) -> None:
    """Warn of an ICAR whose sigma is random: its normalising power is not in PyMC's density."""
    if not isinstance(rv.owner.op, ICARRV):
        return
    sigma = rv.owner.op.dist_params(rv.owner)[1]
    above = set(ancestors([sigma])).intersection(model.free_RVs)
    if not above:
        return
    names = " and ".join(sorted(x.name for x in above))
    warn(
        f"{rv.name} is pm.ICAR with a random sigma ({names}): PyMC's density lacks the power of "
        "sigma that would normalise it, so that the prior of sigma is multiplied by it, which "
        f"favours large sigma. Write sigma * pm.ICAR({rv.name!r}, W=W).",
        UnnormalizedPriorWarning,
        stacklevel=stacklevel,
    )
