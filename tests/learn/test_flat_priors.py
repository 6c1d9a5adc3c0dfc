"""Flat priors of hyperparameters and coefficients, against closed forms and quadrature."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

import pymc_skewgp as sg


def _integrated(model):
    found = sg.integrate(model, draws=500, chains=2, random_seed=0, progressbar=False)
    return found, found["posterior"].attrs


def _line(flat_intercept_alone=False):
    rng = np.random.default_rng(4)
    X = np.c_[np.ones(12), 2000.0 + np.arange(12.0)]
    y = 3.0 + 0.4 * np.arange(12.0) + 0.5 * rng.normal(size=12)
    return X, y


def _log_evidence_of_line(X, y, sigma):
    """Coefficients of density one integrated out: log of the restricted likelihood."""
    n, p = X.shape
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    found = -(n - p) * (0.5 * np.log(2 * np.pi) + np.log(sigma))
    return found - 0.5 * residual @ residual / sigma**2 - 0.5 * np.linalg.slogdet(X.T @ X)[1]


def test_a_line_with_flat_coefficients_and_scale_is_its_closed_form():
    # An intercept beside years: columns that agree to one part in a thousand.
    X, y = _line()
    with pm.Model() as model:
        b = pm.Flat("b", shape=2)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("y", pm.math.dot(X, b), sigma, observed=y)
    found, attrs = _integrated(model)
    n, p = X.shape
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    residual = y - X @ best
    square = residual @ residual
    # The integral of sigma^-(n-p) exp(-square / 2 sigma^2) over sigma.
    power = 0.5 * (n - p - 1)
    true = gammaln(power) - np.log(2.0) - power * np.log(0.5 * square)
    true -= 0.5 * (n - p) * np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(X.T @ X)[1]
    # Five standard errors: a false alarm in 2e6 seeds.
    assert abs(attrs["log_evidence"] - true) < 5 * attrs["log_evidence_se"] + 1e-4
    assert attrs["improper_priors"] == "b, sigma"
    # Of Student's distribution with n - p - 1 degrees of freedom.
    scale = np.sqrt(square / (n - p - 1) * np.linalg.inv(X.T @ X)[1, 1])
    sd = scale * np.sqrt((n - p - 1) / (n - p - 3))
    slope = found["posterior"]["b"].values[..., 1].ravel()
    # 1000 draws at 256 values of sigma: five standard errors of 256; of the sd eight hundredths.
    assert abs(slope.mean() - best[1]) < 5 * sd / 16
    assert abs(slope.std() / sd - 1) < 0.3


def test_find_hyperparameters_maximises_the_restricted_likelihood():
    X, y = _line()
    with pm.Model() as model:
        b = pm.Flat("b", shape=2)
        pm.Normal("y", pm.math.dot(X, b), pm.HalfFlat("sigma"), observed=y)
    fit = sg.find_hyperparameters(model, random_seed=0, progressbar=False)
    n, p = X.shape
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    true = np.sqrt(residual @ residual / (n - p))
    # The search ends where a step gains less than 2e-4 nats: a relative sqrt(2e-4 / (n - p)).
    assert abs(fit.point["sigma"] / true - 1) < 5e-3
    # That gain.
    assert fit.log_marginal_likelihood.value == pytest.approx(
        _log_evidence_of_line(X, y, true), abs=3e-4
    )
    assert fit.improper_priors == ["b"]
    assert "under density 1 of b" in str(fit)


@pytest.mark.parametrize("unit", [1e-6, 1e5])
def test_scales_far_from_one(unit):
    y = np.random.default_rng(2).normal(size=12)
    log_evidence = []
    for u in (1.0, unit):
        with pm.Model() as model:
            pm.Normal("y", pm.Flat("mu"), pm.HalfFlat("sigma"), observed=3.0 * u + u * y)
        attrs = _integrated(model)[1]
        log_evidence.append(attrs["log_evidence"])
    # Densities of twelve values, of mu and of sigma.
    error = 5 * np.sqrt(2.0) * attrs["log_evidence_se"]
    assert abs(log_evidence[1] - log_evidence[0] + 10 * np.log(unit)) < error


def _groups(n_groups, scale):
    """Groups of four values with noise 1, and the mean and sd of each group's mean."""
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(n_groups), 4)
    y = rng.normal(size=n_groups)[g] + rng.normal(size=g.size)
    with pm.Model() as model:
        mu = pm.Flat("mu")
        pm.Normal("y", pm.Normal("u", mu, scale(), shape=n_groups)[g], 1.0, observed=y)
    return model, y.reshape(n_groups, 4)


def test_scale_of_few_groups_is_its_quadrature():
    model, y = _groups(4, lambda: pm.HalfFlat("s"))
    _, attrs = _integrated(model)
    # Means of groups are N(mu, s^2 + 1/4), mu of density one; the rest of the values is apart.
    x = np.linspace(-14.0, 14.0, 20001)
    s, means = np.exp(x), y.mean(axis=1)
    var = s**2 + 0.25
    within = norm.logpdf(y).sum() - norm.logpdf(means, 0.0, 0.5).sum()
    logs = -1.5 * np.log(2 * np.pi * var) - 0.5 * means.var() * 4 / var - 0.5 * np.log(4.0)
    true = within + logsumexp(logs + x) + np.log(x[1] - x[0])
    # Five standard errors.
    assert abs(attrs["log_evidence"] - true) < 5 * attrs["log_evidence_se"] + 1e-4
    assert attrs["improper_priors"] == "mu, s"


@pytest.mark.parametrize(
    ("n_groups", "scale", "message"),
    [
        # The likelihood falls as s^-(J - 1).
        (2, lambda: pm.HalfFlat("s"), "s has a flat prior.*improper: as it goes to infinity"),
        # It is not zero where there are no effects.
        (5, lambda: pm.math.exp(pm.Flat("t")), "t has a flat prior.*to minus infinity"),
        (5, lambda: pm.HalfFlat("q") ** -0.5, "q has a flat prior.*to infinity"),
    ],
)
def test_improper_posteriors_of_hyperparameters_are_refused(n_groups, scale, message):
    model, _ = _groups(n_groups, scale)
    with pytest.raises(sg.ImproperPriorError, match=message):
        _integrated(model)


def test_no_more_values_than_coefficients_is_improper():
    with pm.Model() as model:
        b = pm.Flat("b", shape=2)
        mean = pm.math.dot(np.array([[1.0, 0.3], [0.2, -1.0]]), b)
        pm.Normal("y", mean, pm.HalfFlat("sigma"), observed=[0.3, 1.0])
    # Of all three: which of them is met first depends on the search.
    with pytest.raises(sg.ImproperPriorError, match="flat prior"):
        _integrated(model)


def test_a_column_of_zeros_is_named():
    x = np.linspace(-1, 1, 6)
    with pm.Model() as model:
        a, b = pm.Flat("a"), pm.Flat("b")
        pm.Normal("y", a + b * np.zeros(6), 1.0, observed=x)
    with pytest.raises(sg.ImproperPriorError, match="bound b, "):
        _integrated(model)
    with pytest.raises(sg.ImproperPriorError, match="bound b, "):
        sg.find_hyperparameters(model, progressbar=False)


def test_separated_labels_are_refused_where_one_maximises():
    x = np.linspace(-1, 1, 10)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        u = pm.Normal("u", 0.0, tau, shape=2)[np.arange(10) % 2]
        logit = u + pm.Flat("b") * x
        pm.Bernoulli("y", logit_p=logit, observed=(x > 0).astype(int))
    with pytest.raises(sg.ImproperPriorError, match=r"bound b, .*separated"):
        sg.find_hyperparameters(
            model, method="ep", n_restarts=0, progressbar=False, quiet=True, random_seed=0
        )


def test_a_potential_bounds_what_data_do_not():
    with pm.Model() as model:
        b = pm.Flat("b", shape=2)
        pm.Potential("known", pm.logp(pm.Normal.dist(0.5, 2.0), b[1]))
        pm.Normal("y", b[0], 1.0, observed=[0.3, 1.0, 0.1])
    found, attrs = _integrated(model)
    y = np.array([0.3, 1.0, 0.1])
    true = norm.logpdf(y - y.mean()).sum() + 0.5 * np.log(2 * np.pi / 3)
    # Round-off of a Gaussian wide by 1e6 beside the potential.
    assert attrs["log_evidence"] == pytest.approx(true, abs=1e-3)
    drawn = found["posterior"]["b"].values[..., 1]
    # 1000 draws: five standard errors.
    assert abs(drawn.mean() - 0.5) < 5 * 2.0 / np.sqrt(1000)
    assert abs(drawn.std() / 2.0 - 1.0) < 5 / np.sqrt(2000)
