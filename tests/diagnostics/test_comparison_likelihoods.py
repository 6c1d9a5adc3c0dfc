"""`compare_approximations` under likelihoods of rows: against quadrature, and what it refuses."""

import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import function_grid
from scipy.stats import multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp._posterior.gaussian_posterior import ep_posterior, laplace_posterior
from pymc_skewgp.likelihoods import (
    CensoredGaussian,
    Gaussian,
    MultinomialProbit,
    OrderedProbit,
)

X = np.array([[0.0], [0.7], [1.6]])
NEW = np.array([[0.4], [3.0]])
CUTS, SIGMA = np.array([-0.5, 0.9]), 0.7
ENDS = np.array([-np.inf, -0.5, 0.9, np.inf])
Y = np.array([1, 2, 0])
QUICK = {"draws": 200, "chains": 2, "random_seed": 1, "progressbar": False}


def prior(**kwargs):
    return sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0), **kwargs)


def kernel(X, Xs):
    return 4.0 * np.exp(-0.5 * (X - Xs.T) ** 2)


def log_p(f):
    p = norm.cdf((ENDS[Y + 1] - f) / SIGMA) - norm.cdf((ENDS[Y] - f) / SIGMA)
    return np.log(np.maximum(p, 1e-300))


def test_rows_by_quadrature():
    found = sg.compare_approximations(
        prior(), X, Y, likelihood=OrderedProbit(CUTS, SIGMA), Xnew=NEW, **QUICK
    )
    table = found.table
    assert table.index.tolist() == ["exact", "lin_ess", "ep", "laplace"]
    assert (table["failure"] == "").all()
    grid = function_grid(np.zeros(3), kernel(X, X), lambda f: log_p(f).sum(axis=1))
    exact = table.loc["exact"]
    assert abs(exact["evidence"] - grid.log_evidence) < 4 * exact["evidence_se"] + 1e-5
    # What the two Gaussians say of the categories, and quadrature, at the new points.
    gain = np.linalg.solve(kernel(X, X), kernel(X, NEW))
    left = 4.0 - np.einsum("ij,ij->j", kernel(X, NEW), gain)
    s = np.sqrt(left + SIGMA**2)
    mean = gain.T @ grid.f
    edges = [norm.cdf((b - mean) / s[:, None]) @ grid.mass for b in ENDS]
    truth = np.diff(np.stack(edges, axis=1), axis=1)
    assert "p" not in found.trees["ep"]["predictions"]
    posterior = prior().posterior(X, Y, likelihood=OrderedProbit(CUTS, SIGMA))
    for name, method in (("ep", ep_posterior), ("laplace", laplace_posterior)):
        gaussian = method(posterior.prior, X, Y, NEW, OrderedProbit(CUTS, SIGMA))
        m, v = gaussian.mean[3:], gaussian.cov.diagonal()[3:]
        edges = [norm.cdf((b - m) / np.sqrt(v + SIGMA**2)) for b in ENDS]
        p = np.diff(np.stack(edges, axis=1), axis=1)
        row = table.loc[name]
        assert row["evidence"] == gaussian.log_evidence
        # The reference has 2048 draws: its own errors, and five of them.
        assert abs(row["p_error"] - np.abs(p - truth).mean()) < 5 * row["p_error_se"]
    # 400 draws: three times the noise that they should have is no accident.
    assert table.loc["exact", "p_error"] < 3 * table.loc["exact", "p_error_noise"]


@pytest.mark.parametrize(
    ("y", "likelihood", "forecasts"),
    [
        (np.array([0.4, 1.2, 0.0]), CensoredGaussian(SIGMA, lower=0.0), True),
        (np.array([0.4, 1.2, 0.0]), Gaussian(SIGMA), False),
    ],
)
def test_other_likelihoods(y, likelihood, forecasts):
    table = sg.compare_approximations(
        prior(), X, y, likelihood=likelihood, methods=["exact", "ep", "laplace"], **QUICK
    ).table
    assert (table["failure"] == "").all()
    assert np.isfinite(table["wasserstein"]).all()
    assert np.isfinite(table["p_error"]).all() == forecasts
    assert abs(table.loc["ep", "evidence"] - table.loc["exact", "evidence"]) < 0.1
    if not forecasts:  # regression: both are exact
        assert table.loc["laplace", "evidence"] == pytest.approx(table.loc["exact", "evidence"])
        assert table.loc["ep", "wasserstein"] < 1e-3


def test_several_functions():
    """Three classes at three points: EP's class probabilities by quadrature over its Gaussian."""
    likelihood = MultinomialProbit()
    found = sg.compare_approximations(
        prior(), X, Y, likelihood=likelihood, methods=["exact", "lin_ess", "ep", "laplace"],
        Xnew=NEW, **QUICK
    )  # fmt: skip
    table, t = found.table, 2
    assert (table["failure"] == "").all()
    assert found.trees["exact"]["posterior"]["f"].dims == ("chain", "draw", "obs_id", "category")
    assert "predictions" in found.trees["ep"]
    assert table[["information", "brier"]].isna().all(axis=None)
    posterior = prior().posterior(X, Y, likelihood=likelihood, n_draws=4096)
    evidence = posterior.log_marginal_likelihood
    assert abs(table.loc["ep", "evidence"] - evidence.value) < 0.05
    gaussian = ep_posterior(posterior.prior, X, Y, NEW, likelihood)
    cov = gaussian.cov[-3 * t :, -3 * t :].reshape(t, 3, t, 3)
    mean = gaussian.mean[-3 * t :].reshape(t, 3)
    # Where noise makes c the winner: two differences below 0, by Genz's closed form.
    p = np.empty((t, 3))
    for i, c in np.ndindex(t, 3):
        W = np.delete(np.eye(3), c, axis=0) - np.eye(3)[c]
        spread = W @ (cov[i, :, i] + np.eye(3)) @ W.T
        p[i, c] = multivariate_normal(W @ mean[i], spread).cdf([0.0, 0.0])
    exact = posterior.predict(NEW, draws=0)["predictions_summary"]
    wanted = np.abs(p - exact["p_mean"].values).mean()
    # Two independent references, of 2048 and 4096 draws: 6 standard errors of the rougher one.
    assert abs(table.loc["ep", "p_error"] - wanted) < 6 * table.loc["ep", "p_error_se"]
    # 400 draws: three times the noise that they should have is no accident.
    for name in ("exact", "lin_ess"):
        assert table.loc[name, "p_error"] < 3 * table.loc[name, "p_error_noise"]


def test_what_only_labels_have():
    likelihood = OrderedProbit(CUTS, SIGMA)
    table = sg.compare_approximations(
        prior(), X, Y, likelihood=likelihood, methods=["advi", "hsgp_nuts"], **QUICK
    ).table
    assert table["failure"].str.contains("PyMC's methods are compared on labels").all()
    with pytest.raises(ValueError, match="scores are of labels"):
        sg.compare_approximations(
            prior(), X, Y, likelihood=likelihood, Xnew=NEW, ynew=[0, 1], **QUICK
        )
    with pytest.raises(TypeError, match=r"object of pymc_skewgp\.likelihoods"):
        sg.compare_approximations(prior(), X, Y, likelihood="ordered", **QUICK)


def test_sites_by_default():
    """Counts have no rows for lin-ess, and PyMC's methods only where they are asked for."""
    table = sg.compare_approximations(
        prior(), X, [0, 2, 1], likelihood=sg.likelihoods.Poisson(), **QUICK
    ).table
    assert table.index.tolist() == ["exact", "ep", "laplace"]
    assert (table["failure"] == "").all()
