"""Estimators that average over hyperparameters: closed forms, quadrature, and the interface."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from oracles import orthant
from scipy import stats

import pymc_skewgp as sg

X2, NEW = np.array([[-0.4], [0.5]]), np.array([[0.1], [1.5]])


def kernel(d):
    return 9.0 * pm.gp.cov.ExpQuad(d, ls=pm.LogNormal("ls", 0.0, 0.7))


@pytest.mark.slow(ci=True)
def test_binary_classes():
    """Two labels and one lengthscale, by quadrature of orthants."""
    nodes, w = np.polynomial.legendre.leggauss(60)
    log_ls, w = 4.0 * nodes, 4.0 * w
    prior = stats.norm(0.0, 0.7).pdf(log_ls) * w

    def signed(x, signs, ls):
        G = 9.0 * np.exp(-0.5 * ((x - x.T) / ls) ** 2) + np.eye(len(x))
        return signs[:, None] * G * signs

    two = prior @ [orthant(signed(X2, np.array([1, -1.0]), a)) for a in np.exp(log_ls)]
    p = [
        prior
        @ [orthant(signed(np.vstack([X2, x]), np.array([1, -1.0, 1]), a)) for a in np.exp(log_ls)]
        / two
        for x in NEW
    ]
    model = sg.SkewGPClassifier(
        kernel, hyperparameters="average", fit_intercept=False, random_state=0
    )
    model.fit(X2, [1, 0])
    evidence = model.log_marginal_likelihood_
    assert abs(evidence.value - np.log(two)) < 4 * evidence.std_error
    assert evidence.std_error < 0.1
    found = model.posterior_.probability(NEW)
    assert (np.abs(found.value - p) < 4 * found.std_error).all()
    assert (found.std_error < 0.05).all()
    np.testing.assert_array_equal(model.predict_proba(NEW)[:, 1], found.value)
    drawn = model.hyperparameters_["posterior"]["ls"]
    assert drawn.shape == (1, 1000)
    # As many effective draws as points, 32, and no more: an estimate with an error of a third.
    assert 8.0 < float(az.ess(drawn)) < 80.0
    summary = model.posterior_.predict(NEW, draws=0)["predictions_summary"]
    np.testing.assert_allclose(summary["p_mean"], found.value, rtol=1e-10)
    np.testing.assert_allclose(summary["p_mean_se"], found.std_error, rtol=1e-6)
    drawn = model.sample_latent(NEW, draws=200, chains=2, random_state=1)["predictions"]
    assert dict(drawn["p"].sizes) == {"chain": 2, "draw": 200, "pred_id": 2}
    # 400 draws of standard deviation of at most a half, and the points' own error.
    assert (np.abs(drawn["p"].mean(("chain", "draw")) - p) < 0.1 + 4 * found.std_error).all()
    # f has the variance of the mixture: that of its draws.
    sd = drawn["f"].std(("chain", "draw"))
    np.testing.assert_allclose(summary["f_sd"], sd, rtol=0.25)  # four standard errors of 400 draws
    at_data = model.to_datatree(draws=100, chains=2, random_state=1)
    assert dict(at_data["posterior"]["f"].sizes) == {"chain": 2, "draw": 100, "obs_id": 2}


def test_regression_spreads_with_the_noise():
    """Mean and variance of y are those of the mixture: by the parts themselves, point by point."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 5, 12)[:, None]
    y = np.sin(x[:, 0]) + 0.2 * rng.normal(size=12)
    model = sg.SkewGPRegressor(hyperparameters="average", random_state=0).fit(x, y)
    mean, sd = model.predict([[2.2], [7.0]], return_std=True)
    parts = [
        p.predict([[2.2], [7.0]], draws=0)["predictions_summary"]
        for p in model.posterior_.posteriors
    ]
    w = model.posterior_.weights
    means, sds = (np.array([p[name].values for p in parts]) for name in ("y_mean", "y_sd"))
    np.testing.assert_allclose(mean, w @ means, rtol=1e-10)
    np.testing.assert_allclose(sd**2, w @ (sds**2 + means**2) - (w @ means) ** 2, rtol=1e-8)
    # The level is integrated out with f, and is no hyperparameter.
    assert set(model.hyperparameters_["posterior"].data_vars) == {"sigma", "eta", "ls"}


def test_a_kernel_without_hyperparameters():
    def fixed(d):
        return 9.0 * pm.gp.cov.ExpQuad(d, ls=0.7)

    average = sg.SkewGPClassifier(fixed, hyperparameters="average", random_state=0)
    plain = sg.SkewGPClassifier(fixed, random_state=0)
    p, q = (m.fit(X2, [0, 1]).posterior_.probability(NEW) for m in (average, plain))
    assert (np.abs(p.value - q.value) < 4 * np.hypot(p.std_error, q.std_error)).all()
