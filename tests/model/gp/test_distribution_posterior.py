"""`gp.posterior` under PyMC distributions: as the built-in likelihoods, and by quadrature."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

from pymc_skewgp import NotSitesError, SkewGP, likelihoods

X = np.linspace(-2.0, 2.0, 12)[:, None]
EXPOSURE = np.linspace(0.5, 3.0, 12)
COUNTS = np.array([0, 1, 0, 2, 3, 5, 9, 7, 4, 2, 2, 0])
LABELS = np.array([0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0, 0])
POSITIVE = np.array([0.3, 0.2, 1.1, 2.0, 0.8, 3.0, 4.1, 2.2, 0.9, 1.2, 0.4, 0.6])
GP = SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=0.8))
SKEW = SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=0.8), pseudo_points=[[0.5]])

SAME = {
    "poisson": (lambda eta: pm.Poisson.dist(pm.math.exp(eta)), likelihoods.Poisson(), COUNTS),
    "poisson with exposures": (
        lambda eta: pm.Poisson.dist(EXPOSURE * pm.math.exp(eta)),
        likelihoods.Poisson(EXPOSURE),
        COUNTS,
    ),
    "negative binomial": (
        lambda eta: pm.NegativeBinomial.dist(mu=pm.math.exp(eta), alpha=3.0),
        likelihoods.NegativeBinomial(3.0),
        COUNTS,
    ),
    "logit": (lambda eta: pm.Bernoulli.dist(logit_p=eta), likelihoods.BernoulliLogit(), LABELS),
    "gamma": (
        lambda eta: pm.Gamma.dist(alpha=2.0, beta=2.0 / pm.math.exp(eta)),
        likelihoods.Gamma(2.0),
        POSITIVE,
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_same_posterior_as_the_built_in_likelihood(name):
    """Equal seeds, equal numbers: what differs is round-off in log p.

    Beside a rectangle, of pseudo-points, it decides which draws are kept: then to their error.
    """
    distribution, built_in, y = SAME[name]
    gp = SKEW if name == "poisson" else GP
    ours = gp.posterior(X, y, likelihood=distribution)
    known = gp.posterior(X, y, likelihood=built_in)
    ours_evidence, evidence = ours.log_marginal_likelihood, known.log_marginal_likelihood
    # EP stops at a residual, its derivatives have 8 digits: far below the Monte Carlo error.
    drawn = gp is SKEW
    atol = 4 * evidence.std_error if drawn else 1e-5
    assert evidence.std_error < 0.01
    np.testing.assert_allclose(ours_evidence.value, evidence.value, rtol=0, atol=atol)
    ours_new = ours.predict([[0.3], [1.7]], draws=50, chains=1, random_seed=1)
    new = known.predict([[0.3], [1.7]], draws=50, chains=1, random_seed=1)
    mine, theirs = ours_new["predictions_summary"], new["predictions_summary"]
    for variable in ("f_mean", "f_sd", "f_skewness"):
        atol = 4 * theirs[f"{variable}_se"] if drawn else 1e-4
        assert (np.abs(mine[variable] - theirs[variable]) < atol).all()
    if name in ("poisson", "negative binomial", "gamma"):
        atol = 4 * theirs["y_mean_se"] if drawn else 1e-4 * theirs["y_mean"]
        assert (np.abs(mine["y_mean"] - theirs["y_mean"]) < atol).all()
        # 5 standard errors of the draws that y_sd is from: false alarm 1e-6 for each of 6.
        off = np.abs(mine["y_sd"] - theirs["y_sd"])
        assert (off < 5 * np.hypot(mine["y_sd_se"], theirs["y_sd_se"])).all()
    if name == "poisson with exposures":
        assert "y_mean" not in mine  # at new points there is no exposure


# What has no likelihood of its own: distribution, y, log density by SciPy.
ALONE = {
    "beta": (
        lambda eta: pm.Beta.dist(mu=pm.math.sigmoid(eta), nu=5.0),
        np.array([0.2, 0.9]),
        lambda y, f: stats.beta.logpdf(y, 5 * expit(f), 5 * expit(-f)),
    ),
    "zero inflated": (
        lambda eta: pm.ZeroInflatedPoisson.dist(psi=0.7, mu=pm.math.exp(eta)),
        np.array([0, 4]),
        lambda y, f: np.where(
            y == 0,
            np.logaddexp(np.log(0.3), np.log(0.7) - np.exp(f)),
            np.log(0.7) + stats.poisson.logpmf(y, np.exp(f)),
        ),
    ),
    "scale": (
        lambda eta: pm.Normal.dist(0.0, pm.math.exp(eta)),
        np.array([0.3, -2.5]),
        lambda y, f: stats.norm.logpdf(y, 0.0, np.exp(f)),
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow(ci=True) if name == "zero inflated" else ())
        for name in ALONE
    ],
)
def test_two_points_by_quadrature(name):
    distribution, y, log_density = ALONE[name]
    x = np.array([[0.0], [0.7]])
    posterior = GP.posterior(x, y, likelihood=distribution, n_draws=4096)
    cov = 2.0 * np.exp(-0.5 * (x - x.T) ** 2 / 0.8**2)
    # A trapezoid rule in white coordinates: exact to 1e-12 for such smooth functions.
    grid = np.linspace(-9.0, 9.0, 361)
    white = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    f = white @ np.linalg.cholesky(cov).T
    log_weight = stats.norm.logpdf(white).sum(axis=1) + log_density(y, f).sum(axis=1)
    expected = logsumexp(log_weight) + 2 * np.log(grid[1] - grid[0])
    found = posterior.log_marginal_likelihood
    assert abs(found.value - expected) < 4 * found.std_error + 1e-6
    assert found.std_error < 0.02
    weight = np.exp(log_weight - logsumexp(log_weight))
    mean = weight @ f
    moments = posterior.predict(x, draws=0)["predictions_summary"]
    # 4.5 standard errors at 2 points of 3 cases: false alarm 4e-5.
    assert (np.abs(moments["f_mean"] - mean) < 4.5 * moments["f_mean_se"] + 1e-6).all()


def test_beside_other_data_and_with_hyperparameters():
    with pm.Model():
        alpha = pm.HalfNormal("alpha")

    def counts(eta):
        return pm.NegativeBinomial.dist(mu=pm.math.exp(eta), alpha=alpha)

    seen = (X[:4], POSITIVE[:4], likelihoods.Gaussian(0.3))
    kinds = {"counts": (X, COUNTS, counts), "seen": seen}
    mixed = GP.posterior(kinds, point={"alpha": 3.0})
    known = {"counts": (X, COUNTS, likelihoods.NegativeBinomial(3.0)), "seen": seen}
    expected = GP.posterior(known).log_marginal_likelihood
    np.testing.assert_allclose(mixed.log_marginal_likelihood.value, expected.value, atol=1e-5)
    drawn = mixed.sample(draws=20, chains=2, random_seed=1)
    assert drawn["posterior_predictive"]["y_counts"].shape == (2, 20, 12)
    with pytest.raises(ValueError, match=r"alpha of a model: give values, as in point="):
        GP.posterior(kinds)


def test_errors_of_data_say_which():
    kinds = {"times": (X, POSITIVE, lambda eta: pm.Exponential.dist(eta))}
    with pytest.raises(ValueError, match="in the data 'times': the log likelihood is not finite"):
        GP.posterior({**kinds, "labels": (X, LABELS, None)})
    with pytest.raises(NotSitesError, match="Sum"):
        GP.posterior(
            X, COUNTS, likelihood=lambda eta: pm.Poisson.dist(pm.math.exp(eta) + eta.sum())
        )


def test_without_draws_of_y_there_are_those_of_f():
    def laplace(eta):
        return pm.CustomDist.dist(eta, logp=lambda y, eta: -abs(y - eta) - np.log(2.0))

    drawn = GP.posterior(X, POSITIVE, likelihood=laplace).sample(draws=10, chains=1, random_seed=1)
    assert "posterior_predictive" not in drawn.children
    assert drawn["log_likelihood"]["y"].shape == (1, 10, 12)


def test_update_of_a_distribution():
    first = GP.posterior(X[:6], COUNTS[:6], likelihood=SAME["poisson"][0])
    both = first.update(X[6:], COUNTS[6:]).log_marginal_likelihood
    whole = GP.posterior(X, COUNTS, likelihood=SAME["poisson"][0]).log_marginal_likelihood
    np.testing.assert_allclose(both.value, whole.value, atol=1e-9)
