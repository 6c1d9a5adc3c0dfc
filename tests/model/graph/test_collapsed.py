"""Models whose latent functions can and cannot be integrated out."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import graph_inputs
from scipy import stats
from site_oracles import site_posterior, smooth_cov

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._model.graph.collapsed import collapse_model

X = np.linspace(-2.0, 2.0, 12)[:, None]
Y = (X[:, 0] > 0.3).astype(int)


def learn(*args, **kwargs):
    options = {
        "progressbar": False,
        "quiet": True,
        "n_restarts": 0,
        "method": "ep",
        "random_seed": 1,
    }
    return sg.find_hyperparameters(*args, **{**options, **kwargs})


def process(ls):
    return sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls))


def test_a_product_of_two_functions_is_refused():
    """Each given the other they would be learnt, with labels that count twice."""
    with pm.Model() as model:
        first = process(pm.Gamma("a", 2, 1)).prior("f1", X)
        second = process(pm.Gamma("b", 2, 1)).prior("f2", X)
        sg.BernoulliProbit("y", first * second, observed=Y)
    with pytest.raises(ValueError, match="data depend on f1 and f2 together"):
        collapse_model(model)


def test_choices_and_classes():
    """The graph of their rows has the shape of f in it, and no more of f than that."""
    with pm.Model() as model:
        f, g = (process(pm.Gamma(f"ls_{name}", 2, 1)).prior(name, X) for name in "fg")
        sg.ChoiceProbit("y", f[np.array([[0, 3, 5], [7, 2, 1]])], observed=[1, 0])
        sg.MultinomialProbit("z", pt.stack([f, g], axis=1), observed=Y)
    (evidence,) = collapse_model(model).evidences
    free = {model.rvs_to_values[model[name]] for name in ("ls_f", "ls_g")}
    assert set(graph_inputs(list(evidence))).intersection(model.value_vars) == free


def test_two_functions_with_labels_of_their_own():
    with pm.Model() as model:
        ls = pm.Gamma("ls", 2, 1)
        process(ls).marginal_likelihood("y1", X, Y)
        sg.BernoulliProbit("y2", process(ls).prior("f2", X[::2]), observed=Y[::2])
    assert len(collapse_model(model).evidences) == 2
    with pm.Model():
        gp = process(pm.Gamma("ls", 2, 1))
    fit = learn(model)
    separate = [
        gp.posterior(x, y, point=fit.point).log_marginal_likelihood.value
        for x, y in ((X, Y), (X[::2], Y[::2]))
    ]
    # Quasi-random errors of two small problems, and a jitter of 1e-6.
    assert fit.log_marginal_likelihood.value == pytest.approx(sum(separate), abs=0.01)


def test_labels_that_data_bring():
    with pm.Model() as model:
        y = pm.Data("labels", Y)
        process(pm.Gamma("ls", 2, 1)).marginal_likelihood("y", X, y)
    learn(model)
    with model:
        pm.set_data({"labels": 2 * Y - 1})
    with pytest.raises(ValueError, match="the observations of y must be 0 or 1"):
        learn(model)


def test_nested_models_are_one():
    with pm.Model() as root:
        ls = pm.Gamma("ls", 2, 1)
        with pm.Model(name="inner") as inner:
            eta = pm.HalfNormal("eta", 2)
            gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
            gp.marginal_likelihood("y", X, Y)
    fits = [learn(gp, X, Y), learn(root), learn(inner)]
    for fit in fits:
        assert set(fit.point) == {"ls", "inner::eta"}
        assert fit.point["ls"] == pytest.approx(fits[0].point["ls"], rel=0.05)


def test_variables_that_the_model_does_not_know():
    with pm.Model():
        eta = pm.HalfNormal("eta", 2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=pm.Gamma.dist(2, 1)))
    with pytest.raises(ValueError, match="the model does not know the random variable"):
        learn(gp, X, Y)


def test_phases_that_are_none():
    with pm.Model():
        positive = pm.Bernoulli("positive", 0.5, shape=1)
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[[0.0]], phase=positive)
    with pytest.raises(ValueError, match="a phase is neither \\+1 nor -1"):
        learn(gp, X, Y)


def test_pseudo_points_that_start_at_one_place():
    with pm.Model():
        r = pm.Normal("r", 0.0, 2.0, shape=(2, 1))
        gp = sg.SkewGP(
            cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=r, phase=[-1.0, 1.0]
        )
    fit = learn(gp, X, Y)
    assert np.ptp(fit.point["r"]) > 1e-3


def test_priors_that_agree_by_accident_are_distinguished():
    """At (-1, 1) these two priors of the pseudo-points have equal densities either way."""
    with pm.Model():
        r = pm.Normal("r", 0.0, [[0.5], [3.0]], shape=(2, 1))
        positive = pm.Bernoulli("positive", 0.5, shape=2)
        gp = sg.SkewGP(
            cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=r, phase=2 * positive - 1
        )
    fit = learn(gp, X, Y, start={"r": [[-1.0], [1.0]]})
    assert set(fit.runs["pattern"].to_numpy()) == {"00", "01", "10", "11"}


def test_a_function_without_variance_somewhere():
    """A linear kernel at 0: that label is a coin flip, the others are not."""
    with pm.Model():
        eta = pm.HalfNormal("eta", 2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.Linear(1, c=0.0))
    x = np.append(X, [[0.0]], axis=0)
    fit = learn(gp, x, np.append(Y, 1))
    without = learn(gp, X, Y)
    lost = fit.log_marginal_likelihood.value - without.log_marginal_likelihood.value
    # EP's tolerance and quasi-random errors: of each evidence .003, at a fixed seed.
    assert lost == pytest.approx(np.log(0.5), abs=0.01)
    assert fit.point["eta"] == pytest.approx(without.point["eta"], rel=0.02)


class TestStart:
    def gp(self):
        with pm.Model():
            ls = pm.Gamma("ls", 2, 1, shape=2)
            pm.Deterministic("short", ls < 1.0)
            return sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(2, ls=ls))

    def test_from_another_fit(self):
        x = np.column_stack([X, X[::-1] ** 2])
        fit = learn(self.gp(), x, Y)
        assert fit.point["short"].dtype == bool
        assert "short" not in fit.std_error
        again = learn(self.gp(), x, Y, start=fit.point)
        assert again.path.sizes["evaluation"] <= fit.path.sizes["evaluation"]

    def test_shapes(self):
        x = np.column_stack([X, X])
        learn(self.gp(), x, Y, start={"ls": 0.5})  # of both
        with pytest.raises(ValueError, match=r"start\['ls'\] must have shape \(2,\), got \(3,\)"):
            learn(self.gp(), x, Y, start={"ls": np.ones(3)})

    @pytest.mark.filterwarnings("ignore:invalid value encountered in log:RuntimeWarning")
    def test_outside_of_the_support(self):
        with pytest.raises(ValueError, match="outside of the support of ls"):
            learn(self.gp(), np.column_stack([X, X]), Y, start={"ls": -1.0})


def test_phases_alone_and_many_labels():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(470, 1))
    y = (x[:, 0] + rng.normal(size=470) > 0).astype(int)
    with pm.Model():
        positive = pm.Bernoulli("positive", 0.5, shape=1)
        gp = sg.SkewGP(
            cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=2.0),
            pseudo_points=[[1.5]],
            phase=2 * positive - 1,
        )
    assert learn(gp, x, y).point["positive"] == [1]


# Models whose observations are sites, functions integrated out: against quadrature, and rows.


XS = np.array([[-0.4], [0.5]])


def known_process(ls):
    return sg.SkewGP(cov_func=1.3 * pm.gp.cov.ExpQuad(1, ls=ls))


def objective_of(model):
    collapsed = collapse_model(model)
    return compile_objective(model, collapsed), [x.name for x in collapsed.rest]


def agrees(model, exact, rest):
    """Evidence and gradient at the initial point, against a number and differences."""
    (objective, origin), names = objective_of(model)
    assert names == rest
    point = Point(origin)
    estimate = objective.estimate(point, 2048, 1)
    assert abs(estimate.value - exact) < 4 * estimate.std_error + 1e-6
    assert estimate.std_error < 0.005
    assert abs(objective.by_ep(point).log_evidence - exact) < 0.05  # EP's own error
    return objective, point


def test_counts_with_an_offset_and_group_effects():
    """Group effects and an intercept join f in what is integrated out."""
    exposure, y = np.array([2.0, 0.5]), np.array([5, 1])
    with pm.Model() as model:
        ls = pm.HalfNormal("ls", initval=0.8)
        tau = pm.HalfNormal("tau", initval=0.6)
        f = known_process(ls).prior("f", XS)
        group = pm.Normal("group", 0.0, tau, shape=2)
        level = pm.Normal("level", 0.5, 2.0)
        pm.Poisson("y", exposure * pm.math.exp(level + f + group), observed=y)
    # The sum of all three is Gaussian.
    cov = smooth_cov(XS) + 0.6**2 * np.eye(2) + 4.0

    def log_likelihood(eta):
        return stats.poisson.logpmf(y[:, None], exposure[:, None] * np.exp(eta)).sum(axis=0)

    exact = site_posterior(np.full(2, 0.5), cov, log_likelihood, nodes=301).log_evidence
    agrees(model, exact, ["ls", "tau"])


def test_rows_and_sites_of_one_function():
    """A value, a label and a count; noise that is a hyperparameter."""
    x = np.array([[-0.4], [0.1], [0.5]])
    with pm.Model() as model:
        f = known_process(0.8).prior("f", x)
        sigma = pm.HalfNormal("sigma", initval=0.4)
        pm.Normal("value", 2.0 * f[0], sigma, observed=0.7)
        pm.Bernoulli("label", p=pm.math.invprobit(f[1]), observed=1)
        pm.NegativeBinomial("count", mu=pm.math.exp(f[2:]), alpha=2.0, observed=[3])

    def log_likelihood(f):
        p = 2.0 / (2.0 + np.exp(f[2]))
        return (
            stats.norm.logpdf(0.7, 2.0 * f[0], 0.4)
            + stats.norm.logcdf(f[1])
            + stats.nbinom.logpmf(3, 2.0, p)
        )

    exact = site_posterior(np.zeros(3), smooth_cov(x), log_likelihood, nodes=61).log_evidence
    agrees(model, exact, ["sigma"])


def test_student_noise_is_sites_when_learnt():
    """The step knows it as a mixture of rows, which has no evidence in closed form."""
    y = np.array([0.3, 1.9])
    with pm.Model() as model:
        nu = pm.Gamma("nu", 2, 0.1, initval=4.0)
        f = known_process(0.8).prior("f", XS)
        pm.StudentT("y", nu=nu, mu=f, sigma=0.5, observed=y)

    def log_likelihood(f):
        return stats.t.logpdf(y[:, None], 4.0, f, 0.5).sum(axis=0)

    exact = site_posterior(np.zeros(2), smooth_cov(XS), log_likelihood, nodes=301).log_evidence
    objective, point = agrees(model, exact, ["nu"])
    found = objective.by_twisting(point, 1024, 0)

    def other(nu):
        def log_likelihood(f):
            return stats.t.logpdf(y[:, None], nu, f, 0.5).sum(axis=0)

        found = site_posterior(np.zeros(2), smooth_cov(XS), log_likelihood, nodes=301).log_evidence
        return found + stats.gamma(2, scale=10).logpdf(nu)

    slope = (other(4.0 * np.exp(1e-4)) - other(4.0 * np.exp(-1e-4))) / 2e-4
    # 1024 pairs: a few thousandths.
    np.testing.assert_allclose(found.gradient, slope, atol=0.01)


def test_reasons():
    with pm.Model() as coupled:
        f = known_process(0.8).prior("f", XS)
        pm.Poisson("y", pm.math.exp(f - pm.math.max(f)), observed=[1, 2])
    with pytest.raises(ValueError, match=r"Max|max"):
        collapse_model(coupled)
    with pm.Model() as potential:
        f = known_process(0.8).prior("f", XS)
        pm.Poisson("y", pm.math.exp(f), observed=[1, 2])
        pm.Potential("p", -(f**2).sum())
    with pytest.raises(ValueError, match=r"p, which depends on f, is not observed"):
        collapse_model(potential)
    with pm.Model() as product:
        f = known_process(0.8).prior("f", XS)
        g = known_process(2.0).prior("g", XS)
        pm.Poisson("y", pm.math.exp(f * g), observed=[1, 2])
    with pytest.raises(ValueError, match="neither can be integrated out without the other"):
        collapse_model(product)
