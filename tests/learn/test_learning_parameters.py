"""Parameters of likelihoods, covariances of functions and constraints, by their own evidence.

Against quadrature over the function itself, and finite differences.
"""

import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import function_grid
from observation_oracles import grid_posterior
from oracles import finite_difference
from scipy.special import log_ndtr

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective

INF, NAN = np.inf, np.nan
X = np.array([[-1.2], [0.1], [0.9]])
ETA, LS = 1.3, 0.8


def objective_of(make, x, y, likelihood=None):
    """The objective of data under the likelihood that `make` gives, maybe with a coregion."""
    with pm.Model():
        kernel = pm.HalfNormal("eta", 2.0) ** 2 * pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1))
        gp = sg.SkewGP(cov_func=kernel)
        made, coregion = make()
    if y is None:
        x, made = made(x), None
    data = TrainingData(gp, x, y, made, coregion)
    return process_objective(data, None, np.random.default_rng(0), None).objective


def rbf(x, t):
    return ETA**2 * np.exp(-0.5 * ((x - t.T) / LS) ** 2)


def log_normal(z, sd):
    return -0.5 * (z / sd) ** 2 - np.log(sd) - 0.5 * np.log(2.0 * np.pi)


def case_threshold():
    """A win, a tie and a win, with a random just-noticeable difference of .7 and noise of .4."""
    duels = [[0, 1, 0], [2, 1, 1], [2, 0, 0]]
    A = [[1.0, -1.0, 0.0], [0.0, -1.0, 1.0], [-1.0, 0.0, 1.0]]
    truth = grid_posterior(
        np.zeros(3), rbf(X, X), A, np.zeros(3), np.full(3, 0.32), [0.7, -0.7, 0.7], [INF, 0.7, INF],
        [NAN] * 3, nodes=101,
    ).log_evidence  # fmt: skip

    def make():
        d, sigma = pm.HalfNormal("d", 1.0), pm.HalfNormal("sigma", 1.0)
        return sg.likelihoods.Preference(sigma, threshold=d), None

    return make, X, duels, np.log([0.7, 0.4]), truth


def case_limits():
    """One value below an unknown limit of -.3, one above one of .8, one between them."""
    truth = grid_posterior(
        np.zeros(3), rbf(X, X), np.eye(3), np.zeros(3), np.full(3, 0.25), [-INF, NAN, 0.8],
        [-0.3, NAN, INF], [NAN, 0.4, NAN], nodes=81,
    ).log_evidence  # fmt: skip

    def make():
        low, high = pm.Normal("low"), pm.Normal("high")
        return sg.likelihoods.CensoredGaussian(0.5, lower=low, upper=high), None

    return make, X, [-INF, 0.4, INF], [-0.3, 0.8], truth


def between(theta):
    """A covariance of two functions with a random scale and a random correlation."""
    scale, r = theta
    return [[scale**2, r * scale], [r * scale, 1.0]]


def case_selection():
    """An outcome that is seen and one that is not: Heckman's likelihood as a function of f."""
    x, y, sigma, rho, B = X[:2], 0.6, 0.5, -0.4, np.array(between([1.4, 0.3]))

    def log_likelihood(f):  # (N, 4): outcome and selection at each input
        z = (y - f[:, 0]) / sigma
        seen = log_ndtr((f[:, 1] + rho * z) / np.sqrt(1.0 - rho**2)) + log_normal(z, 1.0)
        return seen - np.log(sigma) + log_ndtr(-f[:, 3])

    truth = function_grid(np.zeros(4), np.kron(rbf(x, x), B), log_likelihood).log_evidence

    def make():
        sigma, rho = pm.HalfNormal("sigma"), pm.Uniform("rho", -1.0, 1.0)
        scale, r = pm.HalfNormal("scale"), pm.Normal("r", 0.0, 0.5)
        B = pm.math.stack([pm.math.stack(row) for row in between([scale, r])])
        return sg.likelihoods.Selection(sigma, rho), B

    at = [np.log(sigma), np.log((rho + 1.0) / (1.0 - rho)), np.log(1.4), 0.3]
    return make, x, [y, NAN], at, truth


def case_classes():
    """Two classes see the difference of two functions, of variance B00 + B11 - 2 B01."""
    B = np.array(between([1.4, 0.3]))
    sign = np.array([1.0, -1.0, 1.0])
    truth = grid_posterior(
        np.zeros(3), (B[0, 0] + B[1, 1] - 2.0 * B[0, 1]) * rbf(X, X), np.diag(sign), np.zeros(3),
        np.full(3, 2.0), np.zeros(3), np.full(3, INF), [NAN] * 3, nodes=81,
    ).log_evidence  # fmt: skip

    def make():
        scale, r = pm.HalfNormal("scale"), pm.Normal("r", 0.0, 0.5)
        B = pm.math.stack([pm.math.stack(row) for row in between([scale, r])])
        return sg.likelihoods.MultinomialProbit(), B

    return make, X, [1, 0, 1], [np.log(1.4), 0.3], truth


def case_slope():
    """Two values, and a slope above an unknown limit, given up to a nugget of 2 deviations.

    So large, for quadrature to see it; the nugget is in units of the prior deviation of the slope.
    """
    x, v = X[:2], X[2:]
    cross = (x - v.T) / LS**2 * rbf(x, v)
    slope_variance = ETA**2 / LS**2
    cov = np.block([[rbf(x, x), cross], [cross.T, slope_variance * np.eye(1)]])
    truth = grid_posterior(
        np.zeros(3), cov, np.eye(3), np.zeros(3), [0.25, 0.25, slope_variance / 16.0],
        [NAN, NAN, 0.2], [NAN, NAN, INF], [0.4, -0.3, NAN], nodes=101,
    ).log_evidence  # fmt: skip

    def make():
        limit = pm.Normal("limit")

        def kinds(x):
            shape = sg.likelihoods.Constraint(limit, derivative=(0, 1), nugget=2.0)
            return [(v, None, shape), (x, [0.4, -0.3], sg.likelihoods.Gaussian(0.5))]

        return kinds, None

    return make, x, None, [0.2], truth


CASES = {
    "threshold": case_threshold,
    "limits": case_limits,
    "selection": case_selection,
    "classes": case_classes,
    "slope": case_slope,
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    make, x, y, learnt, truth = CASES[request.param]()
    point = np.concatenate([np.log([ETA, LS]), learnt])
    return objective_of(make, x, y), point, truth


def test_evidence_by_quadrature(case):
    objective, point, truth = case
    found = objective.by_twisting(Point(point), 4096, 0).log_evidence
    # Quasi-random error in at most three rows.
    assert found == pytest.approx(truth, abs=1e-4)
    # EP's error at such variances.
    assert objective.by_ep(Point(point)).log_evidence == pytest.approx(truth, abs=0.02)


def test_gradient(case):
    objective, point, _ = case
    for evaluate in (objective.by_ep, lambda at: objective.by_twisting(at, 64, 0)):
        numeric = finite_difference(lambda x, f=evaluate: f(Point(x)).total, point, 0.01)
        # EP stops at 1e-4 of a standard deviation in each of a few rows.
        np.testing.assert_allclose(evaluate(Point(point)).gradient, numeric, atol=2e-3)


def test_a_value_beyond_a_learnt_limit_is_impossible():
    make, x, y, *_ = case_limits()
    objective = objective_of(make, x, y)
    for low, high in ((0.5, 0.8), (-0.3, 0.3)):
        at = Point(np.array([0.2, -0.2, low, high]))
        assert objective.by_ep(at).total == -INF
        assert objective.by_twisting(at, 64, 0).total == -INF


def test_data_about_one_function_and_about_two():
    """Labels of the first function, and choices between both: functions by the first ones."""
    B = np.array([[1.5, 0.4], [0.4, 0.8]])

    def log_likelihood(f):
        classes = log_ndtr((f[:, 1] - f[:, 0]) / np.sqrt(2.0))
        return classes + log_ndtr(f[:, 2])

    K = np.kron(rbf(X[:2], X[:2]), B)[:3, :3]
    truth = function_grid(np.zeros(3), K, log_likelihood).log_evidence

    def make():
        def kinds(x):
            both = sg.likelihoods.MultinomialProbit(n_classes=2)
            return {"class": (x[:1], [1], both), "label": (x[1:2], [1], None)}

        return kinds, B

    objective = objective_of(make, X, None)
    # Two rows: exact.
    found = objective.by_twisting(Point(np.log([ETA, LS])), 64, 0)
    assert found.log_evidence == pytest.approx(truth, abs=1e-7)


def test_monotone_data_make_the_lengthscale_longer():
    """Ten rising values under dense constraints: the evidence of the posterior at the optimum."""
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 2.0, 10)[:, None]
    y = x[:, 0] + 0.3 * rng.normal(size=10)
    virtual = np.linspace(0.0, 2.0, 12)[:, None]

    def fit(constrained):
        with pm.Model():
            ls, sigma = pm.Gamma("ls", 2, 1), pm.HalfNormal("sigma", 1.0)
            gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls))
            data = {"y": (x, y, sg.likelihoods.Gaussian(sigma))}
            if constrained:
                data["rising"] = (virtual, None, sg.likelihoods.Constraint.increasing())
        found = sg.find_hyperparameters(
            gp, data, n_restarts=0, random_seed=1, quiet=True, progressbar=False
        )
        return found, gp.posterior(data, point=found.point, n_draws=4096)

    (free, _), (monotone, posterior) = fit(False), fit(True)
    exact = posterior.log_marginal_likelihood
    error = np.hypot(exact.std_error, monotone.log_marginal_likelihood.std_error)
    # Two samplers of their own seeds: five standard errors.
    assert abs(monotone.log_marginal_likelihood.value - exact.value) < 5 * error + 1e-6
    assert monotone.point["ls"] > 1.1 * free.point["ls"]
    assert np.all(np.diff(posterior.marginals(x).moments.mean) > 0.0)


class TestRefusals:
    def test_coregion_of_another_size(self):
        with pytest.raises(ValueError, match=r"coregion must have shape \(2, 2\)"):
            objective_of(lambda: (sg.likelihoods.Selection(0.5), np.eye(3)), X, [0.1, NAN, 0.2])
        with pytest.raises(ValueError, match=r"coregion must have shape \(1, 1\)"):
            objective_of(lambda: (None, pm.math.stack([[pm.HalfNormal("b"), 0.0]])), X, [1, 0, 1])

    def test_limits_without_censored_values(self):
        def make():
            return sg.likelihoods.CensoredGaussian(1.0, upper=pm.Normal("u")), None

        with pytest.raises(ValueError, match="mark values that are censored there by"):
            objective_of(make, X, [0.1, 0.2, -0.3])
