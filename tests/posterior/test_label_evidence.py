"""The evidence of labels: both methods against quadrature, both forms of a covariance."""

import numpy as np
import pytest
from oracles import brute_log_prob, finite_difference

from pymc_skewgp._posterior import label_evidence
from pymc_skewgp._posterior.label_evidence import (
    EvidenceByEP,
    Orthants,
    evidence_by_twisting,
    evidence_estimate,
)


def problem(n=2, s=1, seed=0, ls=1.0, gap=1.0):
    rng = np.random.default_rng(seed)
    points = np.concatenate([gap * np.arange(s), rng.uniform(-2.0, 2.0, n)])
    sign = np.concatenate([np.ones(s), np.where(rng.random(n) < 0.5, 1.0, -1.0)])
    cov = np.exp(-0.5 * ((points[:, None] - points) / ls) ** 2) * sign * sign[:, None]
    noise = np.append(np.zeros(s), np.ones(n))
    limits = rng.normal(0.0, 0.3, s + n)
    return Orthants(limits, cov + np.diag(noise), limits[:s], cov[:s, :s])


def exact(orthants):
    infinite = np.full(orthants.limits.size, np.inf)
    joint = brute_log_prob(-orthants.limits, infinite, orthants.cov)
    s = orthants.truncation.size
    if not s:
        return joint
    return joint - brute_log_prob(-orthants.truncation, infinite[:s], orthants.latent_cov)


@pytest.mark.parametrize("s", [0, 1])
def test_values(s):
    orthants = problem(3 - s, s)
    truth = exact(orthants)
    # EP is off by thousandths of a nat here, by six where a sign is known without noise.
    assert abs(EvidenceByEP()(orthants).value - truth) < 1e-2
    assert abs(evidence_by_twisting(orthants, 1024).value - truth) < 1e-3
    estimate = evidence_estimate(orthants, 1024)
    assert abs(estimate.value - truth) < max(5 * estimate.std_error, 1e-9)


@pytest.mark.parametrize("s", [0, 2])
@pytest.mark.parametrize("which", ["limits", "cov", "truncation", "latent_cov"])
def test_gradient(s, which):
    orthants = problem(4, s, seed=1)
    rng = np.random.default_rng(2)
    at = getattr(orthants, which)
    direction = rng.normal(size=at.shape) * 0.1
    if at.ndim == 2:
        direction = direction + direction.T

    def along(t, evidence=None):
        # Cold each time: a warm start would stop elsewhere within the tolerance.
        return EvidenceByEP()(orthants._replace(**{which: at + t * direction})).value

    found = np.sum(getattr(EvidenceByEP()(orthants).wrt, which) * direction)
    # EP stops at 1e-4 of a standard deviation, which is what the gradient is off by.
    assert found == pytest.approx(float(finite_difference(along, 0.0, 0.02)), abs=1e-3)


def test_low_rank_and_dense_agree(monkeypatch):
    orthants = problem(60, 2, seed=3, ls=1.5, gap=3.0)
    low_rank = EvidenceByEP()(orthants)
    assert isinstance(label_evidence._covariance(orthants), label_evidence.LowRankCovariance)
    monkeypatch.setattr(label_evidence, "_LOW_RANK_SHARE", 0.0)
    dense = EvidenceByEP()(orthants)
    # What the factor leaves out is 2e-6 of the noise's variance; EP's tolerance counts squared.
    assert low_rank.value == pytest.approx(dense.value, abs=1e-4)
    for a, b in zip(low_rank.wrt, dense.wrt, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_it_begins_where_it_ended(monkeypatch):
    starts = []
    real = label_evidence.fit_ep

    def recorded(*args, start=None, **kwargs):
        starts.append(start)
        return real(*args, start=start, **kwargs)

    monkeypatch.setattr(label_evidence, "fit_ep", recorded)
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
        lambda o: o._replace(latent_cov=np.ones((2, 2))),  # coincident pseudo-points
    ],
    ids=["nan", "indefinite", "coincident"],
)
def test_no_evidence_is_minus_infinity(broken):
    orthants = broken(problem(4, 2))
    for found in (EvidenceByEP()(orthants), evidence_by_twisting(orthants, 64)):
        assert found.value == -np.inf
        assert all((x == 0).all() for x in found.wrt)
