"""An effect of each row, which EP goes without: evidence, means, derivatives by quadrature."""

import numpy as np
import pymc as pm
import pytest
from quick_search import averaged
from scipy.interpolate import BarycentricInterpolator
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp
from scipy.stats import binom, norm, poisson

import pymc_skewgp as sg

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
