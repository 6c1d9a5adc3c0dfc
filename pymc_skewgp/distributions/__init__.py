"""PyMC distributions; importing them gives ``pm.logcdf`` the multivariate normal's."""

from pymc_skewgp.distributions import mvnormal as mvnormal
