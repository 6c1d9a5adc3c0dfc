"""Tobit and interval censoring: against quadrature over f, exact regression, and what users get."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import function_grid, kernel, one_sign
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import CensoredData, norm

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import CensoredGaussian, Gaussian

SIGMA, LOW, HIGH = 0.6, 0.0, 1.5
X = np.array([[0.0], [0.7], [1.5], [2.3]])
Y = np.array([0.0, 0.8, 1.5, 0.4])
# The same with bounds of each value, and one that is only known to be between .2 and 1.1.
BOUNDS = np.array([[-np.inf, 0.0], [0.8, 0.8], [1.5, np.inf], [0.2, 1.1]])
XNEW = np.array([[0.3], [5.0]])
DRAWS = 2**14


def log_p(f, bounds=BOUNDS, sigma=SIGMA):
    """Log density, or log probability, of each value given f, shape (..., n)."""
    low, high = bounds.T
    seen = low == high
    with np.errstate(invalid="ignore"):
        mass = norm.cdf((high - f) / sigma) - norm.cdf((low - f) / sigma)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(seen, norm.logpdf(np.where(seen, low, 0.0), f, sigma), np.log(mass))


def bounds_of(y):
    low, high = np.where(y <= LOW, -np.inf, y), np.where(y >= HIGH, np.inf, y)
    return np.column_stack([np.where(y >= HIGH, HIGH, low), np.where(y <= LOW, LOW, high)])


def kinds(n):
    tobit = CensoredGaussian(SIGMA, LOW, HIGH)
    return [(Y[:n], tobit, bounds_of(Y[:n])), (BOUNDS[:n], CensoredGaussian(SIGMA), BOUNDS[:n])]


@pytest.mark.parametrize("kind", [0, 1], ids=["tobit", "intervals"])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_by_quadrature(n, kind):
    y, likelihood, bounds = kinds(n)[kind]
    K = kernel(X[:n])
    grid = function_grid(np.zeros(n), K, lambda f: np.maximum(log_p(f, bounds), -700.0).sum(axis=1))
    posterior = sg.SkewGPPosterior(X[:n], y, cov_func=kernel, likelihood=likelihood, n_draws=DRAWS)
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - grid.log_evidence) < max(1e-5, 4 * evidence.std_error)
    at = posterior.marginals()
    assert np.all(np.abs(at.moments.mean - grid.mean) < 1e-6 + 5 * at.moment_errors.mean)
    sd = np.sqrt(grid.cov.diagonal())
    assert np.all(np.abs(at.moments.sd - sd) < 1e-6 + 5 * at.moment_errors.sd)
    if kind:
        return
    gain = np.linalg.solve(K, kernel(X[:n], XNEW))
    mean = gain.T @ grid.f
    s = np.sqrt(2.0 - np.einsum("ij,ij->j", kernel(X[:n], XNEW), gain) + SIGMA**2)[:, None]
    found = posterior.predict(XNEW, draws=0)["predictions_summary"].dataset
    p_low, p_high = norm.cdf((LOW - mean) / s), norm.sf((HIGH - mean) / s)
    for name, p in (("p_lower", p_low), ("p_upper", p_high)):
        off = np.abs(found[name].values - grid.average(p))
        assert np.all(off < 1e-6 + 5 * found[f"{name}_se"].values)
    # E y = L P(low) + U P(high) + the mean of a normal truncated to the limits times its mass.
    a, b = (LOW - mean) / s, (HIGH - mean) / s
    inside = mean * (1 - p_low - p_high) + s * (norm.pdf(a) - norm.pdf(b))
    expected = grid.average(LOW * p_low + HIGH * p_high + inside)
    off = np.abs(found["y_mean"].values - expected)
    assert np.all(off < 1e-6 + 5 * found["y_mean_se"].values)
    # Quantiles: limits where they have as much probability, else by the distribution function.
    probs = found["quantile"].values
    for y_q, p in zip(found["y_quantile"].values, probs, strict=True):
        below = grid.average(norm.cdf((y_q[:, None] - mean) / s))
        at_low, at_high = y_q == LOW, y_q == HIGH
        assert (below[at_low] > p - 2e-3).all()
        assert (below[at_high] < p + 2e-3).all()
        # 2^14 draws: probabilities are good to .002 at the worst, five times some 4e-4.
        assert_allclose(below[~at_low & ~at_high], p, atol=2e-3)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.5), (None, 1.0), (-0.5, None), (None, None)])
def test_mean_and_deviation_of_a_new_value(low, high):
    """One value seen: f and y at the new point are normal, and moments of y integrals over it."""
    likelihood = CensoredGaussian(SIGMA, low, high)
    posterior = sg.SkewGPPosterior([[0.0]], [0.7], cov_func=kernel, likelihood=likelihood)
    found = posterior.predict([[0.5]], draws=0)["predictions_summary"].dataset
    k = kernel(np.zeros((1, 1)), np.full((1, 1), 0.5))[0, 0]
    mean, sd = k * 0.7 / (2.0 + SIGMA**2), np.sqrt(2.0 - k**2 / (2.0 + SIGMA**2) + SIGMA**2)

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


def test_nothing_censored_is_regression():
    y = np.array([0.2, -0.4, 1.0, 0.3])
    exact = sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=Gaussian(SIGMA))
    summary = exact.predict(XNEW, draws=0)["predictions_summary"].dataset
    for given, likelihood in (
        (y, CensoredGaussian(SIGMA)),
        (y, CensoredGaussian(SIGMA, lower=-3.0, upper=9.0)),
        (np.column_stack([y, y]), CensoredGaussian(np.full(4, SIGMA))),
    ):
        found = sg.SkewGPPosterior(X, given, cov_func=kernel, likelihood=likelihood)
        assert found.log_marginal_likelihood.value == pytest.approx(
            exact.log_marginal_likelihood.value, abs=1e-12
        )
        at = found.predict(XNEW, draws=0)["predictions_summary"].dataset
        assert_allclose(at["f_mean"], summary["f_mean"], atol=1e-12)


def test_all_in_intervals():
    """Every row an interval, none of them one that says nothing, by quadrature."""
    bounds = np.array([[-np.inf, 0.3], [0.5, 1.0], [-np.inf, np.inf], [-0.2, np.inf]])
    K = kernel(X)
    grid = function_grid(np.zeros(4), K, lambda f: np.maximum(log_p(f, bounds), -700.0).sum(axis=1))
    found = sg.SkewGPPosterior(X, bounds, cov_func=kernel, likelihood=CensoredGaussian(SIGMA))
    evidence = found.log_marginal_likelihood
    assert abs(evidence.value - grid.log_evidence) < max(1e-5, 4 * evidence.std_error)


def test_narrow_intervals_are_points():
    """Log mass of a width w is log density plus log w, up to w^2."""
    width = 1e-6
    y = np.array([0.2, -0.4, 1.0, 0.3])
    bounds = np.column_stack([y - width / 2, y + width / 2])
    exact = sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=Gaussian(SIGMA))
    found = sg.SkewGPPosterior(X, bounds, cov_func=kernel, likelihood=CensoredGaussian(SIGMA))
    expected = exact.log_marginal_likelihood.value + 4 * np.log(width)
    assert found.log_marginal_likelihood.value == pytest.approx(expected, abs=1e-6)
    assert_allclose(found.marginals().moments.mean, exact.marginals().moments.mean, atol=1e-5)


def test_skew_gp_prior():
    r = np.array([[1.0]])
    K, row = kernel(X[:3]), kernel(X[:3], r)[:, 0]
    sign = one_sign(K, row, 2.0, 1.0, 0.1)
    y, bounds = Y[:3], bounds_of(Y[:3])
    grid = function_grid(
        np.zeros(3), K, lambda f: np.maximum(log_p(f, bounds), -700.0).sum(axis=1) + sign(f)
    )
    posterior = sg.SkewGPPosterior(
        X[:3],
        y,
        cov_func=kernel,
        likelihood=CensoredGaussian(SIGMA, LOW, HIGH),
        pseudo_points=r,
        truncation=0.1,
        n_draws=DRAWS,
    )
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - grid.log_evidence) < max(1e-5, 4 * evidence.std_error)
    at = posterior.marginals()
    assert np.all(np.abs(at.moments.mean - grid.mean) < 1e-6 + 5 * at.moment_errors.mean)


def test_censored_data_of_scipy():
    """In its own order: seen, left, right, interval."""
    data = CensoredData([0.8], left=[0.0], right=[1.5], interval=[[0.2, 1.1]])
    order = [1, 0, 2, 3]
    found = sg.SkewGPPosterior(X[order], data, cov_func=kernel, likelihood=CensoredGaussian(SIGMA))
    expected = sg.SkewGPPosterior(
        X[order], BOUNDS[order], cov_func=kernel, likelihood=CensoredGaussian(SIGMA)
    )
    assert found.log_marginal_likelihood.value == expected.log_marginal_likelihood.value


def test_draws_of_the_tree():
    likelihood = CensoredGaussian(SIGMA, LOW, HIGH)
    posterior = sg.SkewGPPosterior(X, Y, cov_func=kernel, likelihood=likelihood)
    dt = posterior.sample(500, 4, random_seed=2)
    f = dt["posterior"]["f"].values
    assert_allclose(dt["log_likelihood"]["y"], log_p(f, bounds_of(Y)), atol=1e-9)
    again = dt["posterior_predictive"]["y"].values
    assert again.min() == LOW
    assert again.max() == HIGH
    # Shares of 2000 draws at a limit: binomial errors of .011 at most, 5 of them.
    assert_allclose((again == LOW).mean(axis=(0, 1)), norm.cdf(-f / SIGMA).mean((0, 1)), atol=0.056)
    new = posterior.predict(XNEW, draws=500, random_seed=3)
    y, summary = new["predictions"]["y"], new["predictions_summary"].dataset
    assert_allclose((y == LOW).mean(("chain", "draw")), summary["p_lower"], atol=0.056)
    assert_allclose((y == HIGH).mean(("chain", "draw")), summary["p_upper"], atol=0.056)
    # The deviation of a mean of 2000 draws, five times.
    error = 5 * summary["y_sd"].values / np.sqrt(2000)
    assert np.all(np.abs(y.mean(("chain", "draw")) - summary["y_mean"]) < error)
    # And of a deviation, whose own is less than that of the mean for values within limits.
    assert np.all(np.abs(y.std(("chain", "draw")) - summary["y_sd"]) < error)


def test_tree_of_bounds():
    posterior = sg.SkewGPPosterior(X, BOUNDS, cov_func=kernel, likelihood=CensoredGaussian(SIGMA))
    dt = posterior.sample(50, 2, random_seed=2)
    assert_allclose(dt["log_likelihood"]["y"], log_p(dt["posterior"]["f"].values), atol=1e-9)
    observed = dt["observed_data"].dataset
    assert_allclose(observed["y"], [np.nan, 0.8, np.nan, np.nan])
    assert_allclose(observed["y_lower"], BOUNDS[:, 0])
    assert observed["y_upper"].dims == ("obs_id",)


def test_loo():
    """Of 20 rows that hardly depend on any of them, so that importance sampling works."""
    x = np.linspace(0.0, 5.0, 20)[:, None]
    y = np.maximum(np.sin(x[:, 0]) + SIGMA * np.random.default_rng(0).normal(size=20), 0.0)
    posterior = sg.SkewGP(cov_func=0.5 * pm.gp.cov.ExpQuad(1, ls=2.0)).posterior(
        x, y, likelihood=CensoredGaussian(SIGMA, 0.0)
    )
    assert np.isfinite(az.loo(posterior.sample(500, 2, random_seed=1)).elpd)


def test_parameters_of_each_row_are_not_known_at_new_points():
    for likelihood in (
        CensoredGaussian(np.full(4, SIGMA), LOW),
        CensoredGaussian(SIGMA, np.full(4, LOW)),
    ):
        posterior = sg.SkewGPPosterior(X, Y, cov_func=kernel, likelihood=likelihood)
        new = posterior.predict(XNEW, draws=10)
        assert "y_mean" not in new["predictions_summary"]
        assert "y" not in new["predictions"]


def test_noise_and_limits_may_be_random_variables():
    with pm.Model():
        sigma, low = pm.HalfNormal("sigma"), pm.Normal("low")
        gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
        found = gp.posterior(
            X, Y, point={"sigma": SIGMA, "low": LOW}, likelihood=CensoredGaussian(sigma, low)
        )
    expected = gp.posterior(X, Y, likelihood=CensoredGaussian(SIGMA, LOW))
    assert found.log_marginal_likelihood.value == pytest.approx(
        expected.log_marginal_likelihood.value, abs=1e-12
    )


@pytest.mark.parametrize(
    ("y", "likelihood", "message"),
    [
        (Y - 1.0, CensoredGaussian(SIGMA, 0.0), r"within the limits.*row 0 has -1, limits 0 and"),
        (Y, CensoredGaussian(SIGMA, upper=1.0), r"row 2 has 1.5, limits -inf and 1 \(1 such"),
        (Y, CensoredGaussian(SIGMA, 2.0, 1.0), "lower must be below upper; row 0 has lower 2"),
        (Y, CensoredGaussian(0.0), "sigma must be positive"),
        (Y, CensoredGaussian([1.0, -1.0, 1.0, 1.0]), "sigma must be positive"),
        (Y, CensoredGaussian(SIGMA, lower=[0.0, 1.0]), "lower must have length 4, got 2"),
        (Y, CensoredGaussian(SIGMA, lower=np.nan), "lower holds"),
        (Y[:3], CensoredGaussian(SIGMA), r"y must have shape \(4,\)"),
        (np.append(Y[:3], np.nan), CensoredGaussian(SIGMA), "y must be finite, found 1 NaN"),
        (BOUNDS[:, ::-1], CensoredGaussian(SIGMA), "lower bound 0 and the upper bound -inf.*swap"),
        (BOUNDS[:3], CensoredGaussian(SIGMA), r"shape \(4,\) or \(4, 2\).*got \(3, 2\)"),
        (BOUNDS, CensoredGaussian(SIGMA, 0.0), "lower and upper are not used: leave them out"),
        (np.full((4, 2), np.inf), CensoredGaussian(SIGMA), "a value that was seen must be finite"),
        (np.full((4, 2), np.nan), CensoredGaussian(SIGMA), "8 NaN bound.*use infinities"),
    ],
)
def test_bad_input(y, likelihood, message):
    with pytest.raises(ValueError, match=message):
        sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=likelihood)
