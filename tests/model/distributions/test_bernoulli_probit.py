"""BernoulliProbit: a Bernoulli variable whose log density survives both tails."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.testing import (
    BaseTestDistributionRandom,
    Bool,
    Domain,
    I,
    R,
    assert_support_point_is_expected,
    check_icdf,
    check_logcdf,
    check_logp,
    check_selfconsistency_discrete_logcdf,
)
from pytensor.compile.mode import Mode
from scipy import stats
from scipy.special import log_ndtr, ndtr

from pymc_skewgp._model.distributions.probit import BernoulliProbit

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
ETA = np.array([-40.0, -8.0, -1.0, 0.0, 0.3, 8.0, 40.0])


class TestRandom(BaseTestDistributionRandom):
    pymc_dist = BernoulliProbit
    pymc_dist_params = {"eta": 0.3}  # noqa: RUF012
    expected_rv_op_params = {"eta": 0.3}  # noqa: RUF012
    reference_dist_params = {"eta": 0.3}  # noqa: RUF012
    checks_to_run = [  # noqa: RUF012
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference",
        "check_rv_size",
    ]

    def reference_dist(self):
        rng = self.get_random_state()
        return lambda size, eta: (eta + rng.standard_normal(size) > 0).astype(int)


def test_logp_against_scipy():
    check_logp(
        BernoulliProbit,
        Bool,
        {"eta": R},
        lambda value, eta: stats.bernoulli.logpmf(value, ndtr(eta)),
    )


def test_logcdf_against_scipy():
    check_logcdf(
        BernoulliProbit,
        Bool,
        {"eta": R},
        lambda value, eta: stats.bernoulli.logcdf(value, ndtr(eta)),
    )
    check_selfconsistency_discrete_logcdf(BernoulliProbit, Bool, {"eta": R})


def test_icdf_against_scipy():
    check_icdf(BernoulliProbit, {"eta": R}, lambda q, eta: stats.bernoulli.ppf(q, ndtr(eta)))


def test_both_tails():
    y = BernoulliProbit.dist(ETA)
    # As good as scipy's log_ndtr, up to a few units of the last place.
    np.testing.assert_allclose(pm.logp(y, 1).eval(), log_ndtr(ETA), rtol=1e-14)
    np.testing.assert_allclose(pm.logp(y, 0).eval(), log_ndtr(-ETA), rtol=1e-14)
    np.testing.assert_allclose(pm.logcdf(y, 0).eval(), log_ndtr(-ETA), rtol=1e-14)


@pytest.mark.parametrize("value", [-1, 2, 7])
def test_values_out_of_the_support(value):
    assert pm.logp(BernoulliProbit.dist(0.3), value).eval() == -np.inf


def test_gradient_is_the_inverse_mills_ratio_in_both_tails():
    eta = pt.dvector("eta")
    labels = np.array([1, 1, 1, 1, 0, 0, 0])
    gradient = pytensor.grad(pm.logp(BernoulliProbit.dist(eta), labels).sum(), eta)
    sign = 2.0 * labels - 1.0
    expected = sign * np.exp(stats.norm.logpdf(ETA) - log_ndtr(sign * ETA))
    # The two exponents of 800 carry round-off of 1e-13 each.
    np.testing.assert_allclose(gradient.eval({eta: ETA}), expected, rtol=1e-12, atol=1e-300)


def test_nan_in_a_parameter_is_impossible_and_not_nan():
    eta = pt.dvector("eta")
    log_p = pm.logp(BernoulliProbit.dist(eta), np.array([1, 0]))
    np.testing.assert_array_equal(log_p.eval({eta: [np.nan, np.nan]}), [-np.inf, -np.inf])
    assert pm.logcdf(BernoulliProbit.dist(eta), 0).eval({eta: [np.nan]}) == -np.inf


def test_nan_in_a_constant_is_refused():
    with pytest.raises(ValueError, match="eta holds 1 NaN"):
        BernoulliProbit.dist([0.0, np.nan])


@pytest.mark.parametrize(
    ("eta", "size", "expected"),
    [
        (0.1, None, 1),
        (-0.1, 3, [0, 0, 0]),
        ([-1.0, 0.0, 1.0], None, [0, 1, 1]),
        ([-1.0, 1.0], (2, 2), [[0, 1], [0, 1]]),
    ],
)
def test_support_point(eta, size, expected):
    with pm.Model() as model:
        BernoulliProbit("x", eta, size=size)
    assert_support_point_is_expected(model, expected)


def test_draws_are_the_same_in_numba_and_python():
    y = BernoulliProbit.dist(np.linspace(-2, 2, 5), size=(300, 5))
    numba = pm.draw(y, 2, random_seed=1, mode="NUMBA")
    assert numba.dtype == np.int64
    np.testing.assert_array_equal(numba, pm.draw(y, 2, random_seed=1, mode=IN_PYTHON))


def test_frequencies_of_draws():
    eta = np.linspace(-2, 2, 5)
    y = pm.draw(BernoulliProbit.dist(eta, size=(40_000, 5)), random_seed=2)
    p = ndtr(eta)
    # Five standard errors, each of five coordinates: a false alarm in 3e-6 of all seeds.
    assert (np.abs(y.mean(axis=0) - p) < 5 * np.sqrt(p * (1 - p) / 40_000)).all()


def test_draws_in_the_far_tails_are_certain():
    y = pm.draw(BernoulliProbit.dist([-40.0, 40.0], size=(1000, 2)), random_seed=3)
    np.testing.assert_array_equal(y, np.tile([0, 1], (1000, 1)))


def test_in_a_model():
    """Dims and broadcasting as `pm.Bernoulli`, which has the same log density in the bulk."""
    labels = np.array([[0, 1, 1], [1, 0, 1]])
    models = []
    for probit in (True, False):
        with pm.Model(coords={"row": [0, 1], "column": list("abc")}) as model:
            f = pm.Normal("f", dims="column")
            g = pm.Normal("g", dims="row")
            eta = f + g[:, None]
            if probit:
                y = BernoulliProbit("y", eta, observed=labels, dims=("row", "column"))
            else:
                pm.Bernoulli("y", p=pm.math.invprobit(eta), observed=labels)
        models.append(model)
    point = {"f": np.array([0.3, -0.2, 1.0]), "g": np.array([0.5, -1.0])}
    ours, theirs = (model.compile_logp()(point) for model in models)
    # PyMC's invprobit divides by a root of two in single precision: 1e-8 off.
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert y.type.ndim == 2
    assert models[0].free_RVs == [models[0]["f"], models[0]["g"]]
    with models[0]:
        prior = pm.sample_prior_predictive(50, random_seed=1)
    assert prior["prior_predictive"]["y"].dims == ("chain", "draw", "row", "column")
    assert set(np.unique(prior["prior_predictive"]["y"])) == {0, 1}
    dlogp = models[0].compile_dlogp(mode="NUMBA")(point)
    np.testing.assert_allclose(dlogp, models[1].compile_dlogp()(point), atol=1e-6)


def test_a_model_can_be_pickled():
    with pm.Model() as model:
        f = pm.Normal("f", shape=3)
        BernoulliProbit("y", f, observed=[0, 1, 1])
    point = {"f": np.array([0.3, -0.2, 1.0])}
    # As PyMC does: the plain module can pickle no model at all.
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert copy.compile_logp()(point) == model.compile_logp()(point)


def test_unobserved_is_discrete():
    with pm.Model() as model:
        BernoulliProbit("y", 0.0, shape=4)
    assert model.discrete_value_vars == [model.rvs_to_values[model["y"]]]
    with pytest.raises(ValueError, match="Transformations for discrete"), pm.Model():
        BernoulliProbit("y", 0.0, transform=pm.distributions.transforms.log)


def test_imputation_of_missing_labels():
    data = np.ma.masked_array([0, 1, 0], mask=[0, 0, 1])
    with pytest.warns(pm.exceptions.ImputationWarning), pm.Model() as model:
        BernoulliProbit("y", np.array([0.1, 0.2, 0.3]), observed=data)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


@pytest.mark.parametrize("domain", [I, Domain([-2, -1, 0, 1, 2, 3], "int64")])
def test_logp_sums_to_one(domain):
    values = np.arange(int(domain.vals[0]), int(domain.vals[-1]) + 1)
    log_p = pm.logp(BernoulliProbit.dist(0.7), values).eval()
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-14)
