"""The log marginal likelihood of intervals as an Op, against quadrature and finite differences."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import brute_log_prob, finite_difference
from pytensor.compile.mode import Mode
from scipy.special import log_ndtr

from pymc_skewgp._model.ops.log_evidence import LogEvidence, log_evidence, pt_log_evidence
from pymc_skewgp._sun.parameters import SunParameters

IN_PYTHON = Mode("py", None)
NDIMS = (1, 1, 1, 2, 2, 1, 2)
# Two rows, one with two limits and one with one, of a vector with one latent variable.
LIMITS = [np.array([-0.4, -np.inf]), np.array([1.1, 0.3])]
SUN = SunParameters(
    mu=np.array([0.3, -0.2]),
    scale=np.array([[2.0, 0.7], [0.7, 1.5]]),
    cross_cov=np.array([[0.9], [-0.4]]),
    truncation=np.array([0.2]),
    latent_cov=np.array([[1.3]]),
)
CASE = [*LIMITS, *SUN]


def exact(lower, upper, mu, scale, cross_cov, truncation, latent_cov):
    """The definition, by quadrature in three dimensions and a closed form in one."""
    cov = np.block([[latent_cov, cross_cov.T], [cross_cov, scale + np.eye(2)]])
    low = np.concatenate([-truncation, lower - mu])
    high = np.concatenate([[np.inf], upper - mu])
    prior = log_ndtr(truncation[0] / np.sqrt(latent_cov[0, 0]))
    return brute_log_prob(low, high, cov) - prior


def compiled(mode):
    inputs = [pt.tensor(dtype="float64", shape=(None,) * n) for n in NDIMS]
    value = pt_log_evidence(*inputs[:2], SunParameters(*inputs[2:]), n_draws=4096)
    return pytensor.function(inputs, [value, *pytensor.grad(value, inputs)], mode=mode)


@pytest.fixture(scope="module")
def function():
    return compiled(IN_PYTHON)


def test_value_and_every_derivative(function):
    value, *derivatives = function(*CASE)
    # Over random seeds of the points the standard deviations are below 5e-5 and 5e-4.
    assert value == pytest.approx(exact(*CASE), abs=3e-4)
    for i, found in enumerate(derivatives):
        finite = np.where(np.isfinite(CASE[i]), CASE[i], 0.0)

        def of_one(x, i=i):
            x = np.where(np.isfinite(CASE[i]), x, CASE[i])
            # Matrices are read by their symmetric part, as the Op reads them.
            x = 0.5 * (x + x.T) if i in (3, 6) else x
            return exact(*CASE[:i], x, *CASE[i + 1 :])

        np.testing.assert_allclose(found, finite_difference(of_one, finite), atol=3e-3)


def test_numba_gives_the_same(function):
    # The same NumPy code behind both.
    for found, expected in zip(compiled("NUMBA")(*CASE), function(*CASE), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_without_latent_variables_rows_may_be_independent(function):
    nothing = np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0))
    value, *_ = function(*LIMITS, SUN.mu, np.diag([3.0, 8.0]), *nothing)
    one = np.log(np.diff(np.exp(log_ndtr((np.array([-0.4, 1.1]) - 0.3) / 2.0))))[0]
    # In closed form, two rows.
    assert value == pytest.approx(one + log_ndtr(0.5 / 3.0), abs=1e-12)


@pytest.mark.parametrize(
    ("at", "change"),
    [
        (0, [1.2, -np.inf]),  # not below its partner
        (1, [np.nan, 0.3]),
        (2, [np.inf, 0.0]),
        (3, [[1.0, 1.5], [1.5, 1.0]]),  # a covariance with the noise only
        (4, [[2.0], [0.0]]),  # its blocks are covariances, the whole is none
        (5, [np.nan]),
        (6, [[-1.0]]),
    ],
)
def test_minus_infinity_without_gradient(at, change):
    value, *derivatives = log_evidence("twisted", 64, *CASE[:at], np.array(change), *CASE[at + 1 :])
    assert value == -np.inf
    assert not any(x.any() for x in derivatives)
    assert [x.shape for x in derivatives] == [x.shape for x in CASE]


def test_batches_broadcast(function):
    lower = np.array([[-0.4, -np.inf], [0.0, 0.1]])
    value = pt_log_evidence(pt.constant(lower), pt.constant(CASE[1]), map(pt.constant, SUN))
    found = value.eval(mode=IN_PYTHON)
    for row, one in zip(lower, found, strict=True):
        # The same points and numbers: round-off only.
        assert log_evidence("twisted", 256, row, *CASE[1:])[0] == pytest.approx(one, abs=1e-12)


def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match="method must be one of"):
        LogEvidence("mcmc")
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        LogEvidence(n_draws=0)
    with pytest.raises(ValueError, match="scale must have 2 dimension"):
        LogEvidence()(*CASE[:3], CASE[2], *CASE[4:])
