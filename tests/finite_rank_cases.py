"""Priors of finite rank by points that are given; posteriors with and without blocks of rows."""

import approximation_oracles
import numpy as np
import pytest

from pymc_skewgp._posterior.features import finite_rank_prior
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.posterior import SkewGPPosterior

rbf = approximation_oracles.rbf(1.5, 0.8)


class GridFeatures:
    """By inducing points, with what they leave of the variance unless `whole`."""

    def __init__(self, points, whole):
        self.points, self.whole = points, whole
        self.rank = len(points)
        self.chol = np.linalg.cholesky(rbf(points) + 1e-9 * np.eye(self.rank))

    def at(self, X):
        phi = np.linalg.solve(self.chol, rbf(X, self.points).T).T
        rest = np.maximum(1.5 - np.einsum("ij,ij->i", phi, phi), 0.0)
        return np.ascontiguousarray(phi), np.zeros(len(X)) if self.whole else rest


class Grid:
    """An `Approximation` by points that are given."""

    def __init__(self, points, whole=False):
        self.points, self.whole = np.asarray(points, dtype=float).reshape(len(points), -1), whole

    def features(self, prior, X):
        return GridFeatures(self.points, self.whole)


def slope(X):
    return 0.3 * X[:, 0]


def in_blocks(X, y, likelihood, approximation, n_draws=1024, **pseudo):
    """A posterior that has its rows in blocks, however few they are."""
    found = SkewGPPosterior(
        X, y, cov_func=rbf, likelihood=likelihood, n_draws=n_draws,
        approximation=approximation, **({"mean_func": slope} | pseudo),
    )  # fmt: skip
    prior, features = finite_rank_prior(found.prior, found._sets[0].X)
    found._fit = FiniteRankFit(prior, features, found._sets)
    return found


def of_all_rows(X, y, likelihood, approximation, n_draws=4096, **pseudo):
    """The same without blocks, the kernel of finite rank taken as any other."""
    features = approximation.features(None, X)

    def kernel(X, Xs=None, diag=False):
        phi, rest = features.at(X)
        if diag:
            return (phi**2).sum(axis=1) + rest
        return phi @ phi.T + np.diag(rest) if Xs is None else phi @ features.at(Xs)[0].T

    return SkewGPPosterior(
        X, y, cov_func=kernel, mean_func=slope, likelihood=likelihood, n_draws=n_draws, **pseudo
    )


def agree(one, other, new, least_ess=0.3):
    """Evidence and forecasts within four standard errors of their difference."""
    a, b = one.log_marginal_likelihood, other.log_marginal_likelihood
    assert abs(a.value - b.value) < 4.0 * np.hypot(a.std_error, b.std_error)
    assert a.relative_ess > least_ess
    p, q = (x.predict(new, draws=0)["predictions_summary"] for x in (one, other))
    for name in ("f_mean", "f_sd"):
        gap = np.abs(p[name].values - q[name].values)
        error = np.hypot(p[f"{name}_se"].values, q[f"{name}_se"].values)
        # False alarms: 1 in 1000 for all points together.
        assert (gap < 4.5 * error + 1e-6).all()


def assert_gradient(rows, point, tolerance, step=1e-4):
    """By differences: third derivatives times the squared step, round-off of EP over the step."""
    found = rows.by_ep(point)
    for i in range(point.x.size):
        ahead, behind = (point.x + sign * step * np.eye(point.x.size)[i] for sign in (1, -1))
        slope = rows.by_ep(point.at(ahead)).total - rows.by_ep(point.at(behind)).total
        wanted = slope / (2 * step)
        assert found.gradient[i] == pytest.approx(wanted, rel=tolerance, abs=tolerance)


def assert_estimates(own, other, beside=1e-5):
    """Five standard errors: a false alarm in a million runs."""
    error = np.hypot(own.std_error, other.std_error)
    assert own.value == pytest.approx(other.value, abs=5 * error + beside)
