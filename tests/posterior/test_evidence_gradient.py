"""The log evidence: both methods against quadrature, both forms of a covariance."""

import numpy as np
import pytest
from oracles import brute_log_prob, finite_difference
from scipy import stats

from pymc_skewgp._gaussian import ep_dense
from pymc_skewgp._posterior import evidence_gradient
from pymc_skewgp._posterior.evidence_gradient import (
    EvidenceByEP,
    EvidenceTerms,
    Intervals,
    evidence_by_twisting,
    evidence_estimate,
)


def problem(n=2, s=1, seed=0, ls=1.0, gap=1.0, points=0):
    rng = np.random.default_rng(seed)
    x = np.concatenate([gap * np.arange(s), rng.uniform(-2.0, 2.0, n)])
    sign = np.concatenate([np.ones(s), np.where(rng.random(n) < 0.5, 1.0, -1.0)])
    cov = np.exp(-0.5 * ((x[:, None] - x) / ls) ** 2) * sign * sign[:, None]
    noise = np.append(np.zeros(s), np.ones(n))
    value = np.full(s + n, np.nan)
    value[s : s + points] = rng.normal(size=points)
    limits = -rng.normal(0.0, 0.3, s + n)
    # Rows above their limit, below it and between two of them.
    kind = np.append(np.zeros(s, dtype=int), np.arange(n) % 3)
    lower = np.where(kind == 1, -np.inf, limits)
    upper = np.where(kind == 0, np.inf, np.where(kind == 1, limits, limits + 1.5))
    cov = cov + np.diag(noise)
    return EvidenceTerms(
        lower, upper, value, cov, noise, lower[:s], upper[:s], cov[:s, :s], np.float64(-0.7)
    )


def exact(terms):
    """By the definition: a density, and quadrature in the rows that are left."""
    point = ~np.isnan(terms.value)
    known, value = terms.cov[np.ix_(point, point)], terms.value[point]
    cross, rest = terms.cov[np.ix_(~point, point)], terms.cov[np.ix_(~point, ~point)]
    shift = cross @ np.linalg.solve(known, value)
    lower, upper = terms.lower[~point] - shift, terms.upper[~point] - shift
    joint = -0.7 + stats.multivariate_normal(cov=known).logpdf(value) if point.any() else -0.7
    if lower.size:
        joint += brute_log_prob(lower, upper, rest - cross @ np.linalg.solve(known, cross.T))
    if not terms.prior_lower.size:
        return joint
    return joint - brute_log_prob(terms.prior_lower, terms.prior_upper, terms.prior_cov)


@pytest.mark.parametrize(("s", "points"), [(0, 0), (1, 0), (0, 2), (1, 2), (0, 5), (1, 4)])
def test_values(s, points):
    terms = problem(points + 3 - s if points < 4 else points, s, points=points)
    truth = exact(terms)
    # EP is off by thousandths of a nat here, by six where a sign is known without noise.
    assert abs(EvidenceByEP()(terms).value - truth) < 1e-2
    assert abs(evidence_by_twisting(terms, 1024).value - truth) < 1e-3
    estimate = evidence_estimate(terms, 1024)
    assert abs(estimate.value - truth) < max(5 * estimate.std_error, 1e-9)


ENTRIES = ["lower", "upper", "value", "cov", "prior_lower", "prior_cov", "log_constant"]


@pytest.mark.parametrize("points", [0, 3])
@pytest.mark.parametrize("s", [0, 2])
@pytest.mark.parametrize("which", ENTRIES)
def test_gradient(s, which, points):
    terms = problem(4 + points, s, seed=1, points=points)
    rng = np.random.default_rng(2)
    at = getattr(terms, which)
    direction = rng.normal(size=at.shape) * 0.1
    if at.ndim == 2:
        direction = direction + direction.T

    def along(t, evidence=None):
        # Cold each time: a warm start would stop elsewhere within the tolerance.
        return EvidenceByEP()(terms._replace(**{which: at + t * direction})).value

    slopes = getattr(EvidenceByEP()(terms).wrt, which)
    found = np.sum(slopes * direction)
    # EP stops at 1e-4 of a standard deviation, which is what the gradient is off by.
    assert found == pytest.approx(float(finite_difference(along, 0.0, 0.02)), abs=1e-3)


def test_low_rank_and_dense_agree(monkeypatch):
    monkeypatch.setattr(evidence_gradient, "_FEW_ROWS", 0)
    terms = problem(60, 2, seed=3, ls=1.5, gap=3.0)
    low_rank, rows = EvidenceByEP()(terms), Intervals(terms)
    assert isinstance(
        evidence_gradient._covariance(terms, rows), evidence_gradient.LowRankCovariance
    )
    monkeypatch.setattr(evidence_gradient, "_LOW_RANK_SHARE", 0.0)
    dense = EvidenceByEP()(terms)
    # What the factor leaves out is 2e-6 of the noise's variance; EP's tolerance counts squared.
    assert low_rank.value == pytest.approx(dense.value, abs=1e-4)
    for a, b in zip(low_rank.wrt, dense.wrt, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_it_begins_where_it_ended(monkeypatch):
    starts = []
    real = evidence_gradient.ep_with_gradient

    def recorded(*args, start=None, **kwargs):
        starts.append(start)
        return real(*args, start=start, **kwargs)

    monkeypatch.setattr(evidence_gradient, "ep_with_gradient", recorded)
    evidence = EvidenceByEP()
    evidence(problem(5, 0))
    evidence(problem(5, 0, seed=4))
    evidence(problem(6, 0))  # of another size: from nothing
    assert [start is None for start in starts] == [True, False, True]


@pytest.mark.parametrize(
    "broken",
    [
        lambda o: o._replace(cov=np.full_like(o.cov, np.nan)),
        lambda o: o._replace(cov=-o.cov),
        lambda o: o._replace(prior_cov=np.ones((2, 2))),  # coincident pseudo-points
    ],
    ids=["nan", "indefinite", "coincident"],
)
def test_no_evidence_is_minus_infinity(broken):
    terms = broken(problem(4, 2))
    for found in (EvidenceByEP()(terms), evidence_by_twisting(terms, 64)):
        assert found.value == -np.inf
        assert all((x == 0).all() for x in found.wrt)


@pytest.mark.parametrize("which", ["lower", "upper", "value", "cov"])
def test_gradient_of_the_sampler(which):
    """Rows of both kinds, two-sided limits among them, and noise that rows share."""
    terms = problem(8, 1, seed=5, points=3)
    shared = np.kron(np.eye(3), np.full((3, 3), 0.3))
    terms = terms._replace(cov=terms.cov + shared, noise=np.zeros(9))
    rng = np.random.default_rng(6)
    direction = rng.normal(size=getattr(terms, which).shape) * 0.1
    if direction.ndim == 2:
        direction = direction + direction.T

    def along(t):
        moved = terms._replace(**{which: getattr(terms, which) + t * direction})
        return evidence_by_twisting(moved, 128).value

    slopes = getattr(evidence_by_twisting(terms, 128).wrt, which)
    # The sampler's gradient is that of its own number to 1e-4 of its largest part, about 1.
    assert np.sum(slopes * direction) == pytest.approx(
        float(finite_difference(along, 0.0, 0.02)), abs=1e-3
    )


def test_points_alone_are_a_density():
    terms = problem(6, 0, seed=7, points=6)
    truth = stats.multivariate_normal(cov=terms.cov).logpdf(terms.value) - 0.7
    found = EvidenceByEP()(terms)
    # Two Cholesky factorisations of a well-conditioned matrix.
    assert found.value == pytest.approx(truth, abs=1e-12)
    assert evidence_by_twisting(terms, 64).value == found.value
    estimate = evidence_estimate(terms, 64)
    assert (estimate.value, estimate.std_error) == (pytest.approx(truth, abs=1e-12), 0.0)
    precision = np.linalg.inv(terms.cov)
    weights = precision @ terms.value
    np.testing.assert_allclose(found.wrt.value, -weights, atol=1e-12)
    expected = 0.5 * (np.outer(weights, weights) - precision)
    np.testing.assert_allclose(found.wrt.cov, expected, atol=1e-12)


@pytest.mark.parametrize("noise", [1e-4, 30.0])
def test_low_rank_in_units_of_the_noise(noise, monkeypatch):
    """Noise of any size, half of the rows with ten times as much."""
    monkeypatch.setattr(evidence_gradient, "_FEW_ROWS", 0)
    terms = problem(60, 0, seed=3, ls=1.5)
    own = noise * np.where(np.arange(60) % 2, 1.0, 10.0)
    prior = terms.cov - np.eye(60)
    terms = terms._replace(cov=noise * prior + np.diag(own), noise=own)
    scale = np.sqrt(noise)
    terms = terms._replace(lower=scale * terms.lower, upper=scale * terms.upper)
    assert isinstance(
        evidence_gradient._covariance(terms, Intervals(terms)), evidence_gradient.LowRankCovariance
    )
    dense = EvidenceByEP()(terms._replace(noise=np.zeros(60)))
    # EP's tolerance, squared, and 2e-6 of the least noise.
    assert EvidenceByEP()(terms).value == pytest.approx(dense.value, abs=1e-4)


def test_the_plain_iteration_where_the_other_is_stuck(monkeypatch):
    terms = problem(5, 0)
    expected = EvidenceByEP()(terms)
    monkeypatch.setattr(ep_dense, "fit_dense_ep", lambda *args, **kwargs: None)
    found = EvidenceByEP()(terms)
    # Either stops at a residual of 1e-4, the value being off by its square, the gradient by it.
    assert found.value == pytest.approx(expected.value, abs=1e-6)
    np.testing.assert_allclose(found.wrt.cov, expected.wrt.cov, atol=1e-4)
