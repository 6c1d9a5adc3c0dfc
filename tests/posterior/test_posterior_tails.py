"""Probabilities smaller than the draws can resolve: in size right, with an error that says so."""

import numpy as np
import pytest
from approximation_oracles import rbf
from scipy.stats import norm

from pymc_skewgp import SkewGPPosterior

N_LABELS = 8


def posterior(variance, seed, n_draws=256, mean=0.0):
    """Eight labels 1 at one place (but for a millionth): f there is one number."""

    x = 1e-6 * np.arange(N_LABELS)[:, None]
    return SkewGPPosterior(
        x,
        np.ones(N_LABELS),
        cov_func=rbf(variance),
        mean_func=lambda X: np.full(len(X), mean),
        n_draws=n_draws,
        random_seed=seed,
    )


def exact(variance, mean=0.0):
    """P(y* = 0) there, by a trapezoidal rule over f: smooth, and 0 at both ends."""
    f = np.linspace(-15.0, mean + 9.0 * np.sqrt(variance), 400_001)
    density = norm.pdf((f - mean) / np.sqrt(variance)) * norm.cdf(f) ** N_LABELS
    return density @ norm.cdf(-f) / density.sum()


@pytest.mark.parametrize("variance", [1e2, 1e6])
def test_no_label_is_called_impossible(variance):
    truth = exact(variance)
    values, errors = np.transpose(
        [np.ravel(posterior(variance, seed).probability([[0.0]])) for seed in range(20)]
    )
    values = 1.0 - values
    # Of 256 draws the tail has 1 or none where its probability is below 1/256. Half a draw more,
    # a Gaussian's, keeps the estimate from 0: a hundredth of the truth would cost 6.6 bits.
    assert (values > 0.01 * truth).all()
    # Errors that say so: 20 runs within 5 of them. A tail met once in a hundred runs may lie
    # further out, above; none of these seeds' does.
    assert (np.abs(values - truth) < 5 * errors).all()


def test_draws_that_missed_a_tail_do_not_promise_to_know_it():
    """Labels that a prior N(8, 4) expects: P(y* = 0) is 7e-5, not a tenth of a draw of 1024."""
    truth = exact(4.0, mean=8.0)
    values, errors = np.transpose(
        [np.ravel(posterior(4.0, s, 1024, mean=8.0).probability([[0.0]])) for s in range(40)]
    )
    off = (1.0 - values - truth) / errors
    # The spread of the draws alone promised too much: up to 3.3 errors, 1.5 in the mean. Nor may
    # the error swallow everything: a tail that 1024 draws missed holds no more than a draw or so.
    assert np.sqrt(np.mean(off**2)) < 1.0
    assert (errors < 1 / 1024).all()
