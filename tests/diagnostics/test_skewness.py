"""Skewness of posteriors against closed forms and quadrature, and of draws against SciPy."""

import arviz as az
import numpy as np
import pytest
from approximation_oracles import rbf
from oracles import ou_probit_marginals, probit_posterior_quadrature
from scipy.stats import skew, skewnorm

from pymc_skewgp import LatentMarginals, SkewGPPosterior, posterior_skewness


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("variance", [0.25, 4.0, 100.0])
def test_one_label(variance, label):
    """f given one label is skew-normal with shape v^.5; errors stated are upper bounds."""
    found = posterior_skewness(SkewGPPosterior([0.0], [label], cov_func=rbf(variance)))
    exact = (2 * label - 1) * skewnorm(np.sqrt(variance)).stats("s")
    gap = np.abs(found["skewness"].values - exact)
    assert gap[0] < 4 * found["skewness_se"].values[0] < 0.4


def test_two_labels():
    kernel, X = rbf(9.0), np.array([[0.0], [0.8]])
    found = posterior_skewness(SkewGPPosterior(X, [1, 0], cov_func=kernel, n_draws=8192))
    exact = probit_posterior_quadrature(kernel(X), [1, 0]).skewness
    # 4 standard errors: false alarms 6e-5 each.
    assert (np.abs(found["skewness"] - exact) < 4 * found["skewness_se"]).all()
    assert (found["skewness_se"] < 0.05).all()


def test_many_labels_and_draws_of_the_same_posterior():
    """40 labels under an Ornstein-Uhlenbeck process, whose exact moments a filter gives.

    From the posterior, and from 4000 near-independent draws; the largest of 40 errors beyond 4.5
    standard errors: false alarms 3e-4 each.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 6.0, 40)
    y = (np.sin(x) + 0.5 * rng.standard_normal(40) > 0).astype(int)

    def ou(X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), 4.0)
        return 4.0 * np.exp(-np.abs(X - (X if Xs is None else Xs).T))

    exact = ou_probit_marginals(x, y, 1.0, 4.0)
    wanted = exact.third / exact.variance**1.5
    posterior = SkewGPPosterior(x, y, cov_func=ou, n_draws=4096)
    draws = posterior.sample(1000, random_seed=0)
    for source in (posterior, posterior.marginals(x), draws):
        found = posterior_skewness(source)
        name = "pred_id" if isinstance(source, LatentMarginals) else "obs_id"
        assert found["skewness"].dims == found["skewness_se"].dims == (name,)
        assert (np.abs(found["skewness"] - wanted) < 4.5 * found["skewness_se"]).all()


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
