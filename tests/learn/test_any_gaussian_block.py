"""`integrate` of models without a SkewGP, against closed forms and quadrature."""

import numpy as np
import pymc as pm
import pytest
from oracles import finite_difference
from quick_search import averaged
from scipy.interpolate import BarycentricInterpolator
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp
from scipy.stats import binom, multivariate_normal, norm, poisson
from scipy.stats import t as student

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging.problem import integration_problem
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._model.graph.analysis import blocks_under_rows_or_sites

STEP, Y = np.arange(5), np.random.default_rng(2).normal(size=5)
CHAIN = np.linalg.inv(np.eye(5) - 0.6 * np.eye(5, k=-1))
OF_CHAIN = CHAIN @ np.diag([4.0, 0.25, 0.25, 0.25, 0.25]) @ CHAIN.T

W = np.eye(5, k=1) + np.eye(5, k=-1)


def walk_with_a_drift():
    """Whose density has the same integral whatever the drift, which is drawn with it."""
    drift, start = pm.Normal("drift", 0.1, 0.6), pm.Normal.dist(0.3, 2.0)
    f = pm.GaussianRandomWalk("f", drift, 0.5, init_dist=start, shape=5)
    cov = 4.0 + 0.25 * np.minimum(STEP[:, None], STEP) + 0.36 * np.outer(STEP, STEP)
    return f, 0.3 + 0.1 * STEP, cov


def with_a_level():
    rho, start = [pm.Normal("level", 0.7, 1.5), 0.6], pm.Normal.dist(0, 2.0, shape=1)
    f = pm.AR("f", rho=rho, sigma=0.5, constant=True, init_dist=start, shape=5)
    drift = CHAIN @ (STEP > 0)
    return f, 0.7 * drift, OF_CHAIN + 2.25 * np.outer(drift, drift)


def with_a_potential():
    """Of which the prior's own integral is part."""
    f = pm.Normal("f", 0.0, 1.0, shape=5)
    pm.Potential("sum", pm.logp(pm.Normal.dist(0.0, 0.5), f.sum()))
    return f, 0.0 * STEP, np.linalg.inv(np.eye(5) + 4.0), norm(0.0, np.sqrt(5.25)).logpdf(0.0)


def areas():
    """About a level, W of integers; with the constants that PyMC's density of CAR leaves out."""
    level = pm.Normal("level", 0.0, 1.0)
    f = pm.CAR("f", mu=level * np.ones(5), W=W.astype(int), alpha=0.5, tau=2.0)
    return f, 0.0 * STEP, 1.0 + 0.5 * np.linalg.inv(np.diag(W.sum(0)) - 0.5 * W)


def areas_whose_neighbours_are_data():
    cov = 0.5 * np.linalg.inv(np.diag(W.sum(0)) - 0.5 * W)
    return pm.CAR("f", np.zeros(5), W=pm.Data("W", W), alpha=0.5, tau=2.0), 0.0 * STEP, cov


def collinear_columns():
    b = pm.Normal("b", 0.0, 1.0, shape=3)
    f = pm.Deterministic("f", b[0] + b[1] * np.ones(5) + b[2] * np.zeros(5))
    return f, 0.0 * STEP, np.full((5, 5), 2.0)


@pytest.mark.parametrize(
    "make",
    [
        walk_with_a_drift,
        with_a_level,
        with_a_potential,
        areas,
        areas_whose_neighbours_are_data,
        collinear_columns,
    ],
)
def test_blocks_under_gaussian_values(make):
    with pm.Model() as model:
        f, mean, cov, *constant = make()
        pm.Normal("y", f, 0.4, observed=Y)
    seen = cov + 0.16 * np.eye(5)
    true = multivariate_normal(mean, seen).logpdf(Y) + sum(constant)
    # Gaussian throughout: round-off.
    found = averaged(model, true, 0.0, 1e-8)
    gain = np.linalg.solve(seen, cov).T
    at_data = mean + gain @ (Y - mean)
    sd = np.sqrt((cov - gain @ cov).diagonal())
    drawn = found["f"].values.reshape(-1, 5)
    # 400 draws: five standard errors.
    assert (np.abs(drawn.mean(0) - at_data) < 5 * sd / 20).all()


def test_several_modes_of_coefficients():
    """Data that y -> -y maps to themselves: the mean is 0, with modes at both signs."""
    rng = np.random.default_rng(4)
    x = np.linspace(-1.0, 1.0, 12)
    y = 1.5 + 0.8 * x + 0.2 * rng.normal(size=12)
    x, y = np.r_[x, x], np.r_[y, -y]
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0.0, 5.0), pm.Normal("beta", 0.0, 5.0)
        pm.StudentT("y", nu=1.0, mu=alpha + beta * x, sigma=0.2, observed=y)
    # By midpoints, in steps of some eighth of the posterior's deviations.
    a, b = np.linspace(-4.0, 4.0, 401)[:, None], np.linspace(-4.0, 4.0, 801)
    logs = norm(0, 5).logpdf(a) + norm(0, 5).logpdf(b)
    for xi, yi in zip(x, y, strict=True):
        logs += student.logpdf(yi - a - b * xi, 1.0, scale=0.2)
    true = logsumexp(logs) + np.log(0.02 * 0.01)
    # About one mode alone the evidence is .69 too small.
    # 400 draws at a relative ESS of a half: sd .035 of the share, five of them.
    drawn = averaged(model, true, largest=0.06)["alpha"].to_numpy()
    assert abs((drawn > 0).mean() - 0.5) < 0.18
    assert abs(drawn).mean() == pytest.approx(1.5, abs=0.1)


def _with_a_change(y):
    with pm.Model() as model:
        change, level = pm.Uniform("change", 0.0, 30.0), pm.Normal("level", 0.0, 3.0, shape=2)
        mean = pm.math.switch(change >= np.arange(30.0), level[0], level[1])
        pm.Normal("y", mean, 0.7, observed=y)
    return model


STEPS = np.repeat([0.0, 2.0], [5, 25]) + 0.7 * np.random.default_rng(0).standard_normal(30)


def test_a_model_that_is_misread_has_no_answer(monkeypatch):
    """The likelihood at draws is compared with the model's own."""
    monkeypatch.setattr("pymc_skewgp._model.graph.affine.is_analytic", lambda *_: True)
    with pytest.raises(RuntimeError, match="report the model"):
        sg.integrate(_with_a_change(STEPS), random_seed=0, progressbar=False)


def test_a_level_that_changes_at_an_unknown_time():
    """Which predictors are equal depends on the hyperparameter: a sum over all times of change."""
    y = STEPS

    def evidence(k):
        first = np.arange(30) < k
        cov = 9.0 * (first[:, None] == first) + 0.49 * np.eye(30)
        return multivariate_normal(np.zeros(30), cov).logpdf(y)

    each = np.array([evidence(k) for k in range(1, 31)])
    true = logsumexp(each) - np.log(30)
    found = averaged(_with_a_change(STEPS), true, draws=1000, chains=4)
    mean = np.exp(each - logsumexp(each)) @ (np.arange(30) + 0.5)
    assert abs(float(found["change"].mean()) - mean) < 0.5  # an sd of 1.5, some 200 values


def test_a_predictor_that_is_cut_off_has_a_plateau():
    """Where eta < 0 the likelihood is flat: log p is concave on both sides, and not together."""
    x = np.linspace(-1.0, 1.0, 24)
    y = 0.5 * x + np.tile([0.9, 0.9, -0.4, -0.4], 6) + 0.4 * np.sin(40.0 * x)
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", pm.math.maximum(a + b * x, 0.0), 0.7, observed=y)
    grid = np.linspace(-5.0, 5.0, 401)
    a, b = grid[:, None], grid[None, :]
    logs = norm.logpdf(a) + norm.logpdf(b)
    logs = logs + sum(
        norm.logpdf(v, np.maximum(a + b * t, 0.0), 0.7) for t, v in zip(x, y, strict=True)
    )
    true = logsumexp(logs) + 2 * np.log(grid[1] - grid[0])
    # Off by seven standard errors without the plateau.
    found = averaged(model, true, draws=1000, chains=4)
    share = np.exp(logs - logsumexp(logs))
    for drawn, value in ((found["a"], a), (found["b"], b)):
        mean = float((share * value).sum())
        sd = np.sqrt(float((share * value**2).sum()) - mean**2)
        assert abs(float(drawn.mean()) - mean) < 0.12 * sd  # 2000 draws or more: .02 sd
        assert float(drawn.std()) == pytest.approx(sd, rel=0.1)


def test_a_potential_of_an_effect_beside_a_skewgp():
    X, y = np.array([[0.0], [1.0]]), np.array([1, 3])
    with pm.Model() as model:
        f = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0)).prior("f", X)
        b = pm.Normal("b")
        pm.Potential("p", -2.0 * (b - 2.0) ** 2)
        pm.Poisson("y", pm.math.exp(f + b), observed=y)
    # The step's block, which has no place for a potential.
    (block,) = blocks_under_rows_or_sites(model)
    assert [x.name for x in block.members] == ["f"]
    grid = np.linspace(-6.0, 6.0, 121)
    f1, f2, b = np.meshgrid(grid, grid, grid, indexing="ij", sparse=True)
    K = np.exp(-0.5 * (X - X.T) ** 2)
    pairs = np.stack(np.broadcast_arrays(f1, f2), -1)
    logs = multivariate_normal(cov=K).logpdf(pairs).reshape(pairs.shape[:-1])
    logs = logs + norm.logpdf(b) - 2.0 * (b - 2.0) ** 2
    logs = logs + poisson.logpmf(y[0], np.exp(f1 + b)) + poisson.logpmf(y[1], np.exp(f2 + b))
    true = logsumexp(logs) + 3 * np.log(grid[1] - grid[0])
    # Left out, the potential changes .9 nats.
    found = averaged(model, true)
    mean = float((np.exp(logs - logsumexp(logs)) * b).sum())
    assert float(found["b"].mean()) == pytest.approx(mean, abs=0.1)  # .03 five times


MANY = np.array([1, 4, 0, 7, 2, 3, 9, 1, 0, 5, 2, 2])


def _negative_binomial():
    alpha = pm.Gamma("alpha", 2.0, 0.5)
    return lambda mu: pm.NegativeBinomial("y", mu=pm.math.exp(mu), alpha=alpha, observed=MANY)


OF_MANY = {
    "a parameter": _negative_binomial,
    "Student t": lambda: lambda mu: pm.StudentT("y", nu=4, mu=mu, sigma=0.5, observed=MANY / 4.0),
}


@pytest.mark.parametrize("case", OF_MANY)
def test_many_hyperparameters_at_once_are_as_one_by_one(case):
    """Beside values with noise.

    EP ends within 1e-2 of its fixed point, and its evidence within the square of that: within a
    tenth of it where EP cuts sites, as of Student t.
    """
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1.0)
        level = pm.Normal("level", 0.0, 2.0)
        effects = pm.Normal("effects", 0.0, sd, shape=4)
        mean = level + effects[np.arange(12) % 4]
        OF_MANY[case]()(mean)
        pm.Normal("z", mean[:4], 0.5, observed=[0.3, 1.2, 0.8, -0.1])
    problem = integration_problem(TrainingData(model, None, None, None, None), None, None)
    (origin,) = problem.origins
    x = origin.x + np.random.default_rng(0).normal(size=(40, origin.x.size))
    points = [origin.at(each) for each in x]
    together = problem.objective.totals_by_ep(points)
    alone = [np.concatenate(problem.objective.totals_by_ep([point])) for point in points]
    atol = 1e-3 if case == "Student t" else 1e-4
    np.testing.assert_allclose(np.transpose(together), alone, atol=atol)
    assert np.isfinite(together).all()
    if case == "a parameter":
        # By the mean slope at the draws: errors of .0015.
        slopes = finite_difference(
            lambda x: problem.objective.by_twisting(origin.at(x), 8192, 0).total, origin.x, 0.01
        )
        found = problem.objective.by_twisting(origin, 8192, 0).gradient
        np.testing.assert_allclose(found, slopes, atol=0.008)


# An effect of each row, which EP goes without: evidence, means, derivatives by quadrature.


N = 6
Z = np.array([-1.0, 0.5, 0.3, 1.4, -0.2, 0.8])
NODES, LOG_WEIGHTS = np.polynomial.hermite_e.hermegauss(200)
LOG_WEIGHTS = np.log(LOG_WEIGHTS / np.sqrt(2 * np.pi))
LEVEL = np.linspace(-6.0, 6.0, 241)  # of mu, in deviations: five steps or more in that of data
COUNTS = np.array([3, 0, 7, 2, 1, 4])
LARGE = np.array([900, 1100, 1500, 40, 3, 700])


def counts(eta):
    pm.Poisson("y", pm.math.exp(eta), observed=COUNTS)


def shares(eta):
    pm.Binomial("y", 20, pm.math.invlogit(eta), observed=COUNTS)


def labels(eta):
    pm.Bernoulli("y", pm.math.invprobit(eta), observed=COUNTS > 2)


def censored(eta):
    pm.Censored("y", pm.Normal.dist(eta, 0.3), None, 0.8, observed=np.minimum(Z, 0.8))


# With the log density of each row and the deviation of the effects.
CASES = {
    "counts": (counts, lambda f, i: poisson(np.exp(f)).logpmf(COUNTS[i]), 0.7),
    "shares": (shares, lambda f, i: binom(20, expit(f)).logpmf(COUNTS[i]), 1.5),
    "labels": (labels, lambda f, i: norm.logcdf(np.where(COUNTS[i] > 2, f, -f)), 0.8),
    "censored": (
        censored,
        lambda f, i: norm(f, 0.3).logpdf(Z[i]) if Z[i] < 0.8 else norm(f, 0.3).logsf(0.8),
        1.0,
    ),
}


def effects(sd, observe):
    """The effect of the first row is twice as wide."""
    mu = pm.Normal("mu", 0.5, 1.0)
    u = pm.Normal("u", 0.0, np.r_[2.0, np.ones(N - 1)], shape=N)
    observe(mu + sd * u)


def by_quadrature(log_density, sd):
    """Log densities of mu and y on the grid of mu; means and squares of u given mu."""
    f = 0.5 + LEVEL[:, None] + sd * NODES
    logs, moments = norm.logpdf(LEVEL), []
    for i in range(N):
        scale = 2.0 if i == 0 else 1.0
        own = log_density(f + (scale - 1.0) * sd * NODES, i) + LOG_WEIGHTS
        total = logsumexp(own, axis=1)
        powers = np.stack([NODES * scale, (NODES * scale) ** 2])
        moments.append(powers @ np.exp(own - total[:, None]).T)
        logs = logs + total
    return logs, *np.swapaxes(moments, 0, 1)


@pytest.mark.parametrize("case", CASES)
def test_evidence_and_means_are_those_of_quadrature(case):
    observe, log_density, sd = CASES[case]
    with pm.Model() as model:
        effects(sd, observe)
    logs, means, squares = by_quadrature(log_density, sd)
    step = LEVEL[1] - LEVEL[0]
    true, options = logsumexp(logs) + np.log(step), {"draws": 500, "chains": 4, "random_seed": 1}
    found = averaged(model, true, floor=1e-6, **options)  # of values round-off
    share = np.exp(logs - logsumexp(logs))
    known = np.array([share @ (0.5 + LEVEL), *(means @ share)])
    variances = [share @ (0.5 + LEVEL) ** 2, *(squares @ share)] - known**2
    drawn = np.column_stack([found["mu"].values.ravel(), found["u"].values.reshape(-1, N)])
    ess = len(drawn) * found.attrs["relative_ess"]
    off = (drawn.mean(axis=0) - known) / (drawn.std(axis=0) / np.sqrt(ess))
    assert np.abs(off).max() < 5.0  # of seven means: a false alarm in 250,000 seeds
    # And of variances, where the excess kurtosis is below one.
    assert np.abs(drawn.var(axis=0) / variances - 1.0).max() < 5.0 * np.sqrt(3.0 / ess)


@pytest.mark.parametrize("case", ["counts", "censored"])
def test_evidences_at_all_hyperparameters_are_those_of_quadrature(case):
    """And draws of mu and of an effect beside them: at a thousand deviations, side by side."""
    observe, log_density, _ = CASES[case]
    with pm.Model() as model:
        effects(pm.HalfNormal("sd", 1.0), observe)
    found = sg.integrate(model, draws=1000, chains=4, random_seed=3, progressbar=False)
    sd, first = np.unique(found["posterior"]["sd"], return_index=True)
    assert sd.size > 700
    log_evidence = found["sample_stats"]["log_marginal_likelihood"].values.ravel()[first]
    log_step = np.log(LEVEL[1] - LEVEL[0])

    def known(grid):
        each = [by_quadrature(log_density, x) for x in grid]
        logs, means, squares = (np.array(x) for x in zip(*each, strict=True))
        total = logsumexp(logs, axis=1)
        shares = np.exp(logs - total[:, None])
        of_u = [(shares * x[:, 0]).sum(axis=1) for x in (means, squares)]
        of_mu = [shares @ (0.5 + LEVEL) ** power for power in (1, 2)]
        sds = [np.sqrt(square - mean**2) for mean, square in (of_mu, of_u)]
        return np.column_stack([total + log_step, of_mu[0], of_u[0], *sds])

    # Of smooth functions a polynomial of degree 24 has all digits that are looked at.
    nodes = sd[0] + (sd[-1] - sd[0]) * (0.5 - 0.5 * np.cos(np.pi * (np.arange(25) + 0.5) / 25))
    true = BarycentricInterpolator(nodes, known(nodes))
    ratio = np.exp(log_evidence - true(sd)[:, 0])
    # Unbiased: five standard errors of the mean, a false alarm in a million seeds; beside them what
    # EP's quadrature and the polynomial leave of evidences that are exact.
    assert abs(ratio.mean() - 1.0) < 5.0 * ratio.std() / np.sqrt(sd.size) + 1e-6
    assert ratio.std() < 0.05
    drawn, at = found["posterior"], found["posterior"]["sd"].values.ravel()
    values = np.column_stack([drawn["mu"].values.ravel(), drawn["u"].values.reshape(-1, N)[:, 0]])
    off = (values - true(at)[:, 1:3]) / true(at)[:, 3:]
    # Of 4000 draws with weights of relative ESS above .5; for variances as above.
    assert np.abs(off.mean(axis=0)).max() < 5.0 / np.sqrt(2000)
    assert np.abs(off.var(axis=0) - 1.0).max() < 5.0 * np.sqrt(3.0 / 2000)


def test_a_row_may_say_far_more_than_its_effect_leaves():
    # Sites that take all but a thousandth of the variance, next to a row that says little.
    with pm.Model() as model:
        mu = pm.Normal("mu", 3.0, 2.0)
        u = pm.Normal("u", 0.0, 1.0, shape=N)
        pm.Poisson("y", pm.math.exp(mu + 3.0 * u), observed=LARGE)
    f = np.linspace(-10.0, 15.0, 2501)
    rows = np.array([poisson(np.exp(f)).logpmf(k) for k in LARGE])
    grid = 3.0 + 2.0 * LEVEL
    own = norm(grid[:, None], 3.0).logpdf(f)
    logs = norm.logpdf(LEVEL) + sum(logsumexp(own + row, axis=1) for row in rows)
    true = logsumexp(logs) + np.log(LEVEL[1] - LEVEL[0]) + N * np.log(f[1] - f[0])
    averaged(model, true, floor=1e-6)


def test_the_maximum_in_the_deviation_of_effects_is_that_of_quadrature():
    with pm.Model() as model:
        sd = pm.HalfFlat("sd")
        effects(sd, counts)
    found = sg.find_hyperparameters(
        model, method="ep", n_restarts=0, random_seed=0, progressbar=False
    )
    log_density = CASES["counts"][1]
    best = minimize_scalar(
        lambda s: -logsumexp(by_quadrature(log_density, s)[0]), bounds=(0.1, 3.0), method="bounded"
    )
    # EP's evidence has the slope of the exact one within some hundredths of its curvature.
    assert float(found.point["sd"]) == pytest.approx(best.x, rel=0.02)
