"""GP-L: scikit-learn's classifier (Laplace's approximation, logistic link), searched like ours.

scikit-learn climbs from one start, and its own restarts draw the logarithm of a logarithm and end
at its bounds. Here it gets what `find_hyperparameters` does: the best two of 32 points within a
factor of twenty of the start are climbed from as well. Beyond 450 rows these climbs are made on 300
of them, and go on with all from the start and from the best; beyond 1500 the objective is the sum
over batches of 500.
"""

from typing import Any

import numpy as np
from peers import missing_peer, quiet
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, StationaryKernelMixin

from pymc_skewgp.workflow.batches import random_batches

# As in pymc_skewgp.workflow.search and .objective.
COARSE, WORTH_COARSE = 300, 450
TRIED, APART = 16, 1.0
SPREAD, SCATTER = 3.0, 0.3
WIDE = (1e-5, 1e7)


class ScaledRBF(StationaryKernelMixin, Kernel):
    """``ConstantKernel(constant_value) * RBF(length_scale)``, a lengthscale for each input.

    Its gradient lies in memory one hyperparameter after the other, as scikit-learn reads it:
    several times as fast with dozens of inputs.
    """

    def __init__(self, constant_value: float, length_scale: np.ndarray) -> None:
        self.constant_value, self.length_scale = constant_value, length_scale

    @property
    def hyperparameter_constant_value(self) -> Hyperparameter:
        """Variance of f."""
        return Hyperparameter("constant_value", "numeric", WIDE)

    @property
    def hyperparameter_length_scale(self) -> Hyperparameter:
        """One for each input."""
        return Hyperparameter("length_scale", "numeric", WIDE, np.size(self.length_scale))

    def __call__(self, X: np.ndarray, Y: Any = None, eval_gradient: bool = False) -> Any:
        Z = X / self.length_scale
        K = self.constant_value * np.exp(
            -0.5 * cdist(Z, Z if Y is None else Y / self.length_scale, "sqeuclidean")
        )
        if not eval_gradient:
            return K
        slopes = np.empty((1 + Z.shape[1], *K.shape))
        slopes[0] = K  # in the logarithm of the variance
        for slope, z in zip(slopes[1:], Z.T, strict=True):
            np.subtract(z[:, None], z, out=slope)
            slope *= slope
            slope *= K
        return K, np.moveaxis(slopes, 0, -1)

    def diag(self, X: np.ndarray) -> np.ndarray:
        """Variances."""
        return np.full(len(X), self.constant_value)


def laplace_forecast(
    X: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    start: dict[str, Any],
    *,
    n_restarts: int,
    batch_size: int | None,
    seed: int,
) -> tuple[np.ndarray, float]:
    """P(y = 1) at `new` by an RBF kernel, and the log evidence (the sum over batches)."""
    with missing_peer("scikit-learn"):
        from sklearn.gaussian_process import GaussianProcessClassifier
    kernel = ScaledRBF(start["eta"] ** 2, np.atleast_1d(start["ls"]))
    rng = np.random.default_rng(seed)
    sign = 2.0 * y - 1.0

    def fitted(kernel: Any, rows: Any = slice(None)) -> Any:
        return GaussianProcessClassifier(kernel, optimizer=None).fit(X[rows], y[rows])

    def objective(parts: list[Any]) -> Any:
        models = [fitted(kernel, rows) for rows in parts]

        def descend(theta: np.ndarray) -> tuple[float, np.ndarray]:
            found = [m.log_marginal_likelihood(theta, True, clone_kernel=False) for m in models]
            return -sum(value for value, _ in found), -sum(slope for _, slope in found)

        return descend

    with quiet():
        everything = [slice(None)]
        if batch_size is not None:
            everything = random_batches(sign, batch_size, rng)
        whole = coarse = objective(everything)
        if len(y) > WORTH_COARSE:
            coarse = objective(random_batches(sign, COARSE, rng)[:1])
        starts = spread_starts(coarse, kernel, n_restarts, rng)
        if coarse is not whole and n_restarts:
            found = [climb(coarse, theta, kernel.bounds) for theta in starts]
            starts = [starts[0], min(found, key=lambda top: top.fun).x]
        found = [climb(whole, theta, kernel.bounds) for theta in starts]
        best = min(found, key=lambda top: top.fun)
        model = fitted(kernel.clone_with_theta(best.x))
        return model.predict_proba(new)[:, 1], -float(best.fun)


def spread_starts(
    objective: Any, kernel: Any, n_restarts: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """The kernel's own hyperparameters, and the best of many that lie apart."""
    origin = kernel.theta  # the logarithms of a variance and of lengthscales
    # The entries of a variable move together, and a variance moves twice as far as a deviation.
    moved = SPREAD * rng.uniform(-1.0, 1.0, (TRIED * n_restarts, 2))
    shifts = np.repeat(moved, [1, len(origin) - 1], axis=1)
    shifts += SCATTER * rng.standard_normal(shifts.shape)
    shifts[:, 0] *= 2.0
    points = np.clip(origin + shifts, *kernel.bounds.T)
    starts = [origin]
    for i in np.argsort([objective(theta)[0] for theta in points]):
        apart = min(np.abs(points[i] - theta).max() for theta in starts)
        if len(starts) <= n_restarts and apart > APART:
            starts.append(points[i])
    return starts


def climb(objective: Any, theta: np.ndarray, bounds: np.ndarray) -> Any:
    """By the optimiser that scikit-learn has by default."""
    return minimize(objective, theta, method="L-BFGS-B", jac=True, bounds=bounds)
