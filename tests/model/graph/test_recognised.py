"""Likelihoods recognised in a model's graph: near misses, impossible data, rows by hand."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from step_models import X, analyse, prior, rows

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.probit import ChoiceProbit, PreferenceProbit
from pymc_skewgp._model.graph.analysis import find_observed
from pymc_skewgp._model.graph.likelihoods import link_of

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


def test_cut_points_of_each_row():
    """The other forms are in `test_patterns`; here eta itself holds differences and quotients."""
    cuts = np.linspace(-1, 1, 2) + np.arange(N)[:, None]
    found = rows_of(
        lambda f: pm.OrderedProbit("y", (f - f[0]) / 3.0 - 1.0, cuts, sigma=2.0, observed=LEVELS)
    )
    edges = np.hstack([np.full((N, 1), -INF), cuts, np.full((N, 1), INF)])
    np.testing.assert_allclose(found.lower, edges[np.arange(N), LEVELS])
    np.testing.assert_allclose(found.upper, edges[np.arange(N), LEVELS + 1])
    np.testing.assert_allclose(found.S, np.full(N, 4.0))
    np.testing.assert_allclose(found.a, -1.0)
    np.testing.assert_allclose(found.A, (np.eye(N) - np.eye(N)[0]) / 3.0)


def test_other_categorical_variables():
    """Those that are recognised are in `test_patterns`."""
    for p in (
        lambda f: pm.math.softmax(pt.stack([f, -f], axis=1), axis=1),
        lambda f: pm.OrderedLogistic.compute_p(f, [-0.5, 0.5]),
        lambda f: pt.exp(pt.stack([pt.log(0.3) + f, f - 1.0], axis=1)),
        lambda f: pm.OrderedProbit.compute_p(f, [-0.5, 0.5], 1.0)[:, ::-1],
    ):
        error = refused(lambda f, p=p: pm.Categorical("y", p(f), observed=LEVELS))
        assert "y, which depends on f, is Categorical" in error.reason


PAIRS = np.array([[0, 1], [2, 3]])
VALUES_1, LEVELS_3 = [1.0] * N, [0, 1, 2, 3, 0, 1]


def censored(f, low, high, y):
    pm.Censored("y", pm.Normal.dist(f, 1.0), low, high, observed=y)


# What is said, and the variable given f.
IMPOSSIBLE = {
    "y must be categories from 0 to the number of cut-points": lambda f: pm.OrderedProbit(
        "y", f, [-0.5, 0.5], observed=LEVELS_3
    ),
    "y must be numbers of successes from 0 to n": lambda f: pm.Binomial(
        "y", n=2, p=pm.math.invprobit(f), observed=LEVELS_3
    ),
    "y must lie between lower and upper of pm.Censored": lambda f: censored(f, 0.0, None, VALUES),
    "lower of y must be below upper": lambda f: censored(f, 1.0, 1.0, VALUES_1),
    "a tie, which needs threshold": lambda f: PreferenceProbit("y", f, PAIRS, observed=[1, 0]),
    "y must be 1 where the first": lambda f: PreferenceProbit("y", f, PAIRS, observed=[1, 2]),
    "the threshold of y must not be negative": lambda f: PreferenceProbit(
        "y", f, PAIRS, threshold=-0.1, observed=[1, -1]
    ),
    "y must be indices of alt": lambda f: ChoiceProbit("y", f[PAIRS], observed=[1, 2]),
    r"y must be finite and positive, got \[-0.8": lambda f: pm.LogNormal(
        "y", f, 1.0, observed=VALUES
    ),
    r"y must be finite: leave others out, got \[inf": lambda f: pm.Normal(
        "y", f, 1.0, observed=[0.0, 1.0, INF, 0.0, 2.0, 0.0]
    ),
    "the cut-points of y must increase": lambda f: pm.OrderedProbit(
        "y", f, [0.5, -0.5], observed=LEVELS
    ),
    "the covariance of y must be positive definite": lambda f: pm.MvNormal(
        "y", f, cov=np.eye(N) - 0.5, observed=VALUES_1
    ),
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_impossible_data(message):
    with pytest.raises(ValueError, match=message):
        rows_of(IMPOSSIBLE[message])


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
