"""What a user reads when a SkewGP variable has no exact step, and only then."""

import logging
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.exceptions import ImputationWarning
from pymc.sampling.mcmc import assign_step_methods
from scipy.special import roots_hermitenorm
from step_models import X, Y, prior, probit_model, sun_arguments, walk
from step_models import sample as sample_in_numba

from pymc_skewgp._errors import NotConjugateError, NotConjugateWarning, no_warnings
from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.steps.sun_step import ConjugateStep, LinESS

pytestmark = pytest.mark.usefixtures("in_python")


def coupled(f):
    pm.Poisson("y", pm.math.exp(f).cumsum(), observed=Y[:6])


def with_potential(f):
    BernoulliProbit("y", f, observed=Y[:6])
    pm.Potential("barrier", -(f[0] ** 2))


OTHERS = {
    "coupled": (coupled, "y, a Poisson variable, .*Cum"),
    "potential": (with_potential, "the potential barrier depends on f. Make f with"),
}


def model_of(build):
    with pm.Model() as model:
        build(prior())
    return model


def lines(caplog):
    return [r.getMessage() for r in caplog.records if "ConjugateStep" in r.getMessage()]


@pytest.mark.parametrize("case", OTHERS)
def test_the_reason_is_given(case, caplog):
    """In one line of the log each time, and in a warning once for a model."""
    build, reason = OTHERS[case]
    model = model_of(build)
    match = f"NUTS is to sample f as it stands.*{reason}"
    with caplog.at_level(logging.INFO, "pymc"):
        with pytest.warns(NotConjugateWarning, match=match) as caught:
            assign_step_methods(model)
        assign_step_methods(model)  # no second warning: it would be an error here
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert len(lines(caplog)) == 2
    assert lines(caplog)[0].startswith("f is not sampled by ConjugateStep: ")
    with pytest.warns(NotConjugateWarning):
        assign_step_methods(model_of(build))  # another model is another matter


# On some machines the two steps of this chain, which is not tuned, end beyond double precision.
@pytest.mark.filterwarnings("ignore:overflow encountered in dot:RuntimeWarning")
def test_pm_sample_says_so_unless_it_is_quiet(caplog):
    model = model_of(OTHERS["coupled"][0])
    run = {"draws": 2, "tune": 2, "chains": 1, "progressbar": False, "random_seed": 1}
    run |= {"model": model, "compute_convergence_checks": False, "nuts_sampler": "pymc"}
    with caplog.at_level(logging.INFO, "pymc"):
        with pytest.warns(NotConjugateWarning):
            pm.sample(quiet=True, **run)
        assert lines(caplog) == []
        pm.sample(**run)
    assert len(lines(caplog)) == 1


def test_a_step_that_the_user_chose_is_no_news(caplog):
    model = model_of(OTHERS["coupled"][0])
    with model, caplog.at_level(logging.INFO, "pymc"):
        step = pm.Metropolis([model["f"]])
        assert ConjugateStep not in assign_step_methods(model, step)[1]
    assert lines(caplog) == []


def test_no_word_where_all_is_well(caplog):
    with caplog.at_level(logging.INFO, "pymc"):
        assign_step_methods(probit_model())
        with pm.Model() as model:
            gp = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0))
            f = gp.prior("f", X[:6, None], reparameterize=True)
            pm.Poisson("y", pm.math.exp(f), observed=Y[:6])
        assign_step_methods(model)
    assert lines(caplog) == []


def test_warnings_that_are_kept_back_are_not_used_up():
    model = model_of(OTHERS["coupled"][0])
    with no_warnings():
        assign_step_methods(model)
    with pytest.warns(NotConjugateWarning):
        assign_step_methods(model)


def test_without_a_gradient_nuts_does_not_take_it(caplog):
    model = model_of(OTHERS["coupled"][0])
    with model, caplog.at_level(logging.INFO, "pymc"):
        assert ConjugateStep.competence(model["f"], False) == 0
    assert len(lines(caplog)) == 1


class TestOtherMethods:
    """They say in a sentence what to do for a function as it stands, and nothing for others."""

    @staticmethod
    def probit(reparameterize=False):
        with pm.Model() as model:
            gp = SkewGP(cov_func=pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(1, ls=1.0))
            f = gp.prior("f", X[:3, None], reparameterize=reparameterize)
            BernoulliProbit("y", f, observed=Y[:3])
        return model

    @pytest.mark.parametrize("sampler", ["nutpie", "numpyro", "blackjax"])
    def test_another_sampler(self, sampler):
        match = rf"nuts_sampler='{sampler}'.*ConjugateStep draws exactly. Leave nuts_sampler out"
        with pytest.raises(NotConjugateError, match=match):
            pm.sample(nuts_sampler=sampler, model=self.probit(), progressbar=False, quiet=True)

    # Warnings are errors here: nothing is compiled after one.
    def test_find_map(self):
        with self.probit(), pytest.raises(NotConjugateWarning, match=r"use find_hyperparameters\("):
            pm.find_MAP(progressbar=False, jitter=False, return_inferencedata=True)

    def test_fit(self):
        match = r"pm.fit hardly .*reparameterize=True\)"
        with self.probit(), pytest.raises(NotConjugateWarning, match=match):
            pm.fit(1, progressbar=False)

    def test_nutpie_by_itself(self):
        nutpie = pytest.importorskip("nutpie")
        match = r"nutpie samples .*, or use pm.sample, which draws it exactly where it can"
        with pytest.raises(NotConjugateWarning, match=match):
            nutpie.compile_pymc_model(self.probit())

    def test_no_word_where_pm_sample_turns_to_nutpie(self):
        """For a distribution that nothing was observed of it has nothing else to offer."""
        pytest.importorskip("nutpie")
        run = {"draws": 20, "tune": 20, "chains": 1, "cores": 1, "random_seed": 1, "quiet": True}
        with pm.Model(), pytensor.config.change_flags(linker="auto"):
            UnifiedSkewNormal("z", np.zeros(2), np.eye(2), [[0.5], [0.2]], [0.0], [[1.0]])
            drawn = pm.sample(progressbar=False, compute_convergence_checks=False, **run)
        assert drawn["posterior"].attrs["inference_library"] == "nutpie"

    def test_no_word_of_a_function_of_white_noise(self):
        with self.probit(reparameterize=True), warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pymc")  # of one iteration
            pm.find_MAP(maxiter=1, progressbar=False, jitter=False, return_inferencedata=True)

    @pytest.mark.parametrize("n", [8, 9])
    def test_many_hyperparameters(self, n, caplog):
        with pm.Model() as model:
            ls = pm.InverseGamma("ls", 3, 2, shape=n)
            gp = SkewGP(cov_func=pm.gp.cov.ExpQuad(n, ls=ls))
            BernoulliProbit("y", gp.prior("f", np.outer(X[:3], np.ones(n))), observed=Y[:3])
        with caplog.at_level(logging.INFO, "pymc"):
            chosen = assign_step_methods(model)[1]
        assert (pm.NUTS in chosen) == (n > 8)
        said = [line for line in lines(caplog) if line.startswith("ls: more than 8 numbers")]
        assert len(said) == n - 8
        if said:
            assert "step=ConjugateStep([f, ls])" in said[0]
            with model:
                assert "[ls]" in repr(ConjugateStep([model["f"], model["ls"]]))


# `ConjugateStep` under sites: when it is picked, what it moves, and chains by `pm.sample`.


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
