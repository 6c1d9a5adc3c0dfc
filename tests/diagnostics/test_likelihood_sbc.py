"""Simulation-based calibration of the exact posterior under every likelihood.

A function is drawn from the prior, data given it by SciPy (not by the likelihood itself), and
its place among draws of the posterior is to be uniform: of f at one point, of the mean of f, and
of the log likelihood, by the Kolmogorov-Smirnov test at 1e-4 each. A right posterior is called
wrong with probability 3e-4 for a new seed, never for the seed fixed here. With 300 simulations a
gap of .13 between the distribution of places and the uniform one is found.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import likelihood_cases
import numpy as np
import pymc as pm
import pytest
from likelihood_cases import sets
from scipy.stats import kstest

import pymc_skewgp as sg
from pymc_skewgp import likelihoods, sbc
from pymc_skewgp._diagnostics.approximations import METHODS, from_draws
from pymc_skewgp._diagnostics.comparison import draw_prior

SIZE = 1e-4
N = 25
X = np.linspace(-2.5, 2.5, N)[:, None]
SIGMA = np.random.default_rng(18).uniform(0.2, 1.0, N)
PAIRS = sets(N, 2)


class Case(NamedTuple):
    """A likelihood, how its data are drawn given f, and data of their form."""

    likelihood: Any
    simulate: Callable[[Any, np.random.Generator], Any]
    y: Any = None


def of_row(case):
    """Of the table of likelihoods, with numbers for each observation where there are any."""
    arguments = case.arguments_of(N)
    return Case(case.kind(**arguments), partial(case.draw, **arguments), case.data(N))


# A likelihood to a power generates no data, and a constraint has none.
CASES = {
    name: of_row(case)
    for name, case in likelihood_cases.CASES.items()
    if name not in ("Weighted", "Constraint")
}


def process(s=0):
    """Of standard deviation 1.5, with a mean, and conditioned on its signs at `s` points."""
    known = {"mean_func": pm.gp.mean.Constant(0.3), "cov_func": 2.25 * pm.gp.cov.ExpQuad(1, ls=1.0)}
    if s:
        known |= {"pseudo_points": [[-0.9], [1.1]], "phase": [1, -1], "truncation": [0.3, 0.0]}
    return sg.SkewGP(**known)


def run(case, s=0, **options):
    """Places of the truth, by quantity, (n_simulations,) each."""
    options = {"n_simulations": 300, "draws": 39, "random_seed": 7, **options}
    known = {"likelihood": case.likelihood, "simulate": case.simulate, "progressbar": False}
    found = sbc(process(s), X, case.y, **known, **options)["prior_sbc"]
    at_point = found["f"].isel(chain=0, obs_id=N // 2).values
    averages = found["f_mean"].isel(chain=0).values
    first = (slice(None), *(0,) * (at_point.ndim - 1))  # of functions that are alike
    log_likelihood = found["log_likelihood"].values[0]
    return {"f": at_point[first], "f_mean": averages[first], "log_likelihood": log_likelihood}


def p_values(places):
    return {name: kstest(place, "uniform").pvalue for name, place in places.items()}


# Of the others parts are calibrated by these, and posteriors are compared with quadrature.
IN_CI = ("Ranking", "MultinomialProbit")
BOTH = [(name, s) for name in CASES for s in (0, 2)]


def kind(name, s):
    return pytest.mark.slow(ci=True) if s == 0 and name in IN_CI else pytest.mark.slow


@pytest.mark.parametrize(("name", "s"), [pytest.param(*case, marks=kind(*case)) for case in BOTH])
def test_places_are_uniform(name, s):
    found = p_values(run(CASES[name], s))
    assert min(found.values()) > SIZE, found


def prior_alone(problem):
    """Draws of the prior, whatever the data say."""
    rng = np.random.default_rng(problem.seed)
    return from_draws(problem, draw_prior(problem.prior, problem.X, problem.draws, rng)[None])


def test_the_prior_alone_is_found_by_the_log_likelihood_only():
    """As the documentation says; the gap of the log likelihood's places is above .3."""
    case = CASES["Gaussian"]
    found = p_values(run(case, n_simulations=60, method=prior_alone))
    assert found["log_likelihood"] < SIZE < min(found["f"], found["f_mean"])


class TestArguments:
    """Of what is simulated."""

    def run(self, *args, **kwargs):
        options = {"n_simulations": 3, "draws": 4, "random_seed": 1, "progressbar": False}
        return sbc(process(), X, *args, **{**options, **kwargs})

    def test_the_likelihood_simulates_by_default(self):
        """New values at its own noise: those of the last point are all but f."""
        sigma, seen = np.append(np.ones(N - 1), 1e-9), []

        def watch(problem):
            seen.append(problem)
            return METHODS["exact"](problem)

        self.run(likelihood=likelihoods.Gaussian(sigma), method=watch)
        y = np.array([problem.labels for problem in seen])
        assert y.shape == (3, N)
        assert np.unique(y).size == y.size
        # Places of f where it is known to 1e-9 are as random as elsewhere, and draws are at y.
        np.testing.assert_allclose(seen[0].posterior.marginals().moments.mean[-1], y[0, -1])

    def test_parameters_that_are_random_variables(self):
        with pm.Model():
            noise = pm.HalfNormal("noise")
        known = self.run(likelihood=likelihoods.Gaussian(0.7))
        found = self.run(likelihood=likelihoods.Gaussian(noise), point={"noise": 0.7})
        np.testing.assert_allclose(found["prior_sbc"]["f"], known["prior_sbc"]["f"])

    def test_results_have_names(self):
        found = self.run()["prior_sbc"]
        assert {name: found[name].dims for name in found} == {
            "f": ("chain", "draw", "obs_id"),
            "f_mean": ("chain", "draw"),
            "log_likelihood": ("chain", "draw"),
        }
        assert sg.coverage(self.run(), var="log_likelihood")["mean"].dims == ("prob",)

    def test_several_functions(self):
        """Named as the likelihood names them; data of all of them."""
        kinds = likelihoods.MultinomialProbit(categories=["a", "b", "c"])
        seen = []

        def watch(problem):
            seen.append(problem)
            return METHODS["exact"](problem)

        tree = self.run(likelihood=kinds, method=watch)
        assert sg.coverage(tree)["coverage"].dims == ("prob", "obs_id", "category")
        found = tree["prior_sbc"]
        assert found["f"].dims == ("chain", "draw", "obs_id", "category")
        assert found["f_mean"].dims == ("chain", "draw", "category")
        assert found["log_likelihood"].dims == ("chain", "draw")
        assert found["category"].values.tolist() == ["a", "b", "c"]
        assert set(np.unique([problem.labels for problem in seen])) == {0, 1, 2}

    def test_items_that_are_compared(self):
        """The pairs of `y`, with other winners."""
        seen = []

        def watch(problem):
            seen.append(problem.labels)
            return METHODS["exact"](problem)

        found = self.run(PAIRS, likelihood=likelihoods.Preference(0.5), method=watch)["prior_sbc"]
        assert found["f"].shape == (1, 3, N)
        for labels in seen:
            np.testing.assert_array_equal(np.sort(labels, axis=1), np.sort(PAIRS, axis=1))
        assert not np.array_equal(seen[0], seen[1])

    GAUSSIAN, CLASSES = likelihoods.Gaussian(1.0), likelihoods.MultinomialProbit(3)
    REFUSED = {  # noqa: RUF012
        r"form that is simulated\. y must have": {"likelihood": likelihoods.Ranking()},
        r"Constraint.* has no data to simulate": {"likelihood": likelihoods.Constraint(lower=0.0)},
        "simulate must be a function of f and rng, got 3": {"simulate": 3},
        r"y must have shape \(25,\)": {"simulate": lambda f, rng: f[:3], "likelihood": GAUSSIAN},
        "method 'advi' does not know .*use one of": {"likelihood": GAUSSIAN, "method": "advi"},
        "method 'ep' does not know .*use one of": {"likelihood": CLASSES, "method": "ep"},
    }

    @pytest.mark.parametrize("message", REFUSED)
    def test_what_cannot_be_simulated(self, message):
        with pytest.raises((TypeError, ValueError), match=message):
            self.run(**self.REFUSED[message])

    @pytest.mark.parametrize("method", ["ep", "laplace"])
    def test_a_gaussian_likelihood_is_exact_for_gaussian_methods(self, method):
        """The same data for the same seed; places among 400 draws within 4.5 binomial errors."""
        known = likelihoods.Gaussian(SIGMA)
        found, drawn = (
            self.run(likelihood=known, method=name, draws=400)["prior_sbc"]["f"].values
            for name in (method, "exact")
        )
        error = np.sqrt(np.maximum(found * (1.0 - found), 1.0 / 400) / 400)
        assert (np.abs(found - drawn) < 4.5 * error + 1.0 / 400).all()
