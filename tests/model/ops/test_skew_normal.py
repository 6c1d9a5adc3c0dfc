"""Unified skew-normal parameters as graphs: those of `SUN`, and what closed forms say of them."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pymc_skewgp import SUN
from pymc_skewgp._model.ops.densities import (
    interval_limits,
    label_intervals,
    static_n_latent,
    sun_from_white,
    sun_given,
    sun_of_process,
)
from pymc_skewgp._sun.parameters import skewness_matrix

pytestmark = pytest.mark.usefixtures("in_python")

# These graphs run once: compiling them would be all of the time.
PLAIN = Mode("py", "fast_run").excluding("fusion", "inplace")
P = 5
PHASE = np.array([1.0, -1.0])
TRUNCATION = np.array([0.3, -0.4])
# The same numbers by other routes through LAPACK, of matrices with condition numbers below 100.
ROUND_OFF = {"rtol": 1e-12, "atol": 1e-13}


def covariance(n):
    factor = np.random.default_rng(n).normal(size=(n, 2 * n))
    return factor @ factor.T / n


def process(s):
    """Mean of the P coordinates, covariance of all s + P, phases and truncations."""
    return np.linspace(-1.0, 1.0, P), covariance(s + P), PHASE[:s], TRUNCATION[:s]


def graph_of(s):
    return sun_of_process(*process(s), s)


def values(sun):
    """Parameters as arrays."""
    return [pt.as_tensor_variable(x).eval(mode=PLAIN) for x in sun]


def as_sun(sun):
    return SUN.from_cross_cov(*values(sun))


def assert_same(found, expected):
    for name in ("mu", "scale", "cross_cov", "truncation", "latent_cov"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), **ROUND_OFF)


@pytest.fixture(params=[0, 1, 2], ids="s={}".format)
def s(request):
    return request.param


class TestOfProcess:
    def test_parameters_of_the_paper(self, s):
        """Gamma = L Kbar(R, R) L, Delta = Kbar(X, R) L, with Kbar of unit variances."""
        mean, cov, phase, truncation = process(s)
        sun = graph_of(s)
        correlation = cov / np.sqrt(np.outer(cov.diagonal(), cov.diagonal()))
        mu, scale, _, gamma, latent_cov = values(sun)
        np.testing.assert_array_equal(mu, mean)
        np.testing.assert_array_equal(scale, cov[s:, s:])
        np.testing.assert_array_equal(gamma, truncation)
        expected = phase[:, None] * correlation[:s, :s] * phase
        np.testing.assert_allclose(latent_cov, expected, **ROUND_OFF)
        cross_cov, scale = (x.eval(mode=PLAIN) for x in (sun.cross_cov, sun.scale))
        skewness = skewness_matrix(scale, cross_cov)
        np.testing.assert_allclose(skewness, correlation[s:, :s] * phase, **ROUND_OFF)
        assert static_n_latent(sun) == s

    def test_number_of_latent_rows_is_static_whatever_the_inputs(self):
        sun = sun_of_process(pt.dvector(), pt.dmatrix(), pt.dvector(), pt.dvector(), 2)
        assert sun.truncation.type.shape == (2,)
        assert sun.latent_cov.type.shape == (2, 2)


class TestGiven:
    Z = np.array([0.8, -0.3])

    def test_is_the_conditional_of_sun(self, s):
        found = as_sun(sun_given(graph_of(s), pt.as_tensor_variable(self.Z)))
        assert_same(found, as_sun(graph_of(s)).conditional(slice(2), self.Z))

    def test_lengths_may_be_unknown_at_build(self, s):
        mean, cov, z = pt.dvector("mean"), pt.dmatrix("cov"), pt.dvector("z")
        sun = sun_given(sun_of_process(mean, cov, PHASE[:s], TRUNCATION[:s], s), z)
        function = pytensor.function([mean, cov, z], list(sun), mode=PLAIN)
        for p, n in ((5, 2), (3, 1)):
            joint = covariance(s + p)
            full = SUN.from_cross_cov(
                *values(sun_of_process(np.zeros(p), joint, PHASE[:s], TRUNCATION[:s], s))
            )
            found = SUN.from_cross_cov(*function(np.zeros(p), joint, np.ones(n)))
            assert_same(found, full.conditional(slice(n), np.ones(n)))

    def test_matrices_are_symmetric_to_the_last_digit(self, s):
        _, scale, _, _, latent_cov = values(sun_given(graph_of(s), pt.as_tensor_variable(self.Z)))
        np.testing.assert_array_equal(scale, scale.T)
        np.testing.assert_array_equal(latent_cov, latent_cov.T)


class TestFromWhite:
    def test_moments_of_the_linear_map(self, s):
        """f = mu + B u + A v with B = C Gamma^-1 and A A' = Omega - C Gamma^-1 C'."""
        sun = graph_of(s)
        u, v = pt.dvector("u"), pt.dvector("v")
        f = sun_from_white(sun, u if s else None, v)
        function = pytensor.function([u, v], f, mode=PLAIN, on_unused_input="ignore")
        mu, scale, cross, _, latent_cov = values(sun)
        origin = function(np.zeros(s), np.zeros(P))
        np.testing.assert_allclose(origin, mu, **ROUND_OFF)
        along_u = [function(e, np.zeros(P)) - origin for e in np.eye(s)]
        along_v = np.array([function(np.zeros(s), e) - origin for e in np.eye(P)]).T
        B = np.array(along_u).reshape(s, P).T
        if s:
            np.testing.assert_allclose(B, cross @ np.linalg.inv(latent_cov), **ROUND_OFF)
        total = along_v @ along_v.T + B @ latent_cov @ B.T
        np.testing.assert_allclose(total, scale, **ROUND_OFF)


class TestProbitLimits:
    SIGN = np.array([1.0, -1.0, -1.0, 1.0, 1.0])

    def found(self, s):
        labels = pt.as_tensor_variable((self.SIGN > 0).astype("int64"))
        return [x.eval(mode=PLAIN) for x in interval_limits(graph_of(s), *label_intervals(labels))]

    def test_are_those_of_noisy_signs(self, s):
        """Against the covariance of (known signs, f + e), built from the joint of f and e."""
        mean, cov, phase, truncation = process(s)
        lower, upper, found = self.found(s)
        rows = np.zeros((s + P, s + 2 * P))  # of (f at pseudo-points, f, e)
        rows[:s, :s] = np.diag(phase / np.sqrt(cov.diagonal()[:s]))
        rows[s:, s : s + P] = rows[s:, s + P :] = np.eye(P)
        joint = np.block([[cov, np.zeros((s + P, P))], [np.zeros((P, s + P)), np.eye(P)]])
        np.testing.assert_allclose(found, rows @ joint @ rows.T, **ROUND_OFF)
        below = np.where(self.SIGN > 0, -mean, -np.inf)
        above = np.where(self.SIGN > 0, np.inf, -mean)
        np.testing.assert_allclose(lower, np.append(-truncation, below), **ROUND_OFF)
        np.testing.assert_allclose(upper, np.append(np.full(s, np.inf), above), **ROUND_OFF)


def test_interval_limits_with_noise_of_each_row():
    sun = graph_of(2)
    lower, upper = np.arange(P) - 3.0, np.arange(P) + 1.0
    noise = np.linspace(0.1, 2.0, P)
    low, high, cov = (x.eval(mode=PLAIN) for x in interval_limits(sun, lower, upper, noise))
    mu, scale, cross, truncation, latent_cov = (x.eval(mode=PLAIN) for x in sun)
    np.testing.assert_allclose(low, np.append(-truncation, lower - mu), **ROUND_OFF)
    np.testing.assert_allclose(high, np.append([np.inf, np.inf], upper - mu), **ROUND_OFF)
    whole = np.block([[latent_cov, cross.T], [cross, scale + np.diag(noise)]])
    np.testing.assert_allclose(cov, whole, **ROUND_OFF)


def test_gradient_of_a_conditional_in_the_hyperparameters():
    """Through two Cholesky factors and the triangular solves, against finite differences."""

    def parts(scale, shift):
        mean, cov, phase, truncation = process(2)
        cov = pt.as_tensor_variable(cov) * scale + 0.5 * pt.eye(P + 2)
        joint = sun_of_process(mean + shift, cov, phase, truncation + shift, 2)
        sun = sun_given(joint, pt.as_tensor_variable(TestGiven.Z))
        return sum((pt.cos(x) * (1.0 + pt.arange(x.shape[-1]))).sum() for x in sun)

    # The default step and tolerance of verify_grad, relative 1e-4.
    pytensor.gradient.verify_grad(parts, [0.8, 0.2], rng=np.random.default_rng(3), mode=PLAIN)
