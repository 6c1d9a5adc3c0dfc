"""UnifiedSkewNormal in PyMC against R, closed forms, quadrature and its NumPy twin."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import SUN_EXAMPLE_LOGPDF as R_LOG_DENSITY
from oracles import SUN_EXAMPLE_PARAMETERS as R_EXAMPLE
from oracles import SUN_EXAMPLE_POINT as R_POINT
from oracles import equicorrelated_cov, finite_difference
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from pytensor.compile.mode import Mode
from scipy import stats

from pymc_skewgp import SUN, NotPositiveDefiniteError, integrate
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.ops.densities import MvnLogProb
from pymc_skewgp._sun.parameters import sun_draws

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
PLAIN = {
    "mu": np.array([0.5, -1.0]),
    "scale": np.array([[1.0, 0.3], [0.3, 2.0]]),
    "skewness": np.zeros((2, 0)),
    "truncation": np.zeros(0),
    "latent_cov": np.zeros((0, 0)),
}
SMALL = {
    "mu": np.array([0.5, -1.0]),
    "scale": np.array([[1.0, 0.3], [0.3, 2.0]]),
    "skewness": np.array([[0.8], [-0.3]]),
    "truncation": np.array([0.4]),
    "latent_cov": np.array([[1.5]]),
}


def with_cross_cov(parameters):
    """The same with C = D Delta in place of the skewness, as the variable has it inside."""
    cross = np.sqrt(parameters["scale"].diagonal())[:, None] * parameters["skewness"]
    return {
        "cross_cov" if name == "skewness" else name: cross if name == "skewness" else value
        for name, value in parameters.items()
    }


def log_density(parameters, value):
    return pm.logp(UnifiedSkewNormal.dist(**parameters), value).eval()


class TestRandom(BaseTestDistributionRandom):
    pymc_dist = UnifiedSkewNormal
    pymc_dist_params = R_EXAMPLE
    expected_rv_op_params = with_cross_cov(R_EXAMPLE)
    reference_dist_params = R_EXAMPLE
    sizes_to_check = (None, (4, 5), (2, 0))
    sizes_expected = ((3,), (4, 5, 3), (2, 0, 3))
    checks_to_run = (
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference",
        "check_rv_size",
    )

    def reference_dist(self):
        rng = self.get_random_state()
        return lambda size, **parameters: sun_draws(SUN(**parameters).parameters, size, rng)


# Density


def test_density_of_the_example_in_r():
    # Thirteen digits are given.
    assert log_density(R_EXAMPLE, R_POINT) == pytest.approx(R_LOG_DENSITY, abs=5e-12)


@pytest.mark.parametrize("static", [True, False])
def test_without_latent_dimensions_it_is_normal(static):
    value = np.array([[0.0, 0.0], [1.0, -3.0]])
    expected = stats.multivariate_normal(PLAIN["mu"], PLAIN["scale"]).logpdf(value)
    if static:
        graph = pm.logp(UnifiedSkewNormal.dist(**PLAIN), value)
        ops = [v.owner.op for v in pytensor.graph.traversal.ancestors([graph]) if v.owner]
        assert not any(isinstance(getattr(op, "core_op", op), MvnLogProb) for op in ops)
        found = graph.eval()
    else:
        skewness, truncation, latent_cov = pt.dmatrix(), pt.dvector(), pt.dmatrix()
        rv = UnifiedSkewNormal.dist(PLAIN["mu"], PLAIN["scale"], skewness, truncation, latent_cov)
        given = {skewness: np.zeros((2, 0)), truncation: np.zeros(0), latent_cov: np.zeros((0, 0))}
        found = pm.logp(rv, value).eval(given)
        assert rv.eval(given).shape == (2,)
    np.testing.assert_allclose(found, expected, rtol=1e-14)  # round-off


def test_many_latent_dimensions_and_the_distribution_function():
    """By the twin in NumPy, which is compared with quadrature; fewer dimensions are below."""
    x = np.array([-1.0, 0.5, 3.0])[:, None]
    many = {
        "mu": np.array([0.2]),
        "scale": np.eye(1),
        "skewness": np.full((1, 6), 0.5),
        "truncation": np.full(6, -0.3),
        "latent_cov": equicorrelated_cov(6, 0.6),
    }
    # Two Monte Carlo values of 256 quasi-random draws with nearly equal weights: 1e-3 at worst.
    np.testing.assert_allclose(log_density(many, x), SUN(**many).logpdf(x), atol=5e-3)
    z = np.array([[0.3, -0.5], [-np.inf, 0.0], [np.inf, np.inf]])
    found = pm.logcdf(UnifiedSkewNormal.dist(**SMALL), z).eval()
    # N = 3 by 256 quasi-random draws.
    expected = SUN(**SMALL).logcdf(z[0], n_draws=8192).value
    np.testing.assert_allclose(found, [expected, -np.inf, 0.0], atol=3e-3)


# Batches


def test_batches_of_parameters_and_values():
    rng = np.random.default_rng(0)
    mu = rng.normal(size=(4, 3))
    truncation = rng.normal(size=(5, 1, 2))
    scale = R_EXAMPLE["scale"] * np.array([1.0, 2.0, 0.5, 3.0])[:, None, None]
    parameters = {**R_EXAMPLE, "mu": mu, "truncation": truncation, "scale": scale}
    rv = UnifiedSkewNormal.dist(**parameters)
    assert rv.type.shape == (5, 4, 3)
    assert tuple(rv.shape.eval()) == (5, 4, 3)
    assert pm.draw(rv, random_seed=1).shape == (5, 4, 3)
    value = rng.normal(size=(5, 4, 3))
    found = pm.logp(rv, value).eval()
    for i, j in np.ndindex(5, 4):
        one = {**R_EXAMPLE, "mu": mu[j], "truncation": truncation[i, 0], "scale": scale[j]}
        # The same formula with exact probabilities, s = 2.
        assert found[i, j] == pytest.approx(SUN(**one).logpdf(value[i, j]), abs=1e-11)


def test_one_invalid_member_of_a_batch_leaves_the_others():
    scale = pt.dtensor3("scale")
    rv = UnifiedSkewNormal.dist(0.0, scale, [[0.5], [0.5]], 0.0, [[1.0]])
    matrices = np.array([np.eye(2), [[1.0, 2.0], [2.0, 1.0]], np.eye(2) + 0.5])
    found = pm.logp(rv, np.ones(2)).eval({scale: matrices})
    assert found[1] == -np.inf
    for i in (0, 2):
        sun = SUN([0.0, 0.0], matrices[i], [[0.5], [0.5]], [0.0], [[1.0]])
        assert found[i] == pytest.approx(sun.logpdf([1.0, 1.0]), abs=1e-12)
    assert log_density(SMALL, [0.1, np.nan]) == -np.inf


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({"size": (2, 3)}, (2, 3, 3)),
        ({"mu": 0.5}, (3,)),
        ({"mu": [0.5]}, (3,)),
        ({"mu": np.zeros((2, 1))}, (2, 3)),
        ({"truncation": np.zeros((2, 1))}, (2, 3)),
        ({"latent_cov": np.tile(R_EXAMPLE["latent_cov"], (4, 1, 1)), "truncation": 0}, (4, 3)),
    ],
)
def test_vectors_broadcast_with_their_matrices(changes, shape):
    rv = UnifiedSkewNormal.dist(**{**R_EXAMPLE, **changes})
    assert rv.type.shape == shape
    with pm.Model() as model:
        UnifiedSkewNormal("x", **{**R_EXAMPLE, **changes})
    expected = np.broadcast_to(changes.get("mu", R_EXAMPLE["mu"]), shape)
    assert_support_point_is_expected(model, expected)


# Gradient


def theta_to_parameters(theta, module):
    """Every parameter moved by theta, the covariances along symmetric directions.

    The example itself is too near to the edge of what is positive definite for differences.
    """
    base = {name: module.asarray(value) for name, value in R_EXAMPLE.items()}
    turn = np.array([[0.3, 0.2, -0.1], [0.2, 0.5, 0.1], [-0.1, 0.1, 0.4]])
    return {
        "mu": base["mu"] + theta[0] * np.array([1.0, -0.5, 0.3]),
        "scale": base["scale"] + theta[1] * turn + theta[2] * np.diag([0.0, 1.0, 0.0]),
        "skewness": 0.8 * base["skewness"] + theta[3] * np.array([[0.1, 0], [0, 0.1], [-0.1, 0.1]]),
        "truncation": base["truncation"] + theta[4] * np.array([1.0, -0.7]),
        "latent_cov": base["latent_cov"] + theta[5] * np.array([[0.0, 1.0], [1.0, 0.5]]),
    }


def test_gradient_in_every_parameter_and_the_value():
    theta, x = pt.dvector(), pt.dvector()

    class AsTensor:
        asarray = staticmethod(pt.as_tensor_variable)

    rv = UnifiedSkewNormal.dist(**theta_to_parameters(theta, AsTensor))
    log_p = pm.logp(rv, x)
    gradients = pytensor.function([theta, x], pytensor.grad(log_p, [theta, x]))
    at = np.array([0.1, 0.2, 0.1, -0.1, 0.2, 0.05])
    of_theta, of_x = gradients(at, R_POINT)
    by_theta = finite_difference(
        lambda t: SUN(**theta_to_parameters(t, np)).logpdf(R_POINT), at, h=1e-3
    )
    sun = SUN(**theta_to_parameters(at, np))
    by_x = finite_difference(lambda z: sun.logpdf(z), R_POINT, h=1e-3)
    # h^4 times fifth derivatives up to about 1e3 at this steep point, and 1e-11 of round-off.
    np.testing.assert_allclose(of_theta, by_theta, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(of_x, by_x, rtol=1e-6, atol=1e-8)


# Draws


def test_draws_are_the_same_in_numba_and_python():
    batch = {**R_EXAMPLE, "truncation": np.array([[-0.5, 0.0], [1.0, 1.0]])}
    variables = [UnifiedSkewNormal.dist(**given, size=(3, 2)) for given in (R_EXAMPLE, batch)]
    numba, python = (
        pm.draw(variables, 2, random_seed=1, mode=mode) for mode in ("NUMBA", IN_PYTHON)
    )
    for found, expected in zip(numba, python, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert np.unique(found).size == found.size


def test_rows_that_share_their_parameters_are_drawn_together(monkeypatch):
    asked = []

    def spy(sun, n, rng):
        asked.append(n)
        return np.zeros((n, sun.mu.size))

    path = "pymc_skewgp._model.distributions.unified_skew_normal.sun_draws"
    monkeypatch.setattr(path, spy)
    locations = np.arange(8.0).reshape(4, 2)
    draws = pm.draw(UnifiedSkewNormal.dist(**{**SMALL, "mu": locations}, size=(3, 4)))
    assert asked == [12]  # rows that differ in the location alone too
    np.testing.assert_array_equal(draws, np.broadcast_to(locations, (3, 4, 2)))
    asked.clear()
    gamma = np.array([[0.0], [1.0]])
    pm.draw(UnifiedSkewNormal.dist(**{**SMALL, "truncation": gamma}, size=(5, 2)))
    assert asked == [5, 5]


@pytest.mark.parametrize("mode", ["NUMBA", IN_PYTHON])
def test_draws_with_invalid_parameters_say_which(mode):
    delta = pt.dscalar()
    rv = UnifiedSkewNormal.dist(0.0, np.eye(2), delta * np.ones((2, 1)), 0.0, [[1.0]])
    with pytest.raises(NotPositiveDefiniteError, match=r"\[C, scale\]\]"):
        rv.eval({delta: 0.9}, mode=mode)


def test_without_an_update_the_generator_stays():
    rng = pytensor.shared(np.random.default_rng(1))
    draw = pytensor.function([], UnifiedSkewNormal.dist(**SMALL, rng=rng), mode="NUMBA")
    np.testing.assert_array_equal(draw(), draw())
    assert rng.get_value().random() == np.random.default_rng(1).random()


# Models


def test_prior_predictive_and_observations():
    data = np.random.default_rng(0).normal(size=(5, 2))
    with pm.Model(coords={"row": range(5), "axis": ["a", "b"]}) as model:
        x = pm.Data("x", data, dims=("row", "axis"))
        UnifiedSkewNormal("z", **SMALL, observed=x, dims=("row", "axis"))
        prior = pm.sample_prior_predictive(20, random_seed=1)
    assert "z ~ UnifiedSkewNormal(" in model.str_repr()
    z = prior["prior_predictive"]["z"]
    assert z.dims == ("chain", "draw", "row", "axis")
    assert z.shape == (1, 20, 5, 2)
    sun = SUN(**SMALL)
    assert model.compile_logp()({}) == pytest.approx(sun.logpdf(data).sum(), abs=1e-12)
    with model:
        pm.set_data({"x": data + 1})
    assert model.compile_logp()({}) == pytest.approx(sun.logpdf(data + 1).sum(), abs=1e-12)


def test_evidence_where_the_latent_covariance_is_no_correlation_matrix():
    """By the trapezoidal rule over z, some nine deviations to either side."""
    known = {"mu": [0.0], "scale": [[2.0]], "cross_cov": [[1.2]]}
    known |= {"truncation": [1.0], "latent_cov": [[4.0]]}
    y, at = np.array([0.3, 1.1]), np.linspace(-12.0, 12.0, 2001)
    with pm.Model() as model:
        z = UnifiedSkewNormal("z", **{name: np.array(x) for name, x in known.items()})
        pm.Normal("y", z[[0, 0]], 0.5, observed=y)
    found = integrate(model, random_seed=1, progressbar=False)["posterior"].attrs["log_evidence"]
    density = SUN.from_cross_cov(**known).logpdf(at[:, None])
    density += stats.norm.logpdf(y[:, None], at, 0.5).sum(axis=0)
    assert found == pytest.approx(np.log(np.exp(density).sum() * (at[1] - at[0])), abs=1e-8)


# Parameters: what may be given, and what is refused


def test_skewness_may_be_a_vector_with_one_latent_dimension():
    vector = {**SMALL, "skewness": SMALL["skewness"][:, 0]}
    expected = log_density(SMALL, [0.1, 0.2])
    assert log_density(vector, [0.1, 0.2]) == expected
    delta = pt.dvector()
    graph = pm.logp(UnifiedSkewNormal.dist(**{**SMALL, "skewness": delta}), [0.1, 0.2])
    assert graph.eval({delta: [0.8, -0.3]}) == pytest.approx(expected, abs=1e-14)


ONE_TOO_LARGE = np.array([R_EXAMPLE["skewness"], np.full((3, 2), 0.99)])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"mu": [0.0, np.nan, 0.0]}, ValueError, "mu holds 1 NaN"),
        ({"mu": [0.0, np.inf, 0.0]}, ValueError, "mu holds 1 infinite"),
        ({"mu": [0.0, 0.0]}, ValueError, "mu must have length 3, got 2"),
        ({"scale": np.ones(3)}, ValueError, "scale must have at least 2 dimensions, got 1"),
        ({"scale": np.ones((3, 3))}, NotPositiveDefiniteError, "scale is numerically singular"),
        ({"scale": np.triu(np.ones((3, 3)))}, ValueError, "scale is not symmetric"),
        ({"scale": np.ones((3, 2))}, ValueError, "scale must be square"),
        ({"scale": np.array([np.eye(3), 2 * np.ones((3, 3))])}, NotPositiveDefiniteError, "scale"),
        ({"truncation": [0.0, 0.0, 0.0]}, ValueError, "truncation must have length 2, got 3"),
        ({"truncation": [0.0, np.inf]}, ValueError, "truncation holds 1 infinite"),
        ({"latent_cov": [[1.0, 2.0], [2.0, 1.0]]}, NotPositiveDefiniteError, "latent_cov is not"),
        ({"skewness": [0.1, 0.2, 0.3]}, ValueError, r"skewness must have shape \(p, s\), got 1"),
        ({"skewness": np.zeros((2, 2))}, ValueError, r"skewness must have shape \(3, 2\)"),
        ({"skewness": ONE_TOO_LARGE}, NotPositiveDefiniteError, "C from skewness"),
        ({"mu": "mean"}, TypeError, "mu must be numeric"),
        ({"mu": np.ones(3, dtype=complex)}, TypeError, "mu must be real, got complex128"),
        ({"scale": pt.dmatrix(shape=(2, 3))}, ValueError, "scale must be square, got shape"),
    ],
)
def test_invalid_constants_are_refused_when_the_model_is_built(changes, error, message):
    with pytest.raises(error, match=message):
        UnifiedSkewNormal.dist(**{**R_EXAMPLE, **changes})


def test_what_may_change_is_not_judged():
    scale = pytensor.shared(np.full((2, 2), np.nan))
    assert UnifiedSkewNormal.dist(**{**SMALL, "scale": scale}).type.shape == (2,)


class TestCrossCovariance:
    """`cross_cov` in place of the skewness."""

    def test_as_a_vector_and_as_a_graph(self):
        expected = log_density(SMALL, [0.1, 0.2])
        given = with_cross_cov(SMALL)
        assert log_density({**given, "cross_cov": given["cross_cov"][:, 0]}, [0.1, 0.2]) == (
            pytest.approx(expected, rel=1e-13)
        )
        cross_cov = pt.dmatrix("cross_cov")
        rv = UnifiedSkewNormal.dist(**{**given, "cross_cov": cross_cov})
        assert rv.owner.op.dist_params(rv.owner)[2] is cross_cov  # as it is, unconverted
        found = pm.logp(rv, [0.1, 0.2]).eval({cross_cov: given["cross_cov"]}, mode=IN_PYTHON)
        assert found == pytest.approx(expected, rel=1e-13)

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"skewness": np.zeros((2, 1))}, TypeError, "either skewness or cross_cov, got both"),
            ({"cross_cov": None}, TypeError, "either skewness or cross_cov, got neither"),
            ({"latent_cov": None}, TypeError, "latent_cov is missing"),
            ({"cross_cov": [[2.0], [0.0]]}, NotPositiveDefiniteError, r"\[cross_cov, scale\]\]"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_refusals(self, change, error, message):
        with pytest.raises(error, match=message):
            UnifiedSkewNormal.dist(**{**with_cross_cov(SMALL), **change})
