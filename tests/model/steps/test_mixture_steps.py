"""`ConjugateStep` where observations are mixtures of rows: Student-t noise, lapses, flips.

Chains are compared with quadrature over two values of f and a hyperparameter, and with NUTS. Each
number is judged at 4.5 standard errors: a right step is called wrong with probability 7e-6 for a
new seed, never for those fixed here.
"""

import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from scipy import stats
from scipy.special import expit, log_ndtr, logsumexp, ndtr
from step_models import X, prior, rows, sample, walk

import pymc_skewgp as sg
from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.graph.analysis import find_observed
from pymc_skewgp._model.steps.sun_step import ConjugateStep, LinESS

pytestmark = pytest.mark.usefixtures("in_python")

SIGMAS = 4.5
PLACES = np.array([0.0, 0.7])
ROW = np.array([0, 0, 0, 1, 1, 1])
VALUES = np.array([1.2, 4.0, 0.9, -0.3, -0.1, -1.5])
LABELS, LEVELS = np.array([1, 1, 0, 0, 0, 1]), np.array([2, 1, 2, 0, 0, 1])
NODES = np.linspace(-1.0, 1.0, 81)


def functions(scale=1.0, s=0):
    points = [[0.3]] if s else None
    cov = scale**2 * pm.gp.cov.ExpQuad(1, ls=1.0)
    return sg.SkewGP(cov_func=cov, pseudo_points=points).prior("f", PLACES[:, None])


def log_prior(f, scale, s):
    """Of f at the places: positive at .3, with one pseudo-point."""
    place = np.append(PLACES, 0.3)
    cov = np.exp(-0.5 * (place[:, None] - place) ** 2)
    given = np.linalg.solve(cov[:2, :2], cov[:2, 2])
    found = stats.multivariate_normal(np.zeros(2), cov[:2, :2]).logpdf(f / scale[:, None])
    found -= 2 * np.log(scale)
    if s:
        sd = np.sqrt(1 - cov[2, :2] @ given)
        found += log_ndtr(f @ given / (scale * sd))
    return found


def student_t(s, shared=False):
    """Tau is the scale of the noise; where f has it too, it moves given indicators only."""
    with pm.Model() as model:
        tau = pm.LogNormal("tau", 0.0, 0.7)
        f = functions(tau if shared else 1.5, s)
        pm.StudentT("y", nu=3.0, mu=f[ROW], sigma=tau, observed=VALUES)

    def log_posterior(f, log_tau):
        tau = np.exp(log_tau)
        scale = tau if shared else np.full(len(f), 1.5)
        like = stats.t.logpdf((VALUES - f[:, ROW]) / tau[:, None], 3.0) - log_tau[:, None]
        prior_tau = stats.norm.logpdf(log_tau, 0.0, 0.7)
        return prior_tau + log_prior(f, scale, s) + like.sum(axis=1)

    return model, "tau_log__", log_posterior, (8.0, 3.5)


def student_t_shared(s):
    return student_t(s, shared=True)


def flips(s):
    """Some labels are exchanged for the other one."""
    with pm.Model() as model:
        eps = pm.Beta("eps", 2.0, 6.0)
        p = eps + (1 - 2 * eps) * pm.math.invprobit(functions(1.5, s)[ROW])
        pm.Bernoulli("y", p=p, observed=LABELS)

    def log_posterior(f, log_odds):
        eps = expit(log_odds)
        p = eps[:, None] + (1 - 2 * eps[:, None]) * ndtr(f[:, ROW])
        prior = stats.beta.logpdf(eps, 2, 6) + np.log(eps * (1 - eps))
        like = np.log(np.where(LABELS == 1, p, 1 - p)).sum(axis=1)
        return prior + log_prior(f, np.full(len(f), 1.5), s) + like

    return model, "eps_logodds__", log_posterior, (8.0, 9.0)


def ordered(s):
    """No mixture, but a cut-point that moves with f integrated out."""
    with pm.Model() as model:
        gap = pm.LogNormal("gap", 0.0, 0.7)
        cuts = pm.math.stack([-0.5, gap - 0.5])
        pm.OrderedProbit("y", eta=functions(1.5, s)[ROW], cutpoints=cuts, observed=LEVELS)

    def log_posterior(f, log_gap):
        low, high = ndtr(-0.5 - f[:, ROW]), ndtr(np.exp(log_gap)[:, None] - 0.5 - f[:, ROW])
        p = np.choose(LEVELS, [low, high - low, 1 - high])
        prior = stats.norm.logpdf(log_gap, 0.0, 0.7)
        return prior + log_prior(f, np.full(len(f), 1.5), s) + np.log(p.clip(1e-300)).sum(1)

    return model, "gap_log__", log_posterior, (8.0, 3.5)


@pytest.mark.parametrize(
    ("make", "s"),
    [
        (student_t, 0),
        pytest.param(student_t_shared, 0, marks=pytest.mark.slow(ci=True)),
        pytest.param(flips, 1, marks=pytest.mark.slow(ci=True)),
        pytest.param(ordered, 0, marks=pytest.mark.slow(ci=True)),
    ],
)
def test_posterior_by_quadrature(make, s):
    model, name, log_posterior, (reach, other_reach) = make(s)
    grids = np.meshgrid(reach * NODES, reach * NODES, other_reach * NODES, indexing="ij")
    *f, other = (g.ravel() for g in grids)
    f = np.column_stack(f)
    log_p = log_posterior(f, other)
    columns = [f[:, 0], f[:, 1], f[:, 0] * f[:, 1], other, other * f[:, 0], other**2]
    expected = np.array(columns) @ np.exp(log_p - logsumexp(log_p))
    transformed = {"include_transformed": True}
    idata = sample(model, 400, tune=100, random_seed=3, idata_kwargs=transformed)
    # In the group of unconstrained values, where PyMC has one.
    group = idata.unconstrained_posterior if "unconstrained_posterior" in idata else idata.posterior
    f, other = idata.posterior["f"].values, group[name].values
    columns = [f[..., 0], f[..., 1], f[..., 0] * f[..., 1], other, other * f[..., 0], other**2]
    for found, value in zip(columns, expected, strict=True):
        ess = array_stats.ess(found, chain_axis=0, draw_axis=1, method="mean")
        assert ess > 100
        assert abs(found.mean() - value) < SIGMAS * found.std() / np.sqrt(ess)


def model_of(build, n=6):
    with pm.Model() as model:
        build(prior(X[:n]))
    return model


def refused(build):
    model = model_of(build)
    with pytest.raises(NotConjugateError) as caught:
        find_observed(model, model["f"])
    return str(caught.value)


PHI = pm.math.invprobit
OF_F = {
    "rates": lambda f: pm.Bernoulli(
        "y", p=pm.math.sigmoid(f) * 0.5 + pm.math.sigmoid(-f) * PHI(f), observed=LABELS
    ),
    "degrees of freedom": lambda f: pm.StudentT(
        "y", nu=pm.math.exp(f), mu=0.0, sigma=1.0, observed=VALUES
    ),
}


@pytest.mark.parametrize("build", OF_F.values(), ids=OF_F)
def test_noise_that_depends_on_f_is_refused(build):
    assert "the noise, lapses or the limits of y depend on f" in refused(build)


@pytest.mark.parametrize(
    "p",
    [
        lambda f: 0.5 * PHI(f) + 0.5 * PHI(2 * f),
        lambda f: PHI(f) * PHI(f),
        lambda f: (np.linspace(0.1, 0.2, 6)[:, None] * PHI(f))[2, :],
    ],
)
def test_what_is_no_lapse_is_refused(p):
    message = refused(lambda f: pm.Bernoulli("y", p=p(f), observed=LABELS))
    assert "is Bernoulli without the probit link" in message


@pytest.mark.parametrize("p", [lambda f: 0.3 + 0.8 * PHI(f), lambda f: -0.1 + PHI(f)])
def test_rates_that_are_none(p):
    model = model_of(lambda f: pm.Bernoulli("y", p=p(f), observed=LABELS))
    with pytest.raises(ValueError, match="the probability of y must lie between 0 and 1"):
        rows(model)


def test_data_that_are_infinite():
    values = np.where(np.arange(6) == 2, np.inf, VALUES)
    model = model_of(lambda f: pm.StudentT("y", nu=4, mu=f, sigma=1.0, observed=values))
    with model, pytest.raises(ValueError, match="observations of y must be finite"):
        ConjugateStep([model["f"]])


def lapsing(f, labels=LABELS):
    rate = pm.Beta("rate", 1, 9)
    pm.Bernoulli("y", p=0.5 * rate + (1 - rate) * PHI(f), observed=labels)


def steps(step, model, n, seed=5):
    return np.array([point["f"] for point in walk(step, model, n, seed)])


def test_a_chain_depends_on_its_seed_alone():
    model = model_of(lapsing)
    with model:
        step = ConjugateStep([model["f"]])
    assert "hyperparameters=[rate]" in repr(step)
    first = steps(step, model, 5)
    np.testing.assert_array_equal(steps(step, model, 5), first)
    assert (steps(step, model, 5, seed=6) != first).all()


def test_lin_ess_draws_from_the_same_distribution():
    """Means over 400 draws of each: their difference has the standard error of both."""
    model = model_of(lambda f: pm.Bernoulli("y", p=0.1 + 0.8 * PHI(f), observed=LABELS))
    with model:
        means, errors = [], []
        for step in (ConjugateStep([model["f"]]), LinESS([model["f"]], n_steps=20, thin=3)):
            f = steps(step, model, 400)
            means.append(f.mean(axis=0))
            ess = array_stats.ess(f[None], chain_axis=0, draw_axis=1, method="mean")
            errors.append(f.std(axis=0) / np.sqrt(ess))
    assert (np.abs(means[0] - means[1]) < SIGMAS * np.hypot(*errors)).all()
