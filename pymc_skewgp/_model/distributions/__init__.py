"""PyMC distributions; importing them gives ``pm.logcdf`` the multivariate normal's."""

from pymc_skewgp._model.distributions import truncated_mvnormal as truncated_mvnormal
from pymc_skewgp._model.ops.densities import import_for_numba

import_for_numba("pymc_skewgp._model.distributions.numba_draws")
