"""The parameters of a unified skew-normal variable: what may be given, and what is refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pymc_skewgp import NotPositiveDefiniteError
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
EXAMPLE = {
    "mu": np.array([1.0, 0.0, -1.0]),
    "scale": np.array([[2.0, 1, 1], [1, 3, 1], [1, 1, 4]]),
    "skewness": np.array([[0.72, 0.20], [0.51, 0.42], [0.88, 0.94]]),
    "truncation": np.array([-0.5, 0.0]),
    "latent_cov": np.array([[1.0, 0.8], [0.8, 1.0]]),
}
NORMAL = {
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


def test_skewness_may_be_a_vector_with_one_latent_dimension():
    vector = {**SMALL, "skewness": SMALL["skewness"][:, 0]}
    expected = log_density(SMALL, [0.1, 0.2])
    assert log_density(vector, [0.1, 0.2]) == expected
    delta = pt.dvector()
    graph = pm.logp(UnifiedSkewNormal.dist(**{**SMALL, "skewness": delta}), [0.1, 0.2])
    assert graph.eval({delta: [0.8, -0.3]}) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"mu": [0.0, np.nan, 0.0]}, ValueError, "mu holds 1 NaN"),
        ({"mu": [0.0, np.inf, 0.0]}, ValueError, "mu holds 1 infinite"),
        ({"mu": [0.0, 0.0]}, ValueError, "mu must have length 3, got 2"),
        ({"scale": np.ones(3)}, ValueError, "scale must have at least 2 dimensions, got 1"),
        ({"scale": np.eye(3) * [1, 1, -1]}, NotPositiveDefiniteError, "scale is not positive"),
        ({"scale": np.ones((3, 3))}, NotPositiveDefiniteError, "scale is numerically singular"),
        ({"scale": np.triu(np.ones((3, 3)))}, ValueError, "scale is not symmetric"),
        ({"scale": np.ones((3, 2))}, ValueError, "scale must be square"),
        ({"skewness": np.zeros((3, 0))}, ValueError, r"skewness must have shape \(3, 2\)"),
        ({"truncation": [0.0, 0.0, 0.0]}, ValueError, "truncation must have length 2, got 3"),
        ({"truncation": [0.0, np.inf]}, ValueError, "truncation holds 1 infinite"),
        ({"latent_cov": [[1.0, 2.0], [2.0, 1.0]]}, NotPositiveDefiniteError, "latent_cov is not"),
        ({"latent_cov": 1.0}, ValueError, "latent_cov must have at least 2 dimensions, got 0"),
        ({"skewness": [0.1, 0.2, 0.3]}, ValueError, r"skewness must have shape \(p, s\), got 1"),
        ({"skewness": 0.1}, ValueError, r"skewness must have shape \(p, s\), got 0"),
        ({"skewness": np.zeros((2, 2))}, ValueError, r"skewness must have shape \(3, 2\)"),
        ({"skewness": np.full((3, 2), 0.99)}, NotPositiveDefiniteError, "C from skewness"),
        ({"mu": "mean"}, TypeError, "mu must be numeric"),
    ],
)
def test_invalid_constants_are_refused_when_the_model_is_built(changes, error, message):
    with pytest.raises(error, match=message):
        UnifiedSkewNormal.dist(**{**EXAMPLE, **changes})


def test_one_invalid_constant_of_a_batch_is_found():
    scale = np.array([np.eye(3), np.ones((3, 3)) * 2])
    with pytest.raises(NotPositiveDefiniteError, match="scale"):
        UnifiedSkewNormal.dist(**{**EXAMPLE, "scale": scale})
    skewness = np.array([EXAMPLE["skewness"], np.full((3, 2), 0.99)])
    with pytest.raises(NotPositiveDefiniteError, match="C from skewness"):
        UnifiedSkewNormal.dist(**{**EXAMPLE, "skewness": skewness})


class TestCrossCovariance:
    """`cross_cov` in place of the skewness."""

    @pytest.mark.parametrize("parameters", [NORMAL, SMALL, EXAMPLE], ids=["s=0", "s=1", "s=2"])
    def test_is_the_same_distribution(self, parameters):
        point = np.zeros(parameters["mu"].size)
        expected = log_density(parameters, point)
        # The same numbers go through the same code: round-off of D Delta only.
        found = log_density(with_cross_cov(parameters), point)
        assert found == pytest.approx(expected, rel=1e-13)

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
            ({"truncation": None}, TypeError, "truncation is missing"),
            ({"latent_cov": None}, TypeError, "latent_cov is missing"),
            ({"cross_cov": np.zeros((2, 2))}, ValueError, r"cross_cov must have shape \(2, 1\)"),
            ({"cross_cov": [[2.0], [0.0]]}, NotPositiveDefiniteError, r"\[cross_cov, scale\]\]"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_refusals(self, change, error, message):
        with pytest.raises(error, match=message):
            UnifiedSkewNormal.dist(**{**with_cross_cov(SMALL), **change})
