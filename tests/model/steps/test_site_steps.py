"""`ConjugateStep` under sites: when it is picked, what it moves, and chains by `pm.sample`."""

import warnings

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import ImputationWarning
from pymc.sampling.mcmc import assign_step_methods
from scipy.special import roots_hermitenorm
from step_models import X, Y, prior, sun_arguments, walk
from step_models import sample as sample_in_numba

from pymc_skewgp._errors import NotConjugateError, NotConjugateWarning
from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.analysis import blocks_under_rows_or_sites
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.steps.sun_step import ConjugateStep, LinESS

pytestmark = pytest.mark.usefixtures("in_python")

PLAINLY = {"mode": PLAIN}  # numba takes seconds for each function
COUNTS = np.array([0, 1, 3, 2, 0, 1])


def sample(model, draws=10, **kwargs):
    return sample_in_numba(model, draws, **{"tune": 5, "compile_kwargs": PLAINLY, **kwargs})


def assigned(model):
    _, selected = assign_step_methods(model)
    return {
        model.values_to_rvs[v].name: step.__name__ for step, own in selected.items() for v in own
    }


def test_effects_and_rows_join_the_block():
    """A label and a count of one function, and effects of groups that only the counts see."""
    with pm.Model() as model:
        f = prior()
        b = pm.Normal("b", shape=2)
        pm.Normal("apart")
        BernoulliProbit("label", f, observed=Y[:6])
        pm.Poisson("y", pm.math.exp(f + b[np.array([0, 1, 0, 1, 0, 1])]), observed=COUNTS)
    assert assigned(model) == {"f": "ConjugateStep", "b": "ConjugateStep", "apart": "NUTS"}
    idata = sample(model)
    assert idata.posterior["b"].shape == (2, 10, 2)
    assert np.isnan(idata.sample_stats["log_evidence"]).all()  # beside rows it is not known
    with model:
        part = ConjugateStep([f], collapse=False, compile_kwargs=PLAINLY)  # given b
        point, _ = part.step(model.initial_point())
    np.testing.assert_array_equal(point["b"], 0.0)
    assert (point["f"] != model.initial_point()["f"]).all()


def test_missing_counts_are_drawn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        with pm.Model() as model:
            f = prior()
            y = np.ma.masked_array(COUNTS, np.arange(6) == 2)
            pm.Poisson("y", pm.math.exp(f), observed=y)
    assert assigned(model) == {"f": "ConjugateStep", "y_unobserved": "ConjugateStep"}
    idata = sample(model, draws=400)
    drawn = idata.posterior["y_unobserved"].values.ravel()
    rate = np.exp(idata.posterior["f"].values[..., 2].ravel())
    # Given f: standardised differences have mean 0 and variance 1; 5 of their errors, 6e-7.
    z = (drawn - rate) / np.sqrt(rate)
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert np.unique(drawn).size > 3


def test_log_evidence_is_that_of_the_data():
    """One count, by Gauss-Hermite quadrature; 12 steps of 64 pairs are exact to 0.03.

    As a rule: one of some hundred steps is .1 to .5 above, where a pair has met the tail.
    """
    with pm.Model() as model:
        f = UnifiedSkewNormal("f", **sun_arguments(X[:1]))
        pm.Poisson("y", pm.math.exp(f), observed=[3])
        step = ConjugateStep([f], n_proposals=64, compile_kwargs=PLAINLY, rng=1)
    nodes, weights = roots_hermitenorm(80)
    f = np.sqrt(2.0 + 1e-6) * nodes
    exact = np.log(weights @ np.exp(3 * f - np.exp(f)) / np.sqrt(2 * np.pi) / 6.0)
    point, found = model.initial_point(), []
    for _ in range(12):
        point, (stats,) = step.step(point)
        found.append(stats["log_evidence"])
    assert abs(np.mean(found) - exact) < 0.03


def test_new_data_are_read():
    """A chain of the same step after `set_data`: 40 times the counts move f up."""
    with pm.Model() as model:
        f = prior()
        y = pm.Data("counts", COUNTS)
        pm.Poisson("y", pm.math.exp(f), observed=y)
        step = ConjugateStep([f], compile_kwargs=PLAINLY)
    means = []
    for factor in (1, 40):
        model.set_data("counts", factor * COUNTS)
        # From a start that is twenty deviations away.
        means.append(np.mean([point["f"] for point in walk(step, model, 40)[20:]]))
    assert means[1] > means[0] + 1.0


def test_refusals():
    with pm.Model() as model:
        f = prior()
        pm.Poisson("y", pm.math.exp(f), observed=COUNTS)
        with pytest.raises(NotConjugateError, match="y, which depends on f, is Poisson"):
            LinESS([f])
        g = UnifiedSkewNormal("g", **sun_arguments(X[:6]))
        pm.Poisson("z", pm.math.exp(g).cumsum(), observed=COUNTS)
        with pytest.raises(NotConjugateError, match="z, a Poisson variable"):
            ConjugateStep([g])
        with pytest.warns(NotConjugateWarning, match="g as it stands"):
            assert assigned(model) == {"f": "ConjugateStep", "g": "NUTS"}


def test_a_potential_keeps_an_effect_out_of_the_block_of_a_function():
    """The block of a SkewGP has no place for it: it would be left out of the density."""
    with pm.Model() as model:
        f = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0)).prior("f", np.arange(4.0)[:, None])
        b = pm.Normal("b", shape=4)
        pm.Potential("sum", -50.0 * (b.sum() - 2.0) ** 2)
        pm.Poisson("y", pm.math.exp(f + b), observed=[1, 0, 2, 3])
    (block,) = blocks_under_rows_or_sites(model)
    assert [x.name for x in block.members] == ["f"]
    assert "sum" not in block.below
