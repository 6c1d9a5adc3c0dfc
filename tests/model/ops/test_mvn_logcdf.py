"""The Op: what it computes is tested with its kernel, here how it behaves in graphs."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import brute_log_prob, equicorrelated_log_prob, finite_difference
from pytensor.compile.mode import Mode
from pytensor.gradient import NullTypeGradError, verify_grad
from pytensor.tensor.blockwise import Blockwise
from scipy.integrate import quad
from scipy.special import log_ndtr

from pymc_skewgp._gaussian.log_prob_gradient import density_and_orthant
from pymc_skewgp._model.ops.densities import (
    MvnLogProb,
    interval_limits,
    pt_log_density_and_orthant,
    pt_log_greatest,
    pt_log_ndtr,
    pt_log_normal_mass,
    pt_mvn_logcdf,
    sun_given,
    sun_of_process,
)
from pymc_skewgp._sun.parameters import SunParameters

pytestmark = pytest.mark.usefixtures("in_python")

INF = np.inf
COV = np.array([[1.5, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.8]])


def cov_of(n):
    factor = np.random.default_rng(n).normal(size=(n, n))
    return factor @ factor.T / n + 0.5 * np.eye(n)


class TestGradient:
    @pytest.mark.parametrize("n", [1, 2])
    def test_closed_forms(self, n):
        def graph(x, lower, cov):
            return pt_mvn_logcdf(x, cov, lower=lower)

        arguments = [np.linspace(0.5, 1.0, n), np.linspace(-1.0, -0.3, n), cov_of(n)]
        verify_grad(graph, arguments, rng=np.random.default_rng(1))

    def test_expectation_propagation(self):
        def graph(x, lower, cov):
            return pt_mvn_logcdf(x, cov, lower=lower, method="ep")

        arguments = [np.array([0.5, 1.0, 0.2, 2.0]), np.array([-1.0, 0.1, -2.0, -1.0]), cov_of(4)]
        verify_grad(graph, arguments, rng=np.random.default_rng(2))

    def test_in_a_batch_that_shares_a_covariance(self):
        def graph(x, cov):
            return pt_mvn_logcdf(x, cov).sum()

        arguments = [np.random.default_rng(3).normal(size=(3, 2)), cov_of(2)]
        verify_grad(graph, arguments, rng=np.random.default_rng(3))

    def test_twisted_by_the_chain_rule(self):
        # Off by their Monte Carlo error, 4e-5 and 1e-4 at 4096 draws; here fivefold.
        x = pt.dvector("x")
        shift, rho = pt.dscalars("shift", "rho")
        cov = (1.0 - rho) * pt.eye(3) + rho
        value = pt_mvn_logcdf(x + shift, cov, n_draws=4096)
        f = pytensor.function([x, shift, rho], [value, *pytensor.grad(value, [shift, rho])])

        def exact(t):
            return equicorrelated_log_prob(
                np.full(3, -INF), np.array([0.3, -0.5, 1.0]) + t[0], t[1]
            )

        at = np.array([0.2, 0.4])
        found, *slope = f([0.3, -0.5, 1.0], *at)
        assert found == pytest.approx(exact(at), abs=2e-4)
        np.testing.assert_allclose(slope, finite_difference(exact, at), atol=1e-3)

    def test_infinite_constants_have_no_gradient(self):
        mu = pt.dvector("mu")
        value = pt_mvn_logcdf(pt.constant([INF, 0.5, INF]) - mu, COV, lower=[-INF, -1.0, 0.0] - mu)
        f = pytensor.function([mu], [value, pytensor.grad(value, mu)])
        found, slope = f(np.zeros(3))
        assert found == pytest.approx(
            brute_log_prob([-1.0, 0.0], [0.5, INF], COV[1:, 1:]), abs=1e-9
        )
        assert slope[0] == 0.0
        assert np.isfinite(slope).all()
        assert (slope[1:] != 0.0).all()

    def test_there_is_no_second_derivative(self):
        x = pt.dvector("x")
        for value in (pt_mvn_logcdf(x, COV), pt_mvn_logcdf(x[None], COV).sum()):
            slope = pytensor.grad(value, x)
            with pytest.raises(NullTypeGradError, match="Second derivatives of a normal"):
                pytensor.grad(slope.sum(), x)


class TestBadValues:
    @pytest.mark.parametrize("method", ["twisted", "ep"])
    def test_minus_infinity_with_zero_gradient_in_a_compiled_function(self, method):
        x, cov = pt.dvector("x"), pt.dmatrix("cov")
        value = pt_mvn_logcdf(x, cov, lower=-1.0, method=method)
        f = pytensor.function([x, cov], [value, *pytensor.grad(value, [x, cov])])
        good = np.ones(3)
        for bad in (
            (np.array([1.0, np.nan, 1.0]), COV),
            (np.array([1.0, -2.0, 1.0]), COV),
            (good, -COV),
            (good, np.zeros((3, 3))),
            (good, np.full((3, 3), np.nan)),
        ):
            found, slope, by_cov = f(*bad)
            assert found == -INF
            assert not slope.any()
            assert not by_cov.any()
        assert np.isfinite(f(good, COV)[0])  # and it recovers

    def test_one_bad_member_does_not_spoil_a_batch(self):
        """In numba it is in `test_compiled_once_for_all_processes`."""
        x = np.array([[0.0, 0.0, 0.0], [0.0, np.nan, 0.0], [1.0, 0.0, 0.5]])
        found = pt_mvn_logcdf(x, COV, method="ep").eval()
        assert np.isfinite(found).tolist() == [True, False, True]


class TestShapes:
    def test_nothing_is_certain(self):
        x, cov = pt.dvector("x"), pt.dmatrix("cov")
        f = pytensor.function([x, cov], pt_mvn_logcdf(x, cov))
        assert f(np.zeros(0), np.zeros((0, 0))) == 0.0
        assert pt_mvn_logcdf(np.zeros((2, 0)), np.zeros((0, 0))).eval().tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_shapes_are_known_without_evaluation(self, batch):
        x = pt.tensor("x", shape=(None,) * (len(batch) + 1))
        cov = pt.dmatrix("cov")
        value = pt_mvn_logcdf(x, cov)
        outputs = value.owner.outputs
        f = pytensor.function([x, cov], [out.shape for out in outputs], on_unused_input="ignore")
        ops = [node.op for node in f.maker.fgraph.apply_nodes]
        assert not any(isinstance(op, MvnLogProb | Blockwise) for op in ops)
        shapes = f(np.zeros((*batch, 3)), COV)
        assert [tuple(shape) for shape in shapes] == [batch, *[(*batch, 3)] * 2, (*batch, 3, 3)]

    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(ValueError, match="upper must have 1 dimension"):
            MvnLogProb()(np.zeros(2), np.zeros((2, 2)), np.eye(2))
        with pytest.raises(ValueError, match="must be of one length"):
            MvnLogProb()(np.zeros(3), np.ones(3), np.eye(2))
        with pytest.raises(ValueError, match=r"cov must be \(\.\.\., n, n\)"):
            pt_mvn_logcdf(np.zeros(2), 1.0)

    def test_single_precision_is_computed_in_double(self):
        found = pt_mvn_logcdf(np.zeros(2, dtype="float32"), np.eye(2, dtype="float32"))
        assert found.type.dtype == "float64"
        assert found.eval() == pytest.approx(np.log(0.25), rel=1e-12)


class TestOp:
    def test_options_are_checked(self):
        with pytest.raises(ValueError, match="method must be one of"):
            MvnLogProb(method="laplace")
        with pytest.raises(ValueError, match="n_draws must be at least 1"):
            MvnLogProb(n_draws=0)
        with pytest.raises(ValueError, match="random_seed must be at least 0"):
            MvnLogProb(random_seed=-1)
        with pytest.raises(TypeError, match="random_seed must be an integer"):
            MvnLogProb(random_seed=None)

    def test_equal_options_make_equal_ops_that_are_evaluated_once(self):
        assert MvnLogProb("ep", 10, 1) == MvnLogProb("ep", 10, 1)
        assert MvnLogProb("ep", 10, 1) != MvnLogProb("ep", 10, 2)
        x = pt.dvector("x")
        value = pt_mvn_logcdf(x, COV) + pt_mvn_logcdf(x, COV)
        f = pytensor.function([x], [value, pytensor.grad(value, x)])
        nodes = [node for node in f.maker.fgraph.apply_nodes if isinstance(node.op, MvnLogProb)]
        assert len(nodes) == 1

    def test_op_and_compiled_function_survive_pickling(self):
        op = pickle.loads(pickle.dumps(MvnLogProb("ep", 10, 3)))
        assert op == MvnLogProb("ep", 10, 3)
        x = pt.dvector("x")
        f = pytensor.function([x], pt_mvn_logcdf(x, COV))
        again = pickle.loads(pickle.dumps(f))
        assert again(np.zeros(3)) == f(np.zeros(3))


SCRIPT = """
import sys, warnings
from pathlib import Path
warnings.simplefilter("error")
import numpy as np, pytensor, pytensor.tensor as pt
from pymc_skewgp._model.ops.densities import pt_mvn_logcdf
x, cov = pt.dmatrix("x"), pt.dmatrix("cov")
for n_draws in map(int, sys.argv[2:]):
    value = pt_mvn_logcdf(x, cov, n_draws=n_draws)
    f = pytensor.function([x, cov], [value, *pytensor.grad(value.sum(), [x, cov])])
    found = f(np.array([[0.3, -0.2, 1.0], [0.0, np.nan, 0.0]]), 0.5 + 0.5 * np.eye(3))
    assert found[0][1] == -np.inf and not found[1][1].any()  # and the other row is as it is
    print(repr(float(found[0][0])), repr(float(found[2].sum())))
    print(*sorted(path.name for path in Path(sys.argv[1]).rglob("*.nbc")))
"""


@pytest.mark.slow(ci=True)
def test_compiled_once_for_all_processes(tmp_path):
    def run(*n_draws):
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "numba"), *n_draws],
            env={**os.environ, "PYTENSOR_FLAGS": f"base_compiledir={tmp_path},numba__cache=True"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    first, files = run("64")
    again, same_files, other, _ = run("64", "128")
    assert files
    assert again == first
    assert same_files == files  # nothing was compiled anew
    assert other != first  # and options are not mixed up


# Logs of normal probabilities: of half-lines, of intervals, and of which of several is greatest.
#
# Values and slopes in both tails are also tested with `BernoulliProbit`.


def test_curvature_and_infinities_of_half_lines():
    z = pt.dvector("z")
    value = pt_log_ndtr(z)
    first = pytensor.grad(value.sum(), z)
    f = pytensor.function([z], [value, first, pytensor.grad(first.sum(), z)])
    # Around the switch, and in the bulk.
    points = np.array([-6.0, -1.5, -1.0 - 1e-9, -1.0, -1.0 + 1e-9, -0.5, 0.0, 1.0, 4.0])
    slopes = finite_difference(lambda z: f(z)[1], points)
    # h^4 f'''''/30 with h = 1e-3 and derivatives of order one, and 1e-13 of round-off over h.
    np.testing.assert_allclose(f(points)[2], slopes.diagonal(), atol=1e-9)
    value, gradient, _ = f(np.array([np.inf, -np.inf]))
    assert (value[0], gradient[0], value[1]) == (0.0, 0.0, -np.inf)


LIMITS = [
    (-1.0, 0.5),
    (-0.2, 3.0),
    (2.0, 2.5),
    (-9.0, -8.0),
    (30.0, 31.0),
    (-31.0, -30.9),
    (0.0, 1e-6),
    (-40.0, 40.0),
]


def by_quadrature(a, b):
    """Log of the integral of the density, scaled by its greatest value in the interval."""
    top = 0.0 if a < 0 < b else min(abs(a), abs(b))
    inside = quad(lambda x: np.exp(0.5 * (top**2 - x**2)), a, b, points=[0.0], epsabs=0)[0]
    return np.log(inside) - 0.5 * top**2 - 0.5 * np.log(2 * np.pi)


@pytest.mark.parametrize("limits", LIMITS)
def test_against_quadrature(limits):
    # Quadrature's own error is 1e-10 or less; a narrow interval leaves a relative 1e-16 / 1e-6.
    assert pt_log_normal_mass(*limits).eval() == pytest.approx(by_quadrature(*limits), abs=2e-10)


def test_infinite_limits_are_those_of_the_distribution_function():
    z = np.array([-40.0, -1.0, 0.0, 2.0, 9.0])
    np.testing.assert_allclose(pt_log_normal_mass(-np.inf, z).eval(), log_ndtr(z), rtol=1e-14)
    np.testing.assert_allclose(pt_log_normal_mass(z, np.inf).eval(), log_ndtr(-z), rtol=1e-14)
    assert pt_log_normal_mass(-np.inf, np.inf).eval() == 0.0


def test_equal_limits_have_no_probability():
    assert pt_log_normal_mass(0.3, 0.3).eval() == -np.inf


def test_gradient_of_intervals():
    """The densities at the limits over the mass; nothing at infinite ones."""
    a, b = pt.dvector("a"), pt.dvector("b")
    gradient = pytensor.grad(pt_log_normal_mass(a, b).sum(), [a, b])
    lower = np.array([-1.0, 2.0, -9.0, 30.0, -np.inf, 0.4])
    upper = np.array([0.5, 2.5, -8.0, 31.0, 1.0, np.inf])
    of_lower, of_upper = pytensor.function([a, b], gradient)(lower, upper)
    finite = np.clip(lower, -40, 40), np.clip(upper, -40, 40)
    mass = np.array([by_quadrature(*limits) for limits in zip(*finite, strict=True)])
    density = [np.exp(-0.5 * x**2 - 0.5 * np.log(2 * np.pi) - mass) for x in (lower, upper)]
    # As accurate as the mass by quadrature.
    np.testing.assert_allclose(of_lower, -density[0], rtol=1e-9)
    np.testing.assert_allclose(of_upper, density[1], rtol=1e-9)


def on_a_fine_grid(mean, c):
    """The same integral over 400 units by 40 000 nodes: exact to round-off."""
    lead = np.delete(mean[c] - mean, c)
    z = np.linspace(-100.0, 300.0, 40_001)
    log_terms = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + sum(log_ndtr(x + z) for x in lead)
    top = log_terms.max()
    return top + np.log(np.exp(log_terms - top).sum() * (z[1] - z[0]))


@pytest.mark.parametrize(("k", "scale"), [(2, 3.0), (3, 30.0), (20, 0.3)])
def test_accuracy_of_the_greatest(k, scale):
    """As the docstring states it, for probable variables and for improbable ones."""
    means = scale * np.random.default_rng(k).standard_normal((4, k))
    means[0] = np.r_[-2 * scale, np.full(k - 1, scale)]
    log_p = pt_log_greatest(pt.constant(means), pt.zeros(4, dtype="int64")).eval()
    expected = [on_a_fine_grid(mean, 0) for mean in means]
    np.testing.assert_allclose(log_p, expected, rtol=1e-14, atol=1e-10)


def test_a_number_of_variables_that_is_not_known_before():
    mean, index = pt.dvector("mean"), pt.lscalar("index")
    f = pytensor.function([mean, index], pt_log_greatest(mean, index))
    for k in (2, 5, 32):
        value = 0.5 * np.random.default_rng(k).standard_normal(k)
        assert f(value, 1) == pytest.approx(on_a_fine_grid(value, 1), abs=1e-10)


@pytest.mark.parametrize(
    "mean", [[0.4, -0.3, 1.1, 0.0], [-30.0, 20.0, 25.0, 24.0], [9.0, -9, 0, 0]]
)
def test_gradient_of_the_greatest(mean):
    x = pt.vector("x", shape=(4,))
    log_p = pt_log_greatest(x, pt.constant(0))
    f = pytensor.function([x], [log_p, pytensor.grad(log_p, x)])
    mean = np.asarray(mean, dtype=float)
    gradient = f(mean)[1]
    steps = 1e-5 * np.eye(4)
    differences = [(f(mean + h)[0] - f(mean - h)[0]) / 2e-5 for h in steps]
    # Round-off of values up to 2000 over the step.
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-7)
    assert gradient.sum() == pytest.approx(0.0, abs=1e-8)  # only differences matter


# Density and parameters of the unified skew-normal in graphs: gradients, shapes, other backends.
#
# What they compute is tested with the variables and processes made of them.


IN_PYTHON = Mode("py", None)
INPUTS = {
    "offset": np.array([0.4, -0.9]),
    "scale": np.array([[1.0, 0.3], [0.3, 2.0]]),
    "cross_cov": np.array([[0.5, 0.1], [-0.2, 0.6]]),
    "limits": np.array([0.3, -0.4]),
    "latent_cov": np.array([[1.0, 0.2], [0.2, 0.8]]),
}

ROWS = np.array([[-3.0, -2.0], [1.0, 2.0], [0.1, 2.0]])  # lower and upper limits, variances


def variables():
    return [pt.tensor(dtype="float64", shape=(None,) * x.ndim) for x in INPUTS.values()]


@pytest.mark.parametrize("mode", ["NUMBA", IN_PYTHON])
def test_the_op_has_the_value_and_the_gradient_of_the_kernel(mode):
    x = variables()
    value = pt_log_density_and_orthant(*x)
    f = pytensor.function(x, [value, *pytensor.grad(3.0 * value, x)], mode=mode)
    expected = density_and_orthant(**INPUTS)
    found = f(*INPUTS.values())
    assert found[0] == expected.value
    for name, gradient in zip(INPUTS, found[1:], strict=True):
        np.testing.assert_array_equal(gradient, 3.0 * getattr(expected, name))
    value, *gradient = f(*(INPUTS | {"scale": -INPUTS["scale"]}).values())  # no covariance
    assert value == -np.inf
    assert not any(g.any() for g in gradient)


def test_gradient_of_a_conditional_in_the_hyperparameters():
    """Through two Cholesky factors and the triangular solves, against finite differences."""
    factor = np.random.default_rng(7).normal(size=(7, 14))
    phase, truncation = np.array([1.0, -1.0]), np.array([0.3, -0.4])

    def parts(scale, shift):
        cov = pt.as_tensor_variable(factor @ factor.T / 7) * scale + 0.5 * pt.eye(7)
        mean = np.linspace(-1.0, 1.0, 5) + shift
        sun = sun_given(
            sun_of_process(mean, cov, phase, truncation + shift, 2), np.array([0.8, -0.3])
        )
        return sum((pt.cos(x) * (1.0 + pt.arange(x.shape[-1]))).sum() for x in sun)

    # The default step and tolerance of verify_grad, relative 1e-4.
    pytensor.gradient.verify_grad(parts, [0.8, 0.2], rng=np.random.default_rng(3), mode=IN_PYTHON)


def test_interval_limits_with_noise_of_each_row():
    """Rows of the latent variables, above minus the truncation, and of f + e less its mean."""
    mu, scale, cross, truncation, latent_cov = map(pt.as_tensor_variable, INPUTS.values())
    sun = SunParameters(mu, scale, cross, truncation, latent_cov)
    low, high, cov = interval_limits(sun, *(pt.as_tensor_variable(x) for x in ROWS))
    np.testing.assert_allclose(low.eval(), [-0.3, 0.4, -3.4, -1.1])
    np.testing.assert_allclose(high.eval(), [np.inf, np.inf, 0.6, 2.9])
    C = INPUTS["cross_cov"]
    noisy = INPUTS["scale"] + np.diag(ROWS[2])
    np.testing.assert_allclose(cov.eval(), np.block([[INPUTS["latent_cov"], C.T], [C, noisy]]))
