"""Draws of f at the data and at new points, of one posterior."""

import numpy as np

from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray


def draws_here_and_there(
    posterior: SkewGPPosterior,
    Xnew: FloatArray | None,
    at_data: bool,
    count: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draws with equal weights, shape (count, n + t); the data are left out if not `at_data`.

    Those at the data are jointly drawn, and those at the new points; not all of them together.
    """
    fit = posterior._fit
    parts = []
    if at_data:
        latent, chosen = fit.equal_draws((1, count), "twisted", rng)
        parts.append(fit.draw(latent, chosen, rng)[0])
    if Xnew is not None:
        there = fit.regression(Xnew, joint=True)
        parts.append(fit.draw_at(there, fit.covariance_at(Xnew, there), (1, count), rng)[0])
    return np.concatenate(parts, axis=1) if parts else np.zeros((count, 0))
