"""Hyperparameters integrated out: importance sampling with EP's evidence, corrected exactly."""
