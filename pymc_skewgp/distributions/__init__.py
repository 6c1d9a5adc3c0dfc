"""PyMC distributions."""
