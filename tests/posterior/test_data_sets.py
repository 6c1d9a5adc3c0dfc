"""Data of several kinds on one function, against a grid over the function itself."""

import numpy as np
import pytest
from observation_oracles import grid_posterior

import pymc_skewgp as sg

X1, X2 = np.array([[0.0], [1.0]]), np.array([[0.4]])
LABELS, VALUES, SIGMA = np.array([0, 1]), np.array([0.3]), 0.5


def kernel(X, Xs=None, diag=False):
    if diag:
        return np.full(len(X), 2.0)
    Xs = X if Xs is None else Xs
    return 2.0 * np.exp(-0.5 * (X - Xs.T) ** 2)


KINDS = {
    "labels": (X1, LABELS, sg.likelihoods.BernoulliProbit()),
    "values": (X2, VALUES, sg.likelihoods.Gaussian(SIGMA)),
}


@pytest.fixture(scope="module")
def expected():
    X = np.vstack([X1, X2])
    inf = np.inf
    return grid_posterior(
        np.zeros(3),
        kernel(X) + 1e-12 * np.eye(3),
        np.eye(3),
        np.zeros(3),
        [1.0, 1.0, SIGMA**2],
        [-inf, 0.0, np.nan],
        [0.0, inf, np.nan],
        [np.nan, np.nan, VALUES[0]],
    )


def test_evidence_and_moments(expected):
    posterior = sg.SkewGPPosterior(KINDS, cov_func=kernel, n_draws=16384)
    # Two intervals: exact, by the bivariate distribution function.
    assert posterior.log_marginal_likelihood.value == pytest.approx(expected.log_evidence, abs=1e-7)
    mean, sd, _ = posterior.marginals().moments
    # Monte Carlo errors of 16384 quasi-random draws are of 1e-4.
    np.testing.assert_allclose(mean, expected.mean, atol=2e-3)
    np.testing.assert_allclose(sd, np.sqrt(expected.cov.diagonal()), atol=2e-3)


def test_names_and_order():
    posterior = sg.SkewGPPosterior(KINDS, cov_func=kernel)
    dt = posterior.sample(50, 2, random_seed=1)
    assert dict(dt["posterior"].sizes) == {
        "chain": 2,
        "draw": 50,
        "obs_id_labels": 2,
        "obs_id_values": 1,
    }
    assert set(dt["log_likelihood"].data_vars) == {"y_labels", "y_values"}
    summary = posterior.predict(X2, draws=0)["predictions_summary"]
    assert {"p_mean_labels", "p_mean_labels_se", "y_mean_values", "y_sd_values"} <= set(
        summary.data_vars
    )
    assert posterior.likelihood == tuple(kind[2] for kind in KINDS.values())


@pytest.mark.parametrize(
    ("X", "y", "likelihood", "message"),
    [
        (X1, None, None, "y is missing"),
        ([], None, None, "there are no data"),
        ([(X1, LABELS)], None, None, "must be a tuple"),
        ({"a": (X1, LABELS, None)}, None, sg.likelihoods.BernoulliProbit(), "has its own"),
        ({"a": (X1, [0, 2], None)}, None, None, "in the data 'a': y must hold two classes"),
        ([(X1, LABELS, None), (np.zeros((2, 2)), LABELS, None)], None, None, "number of columns"),
    ],
)
def test_bad_input(X, y, likelihood, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sg.SkewGPPosterior(X, y, likelihood=likelihood, cov_func=kernel)
