"""Priors of areas and walks that PyMC leaves improper, and input that is refused by name."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from pymc.distributions.transforms import ordered
from pymc.exceptions import SamplingError
from scipy.sparse import csr_matrix
from scipy.stats import multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging import integration

LINE = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0.0]])
ISLAND = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0.0]])
Y = np.array([0.3, 1.0, 0.4, 2.0])


def _integrated(model):
    found = sg.integrate(model, draws=500, chains=2, random_seed=0, progressbar=False)
    return found, found["posterior"].attrs["log_evidence"]


def _of_precision(Q, sd, y):
    """Of y = z + noise: log integral of exp(-z'Qz/2) times the data; mean of z and its sd."""
    n = len(y)
    P = Q + np.eye(n) / sd**2
    mean = np.linalg.solve(P, y / sd**2)
    value = -n * np.log(sd) - 0.5 * (y @ y) / sd**2 + 0.5 * mean @ P @ mean
    return value - 0.5 * np.linalg.slogdet(P)[1], mean, np.linalg.inv(P).diagonal() ** 0.5


def _icar_precision(W):
    n = len(W)
    return np.diag(W.sum(0)) - W + 1.0 / (1e-3 * n) ** 2, np.log(1e-3 * n * np.sqrt(2 * np.pi))


@pytest.mark.parametrize("W", [LINE, ISLAND])
def test_an_icar_with_and_without_an_island(W):
    """The level of an island has density 1, which the data bound."""
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=W)
        pm.Normal("y", phi, 0.5, observed=Y)
    Q, constant = _icar_precision(W)
    true, mean, sd = _of_precision(Q, 0.5, Y)
    found, log_evidence = _integrated(model)
    # The sum of all is held by a precision of 6e4, beside which there are ten digits of the rest.
    assert log_evidence == pytest.approx(true - constant, abs=2e-4)
    drawn = found["posterior"]["phi"].values.reshape(-1, 4)
    # 1000 draws: five standard errors, and six for standard deviations of four.
    assert (np.abs(drawn.mean(0) - mean) < 5 * sd / np.sqrt(1000)).all()
    assert (np.abs(drawn.std(0) / sd - 1) < 6 / np.sqrt(2000)).all()
    # Without an island too: PyMC's density lacks a constant.
    assert found["posterior"].attrs["improper_priors"] == "phi"


def test_an_island_without_data_is_refused():
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=ISLAND)
        pm.Normal("y", phi[:3], 0.5, observed=Y[:3])
    # The sum of all bounds the island here.
    _integrated(model)
    two = np.zeros((5, 5))
    two[:3, :3] = ISLAND[:3, :3]
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=two)
        pm.Normal("y", phi[:3], 0.5, observed=Y[:3])
    with pytest.raises(sg.ImproperPriorError, match=r"bound phi\[3\] and phi\[4\]"):
        _integrated(model)


@pytest.mark.parametrize("as_given", [np.asarray, csr_matrix])
@pytest.mark.parametrize("W", [ISLAND, np.triu(LINE), LINE * np.nan])
def test_areas_without_a_neighbour_or_with_one_on_one_side_only(W, as_given):
    with pm.Model() as model:
        z = pm.CAR("z", mu=np.zeros(4), W=as_given(W), alpha=0.5, tau=pm.Gamma("tau", 2.0, 1.0))
        pm.Poisson("y", pm.math.exp(z), observed=[0, 1, 2, 0])
    with pytest.raises(ValueError, match="W must be symmetric, and each area have a neighbour"):
        _integrated(model)


@pytest.mark.parametrize("prior", [pm.HalfNormal, pm.LogNormal])
def test_a_large_island_times_a_scale_is_refused_before_the_search(prior, monkeypatch):
    """Its level has density 1, that of level times s has 1 / s: no integral if p(s = 0) > 0."""

    class BegunError(Exception):
        """A search has begun."""

    def begun(*_):
        raise BegunError

    monkeypatch.setattr(integration, "proper_modes", begun)
    n = 220
    W = np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    W[7] = W[:, 7] = 0.0
    W[6, 8] = W[8, 6] = 1.0
    with pm.Model() as model:
        scaled = prior("s", sigma=1.0) * pm.ICAR("phi", W=W)
        y = np.random.default_rng(0).poisson(2.0, n)
        pm.Poisson("y", pm.math.exp(pm.Normal("level", 0.0, 1.0) + scaled), observed=y)
    refused = pytest.raises(sg.ImproperPriorError, match=r"bound phi\[7\]")
    with refused if prior is pm.HalfNormal else pytest.raises(BegunError):
        _integrated(model)


def test_many_islands_are_not_all_named():
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=np.kron(np.eye(8), [[0, 1], [1, 0]]).astype(int))
        pm.Normal("y", phi[:3], 0.5, observed=Y[:3])
    with pytest.raises(sg.ImproperPriorError, match=r"phi\[\d+\] and \d+ more, .*islands"):
        _integrated(model)


def test_a_walk_from_anywhere():
    with pm.Model() as model:
        f = pm.GaussianRandomWalk("f", sigma=0.7, init_dist=pm.Flat.dist(), shape=4)
        pm.Normal("y", f, 0.5, observed=Y)
    D = np.diff(np.eye(4), axis=0)
    true, mean, sd = _of_precision(D.T @ D / 0.49, 0.5, Y)
    true -= 3 * np.log(0.7) + 1.5 * np.log(2 * np.pi)
    found, log_evidence = _integrated(model)
    # Round-off beside the Gaussian in place of density 1.
    assert log_evidence == pytest.approx(true, abs=1e-4)
    drawn = found["posterior"]["f"].values.reshape(-1, 4)
    # 1000 draws: five standard errors.
    assert (np.abs(drawn.mean(0) - mean) < 5 * sd / np.sqrt(1000)).all()


def test_values_with_shared_noise():
    """`pm.MvNormal` observed, beside values with noise of their own."""
    t = np.arange(4.0)
    X = np.c_[np.ones(4), t]
    noise = 0.5 * np.exp(-np.abs(t[:, None] - t))
    with pm.Model() as model:
        b = pm.Normal("b", 0.5, 2.0, shape=2)
        pm.Normal("first", b[0], 0.3, observed=0.2)
        pm.MvNormal("y", pm.math.dot(X, b), cov=noise, observed=Y)
        pm.Normal("last", b[1], 0.4, observed=[0.2, 0.1])
    X = np.r_[[[1.0, 0.0]], X, [[0.0, 1.0]] * 2]
    y = np.r_[0.2, Y, 0.2, 0.1]
    whole = np.diag([0.09, 0, 0, 0, 0, 0.16, 0.16])
    whole[1:5, 1:5] = noise
    cov = 4.0 * X @ X.T + whole
    true = multivariate_normal(X @ [0.5, 0.5], cov).logpdf(y)
    found, log_evidence = _integrated(model)
    # Gaussian throughout: round-off.
    assert log_evidence == pytest.approx(true, abs=1e-8)
    mean = 0.5 + 4.0 * X.T @ np.linalg.solve(cov, y - X @ [0.5, 0.5])
    drawn = found["posterior"]["b"].values.reshape(-1, 2)
    # 1000 draws of sd at most 1: five standard errors.
    assert (np.abs(drawn.mean(0) - mean) < 5 / np.sqrt(1000)).all()


def test_values_alone():
    """`pm.gp.Marginal` with priors: its function is integrated out by the model itself."""
    x = np.linspace(0.0, 3.0, 9)
    y = np.sin(x) + 0.1 * np.cos(7.0 * x)
    with pm.Model() as model:
        log_scale = pm.Normal("log_scale", 0.0, 0.7)
        gp = pm.gp.Marginal(cov_func=pm.math.exp(2.0 * log_scale) * pm.gp.cov.ExpQuad(1, ls=1.0))
        gp.marginal_likelihood("y", x[:, None], y, sigma=0.2, jitter=0.0)
    t = np.linspace(-4.0, 4.0, 401)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2)
    logs = [multivariate_normal(cov=np.exp(2.0 * s) * K + 0.04 * np.eye(9)).logpdf(y) for s in t]
    density = np.exp(logs + norm.logpdf(t, 0.0, 0.7))
    total = density.sum() * (t[1] - t[0])
    mean = (t @ density) / density.sum()
    sd = np.sqrt((t - mean) ** 2 @ density / density.sum())
    found, log_evidence = _integrated(model)
    # Five standard errors of importance sampling, stated and of 256 points.
    error = found["posterior"].attrs["log_evidence_se"]
    assert abs(log_evidence - np.log(total)) < 5.0 * error
    assert abs(found["posterior"]["log_scale"].mean() - mean) < 5.0 * sd / np.sqrt(256)
    fit = sg.find_hyperparameters(model, random_seed=0, progressbar=False)
    # The grid, and where a search ends.
    assert abs(fit.point["log_scale"] - t[np.argmax(density)]) < 0.03
    assert sg.explain(model).is_taken


def observed(mean, sd=1.0, data=Y):
    return pm.Normal("y", mean, sd, observed=data)


def areas(W):
    return pm.CAR("phi", mu=np.zeros(4), W=W, alpha=0.5, tau=1.0)


def counts(rate, data):
    return pm.Poisson("y", pm.math.exp(rate), observed=data)


def of_density():
    """A coefficient for each of two columns, with a density of its own."""
    b = pm.CustomDist("b", logp=lambda b: -0.5 * (b[:1] - b[1:]) ** 2, shape=2)
    return counts(b[0] + b[1] * X, COUNTS)


def between_others():
    c = pm.Normal("c", shape=4, transform=ordered, initval=[-1.0, 0.0, 1.0, 2.0])
    return observed(c)


def gamma():
    rate = 2.0 / pm.math.exp(pm.Normal("b") * X)
    return pm.Gamma("y", 2.0, rate, observed=Y - 0.5)


def line(*prior):
    return pm.Normal("b", *prior) * X


X = np.linspace(-1.0, 1.0, 4)
COUNTS = np.array([0, 2, 1, 3])
MISSING = np.array([1, np.nan, 1, 2])
EMPTY, INFINITE = np.zeros(0), [0.1, np.inf, 0.2, 0.3]
REFUSED = {
    "y has no rows": lambda: observed(pm.Normal("b") * EMPTY, 1.0, EMPTY),
    "called draw, as a dimension": lambda: observed(pm.Normal("draw") * X),
    "phi has no density in PyMC itself.*each area have a neighbour": lambda: observed(
        areas(ISLAND)
    ),
    r"c \(Normal, bounded by the transform ordered\).*Use pm.sample": between_others,
    r"b \(Uniform\).*pm.Flat in place of pm.Uniform": lambda: observed(
        pm.Uniform("b", -1.0, 1.0) * X
    ),
    "y .*u": lambda: pm.Categorical("y", logit_p=pm.Normal("u", shape=400), observed=[1]),
    "a predictor that b enters is not finite": lambda: observed(pm.Flat("b") * MISSING),
    "y, a Normal variable, has no density.*sigma > 0": lambda: observed(
        line(), pm.HalfNormal("s") * MISSING
    ),
    "the observations of y must be finite": lambda: observed(line(), 1.0, INFINITE),
    r"y has observations of shape \(4,\) and a parameter of shape \(3,\)": lambda: observed(
        pm.Normal("b", shape=3)
    ),
    r"y, a Poisson variable, has no density at 1 of 4 .* number 0 \(-1\)": lambda: counts(
        line(), COUNTS - 1
    ),
    "y, a Gamma variable, has no density at 2 of 4": gamma,
    "b has no density.*sigma > 0": lambda: observed(line(0.0, -1.0)),
    "u has no density.*posdef covariance": lambda: observed(
        pm.MvNormal("u", np.zeros(4), np.ones((4, 4)))
    ),
    "the log density of b is quadratic, but no Gaussian's.*pm.Flat": of_density,
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_name_the_variable(message):
    with pm.Model() as model:
        REFUSED[message]()
    with pytest.raises(ValueError, match=message):
        _integrated(model)


def test_chains_that_cannot_begin(monkeypatch):
    """Named, with the variables that NUTS would have to move."""

    def no_start(*_):
        raise SamplingError("Bad initial energy")

    monkeypatch.setattr(integration, "points_by_chains", no_start)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)
        mu = pm.Uniform("mu", -3.0, 3.0, shape=4)
        pm.Normal("y", b * X + mu, 0.5, observed=Y)
    message = r"NUTS cannot begin .* They are mu \(4 coordinates\)\. .*pm\.Flat"
    with pytest.raises(ValueError, match=message):
        sg.integrate(model, method="nuts", random_seed=0, progressbar=False)


def test_values_that_are_fitted_without_error():
    """The evidence is proportional to sigma^-10 near 0: half-normal priors leave it no integral.

    Begun where the ascent to the end of double precision is short.
    """
    x = np.linspace(-1.0, 1.0, 12)
    with pm.Model() as model:
        b, sigma = pm.Normal("b", 0.0, 1.0, shape=2), pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", b[0] + b[1] * x, sigma, observed=1.0 + 2.0 * x)
    with pytest.raises(sg.ImproperPriorError, match="without any error"):
        sg.integrate(model, start={"sigma": 1e-30}, progressbar=False, random_seed=0)


def test_a_likelihood_that_ends_where_a_latent_variable_says():
    with pm.Model() as model:
        b = pm.Normal("b", 1.0, 0.5)
        pm.Uniform("y", 0.0, pm.math.exp(b), observed=[0.4, 2.0, 1.1])
    with pytest.raises(sg.DoublePrecisionError, match="likelihood is 0"):
        sg.integrate(model, progressbar=False, random_seed=0)


def test_cut_points_in_order_have_a_normalised_prior():
    """Of all orders, whose density PyMC has, one is left. Of points that differ it says so."""
    x = np.array([-1.0, 0.2, 0.8, 1.5])
    y = np.array([0, 1, 1, 2])

    def evidence(mu):
        with pm.Model() as model:
            a = pm.Normal("a", 0, 1)
            cuts = pm.Normal("cuts", mu, 1.5, shape=2, transform=ordered, initval=[-1, 1])
            pm.OrderedProbit("y", eta=a * x, cutpoints=cuts, observed=y)
        return _integrated(model)

    # Points on a grid over a and both cut-points, any order, which is then sorted.
    a, one, two = np.meshgrid(*[np.linspace(-7.5, 7.5, 121)] * 3, indexing="ij", sparse=True)
    low, high = np.minimum(one, two), np.maximum(one, two)
    eta = a[..., None] * x
    below, above = norm.cdf(low[..., None] - eta), norm.cdf(high[..., None] - eta)
    p = below[..., 0] * (above - below)[..., 1] * (above - below)[..., 2] * (1 - above)[..., 3]
    prior = norm.pdf(a) * norm.pdf(one, 0, 1.5) * norm.pdf(two, 0, 1.5)
    true = np.log((p * prior).sum() * 0.125**3)
    found, log_evidence = evidence(0.0)
    attrs = found["posterior"].attrs
    # .003: the kink on the diagonal, by steps of an eighth; five errors of Monte Carlo.
    assert log_evidence == pytest.approx(true, abs=0.003 + 5 * attrs["log_evidence_se"])
    assert attrs["improper_priors"] == ""
    other, _ = evidence([-1.0, 1.0])
    assert other["posterior"].attrs["improper_priors"] == "cuts"
    with pytest.warns(sg.ComparisonWarning, match="cuts"):
        sg.compare({"alike": found, "others": other}, loo=False, progressbar=False)


@pytest.mark.parametrize("name", ["cov", "tau"])
@pytest.mark.parametrize("observed", [False, True])
def test_a_covariance_that_is_not_symmetric_is_refused(name, observed):
    """PyMC's density reads its lower triangle, and its draws read both."""
    matrix = np.array([[1.0, 0.5], [-0.2, 2.0]])

    def model(is_random):
        with pm.Model() as found:
            scale = pm.HalfNormal("s", 1) if is_random else 1.0
            if observed:
                b = pm.Normal("b", 0, 1, shape=2)
                pm.MvNormal("z", b, **{name: scale * matrix}, observed=Y[:2])
            else:
                z = pm.MvNormal("z", np.zeros(2), **{name: scale * matrix})
                pm.Normal("y", z, 0.5, observed=Y[:2])
        return found

    with pytest.raises(ValueError, match="the covariance of z must be symmetric"):
        sg.integrate(model(False), progressbar=False)
    with pytest.raises(ValueError, match=r"symmetric|no value at any start"):
        sg.integrate(model(True), progressbar=False)


@pytest.mark.parametrize("sigma", [1e-60, 1e60])
def test_a_start_beyond_double_precision_is_refused(sigma):
    with pm.Model() as model:
        u = pm.Normal("u", 0, pm.HalfNormal("tau", 1), shape=4)
        pm.Normal("y", u, pm.HalfNormal("sigma", 1), observed=Y)
    with pytest.raises(ValueError, match="no mode of the hyperparameters is reached from start"):
        sg.integrate(model, start={"sigma": sigma}, progressbar=False)


def test_labels_of_y_in_another_order_are_refused():
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0))
    X = pd.DataFrame({"x": [0.0, 1.0, 2.0]}, index=["a", "b", "c"])
    y = pd.Series([0.1, 1.0, 0.3], index=["c", "a", "b"])
    noise = sg.likelihoods.Gaussian(0.5)
    for data in ((X, y), ([(X, y, noise)],)):
        with pytest.raises(ValueError, match=r"another order, and rows go by place: give y.loc"):
            gp.posterior(*data, **({} if len(data) == 1 else {"likelihood": noise}))
    # Labels of its own say nothing of which row is meant.
    for given in (y.loc[X.index], y.reset_index(drop=True)):
        values = gp.posterior(X, given, likelihood=noise).log_marginal_likelihood
        cov = np.exp(-0.5 * (X["x"].values[:, None] - X["x"].values) ** 2) + 0.25 * np.eye(3)
        # Closed form.
        true = multivariate_normal(np.zeros(3), cov).logpdf(given)
        assert values.value == pytest.approx(true, abs=1e-9)
