"""The log marginal likelihood of rows as an Op, against quadrature and finite differences."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import brute_log_prob, finite_difference
from pytensor.compile.mode import Mode
from scipy import stats
from scipy.special import log_ndtr

from pymc_skewgp._model.ops import numba_dispatch as log_evidence_numba
from pymc_skewgp._model.ops.log_evidence import log_evidence, pt_log_evidence
from pymc_skewgp._sun.parameters import SunParameters

IN_PYTHON = Mode("py", None)
NDIMS = (1, 1, 1, 1, 1, 2, 2, 1, 2)
# Two rows, one with two limits and one with one, of a vector with one latent variable.
LIMITS = [np.array([-0.4, -np.inf]), np.array([1.1, 0.3])]
SUN = SunParameters(
    mu=np.array([0.3, -0.2]),
    scale=np.array([[2.0, 0.7], [0.7, 1.5]]),
    cross_cov=np.array([[0.9], [-0.4]]),
    truncation=np.array([0.2]),
    latent_cov=np.array([[1.3]]),
)
NOWHERE, NOISE = np.full(2, np.nan), np.array([1.0, 0.6])
CASE = [*LIMITS, NOWHERE, NOISE, *SUN]
# Three rows, of which the second is a point, and the noise of the first two is shared.
SHARED = [
    np.array([-0.4, np.nan, -np.inf]),
    np.array([1.1, np.nan, 0.3]),
    np.array([np.nan, 0.5, np.nan]),
    np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.0], [0.0, 0.0, 0.7]]),
    np.array([0.3, 0.1, -0.2]),
    np.array([[2.0, 0.5, 0.7], [0.5, 1.2, -0.3], [0.7, -0.3, 1.5]]),
    np.array([[0.9], [0.2], [-0.4]]),
    SUN.truncation,
    SUN.latent_cov,
]


def exact(lower, upper, value, noise, mu, scale, cross_cov, truncation, latent_cov):
    """The definition: a density by its formula, given that quadrature, a closed form in one."""
    noise = np.diag(noise) if noise.ndim == 1 else noise
    cov = np.block([[latent_cov, cross_cov.T], [cross_cov, scale + noise]])
    low = np.concatenate([-truncation, lower - mu])
    high = np.concatenate([[np.inf], upper - mu])
    known = np.concatenate([[False], ~np.isnan(value)])
    density = 0.0
    if known.any():
        own, across = cov[np.ix_(known, known)], cov[np.ix_(~known, known)]
        residual = (value - mu)[known[1:]]
        density = stats.multivariate_normal(cov=own).logpdf(residual)
        shift = across @ np.linalg.solve(own, residual)
        low, high = low[~known] - shift, high[~known] - shift
        cov = cov[np.ix_(~known, ~known)] - across @ np.linalg.solve(own, across.T)
    prior = log_ndtr(truncation[0] / np.sqrt(latent_cov[0, 0]))
    return density + brute_log_prob(low, high, cov) - prior


def compiled(mode, ndims=NDIMS):
    inputs = [pt.tensor(dtype="float64", shape=(None,) * n) for n in ndims]
    lower, upper, value, noise, *sun = inputs
    value = pt_log_evidence(
        (lower, upper), SunParameters(*sun), value=value, noise=noise, n_draws=4096
    )
    return pytensor.function(inputs, [value, *pytensor.grad(value, inputs)], mode=mode)


@pytest.fixture(scope="module")
def function():
    return compiled(IN_PYTHON)


@pytest.fixture(scope="module")
def of_shared():
    return compiled(IN_PYTHON, [x.ndim for x in SHARED])


def assert_exact(function, case):
    value, *derivatives = function(*case)
    # Over random seeds of the points the standard deviations are below 5e-5 and 5e-4.
    assert value == pytest.approx(exact(*case), abs=3e-4)
    for i, found in enumerate(derivatives):
        finite = np.where(np.isfinite(case[i]), case[i], 0.0)

        def of_one(x, i=i):
            x = np.where(np.isfinite(case[i]), x, case[i])
            # Matrices are read by their symmetric part, as the Op reads them.
            x = 0.5 * (x + x.T) if x.ndim == 2 and i != 6 else x
            return exact(*case[:i], x, *case[i + 1 :])

        np.testing.assert_allclose(found, finite_difference(of_one, finite), atol=3e-3)


def test_value_and_every_derivative(function):
    assert_exact(function, CASE)


def test_a_point_with_shared_noise(of_shared):
    assert_exact(of_shared, SHARED)


def test_numba_gives_the_same(function, of_shared):
    # The same NumPy code behind both.
    for python, case in ((function, CASE), (of_shared, SHARED)):
        in_numba = compiled("NUMBA", [x.ndim for x in case])
        for found, expected in zip(in_numba(*case), python(*case), strict=True):
            np.testing.assert_array_equal(found, expected)
        value, *derivatives = in_numba(*case[:5], -case[5], *case[6:])  # no covariance
        assert value == -np.inf
        assert not any(x.any() for x in derivatives)


def by_ep(n, s=0):
    """A case with one limit, two or none in a row, for EP in numba and in Python."""
    rng = np.random.default_rng(n)
    factor = rng.normal(size=(n + s, n + s))
    cov = factor @ factor.T / (n + s) + 0.1 * np.eye(n + s)
    lower, upper = rng.normal(-0.5, 1.0, n), np.full(n, np.inf)
    upper[::3] = lower[::3] + 0.8
    lower[1], upper[1] = -np.inf, 0.3
    lower[-1] = -np.inf
    sun = rng.normal(size=n), cov[s:, s:], cov[s:, :s], np.full(s, 0.2), cov[:s, :s]
    return [lower, upper, np.full(n, np.nan), rng.uniform(0.5, 1.5, n), *sun]


@pytest.fixture(scope="module")
def ep_in_numba():
    inputs = [pt.tensor(dtype="float64", shape=(None,) * n) for n in NDIMS]
    lower, upper, value, noise, *sun = inputs
    value = pt_log_evidence(
        (lower, upper), SunParameters(*sun), value=value, noise=noise, method="ep"
    )
    return pytensor.function(inputs, [value, *pytensor.grad(value, inputs)], mode="NUMBA")


# From 4 rows on without Python; few rows, a latent variable or points are left to it.
@pytest.mark.parametrize(("n", "s"), [(4, 0), (9, 0), (60, 0), (3, 0), (5, 1)])
def test_ep_in_numba_gives_the_same(ep_in_numba, n, s, monkeypatch):
    case = by_ep(n, s)
    expected = log_evidence("ep", 1, *case)
    assert np.isfinite(expected[0])
    if n > 3 and not s:  # Python is not asked
        monkeypatch.setattr(log_evidence_numba, "log_evidence", None)
    # Two algorithms for one fixed point, with residuals below 1e-8.
    for found, derivative in zip(ep_in_numba(*case), expected, strict=True):
        np.testing.assert_allclose(found, derivative, atol=1e-7)


@pytest.mark.parametrize(
    ("at", "change"),
    [
        (0, np.full(5, np.nan)),
        (2, np.arange(5.0)),
        (3, np.zeros(5)),
        (3, np.full(5, -9.0)),
        (3, np.full(5, np.nan)),
        (4, np.full(5, np.inf)),
        (5, -np.eye(5)),
        (5, np.full((5, 5), np.nan)),
    ],
)
def test_ep_in_numba_leaves_what_is_not_simple(ep_in_numba, at, change):
    case = by_ep(5)
    case[at] = change
    for found, expected in zip(ep_in_numba(*case), log_evidence("ep", 1, *case), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("at", "change"),
    [
        (0, [1.2, -np.inf]),  # not below its partner
        (1, [np.nan, 0.3]),
        (2, [np.inf, np.nan]),
        (3, [np.nan, 1.0]),
        (3, [-9.0, 1.0]),
        (4, [np.inf, 0.0]),
        (5, [[1.0, 1.5], [1.5, 1.0]]),  # a covariance with the noise only
        (6, [[2.0], [0.0]]),  # its blocks are covariances, the whole is none
        (7, [np.nan]),
        (8, [[-1.0]]),
    ],
)
def test_minus_infinity_without_gradient(at, change):
    value, *derivatives = log_evidence("twisted", 64, *CASE[:at], np.array(change), *CASE[at + 1 :])
    assert value == -np.inf
    assert not any(x.any() for x in derivatives)
    assert [x.shape for x in derivatives] == [x.shape for x in CASE]
