"""Draws at many hyperparameters: three rows and the law of f by quadrature."""

from functools import cache
from itertools import starmap

import numpy as np
import pytest
from oracles import brute_log_prob
from scipy import sparse

from pymc_skewgp._gaussian.covariance import FactoredCovariance, LowRankCovariance
from pymc_skewgp._observations.observations import intervals
from pymc_skewgp._posterior import conditioning
from pymc_skewgp._posterior import draws_with_evidence as many_draws
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.draws_with_evidence import Case, draws_of_many

X = np.array([-0.5, 0.1, 0.8])
# A row with two limits beside rows with one; signs that alternate.
LIMITS = {
    "mixed": np.array([[0.0, -np.inf, -0.4], [np.inf, 0.0, 1.5]]),
    "signs": np.array([[0.0, -np.inf, 0.0], [np.inf, 0.0, np.inf]]),
}
LENGTHS = np.linspace(0.2, 2.0, 40)


def prior(ls, variance=4.0):
    return variance * np.exp(-0.5 * ((X[:, None] - X) / ls) ** 2)


def case(ls, variance=4.0, limits="mixed"):
    cov = FactoredCovariance.of_kernel(prior(ls, variance))
    return Case(Conditioning(np.zeros(3), cov, intervals(*LIMITS[limits], np.ones(3))), 0, 0.0)


@cache
def log_prob(ls, variance=4.0, limits="mixed"):
    return brute_log_prob(*LIMITS[limits], prior(ls, variance) + np.eye(3))


def run(cases, count, seed=0, mapped=starmap):
    rngs = np.random.default_rng(seed).spawn(len(cases))
    return list(draws_of_many(iter(cases), [count] * len(cases), 64, rngs, mapped))


def test_evidences_and_their_errors():
    lengths = np.repeat(LENGTHS[10:], 20)
    found = run([case(ls) for ls in lengths], 1)
    exact = np.array([log_prob(ls) for ls in lengths])
    ratio = np.exp([x.log_evidence for x in found] - exact)
    errors = np.array([x.std_error for x in found])
    # Unbiased: the mean of 600 within four standard errors, a false alarm in 16000.
    assert abs(ratio.mean() - 1.0) < 4.0 * ratio.std() / np.sqrt(ratio.size)
    # Ratios have a tail: their mean square, and that of the errors, is known to a tenth or so.
    assert 0.6 < np.mean(errors**2) / np.mean((ratio - 1.0) ** 2) < 1.6


def test_the_law_of_f():
    """Means of f over 400 cases of the same hyperparameters."""
    exact = draws_of_many(iter([case(0.6)]), [40_000], 40_000, [np.random.default_rng(1)], starmap)
    f = next(exact).f
    drawn = np.concatenate([x.f for x in run([case(0.6)] * 400, 4)])
    # Four draws of a case are not independent: at worst they are as good as one.
    error = np.hypot(f.std(axis=0) / 20.0, f.std(axis=0) / 200.0)
    assert (np.abs(drawn.mean(axis=0) - f.mean(axis=0)) < 4.0 * error).all()
    np.testing.assert_allclose(drawn.std(axis=0), f.std(axis=0), rtol=0.15)


def test_more_draws_where_weights_are_less_equal(monkeypatch):
    """Evidences without bias all the same."""
    numbers = []
    original = many_draws.twisted.draw_side_by_side

    def counted(proposals, points):
        numbers.append(points.shape[-1])
        return original(proposals, points)

    monkeypatch.setattr(many_draws.twisted, "draw_side_by_side", counted)
    monkeypatch.setattr(many_draws, "_BIAS", 1e-6)
    found = run([case(1.5, 400.0, "signs")] * 300, 1)
    assert set(numbers) == {16, 64}
    ratio = np.exp([x.log_evidence - log_prob(1.5, 400.0, "signs") for x in found])
    assert abs(ratio.mean() - 1.0) < 4.0 * ratio.std() / np.sqrt(ratio.size)


def test_where_ep_fails_the_policy_decides(monkeypatch):
    monkeypatch.setattr(many_draws.policy, "twist_dense", lambda *args, **kwargs: None)
    found = run([case(ls, limits="signs") for ls in LENGTHS[:8]], 1)
    for x, ls in zip(found, LENGTHS, strict=False):
        exact = log_prob(ls, limits="signs")
        assert x.log_evidence == pytest.approx(exact, abs=5.0 * x.std_error + 1e-9)


# Draws of a Gaussian vector given rows that share noise in blocks, in the low-rank form.
#
# Evidences and moments, in either form, are compared with quadrature and with blocks of rows in
# `tests/observations` and `test_rows_in_blocks`.


K = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, 0.6], [0.2, 0.6, 0.8]])
M = np.array([0.3, -0.2, 0.1])


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
    rows = intervals(np.zeros(4), np.full(4, np.inf), sparse.csr_array(S), A=A)
    given = Conditioning(M, FactoredCovariance.of_kernel(K), rows)
    assert isinstance(given.cov, LowRankCovariance)
    np.testing.assert_allclose(given.cov.dense(), A @ K @ A.T + S, atol=1e-13)
    u = np.array([[0.4, -0.3, 1.2, 0.7]])
    gain = np.linalg.solve(A @ K @ A.T + S, A @ K)
    mean, cov = M + u[0] @ gain, K - (A @ K).T @ gain
    r = given.factor.shape[1]
    np.testing.assert_allclose(given.draw(u, Fixed(np.zeros((r, 1))))[0], mean, atol=1e-12)
    off = given.draw(u, Fixed(np.eye(r)), np.zeros(r, dtype=int)) - mean
    np.testing.assert_allclose(off.T @ off, cov, atol=1e-12)
