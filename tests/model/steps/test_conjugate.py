"""`ConjugateStep`: where it is picked, what it draws, and that chains are reproducible."""

import pickle

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from pymc.exceptions import SamplingError
from pymc.sampling.mcmc import assign_step_methods
from step_models import (
    KNOTS,
    PHASE,
    X,
    Y,
    logit_model,
    prior,
    probit_model,
    rbf,
    sample,
    scaled_model,
    walk,
)

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
    model = probit_model()
    with pm.Model():
        assert list(assign_step_methods(model)[1]) == [ConjugateStep]
    with pm.Model() as unobserved:
        f = prior()
        BernoulliProbit("y", f)
    with pytest.warns(NotConjugateWarning, match="y, which depends on f, is not observed"):
        assert ConjugateStep not in assign_step_methods(unobserved)[1]
    observed = pm.observe(unobserved, {"y": Y[:6]})
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
    """n = 20. 2 x 4000 draws; the reference has 16384 weighted ones, errors .005 of an sd."""
    idata = sample(probit_model(20, s), draws=4000)
    exact = SkewGPPosterior(
        X,
        Y,
        cov_func=lambda a, b=None, diag=False: (
            np.full(len(a), 2.0) if diag else rbf(a[:, 0], (a if b is None else b)[:, 0], 0.8, 2.0)
        ),
        pseudo_points=KNOTS[:s] if s else None,
        phase=PHASE[:s] if s else None,
        n_draws=1 << 14,
    ).predict(X)["predictions_summary"]
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
        BernoulliProbit("y", prior(X[:8], 1) + b[np.arange(8) % 3], observed=Y[:8])
    return model


IN_CI = pytest.mark.slow(ci=True)


@pytest.mark.parametrize(
    ("make", "context"),
    [
        (scaled_model, "fork"),
        (logit_model, "fork"),
        pytest.param(effects_model, "spawn", marks=IN_CI),
        pytest.param(lambda: probit_model(s=2), "forkserver", marks=IN_CI),
    ],
)
def test_chains_are_the_same_in_other_processes(make, context):
    model = make()
    options = {"draws": 10}
    if make is logit_model:
        options["compile_kwargs"] = {"mode": PLAIN}  # numba takes seconds for each function
    alone = sample(model, **options).posterior
    together = sample(model, **options, cores=2, mp_ctx=context).posterior
    for name in alone.data_vars:
        # Round-off of BLAS may depend on its threads; the chains are the same.
        np.testing.assert_allclose(alone[name], together[name], rtol=1e-6, atol=1e-9)
    assert not np.array_equal(alone["f"][0], alone["f"][1])


def test_one_instance_serves_several_runs_and_reads_new_data():
    with pm.Model() as model:
        data = pm.Data("data", Y[:6])
        f = prior()
        BernoulliProbit("y", f, observed=data)
        step = ConjugateStep([f])
    first = sample(model, step=step).posterior["f"].values
    again = sample(model, step=step).posterior["f"].values
    np.testing.assert_array_equal(first, again)
    with model:
        pm.set_data({"data": 1 - Y[:6]})
    mirrored = sample(model, step=step, draws=1000).posterior["f"].values
    fresh = sample(model, draws=1000).posterior["f"].values
    np.testing.assert_array_equal(mirrored, fresh)
    # The prior is symmetric: exchanging the labels turns the posterior over. 4.5 errors of .03.
    assert np.abs(mirrored.mean(axis=(0, 1)) + first.mean(axis=(0, 1))).max() < 0.35


def test_a_step_does_not_write_into_the_point():
    model = probit_model()
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
    ("module", "make"), [(pickle, lambda: probit_model(s=2)), (cloudpickle, logit_model)]
)
def test_pickling(module, make):
    model = make()
    with model:
        step = ConjugateStep([model["f"]], n_proposals=5, compile_kwargs={"mode": PLAIN})
    copied = module.loads(cloudpickle.dumps(step))
    assert copied.n_proposals == 5
    ends = [walk(one, model, 40, seed=3)[-1]["f"] for one in (step, copied)]
    # Under sites functions are compiled anew: round-off.
    np.testing.assert_allclose(*ends, rtol=1e-6 if make is logit_model else 0.0)
    copied.sampling_state = step.sampling_state
    assert copied.sampling_state.n_proposals == 5


def test_wrong_use_is_refused():
    with pm.Model():
        f, g = prior(), pm.Normal("g")
        BernoulliProbit("y", f, observed=Y[:6])
        with pytest.raises(NotConjugateError, match="g is a Normal variable; ConjugateStep and"):
            ConjugateStep([g])
        with pytest.raises(ValueError, match="n_proposals must be at least 1"):
            ConjugateStep([f], n_proposals=0)


def test_a_covariance_that_is_none_at_the_start():
    with pm.Model() as model:
        scale = pm.Normal("scale", initval=-1.0)
        none = np.zeros((3, 0)), np.zeros(0), np.zeros((0, 0))
        f = UnifiedSkewNormal("f", 0.0, scale * pt.eye(3), *none)
        BernoulliProbit("y", f, observed=Y[:3])
        step = ConjugateStep([f])
    step.setup_chain(np.random.default_rng(0), 0, 1)
    with pytest.raises(SamplingError, match="ConjugateStep cannot move f at this point"):
        step.step(model.initial_point())


def test_a_part_drawn_by_weight_gives_one_warning(monkeypatch):
    model = probit_model(s=2)
    with model:
        step = ConjugateStep([model["f"]], rng=1)
    step.setup_chain(np.random.default_rng(0), 1, 10)
    monkeypatch.setattr(noise, "draw_by_rejection", lambda *args: None)
    point = model.initial_point()
    with pytest.warns(InexactStepWarning, match="by weight"):
        point, _ = step.step(point)
    step._blocks[0].forget()
    step.step(point)  # once: warnings are errors here
