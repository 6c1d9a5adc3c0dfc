"""Thirteen jobs of a working week, each in at most twelve lines, beside the truth of their data.

The lines of a job stand between the comments ``# job`` and ``# truth``. What is asserted allows for
the noise of the data: an interval of 95 % misses one truth in twenty, and neighbours on a curve
miss it together. Seeds are fixed: a test that passes once passes always.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.special import expit, logit, ndtr
from sklearn.compose import make_column_transformer
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import pymc_skewgp as sg

SLOW = pytest.mark.slow(ci=True)
SEED = 8927
QUIET = {"random_seed": SEED, "progressbar": False}


def share_inside(truth, mean, sd):
    """Share of true values within two standard deviations of their means."""
    return np.mean(np.abs(np.asarray(mean) - truth) < 2 * np.asarray(sd))


def moments(result, name):
    """Posterior means and standard deviations of a variable."""
    draws = result["posterior"][name]
    return draws.mean(("chain", "draw")).values, draws.std(("chain", "draw")).values


def test_jobs_are_short():
    jobs = re.findall(r"    # job\n(.*?)    # truth\n", Path(__file__).read_text(), flags=re.S)
    assert len(jobs) == 13
    assert max(job.count("\n") for job in jobs) <= 12


@SLOW
def test_spatial_labels():
    """Where is the disease likely? 100 places on a map, healthy or sick."""
    rng = np.random.default_rng(SEED)
    places, elsewhere = rng.uniform(-1.5, 1.5, (100, 2)), rng.uniform(-1.2, 1.2, (40, 2))
    p, p_elsewhere = (expit(3 * np.sin(2 * x) * np.cos(2 * y)) for x, y in (places.T, elsewhere.T))
    sick = rng.random(100) < p
    # job
    with pm.Model() as model:
        X = pm.Data("X", places)
        ls, eta = pm.InverseGamma("ls", 3, 3), pm.HalfNormal("eta", 3)
        f = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=ls)).prior("f", X)
        pm.Bernoulli("sick", pm.Deterministic("p", pm.math.invlogit(f)), observed=sick)
    idata = sg.integrate(model, **QUIET)
    new = sg.predict(idata, {"X": elsewhere}, **QUIET)["predictions_summary"]
    # truth
    # f has a standard deviation of about 1 there: at most .25 in p, and half that on average.
    assert np.abs(new["p_mean"].values - p_elsewhere).mean() < 0.15
    assert share_inside(logit(p_elsewhere), new["f_mean"], new["f_sd"]) > 0.85


def test_counts_with_trend_and_season():
    """What will next year bring? Eight years of monthly counts, with a trend and a season."""
    rng = np.random.default_rng(SEED)
    t = np.arange(108)
    rate = np.exp(2.5 + 0.01 * t + 0.5 * np.sin(2 * np.pi * t / 12))
    counts = rng.poisson(rate[:96])
    # job
    with pm.Model(coords={"month": np.arange(12)}) as model:
        time = pm.Data("time", t[:96])
        level, slope = pm.Normal("level", 2, 2), pm.Normal("slope", 0, 0.1)
        season = pm.ZeroSumNormal("season", pm.HalfNormal("sd", 1), dims="month")
        mu = pm.Deterministic("mu", pm.math.exp(level + slope * time + season[time % 12]))
        pm.Poisson("y", mu, observed=counts)
    idata = sg.integrate(model, **QUIET)
    new = sg.predict(idata, {"time": t[96:]}, **QUIET)["predictions_summary"]
    # truth
    assert share_inside(rate[96:], new["mu_mean"], new["mu_sd"]) > 0.8
    assert share_inside(0.01, *moments(idata, "slope")) == 1


@SLOW
def test_ratings_with_crossed_effects():
    """Which film is good, and which judge is strict? 12 judges rate 10 films, 0 to 3 stars."""
    rng = np.random.default_rng(SEED)
    judge, film = np.divmod(np.arange(120), 10)
    strict, quality = rng.normal(0, 0.7, 12), rng.normal(0, 1, 10)
    stars = np.digitize(quality[film] - strict[judge] + rng.standard_normal(120), [-1, 0, 1])
    # job
    with pm.Model() as model:
        u = pm.Normal("strict", 0, pm.HalfNormal("sd_judge", 1), shape=12)
        v = pm.Normal("quality", 0, pm.HalfNormal("sd_film", 1), shape=10)
        cuts = pm.Normal(
            "cuts", [-1, 0, 1], 1, transform=pm.distributions.transforms.ordered, shape=3
        )
        pm.OrderedProbit("stars", eta=v[film] - u[judge], cutpoints=cuts, observed=stars)
    idata = sg.integrate(model, **QUIET)
    # truth
    for name, truth in (("strict", strict), ("quality", quality)):
        mean, sd = moments(idata, name)
        assert share_inside(truth, mean, sd) >= 0.8
        # Errors of .3 beside standard deviations of .7 and 1: .9 is expected.
        assert np.corrcoef(truth, mean)[0, 1] > 0.7


def test_duels_with_ties():
    """Who beats whom, and who draws? 120 games of 12 players who trained for some hours."""
    rng = np.random.default_rng(SEED)
    hours = np.linspace(0, 1, 12)[:, None]
    skill = 2 * np.sin(4 * hours[:, 0])
    i, j = rng.permuted(np.tile(np.arange(12), (120, 1)), axis=1)[:, :2].T
    margin = skill[i] - skill[j] + rng.standard_normal(120)
    winner, loser, tie = (
        np.where(margin > 0, i, j),
        np.where(margin > 0, j, i),
        np.abs(margin) < 0.5,
    )
    # job
    games = np.column_stack([winner, loser, tie])
    with pm.Model():
        ls, eta = pm.InverseGamma("ls", 3, 1), pm.HalfNormal("eta", 2)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
        margin_of_ties = pm.HalfNormal("threshold", 1)
        likelihood = sg.likelihoods.Preference(sigma=0.5**0.5, threshold=margin_of_ties)
    dt = sg.integrate(gp, hours, games, likelihood=likelihood, **QUIET)
    new = sg.predict(dt, hours[[5, 0, 11]], **QUIET)["predictions_summary"]
    # truth
    difference = skill[5] - skill[[0, 11]]
    p_win, p_lose = ndtr(difference - 0.5), ndtr(-difference - 0.5)
    # Each of these players has about 20 games: a share of them is known to .1.
    assert np.abs(new["p_beats"].values[0, 1:] - p_win).max() < 0.2
    assert np.abs(new["p_tie"].values[0, 1:] - (1 - p_win - p_lose)).max() < 0.1
    assert new["p_best"].values.argmax() == 0
    assert share_inside(0.5, *moments(dt, "threshold")) == 1


def test_eight_groups():
    """Does the treatment work, and not alike everywhere? Eight groups of unequal size."""
    rng = np.random.default_rng(SEED)
    effect = rng.normal(5, 3, 8)
    error = rng.uniform(2, 8, 8)
    found = rng.normal(effect, error)
    # job
    with pm.Model(coords={"group": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 10), pm.HalfNormal("tau", 5)
        theta = pm.Normal("theta", mu, tau, dims="group")
        pm.Normal("y", theta, error, observed=found, dims="group")
    idata = sg.integrate(model, **QUIET)
    # truth
    mean, sd = moments(idata, "theta")
    assert share_inside(effect, mean, sd) >= 7 / 8
    assert np.square(mean - effect).mean() < np.square(found - effect).mean()  # shrinkage helps


def test_dose_response_by_two_links():
    """At which dose do half respond, and which link do the data prefer? Eight doses."""
    rng = np.random.default_rng(SEED)
    dose = np.linspace(-2, 2, 8)
    responded = rng.binomial(15, expit(1.0 + 2.0 * dose))  # half respond at -.5
    # job
    results = {}
    for name, link in (("logit", pm.math.invlogit), ("probit", pm.math.invprobit)):
        with pm.Model() as model:
            a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2)
            pm.Deterministic("half", -a / b)
            pm.Binomial("y", 15, link(a + b * dose), observed=responded)
        results[name] = sg.integrate(model, **QUIET)
    table = sg.compare(results)
    # truth
    for result in results.values():
        assert share_inside(-0.5, *moments(result, "half")) == 1
    # 120 animals do not tell the links apart: the true one is not refuted.
    assert table.loc["logit", "weight"] > 0.05


@SLOW
def test_censored_values():
    """What is the concentration, where the instrument stops at 1.5?"""
    rng = np.random.default_rng(SEED)
    x = np.linspace(0, 6, 60)
    truth = 1 + np.sin(x)
    y = np.minimum(truth + 0.2 * rng.standard_normal(60), 1.5)
    # job
    with pm.Model() as model:
        ls, eta = pm.InverseGamma("ls", 3, 3), pm.HalfNormal("eta", 2)
        sigma, level = pm.HalfNormal("sigma", 1), pm.Normal("level", 0, 2)
        f = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=ls)).prior("f", x[:, None])
        g = pm.Deterministic("g", level + f)
        pm.Censored("y", pm.Normal.dist(g, sigma), lower=None, upper=1.5, observed=y)
    idata = sg.integrate(model, **QUIET)
    # truth
    mean, sd = moments(idata, "g")
    assert share_inside(truth, mean, sd) > 0.85
    assert mean.max() > 1.6  # above the limit, where all values are cut; the truth is 2


def test_rare_class_in_a_pipeline():
    """Who will default? Numbers, categories and labels of text; three in a hundred do."""
    rng = np.random.default_rng(SEED)

    def simulate(n):
        data = pd.DataFrame(
            {"debt": rng.standard_normal(n), "home": rng.choice(["own", "rent", "family"], n)}
        )
        p = expit(-5.5 + 2 * data["debt"] + 1.5 * (data["home"] == "rent"))
        return data, p, np.where(rng.random(n) < p, "default", "paid")

    X, _, y = simulate(120)
    X_new, p_new, y_new = simulate(2000)
    # job
    columns = make_column_transformer((StandardScaler(), ["debt"]), (OneHotEncoder(), ["home"]))
    classifier = make_pipeline(columns, sg.SkewGPClassifier(random_state=SEED))
    p = classifier.fit(X, y).predict_proba(X_new)[:, list(classifier.classes_).index("default")]
    # truth
    assert abs(p.mean() - p_new.mean()) < 2 * np.sqrt(0.03 / 120)  # as 120 rows tell it
    assert roc_auc_score(y_new, p) > roc_auc_score(y_new, p_new) - 0.05


@SLOW
def test_many_rows():
    """20,000 labels of a function of two inputs."""
    rng = np.random.default_rng(SEED)
    X = rng.uniform(-2, 2, (20_200, 2))
    truth = expit(2 * np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1)
    y = rng.random(20_200) < truth
    # job
    classifier = sg.SkewGPClassifier(random_state=SEED).fit(X[200:], y[200:])
    p = classifier.predict_proba(X[:200])[:, 1]
    # truth
    # Some 50 coefficients from 20,000 labels: .5 * sqrt(50 / 20,000) = .025 at most.
    assert np.abs(p - truth[:200]).mean() < 0.025


def test_survival():
    """How long until failure? Times of 80 machines, a part of which still run."""
    rng = np.random.default_rng(SEED)
    load = rng.uniform(-2, 2, (80, 1))
    failed = np.exp(1 - 0.7 * load[:, 0]) * rng.weibull(2.0, 80)
    ended = rng.exponential(6.0, 80)
    times = np.empty(80, dtype=[("event", bool), ("time", float)])
    times["event"], times["time"] = failed < ended, np.minimum(failed, ended)
    # job
    survival = sg.SkewGPSurvival(distribution="weibull", random_state=SEED).fit(load, times)
    median = survival.predict([[-1.0], [0.0], [1.0]])
    alive = survival.predict_survival_function([[-1.0], [0.0], [1.0]], times=[2.0])[:, 0]
    # truth
    scale = np.exp(1 - 0.7 * np.array([-1.0, 0.0, 1.0]))
    # Two thirds of 80 times are seen, log t with a standard deviation of .64: .1 at the ends, which
    # maximum likelihood of this model misses by .2 on these data.
    assert np.abs(np.log(median / (scale * np.log(2) ** 0.5))).max() < 0.3
    assert np.abs(alive - np.exp(-((2 / scale) ** 2))).max() < 0.15


def test_two_kernels():
    """Is the signal periodic? 60 values of a wave, and two kernels."""
    rng = np.random.default_rng(SEED)
    x = np.linspace(0, 6, 60)[:, None]
    y = np.sin(2 * np.pi * x[:, 0]) + 0.3 * rng.standard_normal(60)
    # job
    results = {}
    for name in ("smooth", "periodic"):
        with pm.Model() as model:
            ls, sigma = pm.InverseGamma("ls", 3, 2), pm.HalfNormal("sigma", 1)
            kernel = (
                pm.gp.cov.Periodic(1, 1.0, ls) if name == "periodic" else pm.gp.cov.ExpQuad(1, ls)
            )
            f = pm.gp.Latent(cov_func=kernel).prior("f", x)
            pm.Normal("y", f, sigma, observed=y)
        results[name] = sg.integrate(model, **QUIET)
    table = sg.compare(results, loo=False)
    # truth
    assert table.index[0] == "periodic"
    assert table["weight"].iloc[0] > 0.99


NEW_PROCESS = """
import sys
import pymc as pm, xarray as xr
import pymc_skewgp as sg

with pm.Model():
    ls = pm.InverseGamma("ls", 3, 3)
    gp = sg.SkewGP(mean_func=pm.gp.mean.Constant(1), cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
dt = xr.open_datatree(sys.argv[1])
given = {"gp": gp, "likelihood": sg.likelihoods.Poisson(), "random_seed": 2, "progressbar": False}
new = sg.predict(dt, [[2.0], [5.0]], **given)
print(*new["predictions_summary"]["y_mean"].values)
"""


@SLOW
def test_save_load_predict(tmp_path):
    """A result is kept in a file, and a new process predicts from it."""
    rng = np.random.default_rng(SEED)
    x = np.linspace(0, 10, 80)[:, None]
    counts = rng.poisson(np.exp(1 + np.sin(x[:, 0])))
    file = tmp_path / "result.nc"
    # job
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 3)
        gp = sg.SkewGP(mean_func=pm.gp.mean.Constant(1), cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
    dt = sg.integrate(gp, x, counts, likelihood=sg.likelihoods.Poisson(), **QUIET)
    dt.to_netcdf(file)
    run = subprocess.run([sys.executable, "-c", NEW_PROCESS, file], capture_output=True, text=True)
    # truth
    new = np.array(run.stdout.split(), dtype=float)
    here = sg.predict(dt, [[2.0], [5.0]], random_seed=2, progressbar=False)["predictions_summary"]
    np.testing.assert_allclose(new, here["y_mean"], rtol=1e-12)
    # Some 16 rows a bend, of 7 and of 1 on average: .1 and .25 in the logarithm.
    assert np.abs(np.log(new) - (1 + np.sin([2.0, 5.0]))).max() < 0.5


@SLOW
def test_existing_latent_model():
    """A model written for NUTS, with another last line."""
    rng = np.random.default_rng(SEED)
    x = np.linspace(0, 10, 60)[:, None]
    truth = np.exp(1 + np.sin(x[:, 0]))
    counts = rng.poisson(truth)
    with pm.Model() as model:
        ls, eta, level = (
            pm.InverseGamma("ls", 3, 3),
            pm.HalfNormal("eta", 1),
            pm.Normal("level", 0, 2),
        )
        f = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=ls)).prior("f", x)
        mu = pm.Deterministic("mu", pm.math.exp(level + f))
        pm.NegativeBinomial("y", mu=mu, alpha=pm.Exponential("alpha", 0.1), observed=counts)
    # job
    idata = sg.integrate(model, **QUIET)
    # truth
    assert share_inside(truth, *moments(idata, "mu")) > 0.85
