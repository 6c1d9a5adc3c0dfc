"""`SkewGP.posterior` is `SkewGPPosterior` with PyMC's kernels and means."""

import numpy as np
import pymc as pm
import pytest

from pymc_skewgp import SkewGP, SkewGPPosterior

cov = pm.gp.cov
X = np.array([[-1.0], [0.2], [0.9], [2.0]])
Y = [0, 1, 1, 0]


def matern(X, Xs=None, diag=False):
    if diag:
        return np.full(len(X), 4.0)
    r = np.sqrt(5.0) * np.abs(X - (X if Xs is None else Xs).T) / 0.8
    return 4.0 * (1.0 + r + r**2 / 3.0) * np.exp(-r)


def test_equal_to_the_array_form():
    pseudo = {"pseudo_points": [[0.5], [3.0]], "phase": [-1, 1], "truncation": [0.3, 0.0]}
    gp = SkewGP(
        mean_func=pm.gp.mean.Linear([0.5], 0.1), cov_func=2.0**2 * cov.Matern52(1, ls=0.8), **pseudo
    )
    found = gp.posterior(X, Y, random_seed=3)
    expected = SkewGPPosterior(
        X, Y, cov_func=matern, mean_func=lambda X: 0.5 * X[:, 0] + 0.1, random_seed=3, **pseudo
    )
    # The same draws under matrices equal to round-off.
    assert found.log_marginal_likelihood.value == pytest.approx(
        expected.log_marginal_likelihood.value, abs=1e-8
    )
    tree, other = (p.predict([[0.0], [5.0]], random_seed=1) for p in (found, expected))
    for name in ("f_mean", "f_sd", "f_skewness", "p_mean", "f_quantile"):
        np.testing.assert_allclose(
            tree["predictions_summary"][name], other["predictions_summary"][name], atol=1e-7
        )
    np.testing.assert_allclose(
        found.sample(20, random_seed=2)["posterior"]["f"],
        expected.sample(20, random_seed=2)["posterior"]["f"],
        atol=1e-6,
    )


def test_nan_hyperparameter_is_refused():
    with pm.Model():
        ls = pm.Gamma("ls", 2, 1)
    posterior = SkewGP(cov_func=cov.ExpQuad(1, ls=ls)).posterior(X, Y, point={"ls": np.nan})
    with pytest.raises(ValueError, match=r"cov_func gave NaN .* check its hyperparameters"):
        _ = posterior.log_marginal_likelihood


def test_arguments_reach_the_posterior():
    gp = SkewGP(cov_func=cov.ExpQuad(1, ls=1.0), pseudo_points=[[0.0], [1.0]])
    posterior = gp.posterior(X, Y, n_draws=64, random_seed=1)
    assert repr(posterior) == (
        "SkewGPPosterior(n=4, n_features=1, likelihood=BernoulliProbit(), n_pseudo_points=2, "
        "fitted=False)"
    )
    assert posterior.latent.draws.shape == (64, 6)
    other = gp.posterior(X, Y, n_draws=64, random_seed=2)
    assert not np.isin(posterior.latent.draws, other.latent.draws).any()
