"""Coefficients of a mean under Gaussian priors are integrated out with f, in closed form."""

import pickle

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import optimize, stats

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging.problem import integration_problem
from pymc_skewgp._learn.problem import TrainingData, process_objective

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
    return integration_problem(data, None, None).objective.coordinates.labels


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


WAVE = Y + np.sin(2.0 * X)  # of which a process is needed, too


def learnt(spelling, scale=1.0):
    """A line with Gaussian coefficients and a process; its model, SkewGP and likelihood."""
    with pm.Model() as model:
        b = pm.MvNormal("b", [1.0, 0.3], [[4.0, 0.5], [0.5, 1.0]])
        eta = pm.HalfNormal("eta", 2.0)
        mean = pm.gp.mean.Linear(coeffs=b[1:], intercept=b[0])
        kernel = eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0)
        gp = sg.SkewGP(cov_func=kernel, mean_func=mean)
        gaussian = sg.likelihoods.Gaussian(NOISE)
        if spelling == "effects":
            f = sg.SkewGP(cov_func=kernel).prior("f", X[:, None], jitter=0.0)
            pm.Normal("y", b[0] + b[1] * X + f, NOISE, observed=WAVE)
        if spelling == "marginal":
            gp.marginal_likelihood("y", X[:, None], WAVE, likelihood=gaussian, jitter=0.0)
    return model, gp, gaussian


# The prior of a line, b = (intercept, slope), and the covariance of values of line and process.
LINE_MEAN, LINE_COV = np.array([1.0, 0.3]), np.array([[4.0, 0.5], [0.5, 1.0]])


def line(a):
    return np.column_stack([np.ones(a.size), a])


def line_cov(a, b, eta):
    return eta**2 * rbf(a, b) + line(a) @ LINE_COV @ line(b).T


def log_evidence(eta):
    seen = line_cov(X, X, eta) + NOISE**2 * np.eye(9)
    return stats.multivariate_normal(line(X) @ LINE_MEAN, seen).logpdf(WAVE)


def best_eta():
    def loss(log_eta):
        return -log_evidence(np.exp(log_eta)) - stats.halfnorm(scale=2.0).logpdf(np.exp(log_eta))

    return np.exp(optimize.minimize_scalar(loss, (-1.0, 0.0), tol=1e-10).x)


@pytest.mark.parametrize("spelling", ["process", "effects", "marginal"])
def test_the_maximum_is_that_of_the_closed_form(spelling):
    model, gp, gaussian = learnt(spelling)
    data = (X[:, None], WAVE) if spelling == "process" else ()
    own = {"likelihood": gaussian} if data else {}
    fit = sg.find_hyperparameters(
        gp if data else model, *data, random_seed=0, progressbar=False, **own
    )
    assert set(fit.point) == {"eta"}
    # Newton's steps end where the slope of the log density is below some 1e-3.
    assert fit.point["eta"] == pytest.approx(best_eta(), rel=1e-2)
    # Closed forms at one point, two Cholesky factorisations.
    evidence = fit.log_marginal_likelihood
    assert evidence.value == pytest.approx(log_evidence(float(fit.point["eta"])), abs=1e-8)
    assert evidence.std_error == 0.0


ETA = 0.8


@pytest.fixture(scope="module")
def posterior():
    _, gp, gaussian = learnt("process")
    return gp.posterior(X[:, None], WAVE, likelihood=gaussian, point={"eta": ETA})


class Line(pm.gp.cov.Covariance):
    def full(self, X, Xs=None):
        left, right = (
            pt.concatenate([pt.ones_like(x), x], axis=1) for x in (X, X if Xs is None else Xs)
        )
        return left @ LINE_COV @ right.T

    def diag(self, X):
        return pt.diag(self.full(X))


def with_line(eta):
    """The process of `learnt` with its line as a part of the kernel."""
    mean = pm.gp.mean.Linear(coeffs=[0.3], intercept=1.0)
    return sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0) + Line(1), mean_func=mean)


COUNTS = np.round(np.exp(0.3 * WAVE)).astype(int)
LIKELIHOODS = {
    "BernoulliProbit": ((WAVE > 1.0).astype(int), sg.likelihoods.BernoulliProbit()),
    "Preference": (np.c_[:8, 1:9], sg.likelihoods.Preference()),
    "function": (COUNTS, lambda eta: pm.Poisson.dist(pm.math.exp(eta))),
}


class TestPosteriorWithoutCoefficients:
    def test_it_is_that_of_the_closed_form(self, posterior):
        assert posterior.log_marginal_likelihood.value == pytest.approx(log_evidence(ETA), abs=1e-8)
        far = np.array([0.5, 8.0])  # where the line is all there is
        new = posterior.predict(far[:, None], draws=0)["predictions_summary"]
        seen, cross = line_cov(X, X, ETA) + NOISE**2 * np.eye(9), line_cov(far, X, ETA)
        gain = np.linalg.solve(seen, cross.T).T
        mean = line(far) @ LINE_MEAN + gain @ (WAVE - line(X) @ LINE_MEAN)
        cov = line_cov(far, far, ETA) - gain @ cross.T
        np.testing.assert_allclose(new["f_mean"], mean, atol=1e-8)
        np.testing.assert_allclose(new["f_sd"], np.sqrt(cov.diagonal()), atol=1e-8)

    def test_values_that_are_given_stay(self):
        """With b known it is a regression about the line."""
        _, gp, gaussian = learnt("process")
        point = {"eta": ETA, "b": [0.5, 0.7]}
        found = gp.posterior(X[:, None], WAVE, likelihood=gaussian, point=point)
        seen = ETA**2 * rbf(X, X) + NOISE**2 * np.eye(9)
        right = stats.multivariate_normal(line(X) @ [0.5, 0.7], seen).logpdf(WAVE)
        assert found.log_marginal_likelihood.value == pytest.approx(right, abs=1e-8)

    def test_derivatives_given_values(self):
        """P(f'(.5) > 0) given Y: f' is jointly normal with them, with b_1 and -dk."""
        _, gp, gaussian = learnt("process")
        steep = sg.likelihoods.Constraint.increasing(0)
        at = np.array([0.5])
        both = [(X[:, None], WAVE, gaussian), (at[:, None], None, steep)]
        found = gp.posterior(both, point={"eta": ETA})
        seen = line_cov(X, X, ETA) + NOISE**2 * np.eye(9)
        cross = -(ETA**2) * (at[:, None] - X) * rbf(at, X) + LINE_COV[1] @ line(X).T
        gain = np.linalg.solve(seen, cross[0])
        mean = LINE_MEAN[1] + gain @ (WAVE - line(X) @ LINE_MEAN)
        variance = ETA**2 + LINE_COV[1, 1] - gain @ cross[0]
        right = log_evidence(ETA) + stats.norm.logcdf(mean / np.sqrt(variance))
        # One row: exact but for the nugget.
        assert found.log_marginal_likelihood.value == pytest.approx(right, abs=1e-5)

    @pytest.mark.parametrize("name", LIKELIHOODS)
    def test_any_likelihood(self, name):
        """The same as the line in the kernel, and so are copies by pickle."""
        y, likelihood = LIKELIHOODS[name]
        _, gp, _ = learnt("process")
        found = gp.posterior(X[:, None], y, likelihood=likelihood, point={"eta": ETA})
        right = with_line(ETA).posterior(X[:, None], y, likelihood=likelihood)
        far = [
            [
                p.predict([[8.0]], draws=0)["predictions_summary"][x].item()
                for x in ("f_mean", "f_sd")
            ]
            for p in (found, right, pickle.loads(pickle.dumps(found)))
        ]
        # The same draws of the same matrices, but for round-off.
        evidence = found.log_marginal_likelihood.value
        assert evidence == pytest.approx(right.log_marginal_likelihood.value, abs=1e-7)
        assert far[0] == pytest.approx(far[1], rel=1e-6)
        assert far[0] == far[2]

    @pytest.mark.parametrize(
        ("options", "y", "likelihood"),
        [
            ({"pseudo_points": [[PSEUDO]]}, WAVE, sg.likelihoods.Gaussian(NOISE)),
            ({}, np.arange(9) % 3, sg.likelihoods.MultinomialProbit()),  # several functions
        ],
    )
    def test_where_they_stay_hyperparameters(self, options, y, likelihood):
        with pm.Model():
            b = pm.Normal("b", 0.0, 1.0)
            gp = sg.SkewGP(
                mean_func=pm.gp.mean.Constant(b), cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), **options
            )
        with pytest.raises(ValueError, match="the mean depends on b: give their values in point"):
            gp.posterior(X[:, None], y, likelihood=likelihood)
        data = TrainingData(gp, X[:, None], y, likelihood)
        found = process_objective(data, None, np.random.default_rng(0), None)
        assert found.objective.coordinates.labels == ["b"]
