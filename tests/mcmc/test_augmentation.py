"""Both conditionals of the pair (f, u) against their definition, noise within limits in blocks.

Monte Carlo means may be off by 4.5 of their standard errors: false-alarm rate 7e-6 a statistic.
"""

import numpy as np
import pytest
from mcmc_models import label_rows
from scipy import sparse
from scipy.stats import kstest, multivariate_normal, truncnorm

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._mcmc import augmentation as noise
from pymc_skewgp._mcmc.augmentation import Augmentation, ConjugateModel, RowNoise
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._sun.parameters import SunParameters

SIGMAS = 4.5
P, S, M = 4, 2, 3


def joint_cov(size, seed=0):
    factor = np.random.default_rng(seed).normal(size=(size, size + 2))
    return factor @ factor.T / size


def model(s=S, design=True, seed=0, **observed):
    """Three kinds of rows: above, below and between, with noise of three sizes."""
    rng = np.random.default_rng(seed)
    cov = joint_cov(s + P)
    prior = SunParameters(
        rng.normal(size=P), cov[s:, s:], cov[s:, :s], rng.normal(size=s), cov[:s, :s]
    )
    m = M if design else P
    rows = {
        "A": rng.normal(size=(M, P)) if design else None,
        "a": rng.normal(size=m),
        "S": np.array([1.0, 0.3, 2.0, 1.0])[:m],
        "lower": np.array([0.0, -np.inf, -0.4, 0.1])[:m],
        "upper": np.array([np.inf, 0.0, 0.7, np.inf])[:m],
        "value": np.full(m, np.nan),
    }
    return ConjugateModel(prior, Observations(**{**rows, **observed}))


def design_of(given):
    A = given.observations.A
    if A is None:
        return np.eye(P)
    return A if isinstance(A, np.ndarray) else A.toarray()


def gaussian(given):
    """Joint mean and covariance of (x0, f, e) and the matrix that makes u and f from it."""
    prior, observed, *_ = given
    p, s, m = prior.mu.size, prior.truncation.size, observed.n_rows
    cov = np.zeros((s + p + m, s + p + m))
    cov[:s, :s], cov[s : s + p, s : s + p] = prior.latent_cov, prior.scale
    cov[s : s + p, :s], cov[:s, s : s + p] = prior.cross_cov, prior.cross_cov.T
    cov[s + p :, s + p :] = np.diag(observed.S) if observed.S.ndim == 1 else observed.S
    rows = np.zeros((s + m, s + p + m))
    rows[:s, :s] = np.eye(s)
    rows[s:, s : s + p] = design_of(given)
    rows[s:, s + p :] = np.eye(m)
    functions = np.zeros((p, s + p + m))
    functions[:, s : s + p] = np.eye(p)
    return cov, rows, functions


def test_rows_given_function():
    """Each observation's row is a truncated normal; x0 given f by rejection from its Gaussian."""
    given = model(S)
    prior, observed, *_ = given
    target = Augmentation(given)
    rng = np.random.default_rng(3)
    f = rng.normal(size=P)
    draws = [target.rows_given(f, rng) for _ in range(3000)]
    assert all(exact for _, exact in draws)
    u = np.array([row for row, _ in draws])
    assert all(target.holds(row) for row in u)
    centre, sd = design_of(given) @ (f - prior.mu), np.sqrt(observed.S)
    limits = zip(centre, sd, target.lower[S:], target.upper[S:], strict=True)
    for i, (c, d, lower, upper) in enumerate(limits):
        cdf = truncnorm((lower - c) / d, (upper - c) / d, scale=d).cdf
        assert kstest(u[:, S + i] - c, cdf).pvalue > 1e-5
    gain = np.linalg.solve(prior.scale, prior.cross_cov).T
    cov = prior.latent_cov - gain @ prior.cross_cov
    x0 = rng.multivariate_normal(gain @ (f - prior.mu), cov, size=200_000)
    x0 = x0[(x0 > -prior.truncation).all(axis=1)]
    difference = u[:, :S].mean(axis=0) - x0.mean(axis=0)
    error = x0.std(axis=0) * np.sqrt(1 / len(x0) + 1 / len(u))
    assert (np.abs(difference) < SIGMAS * error).all()
    correlation = np.corrcoef(u[:, :S].T)[0, 1] - np.corrcoef(x0.T)[0, 1]
    assert abs(correlation) < SIGMAS * np.sqrt(1 / len(x0) + 1 / len(u))


def test_far_tails_stay_within_the_limits():
    """Labels that contradict f by 40 standard deviations."""
    sign = np.array([1.0, -1.0, 1.0, 1.0])
    given = ConjugateModel(
        model(0, design=False).prior._replace(mu=np.zeros(P)), label_rows(None, np.zeros(P), sign)
    )
    target = Augmentation(given)
    rng = np.random.default_rng(0)
    u = np.array([target.rows_given(-40.0 * sign, rng)[0] for _ in range(200)])
    assert all(target.holds(row) for row in u)
    excess = sign * u  # over limits that are 0
    assert (excess > 0).all()
    assert excess.mean() < 0.03  # about 1/40


@pytest.mark.parametrize("A", [np.eye(P), np.ones(P), sparse.eye_array(P, format="csr")])
def test_other_forms_of_the_identity_give_the_same(A):
    plain, given = model(S, design=False), model(S, design=False, A=A)
    f = np.arange(4.0)
    for one, other in zip(both(Augmentation(plain), f), both(Augmentation(given), f), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


SHARED = np.array([[1.0, 0.4, -0.2], [0.4, 0.5, 0.1], [-0.2, 0.1, 0.8]])
SEEN = np.array([np.nan, 0.6, np.nan])
KINDS = {
    "intervals": {},
    "intervals of f": {"design": False},
    "points": {"value": SEEN},
    "shared noise": {"S": SHARED},
    "both": {"value": SEEN, "S": SHARED},
    "points alone": {"value": np.array([0.2, 0.6, -1.0])},
}


def given_points(given):
    """Moments of (x0 + truncation, v of intervals, f) given the points, from the definition."""
    prior, observed, *_ = given
    s = prior.truncation.size
    cov, rows, functions = gaussian(given)
    every = np.vstack([rows, functions])
    cov = every @ cov @ every.T
    mean = np.concatenate([prior.truncation, design_of(given) @ prior.mu + observed.a, prior.mu])
    seen = np.concatenate([np.zeros(s, bool), observed.is_point, np.zeros(P, bool)])
    residual = observed.value[observed.is_point] - mean[seen]
    gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, ~seen)]).T
    log_density = (
        multivariate_normal.logpdf(residual, cov=cov[np.ix_(seen, seen)]) if seen.any() else 0.0
    )
    left = cov[np.ix_(~seen, ~seen)] - gain @ cov[np.ix_(seen, ~seen)]
    return mean[~seen] + gain @ residual, left, log_density


@pytest.mark.parametrize("s", [0, S])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_the_definition(kind, s):
    """Mean and covariance of u, density of points and u, and f given u, against one big Gaussian.

    1e-9: the blur of x0.
    """
    given = model(s, **KINDS[kind])
    mean, cov, log_points = given_points(given)
    target = Augmentation(given)
    n = len(mean) - P
    np.testing.assert_allclose(target.mean, mean[:n], atol=1e-9)
    observed = given.observations
    free = ~observed.is_point
    lower = np.concatenate([np.zeros(s), observed.lower[free]]) - mean[:n]
    upper = np.concatenate([np.full(s, np.inf), observed.upper[free]]) - mean[:n]
    np.testing.assert_allclose(target.lower, lower, atol=1e-9)
    np.testing.assert_allclose(target.upper, upper, atol=1e-9)
    assert target.holds(np.clip(0.0, lower + 1e-3, upper - 1e-3))
    assert not free.any() or not target.holds(np.where(np.isfinite(upper), upper, 0.0) + 1e-6)
    u = np.random.default_rng(1).normal(size=n)
    expected = log_points
    if n:
        np.testing.assert_allclose(target.cov.matrix, cov[:n, :n], atol=1e-9)
        expected += multivariate_normal.logpdf(u, cov=cov[:n, :n])
    assert target.log_density(u) == pytest.approx(expected, abs=1e-7)
    gain = np.linalg.solve(cov[:n, :n], cov[:n, n:]).T
    centre, spread = mean[n:] + gain @ u, cov[n:, n:] - gain @ cov[:n, n:]
    k = 40_000
    f = target.function_given(np.tile(u, (k, 1)), np.random.default_rng(2))
    white = np.linalg.solve(np.linalg.cholesky(spread), (f - centre).T)
    assert np.abs(white.mean(axis=1)).max() < SIGMAS / np.sqrt(k)
    assert np.abs(white @ white.T / k - np.eye(P)).max() < SIGMAS * np.sqrt(2 / k)


def test_rows_that_share_noise():
    """Given f: by rejection from their Gaussian, conditioned on the noise of points."""
    given = model(0, **KINDS["both"])
    observed = given.observations
    target = Augmentation(given)
    rng = np.random.default_rng(3)
    probable = np.array([0.2, -0.3, 0.4])
    f = np.linalg.lstsq(design_of(given), probable - observed.a)[0]
    draws = [target.rows_given(f, rng) for _ in range(3000)]
    assert all(exact for _, exact in draws)
    rows = np.array([u for u, _ in draws]) + target.mean
    eta = design_of(given) @ f + observed.a
    free = ~observed.is_point
    gain = SHARED[np.ix_(free, ~free)] / SHARED[1, 1]
    left = SHARED[np.ix_(free, free)] - gain @ SHARED[np.ix_(~free, free)]
    centre = gain[:, 0] * (observed.value[1] - eta[1])
    e = rng.multivariate_normal(centre, left, size=400_000)
    v = eta[free] + e
    v = v[((v > observed.lower[free]) & (v < observed.upper[free])).all(axis=1)]
    error = v.std(axis=0) * np.sqrt(1 / len(v) + 1 / len(rows))
    assert (np.abs(rows.mean(axis=0) - v.mean(axis=0)) < SIGMAS * error).all()
    difference = np.corrcoef(rows.T) - np.corrcoef(v.T)
    assert np.abs(difference).max() < SIGMAS * np.sqrt(1 / len(v) + 1 / len(rows))


def both(target, f):
    rng = np.random.default_rng(5)
    u, _ = target.rows_given(f, rng)
    return u, target.function_given(u[None], rng)


def test_a_pseudo_point_at_an_input_follows_f():
    """x0 is then a function of f; its limit is met whatever round-off says."""
    given = model(0, design=False)
    prior = given.prior
    prior = prior._replace(
        cross_cov=prior.scale[:, :1], latent_cov=prior.scale[:1, :1], truncation=prior.mu[:1]
    )
    rng = np.random.default_rng(0)
    target = Augmentation(given._replace(prior=prior))
    for value in (0.7, 0.0):
        f = prior.mu + np.array([value - prior.mu[0], 0.0, 0.0, 0.0])
        u, _ = target.rows_given(f, rng)
        assert u[0] > target.lower[0]
        np.testing.assert_allclose(u[0], f[0] - prior.mu[0], atol=1e-4)


@pytest.mark.parametrize("name", ["mu", "a"])
def test_parameters_that_are_not_finite_are_refused(name):
    given = model()
    if name == "mu":
        given = given._replace(prior=given.prior._replace(mu=np.full(P, np.nan)))
    else:
        given = model(a=np.full(M, np.inf))
    with pytest.raises(FloatingPointError, match="NaN or infinite"):
        Augmentation(given)


def test_what_is_no_covariance_is_refused():
    given = model(0, design=False)
    target = Augmentation(given._replace(prior=given.prior._replace(scale=-given.prior.scale)))
    with pytest.raises(NotPositiveDefiniteError, match="scale"):
        target.function_given(np.zeros((1, P)), np.random.default_rng(0))


def choices(k):
    """Noise of a choice among k + 1: differences that have the winner's noise in common."""
    return np.eye(k) + 1.0


def repeated(block, n):
    return np.kron(np.eye(n), block)


def test_blocks_are_drawn_independently_and_exactly():
    """A thousand equal blocks in one call, one of them interleaved with the others."""
    k, n = 3, 1000
    lower, upper = np.full(k, 0.4), np.full(k, np.inf)
    upper[0] = 1.9
    order = np.random.default_rng(0).permutation(n * k)
    S = repeated(choices(k), n)[np.ix_(order, order)]
    rng = np.random.default_rng(1)
    e, exact = RowNoise(S).within(np.tile(lower, n)[order], np.tile(upper, n)[order], rng)
    assert exact
    found = np.empty(n * k)
    found[order] = e
    found = found.reshape(n, k)
    plain = rng.multivariate_normal(np.zeros(k), choices(k), size=400_000)
    plain = plain[((plain > lower) & (plain < upper)).all(axis=1)]
    error = plain.std(axis=0) * np.sqrt(1 / n + 1 / len(plain))
    assert (np.abs(found.mean(axis=0) - plain.mean(axis=0)) < SIGMAS * error).all()
    assert np.abs(np.corrcoef(found.T) - np.corrcoef(plain.T)).max() < SIGMAS / np.sqrt(n)


def test_rare_blocks_are_drawn_one_by_one():
    """Probability 1e-5: none of the batch is accepted, and the draw is exact all the same."""
    rng = np.random.default_rng(3)
    limits = np.array([3.0, -np.inf]), np.array([np.inf, -2.0])
    e, exact = RowNoise(choices(2)).within(*limits, rng)
    assert exact
    assert e[0] > 3.0
    assert e[1] < -2.0


def test_large_blocks_are_drawn_by_weight():
    m = noise._LARGEST_REJECTION + 1
    rng = np.random.default_rng(4)
    S = 0.5 * np.eye(m) + 0.5
    e, exact = RowNoise(S).within(np.zeros(m), np.full(m, np.inf), rng)
    assert not exact
    assert (e > 0).all()
