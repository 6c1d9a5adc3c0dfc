"""Results of `integrate` for models without a SkewGP, used as those of ``pm.sample`` are."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import ImputationWarning
from quick_search import averaged
from scipy import stats
from scipy.special import logsumexp
from scipy.stats import halfnorm, norm, t

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._model.graph.collapsed import collapse_model

X = np.linspace(-1.5, 1.5, 10)
Y = np.array([0, 2, 0, 1, 3, 2, 4, 1, 3, 5])
WAITS = np.array([0.3, 0.5, 0.2, 0.9, 1.2, 0.8, 1.1, 1.2, 1.2, 0.7])


def _waits(b, x):
    return pm.math.exp(b * x)


OBSERVED = {
    "censored waits": lambda b: pm.Censored(
        "y", pm.Weibull.dist(alpha=2.0, beta=_waits(b, X)), None, 1.2, observed=WAITS
    ),
    "truncated counts": lambda b: pm.Truncated(
        "y", pm.Poisson.dist(_waits(b, X)), lower=1, observed=np.maximum(Y, 1)
    ),
    "hurdle": lambda b: pm.HurdlePoisson("y", psi=0.8, mu=_waits(b, X), observed=Y),
    "mixture of scales": lambda b: pm.Mixture(
        "y",
        w=[0.7, 0.3],
        comp_dists=[pm.Normal.dist(b * X, 0.5), pm.Normal.dist(b * X, 3.0)],
        observed=X,
    ),
}


@pytest.mark.parametrize("kind", OBSERVED)
def test_observations_of_one_predictor_are_their_quadrature(kind):
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)
        OBSERVED[kind](b)
    log_density = model.compile_logp(mode="FAST_COMPILE")
    grid = np.linspace(-4, 4, 801)
    logs = np.array([log_density({"b": value}) for value in grid])
    true = logsumexp(logs) + np.log(grid[1] - grid[0])
    found = averaged(model, true, floor=1e-3, random_seed=2)  # for the errors of errors
    # Of the draws of the one point; -inf only where all weigh alike.
    alike = found.attrs["relative_ess_exact"] > 0.99
    assert alike or np.isfinite(found.attrs["pareto_k_exact"])
    weights = np.exp(logs - logsumexp(logs))
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert abs(float(found["b"].mean()) - mean) < 5 * sd / np.sqrt(400)


def test_no_evidence_is_above_the_density_of_all_data():
    """Where EP does not converge: Student t far from the data on its scale."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(0, 8, 100), rng.normal(size=100)
    y = 0.3 + 0.6 * x + 0.7 * rng.normal(size=8)[group] + 0.4 * rng.standard_t(3, size=100)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        b = pm.Normal("b", 0.0, 3.0, shape=2)
        u = pm.Normal("u", 0.0, 1.0, shape=8)
        pm.StudentT("y", nu=70.0, mu=b[0] + b[1] * x + u[group], sigma=sigma, observed=y)
    collapsed = collapse_model(model)
    objective, origin = compile_objective(model, collapsed, averaged=True)
    pattern = objective.coordinates.patterns(3)[0]
    for log_sigma in (0.0, -4.0, -5.0, -6.0):  # one begins where the last one ended
        point = Point(np.full_like(origin, log_sigma), pattern)
        value = objective.totals_by_ep([point])[1][0]
        highest = 100 * (0.0 - log_sigma)  # a density is at most 1 / sigma there
        assert np.isfinite(value)
        assert value < highest


@pytest.mark.parametrize(
    "missing",
    [
        lambda counts: np.ma.masked_array(counts, mask=np.arange(6) < 2),
        lambda counts: np.where(np.arange(6) < 2, np.nan, counts),
    ],
)
def test_missing_counts_leave_their_rows_out(missing):
    """The slope is one number under all counts: the evidence is an integral over it."""
    z, counts = np.linspace(-1.0, 1.5, 6), np.array([2, 0, 3, 1, 4, 2])
    imputed = pytest.warns(ImputationWarning)
    with imputed, np.errstate(invalid="ignore"), pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)
        pm.Poisson("y", pm.math.exp(b * pm.Data("z", z)), observed=missing(counts))
    grid = np.linspace(-6.0, 6.0, 1001)
    rates = np.exp(grid * z[2:, None])
    log_p = stats.norm.logpdf(grid) + stats.poisson.logpmf(counts[2:, None], rates).sum(0)
    expected = logsumexp(log_p) + np.log(grid[1] - grid[0])
    averaged(model, expected, floor=1e-8, draws=1000)  # the trapezoidal rule is exact here


def test_masked_data_are_drawn_and_what_is_observed_stays():
    """Of masked values with noise sd .5 about an effect, which has a closed form."""
    x = np.linspace(-1.0, 1.0, 6)
    masked = np.ma.masked_array(x, mask=[True, False, False, False, False, True])
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)
        with pytest.warns(ImputationWarning):
            y = pm.Normal("y", b, 0.5, observed=masked)
        pm.Deterministic("twice", 2.0 * y)
    found = sg.integrate(model, draws=1000, chains=2, random_seed=0, progressbar=False)["posterior"]
    precision = 1.0 + 4 / 0.25
    mean, sd = x[1:5].sum() / 0.25 / precision, np.sqrt(1.0 / precision + 0.25)
    drawn = found["y_unobserved"].values.reshape(-1, 2)
    # Five standard errors of 2000 independent draws: one false alarm in 4e5 seeds.
    assert (np.abs(drawn.mean(0) - mean) < 5 * sd / np.sqrt(2000)).all()
    assert (np.abs(drawn.std(0) / sd - 1.0) < 5 / np.sqrt(4000)).all()
    np.testing.assert_array_equal(
        found["y"].values[..., 1:5], np.broadcast_to(x[1:5], (2, 1000, 4))
    )
    np.testing.assert_allclose(found["twice"].values, 2.0 * found["y"].values)
    np.testing.assert_array_equal(found["y"].values[..., [0, 5]], found["y_unobserved"].values)


# Hyperparameters of a posterior of f with several modes, against quadrature and symmetry.
#
# f is one value with an amplitude eta, seen with Student-t noise as often near 1 as near -1: y ->
# -y maps the data to themselves, so the mean of f is 0, and eta is known by a rule over f and eta.


LEVELS = 1.0 + 0.1 * np.linspace(-1.0, 1.0, 3)
YM = np.concatenate([LEVELS, -LEVELS])
XM = np.zeros((YM.size, 1))
DF, SCALE = 1.0, 0.15
ETA = np.linspace(0.02, 9.0, 600)


@cache
def known():
    """Log density of eta and the data at `ETA`."""
    f = np.linspace(-8.0, 8.0, 2001)  # a step of a twentieth of the noise
    log_likelihood = t.logpdf(YM[:, None], DF, f, SCALE).sum(axis=0)
    own = logsumexp(log_likelihood + norm.logpdf(f, scale=ETA[:, None]), axis=1)
    return own + np.log(f[1] - f[0]) + halfnorm.logpdf(ETA, scale=2.0)


def one_process():
    eta = pm.HalfNormal("eta", 2.0)
    # Six values of one f: a correlation that is 1.
    return sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0))


def moments():
    p = np.exp(known() - logsumexp(known()))
    mean = p @ ETA
    return mean, np.sqrt(p @ (ETA - mean) ** 2)


def test_integrate():
    with pm.Model():
        gp = one_process()
        likelihood = sg.likelihoods.StudentT(DF, SCALE)
        found = sg.integrate(gp, XM, YM, likelihood=likelihood, n_evidences=64, random_seed=1)
    stats, drawn = found["sample_stats"].attrs, found["posterior"]
    evidence = logsumexp(known()) + np.log(ETA[1] - ETA[0])
    error = stats["log_evidence_se"]
    assert abs(stats["log_evidence"] - evidence) < 4.0 * error < 0.12
    mean, sd = moments()
    # Over eight seeds errors were .11 of the deviation and 17 % of it; four of them.
    assert abs(float(drawn["eta"].mean()) - mean) < 0.45 * sd
    assert float(drawn["eta"].std()) == pytest.approx(sd, rel=0.7)
    f = drawn["f"].to_numpy()[..., 0]
    # Over the same seeds .011, and .024 of the deviation; five of them.
    assert abs((f > 0).mean() - 0.5) < 0.06
    assert abs(f.mean()) < 0.12 * f.std()


def test_the_best_amplitude():
    with pm.Model():
        gp = one_process()
        likelihood = sg.likelihoods.StudentT(DF, SCALE)
        found = sg.find_hyperparameters(gp, XM, YM, likelihood=likelihood, random_seed=1)
    exact = known()
    eta = float(found.point["eta"])
    # At most so many nats below the best: within the stated error of the evidence.
    assert exact.max() - np.interp(eta, ETA, exact) < 0.02
    value = found.log_marginal_likelihood
    at_best = value.value + halfnorm.logpdf(eta, scale=2.0)
    assert abs(at_best - exact.max()) < 0.02 + 4.0 * value.std_error < 0.25


@pytest.mark.usefixtures("in_python")
def test_the_step():
    with pm.Model():
        f = one_process().prior("f", XM)
        pm.StudentT("y", nu=DF, mu=f, sigma=SCALE, observed=YM)
        found = pm.sample(tune=100, draws=250, chains=2, cores=1, random_seed=3, progressbar=False)[
            "posterior"
        ]
    mean, sd = moments()
    first = found["f"].to_numpy()[..., 0]
    # About all modes: without jumps a chain stays at one of them.
    assert (np.count_nonzero(np.diff(first > 0, axis=1), axis=1) > 25).all()
    # Some 150 independent draws: errors of .08 deviations, four of them.
    assert abs(first.mean()) < 0.35
    assert abs(float(found["eta"].mean()) - mean) < 0.35 * sd


@pytest.mark.parametrize("sd", [1.0, 100.0])
def test_a_mode_beyond_the_reach_of_the_other(sd):
    # EP's Gaussian is narrow, about the one mode of |f| near 1: log p is concave about it.
    y, noise = np.array([1.0, 1.1]), 0.1
    with pm.Model() as model:
        f = pm.Normal("f", 0.5, sd)
        pm.Normal("y", pm.math.abs(f), noise, observed=y)
    found = sg.integrate(model, random_seed=1)["posterior"]
    # A step of a fiftieth of the noise, in which both modes are; the ends are 100 deviations away.
    at = np.linspace(-10.0, 10.0, 10_001)
    log_density = norm.logpdf(y[:, None], abs(at), noise).sum(axis=0) + norm.logpdf(at, 0.5, sd)
    evidence = logsumexp(log_density) + np.log(at[1] - at[0])
    stated = found.attrs["log_evidence_se"]
    assert abs(found.attrs["log_evidence"] - evidence) < 4.0 * stated < 0.02
    share = np.exp(logsumexp(log_density[at > 0]) - logsumexp(log_density))
    # Draws are equally weighted ones of at least half as many: five of their errors.
    draws = found["f"].to_numpy().ravel()
    assert abs((draws > 0).mean() - share) < 5.0 * np.sqrt(2.0 * share * (1 - share) / draws.size)
