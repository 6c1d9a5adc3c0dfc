"""`ConjugateStep` under hundreds of trials, hyperparameters too: against a grid over all."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import function_grid
from scipy import stats
from scipy.special import log_ndtr
from step_models import analyse, sample

from pymc_skewgp import BernoulliProbit, SkewGP
from pymc_skewgp._model.steps.block_move import LatentAtPoint

pytestmark = pytest.mark.usefixtures("in_python")

X = np.array([[0.0], [0.8]])
N, Y = np.array([300, 200]), np.array([230, 30])


def model(n=N, y=Y):
    with pm.Model() as found:
        f = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X)
        pm.Binomial("y", n=n, p=pm.math.invprobit(f), observed=y)
    return found


@pytest.mark.parametrize(("many", "size"), [(True, 2), (False, None)])
def test_factors(many, size):
    """Of each place one where there are many trials, else a row for each trial."""
    found = model() if many else model(np.array([4, 3]), np.array([1, 2]))
    latent = LatentAtPoint(found, analyse(found, found["f"]), by_factors=True)
    at = latent.model(found.initial_point())
    assert at.observations.n_rows == (0 if many else 7)
    assert (at.sites and at.sites.size) == size


@pytest.mark.parametrize(("sd", "number", "factors"), [(1.0, 30, False), (4.0, 10, True)])
def test_labels_nearly_at_one_place(sd, number, factors):
    """Factors where the tail that they leave is long, as in a posterior: see test_pooled_labels."""
    places = np.repeat([0.0, 60.0, 120.0], number)[:, None]
    places = places + 0.01 * np.random.default_rng(0).standard_normal(places.shape)
    with pm.Model() as found:
        f = SkewGP(cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", places)
        BernoulliProbit("y", f, observed=np.ones(len(places), dtype=int))
    latent = LatentAtPoint(found, analyse(found, found["f"]), by_factors=True)
    at = latent.model(found.initial_point())
    assert (at.sites is not None, at.observations.n_rows == 0) == (factors, factors)


def test_long_tails():
    """200 successes at 0 and 200 failures at 3: the long tail of f is the prior's.

    Standard deviations of f, against quadrature: rows drawn one by one miss their tails.
    """
    with pm.Model() as model:
        gp = SkewGP(cov_func=2.0**2 * pm.gp.cov.ExpQuad(1, ls=1.0))
        p = pm.math.invprobit(gp.prior("f", np.array([[0.0], [3.0]])))
        pm.Binomial("y", n=200, p=p, observed=[200, 0])
    k = 4.0 * np.array([[1.0, np.exp(-4.5)], [np.exp(-4.5), 1.0]])
    exact = function_grid(np.zeros(2), k, lambda f: 200 * log_ndtr(f * [1, -1]).sum(1), 1401)
    sd = np.sqrt(exact.cov.diagonal())
    drawn = sample(model, 600, tune=30, random_seed=3).posterior["f"].values
    error = [float(az.mcse(drawn[..., i], method="sd")) for i in range(2)]
    # Four standard errors of two numbers: a false alarm once in 8000 seeds. Rows one by one gave
    # .85 of the deviation, and less.
    assert (np.abs(drawn.std(axis=(0, 1)) - sd) < 4 * np.array(error)).all()
    assert max(error) < 0.06


def test_trials_beside_counts():
    """Trials become factors of f beside the factors of the counts: against a grid over f."""
    counts = np.array([3, 0])
    with pm.Model() as both:
        f = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X)
        pm.Binomial("y", n=N, p=pm.math.invprobit(f), observed=Y)
        pm.Poisson("c", pm.math.exp(f), observed=counts)
    idata = sample(both, 300, tune=50, random_seed=3)
    k = np.array([[1.0, np.exp(-0.32)], [np.exp(-0.32), 1.0]])

    def log_likelihood(f):
        trials = Y * log_ndtr(f) + (N - Y) * log_ndtr(-f)
        return (trials + stats.poisson(np.exp(f)).logpmf(counts)).sum(axis=1)

    exact = function_grid(np.zeros(2), k, log_likelihood, 401)
    found = az.summary(idata, var_names=["f"], round_to="none")
    # Two means within five standard errors: one false alarm in 1e6 seeds.
    assert (np.abs(found["mean"] - exact.mean) < 5 * found["mcse_mean"]).all()
