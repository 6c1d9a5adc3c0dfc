"""The objective: exact evidences, gradients against differences, one number by three routes."""

import numpy as np
import pymc as pm
import pytest
from oracles import finite_difference
from scipy import stats

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._learn.optimizers import candidates
from pymc_skewgp._model.graph.collapsed import collapse_model, collapse_process
from pymc_skewgp._model.graph.data import known_of

RNG = np.random.default_rng(3)
N = 25
X = np.sort(RNG.uniform(-3.0, 3.0, N))[:, None]
Y = (np.sin(2 * X[:, 0]) + 0.7 * RNG.normal(size=N) > 0).astype(int)
R = np.array([[-1.0], [1.5]])


def priors(kernel=pm.gp.cov.Matern12):
    ls = pm.InverseGamma("ls", alpha=3, beta=2)
    eta = pm.HalfNormal("eta", sigma=2)
    return eta**2 * kernel(1, ls=ls)


def objective_of(model, gp=None, batches=((X, Y),), start=None):
    """The objective of a model, or of a SkewGP in it at the data, and the vector it starts from."""
    if gp is None:
        return compile_objective(model, collapse_model(model), start=start)
    inputs, rows = known_of(X, Y, None).rows()
    collapsed = collapse_process(model, gp, [rows])
    arrays = [known_of(x, y, None).arrays for x, y in batches]
    return compile_objective(model, collapsed, inputs, arrays, start)


def process(start=None, **arguments):
    """The objective of a SkewGP with hyperpriors, and the vector it starts from."""
    with pm.Model() as model:
        gp = sg.SkewGP(cov_func=priors(), **arguments)
    return objective_of(model, gp, start=start)


@pytest.fixture(scope="module")
def plain():
    """Of a GP: the objective, and the vector it starts from."""
    return process()


def at(ls, eta):
    return Point(np.log([ls, eta]))


@pytest.fixture(scope="module")
def all_random():
    with pm.Model() as model:
        kernel = priors(pm.gp.cov.Matern52)  # smooth: pseudo-points move past data
        r = pm.Normal("r", 0.0, 2.0, shape=(2, 1))
        t = pm.Normal("t", 0.0, 1.0, shape=2)
        positive = pm.Bernoulli("positive", 0.5, shape=2)
        level = pm.Normal("level", 0.0, 1.0)
        gp = sg.SkewGP(
            mean_func=pm.gp.mean.Constant(level),
            cov_func=kernel,
            pseudo_points=r,
            phase=2 * positive - 1,
            truncation=t,
        )
    return objective_of(model, gp, [(X[:12], Y[:12]), (X[12:], Y[12:])], {"r": R})[0]


# EP stops at 1e-4 of a standard deviation: gradients are off by about that times the number of
# labels, 1e-3; the differences' own error is less. The sampler's sites are constant in the gradient
# and move in the differences: both are unbiased but for quasi-Monte Carlo errors of some 1e-2.
WAYS = {
    "ep": (lambda objective, point: objective.by_ep(point), 0.02, 5e-3),
    "twisted": (lambda objective, point: objective.by_twisting(point, 2048, 0), 0.05, 0.05),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pattern", [(0, 1), (1, 1)])
def test_gradient(all_random, way, pattern):
    evaluate, step, atol = WAYS[way]
    x = np.array([0.1, 0.4, -1.1, 1.4, 0.3, -0.2, 0.25])
    numeric = finite_difference(lambda x: evaluate(all_random, Point(x, pattern)).total, x, step)
    found = evaluate(all_random, Point(x, pattern)).gradient
    np.testing.assert_allclose(found, numeric, atol=atol)


def test_three_routes_to_one_objective():
    """A SkewGP with data, its marginal likelihood in a model, its prior under probit labels."""
    signs = {"pseudo_points": R, "phase": [1.0, -1.0], "truncation": [0.2, 0.0]}
    first, _ = process(**signs)
    with pm.Model() as marginal:
        sg.SkewGP(cov_func=priors(), **signs).marginal_likelihood("y", X, Y)
    with pm.Model() as latent:
        f = sg.SkewGP(cov_func=priors(), **signs).prior("f", X)
        # Two data sets that see f through affine predictors; together they are all labels.
        sg.BernoulliProbit("left", f[:10], observed=Y[:10])
        pm.Bernoulli("right", p=pm.math.invprobit(f[10:]), observed=Y[10:])
        pm.Deterministic("largest", f.max())
    values = []
    for objective in (first, objective_of(marginal)[0], objective_of(latent)[0]):
        assert objective.coordinates.names == ["ls_log__", "eta_log__"]
        values.append(objective.by_ep(at(0.8, 1.4)))
        assert set(objective.named(at(0.8, 1.4))) == {"ls", "eta"}  # nothing of f is left
    for other in values[1:]:
        # Models add a jitter of 1e-6 to the variances: less than 1e-5 nats a label.
        assert other.total == pytest.approx(values[0].total, abs=2e-4)
        np.testing.assert_allclose(other.gradient, values[0].gradient, atol=2e-3)


def test_potentials_and_other_observations_count(plain):
    with pm.Model() as model:
        gp = sg.SkewGP(cov_func=priors())
        gp.marginal_likelihood("y", X, Y)
        pm.Normal("seen", model["ls"], 0.5, observed=1.2)
        pm.Potential("less", -3.0 * model["eta"])
    objective, _ = objective_of(model)
    more = stats.norm(0.8, 0.5).logpdf(1.2) - 3.0 * 1.4
    gained = objective.log_prior(at(0.8, 1.4)) - plain[0].log_prior(at(0.8, 1.4))
    assert gained == pytest.approx(more, rel=1e-8)


def test_a_potential_of_the_process_counts_and_others_do_not():
    with pm.Model() as model:
        kernel = priors()
        other = pm.Normal("other")
        pm.Potential("own", -1.0 * model["ls"])
        pm.Potential("foreign", model["ls"] * other)
        gp = sg.SkewGP(cov_func=kernel)
    collapsed = collapse_process(model, gp, [known_of(X, Y, None).rows()[1]])
    assert [v.name for v in collapsed.rest] == ["ls", "eta", "own"]


def test_starts_are_spread_by_the_priors(plain):
    objective, origin = plain
    rng = np.random.default_rng(0)
    starts = np.array(candidates(objective.coordinates, origin, 256, rng))
    # Quantiles of 256 draws of InverseGamma(3, 2), all within a factor of 1000 of the start;
    # 5 standard errors of a median: 5 * .5 / 16 in probability.
    at_median = stats.invgamma(3, scale=2).cdf(np.median(np.exp(starts[:, 0])))
    assert abs(at_median - 0.5) < 0.16


def test_too_many_phases():
    with pm.Model() as model:
        points = np.arange(4.0)[:, None]
        phase = 2 * pm.Bernoulli("positive", 0.5, shape=4) - 1
        gp = sg.SkewGP(cov_func=priors(), pseudo_points=points, phase=phase)
        gp.marginal_likelihood("y", X, Y)
    with pytest.raises(ValueError, match="positive together have 4 binary entries: at most 3"):
        objective_of(model)[0].coordinates.patterns(3)


def test_models_without_labels():
    with pm.Model() as model:
        sg.SkewGP(cov_func=priors()).prior("f", X)
    with pytest.raises(ValueError, match="f has no observations"):
        collapse_model(model)
    with pytest.raises(ValueError, match="the model has no marginal_likelihood"):
        collapse_model(pm.Model())
