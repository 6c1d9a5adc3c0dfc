"""`LinESS`: the paper's sampler as a step method, and the warning drawn from its own draws."""

import logging

import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from pymc.stats.convergence import SamplerWarning, WarningType
from step_models import X, Y, prior, probit_model
from step_models import sample as sample_by

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._gaussian.weights import chain_relative_ess
from pymc_skewgp._model.steps.sun_step import LinESS

pytestmark = pytest.mark.usefixtures("in_python")


def sample(model, draws=200, n_steps=1, thin=1, **kwargs):
    with model:
        step = LinESS([model["f"]], n_steps=n_steps, thin=thin)
    return sample_by(model, draws, step=step, **kwargs)


def test_it_agrees_with_the_exact_step():
    """n = 4: 4.5 standard errors of the difference of the means, by the effective sample sizes."""
    model = probit_model(4, 2)
    draws = sample(model, draws=4000, n_steps=5).posterior["f"].values
    exact = sample_by(model, 4000).posterior["f"].values
    variance = 0.0
    for sampled in (draws, exact):
        ess = array_stats.ess(sampled, chain_axis=0, draw_axis=1, method="mean")
        variance = variance + sampled.var(axis=(0, 1)) / ess
    difference = draws.mean(axis=(0, 1)) - exact.mean(axis=(0, 1))
    assert (np.abs(difference) < 4.5 * np.sqrt(variance)).all()


def test_statistics():
    stats = sample(probit_model(6, 2)).sample_stats
    arcs = stats["arc_length"].values
    assert ((arcs > 0) & (arcs <= 2 * np.pi)).all()
    assert (stats["n_active"].values == 8).all()  # zero thresholds: every row always cuts
    assert not stats["refreshed"].any()
    assert "warning" not in stats


def test_more_steps_mix_better():
    """20 inner steps against 1: the effective sample size grows at least fivefold."""
    ess = [
        chain_relative_ess(sample(probit_model(20), n_steps=k, draws=500).posterior["f"].values)
        for k in (1, 20)
    ]
    assert ess[1] > 5 * ess[0]


def test_a_chain_that_hardly_moved_says_so(caplog):
    """Effective sample sizes below 100 a chain: a warning of PyMC's kind, logged once a chain."""
    with caplog.at_level(logging.WARNING, "pymc"):
        idata = sample(probit_model(20), keep_warning_stat=True, quiet=False)
    warnings = [w for w in idata.sample_stats["warning"].values.ravel() if w is not None]
    assert len(warnings) == 2
    assert all(isinstance(w, SamplerWarning) for w in warnings)
    assert warnings[0].kind is WarningType.CONVERGENCE
    draws = idata.posterior["f"].values
    for chain, warning in enumerate(warnings):
        assert warning.extra == pytest.approx(200 * chain_relative_ess(draws[[chain]]))
    logged = [
        r.message for r in caplog.records if "by lin-ess have an effective sample" in r.message
    ]
    assert len(logged) == 2
    assert logged[0].startswith("The 200 draws of f by lin-ess have an effective sample size")
    assert "raise n_steps (now 1), or let pm.sample pick ConjugateStep" in logged[0]


def test_short_chains_and_steps_by_hand_are_not_judged(caplog):
    model = probit_model(20)
    with caplog.at_level(logging.WARNING, "pymc"):
        sample(model, draws=50, quiet=False)
        sample(probit_model(2), draws=500, n_steps=20, quiet=False)  # one that moved
    assert not [r for r in caplog.records if "lin-ess" in r.message]
    with model:
        step = LinESS([model["f"]])
    point, [stats] = step.step(model.initial_point())  # no chain was set up
    assert stats["warning"] is None
    assert stats["refreshed"]
    assert point["f"].shape == (20,)


def test_wrong_use_is_refused():
    model = probit_model(6, 1)
    assert LinESS.competence(model["f"], True) == 0  # it is never picked by itself
    with pm.Model():
        f = prior(X[:3])
        pm.Bernoulli("y", logit_p=f, observed=Y[:3])
        with pytest.raises(NotConjugateError, match="y, which depends on f, is Bernoulli without"):
            LinESS([f])
        with pytest.raises(ValueError, match="n_steps must be at least 1"):
            LinESS([f], n_steps=0)
        with pytest.raises(ValueError, match="thin must be at least 1"):
            LinESS([f], thin=0)
