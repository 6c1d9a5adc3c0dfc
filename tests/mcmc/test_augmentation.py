"""Both conditionals of the pair (f, u) against their definition.

Monte Carlo means are held to 4.5 of their standard errors: false-alarm rate 7e-6 a statistic.
"""

import numpy as np
import pytest
from scipy.stats import kstest, truncnorm

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._mcmc import augmentation
from pymc_skewgp._mcmc.augmentation import Augmentation, ProbitSUN, cross_covariance

SIGMAS = 4.5
P, S, M = 4, 2, 3


def joint_cov(size, seed=0):
    factor = np.random.default_rng(seed).normal(size=(size, size + 2))
    return factor @ factor.T / size


def model(s=S, design=True, seed=0):
    rng = np.random.default_rng(seed)
    cov = joint_cov(s + P)
    rows = M if design else P
    return ProbitSUN(
        mu=rng.normal(size=P),
        scale=cov[s:, s:],
        cross_cov=cov[s:, :s],
        truncation=rng.normal(size=s),
        latent_cov=cov[:s, :s],
        design=rng.normal(size=(M, P)) if design else None,
        offset=rng.normal(size=rows),
        sign=np.array([1.0, -1.0, 1.0, 1.0])[:rows],
    )


def gaussian(given):
    """Joint mean and covariance of (x0, f, e) and the matrix that makes u and f from it."""
    p, s, m = given.mu.size, given.truncation.size, given.sign.size
    cov = np.zeros((s + p + m, s + p + m))
    cov[:s, :s], cov[s : s + p, s : s + p] = given.latent_cov, given.scale
    cov[s : s + p, :s], cov[:s, s : s + p] = given.cross_cov, given.cross_cov.T
    cov[s + p :, s + p :] = np.eye(m)
    design = np.eye(p) if given.design is None else given.design
    rows = np.zeros((s + m, s + p + m))
    rows[:s, :s] = np.eye(s)
    rows[s:, s : s + p] = given.sign[:, None] * design
    rows[s:, s + p :] = np.diag(given.sign)
    functions = np.zeros((p, s + p + m))
    functions[:, s : s + p] = np.eye(p)
    return cov, rows, functions


@pytest.mark.parametrize("design", [True, False])
@pytest.mark.parametrize("s", [0, S])
def test_rows_and_limits_are_those_of_the_definition(s, design):
    given = model(s, design)
    cov, rows, _ = gaussian(given)
    target = Augmentation(given)
    # 1e-9: the blur of x0.
    np.testing.assert_allclose(target.cov.matrix, rows @ cov @ rows.T, rtol=1e-9, atol=1e-9)
    weights = np.eye(P) if given.design is None else given.design
    limits = np.concatenate([given.truncation, given.sign * (weights @ given.mu + given.offset)])
    np.testing.assert_allclose(target.lower, -limits, atol=1e-12)


@pytest.mark.parametrize("design", [True, False])
@pytest.mark.parametrize("s", [0, S])
def test_function_given_rows(s, design):
    """Mean and covariance of f given u, by the formula for Gaussian vectors."""
    given = model(s, design)
    cov, rows, functions = gaussian(given)
    u = np.random.default_rng(1).normal(size=len(rows))
    gain = functions @ cov @ rows.T @ np.linalg.inv(rows @ cov @ rows.T)
    mean = given.mu + gain @ u
    posterior = functions @ cov @ functions.T - gain @ rows @ cov @ functions.T
    n = 40_000
    f = Augmentation(given).function_given(np.tile(u, (n, 1)), np.random.default_rng(2))
    white = np.linalg.solve(np.linalg.cholesky(posterior), (f - mean).T)
    assert np.abs(white.mean(axis=1)).max() < SIGMAS / np.sqrt(n)
    # A sample covariance of independent standard normals: variance 1/n, 2/n on the diagonal.
    assert np.abs(white @ white.T / n - np.eye(P)).max() < SIGMAS * np.sqrt(2 / n)


@pytest.mark.parametrize("design", [True, False])
def test_rows_given_function(design):
    """Each observation's row is a truncated normal; x0 given f by rejection from its Gaussian."""
    given = model(S, design)
    target = Augmentation(given)
    rng = np.random.default_rng(3)
    f = rng.normal(size=P)
    draws = [target.rows_given(f, rng) for _ in range(3000)]
    assert all(exact for _, exact in draws)
    u = np.array([row for row, _ in draws])
    assert (u > target.lower).all()
    weights = np.eye(P) if given.design is None else given.design
    centre = given.sign * (weights @ (f - given.mu))
    for i, (c, lower) in enumerate(zip(centre, target.lower[S:], strict=True)):
        assert kstest(u[:, S + i] - c, truncnorm(lower - c, np.inf).cdf).pvalue > 1e-5
    gain = np.linalg.solve(given.scale, given.cross_cov).T
    cov = given.latent_cov - gain @ given.cross_cov
    x0 = rng.multivariate_normal(gain @ (f - given.mu), cov, size=200_000)
    x0 = x0[(x0 > -given.truncation).all(axis=1)]
    difference = u[:, :S].mean(axis=0) - x0.mean(axis=0)
    error = x0.std(axis=0) * np.sqrt(1 / len(x0) + 1 / len(u))
    assert (np.abs(difference) < SIGMAS * error).all()
    correlation = np.corrcoef(u[:, :S].T)[0, 1] - np.corrcoef(x0.T)[0, 1]
    assert abs(correlation) < SIGMAS * np.sqrt(1 / len(x0) + 1 / len(u))


def test_far_tails_stay_above_the_limits():
    """Labels that contradict f by 40 standard deviations."""
    given = model(0, design=False)._replace(mu=np.zeros(P), offset=np.zeros(P))
    target = Augmentation(given)
    rng = np.random.default_rng(0)
    u = np.array([target.rows_given(-40.0 * given.sign, rng)[0] for _ in range(200)])
    assert (u > target.lower).all()
    assert 0 < (u - target.lower).mean() < 0.03  # about 1/40


def test_identity_is_not_multiplied_by_but_gives_the_same():
    plain = model(S, design=False)
    given = plain._replace(design=np.eye(P))
    f = np.arange(4.0)
    for one, other in zip(both(Augmentation(plain), f), both(Augmentation(given), f), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def both(target, f):
    rng = np.random.default_rng(5)
    u, _ = target.rows_given(f, rng)
    return u, target.function_given(u[None], rng)


def test_a_pseudo_point_at_an_input_follows_f():
    """x0 is then a function of f; its limit is met whatever round-off says."""
    given = model(0, design=False)
    given = given._replace(
        cross_cov=given.scale[:, :1],
        latent_cov=given.scale[:1, :1],
        truncation=given.mu[:1],
    )
    rng = np.random.default_rng(0)
    target = Augmentation(given)
    for value in (0.7, 0.0):
        f = given.mu + np.array([value - given.mu[0], 0.0, 0.0, 0.0])
        u, _ = target.rows_given(f, rng)
        assert u[0] > target.lower[0]
        np.testing.assert_allclose(u[0], f[0] - given.mu[0], atol=1e-4)


def test_resampling_where_rejection_gives_up(monkeypatch):
    monkeypatch.setattr(augmentation, "draw_by_rejection", lambda *_: None)
    given = model(S, design=False)
    target = Augmentation(given)
    rng = np.random.default_rng(0)
    draws = [target.rows_given(given.mu, rng) for _ in range(50)]
    assert not any(exact for _, exact in draws)
    assert all((u > target.lower).all() for u, _ in draws)


def test_no_rows_at_all_is_the_prior():
    given = model(0, design=False)._replace(
        design=np.empty((0, P)), offset=np.empty(0), sign=np.empty(0)
    )
    target = Augmentation(given)
    rng = np.random.default_rng(0)
    u, exact = target.rows_given(given.mu, rng)
    assert u.shape == (0,)
    assert exact
    f = target.function_given(np.empty((20_000, 0)), rng)
    np.testing.assert_allclose(np.cov(f.T), given.scale, atol=0.15)  # 4.5 errors of 3 sqrt(2/20000)


def test_parameters_that_are_not_finite_are_refused():
    given = model()
    with pytest.raises(FloatingPointError, match="NaN or infinite"):
        Augmentation(given._replace(mu=np.full(P, np.nan)))


def test_cross_covariance():
    scale, skewness = np.diag([4.0, 9.0]), np.array([[0.5], [-0.1]])
    np.testing.assert_allclose(cross_covariance(scale, skewness), [[1.0], [-0.3]])
    np.testing.assert_array_equal(cross_covariance(-scale, skewness), np.zeros((2, 1)))


def test_what_is_no_covariance_is_refused():
    given = model(0, design=False)
    target = Augmentation(given._replace(scale=-given.scale))
    with pytest.raises(NotPositiveDefiniteError, match="scale"):
        target.function_given(np.zeros((1, P)), np.random.default_rng(0))
