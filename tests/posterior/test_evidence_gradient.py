"""The log evidence: both methods against quadrature, both forms of a covariance."""

import numpy as np
import pytest

from pymc_skewgp._gaussian import ep_dense
from pymc_skewgp._posterior import evidence_gradient
from pymc_skewgp._posterior.evidence_gradient import (
    EvidenceByEP,
    EvidenceTerms,
    Intervals,
    evidence_by_twisting,
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


@pytest.mark.parametrize("noise", [1.0, 1e-4, 30.0])
def test_low_rank_and_dense_agree(noise, monkeypatch):
    """Noise of any size, half of the rows with ten times as much where it is not 1."""
    monkeypatch.setattr(evidence_gradient, "_FEW_ROWS", 0)
    terms = problem(60, 2 if noise == 1.0 else 0, seed=3, ls=1.5, gap=3.0)
    if noise != 1.0:
        own = noise * np.where(np.arange(60) % 2, 1.0, 10.0)
        terms = terms._replace(cov=noise * (terms.cov - np.eye(60)) + np.diag(own), noise=own)
        scale = np.sqrt(noise)
        terms = terms._replace(lower=scale * terms.lower, upper=scale * terms.upper)
    low_rank, rows = EvidenceByEP()(terms), Intervals(terms)
    assert isinstance(
        evidence_gradient._covariance(terms, rows), evidence_gradient.LowRankCovariance
    )
    monkeypatch.setattr(evidence_gradient, "_LOW_RANK_SHARE", 0.0)
    dense = EvidenceByEP()(terms)
    # What the factor leaves out is 2e-6 of the noise's variance; EP's tolerance counts squared.
    assert low_rank.value == pytest.approx(dense.value, abs=1e-4)
    if noise == 1.0:
        for a, b in zip(low_rank.wrt, dense.wrt, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-3)


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


def test_the_plain_iteration_where_the_other_is_stuck(monkeypatch):
    terms = problem(5, 0)
    expected = EvidenceByEP()(terms)
    monkeypatch.setattr(ep_dense, "fit_dense_ep", lambda *args, **kwargs: None)
    found = EvidenceByEP()(terms)
    # Either stops at a residual of 1e-4, the value being off by its square, the gradient by it.
    assert found.value == pytest.approx(expected.value, abs=1e-6)
    np.testing.assert_allclose(found.wrt.cov, expected.wrt.cov, atol=1e-4)
