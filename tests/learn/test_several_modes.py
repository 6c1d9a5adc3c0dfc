"""Hyperparameters of a posterior of f with several modes, against quadrature and symmetry.

f is one value with an amplitude eta, seen with Student-t noise as often near 1 as near -1: y -> -y
maps the data to themselves, so the mean of f is 0, and eta is known by a rule over f and eta.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import halfnorm, norm, t

import pymc_skewgp as sg

LEVELS = 1.0 + 0.1 * np.linspace(-1.0, 1.0, 3)
Y = np.concatenate([LEVELS, -LEVELS])
X = np.zeros((Y.size, 1))
DF, SCALE = 1.0, 0.15
ETA = np.linspace(0.02, 9.0, 600)


@cache
def known():
    """Log density of eta and the data at `ETA`."""
    f = np.linspace(-8.0, 8.0, 2001)  # a step of a twentieth of the noise
    log_likelihood = t.logpdf(Y[:, None], DF, f, SCALE).sum(axis=0)
    own = logsumexp(log_likelihood + norm.logpdf(f, scale=ETA[:, None]), axis=1)
    return own + np.log(f[1] - f[0]) + halfnorm.logpdf(ETA, scale=2.0)


def one_process():
    eta = pm.HalfNormal("eta", 2.0)
    # Six values of one f: a correlation that is 1.
    return sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0))


def moments():
    p = np.exp(known() - logsumexp(known()))
    mean = p @ ETA
    return mean, np.sqrt(p @ (ETA - mean) ** 2)


def test_integrate():
    with pm.Model():
        gp = one_process()
        likelihood = sg.likelihoods.StudentT(DF, SCALE)
        found = sg.integrate(gp, X, Y, likelihood=likelihood, n_evidences=64, random_seed=1)
    stats, drawn = found["sample_stats"].attrs, found["posterior"]
    evidence = logsumexp(known()) + np.log(ETA[1] - ETA[0])
    error = stats["log_evidence_se"]
    assert abs(stats["log_evidence"] - evidence) < 4.0 * error < 0.12
    mean, sd = moments()
    # Over eight seeds errors were .11 of the deviation and 17 % of it; four of them.
    assert abs(float(drawn["eta"].mean()) - mean) < 0.45 * sd
    assert float(drawn["eta"].std()) == pytest.approx(sd, rel=0.7)
    f = drawn["f"].to_numpy()[..., 0]
    # Over the same seeds .011, and .024 of the deviation; five of them.
    assert abs((f > 0).mean() - 0.5) < 0.06
    assert abs(f.mean()) < 0.12 * f.std()


def test_the_best_amplitude():
    with pm.Model():
        gp = one_process()
        likelihood = sg.likelihoods.StudentT(DF, SCALE)
        found = sg.find_hyperparameters(gp, X, Y, likelihood=likelihood, random_seed=1)
    exact = known()
    eta = float(found.point["eta"])
    # At most so many nats below the best: within the stated error of the evidence.
    assert exact.max() - np.interp(eta, ETA, exact) < 0.02
    value = found.log_marginal_likelihood
    at_best = value.value + halfnorm.logpdf(eta, scale=2.0)
    assert abs(at_best - exact.max()) < 0.02 + 4.0 * value.std_error < 0.25


@pytest.mark.usefixtures("in_python")
def test_the_step():
    with pm.Model():
        f = one_process().prior("f", X)
        pm.StudentT("y", nu=DF, mu=f, sigma=SCALE, observed=Y)
        found = pm.sample(tune=100, draws=250, chains=2, cores=1, random_seed=3, progressbar=False)[
            "posterior"
        ]
    mean, sd = moments()
    first = found["f"].to_numpy()[..., 0]
    # About all modes: without jumps a chain stays at one of them.
    assert (np.count_nonzero(np.diff(first > 0, axis=1), axis=1) > 25).all()
    # Some 150 independent draws: errors of .08 deviations, four of them.
    assert abs(first.mean()) < 0.35
    assert abs(float(found["eta"].mean()) - mean) < 0.35 * sd


@pytest.mark.parametrize("sd", [1.0, 100.0])
def test_a_mode_beyond_the_reach_of_the_other(sd):
    # EP's Gaussian is narrow, about the one mode of |f| near 1: log p is concave about it.
    y, noise = np.array([1.0, 1.1]), 0.1
    with pm.Model() as model:
        f = pm.Normal("f", 0.5, sd)
        pm.Normal("y", pm.math.abs(f), noise, observed=y)
    found = sg.integrate(model, random_seed=1)["posterior"]
    # A step of a fiftieth of the noise, in which both modes are; the ends are 100 deviations away.
    at = np.linspace(-10.0, 10.0, 10_001)
    log_density = norm.logpdf(y[:, None], abs(at), noise).sum(axis=0) + norm.logpdf(at, 0.5, sd)
    evidence = logsumexp(log_density) + np.log(at[1] - at[0])
    stated = found.attrs["log_evidence_se"]
    assert abs(found.attrs["log_evidence"] - evidence) < 4.0 * stated < 0.02
    share = np.exp(logsumexp(log_density[at > 0]) - logsumexp(log_density))
    # Draws are equally weighted ones of at least half as many: five of their errors.
    draws = found["f"].to_numpy().ravel()
    assert abs((draws > 0).mean() - share) < 5.0 * np.sqrt(2.0 * share * (1 - share) / draws.size)
