"""Weights: resampling that keeps its promise, diagnostics with known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pymc_skewgp._gaussian.weights import (
    Estimate,
    chain_relative_ess,
    pareto_k,
    relative_ess,
    replicate_estimate,
    spread_of_replicates,
    systematic_resample,
    weighted_error,
)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(1, 200))
def test_systematic_counts_are_floor_or_ceiling(seed, size, n):
    rng = np.random.default_rng(seed)
    log_weights = rng.normal(size=size) * 3 - 1e4  # far from zero: only ratios count
    chosen = systematic_resample(log_weights, n, rng)
    assert chosen.shape == (n,)
    weights = np.exp(log_weights - log_weights.max())
    expected = n * weights / weights.sum()
    counts = np.bincount(chosen, minlength=size)
    # 1e-9: the cumulative sum may round an expected count across an integer.
    assert (counts >= np.floor(expected - 1e-9)).all()
    assert (counts <= np.ceil(expected + 1e-9)).all()


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_pareto_k_of_pareto_weights(shape):
    """Weights with an exact generalised Pareto tail, 20000 of them: the tail of 3 sqrt(n) = 424
    fixes k to (1 + k)/sqrt(424) = .05 to .09; 4.5 of these, false-alarm rate 7e-6 each."""
    weights = stats.genpareto(shape).rvs(20000, random_state=np.random.default_rng(4)) + 1.0
    error = (1.0 + shape) / np.sqrt(424)
    assert pareto_k(np.log(weights)) == pytest.approx(shape, abs=4.5 * error)
    # Only ratios count.
    assert pareto_k(np.log(weights) - 700.0) == pytest.approx(pareto_k(np.log(weights)), abs=1e-6)


def test_pareto_k_without_a_tail():
    assert pareto_k(np.zeros(1000)) == -np.inf
    assert pareto_k(np.arange(5.0)) == -np.inf  # too few to tell
    assert pareto_k(np.log(np.random.default_rng(5).uniform(1, 2, 4000))) < 0.0


def test_relative_ess():
    assert relative_ess(np.full(7, -900.0)) == pytest.approx(1.0)
    assert relative_ess(np.array([0.0, -np.inf, -np.inf, -np.inf])) == pytest.approx(0.25)
    # Weights 1 and 3: (1 + 3)^2 / (1 + 9) / 2.
    assert relative_ess(np.log([1.0, 3.0])) == pytest.approx(0.8)


def test_replicate_estimate_by_hand():
    """Two blocks with means 2 and 4: mean 3, standard error of the ratio sqrt(2)/3/sqrt(2).

    To it a fifth of plain Monte Carlo's error is added, in squares.
    """
    estimate = replicate_estimate(np.log([1.0, 3.0, 4.0, 4.0]), 2)
    assert estimate.value == pytest.approx(np.log(3.0))
    plain = np.sqrt((4 * 42 / 144 - 1) / 4)
    assert estimate.std_error == pytest.approx(np.hypot(1.0 / 3.0, 0.2 * plain))
    assert estimate.relative_ess == pytest.approx(144 / 42 / 4)


def test_replicate_standard_error_covers():
    """Log-normal weights: |error|/SE of 8 blocks is Student t with 7 degrees of freedom.

    400 runs; the share within the t-interval of 95% is binomial: .95 +- 5 x .011.
    """
    rng = np.random.default_rng(6)
    bound, inside = stats.t(7).ppf(0.975), 0
    for _ in range(400):
        estimate = replicate_estimate(0.3 * rng.normal(size=800) - 0.045, 8)
        inside += abs(estimate.value) < bound * estimate.std_error
    assert abs(inside / 400 - 0.95) < 5 * 0.011


def test_one_replicate_has_no_standard_error():
    assert replicate_estimate(np.zeros(4), 1).std_error == np.inf
    assert spread_of_replicates(np.zeros(1), 0.0) == np.inf


def test_chain_relative_ess():
    """Independent draws have a relative ESS of 1, AR(1) ones of (1 - a)/(1 + a).

    The estimator's own error at 8 x 2000 draws is some 5%.
    """
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(8, 2000, 1))
    assert chain_relative_ess(noise) == pytest.approx(1.0, abs=0.15)
    chain = noise.copy()
    for t in range(1, 2000):
        chain[:, t] = 0.8 * chain[:, t - 1] + 0.6 * noise[:, t]
    assert chain_relative_ess(np.concatenate([noise, chain], axis=2)) == pytest.approx(
        0.2 / 1.8, rel=0.25
    )
    assert chain_relative_ess(noise[:, :2]) == 0.5  # too short: no estimate


@pytest.mark.parametrize(
    ("ess", "k", "heavy", "said"),
    [
        (1.0, 0.94, False, "-1.0000 +- 0.1 (relative ESS 1.00)"),
        (0.5, 0.94, False, "-1.0000 +- 0.1 (relative ESS 0.50)"),
        (0.4, -np.inf, False, "-1.0000 +- 0.1 (relative ESS 0.40)"),
        (0.4, 0.69, False, "-1.0000 +- 0.1 (relative ESS 0.40, Pareto k 0.69)"),
        (0.4, 0.7, True, "from 0.7 on the error is unreliable)"),
        (0.4, np.inf, True, "Pareto k inf, and from 0.7 on"),
    ],
)
def test_the_tail_is_named_where_the_error_depends_on_it(ess, k, heavy, said):
    estimate = Estimate(-1.0, 0.1, ess, k)
    assert estimate.heavy_tailed == heavy
    assert said in str(estimate)


@pytest.mark.parametrize("size", [1, 4])
def test_error_of_draws_that_depend_on_each_other(size):
    """Equal numbers add up; numbers that cancel leave a fifth of independent draws' error."""
    x = np.random.default_rng(6).standard_normal((20, size))
    x -= x.mean()
    replicate = np.tile(np.repeat(np.arange(20), size), 2)  # in no order of its own
    weights = np.full(replicate.size, 1.0 / replicate.size)
    same, opposite = np.tile(x.ravel(), 2), np.concatenate([x.ravel(), -x.ravel()])
    found = weighted_error(np.stack([same, opposite]), weights, replicate)
    independent = np.sqrt(2.0 * np.square(x).sum()) / replicate.size
    # The standard error of a mean of 20 numbers, by its textbook formula.
    of_means = x.mean(axis=1).std(ddof=1) / np.sqrt(20)
    np.testing.assert_allclose(found, [of_means, 0.2 * independent])


def test_few_replicates_are_not_believed():
    x = np.array([1.0, -1.0, 1.0, -1.0])  # two that agree, by chance
    weights = np.full(4, 0.25)
    found = weighted_error(x, weights, np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(found, weighted_error(x, weights, None))
