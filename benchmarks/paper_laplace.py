"""GP-L: scikit-learn's classifier (Laplace's approximation, logistic link), searched like ours.

scikit-learn searches from one start, and its own restarts draw the logarithm of a logarithm and end
at its bounds. Here it gets what `find_hyperparameters` does: the best two of 32 points within a
factor of twenty of the start are starts as well. Beyond 450 rows these searches are made on 300 of
them, and go on with all from the start and from the best; beyond 1500 the objective is the sum over
batches of 500.

Where classes separate, scikit-learn's Newton steps can miss the mode, so that its evidence jumps by
nats between neighbours; where a search ends is then an accident. It is taken as it comes.
"""

from typing import Any

import numpy as np
from peers import missing_peer, quiet
from scipy.linalg import cho_solve, cholesky
from scipy.optimize import minimize
from scipy.special import expit

from pymc_skewgp._learn.optimizers import SearchSettings
from pymc_skewgp._learn.search import random_batches

WIDE = (1e-5, 1e7)
# Of the candidates for a start, as `find_hyperparameters` has them.
CANDIDATES, TOGETHER, SCATTER, MIN_DISTANCE = 16, 3.0, 0.3, 1.0


def value_and_gradient(model: Any, theta: np.ndarray) -> tuple[float, np.ndarray]:
    r"""scikit-learn's log evidence of a fitted ``ConstantKernel() * RBF()``, and its gradient.

    scikit-learn's own gradient has a matrix for each lengthscale, which takes hours with a hundred
    of them. This one is algorithm 5.1 of Rasmussen & Williams (2006) with the sum over the entries
    of those matrices done at once: :math:`dZ/d\theta_j = \sum_{ik} M_{ik} dK_{ik}/d\theta_j`, where
    :math:`M = (gg^T - R)/2 + v g^T`, g the gradient of the likelihood at the mode, and
    :math:`v = s_2 - R K s_2`.
    """
    value = model.log_marginal_likelihood(theta, clone_kernel=False)
    fitted = model.base_estimator_
    X, f = fitted.X_train_, fitted.f_cached
    K = fitted.kernel_(X)  # which has theta now
    pi = expit(f)
    weight = pi * (1.0 - pi)
    root = np.sqrt(weight)
    B = root[:, None] * K * root
    B.flat[:: len(B) + 1] += 1.0
    R = root[:, None] * cho_solve((cholesky(B, lower=True), True), np.diag(root))
    RK = R @ K
    s2 = -0.5 * (K.diagonal() - np.einsum("ij,ij->j", K, RK)) * weight * (1.0 - 2.0 * pi)
    g = fitted.y_train_ - pi
    v = s2 - RK @ s2
    W = 0.5 * (np.outer(g, g) - R) + 0.5 * (np.outer(v, g) + np.outer(g, v))
    W *= K
    Z = X / np.exp(theta[1:])
    slopes = 2.0 * (W.sum(axis=1) @ Z**2 - np.einsum("ij,ij->j", Z, W @ Z))
    return value, np.array([W.sum(), *slopes])


def laplace_forecast(
    X: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    start: dict[str, Any],
    search: SearchSettings,
    seed: int,
) -> tuple[np.ndarray, float]:
    """P(y = 1) at `new` by an RBF kernel, and the log evidence (the sum over batches)."""
    with missing_peer("scikit-learn"):
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    kernel = ConstantKernel(start["eta"] ** 2, WIDE) * RBF(start["ls"], WIDE)
    rng = np.random.default_rng(seed)
    sign = 2.0 * y - 1.0

    def fitted(kernel: Any, rows: Any = slice(None)) -> Any:
        return GaussianProcessClassifier(kernel, optimizer=None).fit(X[rows], y[rows])

    def objective(parts: list[Any]) -> Any:
        models = [fitted(kernel, rows) for rows in parts]

        def descend(theta: np.ndarray) -> tuple[float, np.ndarray]:
            found = [value_and_gradient(model, theta) for model in models]
            return -sum(value for value, _ in found), -sum(slope for _, slope in found)

        return descend

    with quiet():
        everything = [slice(None)]
        if search.batch_size is not None:
            everything = random_batches(sign, search.batch_size, rng)
        whole = coarse = objective(everything)
        if len(y) > search.coarse_above:
            coarse = objective(random_batches(sign, search.coarse_size, rng)[:1])
        starts = spread_starts(coarse, kernel, search.n_restarts, rng)
        if coarse is not whole and search.n_restarts:
            found = [minimum(coarse, theta, kernel.bounds) for theta in starts]
            starts = [starts[0], min(found, key=lambda result: result.fun).x]
        found = [minimum(whole, theta, kernel.bounds) for theta in starts]
        best = min(found, key=lambda result: result.fun)
        model = fitted(kernel.clone_with_theta(best.x))
        return model.predict_proba(new)[:, 1], -float(best.fun)


def spread_starts(
    objective: Any,
    kernel: Any,
    n_restarts: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """The kernel's own hyperparameters, and the best of many that are far from each other."""
    origin = kernel.theta  # the logarithms of a variance and of lengthscales
    # The entries of a variable move together, and a variance moves twice as far as a deviation.
    count = CANDIDATES * n_restarts
    moved = TOGETHER * rng.uniform(-1.0, 1.0, (count, 2))
    shifts = np.repeat(moved, [1, len(origin) - 1], axis=1)
    shifts += SCATTER * rng.standard_normal(shifts.shape)
    shifts[:, 0] *= 2.0
    points = np.clip(origin + shifts, *kernel.bounds.T)
    starts = [origin]
    for i in np.argsort([objective(theta)[0] for theta in points]):
        distance = min(np.abs(points[i] - theta).max() for theta in starts)
        if len(starts) <= n_restarts and distance > MIN_DISTANCE:
            starts.append(points[i])
    return starts


def minimum(objective: Any, theta: np.ndarray, bounds: np.ndarray) -> Any:
    """By the optimiser that scikit-learn has by default."""
    return minimize(objective, theta, method="L-BFGS-B", jac=True, bounds=bounds)
