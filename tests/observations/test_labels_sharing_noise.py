"""Labels that share noise, against quadrature, and where they coincide with others."""

import likelihood_oracles as oracle
import numpy as np
import pymc as pm
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal

import pymc_skewgp as sg
from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian.covariance import DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp.likelihoods import BernoulliProbit

X = np.array([[0.0], [0.7], [2.0]])
NEW = np.array([[0.4], [5.0]])
NOISE = np.array([[1.0, 0.8, -0.2], [0.8, 1.0, 0.1], [-0.2, 0.1, 1.0]])


def posterior_of(y, likelihood, X=X, **kwargs):
    return sg.SkewGPPosterior(
        X, y, likelihood=likelihood, cov_func=oracle.kernel, n_draws=8192, **kwargs
    )


def log_both(f, y, rho):
    """Log probability of two labels given f, shape (N, 2): an integral over what noise shares."""
    side = np.where(np.array(y) == 1, 1.0, -1.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    p = np.zeros(len(f))
    for z, weight in zip(np.sqrt(rho) * nodes, weights / weights.sum(), strict=True):
        p += weight * ndtr(side * (f + z) / np.sqrt(1.0 - rho)).prod(axis=1)
    return np.log(np.maximum(p, 1e-300))


def test_two_labels():
    y, rho = [1, 0], 0.7
    posterior = posterior_of(y, BernoulliProbit([[1.0, rho], [rho, 1.0]]), X=X[:2])
    K = oracle.kernel(X[:2])
    found = oracle.function_grid(np.zeros(2), K, lambda f: log_both(f, y, rho))
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - found.log_evidence) < max(4 * evidence.std_error, 1e-5)
    mean, sd, _ = posterior.marginals().moments
    mean_se, sd_se, _ = posterior.marginals().moment_errors
    # Four standard errors: with a fixed seed, a false alarm in 16000 a number.
    assert (np.abs(mean - found.mean) < 4 * mean_se + 1e-5).all()
    assert (np.abs(sd - np.sqrt(found.cov.diagonal())) < 4 * sd_se + 1e-5).all()
    # A new label has noise of its own, of variance 1.
    gain = np.linalg.solve(K, oracle.kernel(X[:2], NEW))
    left = 2.0 - (oracle.kernel(X[:2], NEW) * gain).sum(axis=0)
    want = [
        found.average(ndtr(gain[:, i] @ found.f / np.sqrt(1.0 + left[i]))) for i in range(len(NEW))
    ]
    p = posterior.probability(NEW)
    assert (np.abs(p.value - want) < 4 * p.std_error + 1e-5).all()


def test_three_labels():
    """The evidence is one orthant of three dimensions."""
    y = np.array([1, 0, 1])
    side = np.where(y == 1, 1.0, -1.0)
    total = side[:, None] * (oracle.kernel(X) + NOISE) * side
    want = multivariate_normal(np.zeros(3), total).logcdf(np.zeros(3))
    evidence = posterior_of(y, BernoulliProbit(NOISE)).log_marginal_likelihood
    # The reference is good to 1e-5 in three dimensions.
    assert abs(evidence.value - want) < 4 * evidence.std_error + 3e-5


def test_identity_is_the_default():
    y = [1, 0, 1]
    plain = posterior_of(y, BernoulliProbit()).log_marginal_likelihood
    assert posterior_of(y, BernoulliProbit(np.eye(3))).log_marginal_likelihood.value == (
        pytest.approx(plain.value, abs=1e-10)
    )


def test_replicates_share_noise():
    likelihood = BernoulliProbit(NOISE)
    f = np.tile([0.3, -0.4, 0.2], (1, 40_000, 1))
    new = likelihood.replicate(np.zeros(3), f, np.zeros(0), np.random.default_rng(0))[0]
    both = (new[:, 0] == 1) & (new[:, 1] == 1)
    want = multivariate_normal(np.zeros(2), NOISE[:2, :2]).cdf([0.3, -0.4])
    # Four standard errors: a false alarm in 16000.
    assert abs(both.mean() - want) < 4 * np.sqrt(want * (1 - want) / len(both))


def test_more_labels_have_noise_of_their_own():
    y = np.array([1, 0, 1])
    first = posterior_of(y[:2], BernoulliProbit(NOISE[:2, :2]), X=X[:2])
    wide = np.eye(3)
    wide[:2, :2] = NOISE[:2, :2]
    whole = posterior_of(y, BernoulliProbit(wide))
    more = first.update(X[2:], y[2:])
    assert more.log_marginal_likelihood.value == pytest.approx(
        whole.log_marginal_likelihood.value, abs=1e-10
    )


def test_blocks_take_the_low_rank_form():
    """Groups of two labels: the same evidence as in the dense form, to round-off."""
    n = 60
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1))
    noise = np.kron(np.eye(n // 2), [[1.0, 0.5], [0.5, 1.0]])
    posterior = posterior_of(rng.integers(2, size=n), BernoulliProbit(noise), X=x)
    given = posterior._fit.conditioning
    assert isinstance(given.cov, LowRankCovariance)
    want = fit_ep(DenseCovariance(oracle.kernel(x) + noise), given.lower, given.upper)
    assert posterior._fit.sampler.ep.log_prob == pytest.approx(want.log_prob, abs=1e-9)


@pytest.mark.parametrize(
    ("noise_cov", "error", "message"),
    [
        (2.0 * np.eye(3), ValueError, "1 on its diagonal.*entry 0 is 2"),
        (np.eye(2), ValueError, "a row for each of the 3 labels, got 2"),
        (np.full((3, 3), -0.9) + 1.9 * np.eye(3), NotPositiveDefiniteError, "noise_cov"),
        (np.ones((2, 3)), ValueError, "square"),
    ],
)
def test_bad_noise(noise_cov, error, message):
    with pytest.raises(error, match=message):
        posterior_of([0, 1, 0], BernoulliProbit(noise_cov))


def test_methods_for_labels_of_their_own_are_refused():
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    found = sg.compare_approximations(
        gp, X, [1, 0, 1], likelihood=BernoulliProbit(NOISE), methods=["advi"], draws=100, chains=1
    )
    assert "noise of their own" in found.table.loc["advi", "failure"]
