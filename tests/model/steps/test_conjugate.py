"""`ConjugateStep`: where it is picked, what it draws, and that chains are reproducible."""

import pickle

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import step_models
from arviz_stats.base import array_stats
from pymc.exceptions import SamplingError
from pymc.sampling.mcmc import assign_step_methods
from scipy.stats import multivariate_normal, norm, poisson

import pymc_skewgp as sg
from pymc_skewgp._errors import InexactStepWarning, NotConjugateError, NotConjugateWarning
from pymc_skewgp._mcmc import augmentation as noise
from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.steps.sun_step import ConjugateStep
from pymc_skewgp._posterior.posterior import SkewGPPosterior

SIGMAS = 4.5


def test_it_is_picked_outside_of_a_context_too_and_for_copies_of_a_model():
    """PyMC asks with the variable alone, which is not of the model in context here."""
    model = step_models.probit_model()
    with pm.Model():
        assert list(assign_step_methods(model)[1]) == [ConjugateStep]
    with pm.Model() as unobserved:
        f = step_models.prior()
        BernoulliProbit("y", f)
    with pytest.warns(NotConjugateWarning, match="y, which depends on f, is not observed"):
        assert ConjugateStep not in assign_step_methods(unobserved)[1]
    observed = pm.observe(unobserved, {"y": step_models.Y[:6]})
    assert list(assign_step_methods(observed)[1]) == [ConjugateStep]
    assert ConjugateStep.competence(model["f"], True) == 0  # no model to be found


def assert_agrees(draws, mean, sd, unseen=0.0):
    """Mean and spread of draws (chain, draw, n) within Monte Carlo error, by their own ESS."""
    ess = array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean")
    error = sd / np.sqrt(ess)
    assert (np.abs(draws.mean(axis=(0, 1)) - mean) < SIGMAS * error + unseen).all()
    # sd of a sample variance: sqrt(2/ess) for a normal; these are near enough to it.
    ratio = draws.var(axis=(0, 1)) / sd**2
    assert (np.abs(ratio - 1.0) < SIGMAS * np.sqrt(3.0 / ess) + 2 * unseen).all()


@pytest.mark.parametrize("s", [0, 2])
def test_moments_agree_with_the_exact_posterior(s):
    """n = 20. 2 x 1500 draws; the reference has 16384 weighted ones, errors .005 of an sd."""
    idata = step_models.sample(step_models.probit_model(20, s), draws=1500)
    exact = SkewGPPosterior(
        step_models.X,
        step_models.Y,
        cov_func=lambda a, b=None, diag=False: (
            np.full(len(a), 2.0)
            if diag
            else step_models.rbf(a[:, 0], (a if b is None else b)[:, 0], 0.8, 2.0)
        ),
        pseudo_points=step_models.KNOTS[:s] if s else None,
        phase=step_models.PHASE[:s] if s else None,
        n_draws=1 << 14,
    ).predict(step_models.X)["predictions_summary"]
    mean, sd = exact["f_mean"].values, exact["f_sd"].values
    assert_agrees(idata.posterior["f"].values, mean, sd, unseen=0.01)
    stats = idata.sample_stats
    assert float(stats["accept"].mean()) > 0.9
    assert float(stats["relative_ess"].min()) > 0.9
    assert not stats["refreshed"].any()


def effects_model():
    """A function and effects of groups, whose level and scale are moved as well."""
    with pm.Model(coords={"group": list("abc")}) as model:
        b = pm.Normal("b", pm.Normal("level"), pm.HalfNormal("tau"), dims="group")
        BernoulliProbit(
            "y",
            step_models.prior(step_models.X[:8], 1) + b[np.arange(8) % 3],
            observed=step_models.Y[:8],
        )
    return model


IN_CI = pytest.mark.slow(ci=True)


@pytest.mark.parametrize(
    ("make", "context"),
    [
        (step_models.scaled_model, "fork"),
        (step_models.logit_model, "fork"),
        pytest.param(effects_model, "spawn", marks=IN_CI),
        pytest.param(lambda: step_models.probit_model(s=2), "forkserver", marks=IN_CI),
    ],
)
def test_chains_are_the_same_in_other_processes(make, context):
    model = make()
    options = {"draws": 10}
    if make is step_models.logit_model:
        options["compile_kwargs"] = {"mode": PLAIN}  # numba takes seconds for each function
    alone = step_models.sample(model, **options).posterior
    together = step_models.sample(model, **options, cores=2, mp_ctx=context).posterior
    for name in alone.data_vars:
        # Round-off of BLAS may depend on its threads; the chains are the same.
        np.testing.assert_allclose(alone[name], together[name], rtol=1e-6, atol=1e-9)
    assert not np.array_equal(alone["f"][0], alone["f"][1])


def test_one_instance_serves_several_runs_and_reads_new_data():
    with pm.Model() as model:
        data = pm.Data("data", step_models.Y[:6])
        f = step_models.prior()
        BernoulliProbit("y", f, observed=data)
        step = ConjugateStep([f])
    first = step_models.sample(model, step=step).posterior["f"].values
    again = step_models.sample(model, step=step).posterior["f"].values
    np.testing.assert_array_equal(first, again)
    with model:
        pm.set_data({"data": 1 - step_models.Y[:6]})
    mirrored = step_models.sample(model, step=step, draws=1000).posterior["f"].values
    fresh = step_models.sample(model, draws=1000).posterior["f"].values
    np.testing.assert_array_equal(mirrored, fresh)
    # The prior is symmetric: exchanging the labels turns the posterior over. 4.5 errors of .03.
    assert np.abs(mirrored.mean(axis=(0, 1)) + first.mean(axis=(0, 1))).max() < 0.35


def test_a_step_does_not_write_into_the_point():
    model = step_models.probit_model()
    with model:
        step = ConjugateStep([model["f"]])
    step.setup_chain(np.random.default_rng(0), 0, 10)
    point = model.initial_point()
    before = point["f"].copy()
    new, [stats] = step.step(point)
    np.testing.assert_array_equal(point["f"], before)
    assert not np.array_equal(new["f"], before)
    assert stats.keys() == ConjugateStep.stats_dtypes_shapes.keys()
    assert stats["refreshed"]
    _, [stats] = step.step(new)
    assert not stats["refreshed"]


@pytest.mark.parametrize(
    ("module", "make"),
    [(pickle, lambda: step_models.probit_model(s=2)), (cloudpickle, step_models.logit_model)],
)
def test_pickling(module, make):
    model = make()
    with model:
        step = ConjugateStep([model["f"]], n_proposals=5, compile_kwargs={"mode": PLAIN})
    copied = module.loads(cloudpickle.dumps(step))
    assert copied.n_proposals == 5
    ends = [step_models.walk(one, model, 40, seed=3)[-1]["f"] for one in (step, copied)]
    # Under sites functions are compiled anew: round-off.
    np.testing.assert_allclose(*ends, rtol=1e-6 if make is step_models.logit_model else 0.0)
    copied.sampling_state = step.sampling_state
    assert copied.sampling_state.n_proposals == 5


def test_wrong_use_is_refused():
    with pm.Model():
        f, g = step_models.prior(), pm.Normal("g")
        BernoulliProbit("y", f, observed=step_models.Y[:6])
        with pytest.raises(NotConjugateError, match="g is a Normal variable; ConjugateStep and"):
            ConjugateStep([g])
        with pytest.raises(ValueError, match="n_proposals must be at least 1"):
            ConjugateStep([f], n_proposals=0)


def test_a_covariance_that_is_none_at_the_start():
    with pm.Model() as model:
        scale = pm.Normal("scale", initval=-1.0)
        none = np.zeros((3, 0)), np.zeros(0), np.zeros((0, 0))
        f = UnifiedSkewNormal("f", 0.0, scale * pt.eye(3), *none)
        BernoulliProbit("y", f, observed=step_models.Y[:3])
        step = ConjugateStep([f])
    step.setup_chain(np.random.default_rng(0), 0, 1)
    with pytest.raises(SamplingError, match="ConjugateStep cannot move f at this point"):
        step.step(model.initial_point())


def test_a_part_drawn_by_weight_gives_one_warning(monkeypatch):
    model = step_models.probit_model(s=2)
    with model:
        step = ConjugateStep([model["f"]], rng=1)
    step.setup_chain(np.random.default_rng(0), 1, 10)
    monkeypatch.setattr(noise, "draw_by_rejection", lambda *args: None)
    point = model.initial_point()
    with pytest.warns(InexactStepWarning, match="by weight"):
        point, _ = step.step(point)
    step._blocks[0].forget()
    step.step(point)  # once: warnings are errors here


# `ConjugateStep(model=model)`: Gaussian variables without a SkewGP, against quadrature.


COUNTS = np.array([3, 0, 7, 2])


def _sampled(model, draws=200, tune=60):
    plainly = {"compile_kwargs": {"mode": PLAIN}}  # numba takes seconds for each function
    with model:
        step = sg.ConjugateStep(model=model, **plainly)
    options = {"tune": tune, "chains": 1, "step": step, "random_seed": 3}
    return step_models.sample(model, draws, **options, **plainly)["posterior"]


def _close_to(draws, mean, sd):
    """Within five errors of an ESS of a third of the draws, at least: seen are half and more."""
    return abs(float(np.mean(draws)) - mean) < 5 * sd / np.sqrt(draws.size / 3)


def _moments(x, density):
    weights = density / density.sum()
    mean = weights @ x
    return mean, np.sqrt(weights @ (x - mean) ** 2)


@pytest.mark.parametrize("centred", [True, False])
def test_effects_and_their_scale_beside_a_variable_of_another_step(centred):
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        effects = pm.Normal("effects", 0.0, s if centred else 1.0, shape=4)
        u = pm.Deterministic("u", effects if centred else s * effects)
        shifted = pm.Bernoulli("shifted", 0.4)
        pm.Poisson("y", pm.math.exp(1.0 + u - shifted), observed=COUNTS)
    found = _sampled(model)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    grid = np.linspace(1e-4, 6, 1501)
    u = grid[:, None] * nodes
    joint, first = [], []
    for shift, weight in ((0.0, 0.6), (1.0, 0.4)):
        rate = np.exp(1.0 - shift + u)
        terms = [poisson(rate).pmf(k) * weights for k in COUNTS]
        each = np.array([x.sum(axis=1) for x in terms])
        joint.append(weight * each.prod(axis=0) * norm.pdf(grid))
        first.append((terms[2] * u).sum(axis=1) / each[2])
    mean, sd = _moments(grid, sum(joint))
    assert _close_to(found["s"].values, mean, sd)
    share = joint[1].sum() / sum(joint).sum()
    assert _close_to(found["shifted"].values, share, np.sqrt(share * (1 - share)))
    third = sum((own * x).sum() for own, x in zip(joint, first, strict=True)) / sum(joint).sum()
    assert _close_to(found["u"].values[..., 2], third, found["u"].values[..., 2].std())


@pytest.mark.parametrize("kind", ["potential", "walk"])
def test_what_is_known_by_its_density_moves_its_scale_rightly(kind):
    y = np.array([0.3, 1.9, 1.2])
    with pm.Model() as model:
        s = pm.HalfNormal("s", 2.0)
        if kind == "walk":
            u = pm.GaussianRandomWalk("u", sigma=s, init_dist=pm.Normal.dist(0.0, 1.0), shape=3)
        else:
            u = pm.Normal("u", 0.0, s, shape=3)
            pm.Potential("sum", pm.logp(pm.Normal.dist(0.0, 0.2), u.sum()))
        pm.Normal("y", u, 0.5, observed=y)
    found = _sampled(model, 300)
    grid = np.linspace(1e-3, 12, 1200)
    density, at_data = [], []
    for scale in grid:
        if kind == "walk":
            i = np.arange(3)
            cov, log_constant = 1.0 + scale**2 * np.minimum(i[:, None], i), 0.0
        else:
            cov = np.linalg.inv(np.eye(3) / scale**2 + 1 / 0.04)
            log_constant = norm(0.0, np.sqrt(3 * scale**2 + 0.04)).logpdf(0.0)
        seen = cov + 0.25 * np.eye(3)
        log_density = multivariate_normal(np.zeros(3), seen).logpdf(y) + log_constant
        density.append(np.exp(log_density) * norm(0, 2).pdf(scale))
        at_data.append(cov @ np.linalg.solve(seen, y))
    mean, sd = _moments(grid, np.array(density))
    assert _close_to(found["s"].values, mean, sd)
    means = np.array(density) @ np.array(at_data) / np.sum(density)
    for i in range(3):
        own = found["u"].values[..., i]
        assert _close_to(own, means[i], own.std())


def test_a_flat_level_moves_beside_the_block():
    y = np.array([0.3, 1.9, 1.2, -0.4])
    with pm.Model() as model:
        b = pm.Flat("b")
        u = pm.Normal("u", 0.0, 0.5, shape=4)
        pm.Normal("y", b + u, 0.5, observed=y)
    found = _sampled(model)
    assert _close_to(found["b"].values, y.mean(), np.sqrt(0.5 / 4))


def test_nothing_changes_for_models_that_do_not_ask():
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, 1.0, shape=4)
        pm.Poisson("y", pm.math.exp(u), observed=COUNTS)
        _, methods = assign_step_methods(model)
    assert list(methods) == [pm.NUTS]


def test_a_model_without_gaussian_variables_is_refused():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0)
        pm.Poisson("y", rate, observed=COUNTS)
    with model, pytest.raises(sg.NotConjugateError, match="no variable of the model is Gaussian"):
        sg.ConjugateStep(model=model)


def test_a_predictor_beside_another_one_is_left_to_other_steps():
    """Given log deviations the mean is conjugate; moved together they would never be accepted."""
    with pm.Model() as model:
        f, g = pm.Normal("f", shape=12), pm.Normal("g", -1.0, 1.0, shape=12)
        pm.Normal("y", f, pm.math.exp(g), observed=np.arange(12.0))
        step = sg.ConjugateStep(model=model, compile_kwargs={"mode": PLAIN})
    assert [v.name for v in step.vars] == ["f"]
