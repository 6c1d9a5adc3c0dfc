"""Hyperparameters under sites: against Gaussian regression, a linear model, and differences."""

import numpy as np
import pymc as pm
import pytest
from oracles import finite_difference
from scipy import special, stats
from scipy.special import expit

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective

lk = sg.likelihoods
RNG = np.random.default_rng(5)
N = 20
X = np.linspace(-2.0, 2.0, N)[:, None]
F = np.sin(2.0 * X[:, 0])
COUNTS = RNG.negative_binomial(3.0, 3.0 / (3.0 + np.exp(F + 1.0)))


def process(**parameters):
    """A SkewGP whose lengthscale and scale are random, with further variables, in a model."""
    with pm.Model() as model:
        ls = pm.InverseGamma("ls", alpha=3, beta=2)
        eta = pm.HalfNormal("eta", sigma=2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=ls))
        made = {name: make(name) for name, make in parameters.items()}
    return model, gp, made


def objective_of(gp, y, likelihood):
    data = TrainingData(gp, X, y, likelihood)
    found = process_objective(data, None, np.random.default_rng(0), None)
    return found.objective, found.origin


def half_normal(name):
    return pm.HalfNormal(name, sigma=2)


def gradients_agree(objective, point, tol):
    value = objective.by_ep(point)
    slopes = finite_difference(lambda x: objective.by_ep(Point(x)).total, point.x, 1e-3)
    np.testing.assert_allclose(value.gradient, slopes, **tol)
    return value


# EP stops at a residual of 1e-4, from where the last one ended: 1e-4 of the value is left.
EP_TOL = {"rtol": 2e-3, "atol": 2e-3}


def test_gaussian_sites_are_regression():
    """The density of pm.Normal as sites is Gaussian regression; all is exact there."""
    y = F + 0.3 * RNG.normal(size=N)
    _, gp, made = process(sigma=half_normal)
    sigma = made["sigma"]
    sites, origin = objective_of(gp, y, lambda eta: pm.Normal.dist(eta, sigma))
    rows, _ = objective_of(gp, y, lk.Gaussian(sigma))
    assert sites.coordinates.labels == rows.coordinates.labels
    for shift in (0.0, -0.7):
        point = Point(origin + shift)
        ours, theirs = sites.by_ep(point), rows.by_ep(point)
        assert ours.total == pytest.approx(theirs.total, abs=1e-6)
        np.testing.assert_allclose(ours.gradient, theirs.gradient, rtol=1e-5, atol=1e-6)
        exact = sites.by_twisting(point, 256, 0)
        # Of Gaussian sites EP is the posterior, and all weights are equal.
        assert exact.total == pytest.approx(theirs.total, abs=1e-6)
        np.testing.assert_allclose(exact.gradient, theirs.gradient, rtol=1e-5, atol=1e-5)


def test_a_distribution_is_its_likelihood():
    _, gp, made = process(alpha=half_normal)
    alpha = made["alpha"]
    own, origin = objective_of(gp, COUNTS, lk.NegativeBinomial(alpha))
    any_pymc, _ = objective_of(
        gp, COUNTS, lambda eta: pm.NegativeBinomial.dist(mu=pm.math.exp(eta), alpha=alpha)
    )
    point = Point(origin + 0.3)
    found = gradients_agree(own, point, EP_TOL)
    other = gradients_agree(any_pymc, point, EP_TOL)
    assert other.total == pytest.approx(found.total, abs=1e-5)
    np.testing.assert_allclose(other.gradient, found.gradient, rtol=1e-4, atol=1e-5)
    ours, theirs = own.by_twisting(point, 512, 1), any_pymc.by_twisting(point, 512, 1)
    assert theirs.total == pytest.approx(ours.total, abs=1e-5)
    np.testing.assert_allclose(theirs.gradient, ours.gradient, rtol=1e-4, atol=1e-5)
    # EP's evidence is off by hundredths, and so are its slopes.
    np.testing.assert_allclose(ours.gradient, found.gradient, atol=0.1)


def test_logistic_regression():
    """Sites under a linear kernel are a logistic regression, its evidence a double integral."""
    y = RNG.binomial(1, expit(1.5 * X[:, 0]))
    with pm.Model():
        s = pm.HalfNormal("s", sigma=2)
        b = pm.Gamma("b", 2, 2)
        gp = sg.SkewGP(cov_func=s**2 * pm.gp.cov.Linear(1, c=0.0) + pm.gp.cov.Constant(b**2))
    objective, origin = objective_of(gp, y, lk.BernoulliLogit())

    def exact(x):
        slope_sd, intercept_sd = np.exp(x)
        w = np.linspace(-8.0, 8.0, 201)
        eta = slope_sd * w[:, None, None] * X[:, 0] + intercept_sd * w[:, None]
        log_p = (-np.logaddexp(0.0, (1.0 - 2.0 * y) * eta)).sum(axis=-1)
        density = np.exp(log_p) * stats.norm.pdf(w)[:, None] * stats.norm.pdf(w)
        return np.log(density.sum()) + 2 * np.log(w[1] - w[0])

    point = Point(origin - 0.2)
    assert objective.coordinates.labels == ["s", "b"]
    estimate = objective.estimate(point, 2048, 1)
    assert abs(estimate.value - exact(point.x)) < 4 * estimate.std_error + 1e-5
    slopes = finite_difference(exact, point.x, 1e-4)
    slopes += finite_difference(
        lambda x: (
            stats.halfnorm(scale=2).logpdf(np.exp(x[0]))
            + stats.gamma(2, scale=0.5).logpdf(np.exp(x[1]))
        ),
        point.x,
        1e-4,
    )
    # 2048 pairs in two dimensions: errors of the gradient of some thousandths.
    found = objective.by_twisting(point, 2048, 0)
    np.testing.assert_allclose(found.gradient, slopes, atol=0.01)


@pytest.mark.parametrize("case", ["cutpoints", "weights", "several kinds", "skewed"])
def test_gradients_of_parameters(case):
    rng = np.random.default_rng(2)
    y = F + 0.2 * rng.standard_t(4, size=N)
    if case == "cutpoints":
        ordered = {"transform": pm.distributions.transforms.ordered}
        _, gp, made = process(
            cuts=lambda name: pm.Normal(
                name, [-0.5, 0.5], 1.0, shape=2, initval=[-0.5, 0.5], **ordered
            )
        )
        data = (np.digitize(y, [-0.4, 0.4]), lk.OrderedLogit(made["cuts"]))
    elif case == "weights":
        _, gp, made = process(alpha=half_normal)
        weights = rng.uniform(0.2, 2.0, N)
        data = (COUNTS, lk.Weighted(lk.NegativeBinomial(made["alpha"]), weights))
    elif case == "skewed":
        with pm.Model():
            ls = pm.InverseGamma("ls", alpha=3, beta=2)
            skew = pm.Normal("skew", 0, 1, shape=1)
            gp = sg.SkewGP(
                cov_func=pm.gp.cov.Matern52(1, ls=ls),
                pseudo_points=[[0.3]],
                phase=[1.0],
                truncation=skew,
            )
        data = (COUNTS, lk.Poisson())
    else:
        _, gp, made = process(sigma=half_normal, alpha=half_normal)
        half = [0, 4, 9, 14, 17]
        kinds = {
            "counts": (X, COUNTS, lk.NegativeBinomial(made["alpha"])),
            "values": (X[half], y[half], lk.Gaussian(made["sigma"])),
            "labels": (X[half], (y[half] > 0).astype(int), lk.BernoulliProbit()),
        }
        data = None
    if data is None:
        found = process_objective(TrainingData(gp, kinds), None, np.random.default_rng(0), None)
        objective, origin = found.objective, found.origin
    else:
        objective, origin = objective_of(gp, *data)
    point = Point(origin + 0.1)
    by_ep = gradients_agree(objective, point, EP_TOL)
    exact = objective.by_twisting(point, 512, 0)
    estimate = objective.estimate(point, 1024, 1)
    assert abs(exact.log_evidence - estimate.value) < 0.02
    assert abs(by_ep.log_evidence - estimate.value) < 0.1
    np.testing.assert_allclose(exact.gradient, by_ep.gradient, atol=0.05)


def test_trials_beside_sites():
    """Rows that stand for several: as the same labels written out, but for the coefficient."""
    half = X[::4]
    successes, trials = np.array([0, 1, 3, 2, 1]), 3
    labels = (np.arange(trials) < successes[:, None]).astype(int).ravel()
    by_kind = []
    for kind in (
        (half, successes, lk.BinomialProbit(trials)),
        (np.repeat(half, trials, axis=0), labels, lk.BernoulliProbit()),
    ):
        _, gp, made = process(alpha=half_normal)
        kinds = [(X, COUNTS, lk.NegativeBinomial(made["alpha"])), kind]
        found = process_objective(TrainingData(gp, kinds), None, np.random.default_rng(0), None)
        by_kind.append((found.objective, Point(found.origin)))
    (merged, point), (apart, _) = by_kind
    coefficient = np.log(special.comb(trials, successes)).sum()
    ours, theirs = merged.by_ep(point), apart.by_ep(point)
    assert ours.total == pytest.approx(theirs.total + coefficient, abs=1e-4)
    np.testing.assert_allclose(ours.gradient, theirs.gradient, **EP_TOL)
    estimates = [objective.estimate(point, 1024, 1) for objective in (merged, apart)]
    gap = estimates[0].value - estimates[1].value - coefficient
    assert abs(gap) < 4 * np.hypot(estimates[0].std_error, estimates[1].std_error)


def test_find_hyperparameters():
    _, gp, made = process(alpha=half_normal)
    alpha = made["alpha"]
    options = {"n_restarts": 0, "random_seed": 1, "progressbar": False, "quiet": True}
    likelihood = lk.NegativeBinomial(alpha)
    fit = sg.find_hyperparameters(gp, X, COUNTS, likelihood=likelihood, **options)
    assert fit.converged
    assert set(fit.point) == {"ls", "eta", "alpha"}
    assert set(fit.std_error) == {"ls", "eta", "alpha"}
    posterior = gp.posterior(X, COUNTS, point=fit.point, likelihood=likelihood, random_seed=3)
    evidence = posterior.log_marginal_likelihood
    error = np.hypot(evidence.std_error, fit.log_marginal_likelihood.std_error)
    assert abs(fit.log_marginal_likelihood.value - evidence.value) < 4 * error
    fast = sg.find_hyperparameters(gp, X, COUNTS, likelihood=likelihood, method="ep", **options)
    # The optimum of EP's evidence is that of the exact one to a small part of its width.
    for name, value in fast.point.items():
        assert abs(value - fit.point[name]) < 0.1 * fit.std_error[name]


def test_part_of_the_data_comes_first():
    """Above some hundred counts a search begins with a part of them."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-2, 2, 460))[:, None]
    y = rng.poisson(np.exp(np.sin(2 * x[:, 0])))
    with pm.Model():
        ls = pm.InverseGamma("ls", alpha=3, beta=2)
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
    fit = sg.find_hyperparameters(
        gp, x, y, likelihood=lk.Poisson(), n_restarts=0, random_seed=0, progressbar=False
    )
    assert fit.runs["method"].values[0] == "ep, part of the data"
    assert fit.converged
    assert 0.3 < fit.point["ls"] < 2.0


def test_what_cannot_be_learnt_is_refused():
    with pm.Model():
        ls = pm.InverseGamma("ls", alpha=3, beta=2)
        weights = pm.Gamma("weights", 2, 2, shape=N)
        n = pm.Poisson("n", 3.0)
        cuts = pm.Normal("cuts", shape=(2, 2))
        gp = sg.SkewGP(cov_func=pm.gp.cov.Matern52(1, ls=ls))
    with pm.Model():
        other = pm.HalfNormal("other")
    options = {"progressbar": False}
    with pytest.raises(ValueError, match="weights of Weighted is a random variable"):
        sg.find_hyperparameters(
            gp, X, COUNTS, likelihood=lk.Weighted(lk.Poisson(), weights), **options
        )
    with pytest.raises(ValueError, match="n of BinomialLogit is a random variable"):
        sg.find_hyperparameters(gp, X, COUNTS, likelihood=lk.BinomialLogit(n), **options)
    with pytest.raises(ValueError, match="whose length is known"):
        sg.find_hyperparameters(gp, X, COUNTS % 2, likelihood=lk.OrderedLogit(cuts), **options)
    with pytest.raises(ValueError, match="the model of the SkewGP does not know"):
        sg.find_hyperparameters(
            gp, X, COUNTS, likelihood=lambda eta: pm.NegativeBinomial.dist(mu=eta**2, alpha=other)
        )
    with pytest.raises(ValueError, match="integers"):
        sg.find_hyperparameters(gp, X, COUNTS - 0.5, likelihood=lk.Poisson(), **options)
