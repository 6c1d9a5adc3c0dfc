"""Likelihoods recognised in a model's graph: near misses, impossible data, rows by hand."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ordered
from step_models import X, analyse, prior, rows

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.probit import ChoiceProbit, PreferenceProbit
from pymc_skewgp._model.graph.links import link_of
from pymc_skewgp._model.graph.sites import find_observed

pytestmark = pytest.mark.usefixtures("in_python")

N = 6
LEVELS = np.array([0, 2, 1, 1, 0, 2])
VALUES = np.array([-0.3, 0.6, 0.4, 1.0, -0.8, 2.0])
INF = np.inf


def rows_of(build):
    """Observations at the initial point, of a model in which `build` is called with f."""
    with pm.Model() as model:
        f = prior(X[:N])
        build(f)
    return rows(model)


def refused(build):
    with pm.Model() as model:
        f = prior(X[:N])
        build(f)
    with pytest.raises(NotConjugateError) as caught:
        find_observed(model, f)
    return caught.value


class TestProbitLink:
    eta = pt.dvector("eta")

    @pytest.mark.parametrize(
        "p",
        [
            pm.math.invprobit(2.0 * eta - 1.0)[::-1],
            pt.erfc(-0.3 * eta) * 0.5,
            0.5 * (1 + pt.erf(eta / np.sqrt(2))),
            1 - pm.math.invprobit(eta),
            0.5 * (1 - pt.erf(eta / np.sqrt(2))),
            pm.math.exp(pm.logcdf(pm.Normal.dist(0.3, 2.0), eta)),
            pm.math.invprobit(eta).reshape((2, 2)).T,
        ],
    )
    def test_is_the_inverse_of_the_link(self, p):
        predictor = link_of(p).probit
        assert predictor is not None
        at = np.array([-1.0, 0.2, 0.7, 2.0])
        found, expected = (x.eval({self.eta: at}) for x in (pm.math.invprobit(predictor), p))
        # A root of two in single precision is 1e-8 off.
        np.testing.assert_allclose(found, expected, rtol=1e-7)

    @pytest.mark.parametrize(
        "p",
        [
            eta,
            pm.math.sigmoid(eta),
            0.4 * pt.erfc(eta),
            0.5 * (1.1 + pt.erf(eta)),
            0.5 * (1 + pt.erfc(eta)),
            0.5 * pt.exp(eta),
            2 - pm.math.invprobit(eta),
            0.1 + 0.8 * pm.math.invprobit(eta),
            pm.math.exp(pm.logcdf(pm.Laplace.dist(0.0, 1.0), eta)),
            pm.math.exp(pm.logp(pm.Normal.dist(), eta)),
            pm.math.exp(eta / 2.0 - 1.0),
        ],
    )
    def test_near_misses(self, p):
        link = link_of(p)
        assert link is None or link.probit is None


CUTS = {
    "constant": [-0.5, 0.7],
    "random": [-1.0, 1.0],
    "one": [0.1],
    "for each": np.linspace(-1, 1, 2) + np.arange(N)[:, None],
}


class TestOrderedProbit:
    @pytest.mark.parametrize(
        ("cuts", "scale", "compute_p"),
        [
            ("constant", None, True),
            ("constant", 2.0, False),
            ("random", "random", True),
            ("random", None, False),
            ("one", 2.0, True),
            ("for each", "random", False),
        ],
    )
    def test_arguments_are_found(self, compute_p, scale, cuts):
        """However they are given; eta itself holds differences and quotients."""
        levels = np.minimum(LEVELS, 1) if cuts == "one" else LEVELS

        def build(f):
            sigma = pm.HalfNormal("sigma", initval=1.5) if scale == "random" else scale
            c = CUTS[cuts]
            if cuts == "random":
                c = pm.Normal("c", c, shape=2, transform=ordered)
            more = {} if sigma is None else {"sigma": sigma}
            eta = (f - f[0]) / 3.0 - 1.0
            pm.OrderedProbit("y", eta, c, compute_p=compute_p, observed=levels, **more)

        found = rows_of(build)
        inner = np.broadcast_to(CUTS[cuts], (N, np.shape(CUTS[cuts])[-1]))
        edges = np.hstack([np.full((N, 1), -INF), inner, np.full((N, 1), INF)])
        np.testing.assert_allclose(found.lower, edges[np.arange(N), levels])
        np.testing.assert_allclose(found.upper, edges[np.arange(N), levels + 1])
        variance = {None: 1.0, 2.0: 4.0, "random": 2.25}[scale]
        np.testing.assert_allclose(found.S, np.full(N, variance))
        np.testing.assert_allclose(found.a, -1.0)
        np.testing.assert_allclose(found.A, (np.eye(N) - np.eye(N)[0]) / 3.0)

    def test_other_categorical_variables(self):
        for p in (
            lambda f: pm.math.softmax(pt.stack([f, -f], axis=1), axis=1),
            lambda f: pm.OrderedLogistic.compute_p(f, [-0.5, 0.5]),
            lambda f: pt.exp(pt.stack([pt.log(0.3) + f, f - 1.0], axis=1)),
            lambda f: pm.OrderedProbit.compute_p(f, [-0.5, 0.5], 1.0)[:, ::-1],
        ):
            error = refused(lambda f, p=p: pm.Categorical("y", p(f), observed=LEVELS))
            assert "y, which depends on f, is Categorical" in error.reason


PAIRS = np.array([[0, 1], [2, 3]])
IMPOSSIBLE = {
    "levels": (
        lambda f, y: pm.OrderedProbit("y", f, [-0.5, 0.5], observed=y),
        [0, 1, 2, 3, 0, 1],
        "y must be categories from 0 to the number of cut-points",
    ),
    "successes": (
        lambda f, y: pm.Binomial("y", n=3, p=pm.math.invprobit(f), observed=y),
        [0, 1, 2, 3, 4, 0],
        "y must be numbers of successes from 0 to n",
    ),
    "below a limit": (
        lambda f, y: pm.Censored("y", pm.Normal.dist(f, 1.0), 0.0, None, observed=y),
        [0.0, 1.0, -0.1, 0.0, 2.0, 0.0],
        "y must lie between lower and upper of pm.Censored",
    ),
    "tie": (
        lambda f, y: PreferenceProbit("y", f, PAIRS, observed=y),
        [1, 0],
        "y hold 0, a tie, which needs threshold > 0",
    ),
    "outcome": (
        lambda f, y: PreferenceProbit("y", f, PAIRS, observed=y),
        [1, 2],
        "y must be 1 where the first item of a pair won",
    ),
    "alternative": (
        lambda f, y: ChoiceProbit("y", f[PAIRS], observed=y),
        [1, 2],
        "y must be indices of alternatives, from 0 to their number less 1",
    ),
    "not positive": (
        lambda f, y: pm.LogNormal("y", f, 1.0, observed=y),
        [1.0, 1.0, 0.0, 2.0, 2.0, 1.0],
        r"y must be finite and positive, got \[0",
    ),
    "negative trials": (
        lambda f, y: pm.Binomial("y", n=-3, p=pm.math.invprobit(f), observed=y),
        [0, 0, 0, 0, 0, 0],
        "y must be numbers of successes from 0 to n",
    ),
    "limits in the wrong order": (
        lambda f, y: pm.Censored("y", pm.Normal.dist(f, 1.0), 1.0, 1.0, observed=y),
        [1.0] * N,
        "lower of y must be below upper",
    ),
    "cut-points in the wrong order": (
        lambda f, y: pm.OrderedProbit("y", f, [0.5, -0.5], observed=y),
        [0, 1, 2, 2, 0, 1],
        "the cut-points of y must increase",
    ),
    "threshold": (
        lambda f, y: PreferenceProbit("y", f, PAIRS, threshold=-0.1, observed=y),
        [1, -1],
        "the threshold of y must not be negative",
    ),
    "covariance": (
        lambda f, y: pm.MvNormal("y", f, cov=np.eye(N) - 0.5, observed=y),
        [1.0] * N,
        "the covariance of y must be positive definite",
    ),
    "infinite": (
        lambda f, y: pm.Normal("y", f, 1.0, observed=y),
        [0.0, 1.0, INF, 0.0, 2.0, 0.0],
        r"y must be finite: leave others out, got \[inf",
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_data(name):
    build, data, message = IMPOSSIBLE[name]
    with pytest.raises(ValueError, match=message):
        rows_of(lambda f: build(f, np.array(data)))


NOISE = {
    "normal": lambda f, sd: pm.Normal("y", f, sd, observed=VALUES),
    "lognormal": lambda f, sd: pm.LogNormal("y", f, sd, observed=np.exp(VALUES)),
    "censored": lambda f, sd: pm.Censored(
        "y", pm.Normal.dist(f, sd), -0.5, None, observed=np.maximum(VALUES, -0.5)
    ),
    "ordered": lambda f, sd: pm.OrderedProbit("y", f, [-0.5, 0.5], sigma=sd, observed=LEVELS),
    "Student-t": lambda f, sd: pm.StudentT("y", nu=3.0, mu=f, sigma=sd, observed=VALUES),
    "duels": lambda f, sd: PreferenceProbit("y", f, PAIRS, sd, observed=[1, -1]),
    "choices": lambda f, sd: ChoiceProbit("y", f[PAIRS], sd, observed=[1, 0]),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_that_is_not_positive(name):
    """Refused where it is data; no place for a chain to be where it is random."""
    with pytest.raises(ValueError, match="the noise of y must be positive"):
        rows_of(lambda f: NOISE[name](f, 0.0))
    found = rows_of(lambda f: NOISE[name](f, pm.Normal("sd", initval=-1.0)))
    assert np.isnan(found.variances).all()


def test_a_threshold_below_zero_is_no_place_for_a_chain():
    """Nor an error there: the data may have ties at others."""
    found = rows_of(
        lambda f: PreferenceProbit(
            "y", f, PAIRS, 1.0, pm.Normal("d", initval=-1.0), observed=[1, 0]
        )
    )
    assert np.isnan(found.lower).all()


def test_what_must_be_known():
    def limits(f):
        low = pm.Normal("low")
        pm.Censored("y", pm.Normal.dist(f, 1.0), low, None, observed=VALUES)

    error = refused(limits)
    assert error.reason.startswith("the limits of y are random")
    assert "Give pm.Censored numbers" in error.remedy

    def trials(f):
        n = pm.Poisson("n", 3.0, shape=N)
        pm.Binomial("y", n=n, p=pm.math.invprobit(f), observed=np.ones(N))

    assert refused(trials).reason == "the numbers of trials of y are random."


def test_a_neighbour_that_is_not_known_leaves_the_block_alone():
    """`b` stays out of the block: its other child is no likelihood of this package."""
    with pm.Model() as model:
        f, b = prior(X[:N]), pm.Normal("b")
        pm.Normal("y", f + b, 1.0, observed=VALUES)
        pm.Censored("z", pm.Normal.dist(b, 1.0), pm.Normal("low"), None, observed=VALUES)
    assert analyse(model, f).names == ["f"]


def test_other_distributions_within_censoring():
    error = refused(
        lambda f: pm.Censored("y", pm.Laplace.dist(f, 1.0), 0.0, None, observed=abs(VALUES))
    )
    assert "y, which depends on f, is Censored" in error.reason
