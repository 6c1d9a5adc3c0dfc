"""Any PyMC distribution as a likelihood of sites: densities by SciPy, slopes by differences."""

import pickle
import tracemalloc

import mpmath
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from likelihood_cases import COUNTS, EXPOSURES, LABELS, LEVELS, POSITIVE, VALUES
from pytensor.scalar.math import Log1mexp
from scipy import stats
from scipy.special import expit, logsumexp, ndtr, polygamma

from pymc_skewgp import NotSitesError
from pymc_skewgp._model.gp.distribution_graph import distribution_graph
from pymc_skewgp._model.gp.site_functions import DistributionSites, SiteFunctions
from pymc_skewgp._model.ops.plain_mode import _FUNCTIONS
from pymc_skewgp._posterior.output import LatentMarginals

N = 8
UNIT = np.array([0.1, 0.5, 0.9, 0.3, 0.7, 0.2, 0.4, 0.6])
F = np.random.default_rng(3).normal(size=(2, 3, N))


def _zero_inflated(y, f):
    own = np.log(0.7) + stats.poisson.logpmf(y, np.exp(f))
    return np.where(y == 0, logsumexp([own, np.full(f.shape, np.log(0.3))], axis=0), own)


normal, poisson = pm.Normal.dist, lambda eta: pm.Poisson.dist(pm.math.exp(eta))


# name: what a user writes, y, log density by SciPy
CASES = {
    "poisson": (
        lambda eta: pm.Poisson.dist(EXPOSURES * pm.math.exp(eta)),
        COUNTS,
        lambda y, f: stats.poisson.logpmf(y, EXPOSURES * np.exp(f)),
    ),
    "logit": (
        lambda eta: pm.Bernoulli.dist(logit_p=eta),
        LABELS,
        lambda y, f: stats.bernoulli.logpmf(y, expit(f)),
    ),
    "beta": (
        lambda eta: pm.Beta.dist(mu=pm.math.sigmoid(eta), nu=5.0),
        UNIT,
        lambda y, f: stats.beta.logpdf(y, 5 * expit(f), 5 * expit(-f)),
    ),
    "zero inflated": (
        lambda eta: pm.ZeroInflatedPoisson.dist(psi=0.7, mu=pm.math.exp(eta)),
        COUNTS,
        _zero_inflated,
    ),
    "truncated": (
        lambda eta: pm.Truncated.dist(pm.Normal.dist(eta, 0.8), lower=0.0),
        POSITIVE,
        lambda y, f: stats.truncnorm.logpdf(y, -f / 0.8, np.inf, f, 0.8),
    ),
    "censored": (
        lambda eta: pm.Censored.dist(pm.Normal.dist(eta, 0.8), lower=0.0, upper=None),
        np.maximum(VALUES, 0.0),
        lambda y, f: np.where(y > 0, stats.norm.logpdf(y, f, 0.8), stats.norm.logcdf(0.0, f, 0.8)),
    ),
    "categories from a stack": (
        lambda eta: pm.Categorical.dist(logit_p=pt.stack([eta, -eta, 0.0 * eta], axis=1)),
        LEVELS,
        lambda y, f: (
            np.take_along_axis(
                z := np.stack([f, -f, 0 * f], -1), np.broadcast_to(y, f.shape)[..., None], -1
            )[..., 0]
            - logsumexp(z, axis=-1)
        ),
    ),
    "own density": (
        lambda eta: pm.CustomDist.dist(eta, logp=lambda y, eta: -pt.abs(y - eta) - pt.log(2.0)),
        VALUES,
        lambda y, f: stats.laplace.logpdf(y, f),
    ),
    "rice": (  # slopes by differences: PyTensor has none
        lambda eta: pm.Rice.dist(nu=pm.math.exp(eta), sigma=1.0),
        POSITIVE,
        lambda y, f: stats.rice.logpdf(y, np.exp(f)),
    ),
    "function of a variable": (
        lambda eta: pm.math.exp(pm.Normal.dist(eta, 0.7)),
        POSITIVE,
        lambda y, f: stats.lognorm.logpdf(y, 0.7, scale=np.exp(f)),
    ),
}
MEANS = {
    "poisson": lambda f: EXPOSURES * np.exp(f),
    "logit": expit,
    "beta": expit,
    "zero inflated": lambda f: 0.7 * np.exp(f),
    "truncated": lambda f: stats.truncnorm.mean(-f / 0.8, np.inf, f, 0.8),
    "censored": lambda f: f * ndtr(f / 0.8) + 0.8 * stats.norm.pdf(f / 0.8),
    "function of a variable": lambda f: np.exp(f + 0.245),
}


@pytest.mark.parametrize("name", CASES)
def test_density_is_that_of_scipy_and_slopes_are_its_derivatives(name):
    distribution, y, expected = CASES[name]
    likelihood = DistributionSites(distribution, {})
    data = likelihood.as_data(y, N)
    found = likelihood.log_likelihood(data, F)
    # Sums of some ten terms of size up to ten, of double precision.
    np.testing.assert_allclose(found, expected(data, F), rtol=1e-10, atol=1e-10)
    first, second = likelihood.slopes(data, F)
    h = 1e-4
    above, below = expected(data, F + h), expected(data, F - h)
    # Third and fourth derivatives times h^2, and round-off over h and h^2.
    np.testing.assert_allclose(first, (above - below) / (2 * h), rtol=1e-5, atol=1e-6)
    if name != "own density":  # whose slope is not continuous
        curvature = (above - 2 * expected(data, F) + below) / h**2
        np.testing.assert_allclose(second, curvature, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["poisson", "logit", "beta", "truncated"])
def test_density_of_some_rows_alone(name):
    distribution, y, expected = CASES[name]
    data, rows = DistributionSites(distribution, {}).as_data(y, N), np.array([5, 0, 3])
    alone = SiteFunctions(distribution_graph(distribution, N)).at(data, []).some(rows)
    right = expected(data, F)[..., rows]
    np.testing.assert_allclose(alone(F[..., rows]), right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MEANS)
def test_draws_have_the_mean_of_the_distribution(name):
    distribution, y, _ = CASES[name]
    likelihood = DistributionSites(distribution, {})
    data, rng = likelihood.as_data(y, N), np.random.default_rng(7)
    f = np.tile(F[0, 0], (4, 2000, 1))
    drawn = likelihood.replicate(data, f, likelihood.log_likelihood(data, f), rng)
    assert drawn.shape == f.shape
    drawn = drawn.reshape(-1, N)
    error = drawn.std(axis=0) / np.sqrt(drawn.shape[0])
    # 5 standard errors at 8 entries of 7 cases: false alarm 3e-5.
    assert (np.abs(drawn.mean(axis=0) - MEANS[name](F[0, 0])) < 5 * error).all()
    assert np.unique(drawn[:, 0]).size > 1  # and not one draw for all


@pytest.mark.slow(ci=True)
def test_draws_by_rejection_need_no_memory_for_each_step():
    """PyMC draws truncated counts in a loop of up to 10,000 steps."""

    likelihood = DistributionSites(lambda eta: pm.Truncated.dist(poisson(eta), lower=1), {})
    data, rng = likelihood.as_data(COUNTS + 1, N), np.random.default_rng(1)
    f = np.zeros((2500, N))
    likelihood.replicate(data, f[:1], f[:1], rng)  # compiles, which is slow while memory is traced
    tracemalloc.start()
    drawn = likelihood.replicate(data, f, f, rng)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e8  # for all draws at once it would be 10,000 times 120,000 bytes
    assert drawn.min() == 1
    mean, error = 1 / (1 - np.exp(-1)), drawn.std() / np.sqrt(drawn.size)
    assert abs(drawn.mean() - mean) < 5 * error  # false alarm 6e-7


def test_constants_of_each_row_have_no_new_points():
    rng = np.random.default_rng(0)
    likelihood = DistributionSites(CASES["poisson"][0], {})
    likelihood.as_data(COUNTS, N)
    assert likelihood.predictive_draws(np.zeros((1, 2, 3)), rng) == {}
    assert likelihood.predictive_summary(_mixture()) == {}


def _mixture():
    means = np.random.default_rng(1).normal(0.0, 0.3, (2, 400))
    return LatentMarginals(means, np.array([0.1, 0.5]), np.full(400, 1 / 400))


@pytest.mark.parametrize("known", [True, False])
def test_forecast_of_counts(known):
    """Mean and sd of a Poisson variable over a log-normal mixture, in closed form."""

    def unknown(eta):  # which PyMC has no mean for
        return pm.CustomDist.dist(
            eta,
            logp=lambda y, eta: pm.logp(poisson(eta), y),
            random=lambda eta, rng=None, size=None: rng.poisson(np.exp(eta), size=size),
            dtype="int64",
        )

    mixture = _mixture()
    found = DistributionSites(poisson if known else unknown, {}).predictive_summary(mixture)
    rate = np.exp(mixture.means + mixture.variance[:, None] / 2)
    mean = rate.mean(axis=1)
    square = np.exp(2 * mixture.means + 2 * mixture.variance[:, None]).mean(axis=1)
    sd = np.sqrt(mean + square - mean**2)
    if known:
        np.testing.assert_allclose(found["y_mean"], mean, rtol=1e-10)  # the rule is exact here
        error = rate.std(axis=1) / np.sqrt(400)
        np.testing.assert_allclose(found["y_mean_se"], error, rtol=1e-6)
    # 5 standard errors, the components being given; 4 numbers: false alarm 2e-6.
    assert (np.abs(found["y_mean"] - mean) < 5 * found["y_mean_se"]).all()
    assert (np.abs(found["y_sd"] - sd) < 5 * found["y_sd_se"]).all()
    assert (found["y_sd_se"] < 0.1 * sd).all()


def test_forecasts_are_left_out_where_there_are_none():
    mixture, rng = _mixture(), np.random.default_rng(0)
    cauchy = DistributionSites(lambda eta: pm.Cauchy.dist(eta, 1.0), {})
    assert cauchy.predictive_summary(mixture) == {}  # it has no mean
    assert cauchy.predictive_draws(F, rng)["y"].shape == F.shape
    own = DistributionSites(CASES["own density"][0], {})
    assert own.predictive_summary(mixture) == {} == own.predictive_draws(F, rng)
    assert own.replicate(VALUES, F, F, rng) is None


def test_values_of_hyperparameters_and_pickling():
    with pm.Model() as model:
        alpha = pm.HalfNormal("alpha")

    def counts(eta):
        return pm.NegativeBinomial.dist(mu=pm.math.exp(eta), alpha=alpha)

    def labels(eta):
        return pm.Bernoulli.dist(logit_p=eta)

    likelihood = DistributionSites(counts, {"alpha": 3.0})
    expected = stats.nbinom.logpmf(COUNTS, 3.0, 3.0 / (3.0 + np.exp(F)))
    np.testing.assert_allclose(likelihood.log_likelihood(COUNTS, F), expected, rtol=1e-10)
    again = pickle.loads(pickle.dumps(DistributionSites(labels, {})))
    np.testing.assert_allclose(
        again.log_likelihood(LABELS, F[0, 0]), stats.bernoulli.logpmf(LABELS, expit(F[0, 0]))
    )
    with pytest.raises(ValueError, match=r"depends on the random variable\(s\) alpha of a model"):
        DistributionSites(counts, {}).as_data(COUNTS, N)
    assert list(model.named_vars) == ["alpha"]


def test_far_out_one_impossible_entry_leaves_the_others():
    """Scales that underflow are impossible there alone, and raise no error."""
    likelihood = DistributionSites(lambda eta: pm.Normal.dist(0.0, pm.math.exp(eta)), {})
    data = likelihood.as_data(VALUES, N)
    f = np.zeros(N)
    f[2] = -1000.0
    found = likelihood.log_likelihood(data, f)
    assert found[2] == -np.inf
    np.testing.assert_allclose(np.delete(found, 2), stats.norm.logpdf(np.delete(VALUES, 2)))


COUPLED = {
    "Sum": lambda eta: normal(eta - eta.mean(), 1.0),
    "Softmax": lambda eta: normal(pm.math.softmax(eta), 1.0),
    "Dot": lambda eta: normal(np.ones((N, N)) @ eta, 1.0),
    "Subtensor": lambda eta: normal(eta[::-1], 1.0),
    "Max": lambda eta: normal(0.0, pt.exp(eta - eta.max())),
    "SortOp": lambda eta: normal(pt.sort(eta), 1.0),
    "Sub ": lambda eta: normal((eta[:, None] - eta[None, :]).max(axis=1), 1.0),
    "Join": lambda eta: normal(pt.concatenate([eta, 0 * eta])[:N], 1.0),
    # Not known to the analysis of the graph: found by values.
    "Reshape": lambda eta: normal(eta.reshape((2, 4)).T.ravel(), 1.0),
    "joint distribution": lambda eta: pm.MvNormal.dist(eta, np.eye(N)),
}


@pytest.mark.parametrize("operation", COUPLED)
def test_what_does_not_factorise_is_refused_by_the_name_of_the_operation(operation):
    with pytest.raises(NotSitesError, match=operation.strip()):
        DistributionSites(COUPLED[operation], {}).as_data(VALUES, N)


def test_what_only_looks_coupled_is_accepted():
    """Operations that the analysis does not know, but that keep entries apart."""
    likelihood = DistributionSites(lambda eta: pm.Normal.dist(eta.reshape((2, 4)).ravel(), 1.0), {})
    data = likelihood.as_data(VALUES, N)
    np.testing.assert_allclose(likelihood.log_likelihood(data, F), stats.norm.logpdf(VALUES, F))


# error: what it says, and the function
WRONG = {
    TypeError: {
        "result of Exp, not": lambda eta: pm.math.exp(eta),
        "without a name, found y": lambda eta: pm.Normal("y", eta),
        "any number of predictors: write them": lambda *f: normal(f[0], pt.exp(f[1])),
    },
    NotSitesError: {
        "does not depend on the predictor": lambda eta: normal(0.0, 1.0, shape=N),
        "depends on another random variable": lambda eta: normal(eta, pm.HalfNormal.dist()),
        "no log probability": lambda eta: normal(eta) + normal(0.0),
    },
    ValueError: {
        r"shape \(8,\), one": lambda eta: normal(eta.sum(), 1.0),
        "2 dimension": lambda eta: normal(eta[:, None]),
        r"failed for a predictor of shape \(8,\)": lambda eta: normal(eta + np.ones(4)),
        "outside of its range, which is sigma > 0": lambda eta: normal(eta, -1.0),
    },
}
# what is said, the function, y
WRONG_DATA = {
    r"MultinomialProbit\(\) for classes": (
        lambda eta: pm.Categorical.dist(p=pm.math.softmax(eta)),
        COUNTS,
    ),
    "outside of the support of Poisson in 6 of 8 row": (poisson, -COUNTS),
    "must hold integers": (poisson, POSITIVE),
    "must be finite": (normal, VALUES * np.nan),
}


@pytest.mark.parametrize("error", WRONG)
def test_errors_say_what_is_wrong(error):
    for says, distribution in WRONG[error].items():
        with pytest.raises(error, match=says):
            DistributionSites(distribution, {}).as_data(VALUES, N)


@pytest.mark.parametrize("says", WRONG_DATA)
def test_errors_of_data_say_what_is_wrong(says):
    distribution, y = WRONG_DATA[says]
    with pytest.raises(ValueError, match=says):
        DistributionSites(distribution, {}).as_data(y, N)


@pytest.mark.parametrize("kind", _FUNCTIONS, ids=lambda kind: kind.__name__)
def test_functions_of_arrays_are_those_of_numbers(kind):
    x = np.array([-700.0, -30.0, -0.7, -0.01, -1e-9]) * (1 if kind.__name__ == "Log1mexp" else -1)
    expected = {
        "Softplus": lambda x: x + np.log1p(np.exp(-x)),
        "Log1mexp": lambda x: [float(mpmath.log1p(-mpmath.exp(t))) for t in x],
        "TriGamma": lambda x: polygamma(1, x),
    }[kind.__name__]
    with mpmath.workdps(400):  # digits of 1 - exp(-700)
        np.testing.assert_allclose(_FUNCTIONS[kind](x), expected(x), rtol=1e-12)


def test_log1mexp_at_its_end():
    """Censored values far out: probabilities of one, as PyTensor's own."""
    assert _FUNCTIONS[Log1mexp](np.array([-0.0, -1e-320])).tolist() == [-np.inf, np.log(1e-320)]
