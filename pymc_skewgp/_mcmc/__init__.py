"""Markov moves on (f, u), for hyperparameters that move as well."""
