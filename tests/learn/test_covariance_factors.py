"""Factors of covariance matrices among hyperparameters: coordinates, and averages over them."""

import numpy as np
import pymc as pm
from scipy import stats
from scipy.special import logsumexp

import pymc_skewgp as sg
from pymc_skewgp._model.graph.members import in_covariance_coordinates

GROUP, X = np.repeat(np.arange(6), 5), np.tile(np.linspace(-1.0, 1.0, 5), 6)
NOISE = 0.7


def line_model():
    """Levels and slopes of six groups, of which the slopes hardly differ."""
    rng = np.random.default_rng(1)
    b = rng.normal(size=(6, 2)) * [1.0, 0.1]
    y = b[GROUP, 0] + b[GROUP, 1] * X + NOISE * rng.normal(size=X.size)
    with pm.Model() as model:
        sd = pm.HalfNormal.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)
        z = pm.Normal("z", 0.0, 1.0, shape=(6, 2))
        u = pm.Deterministic("u", pm.math.dot(z, chol.T))
        pm.Normal("y", u[GROUP, 0] + u[GROUP, 1] * X, NOISE, observed=y)
    return model, y


def by_quadrature(y):
    """Log evidence, means of the packed factor and of u: over deviations and correlation."""
    design = np.stack([np.ones(5), X[:5]], axis=1)
    x, w = np.polynomial.legendre.leggauss(40)
    sd, log_sd = 3.0 * (x + 1.0), np.log(3.0 * w)
    a, b, r = np.meshgrid(sd, sd, x, indexing="ij")
    log_p = sum(np.meshgrid(log_sd, log_sd, np.log(w), indexing="ij"))
    log_p = log_p + stats.halfnorm.logpdf(a) + stats.halfnorm.logpdf(b)
    log_p += np.log(0.75 * (1.0 - r**2))  # LKJ's for two rows and eta = 2
    cov = np.stack([a**2, r * a * b, r * a * b, b**2], axis=-1).reshape(*a.shape, 2, 2)
    total = design @ cov @ design.T + NOISE**2 * np.eye(5)
    inverse, (_, log_det) = np.linalg.inv(total), np.linalg.slogdet(2.0 * np.pi * total)
    gain = cov @ design.T @ inverse
    rows = y.reshape(6, 5)
    log_p += -0.5 * (6.0 * log_det + np.einsum("gi,...ij,gj->...", rows, inverse, rows))
    log_evidence = logsumexp(log_p)
    p = np.exp(log_p - log_evidence)
    chol = np.stack([a, r * b, b * np.sqrt(1.0 - r**2)], axis=-1)
    mean = np.einsum("abr,abrki->ki", p, gain) @ rows.T
    return log_evidence, np.tensordot(p, chol, axes=3), mean.T


def test_an_average_over_a_factor():
    """A deviation that may be zero is a funnel in PyMC's coordinates: relative ESS .55 to .6."""
    import arviz as az

    model, y = line_model()
    found = sg.integrate(model, random_seed=0, progressbar=False)["posterior"]
    log_evidence, chol, u = by_quadrature(y)
    attrs = found.attrs
    assert attrs["relative_ess"] > 0.68  # .75 to .78 by seed
    # Sixteen correlated errors within four standard ones: false once in a thousand.
    assert abs(attrs["log_evidence"] - log_evidence) < 4 * attrs["log_evidence_se"]
    for name, right in (("chol", chol), ("u", u)):
        error = az.mcse(found.dataset[[name]], method="mean")[name].to_numpy()
        gap = found[name].mean(("chain", "draw")).to_numpy() - right
        assert (np.abs(gap) < 4 * error).all()


def test_other_models_stay_as_they_are():
    """And the user's own has PyMC's transforms still."""
    model = line_model()[0]
    before = dict(model.rvs_to_transforms)
    assert in_covariance_coordinates(model) is not model
    assert model.rvs_to_transforms == before
    with pm.Model() as plain:
        pm.HalfNormal("s")
    assert in_covariance_coordinates(plain) is plain
