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
from pytensor.gradient import NullTypeGradError, verify_grad
from pytensor.tensor.blockwise import Blockwise

from pymc_skewgp._model.ops.densities import MvnLogProb, pt_mvn_logcdf

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
        x = np.array([[0.0, 0.0, 0.0], [0.0, np.nan, 0.0], [1.0, 0.0, 0.5]])
        # The one test of batches in numba.
        found = pt_mvn_logcdf(x, COV, method="ep").eval(mode="NUMBA")
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
    value = pt_mvn_logcdf(x, cov, n_draws=n_draws).sum()
    f = pytensor.function([x, cov], [value, *pytensor.grad(value, [x, cov])])
    found = f(np.array([[0.3, -0.2, 1.0]]), 0.5 + 0.5 * np.eye(3))
    print(repr(float(found[0])), repr(float(found[2].sum())))
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
