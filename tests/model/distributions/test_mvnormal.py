"""``pm.logcdf`` of ``pm.MvNormal``, and of nothing that would take it for univariate."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from oracles import brute_log_prob
from scipy.stats import norm

import pymc_skewgp._model.distributions.truncated_mvnormal  # noqa: F401
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal

pytestmark = pytest.mark.usefixtures("in_python")

INF = np.inf
MU = np.array([0.1, 0.2, -0.3])
COV = np.array([[2.0, 0.6, 0.3], [0.6, 1.0, 0.2], [0.3, 0.2, 1.5]])
X = np.array([0.5, -0.2, 0.7])
# Five times the Monte Carlo error of 256 draws in these three dimensions, 1e-4.
MONTE_CARLO = 5e-4


def exact(x, mu, cov):
    return brute_log_prob(np.full(len(x), -INF), np.asarray(x) - mu, cov)


@pytest.mark.parametrize(
    "parameters",
    [{"cov": COV}, {"chol": np.linalg.cholesky(COV)}, {"tau": np.linalg.inv(COV)}],
    ids=["cov", "chol", "tau"],
)
def test_every_parametrisation(parameters):
    found = pm.logcdf(pm.MvNormal.dist(MU, **parameters), X).eval()
    assert found == pytest.approx(exact(X, MU, COV), abs=MONTE_CARLO)


def test_batches():
    cov = COV[:2, :2]
    x = np.array([[0.0, 1.0], [-1.0, 0.5], [2.0, 2.0]])
    expected = [exact(row, MU[:2], cov) for row in x]
    for shape in (None, (3, 2)):
        rv = pm.MvNormal.dist(MU[:2], cov, shape=shape)
        np.testing.assert_allclose(pm.logcdf(rv, x).eval(), expected, atol=1e-11)
    means = np.array([[0.0, 0.0], [1.0, -1.0]])
    found = pm.logcdf(pm.MvNormal.dist(means, np.stack([cov, 3 * cov])), x[:, None]).eval()
    assert found.shape == (3, 2)
    assert found[2, 1] == pytest.approx(exact(x[2], means[1], 3 * cov), abs=1e-11)
    # As for logp, the size of the variable shapes the result where the value is broadcast.
    repeated = pm.logcdf(pm.MvNormal.dist(MU[:2], cov, size=4), x[0]).eval()
    np.testing.assert_allclose(repeated, np.repeat(expected[0], 4), atol=1e-11)


def test_invalid_points_of_a_model_are_minus_infinity():
    with pm.Model() as model:
        rho = pm.Flat("rho")
        cov = (1.0 - rho) * pt.eye(3) + rho
        pm.Potential("below", pm.logcdf(pm.MvNormal.dist(np.zeros(3), cov), np.zeros(3)))
    logp, dlogp = model.compile_logp(), model.compile_dlogp()
    assert np.isfinite(logp({"rho": 0.5}))
    for rho in (1.5, -0.6, np.nan):
        assert logp({"rho": rho}) == -INF
        assert dlogp({"rho": rho}) == 0.0


def test_mixtures_of_multivariate_normals():
    weights = [0.3, 0.7]
    means = np.array([[0.0, 0.0], [1.0, 1.0]])
    x = X[:2]
    expected = np.log(
        sum(w * np.prod(norm.cdf(x - m)) for w, m in zip(weights, means, strict=True))
    )
    mixture = pm.Mixture.dist(weights, pm.MvNormal.dist(means, np.eye(2)))
    assert pm.logcdf(mixture, x).eval() == pytest.approx(expected, abs=1e-11)


def test_complement():
    found = pm.logccdf(pm.MvNormal.dist(MU[:2], COV[:2, :2]), X[:2]).eval()
    assert found == pytest.approx(np.log1p(-np.exp(exact(X[:2], MU[:2], COV[:2, :2]))), abs=1e-11)


ELEMENTWISE = {
    "clip": (lambda rv: pt.clip(rv, -1.0, 1.0), pm.logp),
    "maximum": (lambda rv: pt.maximum(rv, 0.0), pm.logp),
    "comparison": (lambda rv: rv > 0.0, pm.logp),
    "rounding": (lambda rv: pt.round(rv), pm.logp),
    "negation": (lambda rv: -rv, pm.logcdf),
    "exponential": (lambda rv: pt.exp(rv), pm.logcdf),
    "clipped distribution": (lambda rv: pt.clip(rv, -1.0, 1.0), pm.logcdf),
}


VECTORS = {
    "normal": lambda: pm.MvNormal.dist(np.zeros(2), np.eye(2)),
    "unified skew-normal": lambda: UnifiedSkewNormal.dist(
        np.zeros(2), np.eye(2), np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0))
    ),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_what_pymc_derives_element_by_element_is_still_not_implemented(name):
    transform, function = ELEMENTWISE[name]
    value = np.array([True, False]) if name == "comparison" else np.array([1.0, 0.5])
    for kind, vector in VECTORS.items():
        with pytest.raises(NotImplementedError) as caught:
            function(transform(vector()), value)
        assert kind != "normal" or "of a multivariate variable" in str(caught.value)
    # And what is univariate goes on as before.
    assert np.isfinite(function(transform(pm.Normal.dist(np.zeros(2))), value).eval()).all()
