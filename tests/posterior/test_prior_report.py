"""The report of an approximated prior, against closed forms and exact posteriors; "auto"."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal

import pymc_skewgp as sg
from pymc_skewgp._posterior import automatic as module
from pymc_skewgp.approximations import HSGP, Inducing, PivotedCholesky

KERNEL = 2.0 * pm.gp.cov.Matern32(2, ls=0.5)


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, (np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(int)


def posterior(approximation, likelihood=None, kernel=KERNEL, n=120):
    X, y = data(n)
    gp = sg.SkewGP(cov_func=kernel, approximation=approximation)
    return gp.posterior(X, y, likelihood=likelihood, n_draws=256)


def test_all_rows_as_points_change_nothing():
    X, _ = data()
    report = posterior(Inducing(X)).prior_report(80)
    # The nugget is 1e-8 of the variance.
    assert report["residual_variance_max"] < 1e-6
    assert report["kl_u"].max() < 1e-6
    # Five standard errors of two independent estimates: a false alarm in a million.
    error = np.hypot(report["log_evidence_se"], report["log_evidence_exact_se"])
    assert (abs(report["log_evidence"] - report["log_evidence_exact"]) < 5 * error + 1e-5).all()
    assert report["p_difference_max"].max() < 0.01
    assert list(report["part"].values) == ["neighbourhood", "random"]


@pytest.mark.filterwarnings("ignore::pymc_skewgp.PriorApproximationWarning")
def test_gaussian_data_are_compared_in_closed_form():
    rng = np.random.default_rng(1)
    X, _ = data()
    y = np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=len(X))
    gp = sg.SkewGP(cov_func=KERNEL, approximation=PivotedCholesky(10))
    known = gp.posterior(X, y, likelihood=sg.likelihoods.Gaussian(0.3))
    report = known.prior_report(2000)
    features = PivotedCholesky(10).features(known.prior, X)
    phi, rest = features.at(X)
    K = known.prior.covariance("X", X)
    left = K.diagonal() - (phi**2).sum(axis=1)
    assert report["residual_variance_mean"] == pytest.approx(left.mean())
    assert report["residual_share_mean"] == pytest.approx(left.mean() / 2.0)
    # Both parts are all rows but for 24 that forecasts are compared at; EP is exact for points.
    assert (report["n_seen"] == 96).all()
    approximate = phi @ phi.T + np.diag(rest + 0.09)
    assert report["ep_log_evidence"].values[0] == pytest.approx(
        multivariate_normal(np.zeros(y.size), approximate).logpdf(y), abs=1e-4
    )
    assert list(report["rank"].values) == [10, 20]
    assert np.isnan(report["p"]).all()
    assert (report["f_mean_difference"] > 0.1).all()


def test_kl_of_the_noisy_values():
    X, _ = data()
    known = posterior(Inducing(8))
    with pytest.warns(sg.PriorApproximationWarning):
        report = known.prior_report(2000, random_seed=3)
    # The same rows again, by the matrices of all of them.
    phi, rest = Inducing(8).features(known.prior, X).at(X)
    exact = known.prior.covariance("X", X) + np.eye(len(X))
    approximate = phi @ phi.T + np.diag(rest + 1.0)
    whole = 0.5 * (
        np.trace(np.linalg.solve(approximate, exact))
        - len(X)
        + np.linalg.slogdet(approximate)[1]
        - np.linalg.slogdet(exact)[1]
    )
    # Of a part of the rows it is less than of all, and not much less of four in five.
    assert (report["kl_u"] < whole).all()
    assert (report["kl_u"] > 0.3 * whole).all()


def test_a_rough_kernel_is_warned_of_and_a_smooth_one_is_not():
    rough = 4.0 * pm.gp.cov.Matern12(2, ls=0.3)
    with pytest.warns(sg.PriorApproximationWarning, match=r"Inducing\(6\) differs from the kernel"):
        posterior(Inducing(6), kernel=rough).prior_report(100)
    smooth = 2.0 * pm.gp.cov.ExpQuad(2, ls=1.0)
    posterior(Inducing(40), kernel=smooth).prior_report(100)  # a warning is an error
    report = posterior(HSGP(12, c=4.0), kernel=smooth).prior_report(100)
    assert list(report["rank"].values) == [144, 576]


def test_sites_have_no_noisy_values():
    report = posterior(Inducing(60), sg.likelihoods.BernoulliLogit()).prior_report(60)
    assert np.isnan(report["kl_u"]).all()
    assert np.isfinite(report["p"]).all()


def test_nothing_to_report():
    with pytest.raises(sg.ApproximationError, match="nothing to report"):
        posterior(None).prior_report()
    X, y = data(20)
    gp = sg.SkewGP(cov_func=KERNEL, approximation=Inducing(5))
    known = gp.posterior([(X, y, sg.likelihoods.BernoulliProbit())] * 2)
    with pytest.raises(sg.ApproximationError, match="one kind"):
        known.prior_report()


def test_automatic_leaves_other_likelihoods_as_they_are(monkeypatch):
    monkeypatch.setattr(module, "MANY_ROWS", 10)
    X, _ = data(12)
    gp = sg.SkewGP(cov_func=KERNEL)
    duels = np.stack([np.arange(11), np.arange(1, 12)], axis=1)
    joined = gp.posterior(X, duels, likelihood=sg.likelihoods.Preference(0.5, noise="item"))
    assert joined.prior.approximation is None
    classes = gp.posterior(X, np.arange(12) % 3, likelihood=sg.likelihoods.MultinomialProbit())
    assert classes.prior.approximation.points == 300


def test_points_by_the_number_of_rows():
    assert module.automatic(10**4).points == 300
    assert module.automatic(10**6).points == 134  # 2^30 bytes of features
    assert module.automatic(10**8).points == 100
    assert module.automatic(10**4, 6).points == 200  # 1200 coordinates of six functions
