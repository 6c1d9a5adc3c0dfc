"""Skewness of posteriors against quadrature, and of draws against SciPy."""

import arviz as az
import numpy as np
from approximation_oracles import rbf
from oracles import probit_posterior_quadrature
from scipy.stats import skew

from pymc_skewgp import LatentMarginals, SkewGPPosterior, posterior_skewness


def test_two_labels():
    kernel, X = rbf(9.0), np.array([[0.0], [0.8]])
    posterior = SkewGPPosterior(X, [1, 0], cov_func=kernel, n_draws=8192)
    exact = probit_posterior_quadrature(kernel(X), [1, 0]).skewness
    draws = posterior.sample(1000, random_seed=0)
    for source in (posterior, posterior.marginals(X), draws):
        found = posterior_skewness(source)
        name = "pred_id" if isinstance(source, LatentMarginals) else "obs_id"
        assert found["skewness"].dims == found["skewness_se"].dims == (name,)
        # 4.5 standard errors: false alarms 7e-6 each.
        assert (np.abs(found["skewness"] - exact) < 4.5 * found["skewness_se"]).all()
        assert (found["skewness_se"] < (0.1 if source is draws else 0.05)).all()


def test_of_draws():
    draws = np.random.default_rng(0).gamma(2.0, size=(4, 500, 2, 3))
    tree = az.from_dict(
        {"predictions": {"g": draws}},
        pred_dims={"g": ["a", "b"]},
        pred_coords={"b": ["x", "y", "z"]},
    )
    found = posterior_skewness(tree, var="g", group="predictions")
    assert found["skewness"].dims == ("a", "b")
    np.testing.assert_allclose(found["skewness"], skew(draws.reshape(-1, 2, 3), axis=0), rtol=1e-12)
    assert found["b"].values.tolist() == ["x", "y", "z"]
    # Gamma with shape 2 has skewness 2 / sqrt(2); six errors beyond 4.5 standard ones: 4e-5.
    assert (np.abs(found["skewness"] - np.sqrt(2.0)) < 4.5 * found["skewness_se"]).all()
