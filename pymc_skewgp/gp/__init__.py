"""Gaussian process objects in the manner of ``pm.gp``."""
