"""Every public likelihood, a row of `likelihood_cases`: SciPy, PyMC, mpmath and quadrature."""

import re
from functools import partial
from pathlib import Path

import mpmath
import numpy as np
import pymc as pm
import pytest
from likelihood_cases import CASES, GIVEN, Levels, N, X, log_prob
from likelihood_oracles import assert_posterior, function_grid, kernel, one_sign
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit, ndtr

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp._observations.binary import LOGISTIC_NOISE
from pymc_skewgp._posterior.output import LatentMarginals

DOCS = Path(__file__).parents[2] / "docs"
F = np.random.default_rng(0).normal(0.0, 2.0, size=(3, 5, N))
PLACES = np.array([[0.0], [0.6], [1.5], [2.2]])
NEW = np.array([[0.3], [5.0]])
GP = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
FACTORS = [name for name, case in CASES.items() if case.is_factor]
# With one number for each parameter, and with one for each observation.
SETTINGS = [(name, False) for name in GIVEN] + [(name, True) for name in GIVEN if GIVEN[name].each]
each_setting = pytest.mark.parametrize(("name", "each"), SETTINGS)


def setting(name, each=False, n=N):
    """Likelihood, data, and the distribution of these as a function of f."""
    case = GIVEN[name]
    arguments = case.arguments_of(n) if each else case.arguments
    y = case.data(n)
    likelihood = case.kind(**arguments)
    return likelihood, y, lambda f: case.given(f, **arguments)


def of_new(name, each=False):
    """That of new data: of an exposure, one trial, a weight of 1 where rows have their own."""
    case = GIVEN[name]
    arguments = case.arguments | dict.fromkeys(case.each if each else (), 1)
    return lambda f: case.given(f, **arguments)


def test_every_likelihood_has_a_row():
    assert set(CASES) == set(of.__all__), "a row for each in likelihood_cases, and no others"
    for name, case in CASES.items():
        assert case.given or case.simulate or not case.kind.has_data, f"{name} needs one of these"


def documented():
    """What the table of the documentation says: averages and draws, by name of the likelihood."""
    found = {}
    for line in (DOCS / "likelihoods.md").read_text().splitlines():
        cells = line.split("|")[1:-1]
        if len(cells) == 6:
            averages, draws = (set(re.findall(r"`(\w+)`", cell)) for cell in cells[-2:])
            found |= dict.fromkeys(re.findall(r"`(\w+)\(", cells[1]), (averages, draws))
    return found


@pytest.mark.parametrize("name", CASES)
def test_forecasts_are_those_of_the_documentation(name):
    case = CASES[name]
    assert name in documented(), f"docs/likelihoods.md has no row of {name}"
    averages, draws = documented()["Poisson" if name == "Weighted" else name]
    posterior = GP.posterior(X, case.data(), likelihood=case.likelihood, **case.options)
    new = posterior.predict([[0.5], [2.5]], draws=20, chains=1)
    found = {v for v in new["predictions_summary"].data_vars if not v.endswith("_se")}
    assert found == {"f_mean", "f_sd", "f_skewness", "f_quantile"} | averages
    assert set(new["predictions"].data_vars) == {"f"} | draws


@each_setting
def test_log_likelihood(name, each):
    """Over leading axes too."""
    likelihood, y, given = setting(name, each)
    data = likelihood.as_data(y, N)
    want = log_prob(given(F), y)
    assert_allclose(likelihood.log_likelihood(data, F), want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("name", "each"), [row for row in SETTINGS if row[0] in FACTORS])
def test_factors(name, each):
    """No rows, and slopes by differences: their error is h^2 third derivatives, and eps / h^2."""
    likelihood, y, _ = setting(name, each)
    data, h = likelihood.as_data(y, N), 1e-4
    assert likelihood.observations(data, N).n_rows == 0
    sites = likelihood.sites(data, N)
    assert sites.A is None
    assert_allclose(sites.a, np.zeros(N))
    low, mid, high = (likelihood.log_likelihood(data, F + shift) for shift in (-h, 0.0, h))
    assert_allclose(sites.log_prob(F), mid, rtol=1e-14)
    first, second = likelihood.slopes(data, F)
    scale = 1.0 + np.abs(first) + np.abs(second)
    assert np.all(np.abs(first - (high - low) / (2 * h)) < 1e-6 * scale)
    assert np.all(np.abs(second - (high - 2 * mid + low) / h**2) < 1e-5 * (scale + np.abs(mid)))


LARGE, MANY = (-700.0, -50.0, -8.0, 8.0, 13.5, 50.0, 700.0), 10**6
# Other data, and parameters of which constants have all digits.
SIZES = {
    "BernoulliLogit": (0, 1),
    "BinomialLogit": (0, 3, MANY // 2, MANY),
    **dict.fromkeys(("Gamma", "Weibull", "LogNormal", "LogLogistic"), (1e-6, 1, 1e6)),
}
EXACT = {
    "BinomialLogit": {"n": MANY},
    "NegativeBinomial": {"alpha": 2.0, "exposure": 1.0},
    "Weibull": {"sigma": 2.0},  # where the hazard is within double precision
}


@pytest.mark.parametrize("name", [name for name, case in GIVEN.items() if case.exact])
def test_far_off(name):
    """All digits but those that a difference of numbers of this size can have: 1e7 times eps."""
    case, f = GIVEN[name], np.array(LARGE)
    arguments = case.arguments | EXACT.get(name, {})
    likelihood = case.kind(**arguments)
    with mpmath.workdps(400):
        numbers = {key: mpmath.mpf(x) for key, x in arguments.items()}
        for value in SIZES.get(name, (0, 1, MANY)):
            log_p = partial(case.exact, mpmath.mpf(value), **numbers)
            data = np.full(f.size, value)
            found = (likelihood.log_likelihood(data, f), *likelihood.slopes(data, f))
            for order, part in enumerate(found):
                expected = [float(mpmath.diff(log_p, x, order)) for x in LARGE]
                assert_allclose(part, expected, rtol=1e-12, atol=2e-8 if value > 1 else 0)


def test_ordered_logit_far_off():
    """Where differences of the logistic function would be 0."""
    cuts, f, y = [-1.0, 0.2, 1.5], np.array([700.0, -700.0, 40.0]), np.array([1, 1, 2])
    with mpmath.workdps(700):
        # P(y <= k), of k = 0 to 2.
        up_to = [[1 / (1 + mpmath.exp(mpmath.mpf(x) - c)) for c in cuts] for x in f]
        expected = [float(mpmath.log(p[k] - p[k - 1])) for p, k in zip(up_to, y, strict=True)]
    assert_allclose(of.OrderedLogit(cuts).log_likelihood(y, f), expected, rtol=1e-13)


def test_no_count_is_impossible_by_overflow_but_for_means_beyond_floats():
    assert of.Poisson(1e6).log_likelihood(np.array([3]), np.array([705.0]))[0] == -np.inf
    none = of.Weighted(of.Poisson(), 0.0)  # nothing is impossible without weight
    assert none.log_likelihood(np.array([3]), np.array([710.0]))[0] == 0.0


def test_a_limit_of_a_family():
    y, f = np.array([0, 3, 11]), np.array([0.1, 0.5, 2.0])
    large = of.NegativeBinomial(1e9).log_likelihood(y, f)
    assert_allclose(large, of.Poisson().log_likelihood(y, f), atol=1e-6)


def below(given, y):
    """P(new y < y), for whole numbers and others."""
    return given.cdf(y - 1 if np.asarray(y).dtype.kind == "i" else np.nextafter(y, -np.inf))


@each_setting
def test_replicates(name, each):
    """Uniform where SciPy's distribution function has them, jumps filled: 1e-6 a row by chance."""
    likelihood, y, given = setting(name, each)
    rng, f = np.random.default_rng(3), np.linspace(-0.5, 1.0, N)
    many = np.broadcast_to(f, (4, 5000, N))
    data = likelihood.as_data(y, N)
    drawn = likelihood.replicate(data, many, likelihood.log_likelihood(data, many), rng)
    assert drawn.shape == many.shape
    low, high = below(given(f), drawn), given(f).cdf(drawn)
    place = (low + rng.random(low.shape) * (high - low)).reshape(-1, N)
    assert min(stats.kstest(place[:, i], "uniform").pvalue for i in range(N)) > 1e-6


def expected(given, variable):
    """What is predicted, given f."""
    if variable.startswith("y_"):
        return given.mean()
    if variable == "p_lower":
        return given.cdf(given.lower)
    if variable == "p_upper":
        return given.normal.sf(given.upper)
    if isinstance(given, Levels):
        return np.stack([given.pmf(c) for c in range(given.ends.size - 1)], axis=-1)
    return given.mean() / given.support()[1]


QUADRATURE = [
    (name, each, n)
    for name, each in SETTINGS
    # Two rows are integrated in closed form, three are drawn. Factors with numbers for each row
    # differ in log p alone, which other tests have: one of them, and powers.
    for n in (
        (2,) if name in FACTORS else (2, 3) if name == "CensoredGaussian" and not each else (3,)
    )
    if name not in FACTORS or not each or name in ("Poisson", "Weighted")
]


@pytest.mark.parametrize(("name", "each", "n"), QUADRATURE)
def test_by_quadrature(name, each, n):
    likelihood, y, given = setting(name, each, n)
    K, places = kernel(PLACES[:n]), PLACES[:n]
    # Steps of a tenth of a deviation for two values and of .3 for three, which leaves 1e-8 of
    # integrands as wide as these; of a 25th where the density has a kink.
    nodes = 401 if name == "Laplace" else {2: 171, 3: 47}[n]
    grid = function_grid(np.zeros(n), K, lambda f: log_prob(given(f), y).sum(axis=1), nodes)
    posterior = sg.SkewGPPosterior(places, y, cov_func=kernel, likelihood=likelihood, n_draws=4096)
    assert_posterior(posterior, grid, 1e-6 if n == 3 else 1e-3 if name == "Laplace" else 1e-4)
    assert posterior.log_marginal_likelihood.std_error < 5e-3
    if n == 3:
        # 4000 near-independent draws: an entry is off by 1.4 variances / sqrt(4000), 5 allowed.
        f = posterior.sample(random_seed=1)["posterior"]["f"].values.reshape(-1, 3)
        sd = np.sqrt(grid.cov.diagonal())
        assert np.all(np.abs(f.mean(axis=0) - grid.mean) < 5 * sd / np.sqrt(4000))
        assert np.all(np.abs(np.cov(f.T) - grid.cov) < 7 * np.outer(sd, sd) / np.sqrt(4000))
    # At a new point f given f at the data is normal.
    gain = np.linalg.solve(K, kernel(places, NEW))
    variance = 2.0 - np.einsum("ij,ij->j", kernel(places, NEW), gain)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    kept = grid.mass > 1e-6 * grid.mass.max()
    mass = grid.mass[kept] / grid.mass[kept].sum()
    f = (gain.T @ grid.f[:, kept])[..., None] + np.sqrt(variance)[:, None, None] * nodes
    found = posterior.predict(NEW, draws=0)["predictions_summary"].dataset
    for variable in found.data_vars:
        if variable.startswith(("p_", "y_mean")) and not variable.endswith("_se"):
            values = expected(of_new(name, each)(f), variable)
            want = np.tensordot(mass, np.tensordot(weights / weights.sum(), values, (0, 2)), (0, 1))
            error = found[f"{variable}_se"].values
            assert np.all(np.abs(found[variable].values - want) < 1e-4 + 5 * error)


@pytest.mark.parametrize("name", ["OrderedProbit", "Poisson"])
def test_skew_gp_prior(name):
    """The sign at one pseudo-point, phase -1, by the normal probability of it given f."""
    likelihood, y, given = setting(name, n=3)
    r = np.array([[1.0]])
    K, row = kernel(PLACES[:3]), kernel(PLACES[:3], r)[:, 0]
    sign = one_sign(K, row, 2.0, -1.0, 0.3)
    grid = function_grid(np.zeros(3), K, lambda f: log_prob(given(f), y).sum(axis=1) + sign(f))
    prior = {"pseudo_points": r, "phase": [-1.0], "truncation": 0.3}
    posterior = sg.SkewGPPosterior(
        PLACES[:3], y, cov_func=kernel, likelihood=likelihood, n_draws=2**13, **prior
    )
    assert_posterior(posterior, grid, 1e-4)


# A mixture of three components at two points, all there is: no Monte Carlo.
MEANS = np.array([[-1.0, 0.3, 2.0], [0.5, 0.9, -0.2]])
VARIANCE, WEIGHTS = np.array([0.6, 2.0]), np.array([0.2, 0.5, 0.3])
MIXTURE = LatentMarginals(MEANS, VARIANCE, WEIGHTS, exact=True)
PROBS = np.array([0.001, 0.055, 0.5, 0.945])


def average(values, mixture=MIXTURE):
    """E values(f) by the trapezoid rule.

    Its error is far below 1e-12 for smooth functions, and below 1e-5 for mixtures of hundreds.
    """
    z = np.linspace(-11.0, 11.0, 4001 if mixture.weights.size < 10 else 41)
    w = np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2 * np.pi)
    f = mixture.means[..., None] + np.sqrt(mixture.variance)[:, None, None] * z
    return np.einsum("tsq...,q,s->t...", values(f), w, mixture.weights)


@each_setting
def test_averages_of_new_values(name, each):
    """Probabilities to 2e-9, which is what the logistic function as a mixture of normals leaves."""
    likelihood, given = setting(name, each)[0], of_new(name, each)
    found = likelihood.predictive_summary(MIXTURE)
    for variable in found:
        if variable == "y_sd":
            total = average(lambda f: given(f).var() + given(f).mean() ** 2)
            want = np.sqrt(total - average(lambda f: given(f).mean()) ** 2)
        elif not variable.endswith("_se"):
            want = average(lambda f, variable=variable: expected(given(f), variable))
        else:
            want = 0.0
        assert_allclose(found[variable], want, rtol=1e-10, atol=2e-9, err_msg=variable)


def drawn_mixture(rng, size=400):
    """Components whose means are themselves drawn, with weights."""
    weights = rng.gamma(4.0, size=size)
    means = np.stack([rng.normal(-0.5, 0.8, size), rng.normal(1.0, 0.4, size)])
    return LatentMarginals(means, np.array([0.3, 0.1]), weights / weights.sum())


@pytest.mark.parametrize("name", GIVEN)
def test_standard_errors(name):
    """Against the spread of 200 repetitions, known to 5 percent: between 0.8 and 1.25 times it.

    In that of probabilities there is a bound of what draws may have missed. It counts where a
    category is central, so that its probability hardly depends on f: up to twice the spread.
    """
    likelihood, rng = setting(name)[0], np.random.default_rng(5)
    runs = [likelihood.predictive_summary(drawn_mixture(rng)) for _ in range(200)]
    for variable in [key for key in runs[0] if not key.endswith("_se")]:
        spread = np.std([run[variable] for run in runs], axis=0)
        ratio = np.mean([run[f"{variable}_se"] for run in runs], axis=0) / spread
        most = 2.0 if variable.startswith("p_") else 1.25
        assert np.all((ratio > 0.8) & (ratio < most)), (variable, ratio)


@pytest.mark.parametrize("name", GIVEN)
def test_draws_at_new_points_have_these_averages(name):
    """200000 draws of f, then of y: five standard errors."""
    rng, n = np.random.default_rng(7), 200_000
    component = rng.choice(3, size=n, p=WEIGHTS)
    f = MEANS[:, component].T + np.sqrt(VARIANCE) * rng.standard_normal((n, 2))
    likelihood = setting(name)[0]
    summary, drawn = likelihood.predictive_summary(MIXTURE), likelihood.predictive_draws(f, rng)
    if "y_mean" in summary:
        y = drawn["y"]
        assert np.all(np.abs(y.mean(axis=0) - summary["y_mean"]) < 5 * y.std(axis=0) / np.sqrt(n))
        return
    p = summary["p_mean"]
    if p.ndim == 2:
        share = drawn["y"][..., None] == np.arange(p.shape[1])
    else:
        share = drawn["y"] / of_new(name)(0.0).support()[1]
    assert np.all(np.abs(share.mean(axis=0) - p) < 5 * 0.5 / np.sqrt(n))
    assert np.all(np.abs(drawn["p"].mean(axis=0) - p) < 5 * 0.5 / np.sqrt(n))


def assert_quantiles(likelihood, given, mixture, atol, whole):
    def share(values):
        return average(lambda f: given(f).cdf(values[:, None, None]), mixture)

    found = likelihood.predictive_quantiles(mixture, PROBS)
    if not found:  # of labels and levels, whose probabilities are predicted
        assert "p_mean" in likelihood.predictive_summary(mixture)
        return
    for prob, values in zip(PROBS, found["y_quantile"], strict=True):
        assert not whole or np.all(values == np.floor(values))
        assert np.all(share(values) > prob - atol)
        assert np.all(share(values - 1 if whole else np.nextafter(values, -9e9)) < prob + atol)


# Counts, values, and values with limits, of components that are nearly points.
NARROW = ("Poisson", "StudentT", "CensoredGaussian", "BinomialLogit")


@pytest.mark.parametrize(
    ("name", "narrow"), [(name, False) for name in GIVEN] + [(name, True) for name in NARROW]
)
def test_quantiles_of_new_values(name, narrow):
    """The distribution function at them, by SciPy over a grid of f.

    Lines between tabulated values have errors of up to 6e-4. Of 400 components that are nearly
    points the distribution function has steps, which the lines even out; what is allowed there is
    less than half of the Monte Carlo error of 400 draws, 0.025.
    """
    likelihood, y, given = setting(name)
    mixture, atol = LatentMarginals(MEANS, VARIANCE, WEIGHTS), 1e-3
    if narrow:
        points = np.random.default_rng(2).gamma(3.0, 0.5, size=(2, 400)) - 1.0
        mixture, atol = LatentMarginals(points, np.array([1e-6, 0.0]), np.full(400, 1 / 400)), 1e-2
    assert_quantiles(likelihood, given, mixture, atol, y.dtype.kind == "i")
    if name in ("Poisson", "StudentT") and not narrow:  # many, little noise, and heavy tails
        for more in (
            ({"exposure": 3e5},)
            if name == "Poisson"
            else ({"nu": 4.0, "sigma": 1e-3}, {"nu": 1.5, "sigma": 0.7})
        ):
            other = GIVEN[name].kind(**more)
            given = lambda f, more=more: GIVEN[name].given(f, **more)  # noqa: E731
            assert_quantiles(other, given, mixture, atol, name == "Poisson")


def test_quantiles_of_huge_counts_and_of_known_rates():
    known = LatentMarginals(np.array([[90.0], [np.log(4.0)]]), np.array([1e-3, 0.0]), np.ones(1))
    found = of.Poisson().predictive_quantiles(known, np.array([0.5]))["y_quantile"]
    assert_allclose(found, [[2.0**62, stats.poisson.ppf(0.5, 4.0)]])


def test_counts_of_means_beyond_integers():
    """Draws of f far from the data may be large; the largest 64-bit counts stand for them."""
    drawn = of.Poisson().predictive_draws(np.full(2, 100.0), np.random.default_rng(0))["y"]
    assert np.all(drawn > 2**61)


@pytest.mark.parametrize(
    ("distance", "variance", "scale", "weight"),
    [
        (10.0, 1e-4, 0.02, 0.975), (3.0, 0.01, 0.05, 0.5), (8.0, 0.0, 0.3, 0.3),
    ],
)  # fmt: skip
def test_quantiles_of_narrow_modes_far_apart(distance, variance, scale, weight):
    """The probability below each quantile, two modes of f with Student noise: by quadrature.

    The plain point beside it, the first, has the quantiles that it has alone.
    """
    means = np.array([[0.0, 0.5], [0.0, distance]])
    weights = np.array([weight, 1.0 - weight])
    mixture = LatentMarginals(means, np.array([1.0, variance]), weights, exact=True)
    plain = LatentMarginals(means[:1], np.ones(1), weights, exact=True)
    probs = np.array([0.05, 0.2, 0.35, 0.75, 0.95])
    likelihood = of.StudentT(4.0, scale)
    found = likelihood.predictive_quantiles(mixture, probs)["y_quantile"]
    alone = likelihood.predictive_quantiles(plain, probs)["y_quantile"]
    # False positions end when all points have converged.
    assert_allclose(found[:, 0], alone[:, 0], atol=1e-7)
    # Noise of y and f together by Gauss and Hermite in f.
    z, w = np.polynomial.hermite_e.hermegauss(60)
    off = found[:, 1, None, None] - means[1][:, None] - np.sqrt(variance) * z
    share = stats.t.cdf(off / scale, 4.0) @ (w / w.sum()) @ weights
    # A trapezoid rule of 257 nodes and more; before up to .05 off.
    assert_allclose(share, probs, atol=2e-4)


def test_logistic_noise():
    """As a mixture of normals, and its variance pi^2 / 3."""
    x = np.linspace(-60.0, 60.0, 2401)
    p = LOGISTIC_NOISE.shares @ stats.norm.cdf(x / np.sqrt(LOGISTIC_NOISE.variances)[:, None])
    assert np.abs(p - expit(x)).max() < 1e-9
    assert LOGISTIC_NOISE.shares @ LOGISTIC_NOISE.variances == pytest.approx(np.pi**2 / 3, rel=1e-8)


@pytest.mark.parametrize(
    "likelihood",
    [
        of.Gaussian([0.1, 0.2]),
        of.StudentT(4.0, [0.1, 0.2]),
        of.Laplace([0.1, 0.2]),
        of.CensoredGaussian([0.1, 0.2], 0.0),
        of.CensoredGaussian(0.1, [0.0, 0.1]),
        of.BinomialProbit([1, 2]),
        of.BinomialLogit([1, 2]),
    ],
    ids=repr,
)
def test_what_is_not_known_of_new_points(likelihood):
    drawn = likelihood.predictive_draws(np.zeros((2, 3)), np.random.default_rng(0))
    names = {*drawn, *likelihood.predictive_summary(MIXTURE)}
    assert names == ({"p", "p_mean", "p_mean_se"} if hasattr(likelihood, "n") else set())
    assert likelihood.predictive_quantiles(MIXTURE, PROBS) == {}


def test_moments_that_do_not_exist():
    assert of.StudentT(1.0, 0.1).predictive_summary(MIXTURE) == {}
    assert np.all(np.isinf(of.StudentT(2.0, 0.1).predictive_summary(MIXTURE)["y_sd"]))


@pytest.mark.parametrize("name", GIVEN)
def test_trees(name):
    """Shares of 2000 draws: binomial errors of .011 at most, 5 of them."""
    likelihood, y, given = setting(name)
    posterior = GP.posterior(X, y, likelihood=likelihood)
    dt = posterior.sample(500, 4, random_seed=2)
    f = dt["posterior"]["f"].values
    assert_allclose(dt["log_likelihood"]["y"], log_prob(given(f), y), atol=1e-9)
    share = (dt["posterior_predictive"]["y"].values <= y).mean(axis=(0, 1))
    assert_allclose(share, given(f).cdf(y).mean(axis=(0, 1)), atol=0.056)
    assert_allclose(dt["observed_data"]["y"], y)
    new = posterior.predict(NEW, draws=500, random_seed=3)
    drawn, summary = new["predictions"].dataset, new["predictions_summary"].dataset
    f, middle = drawn["f"].values, np.sort(y)[N // 2]
    share = (drawn["y"].values <= middle).mean(axis=(0, 1))
    assert_allclose(share, given(f).cdf(middle).mean(axis=(0, 1)), atol=0.056)
    if "p" in drawn:
        assert_allclose(drawn["p"], expected(given(f), "p_mean"), atol=1e-9)
        assert drawn["p"].dims == ("chain", "draw", *summary["p_mean"].dims)
    if "mu" in drawn:
        assert_allclose(drawn["mu"], given(f).mean(), rtol=1e-12)
    if "y_quantile" in summary:
        values = summary["y_quantile"]
        assert values.dims == ("quantile", "pred_id")
        assert np.all((drawn["y"] <= values).mean(("chain", "draw")) > values["quantile"] - 0.056)
        assert np.all((drawn["y"] < values).mean(("chain", "draw")) < values["quantile"] + 0.056)


@pytest.mark.parametrize("name", CASES)
def test_parameters_may_be_random_variables(name):
    """Those that are no integers; their values come from `point`."""
    case = CASES[name]
    numbers = {k: np.asarray(x) for k, x in case.arguments.items() if np.asarray(x).dtype == float}
    with pm.Model():
        variables = {k: pm.Normal(k, shape=x.shape) for k, x in numbers.items()}
    unknown = case.kind(**case.arguments | variables)
    found, expected = (
        GP.posterior(X, case.data(), likelihood=known, point=numbers, random_seed=1, **case.options)
        for known in (unknown, case.likelihood)
    )
    assert found.log_marginal_likelihood.value == pytest.approx(
        expected.log_marginal_likelihood.value, abs=1e-12
    )
    if numbers:
        with pytest.raises(ValueError, match=next(iter(numbers))):
            GP.posterior(X, case.data(), likelihood=unknown, **case.options)


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_follow_the_callers_arrays(name):
    case = CASES[name]
    given = {k: np.array(x) for k, x in case.arguments_of(N).items() if np.ndim(x)}
    likelihood = case.kind(**case.arguments | given)
    for key, array in given.items():
        before = array.copy()
        array[:] = 0
        assert_allclose(getattr(likelihood, key), before)
    assert likelihood == likelihood
    assert isinstance(hash(likelihood), int)


class TestWeighted:
    """Powers of a factor."""

    def test_what_is_predicted_is_the_likelihoods(self):
        weighted = of.Weighted(of.OrderedLogit([-1.0, 0.2, 1.5], ["a", "b", "c", "d"]), 2.0)
        assert weighted.predicted_dims["p_mean"] == ("category",)
        assert weighted.coords(np.array([0]))["category"] == ["a", "b", "c", "d"]

    @pytest.mark.parametrize("other", [of.Preference(1.0), of.Weighted(of.Poisson(), 1.0), "x"])
    def test_other_likelihoods(self, other):
        with pytest.raises(TypeError, match="Weighted takes a likelihood of observations that are"):
            of.Weighted(other, 1.0)
        with pytest.raises(TypeError, match="leave noise_cov out"):
            of.Weighted(of.BernoulliProbit(np.eye(2)), 1.0)

    @pytest.mark.parametrize(
        ("known", "y", "given"),
        [
            (of.BernoulliProbit(), 1, ndtr),
            (of.OrderedProbit([-0.5, 1.0]), 1, lambda f: ndtr(1.0 - f) - ndtr(-0.5 - f)),
            (of.Gaussian(0.7), 0.4, stats.norm(0.4, 0.7).pdf),
            (of.CensoredGaussian(0.7, upper=1.0), 1.0, stats.norm(1.0, 0.7).cdf),
        ],
    )
    def test_powers_of_rows(self, known, y, given):
        """Evidence by Gauss-Hermite quadrature of 300 nodes, within four standard errors.

        The seed is fixed; of four cases one false alarm in 4000 seeds.
        """
        nodes, mass = np.polynomial.hermite_e.hermegauss(300)
        mass /= mass.sum()
        sd = float(np.sqrt(GP.cov_func(X[:1]).eval(mode="FAST_COMPILE")[0, 0]))
        weighted = of.Weighted(known, [2.3])
        found = GP.posterior(X[:1], [y], likelihood=weighted, random_seed=1)
        evidence = found.log_marginal_likelihood
        expected = np.log(mass @ given(sd * nodes) ** 2.3)
        assert abs(evidence.value - expected) < 4 * evidence.std_error + 1e-9
        f = np.linspace(-3.0, 3.0, 7)[:, None]
        ahead, behind = (weighted.slopes(np.array([y]), f + x)[0] for x in (1e-5, -1e-5))
        # Central differences, of log p of size 10: 1e-6 at most.
        high, low = (weighted.log_likelihood(np.array([y]), f + x) for x in (1e-5, -1e-5))
        first, second = weighted.slopes(np.array([y]), f)
        assert_allclose(first, (high - low) / 2e-5, atol=1e-6)
        assert_allclose(second, (ahead - behind) / 2e-5, atol=1e-6)

    def test_parameters_that_are_random_variables(self):
        with pm.Model():
            alpha = pm.Gamma("alpha", 2.0, 1.0)
        found, expected = (
            GP.posterior(X[:2], [0, 7], likelihood=of.Weighted(known, 1.0), point={"alpha": 1.7})
            for known in (of.NegativeBinomial(alpha), of.NegativeBinomial(1.7))
        )
        assert found.log_marginal_likelihood == expected.log_marginal_likelihood


def test_probability_of_a_label():
    """By `probability` as by `predict`."""
    labels = {"cov_func": kernel, "likelihood": of.BernoulliLogit(), "weights": [0.5, 2.0]}
    posterior = sg.SkewGPPosterior(X[:2], [1, 0], **labels)
    found = posterior.probability(NEW)
    summary = posterior.predict(NEW, draws=0)["predictions_summary"]
    assert_allclose(found.value, summary["p_mean"], rtol=1e-14)
    assert_allclose(found.std_error, summary["p_mean_se"], rtol=1e-14)
    for y, likelihood in (([1, 0], of.Poisson()), ([0.1, 0.3], of.Gaussian(0.3))):
        other = sg.SkewGPPosterior(X[:2], y, cov_func=kernel, likelihood=likelihood)
        name = type(likelihood).__name__
        with pytest.raises(TypeError, match=f"probability is of a label 1; under {name}"):
            other.probability(NEW)
