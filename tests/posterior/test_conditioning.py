"""Points and intervals together: the builder against a trapezoid rule over f."""

from functools import cache

import numpy as np
import pytest
from observation_oracles import grid_posterior
from scipy import sparse

from pymc_skewgp._gaussian.covariance import DenseCovariance, FactoredCovariance, LowRankCovariance
from pymc_skewgp._gaussian.escalation import RectangleSampler
from pymc_skewgp._observations.observations import Observations, intervals, points
from pymc_skewgp._posterior import conditioning
from pymc_skewgp._posterior.conditioning import Conditioning

INF, NAN = np.inf, np.nan
K = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, 0.6], [0.2, 0.6, 0.8]])
M = np.array([0.3, -0.2, 0.1])
N_DRAWS = 2**14


def rows(**changes) -> Observations:
    """A point of each of two sums, a one-sided and a two-sided interval."""
    values = {
        "A": np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1.0, -1.0, 0.0], [0.0, 0.0, 2.0]]),
        "a": np.array([0.1, 0.0, -0.2, 0.3]),
        "S": np.array([0.3, 0.4, 0.5, 1.0]),
        "lower": np.array([NAN, NAN, 0.0, -0.5]),
        "upper": np.array([NAN, NAN, INF, 0.8]),
        "value": np.array([0.7, -0.3, NAN, NAN]),
    }
    return Observations(**(values | changes))


SELECTION = np.array(
    [[0.3, 0.05, 0.2, 0.0], [0.05, 0.4, -0.1, 0.0], [0.2, -0.1, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]]
)
CASES = {
    "points and intervals": rows(),
    "sparse design": rows(A=sparse.csr_array(rows().A)),
    "noise in common": rows(S=SELECTION),
    "intervals only": rows(
        lower=np.array([-0.5, -INF, 0.0, -0.5]),
        upper=np.array([1.0, 0.4, INF, 0.8]),
        value=np.full(4, NAN),
    ),
    "points only": points(np.array([0.7, -0.3, 0.2]), np.array([0.3, 0.4, 0.5])),
    "tobit": Observations(
        None,
        np.zeros(3),
        np.full(3, 0.4),
        np.array([NAN, -INF, NAN]),
        np.array([NAN, 0.0, NAN]),
        np.array([0.9, NAN, 0.4]),
    ),
}


def dense_rows(observations):
    if observations.A is None:
        return np.eye(3)[: observations.n_rows]
    return np.asarray(
        observations.A.todense() if sparse.issparse(observations.A) else observations.A
    )


def condition(observations, cov=K):
    return Conditioning(M, FactoredCovariance.of_kernel(cov), observations)


@cache
def truth(name):
    o = CASES[name]
    return grid_posterior(M, K, dense_rows(o), o.a, o.S, o.lower, o.upper, o.value)


def log_evidence(given, n_draws=N_DRAWS, seed=0):
    if not given.n_rows:
        return given.log_density, 0.0
    sampler = RectangleSampler(given.cov, given.lower, given.upper)
    found = sampler.sample(n_draws, np.random.default_rng(seed), goal="probability").log_prob
    return given.log_density + found.value, found.std_error


@pytest.fixture(params=["dense", "low rank"])
def form(request, monkeypatch):
    """Either form of G and of the points' precision, whatever the sizes ask for."""
    share = {"dense": 0.0, "low rank": 100.0}[request.param]
    monkeypatch.setattr(conditioning, "LOW_RANK_SHARE", share)
    monkeypatch.setattr(conditioning, "LARGEST_BLOCK", share)
    return request.param


@pytest.mark.parametrize("name", CASES)
def test_evidence_and_moments(name, form):
    """Log evidence within 5 standard errors (5e-7), moments within 5 Monte Carlo errors."""
    given, exact = condition(CASES[name]), truth(name)
    if given.n_rows:
        assert isinstance(given.cov, DenseCovariance if form == "dense" else LowRankCovariance)
    value, std_error = log_evidence(given)
    expected = exact.log_evidence + CASES[name].log_constant
    assert value == pytest.approx(expected, abs=max(5 * std_error, 1e-9))
    rng = np.random.default_rng(1)
    sampler = RectangleSampler(given.cov, given.lower, given.upper)
    u = np.zeros((N_DRAWS, 0))
    weights = np.full(N_DRAWS, 1 / N_DRAWS)
    if given.n_rows:
        drawn = sampler.sample(N_DRAWS, rng, goal="draws")
        u, weights = drawn.u.T, np.exp(drawn.log_weights - drawn.log_weights.max())
        weights = weights / weights.sum()
    z = given.draw(u, rng)
    mean = weights @ z
    cov = ((z - mean) * weights[:, None]).T @ (z - mean)
    # The weights' effective sample size is above a half: errors of N / 2 draws, and five of them.
    sd = np.sqrt(exact.cov.diagonal())
    error = 5 * np.sqrt(2 / N_DRAWS)
    np.testing.assert_array_less(np.abs(mean - exact.mean), error * sd)
    np.testing.assert_array_less(np.abs(cov - exact.cov), 1.5 * error * np.outer(sd, sd))
    # By regression on u, without drawing z: the same moments from the same draws.
    at = given.regression(joint=True)
    centres = at.centre + u @ at.solved
    np.testing.assert_array_less(np.abs(weights @ centres - exact.mean), error * sd)
    spread = weights @ (centres - weights @ centres) ** 2 + at.variance
    np.testing.assert_array_less(np.abs(spread - exact.cov.diagonal()), 1.5 * error * sd**2)


class Fixed:
    """A generator whose normal numbers are given."""

    def __init__(self, numbers):
        self.numbers = numbers

    def standard_normal(self, shape):
        assert self.numbers.shape == shape
        return self.numbers


def test_rows_that_share_noise_in_blocks(monkeypatch):
    """Draws of z given u: mean and covariance by Gaussian conditioning, to round-off."""
    monkeypatch.setattr(conditioning, "LOW_RANK_SHARE", 100.0)
    monkeypatch.setattr(conditioning, "LARGEST_BLOCK", 1.0)
    A = np.array([[0.0, 0.0, 1.0], [1.0, -1.0, 0.0], [1.0, 0.0, -1.0], [0.0, 2.0, 0.0]])
    S = np.array([[0, 0, 0, 0], [0, 2, 0, 1], [0, 0, 0.5, 0], [0, 1, 0, 2.0]])
    one_sided = np.zeros(4), np.full(4, INF)
    given = condition(intervals(*one_sided, sparse.csr_array(S), A=A))
    assert isinstance(given.cov, LowRankCovariance)
    np.testing.assert_allclose(given.cov.dense(), A @ K @ A.T + S, atol=1e-13)
    u = np.array([[0.4, -0.3, 1.2, 0.7]])
    gain = np.linalg.solve(A @ K @ A.T + S, A @ K)
    mean, cov = M + u[0] @ gain, K - (A @ K).T @ gain
    r = given.factor.shape[1]
    np.testing.assert_allclose(given.draw(u, Fixed(np.zeros((r, 1))))[0], mean, atol=1e-12)
    off = given.draw(u, Fixed(np.eye(r)), np.zeros(r, dtype=int)) - mean
    np.testing.assert_allclose(off.T @ off, cov, atol=1e-12)
