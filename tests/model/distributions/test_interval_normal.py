"""IntervalNormal: values that are not seen within an interval."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from pytensor.compile.mode import Mode
from scipy import stats
from scipy.integrate import quad

from pymc_skewgp._model.distributions.probit import IntervalNormal

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
PARAMETERS = {"mu": 0.3, "sigma": 1.5, "lower": 0.0, "upper": 1.0}
ENDS = [(-np.inf, 0.5), (0.0, 1.0), (0.8, np.inf), (-np.inf, np.inf), (0.4, 0.4)]


def drawn(rng, size, mu, sigma, lower, upper):
    v = mu + sigma * rng.standard_normal(size)
    return np.where((v > lower) & (v < upper), 0.5 * (lower + upper), v)


class TestRandom(BaseTestDistributionRandom):
    pymc_dist = IntervalNormal
    pymc_dist_params = PARAMETERS
    expected_rv_op_params = PARAMETERS
    reference_dist_params = PARAMETERS
    checks_to_run = [  # noqa: RUF012
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference",
        "check_rv_size",
    ]

    def reference_dist(self):
        rng = self.get_random_state()
        return lambda size, mu, sigma, lower, upper: drawn(rng, size, mu, sigma, lower, upper)


def test_logp_against_scipy():
    rng = np.random.default_rng(1)
    mu, sigma = rng.normal(size=200), rng.uniform(0.2, 2.0, size=200)
    lower = rng.normal(size=200)
    upper = lower + rng.exponential(size=200)
    lower[::7], upper[::5] = -np.inf, np.inf
    y = mu + sigma * rng.normal(size=200)
    found = pm.logp(IntervalNormal.dist(mu, sigma, lower, upper), y).eval()
    inside = (y >= lower) & (y <= upper)
    assert 50 < inside.sum() < 150
    normal = stats.norm(mu, sigma)
    probability = np.where(inside, normal.cdf(upper) - normal.cdf(lower), normal.pdf(y))
    # Differences of distribution functions keep 1e-16 of 1.
    np.testing.assert_allclose(np.exp(found), probability, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("ends", ENDS)
def test_probabilities_sum_to_one(ends):
    """The density outside the interval, and the probability of being in it."""
    y = IntervalNormal.dist(0.3, 0.7, *ends)
    value = pt.dscalar("value")
    density = pytensor.function([value], pm.logp(y, value).exp())
    total = 0.0
    for a, b in ((-6.0, ends[0]), (ends[1], 6.0)):
        if a < b < np.inf and a > -np.inf:
            step = 1e-9  # the ends themselves belong to the interval
            total += quad(density, a + step, b - step)[0]
    if ends[0] < ends[1]:
        total += float(density(np.clip(ends[0], -5.0, 5.0) if np.isfinite(ends[0]) else ends[1]))
    # 6 is eight standard deviations off; the two steps cost 1e-9 each.
    assert total == pytest.approx(1.0, abs=1e-8)


def test_all_numbers_of_an_interval_say_the_same():
    y = IntervalNormal.dist(0.3, 0.7, [-np.inf, 0.0, 1.0, 0.0], [1.0, 1.0, np.inf, 0.0])
    for value in ([-3.0, 0.0, 1.0, 0.0], [1.0, 0.5, 9.0, 0.0]):
        normal = stats.norm(0.3, 0.7)
        expected = [normal.logcdf(1.0), np.log(np.diff(normal.cdf([0, 1]))[0]), normal.logsf(1.0)]
        expected.append(normal.logpdf(0.0))  # equal limits are none
        np.testing.assert_allclose(pm.logp(y, value).eval(), expected, rtol=1e-12)


def test_limits_that_agree_with_censoring():
    """`pm.Censored` has another point of view of the same numbers."""
    values = np.array([0.0, 0.3, 2.0])
    ours = IntervalNormal.dist(0.2, 1.3, [-np.inf, 0.0, 2.0], [0.0, 0.0, np.inf])
    theirs = pm.Censored.dist(pm.Normal.dist(0.2, 1.3), lower=0.0, upper=2.0, shape=3)
    expected = pm.logp(theirs, values).eval()
    # PyMC's distribution function divides by a root of two in single precision: 1e-8 off.
    np.testing.assert_allclose(pm.logp(ours, values).eval(), expected, atol=1e-7)


def test_gradient_is_finite_and_right():
    mu, sigma = pt.dvector("mu"), pt.dscalar("sigma")
    lower, upper = np.array([-np.inf, 0.0, 2.0, 0.5]), np.array([0.0, 1.0, np.inf, 0.5])
    log_p = pm.logp(IntervalNormal.dist(mu, sigma, lower, upper), np.array([0.0, 0.2, 2.5, 0.5]))
    f = pytensor.function([mu, sigma], [log_p.sum(), *pytensor.grad(log_p.sum(), [mu, sigma])])
    at = np.array([3.0, -30.0, -1.0, 0.1])
    _, of_mu, of_sigma = f(at, 0.8)
    for i, step in enumerate(1e-5 * np.eye(4)):
        difference = (f(at + step, 0.8)[0] - f(at - step, 0.8)[0]) / 2e-5
        # Values up to 1000: round-off of 1e-13 over the step.
        assert of_mu[i] == pytest.approx(difference, rel=1e-6, abs=1e-7)
    assert of_sigma == pytest.approx((f(at, 0.80001)[0] - f(at, 0.79999)[0]) / 2e-5, rel=1e-6)


def test_bad_parameters():
    with pytest.raises(ValueError, match="lower must not exceed upper; it does for 1 value"):
        IntervalNormal.dist(0.0, 1.0, [0.0, 2.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="lower and upper must not be NaN"):
        IntervalNormal.dist(0.0, 1.0, np.nan, 1.0)
    for sigma, lower in ((-1.0, 0.0), (1.0, 2.0)):
        y = IntervalNormal.dist(0.0, sigma, pt.constant(lower), 1.0)
        with pytest.raises(pm.logprob.utils.ParameterValueError, match="sigma > 0, lower <= upper"):
            pm.logp(y, 0.5).eval()


@pytest.mark.parametrize(
    ("mu", "size", "expected"),
    [(0.1, None, 0.1), (0.1, 3, [0.1, 0.1, 0.1]), ([-1.0, 1.0], (2, 2), [[-1, 1], [-1, 1]])],
)
def test_support_point(mu, size, expected):
    with pm.Model() as model:
        IntervalNormal("x", mu, 1.0, 0.0, 1.0, size=size)
    assert_support_point_is_expected(model, expected)


def test_draws_are_the_same_in_numba_and_python():
    lower, upper = np.array(ENDS).T
    y = IntervalNormal.dist(np.linspace(-2, 2, 5), 0.7, lower, upper, size=(300, 5))
    numba = pm.draw(y, 2, random_seed=1, mode="NUMBA")
    # A product and a sum may be one operation in compiled code.
    np.testing.assert_allclose(numba, pm.draw(y, 2, random_seed=1, mode=IN_PYTHON), atol=1e-12)


def test_frequencies_of_draws():
    lower, upper = np.array(ENDS).T
    n = 40_000
    y = pm.draw(IntervalNormal.dist(0.3, 0.7, lower, upper, size=(n, 5)), random_seed=2)
    stands_for = [0.5, 0.5, 0.8, 0.0, np.nan]
    normal = stats.norm(0.3, 0.7)
    p = normal.cdf(upper) - normal.cdf(lower)
    inside = y == stands_for
    # Five standard errors, each of four columns: a false alarm in 3e-6 of all seeds.
    assert (np.abs(inside.mean(axis=0) - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-12).all()
    # The rest is the normal outside; one Kolmogorov test a column, false alarms in 2e-6.
    assert not ((y > lower) & (y < upper) & ~inside).any()
    assert stats.kstest(y[:, 4], normal.cdf).pvalue > 1e-6
    above = y[:, 0][~inside[:, 0]]
    right = stats.truncnorm((0.5 - 0.3) / 0.7, np.inf, 0.3, 0.7)
    assert stats.kstest(above, right.cdf).pvalue > 1e-6


def test_in_a_model():
    lower, upper = np.array([-np.inf, 0.0, 0.7]), np.array([0.0, 1.0, 0.7])
    with pm.Model(coords={"row": list("abc")}) as model:
        f = pm.Normal("f", dims="row")
        sigma = pm.HalfNormal("sigma")
        y = IntervalNormal("y", f, sigma, lower, upper, observed=[0.0, 0.0, 0.7], dims="row")
        prior = pm.sample_prior_predictive(20, random_seed=1)
    assert y.type.ndim == 1
    assert prior["prior_predictive"]["y"].dims == ("chain", "draw", "row")
    point = model.initial_point()
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert copy.compile_logp()(point) == model.compile_logp()(point)
    assert np.isfinite(model.compile_dlogp(mode="NUMBA")(point)).all()
