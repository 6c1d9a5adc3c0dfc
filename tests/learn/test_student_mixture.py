"""Mixtures of Student t distributions: SciPy's density, moments of draws, fits to known targets."""

import numpy as np
import pytest
from scipy import stats

from pymc_skewgp._gaussian.weights import uniform_points
from pymc_skewgp._learn.averaging.settings import StudentMixture

RNG = np.random.default_rng(5)
MEANS = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.5]])
CHOLS = np.array([[[1.0, 0, 0], [0.5, 0.8, 0], [0.1, -0.3, 0.6]], np.diag([0.3, 2.0, 1.0])])
MIXTURE = StudentMixture(np.array([0.3, 0.7]), MEANS, CHOLS, 5.0)


def test_density_is_scipys():
    x = RNG.normal(size=(20, 3))
    parts = [
        w * stats.multivariate_t(m, c @ c.T, df=5.0).pdf(x)
        for w, m, c in zip(MIXTURE.weights, MEANS, CHOLS, strict=True)
    ]
    np.testing.assert_allclose(MIXTURE.log_density(x), np.log(sum(parts)), rtol=1e-10)


def test_draws_have_its_moments():
    x = MIXTURE.draw(uniform_points(MIXTURE.n_uniforms, 4096, 4, RNG))
    mean = MIXTURE.weights @ MEANS
    # 16384 quasi-random draws of standard deviation up to 2.5: .02 is one standard error of plain
    # ones.
    np.testing.assert_allclose(x.mean(axis=0), mean, atol=0.06)
    inflated = [5.0 / 3.0 * c @ c.T for c in CHOLS]
    parts = zip(MIXTURE.weights, MEANS, inflated, strict=True)
    cov = sum(w * (s + np.outer(m - mean, m - mean)) for w, m, s in parts)
    # Fourth moments of t with 5 degrees of freedom are large: 5 % of the largest variance.
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.05 * cov.max())


def test_a_component_alone_is_multivariate_t():
    one = StudentMixture(np.ones(1), MEANS[:1], CHOLS[:1], 5.0)
    x = one.draw(uniform_points(one.n_uniforms, 2000, 1, RNG))
    white = np.linalg.solve(CHOLS[0], (x - MEANS[0]).T)
    # The squared distance over D is F(D, df); false alarms: 1 in 1000.
    distance = np.square(white).sum(axis=0) / 3.0
    assert stats.kstest(distance, stats.f(3, 5.0).cdf).pvalue > 1e-3


def test_fit_finds_the_target():
    """EM from a wrong start on equal weights: two Gaussians far from each other."""
    target = [(np.array([-3.0, 0.0]), 0.5 * np.eye(2)), (np.array([3.0, 1.0]), np.eye(2))]
    x = np.concatenate([RNG.multivariate_normal(m, s, 2000) for m, s in target])
    start = StudentMixture(
        np.array([0.5, 0.5]),
        np.array([[-1.0, 0.0], [1.0, 0.0]]),
        np.array([3 * np.eye(2)] * 2),
        50.0,
    )
    equal = np.full(4000, 1 / 4000)
    found = start.fitted(x, equal, widen=1.0, least_share=0.01, steps=30)
    np.testing.assert_allclose(found.weights, 0.5, atol=0.02)
    for k, (mean, cov) in enumerate(target):
        # 2000 points: standard errors of .02; a t of 50 degrees of freedom fits 4 % narrower.
        np.testing.assert_allclose(found.means[k], mean, atol=0.1)
        np.testing.assert_allclose(found.chols[k] @ found.chols[k].T, cov, atol=0.15)


def test_a_fit_comes_nearer_in_every_step():
    x = RNG.normal(size=(500, 3)) @ np.diag([0.5, 2.0, 1.0]) + 1.0
    weights = RNG.dirichlet(np.ones(500))
    last, mixture = -np.inf, MIXTURE
    for _ in range(5):
        mixture = mixture.fitted(x, weights, widen=1.0, least_share=0.0, steps=1)
        value = weights @ mixture.log_density(x)
        # The pull towards the covariance of all points costs a little at the end.
        assert value > last - 0.02
        last = value
    # No worse than one normal distribution's entropy bound by a t's tails.
    centre = weights @ x
    normal = stats.multivariate_normal(centre, np.cov(x.T, aweights=weights, ddof=0))
    assert last > weights @ normal.logpdf(x) - 0.2


def test_one_component_of_a_line_survives():
    x = np.linspace(0, 1, 50)[:, None] * np.ones(3)
    found = MIXTURE.fitted(x, np.full(50, 0.02), widen=1.1, least_share=0.02, steps=3)
    assert np.isfinite(found.log_density(x)).all()
    assert found.weights.sum() == pytest.approx(1.0)
