"""Hyperparameters under Vecchia's approximation beside the kernel as it is."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_skewgp as sg
from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp.approximations import Vecchia


def process(m, noise=False):
    with pm.Model():
        ls = pm.LogNormal("ls", -1.0, 0.5, shape=2)
        kernel = pm.HalfNormal("eta", 2.0) ** 2 * pm.gp.cov.Matern32(2, ls=ls)
        if noise:
            kernel = kernel + pm.gp.cov.WhiteNoise(pm.HalfNormal("sd", 0.5))
        approximation = None if m is None else Vecchia(m)
        mean = pm.gp.mean.Constant(0.3)
        return sg.SkewGP(cov_func=kernel, mean_func=mean, approximation=approximation)


def data(n):
    rng = np.random.default_rng(0)
    X = rng.random((n, 2))
    f = np.sin(6.0 * X[:, 0]) + X[:, 1] - 0.5
    return X, f, rng


def by_ep(gp, X, y, likelihood, random=None):
    """The objective of all rows as a function of a vector."""
    found = process_objective(
        TrainingData(gp, X, y, likelihood), None, np.random.default_rng(1), None
    )
    start = Point(found.origin, ())
    objective = found.objective
    if found.rows is not None:
        objective = found.rows.on_all(start).for_differences()
    return found.origin, lambda x: objective.by_ep(start.at(x))


def rates(f, rng):
    return rng.poisson(np.exp(f))


def labels(f, rng):
    return (f + rng.normal(size=f.size) > 0).astype(int)


def duels(f, rng):
    """Three of each item, won by the first."""
    pairs = np.concatenate([rng.permutation(f.size).reshape(-1, 2) for _ in range(3)])
    won = (f[pairs] + 0.3 * rng.normal(size=pairs.shape)).argsort(axis=1)[:, ::-1]
    return np.take_along_axis(pairs, won, axis=1)


@pytest.mark.parametrize(
    ("likelihood", "make", "noise"),
    [
        (sg.likelihoods.BernoulliProbit(), labels, True),
        (sg.likelihoods.Poisson(), rates, False),
        (sg.likelihoods.Gaussian(0.4), lambda f, rng: f + 0.4 * rng.normal(size=f.size), False),
        (sg.likelihoods.Preference(0.3), duels, False),
    ],
    ids=["labels", "counts", "values", "duels"],
)
def test_all_neighbours_are_the_kernel(likelihood, make, noise):
    X, f, rng = data(70)
    X[60:] = X[:10]  # equal inputs are one
    y = make(f, rng)
    x, found = by_ep(process(69, noise), X, y, likelihood)
    _, exact = by_ep(process(None, noise), X, y, likelihood)
    for at in (x, x + [-0.3, 0.2, 0.4, -0.5][: x.size]):
        one, other = found(at), exact(at)
        # The square of EP's residual, 1e-4; the gradient is off by its root.
        assert_allclose(one.log_evidence, other.log_evidence, atol=1e-5)
        assert_allclose(one.gradient, other.gradient, atol=2e-3)


def test_noise_of_items_is_refused():
    """That of the kernel, which duels of an item share: by the rows alone it would be lost."""
    X, f, rng = data(20)
    won, likelihood = duels(f, rng), sg.likelihoods.Preference(0.3)
    with pytest.raises(ApproximationError, match="noise, as by WhiteNoise"):
        sg.find_hyperparameters(process(3, noise=True), X, won, likelihood=likelihood)
    kernel = 1.5 * pm.gp.cov.Matern32(2, ls=[0.3, 0.6]) + pm.gp.cov.WhiteNoise(0.5)
    gp = sg.SkewGP(cov_func=kernel, approximation=Vecchia(3))
    with pytest.raises(ApproximationError, match="noise, as by WhiteNoise"):
        _ = gp.posterior(X, won, likelihood=likelihood).log_marginal_likelihood


def test_gradient_beside_differences():
    """Of few neighbours, and parameters of the likelihood."""
    X, f, rng = data(150)
    y = f + 0.4 * rng.standard_t(4.0, 150)
    gp = process(5)
    with gp.model:
        likelihood = sg.likelihoods.StudentT(nu=4.0, sigma=pm.HalfNormal("sigma", 1.0))
    x, found = by_ep(gp, X, y, likelihood)
    slopes, step = found(x).gradient, 1e-3
    for k in range(x.size):
        moved = step * (np.arange(x.size) == k)
        difference = (found(x + moved).total - found(x - moved).total) / (2.0 * step)
        # EP's residual; where Student's sites are cut its gradient is not quite that of its value.
        assert_allclose(slopes[k], difference, rtol=1e-3, atol=5e-3)


def test_search_and_integral_beside_the_kernel():
    X, f, rng = data(60)
    y = labels(f, rng)
    fits = [sg.find_hyperparameters(process(m), X, y, random_seed=2) for m in (59, None)]
    one, other = (fit.log_marginal_likelihood for fit in fits)
    # Four joint errors: a false alarm in 16,000; searches end within .01 of each other.
    error = np.hypot(one.std_error, other.std_error)
    assert abs(one.value - other.value) < 4.0 * error + 0.01
    for name, value in fits[0].point.items():
        # A flat optimum, known to a tenth of a standard error.
        assert (abs(value - fits[1].point[name]) < 0.1 * fits[1].std_error[name]).all()
    new = np.array([[0.2, 0.2], [0.8, 0.5]])
    kept = [sg.integrate(process(m), X, y, random_seed=3, Xnew=new) for m in (59, None)]
    found = [tree["posterior"].attrs for tree in kept]
    error = np.hypot(*(x["log_evidence_se"] for x in found))
    assert abs(found[0]["log_evidence"] - found[1]["log_evidence"]) < 4.0 * error
    means = [tree["predictions"]["f"].mean(("chain", "draw")) for tree in kept]
    # 32 points of hyperparameters: f's means are a sixth of its deviations apart at most.
    assert (abs(means[0] - means[1]) < 0.2 * kept[1]["predictions"]["f"].std()).all()


def test_parts_of_many_rows():
    """A search in stages, with places of each part's own, ends at an optimum of all rows."""
    rng = np.random.default_rng(4)
    X = rng.random((1500, 1))
    y = (np.sin(12.0 * X[:, 0]) + rng.normal(size=1500) > 0).astype(int)
    with pm.Model():
        ls = pm.LogNormal("ls", -1.0, 0.5)
        gp = sg.SkewGP(cov_func=pm.gp.cov.Matern32(1, ls=ls), approximation=Vecchia(4))
    fit = sg.find_hyperparameters(gp, X, y, random_seed=5)
    assert fit.converged
    _, found = by_ep(gp, X, y, None)
    at = np.array([np.log(fit.point["ls"])])
    # Steps of a third of the standard error lose next to nothing, and in both directions.
    step = fit.std_error["ls"] / fit.point["ls"]
    here, *sides = (found(at + k * step).total for k in (0.0, -1.0, 1.0))
    assert all(0.1 < here - side < 1.5 for side in sides)


def test_what_is_not_learnt():
    X, f, rng = data(30)
    y = labels(f, rng)
    with pm.Model():
        ls = pm.HalfNormal("ls")
        kernel = pm.gp.cov.Matern32(2, ls=ls)
        skew = sg.SkewGP(cov_func=kernel, pseudo_points=[[0.0, 0.0]], approximation=Vecchia(5))
        gp = sg.SkewGP(cov_func=kernel, approximation=Vecchia(5))
    with pytest.raises(ApproximationError, match="Vecchia takes no pseudo-points"):
        sg.find_hyperparameters(skew, X, y)
    with pytest.raises(ApproximationError, match="rows have noise of their own"):
        sg.find_hyperparameters(gp, X, y, likelihood=sg.likelihoods.MultinomialProbit())
