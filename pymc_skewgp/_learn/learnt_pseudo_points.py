"""Pseudo-points whose places are learnt: where they start, and the prior that keeps them apart."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._validation import FloatArray

# Phases that are tried out; more take the labels of the rows that they start at.
_MOST_TRIED = 3
_ROUND_OFF = 1e-9


def pseudo_points(kernel: Any, points: FloatArray, labels: FloatArray) -> dict[str, Any]:
    """Arguments of a `SkewGP`: places to be learnt, and phases, learnt where they are few.

    To be called inside a ``pm.Model``.

    Parameters
    ----------
    kernel : Covariance
    points : ndarray, shape (s, d)
        Where they start.
    labels : ndarray, shape (s,)
        Phases of those that are too many to be tried out.
    """
    s = points.shape[0]
    places = pm.Flat("pseudo_points", shape=points.shape)
    if s > 1:
        pm.Potential("apart", log_volume(kernel, places))
    phase: Any = labels
    if s <= _MOST_TRIED:
        phase = 2 * pm.Bernoulli("positive", 0.5, shape=s) - 1
    return {"pseudo_points": places, "phase": phase}


def log_volume(kernel: Any, points: Any) -> Any:
    """Half the log determinant of the correlations at the pseudo-points, which keeps them apart.

    Without it opposite phases would close in on one point: f would be known to cross zero exactly
    there, an optimum of the marginal likelihood that no data justify.
    """
    matrix = kernel(points)
    sd = pt.sqrt(pt.diagonal(matrix))
    correlation = matrix / sd / sd[:, None]
    chol = pt.linalg.cholesky(correlation + _ROUND_OFF * pt.eye(matrix.shape[0]))
    return pt.log(pt.diagonal(chol)).sum()


def spread_rows(X: FloatArray, count: int, rng: np.random.Generator) -> Any:
    """Rows far from each other: each drawn in proportion to its squared distance to the others.

    The seeding of k-means++ (Arthur & Vassilvitskii 2007).
    """
    scale = np.std(X, axis=0)
    Z = X / np.where(scale > 0, scale, 1.0)
    chosen = [int(rng.integers(X.shape[0]))]
    distance = np.full(X.shape[0], np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, ((Z - Z[chosen[-1]]) ** 2).sum(axis=1))
        total = distance.sum()
        if not total > 0:
            raise ValueError(
                f"n_pseudo_points={count}, but X has only {len(chosen)} different rows."
            )
        chosen.append(int(rng.choice(X.shape[0], p=distance / total)))
    return np.array(chosen)
