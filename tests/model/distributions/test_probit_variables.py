"""Labels, choices, duels, and values not seen within an interval: densities, gradients, draws."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import finite_difference
from pymc.logprob.utils import ParameterValueError
from pymc.testing import (
    BaseTestDistributionRandom,
    Bool,
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

from pymc_skewgp import (
    BernoulliProbit,
    ChoiceProbit,
    IntervalNormal,
    MultinomialProbit,
    PreferenceProbit,
    mvn_logcdf,
)

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
TAILS = np.array([-40.0, -8.0, -4.0, -1.0, 0.0, 0.3, 8.0, 40.0])
ETA = np.linspace(-2, 2, 5)
SETS = np.array([[0.4, -1.0, 2.0], [0.0, 0.0, 0.0], [-3.0, 1.0, 1.5], [5.0, 5.2, -5.0]])
F = np.array([0.4, -1.0, 2.0, 0.3])
PAIRS = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 3]])
INF = np.inf
ENDS = np.array([(-INF, 0.5), (0.0, 1.0), (0.8, INF), (-INF, INF), (0.4, 0.4)])
LOWER, UPPER = ENDS.T


def of_choice(eta, c, sigma):
    """Log probability, of the orthant of the two differences, a bivariate closed form."""
    return mvn_logcdf(np.delete(eta[c] - eta, c) / sigma, cov=np.eye(2) + 1.0).value


def of_outcomes(sigma, threshold):
    """Probabilities of -1, 0 and 1 by the definition, shape (3, pairs)."""
    difference, noise = F[PAIRS[:, 0]] - F[PAIRS[:, 1]], np.sqrt(2) * sigma
    above = ndtr((difference - threshold) / noise)
    below = ndtr((-threshold - difference) / noise)
    return np.stack([below, 1 - above - below, above])


class Random(BaseTestDistributionRandom):
    checks_to_run = (
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference",
        "check_rv_size",
    )

    def reference_dist(self):
        rng = self.get_random_state()
        return lambda size, **parameters: self.drawn(rng, size, **parameters)


class TestRandomBernoulli(Random):
    pymc_dist = BernoulliProbit
    pymc_dist_params = expected_rv_op_params = reference_dist_params = {"eta": 0.3}  # noqa: RUF012

    def drawn(self, rng, size, eta):
        return (eta + rng.standard_normal(size) > 0).astype(int)


class TestRandomChoice(Random):
    pymc_dist = ChoiceProbit
    pymc_dist_params = {"eta": SETS[0], "sigma": 0.7}  # noqa: RUF012
    expected_rv_op_params = reference_dist_params = pymc_dist_params
    sizes_to_check = (None, (), 1, (1,), 5, (4, 5))
    sizes_expected = ((), (), (1,), (1,), (5,), (4, 5))

    def drawn(self, rng, size, eta, sigma):
        noise = sigma * rng.standard_normal((*np.atleast_1d(size), 3))
        return np.argmax(eta + noise, axis=-1)


class TestRandomInterval(Random):
    pymc_dist = IntervalNormal
    pymc_dist_params = {"mu": 0.3, "sigma": 1.5, "lower": 0.0, "upper": 1.0}  # noqa: RUF012
    expected_rv_op_params = reference_dist_params = pymc_dist_params

    def drawn(self, rng, size, mu, sigma, lower, upper):
        v = mu + sigma * rng.standard_normal(size)
        return np.where((v > lower) & (v < upper), 0.5 * (lower + upper), v)


class TestBernoulli:
    def test_against_scipy(self):
        for check, name in ((check_logp, "logpmf"), (check_logcdf, "logcdf")):
            of = getattr(stats.bernoulli, name)
            check(BernoulliProbit, Bool, {"eta": R}, lambda value, eta, of=of: of(value, ndtr(eta)))
        check_selfconsistency_discrete_logcdf(BernoulliProbit, Bool, {"eta": R})
        check_icdf(BernoulliProbit, {"eta": R}, lambda q, eta: stats.bernoulli(ndtr(eta)).ppf(q))

    def test_both_tails(self):
        y = BernoulliProbit.dist(TAILS)
        # As good as scipy's log_ndtr, up to a few units of the last place.
        np.testing.assert_allclose(pm.logp(y, 1).eval(), log_ndtr(TAILS), rtol=1e-14)
        np.testing.assert_allclose(pm.logp(y, 0).eval(), log_ndtr(-TAILS), rtol=1e-14)
        np.testing.assert_allclose(pm.logcdf(y, 0).eval(), log_ndtr(-TAILS), rtol=1e-14)
        np.testing.assert_array_equal(pm.logp(BernoulliProbit.dist(0.3), [-1, 2, 7]).eval(), -INF)
        far = BernoulliProbit.dist([-40.0, 40.0], size=(1000, 2))
        np.testing.assert_array_equal(pm.draw(far, random_seed=3), np.tile([0, 1], (1000, 1)))

    def test_gradient_is_the_inverse_mills_ratio_in_both_tails(self):
        eta = pt.dvector("eta")
        labels = np.array([1, 1, 1, 1, 1, 0, 0, 0])
        gradient = pytensor.grad(pm.logp(BernoulliProbit.dist(eta), labels).sum(), eta)
        sign = 2.0 * labels - 1.0
        expected = sign * np.exp(stats.norm.logpdf(TAILS) - log_ndtr(sign * TAILS))
        # The two exponents of 800 carry round-off of 1e-13 each.
        np.testing.assert_allclose(gradient.eval({eta: TAILS}), expected, rtol=1e-12, atol=1e-300)

    def test_nan_in_a_parameter_is_impossible_and_not_nan(self):
        eta = pt.dvector("eta")
        log_p = pm.logp(BernoulliProbit.dist(eta), np.array([1, 0]))
        np.testing.assert_array_equal(log_p.eval({eta: [np.nan, np.nan]}), [-INF, -INF])
        assert pm.logcdf(BernoulliProbit.dist(eta), 0).eval({eta: [np.nan]}) == -INF

    def test_unobserved_and_missing_labels(self):
        with pm.Model() as model:
            BernoulliProbit("y", 0.0, shape=4)
        assert model.discrete_value_vars == [model.rvs_to_values[model["y"]]]
        with pytest.raises(ValueError, match="Transformations for discrete"), pm.Model():
            BernoulliProbit("y", 0.0, transform=pm.distributions.transforms.log)
        data = np.ma.masked_array([0, 1, 0], mask=[0, 0, 1])
        with pytest.warns(pm.exceptions.ImputationWarning), pm.Model() as model:
            BernoulliProbit("y", np.array([0.1, 0.2, 0.3]), observed=data)
        assert np.isfinite(model.compile_logp()(model.initial_point()))


class TestChoices:
    @pytest.mark.parametrize("sigma", [1.0, 0.3])
    def test_logp_against_the_normal_distribution_function(self, sigma):
        y = ChoiceProbit.dist(SETS, sigma)
        log_p = np.stack([pm.logp(y, c).eval() for c in range(3)], axis=1)
        expected = [[of_choice(eta, c, sigma) for c in range(3)] for eta in SETS]
        # Half of what the two promise; far tails lose digits in the bivariate closed form.
        np.testing.assert_allclose(np.exp(log_p), np.exp(expected), rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0, rtol=1e-10)
        np.testing.assert_array_equal(pm.logp(y, [-1, 3, 4, 7]).eval(), -INF)


class TestDuels:
    @pytest.mark.parametrize(("sigma", "threshold"), [(1.0, 0.5), (0.3, 0.05), (2.0, 3.0)])
    def test_logp_against_the_definition(self, sigma, threshold):
        y = PreferenceProbit.dist(F, PAIRS, sigma, threshold)
        p = np.exp([pm.logp(y, outcome).eval() for outcome in (-1, 0, 1)])
        # A tie is a difference of numbers near 1.
        np.testing.assert_allclose(p, of_outcomes(sigma, threshold), atol=1e-15)
        np.testing.assert_allclose(p.sum(axis=0), 1.0, rtol=1e-13)
        np.testing.assert_array_equal(pm.logp(y, 2).eval(), -INF)

    def test_without_a_threshold_it_is_a_probit_label(self):
        first, second = (PreferenceProbit.dist(F, p, 0.7) for p in (PAIRS, PAIRS[:, ::-1]))
        expected = log_ndtr((F[PAIRS[:, 0]] - F[PAIRS[:, 1]]) / (np.sqrt(2) * 0.7))
        np.testing.assert_allclose(pm.logp(first, 1).eval(), expected, rtol=1e-13)
        np.testing.assert_allclose(pm.logp(second, -1).eval(), expected, rtol=1e-13)
        np.testing.assert_array_equal(pm.logp(first, 0).eval(), -INF)


class TestIntervals:
    def test_logp_against_scipy(self):
        rng = np.random.default_rng(1)
        mu, sigma = rng.normal(size=200), rng.uniform(0.2, 2.0, size=200)
        lower = rng.normal(size=200)
        upper = lower + rng.exponential(size=200)
        lower[::7], upper[::5] = -INF, INF
        y = mu + sigma * rng.normal(size=200)
        found = pm.logp(IntervalNormal.dist(mu, sigma, lower, upper), y).eval()
        inside = (y >= lower) & (y <= upper)
        assert 50 < inside.sum() < 150
        normal = stats.norm(mu, sigma)
        probability = np.where(inside, normal.cdf(upper) - normal.cdf(lower), normal.pdf(y))
        # Differences of distribution functions keep 1e-16 of 1.
        np.testing.assert_allclose(np.exp(found), probability, rtol=1e-12, atol=1e-15)

    def test_all_numbers_of_an_interval_say_the_same(self):
        y = IntervalNormal.dist(0.3, 0.7, [-INF, 0.0, 1.0, 0.0], [1.0, 1.0, INF, 0.0])
        normal = stats.norm(0.3, 0.7)
        between = np.log(np.diff(normal.cdf([0, 1]))[0])
        # Equal limits are none.
        expected = [normal.logcdf(1.0), between, normal.logsf(1.0), normal.logpdf(0.0)]
        for value in ([-3.0, 0.0, 1.0, 0.0], [1.0, 0.5, 9.0, 0.0]):
            np.testing.assert_allclose(pm.logp(y, value).eval(), expected, rtol=1e-12)

    def test_draws(self):
        """What stands for being within each interval, with finite limits and without."""
        y = pm.draw(IntervalNormal.dist(0.3, 0.7, LOWER, UPPER, size=(400, 5)), random_seed=2)
        inside = y == [0.5, 0.5, 0.8, 0.0, np.nan]
        assert inside[:, 3].all()
        assert (inside[:, :3].sum(axis=0) > 20).all()
        assert not ((y > LOWER) & (y < UPPER) & ~inside).any()


# Parameters, some far in the tails, and data.
GRADIENTS = {
    "choices": (ChoiceProbit.dist, [4 * SETS, 0.8], [1, 2, 0, 1]),
    "duels": (
        lambda f, sigma, threshold: PreferenceProbit.dist(f, PAIRS, sigma, threshold),
        [20.0 * F, 0.8, 0.3],
        [1, 0, -1, 0, -1],
    ),
    "intervals": (
        lambda mu, sigma: IntervalNormal.dist(mu, sigma, [-INF, 0, 2, 0.5], [0, 1, INF, 0.5]),
        [np.array([3.0, -30.0, -1.0, 0.1]), 0.8],
        [0.0, 0.2, 2.5, 0.5],
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_against_differences(name):
    make, at, data = GRADIENTS[name]
    at = [np.asarray(x) for x in at]
    inputs = [pt.tensor(dtype="float64", shape=x.shape) for x in at]
    log_p = pm.logp(make(*inputs), np.array(data)).sum()
    f = pytensor.function(inputs, [log_p, *pytensor.grad(log_p, inputs)])
    for k, found in enumerate(f(*at)[1:]):
        expected = finite_difference(lambda x, k=k: f(*at[:k], x, *at[k + 1 :])[0], at[k], h=1e-4)
        # Round-off of some hundreds or thousands over the step.
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_frequencies_of_duels():
    """Those of labels and choices are their reference's, draw by draw: above."""
    n, p = 40_000, of_outcomes(0.7, 0.4)
    y = pm.draw(PreferenceProbit.dist(F, PAIRS, 0.7, 0.4, size=(n, 5)), random_seed=2)
    found = np.stack([(y == outcome).mean(axis=0) for outcome in (-1, 0, 1)])
    # Five standard errors, each of fifteen numbers: a false alarm in 9e-6 of all seeds.
    assert (np.abs(found - p) < 5 * np.sqrt(p * (1 - p) / n)).all()


def test_draws_are_the_same_in_numba_and_python():
    variables = [
        BernoulliProbit.dist(ETA, size=(100, 5)),
        ChoiceProbit.dist(SETS, 4.0, size=(100, 4)),
        MultinomialProbit.dist(SETS, size=(100, 4)),
        PreferenceProbit.dist(F, PAIRS, 0.7, 0.4, size=(100, 5)),
        IntervalNormal.dist(ETA, 0.7, LOWER, UPPER, size=(100, 5)),
    ]
    numba, python = (
        pm.draw(variables, 2, random_seed=1, mode=mode) for mode in ("NUMBA", IN_PYTHON)
    )
    for found, expected in zip(numba, python, strict=True):
        assert found.dtype == (np.float64 if found is numba[-1] else np.int64)
        # A product and a sum may be one operation in compiled code.
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("variable", "parameters", "size", "expected"),
    [
        (BernoulliProbit, (-0.1,), 3, [0, 0, 0]),
        (BernoulliProbit, ([-1.0, 1.0],), (2, 2), [[0, 1], [0, 1]]),
        (ChoiceProbit, (SETS,), None, [2, 0, 2, 1]),
        (MultinomialProbit, (SETS[:2],), (2, 2), [[2, 0], [2, 0]]),
        (PreferenceProbit, (F, PAIRS, 1.0, 0.1), None, [1, -1, 1, -1, 1]),
        (IntervalNormal, (0.1, 1.0, 0.0, 1.0), 3, [0.1, 0.1, 0.1]),
        (IntervalNormal, ([-1.0, 1.0], 1.0, 0.0, 1.0), (2, 2), [[-1, 1], [-1, 1]]),
    ],
)
def test_support_point(variable, parameters, size, expected):
    with pm.Model() as model:
        variable("x", *parameters, size=size)
    # Whose density is finite, as at all labels: above.
    assert_support_point_is_expected(model, expected, check_finite_logp=False)


def density(y, value):
    return lambda: pm.logp(y, value).eval()


REFUSED = [
    (lambda: BernoulliProbit.dist([0.0, np.nan]), ValueError, "eta holds 1 NaN"),
    (lambda: ChoiceProbit.dist(0.3), ValueError, "two alternatives or more in its last dim"),
    (density(ChoiceProbit.dist(SETS, -1.0), 0), ParameterValueError, "sigma > 0"),
    (lambda: PreferenceProbit.dist(F, [[0, 0]]), ValueError, "row 0 item 0 meets itself"),
    (lambda: PreferenceProbit.dist(F, [[0, 4]]), ValueError, "4 items of f, from 0; got 0 to 4"),

    (lambda: PreferenceProbit.dist(F, [[0.0, 1.0]]), TypeError, "pairs must hold indices of f"),
    (lambda: PreferenceProbit.dist(F, [[0, 1, 2]]), ValueError, r"pairs must have shape \(m, 2\)"),
    (lambda: PreferenceProbit.dist(np.eye(2), PAIRS), ValueError, "f must be a vector"),
    (density(PreferenceProbit.dist(F, PAIRS, 0.0, 0.1), 1), ParameterValueError, "threshold >= 0"),
    (density(PreferenceProbit.dist(F, PAIRS, 1.0, -0.1), 1), ParameterValueError, "threshold >= 0"),
    (
        lambda: IntervalNormal.dist(0.0, 1.0, [0.0, 2.0], [1.0, 1.0]),
        ValueError,
        "lower must not exceed upper; it does for 1 value",
    ),
    (lambda: IntervalNormal.dist(0.0, 1.0, np.nan, 1.0), ValueError, "must not be NaN"),

    (
        density(IntervalNormal.dist(0.0, 1.0, pt.constant(2.0), 1.0), 0.5),
        ParameterValueError,
        "sigma > 0, lower <= upper",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_bad_parameters(call, error, message):
    with pytest.raises(error, match=message):
        call()
