"""Censored and truncated data of any distribution in a model: by quadrature in two dimensions."""

import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import assert_posterior, function_grid
from scipy import stats

import pymc_skewgp as sg

X = np.array([[0.0], [0.8]])
K = 1.5**2 * np.exp(-0.5 * (X - X.T) ** 2)
UPPER = 2.0


def waiting(f):
    return pm.Exponential.dist(pm.math.exp(f))


def counts(f):
    return pm.Poisson.dist(pm.math.exp(f))


CASES = {
    "waiting": (waiting, [0.5, UPPER], lambda f: stats.expon(scale=np.exp(-f))),
    "counts": (counts, [1, 2], lambda f: stats.poisson(np.exp(f))),
}


def by_quadrature(log_prob):
    """`log_prob` has the rows' log probabilities, each from its value of f."""
    return function_grid(np.zeros(2), K, lambda f: log_prob(f)[0][:, 0] + log_prob(f)[1][:, 1])


def integrated(variable):
    with pm.Model() as model:
        f = sg.SkewGP(cov_func=1.5**2 * pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X)
        variable(f)
    return sg.integrate(model, draws=500, chains=2, progressbar=False, random_seed=5)


def assert_right(found, expected):
    """5 of each error: 5 numbers, false alarm 3e-6."""
    mean, sd = expected.mean, np.sqrt(expected.cov.diagonal())
    attrs = found["sample_stats"].attrs
    assert abs(attrs["log_evidence"] - expected.log_evidence) < 5 * attrs["log_evidence_se"] + 1e-4
    draws = found["posterior"]["f"].values.reshape(-1, 2)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * sd / np.sqrt(len(draws)))
    assert np.all(np.abs(draws.std(axis=0) / sd - 1) < 5 * 1.5 / np.sqrt(2 * len(draws)))


@pytest.mark.parametrize("name", CASES)
def test_censored(name):
    distribution, y, known = CASES[name]
    y = np.asarray(y)

    def log_prob(f):
        own = known(f)
        density = own.logpmf if name == "counts" else own.logpdf
        seen = [density(y[0]), own.logsf(UPPER - 1 if name == "counts" else UPPER)]
        return seen

    found = integrated(
        lambda f: pm.Censored(
            "y", distribution(f), lower=None, upper=y.dtype.type(UPPER), observed=y
        )
    )
    assert_right(found, by_quadrature(log_prob))


def test_truncated():
    y = np.array([0.5, 1.4])
    found = integrated(lambda f: pm.Truncated("y", waiting(f), lower=0.2, upper=UPPER, observed=y))

    def log_prob(f):
        """Of exp(-r y), r = e^f, between the limits: with all digits for large r."""
        rate = np.exp(f)
        inside = -rate * 0.2 + np.log(-np.expm1(-rate * (UPPER - 0.2)))
        return [f - rate * t - inside for t in y]

    assert_right(found, by_quadrature(log_prob))


def test_functions_of_truncated_distributions_far_out():
    """A share that underflows made a log probability infinite: the posterior failed."""
    gp = sg.SkewGP(cov_func=1.5**2 * pm.gp.cov.ExpQuad(1, ls=1.0))
    y = np.array([0.5, 1.4])

    def truncated(eta):
        return pm.Truncated.dist(pm.Gamma.dist(2.0, pm.math.exp(eta)), lower=0.1, upper=5.0)

    def log_prob(f):
        own = stats.gamma(2.0, scale=np.exp(-f))
        # Where both distribution functions are 1 the density is none: the last number stays.
        share = np.log(np.maximum(own.sf(0.1) - own.sf(5.0), 1e-300))
        return [own.logpdf(t) - share for t in y]

    posterior = gp.posterior(X, y, likelihood=truncated, random_seed=1)
    assert_posterior(posterior, by_quadrature(log_prob))
