"""Log evidences between points where they are known, and what is begun between them."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_skewgp as sg
from pymc_skewgp._gaussian.weights import uniform_points
from pymc_skewgp._learn.averaging.interpolation import InterpolatedTarget
from pymc_skewgp._learn.averaging.points import run_tasks
from pymc_skewgp._learn.averaging.problem import integration_problem
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.factor_evidence import factor_start
from pymc_skewgp._learn.problem import TrainingData


def interpolated(evidence, n_points, d=2, *, by_few=False):
    """Values at points of a t distribution, errors, depths, and how many were evaluated."""
    count = [0]

    def prior(x, _=()):
        return -0.5 * np.square(x / 3.0).sum(axis=1)

    def target(points):
        x = np.array([point.x for point in points])
        count[0] += len(x)
        found = evidence(x)
        return found + prior(x), found

    rng = np.random.default_rng(3)
    given = InterpolatedTarget(target, prior, (), rng, by_few=by_few)
    for size in (64, n_points):
        uniforms = uniform_points(d, size // 16, 16, rng, together=True)
        x = stats.t(6).ppf(uniforms).T
        total, found = given([Point(row) for row in x])
    off, true = found - evidence(x), evidence(x) + prior(x)
    np.testing.assert_allclose(total, found + prior(x), atol=1e-9)
    return off, true.max() - true, count[0], given.share


def skewed(x):
    """Constant for small scales, as an evidence is, and skew."""
    return (
        -1.5 * np.logaddexp(0.0, 2.0 * x[:, 0])
        + 0.5 * x[:, 0]
        - np.exp(0.7 * x[:, 1] - 0.3)
        + x[:, 1]
    )


@pytest.mark.parametrize(("by_few", "most"), [(False, 410), (True, 200)])
def test_smooth_evidence_is_interpolated(by_few, most):
    """Off by less than a few hundredths of a nat where the mass is, at a tenth of the points."""
    off, depth, count, share = interpolated(skewed, 4096, by_few=by_few)
    assert count < most
    assert share < 0.1
    # Five times what is allowed: beyond it are 6 of 10 million of what is Gaussian.
    assert np.abs(off[depth < 6.0]).max() < 5.0 * 0.02 * np.exp(6.0 / 2.5)
    assert np.sqrt(np.mean(off[depth < 2.0] ** 2)) < 0.02


def test_rough_evidence_is_evaluated():
    """Where values have a noise of half a nat, each is what it is."""

    def rough(x):
        return skewed(x) + 0.5 * np.sin(1e5 * x).sum(axis=1)

    off, depth, _, share = interpolated(rough, 512)
    near = depth < 3.0
    assert share > 0.5
    assert np.mean(off[near] == 0.0) > 0.9


def counts():
    """A model of counts with an effect of each group, and its data."""
    rng = np.random.default_rng(8)
    group = np.repeat(np.arange(12), 4)
    y = rng.poisson(np.exp(1.0 + 0.6 * rng.standard_normal(12))[group])
    with pm.Model() as model:
        sigma, level = pm.HalfNormal("sigma", 1.0), pm.Normal("level", 0.0, 3.0)
        effect = pm.Normal("effect", 0.0, sigma, shape=12)
        pm.Poisson("y", pm.math.exp(level + effect[group]), observed=y)
    return model


def test_sites_between_ends():
    """Those between ends are EP's own there, to a hundredth, as EP has them to its residual."""
    problem = integration_problem(TrainingData(counts(), None, None, None, None), None, None)
    objective, at = problem.objective, problem.origins[0]
    objective.totals_by_ep([at.at(at.x + step) for step in np.linspace(-1.0, 1.0, 30)])
    new = at.at(at.x + 0.123)
    ((terms, sites),) = objective.known_at(new)
    (found,) = objective.ends.near(0, [new], [(terms, sites)])
    assert found is not None
    assert found.terms is terms
    true = factor_start(terms, sites)
    for own, right in zip(found.sites, true.sites, strict=True):
        for x, y in zip(own, right, strict=True):
            np.testing.assert_allclose(x, y, rtol=0.02, atol=0.02)


def test_draws_of_one_point_are_evenly_spread():
    """Means of coefficients are as good as those of ten times as many draws.

    As of 40 times as many or more. Were it of 22 times, twelve seeds would show less than ten in
    one case of a hundred.
    """
    rng = np.random.default_rng(4)
    x = rng.standard_normal(40)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 2.0), pm.Normal("b", 0.0, 2.0)
        pm.Bernoulli("y", logit_p=a + b * x, observed=rng.random(40) < 0.6)
    options = {"model": model, "draws": 500, "chains": 2, "progressbar": False}
    trees = [sg.integrate(**options, random_seed=seed)["posterior"] for seed in range(12)]
    for name in ("a", "b"):
        draws = np.array([tree[name].to_numpy().ravel() for tree in trees])
        assert draws.mean(axis=1).std(ddof=1) < draws.std() / np.sqrt(10.0 * 1000)
        # In no order: neighbours are as different as any two.
        assert az.ess(trees[0][name].to_numpy()) > 700


def test_evidences_of_labels_with_sites_between_ends():
    """Exact ones are right on average at points where EP has not run, with errors as they say.

    Against SciPy's normal probabilities, to 1e-5. Four standard errors: one seed of 10,000 fails.
    """
    X, y = np.linspace(0.0, 1.0, 5)[:, None], np.array([0, 1, 1, 0, 1])
    with pm.Model():
        ls, eta = pm.InverseGamma("ls", 3, 2), pm.HalfNormal("eta", 2.0)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    problem = integration_problem(TrainingData(gp, X, y, None, None), None, None)
    at, rng = problem.origins[0], np.random.default_rng(11)
    points = [at.at(at.x + 0.5 * rng.standard_normal(2)) for _ in range(300)]
    found = list(run_tasks(problem.latent, points, [2] * len(points), 64, rng))
    signs, off = 2.0 * y - 1.0, (X - X.T) ** 2
    ratio = []
    new = found[128:]  # sites of the others are EP's own
    for point, own in zip(points[128:], new, strict=True):
        known = problem.objective.named(point)
        cov = known["eta"] ** 2 * np.exp(-0.5 * off / known["ls"] ** 2) + np.eye(5)
        true = stats.multivariate_normal(np.zeros(5), signs[:, None] * cov * signs).cdf(np.zeros(5))
        ratio.append(np.exp(own.log_evidence) / true)
    assert abs(np.mean(ratio) - 1.0) < 4.0 * np.std(ratio) / np.sqrt(len(ratio))
    stated = np.sqrt(np.mean([own.std_error**2 for own in new]))
    # Of 172 errors by 32 pairs each; weights with tails let them scatter by a tenth.
    assert 0.6 < np.std(ratio) / stated < 1.5
