"""The paper's procedure: a bound that holds, SPSA on functions with known optima."""

import numpy as np
import pymc as pm
import pytest
from oracles import brute_log_prob

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point, Value
from pymc_skewgp._learn.hyperparameters import frechet_lower_bound, maximize_frechet_bound, spsa

COV = np.array([[1.0, 0.6, 0.3], [0.6, 1.5, 0.5], [0.3, 0.5, 2.0]])


@pytest.mark.parametrize("limit", [0.0, 1.0, 3.0])
def test_bound_holds(limit):
    """Batches {0, 1} and {2}: never above the probability of all three, by quadrature."""
    lower = np.full(3, -limit)
    whole = np.exp(brute_log_prob(lower, np.full(3, np.inf), COV))
    pair = brute_log_prob(lower[:2], np.full(2, np.inf), COV[:2, :2])
    single = brute_log_prob(lower[2:], np.full(1, np.inf), COV[2:, 2:])
    bound = frechet_lower_bound([pair, single])
    assert bound <= whole + 1e-9  # quadrature's error
    # Tight where nothing is in doubt, void where labels are like coin flips.
    assert bound > 0.9 * whole if limit == 3.0 else True
    assert bound < 0 or limit > 0


def test_bound_keeps_its_digits():
    logs = np.full(1000, -1e-12)
    # 1 - 1000e-12 to first order; the square is 1e-24.
    assert 1.0 - frechet_lower_bound(logs) == pytest.approx(1e-9, rel=1e-6)


def value_of(function):
    return lambda point: Value(function(point.x), np.nan, np.full(point.x.size, np.nan))


def test_spsa_finds_an_optimum():
    optimum = np.array([0.5, -1.0, 0.2])
    hessian = np.array([1.0, 3.0, 0.5])
    function = value_of(lambda x: -np.sum(hessian * (x - optimum) ** 2))
    bounds = [(-3.0, 3.0)] * 3
    _, value = spsa(function, Point(np.zeros(3)), bounds, 1500, np.random.default_rng(0))
    # From a value of -3.3; a fixed seed, and 20 of 20 seeds tried stay above -.1.
    assert value.total > -0.1


def test_on_data_the_bound_is_void():
    """What the documentation says of it: negative for batches of any use, so not to be trusted."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.normal(size=60))[:, None]
    y = (np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=60) > 0).astype(int)
    with pm.Model():
        ls = pm.HalfFlat("ls")
        gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls))
    fit = maximize_frechet_bound(
        gp, X, y, batch_size=20, n_iterations=8, random_seed=0, progressbar=False
    )
    assert fit.kind == "frechet"
    assert fit.path.sizes["evaluation"] == 17
    assert (fit.path["total"] < -1.0).all()  # three batches: at least -2
    assert (fit.path["total"] >= -2.0).all()
    assert "log frechet" not in str(fit)
    direct = gp.posterior(X, y, point=fit.point).log_marginal_likelihood
    # Two estimates of one number; 5 standard errors.
    error = np.hypot(direct.std_error, fit.log_marginal_likelihood.std_error)
    assert abs(direct.value - fit.log_marginal_likelihood.value) < 5 * error
