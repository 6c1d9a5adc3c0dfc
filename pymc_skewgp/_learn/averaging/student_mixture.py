"""Mixtures of multivariate Student t distributions: density, draws, and one step of fitting them.

The update is the Rao-Blackwellised one of adaptive importance sampling: the mixture that is nearest
to weighted points in Kullback-Leibler divergence, by EM.

References
----------
.. [1] O. Cappe, R. Douc, A. Guillin, J.-M. Marin & C. P. Robert (2008), Adaptive importance
   sampling in general mixture classes, doi:10.1007/s11222-008-9059-x.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import gammaincinv, gammaln, logsumexp, ndtri

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._validation import FloatArray

# Smallest eigenvalue of a covariance, relative to the largest.
_LEAST_EIGENVALUE = 1e-8
# Quantiles beyond which a scale of 0 or infinity would come out.
_EDGE = 1e-12


@dataclass(frozen=True, eq=False)
class StudentMixture:
    """Components t(df, mean_k, L_k L_k') with weights.

    Attributes
    ----------
    weights : ndarray, shape (K,)
        They sum to one.
    means : ndarray, shape (K, D)
    chols : ndarray, shape (K, D, D)
        Lower triangular.
    df : float
        Degrees of freedom.
    """

    weights: FloatArray
    means: FloatArray
    chols: FloatArray
    df: float

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers behind one draw: the component, the scale, and each coordinate."""
        return self.means.shape[1] + 2

    def log_density(self, x: FloatArray) -> FloatArray:
        """At the rows of `x`."""
        found: FloatArray = logsumexp(self._joint(x), axis=0)
        return found

    def slope(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log density at the rows of `x`, and its gradient."""
        d, df = self.means.shape[1], self.df
        joint = self._joint(x)
        value = logsumexp(joint, axis=0)
        factors = np.exp(joint - value) * (df + d) / (df + self._distances(x))
        pairs = zip(factors, self.means, self.chols, strict=True)
        gradient = sum(-f[:, None] * cho_solve((c, True), (x - m).T).T for f, m, c in pairs)
        return value, np.asarray(gradient)

    def draw(self, uniforms: FloatArray) -> FloatArray:
        """Rows, one for each column of `uniforms`, (D + 2, N)."""
        edges = np.cumsum(self.weights[:-1])
        component = np.searchsorted(edges, uniforms[0], side="right")
        # Chi squared over its degrees of freedom.
        scale = gammaincinv(0.5 * self.df, np.clip(uniforms[1], _EDGE, 1.0 - _EDGE))
        scale *= 2.0 / self.df
        white = ndtri(uniforms[2:]).T / np.sqrt(scale)[:, None]
        return self.means[component] + np.einsum("nij,nj->ni", self.chols[component], white)

    def fitted(
        self, x: FloatArray, weights: FloatArray, *, widen: float, least_share: float, steps: int
    ) -> "StudentMixture":
        """The mixture after some steps of EM towards weighted points.

        Parameters
        ----------
        x : ndarray, shape (N, D)
        weights : ndarray, shape (N,)
            Normalised.
        widen : float
            Factor of the covariances of the last step.
        least_share : float
            Weight below which no component falls.
        steps : int
        """
        mixture = self
        for step in range(steps):
            mixture = mixture._step(x, weights, widen if step == steps - 1 else 1.0, least_share)
        return mixture

    def _joint(self, x: FloatArray) -> FloatArray:
        """Log of weight times density of each component, (K, N)."""
        d, df = self.means.shape[1], self.df
        constant = gammaln(0.5 * (df + d)) - gammaln(0.5 * df) - 0.5 * d * np.log(df * np.pi)
        log_dets = np.log(np.einsum("kii->ki", self.chols)).sum(axis=1)
        heads = np.log(self.weights) + constant - log_dets
        bodies = np.log1p(self._distances(x) / df)
        joint: FloatArray = heads[:, None] - 0.5 * (df + d) * bodies
        return joint

    def _distances(self, x: FloatArray) -> FloatArray:
        """Squared Mahalanobis distances, (K, N)."""
        rows = [
            np.square(solve_triangular(chol, (x - mean).T, lower=True, check_finite=False)).sum(0)
            for mean, chol in zip(self.means, self.chols, strict=True)
        ]
        return np.array(rows)

    def _step(
        self, x: FloatArray, weights: FloatArray, widen: float, least_share: float
    ) -> "StudentMixture":
        d = x.shape[1]
        joint = self._joint(x)
        shares = np.exp(joint - logsumexp(joint, axis=0)) * weights
        sums = shares.sum(axis=1)
        # Given its component a point's precision is a Gamma variable with this mean.
        scaled = shares * (self.df + d) / (self.df + self._distances(x))
        centre = weights @ x
        whole = _scatter(x - centre, weights)
        effective = sums**2 / np.maximum((shares**2).sum(axis=1), 1e-300)
        means, chols = self.means.copy(), self.chols.copy()
        for k in range(sums.size):
            if effective[k] < 1.0:
                continue
            means[k] = scaled[k] @ x / scaled[k].sum()
            own = _scatter(x - means[k], scaled[k]) / sums[k]
            # As many points more as there are coordinates, of the covariance of all.
            pull = (d + 2.0) / (effective[k] + d + 2.0)
            chols[k] = _root(widen * ((1.0 - pull) * own + pull * whole))
        found = np.maximum(sums, least_share)
        return StudentMixture(found / found.sum(), means, chols, self.df)


def _scatter(difference: FloatArray, weights: FloatArray) -> FloatArray:
    return (difference * weights[:, None]).T @ difference


def _root(matrix: FloatArray) -> FloatArray:
    """Cholesky factor, of a matrix with its smallest eigenvalues raised."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    raised = np.maximum(values, max(_LEAST_EIGENVALUE * values[-1], 1e-12))
    factor: FloatArray = np.linalg.cholesky(symmetric((vectors * raised) @ vectors.T))
    return factor
