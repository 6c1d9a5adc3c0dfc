"""PreferenceProbit: the sign of a noisy difference."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.testing import assert_support_point_is_expected
from pytensor.compile.mode import Mode
from scipy.special import ndtr

from pymc_skewgp._model.distributions.probit import BernoulliProbit, PreferenceProbit

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
F = np.array([0.4, -1.0, 2.0, 0.3])
PAIRS = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 3]])
OUTCOMES = (-1, 0, 1)


def probabilities(sigma, threshold):
    """Of -1, 0 and 1, by the definition, shape (3, pairs)."""
    difference, noise = F[PAIRS[:, 0]] - F[PAIRS[:, 1]], np.sqrt(2) * sigma
    above = ndtr((difference - threshold) / noise)
    below = ndtr((-threshold - difference) / noise)
    return np.stack([below, 1 - above - below, above])


@pytest.mark.parametrize(("sigma", "threshold"), [(1.0, 0.5), (0.3, 0.05), (2.0, 3.0)])
def test_logp_against_the_definition(sigma, threshold):
    y = PreferenceProbit.dist(F, PAIRS, sigma, threshold)
    log_p = np.stack([pm.logp(y, outcome).eval() for outcome in OUTCOMES])
    # A tie is a difference of numbers near 1.
    np.testing.assert_allclose(np.exp(log_p), probabilities(sigma, threshold), atol=1e-15)
    np.testing.assert_allclose(np.exp(log_p).sum(axis=0), 1.0, rtol=1e-13)
    np.testing.assert_array_equal(pm.logp(y, 2).eval(), -np.inf)


def test_without_a_threshold_it_is_a_probit_label():
    first, second = (PreferenceProbit.dist(F, p, 0.7) for p in (PAIRS, PAIRS[:, ::-1]))
    eta = (F[PAIRS[:, 0]] - F[PAIRS[:, 1]]) / (np.sqrt(2) * 0.7)
    expected = pm.logp(BernoulliProbit.dist(eta), 1).eval()
    np.testing.assert_allclose(pm.logp(first, 1).eval(), expected, rtol=1e-13)
    np.testing.assert_allclose(pm.logp(second, -1).eval(), expected, rtol=1e-13)
    np.testing.assert_array_equal(pm.logp(first, 0).eval(), -np.inf)


def test_gradient_against_differences():
    f, sigma, threshold = pt.dvector("f"), pt.dscalar("sigma"), pt.dscalar("threshold")
    y = PreferenceProbit.dist(f, PAIRS, sigma, threshold)
    log_p = pm.logp(y, np.array([1, 0, -1, 0, -1])).sum()
    arguments = [f, sigma, threshold]
    evaluate = pytensor.function(arguments, [log_p, *pytensor.grad(log_p, arguments)])
    at = np.r_[20.0 * F, 0.8, 0.3]  # differences of 60, far in the tails
    value = lambda x: evaluate(x[:4], x[4], x[5])[0]  # noqa: E731
    gradient = np.concatenate([np.ravel(g) for g in evaluate(at[:4], at[4], at[5])[1:]])
    differences = [(value(at + h) - value(at - h)) / 2e-5 for h in 1e-5 * np.eye(6)]
    # Values of some thousands: round-off of 1e-12 over the step.
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([[0, 0]], ValueError, "row 0 item 0 meets itself"),
        ([[0, 4]], ValueError, "indices of the 4 items of f, from 0; got 0 to 4"),
        ([[0, -1]], ValueError, "got -1 to 0"),
        ([[0.0, 1.0]], TypeError, "pairs must hold indices of f, whole numbers"),
        ([0, 1], ValueError, r"pairs must have shape \(m, 2\)"),
        ([[0, 1, 2]], ValueError, r"pairs must have shape \(m, 2\)"),
    ],
)
def test_bad_pairs(pairs, error, message):
    with pytest.raises(error, match=message):
        PreferenceProbit.dist(F, pairs)


def test_other_bad_parameters():
    with pytest.raises(ValueError, match="f must be a vector"):
        PreferenceProbit.dist(np.eye(2), PAIRS)
    for sigma, threshold in ((0.0, 0.1), (1.0, -0.1)):
        y = PreferenceProbit.dist(F, PAIRS, sigma, threshold)
        with pytest.raises(pm.logprob.utils.ParameterValueError, match="threshold >= 0"):
            pm.logp(y, 1).eval()


def test_support_point():
    with pm.Model() as model:
        PreferenceProbit("x", F, PAIRS, threshold=0.1)
    assert_support_point_is_expected(model, [1, -1, 1, -1, 1])


def test_draws_are_the_same_in_numba_and_python():
    y = PreferenceProbit.dist(F, PAIRS, 0.7, 0.4, size=(300, 5))
    numba = pm.draw(y, 2, random_seed=1, mode="NUMBA")
    assert numba.dtype == np.int64
    np.testing.assert_array_equal(numba, pm.draw(y, 2, random_seed=1, mode=IN_PYTHON))


def test_frequencies_of_draws():
    n = 40_000
    y = pm.draw(PreferenceProbit.dist(F, PAIRS, 0.7, 0.4, size=(n, 5)), random_seed=2)
    p = probabilities(0.7, 0.4)
    found = np.stack([(y == outcome).mean(axis=0) for outcome in OUTCOMES])
    # Five standard errors, each of fifteen numbers: a false alarm in 9e-6 of all seeds.
    assert (np.abs(found - p) < 5 * np.sqrt(p * (1 - p) / n)).all()


@pytest.mark.slow(ci=True)
def test_in_a_model():
    with pm.Model(coords={"item": list("abcd"), "duel": range(5)}) as model:
        f = pm.Normal("f", dims="item")
        sigma, threshold = pm.HalfNormal("sigma"), pm.HalfNormal("threshold")
        pairs = pm.Data("pairs", PAIRS, dims=("duel", "side"))
        PreferenceProbit("y", f, pairs, sigma, threshold, observed=[1, 0, -1, 1, 1], dims="duel")
        prior = pm.sample_prior_predictive(20, random_seed=1)
    assert prior["prior_predictive"]["y"].dims == ("chain", "draw", "duel")
    assert set(np.unique(prior["prior_predictive"]["y"])) <= {-1, 0, 1}
    point = model.initial_point()
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert copy.compile_logp()(point) == model.compile_logp()(point)
    assert np.isfinite(model.compile_dlogp(mode="NUMBA")(point)).all()
