"""MarginalProbit: labels of a skewed function that is integrated out, against exact integrals."""

import itertools

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import finite_difference
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from pytensor.compile.mode import Mode
from scipy.special import log_ndtr, logsumexp

from pymc_skewgp import MarginalProbit, NotPositiveDefiniteError
from pymc_skewgp._model.distributions.marginal import MarginalProbitRV

pytestmark = pytest.mark.usefixtures("in_python")

# Most of these graphs run a few times: compiling them would be all of the time.
PLAIN = Mode("py", "fast_run").excluding("fusion", "inplace")
ONE_LATENT = {
    "mu": np.array([0.4, -0.3]),
    "scale": np.array([[2.0, 0.7], [0.7, 1.5]]),
    "skewness": np.array([[0.8], [0.1]]),
    "truncation": np.array([0.2]),
    "latent_cov": np.array([[1.0]]),
}
# Inside, C = D Delta stands in place of the skewness.
IN_THE_OP = {
    "cross_cov" if name == "skewness" else name: (
        np.sqrt(ONE_LATENT["scale"].diagonal())[:, None] * value if name == "skewness" else value
    )
    for name, value in ONE_LATENT.items()
}


def log_p(value, *parameters, **options):
    return pm.logp(MarginalProbit.dist(*parameters, **options), value).eval(mode=PLAIN)


class TestRandom(BaseTestDistributionRandom):
    pymc_dist = MarginalProbit
    pymc_dist_params = ONE_LATENT
    expected_rv_op_params = IN_THE_OP
    checks_to_run = ["check_pymc_params_match_rv_op", "check_rv_size"]  # noqa: RUF012
    sizes_to_check = [None, 1, (2, 3)]  # noqa: RUF012
    sizes_expected = [(2,), (1, 2), (2, 3, 2)]  # noqa: RUF012


class OneFactor:
    """Exchangeable f: f_i = m + sqrt(v) (sqrt(rho) t + sqrt(1 - rho) e_i), pseudo-points alike."""

    theta = np.array([0.2, 1.7, 0.6])

    def __init__(self, phase, truncation):
        self.y = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1, 1])
        self.phase, self.truncation = np.array(phase), np.array(truncation)

    def exact(self, theta):
        """Given t all rows are independent; by Gauss-Legendre in t, exact to round-off."""
        m, v, rho = theta
        nodes, weights = np.polynomial.legendre.leggauss(400)
        t = np.sqrt(rho) * 12.0 * nodes[:, None]
        log_weights = np.log(weights) - 72.0 * nodes**2
        signs = (self.truncation + t * self.phase) / np.sqrt(1.0 - rho)
        labels = (2.0 * self.y - 1.0) * (m + np.sqrt(v) * t) / np.sqrt(1.0 + v * (1.0 - rho))
        prior = log_weights + log_ndtr(signs).sum(axis=1)
        return float(logsumexp(prior + log_ndtr(labels).sum(axis=1)) - logsumexp(prior))

    def parameters(self, theta):
        m, v, rho = theta
        n, s = self.y.size, self.phase.size
        return (
            m * pt.ones(n),
            v * (rho + (1.0 - rho) * pt.eye(n)),
            rho * pt.ones((n, 1)) * self.phase,
            pt.as_tensor_variable(self.truncation),
            (rho + (1.0 - rho) * pt.eye(s)) * np.outer(self.phase, self.phase),
        )


# By options: tolerances of value and gradient are six to ten standard deviations over seeds; those
# of EP are its own error.
OPTIONS = {"4096": ({"n_draws": 4096}, 2e-4, 1.5e-3), "ep": ({"method": "ep"}, 5e-3, 0.03)}
CASES = {
    "s=0": OneFactor([], []),
    "s=1": OneFactor([1.0], [0.3]),
    "s=3": OneFactor([1.0, -1.0, 1.0], [0.4, 0.9, 0.1]),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient(name, options):
    case = CASES[name]
    options, of_value, of_gradient = OPTIONS[options]
    theta = pt.vector("theta", shape=(3,), dtype="float64")
    y = MarginalProbit.dist(*case.parameters(theta), **options)
    density = pm.logp(y, case.y)
    function = pytensor.function([theta], [density, pytensor.grad(density, theta)], mode=PLAIN)
    value, gradient = function(case.theta)
    assert value == pytest.approx(case.exact(case.theta), abs=of_value)
    expected = finite_difference(case.exact, case.theta)
    np.testing.assert_allclose(gradient, expected, atol=of_gradient)


class TestSumsToOne:
    y = np.array(list(itertools.product([0, 1], repeat=3)))
    mu = np.array([0.5, -0.2, 0.1])
    scale = np.array([[2.0, 0.9, 0.3], [0.9, 1.5, -0.4], [0.3, -0.4, 1.0]])

    skewness = np.array([[0.6, 0.2], [0.1, -0.5], [-0.3, 0.4]])
    latent_cov = np.array([[1.0, 0.3], [0.3, 1.0]])

    def test_over_all_labels_and_draws_have_these_frequencies(self):
        """One row of labels is one value: all of them in one evaluation."""
        parameters = self.mu, self.scale, self.skewness, np.array([0.2, -0.6]), self.latent_cov
        p = np.exp(log_p(self.y, *parameters, n_draws=4096))
        assert p.shape == (8,)
        # Over random seeds of the points the sum has a standard deviation below 4e-5.
        assert p.sum() == pytest.approx(1.0, abs=3e-4)
        draws = pm.draw(MarginalProbit.dist(*parameters, size=20_000), random_seed=1)
        assert draws.shape == (20_000, 3)
        assert draws.dtype == np.int64
        code = draws @ [4, 2, 1]
        frequency = np.bincount(code, minlength=8) / 20_000
        # Five standard errors, each of eight: a false alarm in 5e-6 of all seeds.
        assert (np.abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / 20_000)).all()


class TestOutOfTheSupport:
    def test_labels(self):
        values = [[0, 1], [0, 2], [-1, 1], [7, 7]]
        found = log_p(values, *ONE_LATENT.values())
        assert np.isfinite(found[0])
        np.testing.assert_array_equal(found[1:], -np.inf)

    def test_no_covariance_and_one_again(self):
        mu, scale = pt.dvector("mu"), pt.dmatrix("scale")
        rest = [ONE_LATENT[name] for name in ("skewness", "truncation", "latent_cov")]
        value = pm.logp(MarginalProbit.dist(mu, scale, *rest), np.array([0, 1]))
        outputs = [value, *pytensor.grad(value, [mu, scale])]
        function = pytensor.function([mu, scale], outputs, mode=PLAIN)
        value, *gradient = function(np.zeros(2), np.array([[-0.5, 0.0], [0.0, 1.0]]))
        assert value == -np.inf
        assert all(np.isfinite(part).all() for part in gradient)
        value, *gradient = function(ONE_LATENT["mu"], ONE_LATENT["scale"])
        assert np.isfinite(value)
        assert all((part != 0).all() for part in gradient)


class TestWrongConstants:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"scale": [[1.0, 2.0], [2.0, 1.0]]}, "scale is not positive definite"),
            ({"skewness": [[0.95], [-0.95]]}, r"C from skewness\) is not positive definite"),
            ({"method": "mcmc"}, "method must be one of"),
            ({"n_draws": 0}, "n_draws must be at least 1"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_are_named_at_build(self, change, message):
        with pytest.raises((ValueError, NotPositiveDefiniteError), match=message):
            MarginalProbit.dist(**{**ONE_LATENT, **change})


class TestShapes:
    def test_batches_are_data_sets_apart(self):
        mu = np.array([[0.4, -0.3], [1.0, 2.0], [-1.0, 0.0]])
        truncation = np.array([[0.2], [-0.5], [1.0]])
        parameters = {**ONE_LATENT, "mu": mu, "truncation": truncation}
        y = MarginalProbit.dist(**parameters)
        labels = np.array([[0, 1], [1, 1], [0, 0]])
        assert pm.draw(y, 4, random_seed=1, mode=PLAIN).shape == (4, 3, 2)
        found = pm.logp(y, labels).eval(mode=PLAIN)
        for i in range(3):
            one = {**ONE_LATENT, "mu": mu[i], "truncation": truncation[i]}
            # The same points and numbers: round-off only.
            assert found[i] == pytest.approx(log_p(labels[i], *one.values()), abs=1e-12)

    @pytest.mark.parametrize(
        ("size", "expected"), [(None, [1, 0]), (3, [[1, 0]] * 3), ((1, 2), [[[1, 0]] * 2])]
    )
    def test_support_point(self, size, expected):
        with pm.Model() as model:
            MarginalProbit("x", **ONE_LATENT, size=size)
        assert_support_point_is_expected(model, np.array(expected), check_finite_logp=True)


class TestInModels:
    def build(self, **options):
        with pm.Model(coords={"obs": ["a", "b"]}) as model:
            mu = pm.Normal("mu", shape=2)
            rest = {**ONE_LATENT, "mu": mu, **options}
            MarginalProbit("y", **rest, observed=[0, 1], dims="obs")
        return model

    def test_one_value_for_all_labels_together(self):
        model = self.build()
        with model:
            prior = pm.sample_prior_predictive(20, random_seed=1)
        assert prior["prior_predictive"]["y"].dims == ("chain", "draw", "obs")
        assert model.compile_logp(sum=False)({"mu": np.zeros(2)})[1].shape == ()

    def test_options_survive_copies(self):
        """Pickling, resizing, and the rewrites to another dtype or in place, make new Ops."""
        model = self.build(method="ep", n_draws=99)
        copies = {
            "pickled": cloudpickle.loads(cloudpickle.dumps(model)),
            "observed": pm.observe(pm.do(model, {"mu": np.zeros(2)}), {}),
        }
        for copy in copies.values():
            op = copy["y"].owner.op
            assert (op.method, op.n_draws) == ("ep", 99)
        point = {"mu": np.array([0.3, -0.2])}
        assert copies["pickled"].compile_logp()(point) == model.compile_logp()(point)
        op = MarginalProbitRV("ep", 99)
        assert type(op)(**{**op._props_dict(), "inplace": True}).n_draws == 99
        assert op == MarginalProbitRV("ep", 99)
        assert op != MarginalProbitRV("ep", 100)
        resized = pm.distributions.shape_utils.change_dist_size(model["y"], (3,))
        assert resized.owner.op.n_draws == 99
