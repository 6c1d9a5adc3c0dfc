"""Gaussian approximations and exact marginals by dense, slow means of their own.

Points where f is conditioned have one linear condition each: a f + b + noise e > 0 with standard
normal e. A probit label y is a = 2y - 1, b = 0, noise 1; a pseudo-point has noise 0.
"""

from typing import NamedTuple

import arviz as az
import numpy as np
from oracles import finite_difference
from scipy.optimize import minimize
from scipy.special import ndtr
from scipy.stats import norm

from pymc_skewgp import LatentMarginals

_NODES = 120


class Gaussian(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray
    log_evidence: float


def normal_marginals(mean, sd):
    """Independent N(mean, sd^2), one a point."""
    mean = np.asarray(mean, dtype=float)
    return LatentMarginals(mean[:, None], np.broadcast_to(sd, mean.shape) ** 2.0, np.ones(1))


def tree(draws, group="posterior", dims=("obs_id",), **coords):
    """Draws of f as a tree, (n_chains, n_draws, ...)."""
    return az.from_dict({group: {"f": draws}}, dims={"f": list(dims)}, coords=coords)


def rbf(variance=2.0, lengthscale=1.0):
    """Squared exponential kernel on arrays."""

    def kernel(X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), variance)
        Xs = X if Xs is None else Xs
        square = ((X[:, None] - Xs[None]) ** 2).sum(-1)
        return variance * np.exp(-0.5 * square / lengthscale**2)

    return kernel


def ou(lengthscale, variance):
    """Ornstein-Uhlenbeck kernel on arrays: rough, so that its matrices are well conditioned."""

    def kernel(X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), variance)
        return variance * np.exp(-np.abs(X - (X if Xs is None else Xs).T) / lengthscale)

    return kernel


def slope(X):
    """A prior mean that is no constant."""
    return 0.4 - 0.3 * X[:, 0]


def continued(given: Gaussian, prior_mean, K, n):
    """A Gaussian at the first n points carried to all points by GP regression on it."""
    gain = np.linalg.solve(K[:n, :n], K[:n]).T
    mean = prior_mean + gain @ (given.mean - prior_mean[:n])
    return Gaussian(mean, K - gain @ (K[:n, :n] - given.cov) @ gain.T, given.log_evidence)


def sequential_ep(prior_mean, K, a, b, noise, sweeps=200) -> Gaussian:
    """EP one site after the other, with the inverse of the posterior precision each time."""
    n = len(a)
    tau, nu = np.zeros(n), np.zeros(n)
    precision = np.linalg.inv(K)
    log_z, cavities = np.zeros(n), np.zeros((2, n))
    for _ in range(sweeps):
        before = np.concatenate([tau, nu])
        for i in range(n):
            S = np.linalg.inv(precision + np.diag(tau))
            mean = S @ (precision @ prior_mean + nu)
            v = 1.0 / (1.0 / S[i, i] - tau[i])
            c = v * (mean[i] / S[i, i] - nu[i])
            scale = np.sqrt(noise[i] ** 2 + a[i] ** 2 * v)
            z = (a[i] * c + b[i]) / scale
            ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
            tilted_mean = c + v * a[i] * ratio / scale
            tilted_var = v - (v * a[i] / scale) ** 2 * ratio * (z + ratio)
            tau[i] = 1.0 / tilted_var - 1.0 / v
            nu[i] = tilted_mean / tilted_var - c / v
            log_z[i], cavities[:, i] = norm.logcdf(z), (c, v)
        if np.abs(np.concatenate([tau, nu]) - before).max() < 1e-12:
            break
    S = np.linalg.inv(precision + np.diag(tau))
    total = log_z.sum() + _log_integral(prior_mean, precision, tau, nu)
    for i, (c, v) in enumerate(cavities.T):
        one = np.array([[1.0 / v]])
        total -= _log_integral(np.array([c]), one, tau[i : i + 1], nu[i : i + 1])
    return Gaussian(S @ (precision @ prior_mean + nu), S, float(total))


def _log_integral(mean, precision, tau, nu):
    """Log of the integral of N(f; mean, precision^-1) exp(nu'f - f' diag(tau) f / 2)."""
    A = precision + np.diag(tau)
    b = precision @ mean + nu
    log_dets = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(A)[1]
    return 0.5 * (b @ np.linalg.solve(A, b) - mean @ precision @ mean + log_dets)


def numerical_laplace(prior_mean, K, log_likelihood) -> Gaussian:
    """Mode by a general optimiser, curvature by differences of the log joint density.

    `log_likelihood` is a function of f. Second differences have errors of h^2 times its fourth
    derivatives, and of 1e-9.
    """
    chol = np.linalg.cholesky(K)

    def negative(e):  # of whitened f
        return 0.5 * e @ e - log_likelihood(prior_mean + chol @ e)

    def slope(e):
        return finite_difference(negative, e, 1e-4)

    start = np.zeros(len(K))
    mode = minimize(negative, start, jac=slope, method="BFGS", options={"gtol": 1e-9}).x
    hessian = finite_difference(slope, mode, 1e-3)
    cov = chol @ np.linalg.inv(hessian) @ chol.T
    # (2 pi)^(n/2) of the integral and of the prior's constant cancel.
    log_evidence = -negative(mode) - 0.5 * np.linalg.slogdet(hessian)[1]
    return Gaussian(prior_mean + chol @ mode, cov, float(log_evidence))


class ExactMarginals(NamedTuple):
    """Mixtures of Gaussians on the nodes of a quadrature rule: means (t, nodes), sd (t,)."""

    means: np.ndarray
    sd: np.ndarray
    weights: np.ndarray

    def cdf(self, x):
        return ndtr((x - self.means.T) / self.sd).T @ self.weights

    def p(self):
        return ndtr(self.means / np.sqrt(1.0 + self.sd**2)[:, None]) @ self.weights

    def moments(self):
        mean = self.means @ self.weights
        off = self.means - mean[:, None]
        variance = off**2 @ self.weights + self.sd**2
        return mean, np.sqrt(variance), off**3 @ self.weights / variance**1.5


def exact_marginals(K, sign, prior_mean=None) -> ExactMarginals:
    """Posterior marginals given labels at the first one or two points of `K`, and at the others.

    f at the others given f at the labels is Gaussian. At the labels themselves the rule's nodes are
    points; they get the posterior of u = w (f + e) instead, given which f is Gaussian: the rule is
    over u, whitened and cut at 0. 120 x 120 Gauss-Legendre nodes up to 9 deviations: about 1e-10.
    """
    n = len(sign)
    m = np.zeros(len(K)) if prior_mean is None else prior_mean
    G = sign[:, None] * K[:n, :n] * sign + np.eye(n)
    chol = np.linalg.cholesky(G)
    nodes, node_weights = np.polynomial.legendre.leggauss(_NODES)
    e, log_w = np.zeros((1, 0)), np.zeros(1)
    for j in range(n):
        low = np.clip((-sign[j] * m[j] - e @ chol[j, :j]) / chol[j, j], -9.0, 8.999)
        half = 0.5 * (9.0 - low)
        new = low[:, None] + half[:, None] * (1.0 + nodes)
        log_w = (log_w[:, None] + np.log(half[:, None] * node_weights) + norm.logpdf(new)).ravel()
        e = np.column_stack([np.repeat(e, _NODES, axis=0), new.ravel()])
    keep = log_w > log_w.max() - 40.0
    u = e[keep] @ chol.T
    weights = np.exp(log_w[keep] - log_w.max())
    cross = sign[:, None] * K[:n]
    solved = np.linalg.solve(G, cross)
    variance = K.diagonal() - (cross * solved).sum(axis=0)
    return ExactMarginals(m[:, None] + solved.T @ u.T, np.sqrt(variance), weights / weights.sum())
