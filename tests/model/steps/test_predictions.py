"""Missing data and predictions in models: they say nothing of f, and are drawn given it."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ordered
from pymc.exceptions import ImputationWarning
from pymc.sampling.mcmc import assign_step_methods
from scipy.stats import binomtest, chisquare, kstest, norm
from step_models import X, analyse, prior, rows, sample, sun_arguments, walk

import pymc_skewgp as sg
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.graph.collapsed import collapse_model
from pymc_skewgp._model.steps.sun_step import Predictions
from pymc_skewgp._observations.observations import as_matrix

pytestmark = pytest.mark.usefixtures("in_python")

N = 6
DRAWS = 600
MISSING = np.array([0, 0, 1, 0, 1, 0], dtype=bool)
LEVELS = np.array([0, 2, 1, 1, 0, 2])
VALUES = np.array([-0.3, 0.6, 0.4, 1.0, -0.8, 2.0])
TRIALS = np.array([3, 2, 1, 4, 2, 3])
SD = np.linspace(0.2, 1.0, N)
PAIRS = np.array([[0, 1], [2, 3], [4, 0], [1, 5], [0, 3], [2, 5]])
SETS = np.array([[0, 1, 2], [3, 1, 5], [2, 4, 0], [0, 1, 3], [5, 4, 2], [1, 2, 3]])

# From f, data, and the rows that are there to the observed variable.
CASES = {
    "probit": (lambda f, y, k: sg.BernoulliProbit("y", f[k], observed=y), LEVELS % 2),
    "binomial": (
        lambda f, y, k: pm.Binomial("y", TRIALS[k], pm.math.invprobit(f[k]), observed=y),
        np.minimum(LEVELS, TRIALS),
    ),
    "normal": (lambda f, y, k: pm.Normal("y", f[k], SD[k], observed=y), VALUES),
    "censored": (
        lambda f, y, k: pm.Censored("y", pm.Normal.dist(f[k], SD[k]), 0.0, None, observed=y),
        np.maximum(VALUES, 0.0),
    ),
    "ordered": (
        lambda f, y, k: pm.OrderedProbit(
            "y", f[k], (np.arange(N)[:, None] / 9 + [-0.5, 0.5])[k], sigma=SD[k], observed=y
        ),
        LEVELS,
    ),
    "interval": (
        lambda f, y, k: sg.IntervalNormal("y", f[k], SD[k], VALUES[k], 3.0, observed=y),
        VALUES,
    ),
    "preference": (
        lambda f, y, k: sg.PreferenceProbit("y", f, PAIRS[k], threshold=0.3, observed=y),
        LEVELS - 1,
    ),
    "choice": (lambda f, y, k: sg.ChoiceProbit("y", f[SETS[k]], 0.5, observed=y), LEVELS),
    "classes": (lambda f, y, k: sg.MultinomialProbit("y", f[SETS[k]], observed=y), LEVELS),
}


def model_of(observe, *args):
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        observe(prior(X[:N]), *args)
    return model


def with_missing(name):
    observe, data = CASES[name]
    return model_of(observe, np.ma.masked_array(data, mask=MISSING), np.arange(N))


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_data_that_are_there(name):
    observe, data = CASES[name]
    model = with_missing(name)
    found = rows(model)
    wanted = rows(model_of(observe, data[~MISSING], np.flatnonzero(~MISSING)))
    a, b = (as_matrix(x.A, x.n_rows) for x in (found, wanted))
    np.testing.assert_array_equal(a, b)
    for part in ("a", "S", "lower", "upper", "value"):
        np.testing.assert_array_equal(getattr(found, part), getattr(wanted, part))
    steps = assign_step_methods(model)[1]
    assert {v.name for v in steps.pop(sg.ConjugateStep)} == {
        "f",
        model.rvs_to_values[model["y_unobserved"]].name,
    }
    assert not steps


@pytest.mark.parametrize("name", sorted(set(CASES) - {"interval"}))
def test_draws_have_the_distribution_of_the_data(name):
    """The first of the missing data, at one f, 600 times; p-values above 1e-5."""
    model = with_missing(name)
    y = model["y_unobserved"]
    point = model.initial_point() | {"f": np.linspace(-1.0, 1.3, N)}
    predictions, rng = Predictions(model, [y]), np.random.default_rng(1)
    value = model.rvs_to_values[y].name
    drawn = np.array([predictions.draw(point, rng)[value][0] for _ in range(DRAWS)])
    i = np.flatnonzero(MISSING)[0]
    if name in ("normal", "censored"):
        cdf = norm(point["f"][i], SD[i]).cdf
        if name == "censored":
            assert (drawn >= 0).all()
            assert binomtest((drawn == 0).sum(), DRAWS, cdf(0.0)).pvalue > 1e-5
            drawn, cdf = drawn[drawn > 0], lambda v, of=cdf: (of(v) - of(0.0)) / (1 - of(0.0))
        assert kstest(drawn, cdf).pvalue > 1e-5
        return
    logp = model.compile_logp(vars=[y], sum=False, mode="FAST_COMPILE")
    outcomes = (-1, 0, 1) if name == "preference" else (0, 1, 2, 3)
    like = np.zeros(MISSING.sum(), dtype=int)
    with np.errstate(all="ignore"):
        log_p = [logp(point | {value: like + c})[0][0] for c in outcomes]
    expected = DRAWS * np.exp(log_p)
    there = expected > 0
    counts = np.array([(drawn == c).sum() for c in outcomes])[there]
    assert counts.sum() == DRAWS
    assert chisquare(counts, expected[there] / expected.sum() * DRAWS).pvalue > 1e-5


def test_hyperparameters_do_not_see_missing_data():
    """They are moved, and learnt, by the data that are there: the density is without the others."""

    def observe(f, y):
        sigma = pm.HalfNormal("sigma")
        cuts = pm.Normal("cuts", [-0.5, 0.5], 1.0, shape=2, transform=ordered)
        pm.Normal("y", f, sigma, observed=y)
        pm.OrderedProbit("z", f, cuts, observed=np.ma.masked_array(LEVELS, mask=MISSING))

    model = model_of(observe, np.where(MISSING, np.nan, VALUES))
    block = analyse(model, model["f"])
    assert {x.name for x in block.predicted} == {"y_unobserved", "z_unobserved"}
    assert {x.name for x in block.rest} == {"sigma", "cuts"}
    assert {x.name for x in collapse_model(model).rest} == {"sigma", "cuts"}
    assert len(assign_step_methods(model)[1]) == 1


def test_predictions_of_several_variables():
    """A variable of two functions, and a vector with a transform."""
    with pm.Model() as model:
        f, g = prior(X[:N]), UnifiedSkewNormal("g", **sun_arguments(X[:3]))
        sg.BernoulliProbit("y", f, observed=LEVELS % 2)
        sg.BernoulliProbit("z", g, observed=LEVELS[:3] % 2)
        pm.Gamma("r", 2.0, pm.math.exp(f[0] + g[0]))
        pm.Dirichlet("p", pt.exp(f[:3]))
        step = sg.ConjugateStep([f, g])
    names = ["f", "g", "r_log__", "p_simplex__"]
    assert sorted(v.name for v in step.vars) == sorted(names)
    path = walk(step, model, 300)
    seen = [point["r_log__"] + point["f"][0] + point["g"][0] for point in path]
    assert path[-1]["p_simplex__"].shape == (2,)
    # exp of these are gamma variables of shape 2 and rate 1, whatever f and g are.
    assert kstest(np.exp(seen), "gamma", args=(2.0,)).pvalue > 1e-5


class TestAnyDepth:
    """The function at new inputs, values of it with noise of their own, and labels of these."""

    new = np.array([[-1.5], [0.4], [3.0]])
    gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))

    def model(self, observe, potential=False):
        with pm.Model() as model:
            f = self.gp.prior("f", X[:N, None])
            observe(f)
            fn = self.gp.conditional("fn", self.new)
            pm.Deterministic("p", pm.math.invprobit(pm.Normal("z", fn, pm.HalfNormal("s"))))
            sg.BernoulliProbit("labels", model["z"])
            if potential:
                pm.Potential("seen", -pt.sqr(model["z"]).sum())
        return model

    @pytest.mark.parametrize("kind", ["rows", "sites"])
    def test_they_are_drawn_forward(self, kind):
        def observe(f):
            if kind == "rows":
                pm.Normal("y", f, 0.5, observed=VALUES)
            else:
                pm.Poisson("y", pm.math.exp(f), observed=LEVELS)

        likelihood = sg.likelihoods.Gaussian(0.5) if kind == "rows" else sg.likelihoods.Poisson()
        data = VALUES if kind == "rows" else LEVELS
        exact = (
            self.gp.posterior(X[:N, None], data, likelihood=likelihood).marginals(self.new).moments
        )
        model = self.model(observe)
        with model:
            step = sg.ConjugateStep([model["f"]])
        idata = sample(model, 500, tune=50, step=step, chains=1, random_seed=3)
        assert {x.name for x in step.vars} == {"f", "fn", "z", "s_log__", "labels"}
        drawn = idata["posterior"]
        fn = drawn["fn"].to_numpy()[0]
        # Some 300 effective draws under sites, 500 under rows: five standard errors, 3e-6.
        assert (np.abs(fn.mean(axis=0) - exact.mean) < 5 * exact.sd / np.sqrt(300)).all()
        # Noise of the values: given fn and s they are normal.
        z = (drawn["z"].to_numpy()[0] - fn) / drawn["s"].to_numpy()[0, :, None]
        assert kstest(z.ravel(), "norm").pvalue > 1e-4
        assert kstest(drawn["s"].to_numpy().ravel(), "halfnorm").pvalue > 1e-4
        p = drawn["p"].to_numpy() - drawn["labels"].to_numpy()
        assert abs(p.mean()) < 5 * 0.5 / np.sqrt(p.size)

    def test_pm_sample_leaves_nothing_to_nuts(self):
        model = self.model(lambda f: sg.BernoulliProbit("y", f, observed=LEVELS % 2))
        with model:
            steps, chosen = assign_step_methods(model)
        assert not steps
        assert set(chosen) == {sg.ConjugateStep}

    def test_what_a_potential_sees_is_no_prediction(self):
        model = self.model(lambda f: pm.Normal("y", f, 0.5, observed=VALUES), potential=True)
        with model, pytest.raises(sg.NotConjugateError):
            sg.ConjugateStep([model["f"]])

    def test_integrate_draws_them_forward(self):
        model = self.model(lambda f: pm.Normal("y", f, 0.5, observed=VALUES))
        found = sg.integrate(model, draws=200, chains=2, random_seed=1, progressbar=False)
        drawn = found["posterior"]
        assert set(drawn.data_vars) == {"f", "fn", "labels", "p", "s", "z"}
        posterior = self.gp.posterior(X[:N, None], VALUES, likelihood=sg.likelihoods.Gaussian(0.5))
        exact = posterior.marginals(self.new).moments
        fn = drawn["fn"].to_numpy().reshape(-1, 3)
        # Independent draws: five standard errors, 2e-6.
        assert (np.abs(fn.mean(axis=0) - exact.mean) < 5 * exact.sd / np.sqrt(len(fn))).all()
        z = (drawn["z"].to_numpy() - drawn["fn"].to_numpy()) / drawn["s"].to_numpy()[..., None]
        assert kstest(z.ravel(), "norm").pvalue > 1e-4
        later = pm.sample_posterior_predictive(
            found, var_names=["fn", "labels"], model=model, progressbar=False, random_seed=2
        )
        assert later["posterior_predictive"]["fn"].shape[-1] == 3
