"""PyMC distributions; importing them gives ``pm.logcdf`` the multivariate normal's."""

from pymc_skewgp._model.distributions import truncated_mvnormal as truncated_mvnormal
