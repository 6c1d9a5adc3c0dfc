"""A Gaussian vector under points and intervals, by a trapezoid rule over the vector itself.

No conditioning, no rectangle: p(f) p(points | f) p(intervals | points, f) on a grid.
"""

import numpy as np
from likelihood_oracles import FloatArray, FunctionGrid, function_grid
from numpy.typing import ArrayLike
from scipy.special import ndtr


def grid_posterior(
    mean: ArrayLike,
    cov: ArrayLike,
    A: ArrayLike,
    a: ArrayLike,
    S: ArrayLike,
    lower: FloatArray,
    upper: FloatArray,
    value: ArrayLike,
    nodes: int = 91,
) -> FunctionGrid:
    """Rows v = A f + a + e, e ~ N(0, S): v is `value` where that is a number, else within limits.

    At most one interval may have noise that is correlated with that of points; intervals' noise is
    independent among each other. Whitened f runs from -8.5 to 8.5: for the smooth integrands here
    (noise of .3 and more) the rule's error is below 1e-10, which `test_oracles` checks
    by closed forms. `f` has at most three values.
    """
    A, a, S, value = (np.asarray(x, dtype=float) for x in (A, a, S, value))
    S = np.diag(S) if S.ndim == 1 else S
    point = ~np.isnan(value)
    S_pp = S[np.ix_(point, point)]

    def log_density(f: FloatArray) -> FloatArray:
        rows = A @ f.T + a[:, None]
        residual = value[point, None] - rows[point]
        solved = np.linalg.solve(S_pp, residual)
        log_p = -0.5 * (residual * solved).sum(axis=0)
        log_p -= 0.5 * np.linalg.slogdet(2 * np.pi * S_pp)[1]
        for i in np.flatnonzero(~point):
            gain = np.linalg.solve(S_pp, S[point, i])
            centre, variance = rows[i] + gain @ residual, S[i, i] - gain @ S[point, i]
            if variance > 0:
                high = ndtr((upper[i] - centre) / np.sqrt(variance))
                inside = high - ndtr((lower[i] - centre) / np.sqrt(variance))
            else:
                inside = (centre > lower[i]) & (centre < upper[i])
            with np.errstate(divide="ignore"):
                log_p = log_p + np.log(inside)
        return log_p

    return function_grid(mean, cov, log_density, nodes, 8.5)
