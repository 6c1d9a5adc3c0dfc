"""Coefficients of a mean under Gaussian priors are integrated out with f, in closed form."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging.problem import integration_problem
from pymc_skewgp._learn.problem import TrainingData

X = np.linspace(-2.0, 2.0, 9)
Y = 1.0 + 0.8 * X + 0.5 * np.sin(3.0 * X)
NEW, NOISE, PSEUDO = np.array([0.5, 3.0]), 0.3, 0.2
# In the result: f at X and at NEW, the level above the intercept, the intercept, the slope.
H = np.column_stack([np.zeros(11), np.ones(11), np.append(X, NEW)])
# level ~ N(0, .5^2), intercept ~ N(level, 2^2), slope ~ N(.3, 1).
PRIOR_MEAN = np.array([0.0, 0.0, 0.3])
PRIOR_COV = np.array([[0.25, 0.25, 0.0], [0.25, 4.25, 0.0], [0.0, 0.0, 1.0]])


def rbf(a, b):
    return np.exp(-0.5 * (a[:, None] - b) ** 2)


def process(**options):
    """A SkewGP without hyperparameters but for the coefficients of its mean."""
    with pm.Model() as model:
        # Declared before and after what they depend on; a matrix of one column, and a scalar.
        level = pm.Normal("level", 0.0, 0.5)
        slope = pm.Normal("slope", 0.3, 1.0, shape=1)
        intercept = pm.Normal("intercept", level, 2.0)
        pm.Deterministic("doubled", 2.0 * slope)
        mean = pm.gp.mean.Linear(coeffs=slope, intercept=intercept)
        gp = sg.SkewGP(mean_func=mean, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), **options)
    return model, gp


def joint():
    """Mean and covariance of f at X and NEW, and of the coefficients."""
    points = np.append(X, NEW)
    both = np.vstack([H, np.eye(3)])
    cov = both @ PRIOR_COV @ both.T
    cov[:11, :11] += rbf(points, points)
    return both @ PRIOR_MEAN, cov


def given_values():
    """Log evidence of Y, and the moments of all given it."""
    mean, cov = joint()
    seen = cov[:9, :9] + NOISE**2 * np.eye(9)
    gain = np.linalg.solve(seen, cov[:9]).T
    log_evidence = stats.multivariate_normal(mean[:9], seen).logpdf(Y)
    return log_evidence, mean + gain @ (Y - mean[:9]), cov - gain @ cov[:9]


def check(posterior, new):
    """Moments of 2000 independent draws: five standard errors, a false alarm in 100,000."""
    _, mean, cov = given_values()
    sd = np.sqrt(cov.diagonal())
    drawn = [new[..., 0], new[..., 1]] + [
        posterior[name].to_numpy().reshape(new.shape[:2])
        for name in ("level", "intercept", "slope")
    ]
    for place, x in zip(range(9, 14), drawn, strict=True):
        assert x.mean() == pytest.approx(mean[place], abs=5 * sd[place] / np.sqrt(2000))
        assert x.std() == pytest.approx(sd[place], rel=5 / np.sqrt(2 * 2000))
    wanted = cov[11, 13] / sd[11] / sd[13], cov[12, 13] / sd[12] / sd[13]
    for i, correlation in zip((2, 3), wanted, strict=True):
        found = np.corrcoef(drawn[i].ravel(), drawn[4].ravel())[0, 1]
        assert found == pytest.approx(correlation, abs=5 / np.sqrt(2000))
    np.testing.assert_array_equal(posterior["doubled"], 2.0 * posterior["slope"])


QUIET = {"progressbar": False, "draws": 500, "random_seed": 1}


def test_of_a_process():
    _, gp = process()
    gaussian = sg.likelihoods.Gaussian(NOISE)
    dt = sg.integrate(gp, X[:, None], Y, likelihood=gaussian, Xnew=NEW[:, None], **QUIET)
    attrs = dt["posterior"].attrs
    # No hyperparameter is left: the evidence is exact.
    assert attrs["log_evidence"] == pytest.approx(given_values()[0], abs=1e-6)
    assert attrs["log_evidence_se"] < 1e-6
    check(dt["posterior"], dt["predictions"]["f"].to_numpy())


def test_of_a_prior_in_a_model():
    model, gp = process()
    with model:
        f = gp.prior("f", np.append(X, NEW)[:, None], jitter=1e-9)
        pm.Normal("y", f[:9], NOISE, observed=Y)
    dt = sg.integrate(model, **QUIET)
    assert dt["posterior"].attrs["log_evidence"] == pytest.approx(given_values()[0], abs=1e-5)
    check(dt["posterior"], dt["posterior"]["f"].to_numpy()[..., 9:])


def test_signs_are_those_of_f_less_its_mean():
    """Given Y, f less its mean at a pseudo-point is normal: P(positive | Y) over its prior half."""
    _, gp = process(pseudo_points=[[PSEUDO]])
    _, cov = joint()
    seen = cov[:9, :9] + NOISE**2 * np.eye(9)
    k = rbf(np.array([PSEUDO]), X)[0]
    gain = np.linalg.solve(seen, k)
    mean = gain @ (Y - joint()[0][:9])
    right = given_values()[0] + stats.norm.logcdf(mean / np.sqrt(1.0 - gain @ k)) - np.log(0.5)
    dt = sg.integrate(gp, X[:, None], Y, likelihood=sg.likelihoods.Gaussian(NOISE), **QUIET)
    # One truncated variable: exact but for the jitter.
    assert dt["posterior"].attrs["log_evidence"] == pytest.approx(right, abs=1e-5)


def coordinates(gp, likelihood):
    data = TrainingData(gp, X[:, None], Y, likelihood, None)
    return integration_problem(data, None, None, 3).objective.coordinates.labels


@pytest.mark.parametrize(
    ("scale", "noise", "left"),
    [
        (lambda b: 1.0, lambda b: NOISE, []),
        (lambda b: pm.math.exp(b), lambda b: NOISE, ["b"]),  # in the kernel too
        (lambda b: 1.0, lambda b: pm.HalfNormal("s", pm.math.exp(b)), ["b", "s"]),  # above a prior
        (lambda b: 1.0, lambda b: pm.math.exp(b), ["b"]),  # in the noise too
    ],
)
def test_what_enters_elsewhere_stays_a_hyperparameter(scale, noise, left):
    with pm.Model():
        b = pm.Normal("b", 0.0, 1.0)
        kernel = scale(b) * pm.gp.cov.ExpQuad(1, ls=1.0)
        gp = sg.SkewGP(mean_func=pm.gp.mean.Constant(b), cov_func=kernel)
        likelihood = sg.likelihoods.Gaussian(noise(b))
    assert coordinates(gp, likelihood) == left


def test_products_of_coefficients_stay():
    """Affine in either, not in both: one of them is integrated out given the other."""
    with pm.Model():
        a, b = pm.Normal("a"), pm.Normal("b")
        mean = pm.gp.mean.Linear(coeffs=pm.math.stack([a * b]), intercept=a)
        gp = sg.SkewGP(mean_func=mean, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    assert len(coordinates(gp, sg.likelihoods.Gaussian(NOISE))) == 1
