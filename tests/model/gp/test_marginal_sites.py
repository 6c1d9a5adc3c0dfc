"""Data under sites with the functions integrated out: `marginal_likelihood`, `sample_latent`."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from oracles import finite_difference
from scipy import stats
from site_oracles import log_signs, site_posterior, smooth_cov

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective

pytestmark = pytest.mark.usefixtures("in_python")

lk = sg.likelihoods
X = np.array([[-0.4], [0.5]])
COUNTS = np.array([5, 1])
JITTER = 1e-6


def model_of(make, method="twisted", n_draws=2048, **process):
    """A model of `eta` and `alpha` with data under the likelihood that is made of `alpha`."""
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", sigma=2.0)
        alpha = pm.HalfNormal("alpha", sigma=5.0)
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=0.8), **process)
        kinds = make(alpha)
        gp.marginal_likelihood(
            "y", *kinds[0], **kinds[1], method=method, n_draws=n_draws, jitter=JITTER
        )
    return model, gp


def negative_binomial(alpha):
    return (X, COUNTS), {"likelihood": lk.NegativeBinomial(alpha)}


def any_distribution(alpha):
    def of(eta):
        return pm.NegativeBinomial.dist(mu=pm.math.exp(eta), alpha=alpha)

    return (X, COUNTS), {"likelihood": of}


def log_counts(f, alpha):
    p = alpha / (alpha + np.exp(f))
    return stats.nbinom.logpmf(COUNTS[:, None], alpha, p).sum(axis=0)


def log_evidence(model, point):
    return float(model.compile_logp(vars=[model["y"]])(point))


AT = {"eta_log__": np.log(1.1), "alpha_log__": np.log(3.0)}


@pytest.mark.parametrize(
    ("make", "method"), [(negative_binomial, "ep"), (any_distribution, "twisted")]
)
def test_density_and_gradient(make, method):
    model, _ = model_of(make, method)

    def exact(v):
        cov = smooth_cov(X, np.exp(2 * v[0])) + JITTER * np.eye(2)
        alpha = np.exp(v[1])
        return site_posterior(
            np.zeros(2), cov, lambda f: log_counts(f, alpha), nodes=101
        ).log_evidence

    here = np.array(list(AT.values()))
    # 2048 pairs: below .001; EP of two counts is off by hundredths.
    tol = {"twisted": 0.003, "ep": 0.03}[method]
    assert abs(log_evidence(model, AT) - exact(here)) < tol
    slopes = finite_difference(exact, here, 1e-4)
    found = model.compile_dlogp(vars=[model["eta"], model["alpha"]])
    prior = stats.halfnorm(scale=2.0).logpdf, stats.halfnorm(scale=5.0).logpdf
    own = [
        float(finite_difference(lambda v, f=f: f(np.exp(v[0])) + v[0], here[i : i + 1], 1e-4)[0])
        for i, f in enumerate(prior)
    ]
    np.testing.assert_allclose(found(AT), slopes + own, atol=3 * tol)


def test_skewed_prior_and_kinds_in_any_order():
    """A sign at a pseudo-point, a count, and a value that was given before it."""
    x, r = np.array([[-0.4], [0.5]]), np.array([[0.1]])

    def kinds(alpha):
        data = {
            "count": (x[:1], [5], lk.NegativeBinomial(alpha)),
            "value": (x[1:], [0.3], lk.Gaussian(0.4)),
        }
        return (data,), {}

    model, gp = model_of(kinds, pseudo_points=r, phase=[1.0])
    assert model["y"].eval().shape == (2,)
    everything = smooth_cov(np.concatenate([x, r]), 1.21) + JITTER * np.eye(3)

    def log_likelihood(f):
        p = 3.0 / (3.0 + np.exp(f[0]))
        count = stats.nbinom.logpmf(5, 3.0, p)
        return count + stats.norm.logpdf(0.3, f[1], 0.4) + log_signs(f, everything, 2)

    exact = site_posterior(np.zeros(2), everything[:2, :2], log_likelihood, nodes=101)
    expected = exact.log_evidence - np.log(0.5)
    assert abs(log_evidence(model, AT) - expected) < 0.003
    # The same by learning, which adds no jitter.
    data = TrainingData(gp, *kinds(model["alpha"])[0])
    found = process_objective(data, None, np.random.default_rng(0), {"eta": 1.1, "alpha": 3.0})
    learnt = found.objective.estimate(Point(found.origin), 2048, 0)
    assert abs(learnt.value - expected) < 0.003


def test_impossible_parameters_have_no_density():
    model, _ = model_of(negative_binomial, "ep")
    assert log_evidence(model, {**AT, "alpha_log__": -800.0}) == -np.inf
    assert log_evidence(model, {**AT, "eta_log__": 800.0}) == -np.inf


@pytest.mark.slow(ci=True)
def test_latent_function_of_a_trace():
    """Given one set of hyperparameters f is that of the posterior; data and forecasts with it."""
    model, gp = model_of(any_distribution, "ep")
    with model:
        idata = pm.sample_prior_predictive(draws=150, random_seed=1)
    assert idata["prior_predictive"]["y"].shape == (1, 150, 2)
    trace = idata["prior"].to_dataset()
    trace["eta"][:], trace["alpha"][:] = 1.1, 3.0
    idata["posterior"] = trace
    new = gp.sample_latent(idata, Xnew=[[2.0]], random_seed=2, progressbar=False)
    f = new["posterior"]["f"].to_numpy()[0]
    exact = site_posterior(
        np.zeros(2), smooth_cov(X, 1.21), lambda f: log_counts(f, 3.0), nodes=201
    )
    # 150 near-independent draws: four standard errors, a false alarm in 1500 for the four numbers.
    np.testing.assert_array_less(np.abs(f.mean(axis=0) - exact.mean), 4 * exact.sd / np.sqrt(150))
    np.testing.assert_array_less(np.abs(f.std(axis=0) / exact.sd - 1.0), 4 / np.sqrt(300))
    gain = np.linalg.solve(smooth_cov(X, 1.21), smooth_cov([-0.4, 0.5, 2.0], 1.21)[:2, 2])
    there = new["predictions"]["f"].to_numpy()[0, :, 0]
    left = 1.21 - gain @ smooth_cov(X, 1.21) @ gain
    assert abs(np.mean(there - f @ gain)) < 4 * np.sqrt(left / 150)
    assert float(new["sample_stats"]["relative_ess"].min()) > 0.9
    assert new["posterior_predictive"]["y"].shape == (1, 150, 2)
    expected = log_counts(f.T, 3.0)
    found = new["log_likelihood"]["y"].to_numpy()[0].sum(axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_model_travels_to_other_processes():
    model, _ = model_of(any_distribution, "ep")
    value = log_evidence(model, AT)
    again = cloudpickle.loads(cloudpickle.dumps(model))
    assert log_evidence(again, AT) == pytest.approx(value, abs=1e-6)
