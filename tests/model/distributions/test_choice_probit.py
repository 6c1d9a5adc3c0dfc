"""ChoiceProbit and MultinomialProbit: the greatest of several noisy values."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from pytensor.compile.mode import Mode
from scipy.special import log_ndtr

from pymc_skewgp._gaussian.truncated import mvn_logcdf
from pymc_skewgp._model.distributions.probit import ChoiceProbit, MultinomialProbit

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
ETA = np.array([[0.4, -1.0, 2.0], [0.0, 0.0, 0.0], [-3.0, 1.0, 1.5], [5.0, 5.2, -5.0]])


def log_probability(eta, c, sigma):
    """Of the orthant of the two differences, a bivariate closed form."""
    lead = np.delete(eta[c] - eta, c) / sigma
    return mvn_logcdf(lead, cov=np.eye(2) + 1.0).value


class TestRandom(BaseTestDistributionRandom):
    pymc_dist = ChoiceProbit
    pymc_dist_params = {"eta": ETA[0], "sigma": 0.7}  # noqa: RUF012
    expected_rv_op_params = {"eta": ETA[0], "sigma": 0.7}  # noqa: RUF012
    reference_dist_params = {"eta": ETA[0], "sigma": 0.7}  # noqa: RUF012
    sizes_to_check = (None, (), 1, (1,), 5, (4, 5))
    sizes_expected = ((), (), (1,), (1,), (5,), (4, 5))
    checks_to_run = [  # noqa: RUF012
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference",
        "check_rv_size",
    ]

    def reference_dist(self):
        rng = self.get_random_state()
        return lambda size, eta, sigma: np.argmax(
            eta + sigma * rng.standard_normal((*np.atleast_1d(size), 3)), axis=-1
        )


@pytest.mark.parametrize("sigma", [1.0, 0.3])
def test_logp_against_the_normal_distribution_function(sigma):
    y = ChoiceProbit.dist(ETA, sigma)
    log_p = np.stack([pm.logp(y, c).eval() for c in range(3)], axis=1)
    expected = [[log_probability(eta, c, sigma) for c in range(3)] for eta in ETA]
    # Half of what the two promise; far tails lose digits in the bivariate closed form.
    np.testing.assert_allclose(np.exp(log_p), np.exp(expected), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0, rtol=1e-10)
    np.testing.assert_array_equal(pm.logp(y, [-1, 3, 4, 7]).eval(), -np.inf)


def test_two_alternatives_are_a_probit_label():
    eta = np.array([[0.3, -0.5], [40.0, 0.0], [0.0, 40.0]])
    y = MultinomialProbit.dist(eta)
    expected = log_ndtr((eta[:, 1] - eta[:, 0]) / np.sqrt(2))
    np.testing.assert_allclose(pm.logp(y, 1).eval(), expected, rtol=1e-12, atol=1e-10)


@pytest.mark.slow(ci=True)
def test_batches_and_noise_for_each_choice():
    sigma = np.array([0.3, 0.5, 1.0, 2.0])
    y = ChoiceProbit.dist(np.stack([ETA, -ETA]), sigma)
    values = np.array([[0, 1, 2, 0], [2, 1, 0, 1]])
    found = pm.logp(y, values).eval()
    for i, sign in enumerate((1, -1)):
        for j in range(4):
            expected = log_probability(sign * ETA[j], values[i, j], sigma[j])
            assert np.exp(found[i, j]) == pytest.approx(np.exp(expected), rel=1e-9, abs=1e-13)


def test_gradient_against_differences():
    eta, sigma = pt.tensor("eta", shape=(4, 3)), pt.dscalar("sigma")
    log_p = pm.logp(ChoiceProbit.dist(eta, sigma), np.array([1, 2, 0, 1])).sum()
    f = pytensor.function([eta, sigma], [log_p, *pytensor.grad(log_p, [eta, sigma])])
    _, of_eta, of_sigma = f(4 * ETA, 0.8)
    for i, j in np.ndindex(4, 3):
        step = np.zeros((4, 3))
        step[i, j] = 1e-5
        difference = (f(4 * ETA + step, 0.8)[0] - f(4 * ETA - step, 0.8)[0]) / 2e-5
        # Round-off of some hundreds over the step.
        assert of_eta[i, j] == pytest.approx(difference, rel=1e-6, abs=1e-7)
    difference = (f(4 * ETA, 0.80001)[0] - f(4 * ETA, 0.79999)[0]) / 2e-5
    assert of_sigma == pytest.approx(difference, rel=1e-6)


def test_bad_parameters():
    for make in (ChoiceProbit.dist, MultinomialProbit.dist):
        for eta in (0.3, [[0.3], [0.4]]):
            with pytest.raises(ValueError, match="two alternatives or more in its last dimension"):
                make(eta)
    with pytest.raises(pm.logprob.utils.ParameterValueError, match="sigma > 0"):
        pm.logp(ChoiceProbit.dist(ETA, -1.0), 0).eval()


@pytest.mark.parametrize("variable", [ChoiceProbit, MultinomialProbit])
@pytest.mark.parametrize(
    ("eta", "size", "expected"),
    [(ETA[0], None, 2), (ETA, None, [2, 0, 2, 1]), (ETA[:2], (2, 2), [[2, 0], [2, 0]])],
)
def test_support_point(variable, eta, size, expected):
    with pm.Model() as model:
        variable("x", eta, size=size)
    assert_support_point_is_expected(model, expected)


@pytest.mark.parametrize(
    "y", [ChoiceProbit.dist(ETA, 0.7, size=(50, 4)), MultinomialProbit.dist(ETA, size=(50, 4))]
)
def test_draws_are_the_same_in_numba_and_python(y):
    numba = pm.draw(y, 2, random_seed=1, mode="NUMBA")
    assert numba.dtype == np.int64
    np.testing.assert_array_equal(numba, pm.draw(y, 2, random_seed=1, mode=IN_PYTHON))


def test_frequencies_of_draws():
    n = 40_000
    y = pm.draw(ChoiceProbit.dist(ETA, 4.0, size=(n, 4)), random_seed=2)
    p = np.exp([[log_probability(eta, c, 4.0) for c in range(3)] for eta in ETA])
    found = np.stack([(y == c).mean(axis=0) for c in range(3)], axis=1)
    # Five standard errors, each of twelve numbers: a false alarm in 7e-6 of all seeds.
    assert p.min() > 1e-3  # 40 draws, enough for the normal approximation
    assert (np.abs(found - p) < 5 * np.sqrt(p * (1 - p) / n)).all()


@pytest.mark.slow
def test_in_a_model():
    coords = {"trip": range(4), "mode": ["car", "bus", "train"]}
    with pm.Model(coords=coords) as model:
        eta = pm.Normal("eta", dims=("trip", "mode"))
        ChoiceProbit("y", eta, pm.HalfNormal("sigma"), observed=[0, 2, 1, 1], dims="trip")
        MultinomialProbit("z", eta, observed=[0, 2, 1, 1], dims="trip")
        prior = pm.sample_prior_predictive(20, random_seed=1)
    for name in ("y", "z"):
        assert prior["prior_predictive"][name].dims == ("chain", "draw", "trip")
        assert set(np.unique(prior["prior_predictive"][name])) <= {0, 1, 2}
    point = model.initial_point()
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert copy.compile_logp()(point) == model.compile_logp()(point)
    assert np.isfinite(model.compile_dlogp(mode="NUMBA")(point)).all()
