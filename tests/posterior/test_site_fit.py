"""What a posterior under sites gives: draws, forecasts, updates, and what it refuses."""

import numpy as np
import pytest
from site_oracles import Counts, Logit

from pymc_skewgp import SkewGPPosterior
from pymc_skewgp.likelihoods import BernoulliProbit, Gaussian

X = np.linspace(-2.0, 2.0, 12)[:, None]
Y = np.array([0, 1, 0, 2, 3, 5, 9, 6, 4, 1, 0, 1.0])
NEW = np.array([[-3.0], [-0.7], [0.0], [1.3]])


def rbf(X, Xs=None, diag=False):
    if diag:
        return np.full(len(X), 2.0)
    Xs = X if Xs is None else Xs
    return 2.0 * np.exp(-0.5 * (X - Xs.T) ** 2 / 0.8**2)


@pytest.fixture(scope="module")
def posterior():
    return SkewGPPosterior(X, Y, cov_func=rbf, likelihood=Counts(), n_draws=2048)


def test_draws_have_the_moments_of_the_marginals(posterior):
    f = posterior.sample(draws=1000, chains=4, random_seed=1)["posterior"]["f"].values
    assert f.shape == (4, 1000, 12)
    at = posterior.marginals()
    mean, sd = at.moments.mean, at.moments.sd
    flat = f.reshape(-1, 12)
    # Near-independent draws; resampling makes a few copies. Four standard errors for 24 numbers:
    # a false alarm once in six hundred seeds.
    assert (np.abs(flat.mean(axis=0) - mean) < 4.0 * sd / np.sqrt(3500)).all()
    assert (np.abs(flat.std(axis=0) / sd - 1.0) < 4.0 / np.sqrt(2 * 3500) * 1.2).all()


def test_joint_forecasts_have_the_moments_of_the_summary(posterior):
    tree = posterior.predict(NEW, draws=1000, chains=4, random_seed=2)
    f = tree["predictions"]["f"].values.reshape(-1, 4)
    summary = tree["predictions_summary"]
    sd = summary["f_sd"].values
    assert (np.abs(f.mean(axis=0) - summary["f_mean"].values) < 4.0 * sd / np.sqrt(3500)).all()
    assert (np.abs(f.std(axis=0) / sd - 1.0) < 0.06).all()


def test_what_is_no_row_is_refused_by_name(posterior):
    with pytest.raises(ValueError, match="no SUN"):
        _ = posterior.sun
    with pytest.raises(ValueError, match="leave method at its default"):
        posterior.sample(draws=5, method="lin_ess")
    with pytest.raises(TypeError, match="label 1"):
        posterior.probability(NEW)


def test_impossible_data_at_the_prior_mean_are_refused():
    class Positive(Counts):
        def log_likelihood(self, y, f):
            return np.where(f > 0, -f, -np.inf) + 0.0 * y

    with pytest.raises(ValueError, match="not finite in 12 of 12 rows at the mean"):
        _ = SkewGPPosterior(X, Y, cov_func=rbf, likelihood=Positive()).log_marginal_likelihood


def test_an_update_is_the_posterior_of_all_the_data(posterior):
    first = SkewGPPosterior(X[:7], Y[:7], cov_func=rbf, likelihood=Counts(), n_draws=2048)
    both = first.update(X[7:], Y[7:]).log_marginal_likelihood
    assert both == posterior.log_marginal_likelihood


def test_exact_points_alone_beside_sites_that_say_nothing():
    class Silent(Logit):
        def log_likelihood(self, y, f):
            return 0.0 * f

        def slopes(self, y, f):
            return 0.0 * f, 0.0 * f

    kinds = {"seen": (X[:5], Y[:5], Gaussian(0.3)), "silent": (X[5:], Y[5:], Silent())}
    both = SkewGPPosterior(kinds, cov_func=rbf)
    alone = SkewGPPosterior(X[:5], Y[:5], cov_func=rbf, likelihood=Gaussian(0.3))
    # The sites' quadrature is exact to 1e-8.
    assert both.log_marginal_likelihood.value == pytest.approx(
        alone.log_marginal_likelihood.value, abs=1e-6
    )
    found, wanted = both.marginals(NEW), alone.marginals(NEW)
    # Rounding of a regression without noise on draws at twelve near points.
    assert (
        np.abs(found.moments.mean - wanted.moments.mean) < 4.5 * found.moment_errors.mean + 1e-6
    ).all()
    assert (
        np.abs(found.moments.sd - wanted.moments.sd) < 4.5 * found.moment_errors.sd + 1e-6
    ).all()


def test_labels_beside_counts_keep_their_names():
    kinds = {
        "label": (X[:6], (Y[:6] > 1) * 1, BernoulliProbit()),
        "count": (X[6:], Y[6:], Counts()),
    }
    tree = SkewGPPosterior(kinds, cov_func=rbf).sample(draws=50, chains=2, random_seed=0)
    assert tree["posterior"]["f_label"].shape == (2, 50, 6)
    assert tree["log_likelihood"]["y_count"].shape == (2, 50, 6)
    assert tree["sample_stats"].attrs["method"] == "pairs"


def test_density_where_draws_leave_nothing_open_is_smooth():
    one = SkewGPPosterior([[0.0]], [3.0], cov_func=rbf, likelihood=Counts(), n_draws=4096)
    at = np.linspace(-1.0, 3.0, 41)
    f = np.linspace(-9.0, 9.0, 20001)
    log_density = 3.0 * f - np.exp(f) - 0.25 * f**2
    p = np.exp(log_density - log_density.max())
    wanted = np.interp(at, f, p / p.sum() / (f[1] - f[0]))
    found = one.marginals().density(at[:, None])[:, 0]
    # A kernel of a sixth of the deviation flattens the peak by two hundredths; and noise of draws.
    assert np.abs(found - wanted).max() < 0.05 * wanted.max()
