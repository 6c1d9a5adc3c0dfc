"""Outcomes seen where selected, and functions that covary: quadrature over f, and closed forms."""

import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import assert_posterior, function_grid, kernel
from numpy.testing import assert_allclose
from oracles import column, orthant
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import CensoredData, multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import CensoredGaussian, Gaussian, Selection

B = np.array([[2.0, 0.9], [0.9, 1.2]])
LS, SIGMA, RHO = 0.8, 0.7, -0.6
KERNEL = pm.gp.cov.ExpQuad(1, ls=LS)
# Which function a value is of in the last column of X.
BOTH = pm.gp.cov.ExpQuad(2, ls=LS, active_dims=[0]) * pm.gp.cov.Coregion(2, B=B, active_dims=[1])
NAN = np.nan


def k(x):
    x = np.asarray(x, dtype=float)
    return np.exp(-0.5 * ((x[:, None] - x) / LS) ** 2)


def fitted(x, y, rho=RHO, coregion=B, gp=None, **options):
    gp = gp or sg.SkewGP(cov_func=KERNEL)
    return gp.posterior(
        column(*x), y, likelihood=Selection(SIGMA, rho), coregion=coregion, **options
    )


def log_seen(y, outcome, selection):
    """log p(y, selected | f): by the density of y times P(selected | y)."""
    z = (y - outcome) / SIGMA
    given = (selection + RHO * z) / np.sqrt(1 - RHO**2)
    return norm.logpdf(y, outcome, SIGMA) + log_ndtr(given)


CASES = {
    # Values of f: (function, input) of each axis of the grid.
    "seen": ((0.0,), [0.4], [(0, 0), (1, 0)]),
    "seen, not": ((0.0, 0.5), [0.4, NAN], [(0, 0), (1, 0), (1, 1)]),
    "not, seen, not": ((0.3, 0.0, 1.0), [NAN, -1.1, NAN], [(0, 1), (1, 1), (1, 0), (1, 2)]),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    x, y, axes = CASES[request.param]
    function, at = np.array(axes).T
    cov = B[np.ix_(function, function)] * k(x)[np.ix_(at, at)]

    def log_likelihood(f):
        value = {axis: f[:, i] for i, axis in enumerate(axes)}
        total = 0.0
        for i, yi in enumerate(y):
            if np.isnan(yi):
                total = total + log_ndtr(-value[1, i])
            else:
                total = total + log_seen(yi, value[0, i], value[1, i])
        return total

    return x, y, axes, function_grid(np.zeros(len(axes)), cov, log_likelihood)


def test_evidence_and_moments(case):
    """One interval is exact, two are (bivariate), three within 4 standard errors (6e-5 false).

    Moments within 5 errors of 2^14 draws, whose ESS is above a half.
    """
    x, y, axes, grid = case
    posterior = fitted(x, y, n_draws=2**14)
    found = posterior.log_marginal_likelihood
    # 41 nodes an axis are good for 1e-6 in four dimensions, more for 1e-8.
    tolerance = 4 * found.std_error + (1e-5 if len(axes) == 4 else 1e-7)
    assert found.value == pytest.approx(grid.log_evidence, abs=tolerance)
    at = posterior.marginals(column(*x)).moments
    index = [2 * i + function for function, i in axes]
    sd = np.sqrt(grid.cov.diagonal())
    error = 5 * np.sqrt(2 / 2**14)
    assert np.all(np.abs(at.mean[index] - grid.mean) < error * sd)
    assert np.all(np.abs(at.sd[index] - sd) < error * sd)


def test_forecasts(case):
    """At an input that is seen: each within 4 of its standard errors, and these below 0.01."""
    x, y, axes, grid = case
    i = int(np.flatnonzero(~np.isnan(y))[0])
    outcome, selection = (grid.f[axes.index((function, i))] for function in (0, 1))
    p, density = ndtr(selection), norm.pdf(selection)
    expected = {
        "y_mean": grid.average(outcome),
        "p_selected": grid.average(p),
        "y_mean_selected": grid.average(outcome * p + RHO * SIGMA * density) / grid.average(p),
    }
    spread = grid.average(outcome**2) - expected["y_mean"] ** 2
    expected["y_sd"] = np.sqrt(spread + SIGMA**2)
    posterior = fitted(x, y, n_draws=4096)
    dt = posterior.predict(column(x[i]), draws=0)["predictions_summary"]
    for name, value in expected.items():
        error = dt[f"{name}_se"].item()
        assert error < 0.01
        assert dt[name].item() == pytest.approx(value, abs=4 * error + 1e-6)


def test_draws_are_those_of_the_forecasts():
    """40 000 draws of y and of who is selected: 5 Monte Carlo errors, once in a million each."""
    posterior = fitted((0.0, 0.5), [0.4, NAN], n_draws=4096)
    dt = posterior.predict(column(0.2), draws=10_000, random_seed=1)
    y, selected = (dt["predictions"][name].values.ravel() for name in ("y", "selected"))
    summary = dt["predictions_summary"]
    error = 5 / np.sqrt(y.size)
    assert abs(y.mean() - summary["y_mean"].item()) < 1.5 * error * y.std()
    assert abs(y.std() - summary["y_sd"].item()) < 1.5 * error * y.std()
    assert abs(selected.mean() - summary["p_selected"].item()) < error
    among = y[selected].mean()
    assert abs(among - summary["y_mean_selected"].item()) < 3 * error * y.std()


def test_log_likelihood_is_that_of_the_joint_density():
    """Against the joint law of (y, v2) with v2 integrated by quadrature."""
    likelihood = Selection(SIGMA, RHO)
    y, f = np.array([0.4, NAN]), np.array([[[0.2, -0.5], [1.0, 0.7]]])
    nodes, weights = np.polynomial.legendre.leggauss(200)
    v = 6 * (nodes + 1)  # 0 to 12
    cov = [[SIGMA**2, RHO * SIGMA], [RHO * SIGMA, 1.0]]
    joint = multivariate_normal([0.2, -0.5], cov).pdf(np.column_stack([np.full(200, 0.4), v]))
    expected = [np.log(6 * weights @ joint), norm.logcdf(-0.7)]
    assert_allclose(likelihood.log_likelihood(y, f), [expected], rtol=1e-10)


def test_several_outputs_by_a_column():
    """Gaussian data of two outputs under PyMC's Coregion: the closed form, to round-off."""
    x, output = np.array([0.0, 0.7, 1.5, 0.2]), np.array([0, 1, 0, 1])
    y = np.array([0.4, -0.2, 1.1, 0.3])
    K = B[np.ix_(output, output)] * k(x)
    posterior = sg.SkewGP(cov_func=BOTH).posterior(
        np.column_stack([x, output]), y, likelihood=Gaussian(SIGMA)
    )
    G = K + SIGMA**2 * np.eye(4)
    assert posterior.log_marginal_likelihood.value == pytest.approx(
        multivariate_normal(np.zeros(4), G).logpdf(y), abs=1e-9
    )
    assert_allclose(posterior.marginals().moments.mean, K @ np.linalg.solve(G, y), atol=1e-9)


def test_signs_of_both_functions_at_a_pseudo_point():
    """P(f1(r) > 0, f2(r) > 0, not selected) over P(f1(r) > 0, f2(r) > 0): orthants."""
    gp = sg.SkewGP(cov_func=KERNEL, pseudo_points=column(0.4))
    posterior = fitted((0.0,), [NAN], gp=gp, n_draws=8192)
    shared = k([0.0, 0.4])[0, 1]
    cov = np.block([[B, -shared * B[:, 1:]], [-shared * B[1:], B[1:, 1:] + 1.0]])
    expected = np.log(orthant(cov) / orthant(cov[:2, :2]))
    found = posterior.log_marginal_likelihood
    assert found.std_error < 1e-3
    assert found.value == pytest.approx(expected, abs=4 * found.std_error + 1e-9)


def test_the_units_of_the_outcome_do_not_matter():
    """In units of which there are a million: the density of two outcomes changes by their log."""
    x, y, million = (0.0, 0.5, 1.2), np.array([0.4, NAN, -0.2]), 1e6
    scale = np.array([million, 1.0])
    posterior = sg.SkewGP(cov_func=KERNEL).posterior(
        column(*x),
        million * y,
        likelihood=Selection(million * SIGMA, RHO),
        coregion=scale[:, None] * B * scale,
    )
    expected = fitted(x, y)
    assert posterior.log_marginal_likelihood.value == pytest.approx(
        expected.log_marginal_likelihood.value - 2 * np.log(million), abs=1e-6
    )
    found, wanted = (p.marginals(column(0.3)).moments.mean for p in (posterior, expected))
    assert_allclose(found / scale, wanted, rtol=1e-6)
    # Joint draws too: the selection keeps its spread beside the outcome's.
    drawn = posterior.predict(column(0.3), draws=4000, chains=1, random_seed=1)["predictions"]["f"]
    sd = expected.marginals(column(0.3)).moments.sd
    assert_allclose(drawn.values[0].std(axis=0)[0] / scale, sd, rtol=5 / np.sqrt(4000))


def test_coregion_of_low_rank():
    """One function twice: the selection is the outcome; B = w w'."""
    w = np.array([1.5, 0.5])
    posterior = fitted((0.0, 1.0), [0.4, NAN], coregion=np.outer(w, w))
    f = posterior.sample(200, 2, random_seed=1)["posterior"]["f"].values
    assert_allclose(f[..., 0] / 1.5, f[..., 1] / 0.5, atol=1e-5)


def test_an_update_keeps_the_coregion():
    found = fitted((0.0,), [0.4]).update(column(0.5), [NAN]).log_marginal_likelihood.value
    expected = fitted((0.0, 0.5), [0.4, NAN]).log_marginal_likelihood.value
    assert found == pytest.approx(expected, abs=1e-12)


def test_names():
    posterior = fitted((0.0, 1.0), [0.4, NAN])
    dt = posterior.sample(20, 2, random_seed=1)
    assert dt["posterior"]["f"].dims == ("chain", "draw", "obs_id", "function")
    assert list(dt["posterior"]["function"].values) == ["outcome", "selection"]
    again = dt["posterior_predictive"]["y"].values
    assert np.isnan(again).any()
    assert np.isfinite(again).any()
    assert np.isnan(dt["observed_data"]["y"].values).tolist() == [False, True]


def test_coregion_may_be_a_random_variable():
    with pm.Model():
        scale = pm.HalfNormal("scale")
    x, y = (0.0, 0.5), [0.4, NAN]
    found = fitted(x, y, coregion=scale * B, point={"scale": 1.0}).log_marginal_likelihood.value
    assert found == pytest.approx(fitted(x, y).log_marginal_likelihood.value, abs=1e-12)


@pytest.mark.parametrize(
    ("coregion", "message"),
    [
        (np.eye(3), r"coregion must have shape \(2, 2\), as the data are about 2"),
        ([[1.0, 2.0], [2.0, 1.0]], "not positive semidefinite"),
        ([[1.0, 0.5], [0.1, 1.0]], "not symmetric"),
        ([[1.0, 0.0], [0.0, 0.0]], "not positive definite"),
        ([1.0, 2.0], "2 dimension"),
    ],
)
def test_bad_coregion(coregion, message):
    with pytest.raises(ValueError, match=message):
        fitted((0.0,), [0.4], coregion=coregion)


# Tobit and interval censoring: against quadrature over f, exact regression, and what users get.


SD = 0.6
X = np.array([[0.0], [0.7], [1.5], [2.3]])
# Below 0, at .8, above 1.5, and one that is only known to be between .2 and 1.1.
BOUNDS = np.array([[-np.inf, 0.0], [0.8, 0.8], [1.5, np.inf], [0.2, 1.1]])
# Every row an interval, one of which says nothing.
NO_POINTS = np.array([[-np.inf, 0.3], [0.5, 1.0], [-np.inf, np.inf], [-0.2, np.inf]])


def log_p(f, bounds=BOUNDS, sigma=SD):
    """Log density, or log probability, of each value given f, shape (..., n)."""
    low, high = bounds.T
    seen = low == high
    with np.errstate(invalid="ignore"):
        mass = norm.cdf((high - f) / sigma) - norm.cdf((low - f) / sigma)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(seen, norm.logpdf(np.where(seen, low, 0.0), f, sigma), np.log(mass))


@pytest.mark.parametrize("bounds", [BOUNDS[:2], BOUNDS[1:], NO_POINTS[:3]])
def test_intervals_by_quadrature(bounds):
    n = len(bounds)
    grid = function_grid(
        np.zeros(n), kernel(X[:n]), lambda f: np.maximum(log_p(f, bounds), -700.0).sum(axis=1)
    )
    likelihood = CensoredGaussian(SD)
    posterior = sg.SkewGPPosterior(
        X[:n], bounds, cov_func=kernel, likelihood=likelihood, n_draws=2**14
    )
    assert_posterior(posterior, grid)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.5), (None, 1.0), (-0.5, None), (None, None)])
def test_mean_and_deviation_of_a_new_value(low, high):
    """One value seen: f and y at the new point are normal, and moments of y integrals over it."""
    likelihood = CensoredGaussian(SD, low, high)
    posterior = sg.SkewGPPosterior([[0.0]], [0.7], cov_func=kernel, likelihood=likelihood)
    found = posterior.predict([[0.5]], draws=0)["predictions_summary"].dataset
    k = kernel(np.zeros((1, 1)), np.full((1, 1), 0.5))[0, 0]
    mean, sd = k * 0.7 / (2.0 + SD**2), np.sqrt(2.0 - k**2 / (2.0 + SD**2) + SD**2)

    def moment(power):
        def integrand(z):
            return np.clip(mean + sd * z, low, high) ** power * norm.pdf(z)

        kinks = [(x - mean) / sd for x in (low, high) if x is not None]
        return quad(integrand, -10, 10, points=kinks or None, epsabs=1e-12, limit=200)[0]

    assert found["y_mean"].item() == pytest.approx(moment(1), abs=1e-9)
    assert found["y_sd"].item() == pytest.approx(np.sqrt(moment(2) - moment(1) ** 2), abs=1e-9)
    assert found["y_mean_se"].item() == 0.0
    quantiles = np.clip(norm.ppf(found["quantile"].values, mean, sd), low, high)
    assert_allclose(found["y_quantile"].values[:, 0], quantiles, atol=1e-8)  # to 1e-10 sd
    assert ("p_lower" in found) == (low is not None)
    assert ("p_upper" in found) == (high is not None)


def test_narrow_intervals_are_points():
    """Log mass of a width w is log density plus log w, up to w^2."""
    width = 1e-6
    y = np.array([0.2, -0.4, 1.0, 0.3])
    bounds = np.column_stack([y - width / 2, y + width / 2])
    exact = sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=Gaussian(SD))
    found = sg.SkewGPPosterior(X, bounds, cov_func=kernel, likelihood=CensoredGaussian(SD))
    expected = exact.log_marginal_likelihood.value + 4 * np.log(width)
    assert found.log_marginal_likelihood.value == pytest.approx(expected, abs=1e-6)
    assert_allclose(found.marginals().moments.mean, exact.marginals().moments.mean, atol=1e-5)


def test_censored_data_of_scipy():
    """In its own order: seen, left, right, interval."""
    data = CensoredData([0.8], left=[0.0], right=[1.5], interval=[[0.2, 1.1]])
    order = [1, 0, 2, 3]
    found = sg.SkewGPPosterior(X[order], data, cov_func=kernel, likelihood=CensoredGaussian(SD))
    expected = sg.SkewGPPosterior(
        X[order], BOUNDS[order], cov_func=kernel, likelihood=CensoredGaussian(SD)
    )
    assert found.log_marginal_likelihood.value == expected.log_marginal_likelihood.value


def test_tree_of_bounds():
    posterior = sg.SkewGPPosterior(X, BOUNDS, cov_func=kernel, likelihood=CensoredGaussian(SD))
    dt = posterior.sample(50, 2, random_seed=2)
    assert_allclose(dt["log_likelihood"]["y"], log_p(dt["posterior"]["f"].values), atol=1e-9)
    observed = dt["observed_data"].dataset
    assert_allclose(observed["y"], [np.nan, 0.8, np.nan, np.nan])
    assert_allclose(observed["y_lower"], BOUNDS[:, 0])
    assert observed["y_upper"].dims == ("obs_id",)
