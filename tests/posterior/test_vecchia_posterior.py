"""Priors by Vecchia's approximation beside the kernel as it is and closed forms."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from oracles import ou_probit_log_evidence
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.ep import fit_blocks
from pymc_skewgp.approximations import Vecchia

KERNEL = 1.5 * pm.gp.cov.Matern32(2, ls=[0.3, 0.6])


def matern32(a, b):
    r = np.sqrt(3.0) * cdist(a / [0.3, 0.6], b / [0.3, 0.6])
    return 1.5 * (1.0 + r) * np.exp(-r)


def inputs(n, seed=0):
    return np.random.default_rng(seed).uniform(0.0, 1.0, (n, 2))


def labels(X, seed=1):
    noise = np.random.default_rng(seed).normal(size=len(X))
    return (2.0 * np.sin(6.0 * X[:, 0]) + X[:, 1] + noise > 0.5).astype(int)


def posterior(m, X, y, kernel=KERNEL, **options):
    return sg.SkewGP(cov_func=kernel, approximation=Vecchia(m)).posterior(X, y, **options)


def probit_ep(K, y):
    """Sequential EP until nothing moves (Rasmussen & Williams 2006, algorithm 3.5)."""
    n, s = len(y), 2.0 * y - 1.0
    tau, nu, cov, mean = np.zeros(n), np.zeros(n), K.copy(), np.zeros(n)
    for _ in range(100):
        before = tau.copy()
        for i in range(n):
            left = 1.0 / cov[i, i] - tau[i]
            m, v = (mean[i] / cov[i, i] - nu[i]) / left, 1.0 / left
            z = s[i] * m / np.sqrt(1.0 + v)
            ratio = np.exp(norm.logpdf(z) - log_ndtr(z))
            new_mean = m + s[i] * v * ratio / np.sqrt(1.0 + v)
            new_variance = v - v**2 * ratio / (1.0 + v) * (z + ratio)
            step = 1.0 / new_variance - left - tau[i]
            tau[i], nu[i] = tau[i] + step, new_mean / new_variance - m / v
            cov -= step / (1.0 + step * cov[i, i]) * np.outer(cov[i], cov[i])
            mean = cov @ nu
        if np.abs(tau - before).max() < 1e-12:
            break
    left = 1.0 / np.diag(cov) - tau
    m, v = (mean / np.diag(cov) - nu) / left, 1.0 / left
    log_z = log_ndtr(s * m / np.sqrt(1.0 + v)).sum()
    log_z += 0.5 * np.log1p(tau * v).sum() + 0.5 * nu @ mean
    log_z += (0.5 * m**2 / v - 0.5 * (m / v + nu) ** 2 / (1.0 / v + tau)).sum()
    return log_z - 0.5 * np.linalg.slogdet(np.eye(n) + K * tau)[1], mean, np.diag(cov)


def test_all_neighbours_are_the_kernel():
    X = inputs(120)
    y = labels(X)
    found, exact = posterior(119, X, y), sg.SkewGP(cov_func=KERNEL).posterior(X, y)
    fit = found._fit
    ep = fit_blocks(fit.data_blocks, times=fit.field.times, tol=1e-12)
    log_z, mean, variance = probit_ep(matern32(X, X), y)
    # The nugget is 1e-10 of the variance, and noise of the labels 1.
    assert_allclose(ep.log_prob + fit.data_blocks.log_constant, log_z, atol=1e-7)
    phi, _ = fit.features.at(X)
    assert_allclose(phi @ ep.gaussian.mean, mean, atol=1e-7)
    chol, place = ep.gaussian.chol, phi.indices
    assert_allclose(phi.data**2 * chol.entries(place, place), variance, atol=1e-7)
    a, b = found.log_marginal_likelihood, exact.log_marginal_likelihood
    # Four joint errors: a false alarm in 16,000.
    assert abs(a.value - b.value) < 4.0 * np.hypot(a.std_error, b.std_error)
    new = inputs(30, seed=2)
    of, to = (x.predict(new, draws=0)["predictions_summary"] for x in (found, exact))
    for name in ("f_mean", "f_sd", "p_mean"):
        error = np.hypot(of[f"{name}_se"], to[f"{name}_se"])
        # 30 points: five errors, a false alarm in 50,000.
        assert (abs(of[name] - to[name]) < 5.0 * error + 1e-6).all()


def test_one_neighbour_is_exact_for_a_markov_process():
    x = np.random.default_rng(3).uniform(0.0, 10.0, 60)
    y = (np.sin(x) > 0).astype(int)
    kernel = 2.0 * pm.gp.cov.Matern12(1, ls=1.0)
    found = posterior(1, x, y, kernel)
    evidence, wanted = found.log_marginal_likelihood, ou_probit_log_evidence(x, y, 1.0, 2.0)
    assert abs(evidence.value - wanted) < 4.0 * evidence.std_error  # a false alarm in 16,000
    new = np.linspace(-1.0, 11.0, 25)
    exact = sg.SkewGP(cov_func=kernel).posterior(x, y).predict(new, draws=0)["predictions_summary"]
    summary = found.predict(new, draws=0)["predictions_summary"]
    for name in ("f_mean", "f_sd"):
        error = np.hypot(summary[f"{name}_se"], exact[f"{name}_se"])
        assert (abs(summary[name] - exact[name]) < 5.0 * error + 1e-6).all()


def test_values_and_new_inputs_beside_dense_algebra():
    """Of few neighbours all is a Gaussian that is known: that of the conditionals."""
    X, new = inputs(80), inputs(20, seed=4)
    y = np.sin(5.0 * X[:, 0]) + 0.1 * np.random.default_rng(5).normal(size=80)
    found = posterior(5, X, y, likelihood=sg.likelihoods.Gaussian(0.1))
    features = found._fit.features.single
    Q = sparse.coo_array((features.precision, features.basis.graph.of_precision)).toarray()
    _, rest = features.at(new)
    here = features.at(X)[0].toarray()
    cov = here @ np.linalg.inv(Q) @ here.T
    noisy = cov + 0.01 * np.eye(80)
    # The nugget, 1e-10, in a precision with a condition of 1e5.
    wanted = multivariate_normal(np.zeros(80), noisy).logpdf(y)
    assert_allclose(found.log_marginal_likelihood.value, wanted, atol=1e-6)
    near = np.argsort(cdist(new * features.basis.scales, X * features.basis.scales), axis=1)[:, :10]
    gain = np.zeros((20, 80))
    for i, own in enumerate(near):
        gain[i, own] = np.linalg.solve(matern32(X[own], X[own]), matern32(X[own], new[[i]])[:, 0])
        left = 1.5 - gain[i, own] @ matern32(X[own], new[[i]])[:, 0]
        assert_allclose(rest[i], left, atol=1e-7)
    cross = gain @ cov
    mean = cross @ np.linalg.solve(noisy, y)
    variance = np.einsum("ij,ij->i", cross, gain) + rest
    variance -= np.einsum("ij,ji->i", cross, np.linalg.solve(noisy, cross.T))
    summary = found.predict(new, draws=0)["predictions_summary"]
    assert_allclose(summary["f_mean"], mean, atol=1e-6)
    assert_allclose(summary["f_sd"], np.sqrt(variance), rtol=1e-6)
    # Draws: 4000 of them, 20 points: five errors.
    f = found.predict(new, random_seed=6)["predictions"]["f"]
    assert_allclose(f.std(("chain", "draw")), np.sqrt(variance), rtol=5.0 / np.sqrt(8000))


def test_repeated_inputs_are_one():
    X = np.repeat(inputs(40), 3, axis=0)
    y = labels(X)
    found = posterior(39, X, y)
    assert found._fit.features.rank == 40
    evidence = found.log_marginal_likelihood
    exact = sg.SkewGP(cov_func=KERNEL).posterior(X, y).log_marginal_likelihood
    # Four joint errors: a false alarm in 16,000.
    assert abs(evidence.value - exact.value) < 4.0 * np.hypot(evidence.std_error, exact.std_error)


def test_far_outside_and_next_to_data():
    X = inputs(60)
    found = posterior(10, X, labels(X))
    summary = found.predict([[900.0, -900.0], X[3] + 1e-9], draws=0)["predictions_summary"]
    # Nothing is known far out but the prior; next to a row f is that row's.
    assert_allclose(summary["f_mean"][0], 0.0, atol=1e-10)
    assert_allclose(summary["f_sd"][0], np.sqrt(1.5), rtol=1e-8)
    there, here = (found.marginals(x).moments.mean for x in (X[[3]], None))
    assert_allclose(summary["f_mean"][1], there[0], atol=1e-4)
    assert_allclose(there, here[[3]], atol=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "data"),
    [
        (sg.likelihoods.Poisson(), [0, 3, 1]),
        (sg.likelihoods.BinomialProbit(5), [0, 3, 5]),
        (sg.likelihoods.BernoulliLogit(), [0, 1, 1]),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_factors_and_noise_of_the_kernel(likelihood, data, noise):
    X = inputs(60)
    y = np.tile(data, 20)
    kernel = KERNEL + pm.gp.cov.WhiteNoise(noise) if noise else KERNEL
    evidence = posterior(59, X, y, kernel, likelihood=likelihood).log_marginal_likelihood
    gp = sg.SkewGP(cov_func=kernel)
    exact = gp.posterior(X, y, likelihood=likelihood).log_marginal_likelihood
    # Four joint errors, six cases: a false alarm in 2,600.
    assert abs(evidence.value - exact.value) < 4.0 * np.hypot(evidence.std_error, exact.std_error)


def test_draws():
    X = inputs(50)
    found = posterior(10, X, labels(X))
    f = found.sample(500, 2, random_seed=6)["posterior"]["f"]
    at = found.marginals().moments
    # 1000 draws, 50 rows: five errors, a false alarm in 30,000.
    assert (abs(f.mean(("chain", "draw")) - at.mean) < 5.0 * at.sd / np.sqrt(500)).all()
    joint = found.predict(inputs(5, seed=7), draws=500, chains=2, random_seed=8)
    of, to = joint["predictions"]["f"], joint["predictions_summary"]
    assert (abs(of.mean(("chain", "draw")) - to["f_mean"]) < 5.0 * to["f_sd"] / np.sqrt(500)).all()


def test_report():
    X = inputs(200)
    found = posterior(30, X, labels(X), n_draws=256)
    report = found.prior_report(100)
    # 30 of 200 neighbours are all but the kernel: what is left are errors of Monte Carlo.
    error = np.hypot(report["log_evidence_se"], report["log_evidence_exact_se"])
    assert (abs(report["log_evidence"] - report["log_evidence_exact"]) < 5.0 * error + 0.02).all()
    assert (report["kl_u"] < 0.02).all()
    assert abs(np.diff(report["ep_log_evidence"])[0]) < 0.05
    assert found.approximation_loss is None
    few = posterior(2, X, labels(X), n_draws=256)
    with pytest.warns(sg.PriorApproximationWarning, match=r"Vecchia\(m=2\) differs"):
        worse = few.prior_report(100)
    assert (worse["kl_u"] > 10.0 * report["kl_u"]).all()


def test_what_it_is_not_for():
    X, y = inputs(30), labels(inputs(30))
    with pytest.raises(ValueError, match="m must be at least 1"):
        Vecchia(0)
    wide = np.random.default_rng(9).random((30, 4))
    with pytest.raises(ApproximationError, match="at most 3 columns"):
        posterior(5, wide, y, pm.gp.cov.Matern32(4, ls=1.0)).predict(wide)
    assert posterior(5, wide, y, pm.gp.cov.Matern32(4, ls=1.0, active_dims=[0, 1, 3])).latent
    skew = sg.SkewGP(cov_func=KERNEL, pseudo_points=[[0.0, 0.0]], approximation=Vecchia(5))
    with pytest.raises(ApproximationError, match="one function without pseudo-points"):
        skew.posterior(X, y).predict(X)
    classes = posterior(5, X, np.arange(30) % 3, likelihood=sg.likelihoods.MultinomialProbit(3))
    with pytest.raises(ApproximationError, match="one function without pseudo-points"):
        classes.predict(X)
    with pytest.raises(ApproximationError, match="no derivatives"):
        posterior(5, X, y).marginals(X, derivative=(0, 1))


@pytest.mark.parametrize(("m", "nu"), [(10, 1.5), (20, 2.5)])
def test_half_integer_kernels_on_a_line(m, nu):
    """Markov processes: what farther values say falls geometrically."""
    rng = np.random.default_rng(0)
    x = np.cumsum(0.005 * np.exp(rng.normal(size=400)))  # gaps of very different length
    y = np.sin(x) + 0.1 * rng.normal(size=400)
    r = np.sqrt(2.0 * nu) * np.abs(x[:, None] - x)
    K = {1.5: 1.0 + r, 2.5: 1.0 + r + r**2 / 3.0}[nu] * np.exp(-r)
    kernel = {1.5: pm.gp.cov.Matern32, 2.5: pm.gp.cov.Matern52}[nu]
    found = posterior(m, x[:, None], y, kernel(1, ls=1.0), likelihood=sg.likelihoods.Gaussian(0.1))
    true = multivariate_normal(cov=K + 0.01 * np.eye(400)).logpdf(y)
    # The divergence of the values themselves is 1e-6 and 2e-5 nats, of noisy ones less; what one
    # data set gains or loses is of the size of its root. PyMC adds 1e-12 to squared distances.
    assert_allclose(found.log_marginal_likelihood.value, true, rtol=0.0, atol=1e-3)
