"""The prior that is taken by itself, and what an approximated one loses, against plain NumPy."""

import logging

import numpy as np
import pymc as pm
import pytest
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from scipy.stats import multivariate_normal

import pymc_skewgp as sg
from pymc_skewgp._posterior import automatic
from pymc_skewgp.approximations import Inducing

N = 400
SIGMA = 0.3
# Distances in PyMC's Matern kernels are 1e-6 at least, which the kernel of range .2 sees.
TINY = 1e-3
NEW = np.array([[0.11, 0.2], [0.5, 0.52], [0.9, 0.4]])


@pytest.fixture(autouse=True)
def many(monkeypatch):
    """More than 300 rows are many; 20 points are tried first, and then 40 and 80."""
    monkeypatch.setattr(automatic, "MANY_ROWS", 300)
    monkeypatch.setattr(automatic, "_MOST_POINTS", 20)
    monkeypatch.setattr(automatic, "_LEAST_POINTS", 20)


def correlation(name, ls, A, B):
    r = cdist(A, B) / ls
    if name == "ExpQuad":
        return np.exp(-0.5 * r**2)
    return np.exp(-r) if name == "Matern12" else (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)


def process(name, ls, approximation="auto"):
    return sg.SkewGP(cov_func=getattr(pm.gp.cov, name)(2, ls=ls), approximation=approximation)


def values(name, ls, n=N, seed=0):
    """Inputs and values of a draw of the prior, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    G = correlation(name, ls, X, X) + SIGMA**2 * np.eye(n)
    return X, np.linalg.cholesky(G) @ rng.standard_normal(n)


def kernel_itself(name, ls, X, y):
    """Log evidence, and moments of f at the new points."""
    G = correlation(name, ls, X, X) + SIGMA**2 * np.eye(len(X))
    cross = correlation(name, ls, NEW, X)
    variance = 1 - np.einsum("ij,ji->i", cross, np.linalg.solve(G, cross.T))
    return multivariate_normal(cov=G).logpdf(y), cross @ np.linalg.solve(G, y), np.sqrt(variance)


def is_that_of_the_kernel(posterior, name, ls, X, y):
    evidence, mean, sd = kernel_itself(name, ls, X, y)
    assert posterior.log_marginal_likelihood.value == pytest.approx(evidence, abs=TINY)
    moments = posterior.marginals(NEW).moments
    np.testing.assert_allclose(moments.mean, mean, atol=TINY)
    np.testing.assert_allclose(moments.sd, sd, atol=TINY)


GAUSSIAN = {"likelihood": sg.likelihoods.Gaussian(SIGMA)}


@pytest.mark.parametrize("name", ["Matern12", "Matern32", "ExpQuad"])
@pytest.mark.parametrize("ls", [0.1, 0.5])
def test_the_loss_is_that_of_closed_forms(name, ls):
    X, y = values(name, ls)
    posterior = process(name, ls, Inducing(20)).posterior(X, y, **GAUSSIAN)
    evidence = posterior.log_marginal_likelihood
    assert evidence.std_error == 0.0
    loss = posterior.approximation_loss
    true = kernel_itself(name, ls, X, y)[0] - evidence.value
    # Five standard errors; of more than five nats only the size is known, to 30 per cent here: six
    # false alarms in two million.
    error = 5 * loss.std_error if abs(loss.value) < 5 else 0.3 * abs(true)
    assert abs(loss.value - true) < error + 1e-6
    assert loss.std_error < 0.1 + 0.5 * abs(loss.value) * 1.1


def test_values_are_met_in_closed_form():
    X, y = values("Matern32", 0.4)
    Z = X[::8]
    posterior = process("Matern32", 0.4, Inducing(Z)).posterior(X, y, **GAUSSIAN)
    Kz = correlation("Matern32", 0.4, Z, Z) + 1e-8 * np.eye(len(Z))
    cross, there = correlation("Matern32", 0.4, X, Z), correlation("Matern32", 0.4, NEW, Z)
    Q = cross @ np.linalg.solve(Kz, cross.T)
    left = 1 - Q.diagonal()
    G = Q + np.diag(left + SIGMA**2)
    assert posterior.log_marginal_likelihood.value == pytest.approx(
        multivariate_normal(cov=G).logpdf(y), abs=1e-6
    )
    both = there @ np.linalg.solve(Kz, cross.T)
    cov = np.diag(1 - np.einsum("ij,ji->i", there, np.linalg.solve(Kz, there.T)))
    cov = cov + there @ np.linalg.solve(Kz, there.T) - both @ np.linalg.solve(G, both.T)
    mean, sd = both @ np.linalg.solve(G, y), np.sqrt(cov.diagonal())
    found = posterior.predict(NEW, draws=4000, chains=1, random_seed=1)
    summary = found["predictions_summary"]
    np.testing.assert_allclose(summary["f_mean"], mean, atol=1e-6)
    np.testing.assert_allclose(summary["f_sd"], sd, atol=1e-6)
    np.testing.assert_allclose(summary["f_quantile"][2], mean + sd * ndtri(0.945), atol=1e-5)
    assert (summary["f_sd_se"] == 0.0).all()
    # Draws: five standard errors of 4000 means, three of them; one false alarm in half a million.
    f = found["predictions"]["f"].values[0]
    assert (np.abs(f.mean(axis=0) - mean) < 5 * sd / np.sqrt(4000)).all()
    # At the data what the rows say of the residual of their own value is in f.
    here = posterior.marginals().moments
    prior = Q + np.diag(left)
    np.testing.assert_allclose(here.mean, prior @ np.linalg.solve(G, y), atol=1e-6)
    variance = (prior - prior @ np.linalg.solve(G, prior)).diagonal()
    np.testing.assert_allclose(here.sd, np.sqrt(variance), atol=1e-6)
    draws = posterior.sample(2000, 1, random_seed=2)["posterior"]["f"].values[0]
    # Of 400 means the largest of 5.5 standard errors: a false alarm in 65,000.
    off = (draws.mean(axis=0) - here.mean) / here.sd * np.sqrt(2000)
    assert np.abs(off).max() < 5.5


def test_more_points_where_they_are_enough(caplog):
    X, y = values("ExpQuad", 0.35)
    with caplog.at_level(logging.INFO, logger="pymc.pymc_skewgp"):
        posterior = process("ExpQuad", 0.35).posterior(X, y, **GAUSSIAN)
    assert repr(posterior.prior.approximation) == "Inducing(40)"
    assert "approximation=Inducing(40), approximation_loss=" in repr(posterior)
    assert "Inducing(40), which changes the log evidence by" in caplog.messages[-1]
    evidence, mean, sd = kernel_itself("ExpQuad", 0.35, X, y)
    assert posterior.log_marginal_likelihood.value == pytest.approx(evidence, abs=0.1)
    moments = posterior.marginals(NEW).moments
    # A tenth of a nat in all is next to nothing at single points.
    np.testing.assert_allclose(moments.mean, mean, atol=0.2 * sd.max())
    np.testing.assert_allclose(moments.sd, sd, rtol=0.1)
    draws = posterior.sample(5, 1, random_seed=0)["posterior"].attrs
    assert abs(draws["approximation_loss"]) < 0.1 > draws["approximation_loss_se"]


def test_the_call_stops_with_the_figures(monkeypatch):
    monkeypatch.setattr(automatic, "_ROWS_OF_VALUES", 0)
    X, y = values("Matern12", 0.2)
    with pytest.raises(sg.ApproximationError) as caught:
        process("Matern12", 0.2).posterior(X, y, **GAUSSIAN)
    message = str(caught.value)
    assert "Inducing(20) is off by" in message
    assert "SkewGP(approximation=...)" in message
    assert "None, the kernel as it is, which takes some" in message
    # Twice the points leave more than half of it: as many more are not tried.
    assert "Inducing(80)" in message
    assert "Inducing(80) is off by" not in message


def test_values_take_the_kernel_where_it_is_cheap():
    X, y = values("Matern12", 0.2)
    posterior = process("Matern12", 0.2).posterior(X, y, **GAUSSIAN)
    assert posterior.prior.approximation is None
    assert posterior.approximation_loss.value == 0.0
    is_that_of_the_kernel(posterior, "Matern12", 0.2, X, y)


def test_more_data_are_checked_anew(monkeypatch):
    monkeypatch.setattr(automatic, "_ROWS_OF_VALUES", 0)
    X, y = values("Matern12", 0.2)
    few = process("Matern12", 0.2).posterior(X[:290], y[:290], **GAUSSIAN)
    assert few.prior.approximation is None
    with pytest.raises(sg.ApproximationError, match="is off by"):
        few.update(X[290:], y[290:])


@pytest.mark.parametrize(
    "likelihood", [sg.likelihoods.BernoulliProbit(), sg.likelihoods.BernoulliLogit()]
)
def test_labels_lose_what_exact_posteriors_say(likelihood):
    X, y = values("Matern12", 0.2)
    y = (y > 0).astype(int)
    exact, approximate = (
        process("Matern12", 0.2, known).posterior(X, y, likelihood=likelihood, n_draws=2048)
        for known in (None, Inducing(20))
    )
    loss = approximate.approximation_loss
    evidences = [p.log_marginal_likelihood for p in (exact, approximate)]
    true = evidences[0].value - evidences[1].value
    error = np.hypot(*(e.std_error for e in evidences))
    # The size, by signs and to first order in what the prior changes, besides five errors.
    assert abs(loss.value - true) < 5 * error + 0.2 * abs(true)
    assert abs(true) > 5 * error


def test_rows_about_several_values_go_by_the_divergence():
    X, y = values("ExpQuad", 0.6)
    classes = np.digitize(y, [-0.5, 0.5])
    known = {"likelihood": sg.likelihoods.MultinomialProbit()}
    smooth = process("ExpQuad", 0.6).posterior(X, classes, **known)
    loss = smooth.approximation_loss
    assert loss.value == loss.divergence
    assert loss.largest < 0.1
    with pytest.raises(sg.ApproximationError, match="is off by"):
        process("Matern12", 0.2).posterior(X, classes, **known)


def test_neighbourhoods_stand_for_more_rows(monkeypatch):
    X, y = values("Matern32", 0.4, n=1000)
    posterior = process("Matern32", 0.4, Inducing(40)).posterior(X, y, **GAUSSIAN)
    whole = posterior.approximation_loss.divergence
    monkeypatch.setattr(automatic, "MOST_ROWS", 300)
    monkeypatch.setattr(automatic, "_ROWS_OF_VALUES", 0)
    with pytest.raises(sg.ApproximationError, match="is off by"):
        process("Matern32", 0.4).posterior(X, y, **GAUSSIAN)
    monkeypatch.setattr(automatic, "LIMIT", 1e4)
    part = process("Matern32", 0.4).posterior(X, y, **GAUSSIAN).approximation_loss
    # Of 20 points, not 40, and without pairs at the edges of neighbourhoods: its size is right.
    assert whole < part.divergence < 10 * whole
    assert part.std_error == pytest.approx(np.sqrt(2 * part.divergence))


def repeated(n=1000, places=40):
    rng = np.random.default_rng(3)
    Z = rng.uniform(size=(places, 2))
    at = rng.integers(places, size=n)
    return Z, at, np.sin(5 * Z[at, 0]) + SIGMA * rng.standard_normal(n)


def test_different_rows_count():
    Z, at, y = repeated()
    X = Z[at]
    posterior = process("Matern12", 0.3).posterior(X, y, **GAUSSIAN)
    assert repr(posterior.prior.approximation) == "EveryInput()"
    is_that_of_the_kernel(posterior, "Matern12", 0.3, X, y)
    # New points depend on each other as the kernel says, not through the different rows alone.
    near = np.array([[2.0, 2.0], [2.0, 2.1]])
    f = posterior.predict(near, draws=4000, chains=1, random_seed=0)["predictions"]["f"].values[0]
    wanted = float(np.exp(-0.1 / 0.3))
    # Four standard errors of a correlation: a false alarm in 16,000.
    assert np.corrcoef(f.T)[0, 1] == pytest.approx(wanted, abs=4 * (1 - wanted**2) / np.sqrt(4000))


def test_different_rows_of_labels():
    Z, at, y = repeated()
    labels = (y > 0.2).astype(int)
    found = process("Matern12", 0.3).posterior(Z[at], labels)
    assert repr(found.prior.approximation) == "EveryInput()"
    trials = np.bincount(at, minlength=len(Z))
    successes = np.bincount(at, labels, minlength=len(Z)).astype(int)
    counts = sg.likelihoods.BinomialProbit(trials)
    known = process("Matern12", 0.3, None).posterior(Z, successes, likelihood=counts)
    a, b = found.marginals(NEW), known.marginals(NEW)
    error = np.hypot(a.moment_errors.mean, b.moment_errors.mean)
    # Six numbers within five standard errors: three false alarms in a million.
    assert (np.abs(a.moments.mean - b.moments.mean) < 5 * error).all()
    error = np.hypot(a.moment_errors.sd, b.moment_errors.sd)
    assert (np.abs(a.moments.sd - b.moments.sd) < 5 * error).all()


def test_duels_of_new_items_that_are_near_each_other():
    """Under every input of the data, and under the kernel itself."""
    rng, X = np.random.default_rng(0), np.tile(np.linspace(0.0, 3.0, 4)[:, None], (80, 1))
    duels = rng.permutation(320).reshape(-1, 2)[:60]
    duels = np.sort(duels % 4, axis=1)[:, ::-1] + 4 * np.arange(60)[:, None]  # the larger one wins
    duels = duels[duels[:, 0] != duels[:, 1]]
    own = {"cov_func": 2.0 * pm.gp.cov.ExpQuad(1, ls=1.0)}
    found = []
    for approximation in ("auto", None):
        gp = sg.SkewGP(**own, approximation=approximation)
        posterior = gp.posterior(X, duels, likelihood=sg.likelihoods.Preference(0.3), n_draws=2048)
        found.append(posterior.preference_probability([[1.5]], [[1.7]]))
    # Five standard errors; as if apart given the data they differ by thirty.
    assert abs(found[0].value - found[1].value) < 5 * np.hypot(*(x.std_error for x in found))
