"""What a user reads when a SkewGP variable has no exact step, and only then."""

import logging

import pymc as pm
import pytest
from pymc.sampling.mcmc import assign_step_methods
from step_models import X, Y, prior, probit_model

from pymc_skewgp._errors import NotConjugateWarning, no_warnings
from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbit
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.steps.conjugate import ConjugateStep

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
