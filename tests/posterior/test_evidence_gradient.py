"""The log evidence: both methods against quadrature, both forms of a covariance."""

import numpy as np
import pytest
from oracles import brute_log_prob, finite_difference

from pymc_skewgp._posterior import evidence_gradient
from pymc_skewgp._posterior.evidence_gradient import (
    EvidenceByEP,
    EvidenceTerms,
    evidence_by_twisting,
    evidence_estimate,
)


def problem(n=2, s=1, seed=0, ls=1.0, gap=1.0):
    rng = np.random.default_rng(seed)
    points = np.concatenate([gap * np.arange(s), rng.uniform(-2.0, 2.0, n)])
    sign = np.concatenate([np.ones(s), np.where(rng.random(n) < 0.5, 1.0, -1.0)])
    cov = np.exp(-0.5 * ((points[:, None] - points) / ls) ** 2) * sign * sign[:, None]
    noise = np.append(np.zeros(s), np.ones(n))
    limits = -rng.normal(0.0, 0.3, s + n)
    # Rows above their limit, below it and between two of them.
    kind = np.append(np.zeros(s, dtype=int), np.arange(n) % 3)
    lower = np.where(kind == 1, -np.inf, limits)
    upper = np.where(kind == 0, np.inf, np.where(kind == 1, limits, limits + 1.5))
    cov = cov + np.diag(noise)
    return EvidenceTerms(lower, upper, cov, lower[:s], upper[:s], cov[:s, :s])


def exact(terms):
    joint = brute_log_prob(terms.lower, terms.upper, terms.cov)
    if not terms.prior_lower.size:
        return joint
    return joint - brute_log_prob(terms.prior_lower, terms.prior_upper, terms.prior_cov)


@pytest.mark.parametrize("s", [0, 1])
def test_values(s):
    terms = problem(3 - s, s)
    truth = exact(terms)
    # EP is off by thousandths of a nat here, by six where a sign is known without noise.
    assert abs(EvidenceByEP()(terms).value - truth) < 1e-2
    assert abs(evidence_by_twisting(terms, 1024).value - truth) < 1e-3
    estimate = evidence_estimate(terms, 1024)
    assert abs(estimate.value - truth) < max(5 * estimate.std_error, 1e-9)


@pytest.mark.parametrize("s", [0, 2])
@pytest.mark.parametrize("which", ["lower", "upper", "cov", "prior_lower", "prior_cov"])
def test_gradient(s, which):
    terms = problem(4, s, seed=1)
    rng = np.random.default_rng(2)
    at = getattr(terms, which)
    direction = rng.normal(size=at.shape) * 0.1
    if at.ndim == 2:
        direction = direction + direction.T

    def along(t, evidence=None):
        # Cold each time: a warm start would stop elsewhere within the tolerance.
        return EvidenceByEP()(terms._replace(**{which: at + t * direction})).value

    found = np.sum(getattr(EvidenceByEP()(terms).wrt, which) * direction)
    # EP stops at 1e-4 of a standard deviation, which is what the gradient is off by.
    assert found == pytest.approx(float(finite_difference(along, 0.0, 0.02)), abs=1e-3)


def test_low_rank_and_dense_agree(monkeypatch):
    terms = problem(60, 2, seed=3, ls=1.5, gap=3.0)
    low_rank = EvidenceByEP()(terms)
    assert isinstance(evidence_gradient._covariance(terms), evidence_gradient.LowRankCovariance)
    monkeypatch.setattr(evidence_gradient, "_LOW_RANK_SHARE", 0.0)
    dense = EvidenceByEP()(terms)
    # What the factor leaves out is 2e-6 of the noise's variance; EP's tolerance counts squared.
    assert low_rank.value == pytest.approx(dense.value, abs=1e-4)
    for a, b in zip(low_rank.wrt, dense.wrt, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_it_begins_where_it_ended(monkeypatch):
    starts = []
    real = evidence_gradient.fit_ep

    def recorded(*args, start=None, **kwargs):
        starts.append(start)
        return real(*args, start=start, **kwargs)

    monkeypatch.setattr(evidence_gradient, "fit_ep", recorded)
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
